"""One turn of a broker: its time and image, the running replicas, timers, and the effects so far.

There is one object per broker, with the values of the present turn; all rooms of the broker get it.
Calls that are handed in are bound methods or partials of functions, never closures: so a simulated
broker can be copied whole.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

import attrs

from raftlog.base.ids import BootNumber, ClusterId, DirectoryId, GroupId, NodeId
from raftlog.base.ports import Entropy, Tracer
from raftlog.base.trace import TraceEvent, TraceValue
from raftlog.base.units import Instant, WallMillis
from raftlog.broker.config import BrokerConfig
from raftlog.broker.deadlines import Timer, Timers
from raftlog.broker.events import Effects, Job, LinkUp, Read
from raftlog.broker.log_directories import BrokerDirectories
from raftlog.broker.topic_settings import BrokerDefaults, defaults_of
from raftlog.metadata.image import EMPTY_IMAGE, ClusterImage
from raftlog.partition.replica import PartitionReplica
from raftlog.records.slices import FileSlice

Then = Callable[[Any], None]


@attrs.define(eq=False, kw_only=True)
class Turn:
    """The present turn. `now` and `wall` are its clocks; `image` is the last one applied."""

    config: BrokerConfig
    cluster: ClusterId
    directory: DirectoryId
    """The data directory on which new replicas are placed."""
    boot: BootNumber
    entropy: Entropy
    tracer: Tracer
    now: Instant
    wall: WallMillis = WallMillis(0)
    image: ClusterImage = EMPTY_IMAGE
    replicas: dict[GroupId, PartitionReplica] = attrs.Factory(dict)
    """Group -> its running replica, which is open and not failed for good. Group 0 is among them.
    """
    log_directories: BrokerDirectories
    caught_up: bool = False
    """Whether the image has been as new as the registration of this boot."""
    routes: int = 0
    """Rises with every change that may affect which broker leads which partition."""
    touched: dict[GroupId, PartitionReplica] = attrs.Factory(dict)
    sessions: dict[NodeId, LinkUp] = attrs.Factory(dict)
    timers: Timers = attrs.Factory(Timers)
    counters: Counter[str] = attrs.Factory(Counter)
    effects: Effects = attrs.Factory(Effects)
    outbox: dict[NodeId, list[Any]] = attrs.Factory(dict)

    _soon: list[tuple[Callable[..., None], tuple[Any, ...]]] = attrs.Factory(list)
    _pending: dict[int, Then] = attrs.Factory(dict)
    _last_token: int = 0

    @property
    def node(self) -> NodeId:
        return self.config.node

    @property
    def defaults(self) -> BrokerDefaults:
        """The defaults for topics: those of the broker's file, and those of the image for it."""
        return defaults_of(self.config, self.image.settings)

    # --- replicas ---

    def touch(self, group: GroupId) -> None:
        """Take the group's replica at the end of the turn, since it may have output."""
        replica = self.replicas.get(group)
        if replica is not None:
            self.touched[group] = replica

    # --- peers ---

    def send(self, node: NodeId, message: object) -> None:
        """Add a message to this turn's PeerSend; it is dropped when there is no link."""
        if node in self.sessions:
            self.outbox.setdefault(node, []).append(message)

    def link_up(self, node: NodeId) -> bool:
        """Whether there is a link session with that node."""
        return node in self.sessions

    # --- time ---

    def at(self, deadline: Instant, call: Callable[..., None], *args: object) -> Timer:
        """Make `call(*args)` in the first turn at or after `deadline`, unless it is cancelled."""
        return self.timers.at(deadline, call, *args)

    def soon(self, call: Callable[..., None], *args: object) -> None:
        """Make `call(*args)` later in this turn, before the replicas are taken."""
        self._soon.append((call, args))

    def run_soon(self) -> None:
        """Make the calls asked for by `soon`, also by these calls; only the broker calls this."""
        while self._soon:
            calls, self._soon = self._soon, []
            for call, args in calls:
                call(*args)

    # --- off the loop ---

    def job(
        self,
        directory: DirectoryId,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        then: Then,
    ) -> None:
        """Run `function(disk, *args)` off the loop; `then` gets its result, or its error."""
        self.effects.jobs.append(Job(self._wait_for(then), directory, function, args))

    def search(
        self,
        replica: PartitionReplica,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        then: Then,
        wanted: Callable[[], bool] | None = None,
    ) -> None:
        """Run a job that only reads and may take seconds, beside other jobs and reads.

        It delays only searches of the same group. When it is not `wanted` any more, `then` may get
        None.
        """
        token = self._wait_for(then)
        search = Job(token, replica.directory, function, args, replica.group, wanted)
        self.effects.jobs.append(search)

    def read(self, where: FileSlice, then: Then) -> None:
        """Read a slice of a file off the loop; `then` gets bytes or a RaftlogError."""
        self.effects.reads.append(Read(self._wait_for(then), where))

    def done(self, token: int, value: object) -> None:
        """Take the result of a job or read; only the broker calls this."""
        self._pending.pop(token)(value)

    @property
    def waits_for_turn(self) -> bool:
        """Whether calls asked for by `soon` are left over for the next turn."""
        return bool(self._soon)

    @property
    def jobs_pending(self) -> int:
        """The number of jobs and reads that have not come back."""
        return len(self._pending)

    def _wait_for(self, then: Then) -> int:
        self._last_token += 1
        self._pending[self._last_token] = then
        return self._last_token

    # --- what operators see ---

    def trace(self, name: str, where: str, **fields: TraceValue) -> None:
        """Emit a trace event; rare ones only."""
        self.tracer.emit(TraceEvent(name, where, tuple(fields.items())))

    def count(self, name: str, add: int = 1) -> None:
        """Add to a counter of the metrics page."""
        self.counters[name] += add
