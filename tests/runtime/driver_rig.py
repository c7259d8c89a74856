"""A driver over a broker, a clock and a disk that do as they are told."""

import trio
import trio.testing

from raftlog.base.ids import (
    ConnectionId,
    DirectoryId,
    NodeId,
)
from raftlog.base.units import NANOS_PER_SECOND, NEVER, Instant
from raftlog.broker.events import (
    Effects,
    Persisted,
    Request,
    Write,
    Written,
)
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
