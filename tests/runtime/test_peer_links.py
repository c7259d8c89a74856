"""One link per pair, whichever end dials, and the same one at both ends."""

import socket

import pytest
import trio
import trio.testing
from raftlog_sim.world.releases import RELEASES

from raftlog.base.ids import BootNumber, ClusterId, DirectoryId, NodeId, SessionId
from raftlog.base.trace import ListTracer
from raftlog.broker.events import LinkDown, LinkUp, PeerAddress, PeerMessages, PeerSend, Unlink
from raftlog.broker.peer_messages import NodeHeartbeatReply
from raftlog.runtime.network.handshake import HANDSHAKE_SECONDS, Agreed, PeerIdentity, Trust
from raftlog.runtime.network.peer_links import HANDSHAKES_MAX, PeerLinks, _replaces
from raftlog.runtime.network.slabs import SIZE_CLASSES
from raftlog.runtime.network.streams import TcpNetwork
from raftlog.runtime.real_ports import OsEntropy
from tests.runtime.frame_senders import LittleMemory
from tests.runtime.memory_stream import memory_pair

CLUSTER = ClusterId(b"c" * 16)


class FakeDriver:
    def __init__(self) -> None:
        self.events: list = []
        self.changed = trio.Event()

    def post(self, event) -> None:
        self.post_all([event])

    def post_all(self, events) -> None:
        self.events += events
        self.changed.set()

    post_from_peer = post_all

    async def until(self, condition) -> None:
        with trio.fail_after(20):
            while not condition(self.events):
                await self.changed.wait()
                self.changed = trio.Event()

    def links(self) -> list:
        return [each for each in self.events if isinstance(each, LinkUp | LinkDown)]


class End:
    """One broker's links over real loopback sockets."""

    def __init__(
        self,
        node: int,
        nursery,
        secret=b"0123456789abcdef",
        boot: int = 1,
        at: str = "first",
        release: int = 0,
        codecs=None,
        required: bool = False,
    ) -> None:
        self.node = NodeId(node)
        self.nursery = nursery
        self.driver = FakeDriver()
        self.tracer = ListTracer()
        self.alive: set[str] = set()
        """Addresses of those who are held for alive."""
        directory = DirectoryId(node if at == "first" else 100 + node)
        codecs = codecs or RELEASES[release].codecs
        oldest, newest = min(codecs), max(codecs)
        identity = PeerIdentity(CLUSTER, self.node, directory, BootNumber(boot), oldest, newest, at)
        self.links = PeerLinks(
            self.driver,
            Trust((secret,), required),
            identity,
            OsEntropy(),
            self.tracer,
            nursery,
            lambda node, directory, boot, address: address in self.alive,
            TcpNetwork(),
            codecs,
        )

    async def listen(self) -> PeerAddress:
        (listening,) = await TcpNetwork().listen("127.0.0.1", 0)
        self.nursery.start_soon(self._accept, listening)
        return PeerAddress(self.node, "127.0.0.1", listening.port)

    async def _accept(self, listening) -> None:
        try:
            while True:
                stream, address = await listening.accept()
                self.nursery.start_soon(self.links.accept, stream, address)
        finally:
            listening.close()

    async def linked(self, times: int = 1) -> LinkUp:
        await self.driver.until(
            lambda events: sum(isinstance(each, LinkUp) for each in events) >= times
        )
        return [each for each in self.driver.events if isinstance(each, LinkUp)][-1]


async def test_both_dial_and_one_link_stays():
    async with trio.open_nursery() as nursery:
        one, two = End(1, nursery), End(2, nursery)
        addresses = (await one.listen(), await two.listen())
        one.links.keep(addresses)
        two.links.keep(addresses)
        up_at_one, up_at_two = await one.linked(), await two.linked()
        assert up_at_one.peer == 2
        assert up_at_two.peer == 1
        await trio.sleep(0.3)
        assert one.driver.links()[-1].session == two.driver.links()[-1].session
        assert isinstance(one.driver.links()[-1], LinkUp)
        nursery.cancel_scope.cancel()


async def test_a_node_is_found_at_the_one_of_its_addresses_that_is_true():
    """After all brokers moved, each knew the others' old addresses only from the cluster's
    metadata, and dialled nothing else: the configured addresses were true, and no broker led."""
    async with trio.open_nursery() as nursery:
        one, two, three = End(1, nursery), End(2, nursery), End(3, nursery)
        now = await two.listen()
        another = (await three.listen())._replace(node=NodeId(2))
        with trio.fail_after(20):
            free = await TcpNetwork().listen("127.0.0.1", 0)
        nobody = PeerAddress(NodeId(2), "127.0.0.1", free[0].port)
        free[0].close()
        one.links.keep((nobody, another, now))
        up = await one.linked()
        assert (up.peer, up.directory) == (2, 2)
        await trio.sleep(0.3)
        assert one.driver.links() == [up]
        nursery.cancel_scope.cancel()


async def test_a_node_at_two_true_addresses_has_one_link():
    async with trio.open_nursery() as nursery:
        one, two = End(1, nursery), End(2, nursery)
        one.links.keep((await two.listen(), await two.listen()))
        up = await one.linked()
        await trio.sleep(0.3)
        assert [each.session for each in one.driver.links()] == [up.session]
        assert [each.session for each in two.driver.links()] == [up.session]
        nursery.cancel_scope.cancel()


async def test_messages_go_over_the_session_they_were_meant_for():
    async with trio.open_nursery() as nursery:
        one, two = End(1, nursery), End(2, nursery)
        one.links.keep((await two.listen(),))
        session = (await one.linked()).session
        message = NodeHeartbeatReply(round=7, disagreed=())
        one.links.send(PeerSend(NodeId(2), SessionId(session + 1), [message]))
        one.links.send(PeerSend(NodeId(2), session, [message, message]))
        one.links.flush()
        await two.driver.until(lambda events: any(type(each) is PeerMessages for each in events))
        got = [each for each in two.driver.events if type(each) is PeerMessages]
        assert got == [PeerMessages(NodeId(1), session, [message, message])]
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(("one_is", "two_is"), [(0, 1), (1, 0), (1, 2), (2, 2)])
async def test_two_releases_understand_each_other(one_is, two_is):
    """Frames have the form of the older one: what only the newer one knows would break the link."""
    async with trio.open_nursery() as nursery:
        one, two = End(1, nursery, release=one_is), End(2, nursery, release=two_is)
        one.links.keep((await two.listen(),))
        session = (await one.linked()).session
        await two.linked()
        message = NodeHeartbeatReply(round=7, disagreed=())
        one.links.send(PeerSend(NodeId(2), session, [message]))
        one.links.flush()
        two.links.send(PeerSend(NodeId(1), session, [message]))
        two.links.flush()
        for end, peer in ((one, 2), (two, 1)):
            await end.driver.until(lambda events: any(type(e) is PeerMessages for e in events))
            assert end.driver.events[-1] == PeerMessages(NodeId(peer), session, [message])
            link = end.links._links[NodeId(peer)]
            assert link.codec.version == RELEASES[min(one_is, two_is)].protocols[1]
        nursery.cancel_scope.cancel()


async def test_a_link_that_breaks_is_reported_and_redialled():
    async with trio.open_nursery() as nursery:
        one, two = End(1, nursery), End(2, nursery)
        one.links.keep((await two.listen(),))
        first = await one.linked()
        two.links._links[NodeId(1)].stream.close()
        second = await one.linked(times=2)
        assert one.driver.links()[1] == LinkDown(NodeId(2), first.session)
        assert second.session != first.session
        nursery.cancel_scope.cancel()


async def test_a_link_is_broken_by_the_session_that_is_meant_and_redialled():
    async with trio.open_nursery() as nursery:
        one, two = End(1, nursery), End(2, nursery)
        one.links.keep((await two.listen(),))
        first = await one.linked()
        await two.linked()
        two.links.unlink(Unlink(NodeId(1), SessionId(first.session + 1)))
        two.links.unlink(Unlink(NodeId(7), first.session))
        await trio.testing.wait_all_tasks_blocked()
        assert two.driver.links()[1:] == []
        two.links.unlink(Unlink(NodeId(1), first.session))
        second = await one.linked(times=2)
        assert one.driver.links()[1] == LinkDown(NodeId(2), first.session)
        assert two.driver.links()[1] == LinkDown(NodeId(1), first.session)
        assert second.session != first.session
        nursery.cancel_scope.cancel()


async def test_a_stranger_is_refused_and_traced_once():
    async with trio.open_nursery() as nursery:
        one, two = End(1, nursery, secret=b"another secret of 16"), End(2, nursery)
        one.links.keep((await two.listen(),))
        await trio.sleep(0.5)
        assert len(two.tracer.events) > 1
        assert two.driver.events == []
        assert {event.name for event in two.tracer.events} == {"peer-refused"}
        assert [event.name for event in one.tracer.events] == ["peer-trouble"]
        nursery.cancel_scope.cancel()


async def test_a_corrupt_frame_ends_the_session():
    async with trio.open_nursery() as nursery:
        one, two = End(1, nursery), End(2, nursery)
        one.links.keep((await two.listen(),))
        await one.linked()
        one.links._links[NodeId(2)].sender.put(b"\0\0\0\x1c\xde\xad\xbe\xef" + bytes(24))
        one.links._links[NodeId(2)].sender.flush()
        await two.driver.until(lambda events: any(type(each) is LinkDown for each in events))
        assert any("CRC" in str(event.fields) for event in two.tracer.events)
        assert not any(type(event) is PeerMessages for event in two.driver.events)
        nursery.cancel_scope.cancel()


async def test_no_memory_for_a_frame_ends_the_session(monkeypatch):
    """It ended the process, which has no other task for errors of one link."""
    async with trio.open_nursery() as nursery:
        one, two = End(1, nursery), End(2, nursery)
        one.links.keep((await two.listen(),))
        await one.linked()
        LittleMemory(monkeypatch, SIZE_CLASSES[0])
        one.links._links[NodeId(2)].sender.put(b"\0\x01\0\0" + bytes(SIZE_CLASSES[0]))
        one.links._links[NodeId(2)].sender.flush()
        await two.driver.until(lambda events: any(type(each) is LinkDown for each in events))
        assert any("no memory for a frame" in str(event.fields) for event in two.tracer.events)
        await one.linked(times=2)
        nursery.cancel_scope.cancel()


class KeepingNetwork(TcpNetwork):
    """Keeps the streams that it opens, so that only a close closes them."""

    def __init__(self) -> None:
        self.opened: list = []
        self.first = trio.Event()

    async def connect(self, host: str, port: int):
        stream = await super().connect(host, port)
        self.opened.append(stream)
        self.first.set()
        return stream


async def test_a_broker_that_ends_during_a_handshake_closes_its_stream():
    """Regression: the stream was left to the garbage collector."""
    network = KeepingNetwork()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        async with trio.open_nursery() as nursery:
            one = End(1, nursery)
            one.links.network = network
            one.links.keep((PeerAddress(NodeId(2), *silent.getsockname()),))
            with trio.fail_after(20):
                await network.first.wait()
                await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        accepted, _ = silent.accept()
        with accepted:
            accepted.settimeout(20)
            while accepted.recv(4096):  # its hello, then the end
                continue


def agreed(dialled_by: int, boot: int = 1) -> Agreed:
    peer = PeerIdentity(CLUSTER, NodeId(2), DirectoryId(2), BootNumber(boot), 1, 1, "")
    return Agreed(peer, SessionId(dialled_by * 10 + boot), NodeId(dialled_by), 1)


def test_which_of_two_streams_stays():
    assert _replaces(agreed(1), agreed(2)), "the lower node's stream wins"
    assert not _replaces(agreed(2), agreed(1))
    assert _replaces(agreed(2), agreed(2)), "the same dialler knows that its old one is dead"
    assert _replaces(agreed(2, boot=2), agreed(1, boot=1)), "a new boot replaces the old one"


# --- two brokers with one node id -----------------------------------------------------------------


async def both(nursery, *, first: dict, second: dict, alive: tuple[str, ...]) -> tuple[End, End]:
    """Node 1, and the later one of two brokers that both say they are node 2 and dial node 1."""
    one = End(1, nursery)
    one.alive.update(alive)
    address = await one.listen()
    for options in (first, second):
        end = End(2, nursery, **options)
        end.links.keep((address,))
        with trio.move_on_after(0.5):
            await end.linked()
    await trio.sleep(0.5)
    return one, end


def directories(end: End) -> list[int]:
    return [each.directory for each in end.driver.links() if isinstance(each, LinkUp)]


async def test_a_second_broker_with_the_id_of_a_live_one_is_refused():
    """Each cut off the other's link, twenty times a second, without end: the live one lost its
    groups and then its registration to a copied configuration."""
    async with trio.open_nursery() as nursery:
        one, second = await both(nursery, first={}, second={"at": "second"}, alive=("first",))
        assert directories(one) == [2]
        assert len(one.driver.links()) == 1, "the live one's link was never cut"
        assert second.driver.events == []
        assert [event.name for event in one.tracer.events] == ["peer-trouble"], "told once"
        assert "another broker says that it is node 2" in str(one.tracer.events)
        assert "alive on data directory 0000000000000002 at first" in str(one.tracer.events)
        assert "node id 2 is alive" in str(second.tracer.events), "and the newcomer hears why"
        nursery.cancel_scope.cancel()


async def test_a_live_broker_takes_back_its_id_from_one_that_was_linked_first():
    async with trio.open_nursery() as nursery:
        one, _ = await both(nursery, first={"at": "second"}, second={}, alive=("first",))
        assert directories(one) == [102, 2]
        assert isinstance(one.driver.links()[-1], LinkUp)
        nursery.cancel_scope.cancel()


async def test_the_heir_of_a_dead_disk_replaces_a_link_that_nobody_noticed_to_be_dead():
    async with trio.open_nursery() as nursery:
        one = End(1, nursery)
        address = await one.listen()
        async with trio.open_nursery() as dead:
            End(2, dead).links.keep((address,))
            await one.linked()
            heir = End(2, nursery, at="second")
            heir.links.keep((address,))
            await heir.linked()
            dead.cancel_scope.cancel()
        assert directories(one)[:2] == [2, 102]
        nursery.cancel_scope.cancel()


async def test_of_two_copies_of_a_directory_the_later_boot_stays():
    async with trio.open_nursery() as nursery:
        one, _ = await both(nursery, first={"boot": 4}, second={"boot": 5}, alive=("first",))
        ups = [each.boot for each in one.driver.links() if isinstance(each, LinkUp)]
        assert ups == [4, 5]
        assert isinstance(one.driver.links()[-1], LinkUp)
        assert "a later boot of data directory" in str(one.tracer.events)
        nursery.cancel_scope.cancel()


async def test_a_copy_of_the_same_boot_elsewhere_is_refused():
    async with trio.open_nursery() as nursery:
        one = End(1, nursery)
        one.alive.add("first")
        address = await one.listen()
        End(2, nursery).links.keep((address,))
        await one.linked()
        copy = End(2, nursery)
        copy.links.identity = copy.links.identity._replace(address="elsewhere")
        copy.links.keep((address,))
        await trio.sleep(0.5)
        assert len(one.driver.links()) == 1
        assert copy.driver.events == []
        nursery.cancel_scope.cancel()


async def test_strangers_who_keep_the_peer_port_busy_keep_no_peer_out():
    """A newcomer to a full port was closed. A few hundred connections in each five seconds, from
    any stranger, kept brokers that had lost their links from getting them back."""
    async with trio.open_nursery() as nursery:
        end, peer = End(1, nursery), End(2, nursery)
        address = await end.listen()
        for _ in range(HANDSHAKES_MAX):
            nursery.start_soon(end.links.accept, memory_pair()[1], "somebody")
        await trio.testing.wait_all_tasks_blocked(0.1)
        peer.links.keep((address,))
        with trio.fail_after(HANDSHAKE_SECONDS / 2):
            await peer.linked()
        nursery.cancel_scope.cancel()


async def test_strangers_on_the_peer_port_are_few_at_a_time():
    """A stranger need not prove anything to open a connection: they are counted until they have."""
    async with trio.open_nursery() as nursery:
        end = End(1, nursery)
        pairs = [memory_pair() for _ in range(HANDSHAKES_MAX + 5)]
        for _, stream in pairs:
            nursery.start_soon(end.links.accept, stream, "stranger")
        await trio.testing.wait_all_tasks_blocked()
        assert [stream.closed for _, stream in pairs].count(True) == 5
        for client, _ in pairs:
            client.close()
        await trio.testing.wait_all_tasks_blocked()
        assert all(stream.closed for _, stream in pairs)
        assert not end.links._handshakes
        nursery.cancel_scope.cancel()
