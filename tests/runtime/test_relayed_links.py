"""A relay without the secret rewrote records with an equal CRC, and ended a group by one frame.

On a sealed link it can do no more than end the link: each thing that it can do to a frame is done
here to real links, and none of it reaches a broker. The last tests are about what stays possible
while brokers of the last release, which cannot seal, are allowed.
"""

import pytest
import trio

from raftlog.base import probes
from raftlog.base.ids import NodeId
from raftlog.broker.events import LinkDown, LinkUp, PeerMessages, PeerSend
from raftlog.broker.peer_codec import PROTOCOL_MAX, PROTOCOLS, SEALED_FROM
from raftlog.broker.peer_messages import NodeHeartbeatReply
from tests.runtime.relay import Relay, framed
from tests.runtime.test_peer_links import End

LAST = {version: codec for version, codec in PROTOCOLS.items() if version < SEALED_FROM}
FORGED = NodeHeartbeatReply(round=666, disagreed=())


def message(round_no: int) -> NodeHeartbeatReply:
    return NodeHeartbeatReply(round=round_no, disagreed=())


def send(end: End, peer: int, *rounds: int) -> None:
    """A frame for each round."""
    session = end.links._links[NodeId(peer)].agreed.session
    for round_no in rounds:
        end.links.send(PeerSend(NodeId(peer), session, [message(round_no)]))
    end.links.flush()


def heard(end: End) -> list[int]:
    """The rounds of all messages that reached a broker."""
    of_peer = [each for each in end.driver.events if type(each) is PeerMessages]
    return [each.round for messages in of_peer for each in messages.messages]


async def down(end: End) -> None:
    await end.driver.until(lambda events: any(type(each) is LinkDown for each in events))


async def linked_with(end: End, nodes: set[int]) -> None:
    await end.driver.until(
        lambda events: {each.peer for each in events if type(each) is LinkUp} >= nodes
    )


async def hears(end: End, rounds: set[int]) -> None:
    await end.driver.until(lambda events: set(heard(end)) == rounds)


def forged_frame(version: int) -> bytes:
    (parts,) = PROTOCOLS[version].encode_frames([FORGED])
    return framed(b"".join(parts))


class Once:
    """Changes what a direction carries from its third frame on, and lets all else pass."""

    def __init__(self, change) -> None:
        self.change = change
        self.passed: list[bytes] = []

    def __call__(self, forward, frame):
        if not forward:
            return [(forward, frame)]
        self.passed.append(frame)
        if len(self.passed) < 3:
            return [(forward, frame)]
        return [(forward, piece) for piece in self.change(self.passed)]


def recomputed(frame: bytes) -> bytes:
    return framed(frame[8:])


def flipped(passed):
    return [recomputed(passed[-1][:-1] + bytes([passed[-1][-1] ^ 1]))]


def flipped_in_the_body(passed):
    return [recomputed(passed[-1][:9] + bytes([passed[-1][9] ^ 128]) + passed[-1][10:])]


def repeated(passed):
    return [passed[-1], passed[-1]]


def an_old_one_again(passed):
    return [passed[0]]


def left_out(passed):
    return [passed[-1]] if len(passed) > 3 else []


def exchanged(passed):
    return [] if len(passed) == 3 else [passed[-1], passed[-2]]


def cut_short(passed):
    return [framed(passed[-1][8:-3])]


def cut_to_nothing(passed):
    return [framed(b"")]


def made_longer(passed):
    return [framed(passed[-1][8:] + b"more")]


def announced_too_large(passed):
    return [b"\x7f\xff\xff\xff" + passed[-1][4:]]


def injected(passed):
    return [forged_frame(SEALED_FROM), passed[-1]]


def injected_with_a_tag_of_nothing(passed):
    return [framed(forged_frame(SEALED_FROM)[8:] + bytes(16)), passed[-1]]


@pytest.mark.parametrize(
    "change",
    [
        flipped,
        flipped_in_the_body,
        repeated,
        an_old_one_again,
        left_out,
        exchanged,
        cut_short,
        cut_to_nothing,
        made_longer,
        announced_too_large,
        injected,
        injected_with_a_tag_of_nothing,
    ],
)
async def test_what_a_relay_does_to_a_sealed_frame_ends_the_link(change):
    before = sum(count for name, count in probes.fired().items() if "peer-frame" in name)
    async with trio.open_nursery() as nursery:
        one, two = End(1, nursery), End(2, nursery)
        relay = Relay(await two.listen(), Once(change))
        one.links.keep((await relay.listen(nursery),))
        await one.linked()
        await two.linked()
        send(one, 2, 1, 2, 3, 4)
        await down(two)
        assert heard(two) in ([1, 2], [1, 2, 3])
        (trouble,) = [event for event in two.tracer.events if event.name == "peer-trouble"]
        assert "bad frame" in str(trouble.fields)
        relay.change = lambda forward, frame: [(forward, frame)]
        await one.linked(times=2)
        await two.linked(times=2)
        send(one, 2, 5)
        await two.driver.until(lambda events: 5 in heard(two))
        assert 666 not in heard(two)
        nursery.cancel_scope.cancel()
    after = sum(count for name, count in probes.fired().items() if "peer-frame" in name)
    of_sizes = change in (cut_to_nothing, announced_too_large)
    assert after == before + (not of_sizes), "each frame that does not open is counted"


async def test_a_frame_is_worth_nothing_to_its_sender_and_in_another_session():
    """Reflected, and recorded for the next session."""
    old: list[bytes] = []

    def reflected(forward, frame):
        old.append(frame)
        return [(not forward, frame)]

    async with trio.open_nursery() as nursery:
        one, two = End(1, nursery), End(2, nursery)
        relay = Relay(await two.listen(), reflected)
        one.links.keep((await relay.listen(nursery),))
        await one.linked()
        send(one, 2, 1)
        await down(one)
        assert (heard(one), heard(two)) == ([], [])
        relay.change = lambda forward, frame: [(forward, old[0])]
        await one.linked(times=2)
        await two.linked(times=2)
        send(one, 2, 1)
        await two.driver.until(lambda events: sum(type(each) is LinkDown for each in events) == 2)
        assert (heard(one), heard(two)) == ([], [])
        nursery.cancel_scope.cancel()


async def test_a_relay_that_only_forwards_reads_nothing():
    async with trio.open_nursery() as nursery:
        one, two = End(1, nursery), End(2, nursery)
        relay = Relay(await two.listen())
        one.links.keep((await relay.listen(nursery),))
        await one.linked()
        send(one, 2, 0x0123456789ABCDEF)
        await two.driver.until(lambda events: heard(two) != [])
        assert heard(two) == [0x0123456789ABCDEF]
        assert relay.frames == 1
        assert bytes.fromhex("0123456789abcdef") not in relay.seen
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("required", [False, True])
async def test_a_relay_cannot_turn_a_sealed_link_into_a_plain_one(required):
    """Plain links are allowed here, and it breaks off every sealed one: there is none then."""
    async with trio.open_nursery() as nursery:
        one, two = End(1, nursery, required=required), End(2, nursery, required=required)
        relay = Relay(await two.listen(), refuse_seals=True)
        one.links.keep((await relay.listen(nursery),))
        with trio.move_on_after(1):
            await one.linked()
        assert relay.connections > 2
        assert one.driver.links() == two.driver.links() == []
        said = "hung up on the hello" if required else "came as a plain one"
        assert any(said in str(event.fields) for event in one.tracer.events)
        relay.refuse_seals = False
        await one.linked()
        nursery.cancel_scope.cancel()


async def test_brokers_are_upgraded_one_by_one_and_each_new_pair_is_sealed():
    """Three brokers that all dial each other; at each stage new ones seal among themselves, the
    others are linked plainly, and messages pass on every link."""
    for new in range(4):
        async with trio.open_nursery() as nursery:
            codecs = {node: PROTOCOLS if node <= new else LAST for node in (1, 2, 3)}
            ends = {node: End(node, nursery, codecs=codecs[node]) for node in (1, 2, 3)}
            addresses = tuple([await end.listen() for end in ends.values()])
            for end in ends.values():
                end.links.keep(addresses)
            for end in ends.values():
                await linked_with(end, {1, 2, 3} - {end.node})
            await trio.sleep(0.3)
            for node, end in ends.items():
                for peer, link in end.links._links.items():
                    both_new = node <= new and peer <= new
                    assert (link.agreed.keys is not None) == both_new, (new, node, peer)
                    assert link.codec.version == (PROTOCOL_MAX if both_new else SEALED_FROM - 1)
                    send(end, peer, 10 * node)
            for node, end in ends.items():
                await hears(end, {10 * other for other in ends if other != node})
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize("old", [1, 2])
async def test_once_seals_are_required_an_older_release_is_refused(old):
    async with trio.open_nursery() as nursery:
        ends = {
            node: End(
                node, nursery, codecs=LAST if node == old else PROTOCOLS, required=node != old
            )
            for node in (1, 2)
        }
        addresses = tuple([await end.listen() for end in ends.values()])
        for end in ends.values():
            end.links.keep(addresses)
        with trio.move_on_after(1):
            await ends[1].linked()
        assert ends[1].driver.links() == ends[2].driver.links() == []
        said = [str(event.fields) for event in ends[3 - old].tracer.events]
        assert any("a plain link is refused" in each for each in said)
        assert any("hung up on the hello of a sealed link" in each for each in said)
        nursery.cancel_scope.cancel()


async def test_a_plain_link_to_an_older_release_can_be_forged():
    """So `allowed` promises nothing about links of which one end cannot seal."""
    async with trio.open_nursery() as nursery:
        one, two = End(1, nursery), End(2, nursery, codecs=LAST)
        forged = forged_frame(SEALED_FROM - 1)
        relay = Relay(await two.listen(), lambda forward, frame: [(forward, forged)])
        one.links.keep((await relay.listen(nursery),))
        await one.linked()
        await two.linked()
        send(one, 2, 1)
        await two.driver.until(lambda events: heard(two) != [])
        assert heard(two) == [666]
        nursery.cancel_scope.cancel()
