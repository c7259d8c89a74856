"""Rounds are performed in order, share syncs under load, and every one is answered."""

import itertools
import threading

import pytest
import trio

from raftlog.base.errors import DiskError
from raftlog.base.ids import DirectoryId, GroupId, IoId
from raftlog.broker.events import (
    Job,
    JobDone,
    Persisted,
    Read,
    ReadDone,
    Write,
    WriteFailed,
    Written,
)
from raftlog.records.slices import FileSlice
from raftlog.runtime.disks.log_writer import (
    INLINE_BYTES_MAX,
    INLINE_RETRY_ROUNDS,
    INLINE_SLOW_MAX,
    DirectoryThreads,
)
from raftlog.runtime.disks.workers import ThreadWorkers
from raftlog.runtime.real_ports import PosixDisk, SystemClock
from raftlog.storage.ops import AppendBytes, CloseGroup, CreateFile, StoreRecords
from raftlog.storage.write_round import RoundResult

HOME = DirectoryId(5)


class FakeWriter:
    """Performs rounds into a list. `gate` holds back each round until it is set."""

    def __init__(self) -> None:
        self.calls: list[list[int]] = []
        self.threads: list[str] = []
        self.gate = threading.Event()
        self.gate.set()
        self.failures: dict = {}
        self.error: DiskError | None = None
        self.bug: Exception | None = None
        self.closed = False

    def begin(self, io_id, ops):
        return FakeRound(self, io_id, ops)

    def perform(self, io_id, ops):
        self.calls.append(len(ops))
        self.threads.append(threading.current_thread().name)
        self.gate.wait(5)
        if self.bug is not None:
            raise self.bug
        return RoundResult(io_id, self.error, self.failures)

    def close(self) -> None:
        self.closed = True


class FakeRound:
    """A round of a `FakeWriter`: one step that writes, and one that does all that it is told."""

    def __init__(self, writer, io_id, ops) -> None:
        self.perform = lambda: writer.perform(io_id, ops)
        self.written = False
        self.result = None

    def take(self) -> None:
        if self.written:
            self.result = self.perform()
        self.written = True


class Rig:
    def __init__(self, tmp_path, *, inline=False) -> None:
        self.events: list = []
        self.changed = trio.Event()
        self.writer = FakeWriter()
        self.threads = DirectoryThreads(
            HOME,
            PosixDisk(str(tmp_path)),
            self.writer,
            SystemClock(),
            self.deliver,
            ThreadWorkers(trio.lowlevel.current_trio_token()),
            inline,
        )
        self.threads.start()

    def deliver(self, events) -> None:
        self.events += [*self.threads.take_written(), *events]  # as the driver's turn does
        self.changed.set()

    def sync_inline(self) -> bool:
        """Do what the driver does at the end of a turn; returns whether a round ended there."""
        ends = self.threads.sync_inline_if_lone()
        self.events += ends
        return bool(ends)

    async def until(self, count: int) -> None:
        with trio.fail_after(10):
            while len(self.events) < count:
                await self.changed.wait()
                self.changed = trio.Event()

    async def until_ended(self, count: int) -> None:
        """Until so many rounds came back, whether or not they were reported as written before."""
        with trio.fail_after(10):
            while sum(not isinstance(event, Written) for event in self.events) < count:
                await self.changed.wait()
                self.changed = trio.Event()

    async def until_persisted(self, number: int) -> None:
        with trio.fail_after(10):
            while self.events[-1:] != [Persisted(IoId(number), HOME)]:
                await self.changed.wait()
                self.changed = trio.Event()


def a_round(number: int) -> Write:
    return Write(HOME, IoId(number), [AppendBytes(GroupId(1), "a", 0, [b"x"])])


def write_rounds(rig, *writes) -> None:
    """Do what the log thread does with rounds."""
    steps = rig.threads._write_rounds(list(writes))
    while steps.step():
        pass


async def test_each_round_is_written_then_persisted(tmp_path):
    rig = Rig(tmp_path)
    rig.threads.write(a_round(1))
    await rig.until(2)
    assert rig.events == [Written(IoId(1), HOME), Persisted(IoId(1), HOME)]
    await rig.threads.stop(5)
    assert rig.writer.closed


async def test_rounds_that_wait_share_a_sync(tmp_path):
    rig = Rig(tmp_path)
    rig.writer.gate.clear()
    for number in range(1, 6):
        rig.threads.write(a_round(number))
    rig.writer.gate.set()
    await rig.until_ended(5)
    assert sum(rig.writer.calls) == 5
    assert len(rig.writer.calls) < 5
    persisted = [event.io_id for event in rig.events if isinstance(event, Persisted)]
    assert persisted == [1, 2, 3, 4, 5]
    await rig.threads.stop(5)


async def test_a_failed_group_is_named_and_the_others_persist(tmp_path):
    rig = Rig(tmp_path)
    error = DiskError("short write", on="a")
    rig.writer.failures = {GroupId(1): error}
    rig.threads.write(a_round(1))
    await rig.until(3)
    assert rig.events[1:] == [
        WriteFailed(IoId(1), HOME, (GroupId(1),), error),
        Persisted(IoId(1), HOME),
    ]
    await rig.threads.stop(5)


async def test_a_poisoned_directory_fails_every_round(tmp_path):
    rig = Rig(tmp_path)
    rig.writer.error = DiskError("sync failed", on="a")
    for number in (1, 2):
        rig.threads.write(a_round(number))
        await rig.until_ended(number)
    failed = [event for event in rig.events if isinstance(event, WriteFailed)]
    assert [(event.io_id, event.groups) for event in failed] == [(1, None), (2, None)]
    assert not any(isinstance(event, Persisted) for event in rig.events)
    await rig.threads.stop(5)


async def test_a_bug_in_the_writer_is_answered_too(tmp_path):
    rig = Rig(tmp_path)
    rig.writer.bug = ZeroDivisionError("ours")
    rig.threads.write(a_round(1))
    await rig.until(2)
    assert rig.events[1].groups is None
    assert "ours" in str(rig.events[1].error)
    await rig.threads.stop(5)


async def test_a_lone_small_round_is_synced_on_the_loop(tmp_path):
    rig = Rig(tmp_path, inline=True)
    rig.threads.write(a_round(1))
    assert rig.threads.sync_inline_if_lone() == [Persisted(IoId(1), HOME)]
    assert rig.threads.sync_inline_if_lone() == ()
    assert rig.events == []
    assert rig.writer.threads == [threading.current_thread().name]
    await rig.threads.stop(5)


async def test_slow_inline_syncs_send_more_and_more_rounds_to_the_thread(tmp_path):
    """A few slow syncs in a row may have been a busy machine and cost nothing; a slow disk is left
    to the thread for up to 64 rounds at a time."""
    rig = Rig(tmp_path, inline=True)
    fast, rig.writer.perform = rig.writer.perform, _slowly(rig.writer.perform)
    on_the_loop = []
    for number in range(1, 300):
        rig.threads.write(a_round(number))
        if rig.sync_inline():
            on_the_loop.append(number)
        await rig.until_ended(number)
    gaps = [later - earlier for earlier, later in itertools.pairwise(on_the_loop)]
    assert gaps[: INLINE_SLOW_MAX + 6] == [1] * INLINE_SLOW_MAX + [2, 3, 5, 9, 17, 33]
    assert max(gaps) == INLINE_RETRY_ROUNDS + 1
    rig.writer.perform = fast
    for number in range(300, 300 + INLINE_RETRY_ROUNDS):
        rig.threads.write(a_round(number))
        rig.sync_inline()
        await rig.until_ended(number)
    rig.threads.write(a_round(400))
    assert rig.sync_inline()
    await rig.threads.stop(5)


async def test_rounds_with_nothing_to_write_say_nothing_of_the_disk(tmp_path):
    """Each was quick and restarted the count: with one among eight a slow disk was never left to
    the thread (seed 8505675: five brokers in one process, whose elections took turns waiting)."""
    rig, clock = Rig(tmp_path, inline=True), SteppedClock()
    rig.threads.clock, perform = clock, rig.writer.perform

    def timed(io_id, ops):
        clock.ns += 20_000_000 if ops else 0
        return perform(io_id, ops)

    rig.writer.perform = timed
    on_the_loop = 0
    for number in range(1, 201):
        empty = number % 4 == 0
        rig.threads.write(Write(HOME, IoId(number), []) if empty else a_round(number))
        on_the_loop += rig.sync_inline() and not empty
        await rig.until_ended(number)
    assert on_the_loop <= 2 * INLINE_SLOW_MAX
    rig.threads._busy = 1  # the thread has a round: one of nothing
    write_rounds(rig, Write(HOME, IoId(201), []))
    assert not rig.threads.round_ends_soon
    rig.threads._busy = 0
    await rig.threads.stop(5)


@pytest.mark.parametrize("group_fails", [False, True])
async def test_rounds_that_sync_nothing_use_up_no_wait(group_fails, tmp_path):
    """They counted as rounds left to the thread: with enough of them between two others, a disk
    with 20 ms a sync kept all 300 on the loop. The rounds of a group that takes no more cost
    nothing either, and each restarted the count."""
    rig, clock = Rig(tmp_path, inline=True), SteppedClock()
    rig.threads.clock = clock

    def timed(io_id, ops):
        refused = {op.group: DiskError("no") for op in ops if op.group == 2}
        clock.ns += 20_000_000 if len(ops) > len(refused) else 0
        return RoundResult(io_id, None, refused)

    rig.writer.perform = timed
    nothing = [AppendBytes(GroupId(2), "b", 0, [b"x"])] if group_fails else []
    on_the_loop = number = 0
    for _ in range(300):
        number += 1
        rig.threads.write(a_round(number))
        on_the_loop += rig.sync_inline()
        await rig.until_persisted(number)
        for _ in range(4):
            number += 1
            rig.threads.write(Write(HOME, IoId(number), nothing))
            rig.sync_inline()
            await rig.until_persisted(number)
    assert on_the_loop <= 3 * INLINE_SLOW_MAX
    rig.threads._busy = 1  # the thread has a round: one of nothing
    write_rounds(rig, Write(HOME, IoId(number + 1), [*nothing, CloseGroup(GroupId(1))]))
    assert not rig.threads.round_ends_soon
    rig.threads._busy = 0
    await rig.threads.stop(5)


async def syncs_on_the_loop(rig, millis) -> list[float]:
    """Returns the rounds that are synced on the loop, of rounds that take so long, one after the
    other."""
    clock, took = SteppedClock(), []
    rig.threads.clock = clock

    def timed(io_id, ops):
        clock.ns += int(took[-1] * 1_000_000)
        return RoundResult(io_id, None, {})

    rig.writer.perform = timed
    on_the_loop = []
    for number, took_millis in enumerate(millis, start=1):
        took.append(took_millis)
        rig.threads.write(a_round(number))
        if rig.sync_inline():
            on_the_loop.append(took_millis)
        await rig.until_persisted(number)
    return on_the_loop


@pytest.mark.parametrize("quick_each", [9, 5, 2])
async def test_a_quick_sync_now_and_then_does_not_clear_a_slow_disk(quick_each, tmp_path):
    """One quick sync in nine, out of a cache of the disk, restarted the count: all of 300 rounds
    with 45 ms a sync held up the loop, which had a tenth of its time left for everything else."""
    rig = Rig(tmp_path, inline=True)
    millis = [45 if number % quick_each else 0.5 for number in range(1, 301)]
    on_the_loop = await syncs_on_the_loop(rig, millis)
    assert on_the_loop.count(45) <= 3 * INLINE_SLOW_MAX
    await rig.threads.stop(5)


@pytest.mark.parametrize(
    "cycle",
    [
        pytest.param([3] * INLINE_SLOW_MAX + [0.5], id="busy-machine"),
        pytest.param([0.5] * 3 + [12], id="hiccups"),
        pytest.param([0.5] * 19 + [49], id="rare-hiccups"),
    ],
)
async def test_a_quick_disk_on_a_busy_machine_stays_on_the_loop(cycle, tmp_path):
    """The core was given to another in the midst of a sync: the thread would wait for it twice."""
    rig = Rig(tmp_path, inline=True)
    assert len(await syncs_on_the_loop(rig, 20 * cycle)) == 20 * len(cycle)
    await rig.threads.stop(5)


async def test_a_disk_that_becomes_quick_is_back_on_the_loop_at_once(tmp_path):
    """However slow it was before, the next quick attempt is followed by the next round."""
    rig = Rig(tmp_path, inline=True)
    slow = await syncs_on_the_loop(rig, [45] * 2000)
    quick = await syncs_on_the_loop(rig, [0.5] * 300)
    assert len(slow) < 60
    assert len(quick) >= 300 - INLINE_RETRY_ROUNDS
    hiccups = await syncs_on_the_loop(rig, 20 * ([12] + [0.5] * 9))
    assert len(hiccups) == 200
    await rig.threads.stop(5)


class SteppedClock:
    """Stands still, but for what a round takes."""

    def __init__(self) -> None:
        self.ns = 0

    def now(self) -> int:
        return self.ns


async def test_a_sync_that_holds_up_the_loop_is_the_last_one_until_the_disk_is_quick(tmp_path):
    """A disk that takes 300 ms a sync stopped the loop nine times in a row, and then once in 64
    rounds without end: heartbeats of all groups waited each time. Rounds of the log thread tell
    what the disk can do, and delay no task."""
    rig = Rig(tmp_path, inline=True)
    clock, took = SteppedClock(), [300_000_000]
    rig.threads.clock, perform = clock, rig.writer.perform

    def timed(io_id, ops):
        clock.ns += took[0]
        return perform(io_id, ops)

    rig.writer.perform = timed
    on_the_loop = []
    for number in range(1, 200):
        if number == 150:
            took[0] = 300_000
        rig.threads.write(a_round(number))
        if rig.sync_inline():
            on_the_loop.append(number)
        await rig.until_ended(number)
    assert on_the_loop == [1, *range(151, 200)]
    await rig.threads.stop(5)


async def test_written_is_left_out_where_syncs_are_fast(tmp_path):
    """`Persisted` implies it; with a slow disk it lets followers and consumers read earlier."""
    rig = Rig(tmp_path)
    rig.threads.write(a_round(1))
    await rig.until_ended(1)
    rig.threads._slow = False
    rig.threads.write(a_round(2))
    await rig.until_ended(2)
    rig.threads._slow = True
    rig.threads.write(a_round(3))
    await rig.until_ended(3)
    written = [event.io_id for event in rig.events if isinstance(event, Written)]
    assert written == [1, 3]
    await rig.threads.stop(5)


def _slowly(perform):
    def slow(io_id, ops):
        threading.Event().wait(0.002)
        return perform(io_id, ops)

    return slow


async def test_large_rounds_and_new_files_never_block_the_loop(tmp_path):
    rig = Rig(tmp_path, inline=True)
    large = AppendBytes(GroupId(1), "a", 0, [bytes(INLINE_BYTES_MAX), b"x"])
    votes = StoreRecords([bytes(64)] * (INLINE_BYTES_MAX // 64))
    for number, op in enumerate([large, CreateFile(GroupId(1), "b", b"h"), votes], start=1):
        rig.threads.write(Write(HOME, IoId(number), [StoreRecords([b"r"]), op]))
        assert not rig.threads.sync_inline_if_lone()
        await rig.until_ended(number)
    assert set(rig.writer.threads) == {f"log {HOME:016x}"}
    await rig.threads.stop(5)


async def test_jobs_and_reads_are_answered_in_order(tmp_path):
    (tmp_path / "a").write_bytes(b"0123456789")
    rig = Rig(tmp_path)
    rig.threads.run_job(Job(1, HOME, lambda disk, name: disk.list(name), ("",)))
    rig.threads.read(Read(2, FileSlice(HOME, "a", 3, 4)))
    rig.threads.read(Read(3, FileSlice(HOME, "a", 8, 4)))
    rig.threads.run_job(Job(4, HOME, lambda disk: 1 // 0, ()))
    rig.threads.read(Read(5, FileSlice(HOME, "missing", 0, 1)))
    await rig.until(5)
    assert rig.events[0] == JobDone(1, ["a"])
    assert rig.events[1] == ReadDone(2, b"3456")
    assert "2 of 4 bytes" in str(rig.events[2].value)
    assert isinstance(rig.events[3].value, ZeroDivisionError)
    assert isinstance(rig.events[4].value, DiskError)
    await rig.threads.stop(5)
