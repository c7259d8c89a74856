"""Events that need no turn of their own: acknowledgements that may wait, and streamed messages."""

import trio
import trio.testing

from raftlog.base.ids import (
    Chain,
    GroupId,
    IoId,
    NodeId,
    RaftIndex,
    ReplicaEpoch,
    ReplicaId,
    SessionId,
    Term,
)
from raftlog.base.units import NANOS_PER_SECOND, NEVER, Instant
from raftlog.broker import turn_queue as module
from raftlog.broker.events import (
    Effects,
    PeerMessages,
    Persisted,
    Written,
)
from raftlog.raft.messages import Append, AppendReply
from tests.runtime.driver_rig import (
    HOME,
    FakeBroker,
    FakeDisk,
    driver_of,
    requests,
    settle,
)


def acknowledged(match: int = 1) -> PeerMessages:
    replicas = [ReplicaId(NodeId(each), HOME, ReplicaEpoch(0)) for each in (2, 1)]
    reply = AppendReply(GroupId(1), *replicas, Term(1), RaftIndex(match), damaged=False)
    return PeerMessages(NodeId(2), SessionId(1), [reply])


def an_append(entries=("an entry",), read_context=0) -> PeerMessages:
    replicas = [ReplicaId(NodeId(each), HOME, ReplicaEpoch(0)) for each in (2, 1)]
    seam = Term(1), RaftIndex(1), Term(1), Chain(7)
    append = Append(GroupId(1), *replicas, *seam, RaftIndex(1), read_context, entries)
    return PeerMessages(NodeId(2), SessionId(1), [append])


def patient(number: int, effects: Effects) -> None:
    effects.acks_may_wait = True


async def test_an_acknowledgement_that_may_wait_joins_the_next_turn(autojump_clock):
    broker = FakeBroker(patient)
    driver = driver_of(broker)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(driver.run)
        await trio.sleep(1)
        driver.post_from_peer([acknowledged(1)])
        driver.post_from_peer([acknowledged(2)])
        await trio.sleep(1)
        assert broker.turns == [[]]
        driver.post_all(requests(2))
        await settle()
        assert broker.turns == [[], [acknowledged(1), acknowledged(2), *requests(2)]]
        nursery.cancel_scope.cancel()


async def test_an_acknowledgement_never_waits_longer_than_the_clock(autojump_clock):
    def plan(number, effects):
        patient(number, effects)
        effects.wake_at = Instant(3 * NANOS_PER_SECOND) if number < 2 else NEVER

    broker = FakeBroker(plan)
    driver = driver_of(broker)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(driver.run)
        await trio.sleep(1)
        driver.post_from_peer([acknowledged()])
        await trio.sleep(10)
        assert broker.turns == [[], [acknowledged()]]
        nursery.cancel_scope.cancel()


async def test_what_is_needed_or_says_more_than_success_is_taken_at_once(autojump_clock):
    broker = FakeBroker(lambda number, effects: patient(number, effects) if number > 2 else None)
    driver = driver_of(broker)
    await trio.sleep(1)
    driver.post_from_peer([acknowledged(1)])  # the first turn has not been taken yet
    await trio.sleep(1)
    driver.post_from_peer([acknowledged(2)])  # it said that they are needed
    await trio.sleep(1)
    refusal = acknowledged(3)._replace(messages=[*acknowledged(3).messages, "something else"])
    driver.post_from_peer([refusal])
    await trio.sleep(1)
    driver.post_from_peer([acknowledged(4)])
    assert broker.turns == [[acknowledged(1)], [acknowledged(2)], [refusal]]


async def test_waiting_acknowledgements_are_bounded_and_keep_their_order(autojump_clock):
    broker = FakeBroker(patient)
    driver = driver_of(broker)
    await trio.sleep(1)
    driver.post_all(requests(1))
    await trio.sleep(1)
    sent = [acknowledged(number) for number in range(module.WAITING_ACKS_MAX + 1)]
    for each in sent:
        driver.post_from_peer([each])
    assert broker.turns[1:] == [sent[: module.TURN_EVENTS_MAX]]


async def test_what_is_streamed_shares_the_turn_of_a_round_that_ends_soon(autojump_clock):
    broker, disk = FakeBroker(), FakeDisk()
    driver = driver_of(broker, disk)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(driver.run)
        await trio.sleep(1)
        driver.post_all(requests(2), streamed=True)
        assert broker.turns == [[], requests(2)]
        disk.round_ends_soon = True
        await trio.sleep(1)
        driver.post_all(requests(1), streamed=True)
        driver.post_from_peer([an_append()])
        await trio.sleep(1)
        assert len(broker.turns) == 2
        disk.round_ends_soon = False
        driver.post_all([Persisted(IoId(1), HOME)])
        assert broker.turns[2:] == [[Persisted(IoId(1), HOME), *requests(1), an_append()]]
        nursery.cancel_scope.cancel()


async def test_what_is_streamed_waits_for_nothing_else(autojump_clock):
    """A stream waits while a turn's worth is queued already, and never longer than the next
    deadline, should the disk hang. Messages of peers beside appends do not wait."""

    def plan(number, effects) -> None:
        now = round(trio.current_time() * NANOS_PER_SECOND)
        effects.wake_at = Instant(now + 3 * NANOS_PER_SECOND)

    broker, disk = FakeBroker(plan), FakeDisk()
    driver = driver_of(broker, disk)
    disk.round_ends_soon = True
    async with trio.open_nursery() as nursery:
        nursery.start_soon(driver.run)
        await trio.sleep(1)
        driver.post_all(requests(1), streamed=True)
        await trio.sleep(3)
        assert broker.turns == [[], requests(1)]
        for said in (acknowledged(), an_append(entries=()), an_append(read_context=1)):
            driver.post_from_peer([said])
            assert broker.turns[-1] == [said]
            await trio.sleep(1)
        driver.post_all(requests(module.TURN_EVENTS_MAX + 1), streamed=True)
        assert [len(turn) for turn in broker.turns[5:]] == [module.TURN_EVENTS_MAX]
        nursery.cancel_scope.cancel()


async def test_what_was_written_is_told_by_the_next_turn_and_before_its_end(autojump_clock):
    broker, disk = FakeBroker(), FakeDisk()
    driver = driver_of(broker, disk)
    await trio.sleep(1)
    disk.written = [Written(IoId(1), HOME)]
    driver.post(Persisted(IoId(1), HOME))
    assert broker.turns == [[Written(IoId(1), HOME), Persisted(IoId(1), HOME)]]


async def test_a_full_turn_leaves_requests_behind_the_acknowledgements(autojump_clock, monkeypatch):
    """Later messages of the same sender are among the requests."""
    monkeypatch.setattr(module, "TURN_EVENTS_MAX", 3)
    broker = FakeBroker(patient)
    driver = driver_of(broker)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(driver.run)
        await trio.sleep(1)
        sent = [acknowledged(number) for number in range(5)]
        driver.post_from_peer(sent)
        driver.post_all(requests(2))
        await settle()
        nursery.cancel_scope.cancel()
    assert [event for turn in broker.turns for event in turn] == [*sent, *requests(2)]
    assert [len(turn) for turn in broker.turns] == [0, 3, 3, 1]
