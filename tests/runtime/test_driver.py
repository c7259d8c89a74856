"""Turns: what shares one, what brings one about, and what a pause holds back."""

import trio
import trio.testing

from raftlog.base.errors import DiskError
from raftlog.base.ids import (
    ConnectionId,
    IoId,
)
from raftlog.base.units import NANOS_PER_MILLI, Instant
from raftlog.broker import turn_queue as module
from raftlog.broker.events import (
    Drained,
    Persisted,
    Request,
    Write,
    WriteFailed,
)
from tests.runtime.driver_rig import (
    HOME,
    FakeBroker,
    FakeDisk,
    StoppedClock,
    driver_of,
    requests,
    settle,
)


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
    second lay in the queue and no task was woken for it, until a heartbeat or a client came by. A
    broker that is alone had none to come by."""

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
