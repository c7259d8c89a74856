"""The parts of a machine that one boot of a process has in trio mode.

They are a disk whose calls take time, and workers that are no threads.

A worker takes what is queued, waits a little, works, and reports after the time that its calls to
the disk took. Rounds are worked on step by step: a step that waits for the disk has its effect when
its time is over, so power may fail before it. Jobs are worked on in one instant of virtual time.
Work that is called on the loop instead (a lone round) holds up the loop for that time. When the
boot is over, the workers do nothing any more.
"""

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final, Generic, Protocol, TypeVar, TypeVarTuple, final

import attrs
import trio

from raftlog.base.binary import Buffer
from raftlog.base.ports import DiskFile
from raftlog.base.units import NANOS_PER_SECOND
from raftlog_sim.base.streams import Stream
from raftlog_sim.shell.trio_clock import JumpClock
from raftlog_sim.world.disk import SimulatedCrashError, SimulatedDisk
from raftlog_sim.world.disk_work import WRITE_NS, draw_stop, stopping_after

Item = TypeVar("Item")
Result = TypeVar("Result")
Arguments = TypeVarTuple("Arguments")

_CALL_NS: Final = WRITE_NS // 10
"""A call to the disk that waits for nothing."""


class StartTask(Protocol):
    """How a task is started."""

    def __call__(self, work: Callable[[], Awaitable[None]], name: str, /) -> None: ...


class DiskSteps(Protocol):
    """`raftlog.runtime.disks.workers.WorkSteps`."""

    @property
    def syncs(self) -> bool: ...
    def step(self) -> bool: ...


@final
@attrs.define(eq=False)
class Spending:
    """Time that calls to the disk take: kept for later while a worker works, else spent at once. A
    boot that has not begun spends none, for the loop is not its own."""

    clock: JumpClock
    sync_ns: int
    slower_ns: int = 0
    begun: bool = False
    working: bool = False
    spent_ns: int = 0
    """By the work that is being done, on top of the world's time."""
    waited_ns: int = 0
    """How long the work has waited before its next call to the disk: the call takes no more."""

    def spend(self, nanos: int) -> None:
        """A call took so long."""
        waited, self.waited_ns = self.waited_ns, 0
        nanos = max(0, nanos - waited)
        if self.working:
            self.spent_ns += nanos
        elif self.begun:
            self.clock.advance(nanos)

    def sync(self) -> None:
        """A call waited for the medium."""
        self.spend(self.wait_ns)

    @property
    def wait_ns(self) -> int:
        """How long the medium takes."""
        return self.sync_ns + self.slower_ns

    def call(self) -> None:
        """A call waited for nothing."""
        self.spend(_CALL_NS)


class Life(Protocol):
    """A boot, as its disk knows it."""

    over: bool
    spending: Spending

    def stopped(self) -> None:
        """The disk stopped the machine in the middle of a call."""
        ...


@final
class BootDisk:
    """The Disk of one boot; when that is over, nothing can be done with it."""

    def __init__(self, disk: SimulatedDisk, life: Life) -> None:
        self._disk = disk
        self._life = life
        self._spending = life.spending

    def do(self, call: Callable[[], Result], takes: Callable[[], None]) -> Result:
        """A call and the time that it takes."""
        if self._life.over:
            raise SimulatedCrashError("the process is gone")
        try:
            result = call()
        except SimulatedCrashError:
            self._life.stopped()
            raise
        takes()
        return result

    def open(self, path: str, *, create: bool = False, write: bool = True) -> DiskFile:
        """See `raftlog.base.ports.Disk`."""
        opened = partial(self._disk.open, path, create=create, write=write)
        return _BootFile(self, self._spending, self.do(opened, self._spending.call))

    def list(self, path: str) -> list[str]:
        return self.do(partial(self._disk.list, path), self._spending.call)

    def exists(self, path: str) -> bool:
        return self._disk.exists(path)

    def make_dir(self, path: str) -> None:
        self.do(partial(self._disk.make_dir, path), self._spending.call)

    def rename(self, old: str, new: str) -> None:
        self.do(partial(self._disk.rename, old, new), self._spending.call)

    def remove(self, path: str) -> None:
        self.do(partial(self._disk.remove, path), self._spending.call)

    def sync_dir(self, path: str) -> None:
        self.do(partial(self._disk.sync_dir, path), self._spending.sync)

    def sync_all(self) -> None:
        self.do(self._disk.sync_all, self._spending.sync)

    def free_bytes(self) -> int:
        return self._disk.free_bytes()

    def total_bytes(self) -> int:
        return self._disk.total_bytes()


@final
class SimDescriptors:
    """Open files by number; `raftlog.runtime.disks.open_files.Descriptors`.

    Bytes that are sent by number are in the page cache, so they take no time.
    """

    def __init__(self, disk: SimulatedDisk) -> None:
        self._disk = disk
        self._open: dict[int, tuple[str, DiskFile]] = {}
        self._last = 0

    def open(self, path: str) -> int:
        """See `Descriptors`."""
        self._last += 1
        self._open[self._last] = (path, self._disk.open(path, write=False))
        return self._last

    def close(self, fd: int) -> None:
        self._open.pop(fd)[1].close()

    def is_removed(self, fd: int) -> bool:
        return not self._disk.exists(self._open[fd][0])

    @property
    def count(self) -> int:
        """How many are open."""
        return len(self._open)

    def read(self, fd: int, position: int, size: int) -> bytes:
        """Bytes of a file that is open; fewer at its end."""
        return self._open[fd][1].read_at(position, size)


@final
class _BootFile:
    """An open file of a `BootDisk`."""

    def __init__(self, disk: BootDisk, spending: Spending, file: DiskFile) -> None:
        self._disk = disk
        self._spending = spending
        self._file = file

    def read_at(self, position: int, size: int) -> bytes:
        return self._disk.do(partial(self._file.read_at, position, size), self._spending.call)

    def write_at(self, position: int, parts: Sequence[Buffer]) -> None:
        self._disk.do(partial(self._file.write_at, position, parts), self._spending.call)

    def truncate(self, size: int) -> None:
        self._disk.do(partial(self._file.truncate, size), self._spending.call)

    def sync(self) -> None:
        self._disk.do(self._file.sync, self._spending.sync)

    def size(self) -> int:
        return self._file.size()

    def close(self) -> None:
        self._file.close()


@final
@attrs.define(eq=False)
class SimWorkers:
    """The workers of one boot; `raftlog.runtime.disks.workers.Workers`. `works` waits while the
    machine does nothing."""

    begin: StartTask
    spending: Spending
    draws: Stream
    works: Callable[[], Awaitable[None]]
    over: bool = False
    cutting: bool = False
    """Jobs are being cut short: that the disk stops one of them is no stop of the machine."""
    _workers: list["SimWorker[Any]"] = attrs.Factory(list)

    def start(
        self, name: str, work: Callable[[list[Item]], DiskSteps | None], together_max: int
    ) -> "SimWorker[Item]":
        """See `Workers`."""
        worker = SimWorker(self, work, together_max)
        self._workers.append(worker)
        if self.over:
            worker.stop()
        else:
            self.begin(worker.run, name)
        return worker

    def cut_short(self, disk: SimulatedDisk) -> None:
        """Leave half of the jobs half done, since the process is about to end.

        Such a job ends after some call to the disk, in the middle of a call, or at its own end.
        Rounds stay where they are.
        """
        if self.over:
            return
        self.cutting = True
        for worker in self._workers:
            if worker.under_way and self.draws.chance(1, 2):
                calls, tears = draw_stop(self.draws)
                self.spending.working = True
                with stopping_after(disk, calls, tears=tears):
                    worker.work(worker.under_way)
                self.spending.working = False

    def end(self) -> None:
        """Nothing more is done, and nothing reported."""
        self.over = True
        for worker in self._workers:
            worker.stop()


@final
@attrs.define(eq=False)
class SimWorker(Generic[Item]):
    """One worker; `raftlog.runtime.disks.workers.Worker`."""

    workers: SimWorkers
    work: Callable[[list[Item]], DiskSteps | None]
    together_max: int
    under_way: list[Item] = attrs.Factory(list)
    """Items that were taken and are not worked on yet."""
    _queue: deque[Item] = attrs.Factory(deque)
    _reports: list[Callable[[], None]] = attrs.Factory(list)
    _ending: bool = False
    _wake: trio.Event = attrs.Factory(trio.Event)
    _done: trio.Event = attrs.Factory(trio.Event)
    _scope: trio.CancelScope = attrs.Factory(trio.CancelScope)

    def put(self, item: Item) -> None:
        """See `Worker`."""
        self._queue.append(item)
        self._wake.set()

    def report(self, call: Callable[[*Arguments], None], *arguments: *Arguments) -> None:
        """See `Worker`."""
        self._reports.append(lambda: call(*arguments))

    def end(self) -> None:
        """See `Worker`."""
        self._ending = True
        self._wake.set()

    async def ended(self) -> None:
        """See `Worker`."""
        await self._done.wait()

    def stop(self) -> None:
        """At once."""
        self._scope.cancel()
        self._done.set()

    async def run(self) -> None:
        """The task."""
        with self._scope:
            while self._queue or not self._ending:
                if self._queue:
                    await self._work()
                else:
                    await self._wake.wait()
                    self._wake = trio.Event()
        self._done.set()

    async def _work(self) -> None:
        size = min(len(self._queue), self.together_max)
        together = self.under_way = [self._queue.popleft() for _ in range(size)]
        await trio.sleep(self.workers.draws.below(2 * WRITE_NS) / NANOS_PER_SECOND)
        await self.workers.works()
        self.under_way = []
        try:
            steps = await self._worked(partial(self.work, together))
            while steps is not None:
                if steps.syncs:
                    await self._wait(self.workers.spending.wait_ns)
                    self.workers.spending.waited_ns = self.workers.spending.wait_ns
                steps = steps if await self._worked(steps.step) else None
        except SimulatedCrashError:
            return  # the boot is over, and so is this

    async def _worked(self, work: Callable[[], Result]) -> Result:
        """Do the work; returns its result after the time that it took and after its reports."""
        spending = self.workers.spending
        spending.working = True
        try:
            result = work()
        finally:
            spending.working, spending.waited_ns = False, 0
            spent, spending.spent_ns = spending.spent_ns, 0
        await self._wait(spent)
        reports, self._reports = self._reports, []
        for report in reports:
            report()
        return result

    async def _wait(self, nanos: int) -> None:
        await trio.sleep(nanos / NANOS_PER_SECOND)
        await self.workers.works()


def first_of(error: BaseException) -> BaseException | None:
    """Returns the error that ended a task, from nested groups; None when only its boot has
    ended."""
    if isinstance(error, BaseExceptionGroup):
        return next((found for each in error.exceptions if (found := first_of(each))), None)
    return None if isinstance(error, SimulatedCrashError | trio.Cancelled) else error
