"""The two workers of a data directory: one writes and syncs rounds, one runs jobs and cold reads.
Searches have workers of their own (`raftlog.runtime.disks.search_lanes`).

Rounds are performed in the order of submission. While one is being synced, later ones queue up
and are then written together and synced once: group commit. Results come back as events, one
wake-up of the loop per round.

A lone small round may be written and synced on the loop itself when syncs are fast, for two
thread hops cost more than such a sync. The loop uses the writer only while the thread has nothing
to do, hence never waits for it: every round that it was given has come back to the loop.
"""

from collections import deque
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Final, Protocol, final

import attrs
import trio

from raftlog.base.errors import DiskError, RaftlogError
from raftlog.base.ids import DirectoryId, GroupId, IoId
from raftlog.base.ports import Clock, Disk
from raftlog.base.units import KIB, NANOS_PER_MICRO, Instant
from raftlog.broker.events import (
    Event,
    Job,
    JobDone,
    Persisted,
    Read,
    ReadDone,
    Write,
    WriteFailed,
    Written,
)
from raftlog.runtime.disks.search_lanes import SearchLanes
from raftlog.runtime.disks.workers import Worker, Workers, WorkSteps
from raftlog.storage.ops import AppendBytes, CloseGroup, StoreRecords, WriteOp
from raftlog.storage.write_round import SYNCS, RoundResult, StepKind

ROUNDS_TOGETHER_MAX: Final = 64
"""Rounds that share one sync: a sync should not wait for an endless stream of writes."""
INLINE_SYNC_NANOS_MAX: Final = 1_000 * NANOS_PER_MICRO
INLINE_NANOS_PER_KIB: Final = 500
"""The time a round may take on the loop: `INLINE_SYNC_NANOS_MAX` plus this per KiB. On a busy
machine most of that time is waiting for a core. A round on the thread waits for a core twice."""
INLINE_BYTES_MAX: Final = 8 * KIB
"""The largest round that is synced on the loop: one record or a few, which a client waits for. Bulk
belongs on the thread: while the disk writes it, the loop receives the next requests."""
INLINE_SLOW_MAX: Final = 8
"""Slow inline syncs in a row that say nothing about the disk: the core was given to another. The
quickest of so many shows what the disk can do."""
INLINE_RETRY_ROUNDS: Final = 64
"""After more of them, at most this many rounds go through the thread before the next attempt: one
at first, then twice as many each time."""
INLINE_STALL_NANOS: Final = 50_000 * NANOS_PER_MICRO
"""A sync that held up the loop for so long, half a heartbeat, is one too many: with ten times as
much, all groups led here would be taken from it, those without a write too."""
INLINE_MEAN_NANOS_MAX: Final = 4_000 * NANOS_PER_MICRO
"""The largest mean of recent inline syncs, slow and quick ones together. A quick disk on a busy
machine stays below it. Above it, a quick one among them was luck (a cache of the disk), and clears
nothing."""
INLINE_OVER_NANOS_MAX: Final = INLINE_SLOW_MAX * INLINE_STALL_NANOS
"""A hundred quick ones make up for any past."""
SLOW_ROUND_NANOS: Final = 1_000 * NANOS_PER_MICRO
"""Where a round takes less, `Written` is not reported: `Persisted` says it a moment later."""


class RoundSteps(Protocol):
    """`raftlog.storage.write_round.WriteRound`, as this file uses it."""

    @property
    def written(self) -> bool: ...
    @property
    def result(self) -> RoundResult | None: ...
    @property
    def next(self) -> StepKind | None: ...
    def take(self) -> None: ...


class RoundWriter(Protocol):
    """`raftlog.storage.write_round.DirectoryWriter`, as this file uses it."""

    def begin(self, io_id: IoId, ops: Sequence[WriteOp]) -> RoundSteps: ...

    def close(self) -> None: ...


@final
@attrs.define(eq=False)
class _Performing:
    """Rounds that are performed as one, with one sync: `raftlog.runtime.disks.workers.WorkSteps`.
    `written` is told once when only syncs are left, and `ended` at the end.

    A failure of the disk is in the result; anything that is raised is a bug of ours and becomes a
    poisoned directory that names it, for the thread must not just die and leave everybody
    waiting."""

    writes: Sequence[Write]
    writer: RoundWriter
    written: Callable[[Sequence[Write]], None] | None = None
    ended: Callable[["_Performing"], None] | None = None
    result: RoundResult | None = None
    _steps: RoundSteps | None = None

    @property
    def syncs(self) -> bool:
        """See `WorkSteps`."""
        return self._steps is not None and self._steps.next in SYNCS

    def step(self) -> bool:
        """See `WorkSteps`."""
        try:
            steps = self._steps
            if steps is None:
                ops = [op for write in self.writes for op in write.ops]
                steps = self._steps = self.writer.begin(self.writes[-1].io_id, ops)
            else:
                steps.take()
            if self.written is not None and steps.written:
                self.written(self.writes)
                self.written = None
            self.result = steps.result
        except Exception as error:
            self.result = RoundResult(self.writes[-1].io_id, DiskError(repr(error)), {})
        if self.result is None:
            return True
        if self.ended is not None:
            self.ended(self)
        return False


@final
@attrs.define(eq=False)
class DirectoryThreads:
    """The writer and job threads of one data directory (`workers` says what a thread is). `start`
    before use, `stop` at the end."""

    directory: DirectoryId
    disk: Disk
    writer: RoundWriter
    clock: Clock
    deliver: Callable[[Sequence[Event]], None]
    workers: Workers
    inline: bool = True
    _log: Worker[Write] = attrs.field(init=False)
    _jobs: Worker[Job | Read] = attrs.field(init=False)
    _searches: SearchLanes = attrs.field(init=False)
    _busy: int = attrs.field(default=0, init=False)
    _lone: Write | None = attrs.field(default=None, init=False)
    _inline_wait: int = attrs.field(default=0, init=False)
    """Rounds that the log thread syncs before the next attempt on the loop."""
    _inline_slow: int = attrs.field(default=0, init=False)
    """Inline syncs that were slow since the last quick one that cleared the disk."""
    _inline_over: int = attrs.field(default=0, init=False)
    """Nanoseconds that recent inline syncs took beyond `INLINE_MEAN_NANOS_MAX` each: while there
    are some, a quick one clears nothing."""
    _stalled: bool = attrs.field(default=False, init=False)
    """A sync held up the loop: the next attempt waits until the log thread had a quick round."""
    _slow: bool = attrs.field(default=True, init=False)
    """The log thread's last round took long: it is worth telling that one was written before it is
    durable, and nobody should wait for its end."""
    written: deque[Written] = attrs.field(factory=deque, init=False)
    """Rounds that can be read from their files since `take_written`. Filled by the log thread: a
    deque's `append` and `popleft` need no lock."""

    def start(self) -> None:
        """Start both threads."""
        name, start = f"{self.directory:016x}", self.workers.start
        self._log = start(f"log {name}", self._write_rounds, ROUNDS_TOGETHER_MAX)
        self._jobs = start(f"job {name}", self._run_jobs, 1)
        self._searches = SearchLanes(name, self.workers, self._job, self.deliver)

    async def stop(self, timeout_seconds: float) -> None:
        """Finish what is queued and end the threads, or give up after the timeout. Searches are
        given up at once."""
        self._searches.end()
        self._log.end()
        self._jobs.end()
        with trio.move_on_after(timeout_seconds):
            await self._log.ended()
            await self._jobs.ended()
            self.writer.close()

    # --- called on the loop -----------------------------------------------------------------------

    def allow_inline(self, allowed: bool) -> None:
        """Whether lone rounds may be synced on the loop from now on."""
        self.inline = allowed

    def write(self, write: Write) -> None:
        """Queue a round. One that may be lone is held back until `sync_inline_if_lone`, which the
        driver calls at the end of the same turn, after sends and answers."""
        assert write.directory == self.directory
        if (
            self.inline
            and self._inline_wait == 0
            and self._busy == 0
            and not (self._stalled and self._slow)
            and _inline_size(write) <= INLINE_BYTES_MAX
        ):
            self._lone = write
            return
        self._busy += 1
        self._log.put(write)

    def sync_inline_if_lone(self) -> Sequence[Event]:
        """Write and sync a held-back round here and now: what came of it, or nothing when there
        was none."""
        write, self._lone = self._lone, None
        if write is None:
            return ()
        limit = INLINE_SYNC_NANOS_MAX + INLINE_NANOS_PER_KIB * _inline_size(write) // KIB
        started = self.clock.now()
        performing = _Performing([write], self.writer)
        while performing.step():
            pass
        events, synced = self._came_of(performing)
        took = self.clock.now() - started
        if not synced:
            return events  # its time says nothing about the disk
        over = self._inline_over + min(took, INLINE_STALL_NANOS) - INLINE_MEAN_NANOS_MAX
        self._inline_over = max(0, min(over, INLINE_OVER_NANOS_MAX))
        if took > limit:
            self._inline_slow += 1
            self._inline_wait = _rounds_to_wait(self._inline_slow)
        elif self._inline_over == 0:
            self._inline_slow = 0
        self._stalled = took >= INLINE_STALL_NANOS
        if self._stalled:
            self._slow = True  # the log thread has nothing to do now: its next round tells anew
        return events

    @property
    def round_ends_soon(self) -> bool:
        """Whether the log thread has a round and was quick with the last one."""
        return self._busy > 0 and not self._slow

    def take_written(self) -> list[Event]:
        """Take the events that `written` holds. They promise nothing, so they start no turn of
        their own; every turn takes them, before the ends of the same rounds."""
        return [self.written.popleft() for _ in range(len(self.written))]

    def read(self, read: Read) -> None:
        """Queue a cold read."""
        assert read.slice.directory == self.directory
        self._jobs.put(read)

    def run_job(self, job: Job) -> None:
        """Queue a job."""
        assert job.directory == self.directory
        if job.search_of is None:
            self._jobs.put(job)
        else:
            self._searches.put(job)

    # --- the log thread ---------------------------------------------------------------------------

    def _write_rounds(self, together: list[Write]) -> WorkSteps:
        ended = partial(self._rounds_ended, self.clock.now())
        return _Performing(together, self.writer, self._written if self._slow else None, ended)

    def _rounds_ended(self, started: Instant, performing: _Performing) -> None:
        events, synced = self._came_of(performing)
        if synced:
            self._slow = self.clock.now() - started >= SLOW_ROUND_NANOS
        self._log.report(self._arrived, events, len(performing.writes), synced)

    def _written(self, writes: Sequence[Write]) -> None:
        for write in writes:
            self.written.append(Written(write.io_id, self.directory))

    def _came_of(self, performing: _Performing) -> tuple[list[Event], int]:
        """The events that end the rounds, and how many rounds had something to sync."""
        writes, result = performing.writes, performing.result
        assert result is not None, "it has ended"
        if result.poisoned is not None:
            poisoned = result.poisoned
            return [WriteFailed(each.io_id, self.directory, None, poisoned) for each in writes], 0
        events: list[Event] = []
        for write in writes:
            for group, failure in result.failed.items():
                events.append(WriteFailed(write.io_id, self.directory, (group,), failure))
            events.append(Persisted(write.io_id, self.directory))
        return events, sum(_is_synced(write, result.failed) for write in writes)

    def _arrived(self, events: Sequence[Event], rounds_done: int, synced: int) -> None:
        self._busy -= rounds_done
        self._inline_wait = max(0, self._inline_wait - synced)
        self.deliver(events)

    # --- the job thread ---------------------------------------------------------------------------

    def _run_jobs(self, works: list[Job | Read]) -> None:
        for work in works:
            event: Event = self._read(work) if isinstance(work, Read) else self._job(work)
            self._jobs.report(self._arrived, [event], 0, 0)

    def _read(self, read: Read) -> ReadDone:
        wanted = read.slice
        try:
            file = self.disk.open(wanted.path, write=False)
            try:
                data = file.read_at(wanted.position, wanted.size)
            finally:
                file.close()
        except RaftlogError as error:
            return ReadDone(read.token, error)
        if len(data) < wanted.size:
            short = DiskError(f"{len(data)} of {wanted.size} bytes", on=wanted.path)
            return ReadDone(read.token, short)
        return ReadDone(read.token, data)

    def _job(self, job: Job) -> JobDone:
        """Whatever a job raises is its answer: the broker judges, and a bug surfaces there."""
        try:
            return JobDone(job.token, job.function(self.disk, *job.args))
        except Exception as error:
            return JobDone(job.token, error)


def _rounds_to_wait(slow: int) -> int:
    """Rounds for the thread after so many slow inline syncs in a row."""
    doublings = min(slow - INLINE_SLOW_MAX, INLINE_RETRY_ROUNDS.bit_length()) - 1
    return min(1 << doublings, INLINE_RETRY_ROUNDS) if doublings >= 0 else 0


def _is_synced(write: Write, failed: Collection[GroupId]) -> bool:
    """Whether something of a round went to the disk. Without an operation, or with none but those
    of groups that take no more, there is nothing to sync, and its time says nothing."""
    for op in write.ops:
        if isinstance(op, StoreRecords) or not (isinstance(op, CloseGroup) or op.group in failed):
            return True
    return False


def _inline_size(write: Write) -> int:
    """Bytes to be written; more than the bound when the round needs more syncs than its own."""
    size = 0
    for op in write.ops:
        if isinstance(op, AppendBytes):
            size += sum(map(len, op.parts))
        elif isinstance(op, StoreRecords):
            size += sum(map(len, op.records))  # the votes of a thousand groups, say
        else:
            return INLINE_BYTES_MAX + 1  # a new file: two more syncs
    return size
