"""Turns: what shares one, what brings one about, and what a pause holds back."""

import trio
import trio.testing

from raftlog.base.errors import DiskError
from raftlog.base.ids import (
    Chain,
    ConnectionId,
    DirectoryId,
    GroupId,
    IoId,
    NodeId,
    RaftIndex,
    ReplicaEpoch,
    ReplicaId,
    SessionId,
    Term,
)
from raftlog.base.units import NANOS_PER_MILLI, NANOS_PER_SECOND, NEVER, Instant
from raftlog.broker.events import (
    Drained,
    Effects,
    PeerMessages,
    Persisted,
    Request,
    Write,
    WriteFailed,
    Written,
)
from raftlog.raft.messages import Append, AppendReply
from raftlog.runtime import driver as module
from raftlog.runtime.driver import Driver

HOME = DirectoryId(5)


class TrioClock:
    """Trio's own time, so that autojump moves both."""

    def now(self) -> Instant:
        return Instant(round(trio.current_time() * NANOS_PER_SECOND))

    def wall(self) -> int:
        return 0


class StoppedClock:
    """Moves when told."""

    def __init__(self) -> None:
        self.ns = NANOS_PER_SECOND

    def now(self) -> Instant:
        return Instant(self.ns)

    def wall(self) -> int:
        return 0


class FakeBroker:
    """Records its turns; `plan` makes the effects of each."""

    def __init__(self, plan=None) -> None:
        self.turns: list[list] = []
        self.times: list[int] = []
        self.plan = plan

    def handle(self, events, now_ns, wall_ms) -> Effects:
        self.turns.append(list(events))
        self.times.append(now_ns)
        effects = Effects()
        effects.wake_at = NEVER
        if self.plan is not None:
            self.plan(len(self.turns), effects)
        return effects


class FakeDisk:
    """Syncs inline: `Persisted` is posted while the turn that wrote is still going on."""

    def __init__(self) -> None:
        self.driver: Driver | None = None
        self.held: list[Write] = []
        self.round_ends_soon = False
        self.written: list[Written] = []

    def take_written(self) -> list[Written]:
        taken, self.written = self.written, []
        return taken

    def write(self, write) -> None:
        self.held.append(write)

    def sync_inline_if_lone(self) -> list[Persisted]:
        return [Persisted(self.held.pop().io_id, HOME)]


class Nobody:
    """Connections and peers that hear nothing."""

    def flush(self) -> None: ...


def driver_of(broker: FakeBroker, disk: FakeDisk | None = None) -> Driver:
    disk = disk or FakeDisk()
    made = disk.driver = Driver(NodeId(1), broker, TrioClock(), {HOME: disk})
    made.connections = made.peers = made.admin = Nobody()
    return made


def requests(count: int) -> list[Request]:
    return [Request(ConnectionId(1), number, memoryview(b"x")) for number in range(count)]


async def settle() -> None:
    await trio.testing.wait_all_tasks_blocked()


async def test_what_arrived_together_shares_a_turn(autojump_clock):
    """A reader that posted frame by frame ran one turn for the first frame alone."""
    broker = FakeBroker()
    driver = driver_of(broker)
    await trio.sleep(1)
    driver.post_all(requests(15))
    assert [len(turn) for turn in broker.turns] == [15]
    driver.post_all([])
    assert len(broker.turns) == 1


async def test_what_a_turn_cannot_take_is_taken_by_the_next(autojump_clock, monkeypatch):
    monkeypatch.setattr(module, "TURN_EVENTS_MAX", 4)
    broker = FakeBroker()
    driver = driver_of(broker)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(driver.run)
        await settle()
        await trio.sleep(1)
        driver.post_all(requests(10))
        await settle()
        assert [len(turn) for turn in broker.turns] == [0, 4, 4, 2]
        nursery.cancel_scope.cancel()


async def test_a_reader_waits_until_its_requests_are_taken(autojump_clock, monkeypatch):
    """A client that sent 64 MiB of small requests and read no answer had all of them queued: the
    reader went on receiving while turns were 64 requests each."""
    monkeypatch.setattr(module, "TURN_EVENTS_MAX", 4)
    broker = FakeBroker()
    driver = driver_of(broker)
    passed: list[int] = []

    async def reader() -> None:
        for _ in range(3):
            driver.post_all(requests(10))
            await driver.room()
            passed.append(sum(len(turn) for turn in broker.turns))

    async with trio.open_nursery() as nursery:
        driver.pause()
        nursery.start_soon(driver.run)
        nursery.start_soon(reader)
        await settle()
        assert passed == [], "nothing was taken yet"
        driver.resume()
        await settle()
        nursery.cancel_scope.cancel()
    assert len(passed) == 3
    assert all(taken >= 10 * (number + 1) - 4 for number, taken in enumerate(passed))


async def test_an_inline_sync_is_answered_before_the_loop_goes_on(autojump_clock):
    """The acknowledgement of a follower waited for a whole pass of the loop."""

    def plan(turn, effects) -> None:
        if turn == 1:
            effects.writes.append(Write(HOME, IoId(7), []))

    broker = FakeBroker(plan)
    driver = driver_of(broker, FakeDisk())
    await trio.sleep(1)
    driver.post(requests(1)[0])
    assert broker.turns[1:] == [[Persisted(IoId(7), HOME)]]


async def test_rounds_that_bring_about_rounds_wait_for_nothing(autojump_clock):
    """A vote of one's own, the term start that it allowed, and what that commits: three rounds,
    each synced inside its turn. Only the first was followed by a turn at once; the end of the
    second lay in the queue and nobody was woken for it, until a heartbeat or a client came by. A
    broker that is alone had nobody to come by."""

    def plan(turn, effects) -> None:
        if 2 <= turn <= 6:
            effects.writes.append(Write(HOME, IoId(turn), []))

    broker = FakeBroker(plan)
    driver = driver_of(broker, FakeDisk())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(driver.run)
        await settle()
        await trio.sleep(1)
        driver.post(requests(1)[0])
        await settle()
        assert broker.turns[2:] == [[Persisted(IoId(turn), HOME)] for turn in range(2, 7)]
        nursery.cancel_scope.cancel()


async def test_a_sync_that_outlasts_a_deadline_lets_readers_go_first(autojump_clock):
    """A sync on the loop took longer than an election. The turn for its end came at once, and with
    it the late deadlines: the leader heard no quorum, whose answers lay in its sockets."""
    clock, ready = StoppedClock(), trio.Event()

    def plan(turn, effects) -> None:
        effects.wake_at = Instant(clock.ns + 100 * NANOS_PER_MILLI)
        if turn == 2:
            effects.writes.append(Write(HOME, IoId(7), []))

    def slow_sync() -> list[Persisted]:
        clock.ns += 300 * NANOS_PER_MILLI
        ready.set()
        return [Persisted(IoId(7), HOME)]

    async def read() -> None:
        await ready.wait()
        driver.post(requests(1)[0])

    broker, disk = FakeBroker(plan), FakeDisk()
    driver = driver_of(broker, disk)
    driver.clock, disk.sync_inline_if_lone = clock, slow_sync
    async with trio.open_nursery() as nursery:
        nursery.start_soon(driver.run)
        nursery.start_soon(read)
        await settle()
        clock.ns += NANOS_PER_MILLI
        driver.post(requests(1)[0])
        await settle()
        assert broker.turns[1:3] == [requests(1), [Persisted(IoId(7), HOME), *requests(1)]]
        nursery.cancel_scope.cancel()


async def test_a_leaders_own_copy_waits_for_the_answer_of_a_peer(autojump_clock):
    """It counts only together with one, so its turn was the fourth of each append for nothing."""

    def plan(turn, effects) -> None:
        if turn == 2:
            effects.writes.append(Write(HOME, IoId(7), [], awaited=False))

    broker = FakeBroker(plan)
    driver = driver_of(broker, FakeDisk())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(driver.run)
        await settle()
        driver.post(requests(1)[0])
        await trio.sleep(1)
        assert len(broker.turns) == 2
        driver.post(requests(1)[0])
        assert [type(event) for event in broker.turns[2]] == [Persisted, Request]
        nursery.cancel_scope.cancel()


async def test_a_failed_write_of_a_leader_is_told_at_once(autojump_clock):
    """Only success may wait."""

    def plan(turn, effects) -> None:
        if turn == 1:
            effects.writes.append(Write(HOME, IoId(7), [], awaited=False))

    broker, disk = FakeBroker(plan), FakeDisk()
    failed = WriteFailed(IoId(7), HOME, None, DiskError("no"))
    disk.sync_inline_if_lone = lambda: [failed]
    driver = driver_of(broker, disk)
    await trio.sleep(1)
    driver.post(requests(1)[0])
    assert broker.turns[1:] == [[failed]]


async def test_drained_output_waits_for_the_next_turn(autojump_clock):
    """Every answer once cost a turn of its own, just to say that its bytes had left."""
    broker = FakeBroker()
    driver = driver_of(broker)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(driver.run)
        await settle()
        driver.queue(Drained(ConnectionId(1), 10), wake=False)
        await trio.sleep(1)
        assert len(broker.turns) == 1
        driver.post(requests(1)[0])
        assert [type(event) for event in broker.turns[1]] == [Drained, Request]
        driver.queue(Drained(ConnectionId(1), 10))
        await settle()
        assert len(broker.turns) == 3
        nursery.cancel_scope.cancel()


async def test_a_deadline_brings_about_a_turn_also_when_it_moved(autojump_clock):
    """Later than armed: one look in vain. Earlier than armed: at once."""
    wakes = {1: 100, 2: 300, 3: 200, 4: 400}

    def plan(turn, effects) -> None:
        if turn in wakes:
            effects.wake_at = Instant(start + wakes[turn] * NANOS_PER_MILLI)

    broker = FakeBroker(plan)
    driver = driver_of(broker)
    start = driver.clock.now()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(driver.run)
        await trio.sleep(0.05)
        driver.post(requests(1)[0])  # turn 2 moves it from 100 to 300
        await trio.sleep(0.1)
        assert len(broker.turns) == 2
        driver.post(requests(1)[0])  # turn 3, at 150, moves it to 200
        await trio.sleep(1)
        nursery.cancel_scope.cancel()
    moments = [round((at - start) / NANOS_PER_MILLI) for at in broker.times]
    assert moments == [0, 50, 150, 200, 400]


async def test_a_pause_holds_back_events_and_deadlines(autojump_clock):
    def plan(turn, effects) -> None:
        if turn == 1:
            effects.wake_at = Instant(start + 100 * NANOS_PER_MILLI)

    broker = FakeBroker(plan)
    driver = driver_of(broker)
    start = driver.clock.now()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(driver.run)
        await settle()
        driver.pause()
        driver.post_all(requests(2))
        await trio.sleep(1)
        assert len(broker.turns) == 1
        driver.resume()
        await settle()
        assert [len(turn) for turn in broker.turns] == [0, 2]
        nursery.cancel_scope.cancel()


async def test_a_deadline_that_passed_during_a_pause_is_due_after_it(autojump_clock):
    def plan(turn, effects) -> None:
        if turn == 1:
            effects.wake_at = Instant(start + 100 * NANOS_PER_MILLI)

    broker = FakeBroker(plan)
    driver = driver_of(broker)
    start = driver.clock.now()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(driver.run)
        await settle()
        driver.pause()
        await trio.sleep(1)
        assert len(broker.turns) == 1
        driver.resume()
        await settle()
        assert len(broker.turns) == 2
        nursery.cancel_scope.cancel()


async def test_a_bug_in_a_turn_ends_the_driver_whoever_ran_it(autojump_clock):
    def plan(turn, effects) -> None:
        if turn == 2:
            raise ZeroDivisionError("ours")

    driver = driver_of(FakeBroker(plan))
    await trio.sleep(1)
    caught = []

    async def run() -> None:
        try:
            await driver.run()
        except ZeroDivisionError as error:
            caught.append(error)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        await settle()
        await trio.sleep(1)
        driver.post(requests(1)[0])
    assert len(caught) == 1


# --- acknowledgements that may wait ---------------------------------------------------------------


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
    """Not while a turn's worth is queued already, and never longer than the next deadline, should
    the disk hang. What peers say beside appends does not wait."""

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
    """What their sender said later is among the requests."""
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
