"""The driver: collects what is ready into a turn, calls `Broker.handle`, performs its effects.

A turn is synchronous. A task that has an event posts it and, when the last turn was long enough
ago, runs the turn itself, which saves a task switch for a lone request. When events come thick,
they wait for the driver's task and share a turn. Which events may wait, in which order a turn takes
them and in which order effects are performed is the policy of `raftlog.broker.turn_queue`.
"""

from collections.abc import Sequence
from typing import Final, Protocol, final

import attrs
import trio

from raftlog.base.ids import ConnectionId, DirectoryId, NodeId
from raftlog.base.ports import Clock
from raftlog.base.units import NANOS_PER_MICRO, NANOS_PER_SECOND, NEVER, Instant
from raftlog.broker.events import (
    AdminReply,
    Effects,
    Event,
    Hangup,
    Job,
    Pause,
    PeerAddress,
    PeerMessages,
    PeerSend,
    Persisted,
    Read,
    Reply,
    Resume,
    Unlink,
    Write,
)
from raftlog.broker.turn_queue import TurnQueue, perform
from raftlog.runtime.disks.log_writer import DirectoryThreads

LONE_GAP_NANOS: Final = 60 * NANOS_PER_MICRO
"""A post this long after the last turn runs its turn at once; a sooner one waits for company."""

LONGEST_WAIT_SECONDS: Final = 3600.0


class DrivenBroker(Protocol):
    """The broker that the driver drives: `raftlog.broker.Broker`, or a fake in tests."""

    def handle(self, events: list[Event], now_ns: Instant, wall_ms: int) -> Effects: ...


class ClientConnections(Protocol):
    """The open client connections, as the driver reaches them."""

    def reply(self, reply: Reply) -> None: ...
    def pause(self, connection: ConnectionId) -> None: ...
    def resume(self, connection: ConnectionId) -> None: ...
    def close(self, connection: ConnectionId) -> None: ...
    def flush(self) -> None: ...


class Peers(Protocol):
    """The links to peers, as the driver reaches them."""

    def send(self, send: PeerSend) -> None: ...
    def unlink(self, unlink: Unlink) -> None: ...
    def keep(self, addresses: tuple[PeerAddress, ...]) -> None: ...
    def flush(self) -> None: ...


class AdminAnswers(Protocol):
    """Those who asked an `AdminCall`."""

    def answer(self, reply: AdminReply) -> None: ...


@final
@attrs.define(eq=False)
class Driver:
    """Drives one broker. `connections`, `peers` and `admin` are set before the first turn.

    Invariant: `_in_turn` guards against a turn inside a turn; what is posted meanwhile is queued.
    """

    node: NodeId
    broker: DrivenBroker
    clock: Clock
    directories: dict[DirectoryId, DirectoryThreads]
    connections: ClientConnections = attrs.field(init=False)
    peers: Peers = attrs.field(init=False)
    admin: AdminAnswers = attrs.field(init=False)
    stopped: trio.Event = attrs.field(factory=trio.Event, init=False)
    turns: int = attrs.field(default=0, init=False)
    paused: bool = attrs.field(default=False, init=False)
    """No turn is taken, as after SIGSTOP of a process. Posted events wait."""
    _queue: TurnQueue = attrs.field(factory=TurnQueue, init=False)
    _in_turn: bool = attrs.field(default=False, init=False)
    _wanted: bool = attrs.field(default=False, init=False)
    """Something is queued that should not wait for other events to bring about a turn."""
    _synced: bool = attrs.field(default=False, init=False)
    """A round that somebody waits for was synced inside the turn that handed it out."""
    _armed: Instant = attrs.field(default=NEVER, init=False)
    """When the driver's task will look at the clock by itself."""
    _failed: BaseException | None = attrs.field(default=None, init=False)
    _wake_at: Instant = attrs.field(default=NEVER, init=False)
    _last_turn: Instant = attrs.field(default=Instant(0), init=False)
    _wake: trio.Event = attrs.field(factory=trio.Event, init=False)
    _room: trio.Event = attrs.field(factory=trio.Event, init=False)
    _crowded: bool = attrs.field(default=False, init=False)
    """Some reader waits for `_room`."""

    def post(self, event: Event) -> None:
        """Hand in an event, from the trio thread. It may run a turn before it returns."""
        self._queue.post(event)
        self._want()

    def post_all(self, events: Sequence[Event], *, streamed: bool = False) -> None:
        """Hand in what arrived together: one turn takes it all, up to the bounds of a turn.
        `streamed`: see `TurnQueue.post_all`."""
        ends_soon = streamed and self._round_ends_soon()
        if self._queue.post_all(events, streamed=streamed, round_ends_soon=ends_soon):
            self._want()

    def post_from_peer(self, events: Sequence[PeerMessages]) -> None:
        """Hand in what one peer has sent."""
        if self._queue.post_from_peer(events, round_ends_soon=self._round_ends_soon()):
            self._want()

    def _round_ends_soon(self) -> bool:
        """Whether the end of a round will bring about a turn at once. Should the disk hang, the
        next deadline's turn takes what waits."""
        return any(each.round_ends_soon for each in self.directories.values())

    async def room(self) -> None:
        """Wait until the queue has room. A reader waits here before it receives more."""
        while not self._queue.has_room:
            self._crowded = True
            await self._room.wait()

    def share(self) -> int:
        """How many requests one connection may hand in now: see `TurnQueue.share`."""
        return self._queue.share(crowded=self._crowded)

    def _want(self) -> None:
        self._wanted = True
        if self._in_turn or self._failed is not None or self.paused:
            return
        if self.clock.now() - self._last_turn >= LONE_GAP_NANOS:
            self._run_turn_guarded()
        else:
            self._wake.set()

    def queue(self, event: Event, *, wake: bool = True) -> None:
        """Hand in an event for the driver's task, or, without `wake`, for whatever turn is next."""
        self._queue.post(event)
        if wake:
            self._wanted = True
            self._wake.set()

    def turn_soon(self) -> None:
        """Take a turn although nothing was posted."""
        self._wanted = True
        self._wake.set()

    def pause(self) -> None:
        """Take no more turns until `resume`."""
        self.paused = True

    def resume(self) -> None:
        """Take turns again, first of all those for what was posted meanwhile."""
        self.paused = False
        self._wake.set()

    async def run(self) -> None:
        """The driver's task: turns for queued events and for deadlines, until cancelled.

        Raises what a turn raised, whoever ran it: a bug in a turn ends the process.
        """
        self._run_turn_guarded()
        while self._failed is None:
            if self.paused:
                await self._wake.wait()
                self._wake = trio.Event()
                continue
            self._armed = self._wake_at
            with trio.CancelScope() as scope:
                scope.deadline = self._trio_time(self._armed)
                await self._run_wanted()
            self._armed = NEVER
            if self.clock.now() >= self._wake_at and not self.paused:
                # Read the bytes that arrived in time before a late timer runs: a busy machine
                # wakes timers and readers together, and in any order.
                await trio.lowlevel.checkpoint()
                self._run_turn_guarded()
        raise self._failed

    async def _run_wanted(self) -> None:
        """Turns for what is posted, until paused, failed, or a turn wants to be woken earlier than
        is armed. A wake-up that moved later is not armed anew: that costs more than a vain one."""
        while self._failed is None and not self.paused and self._armed <= self._wake_at:
            if self._wanted:
                if self._synced:  # see `_run_turn_guarded`: what arrived meanwhile is read first
                    await trio.lowlevel.checkpoint()
                self._run_turn_guarded()
                await trio.lowlevel.checkpoint()
            else:
                await self._wake.wait()
                self._wake = trio.Event()

    def _trio_time(self, instant: Instant) -> float:
        """The moment on trio's clock, at most an hour from now."""
        seconds = max(0, instant - self.clock.now()) / NANOS_PER_SECOND
        return trio.current_time() + min(seconds, LONGEST_WAIT_SECONDS)

    def _run_turn_guarded(self) -> None:
        """One turn. An exception is kept for `run`, because the caller may be a reader's task or a
        callback of the loop, and a broken broker must end the process, not one connection."""
        try:
            self._run_turn()
            # Its promises leave at once, not after a pass of the loop; unless the sync took so long
            # that a deadline has passed: who was silent is not judged by what nobody could read.
            if self._synced and self._last_turn < self._wake_at:
                self._run_turn()
        except Exception as error:
            self._failed = error
            self._wake.set()
        if self._wanted or self._wake_at < self._armed:
            self._wake.set()

    def _run_turn(self) -> None:
        self._in_turn = True
        try:
            events = self._collect()
            now = self.clock.now()
            effects = self.broker.handle(events, now, self.clock.wall())
            self._wake_at = effects.wake_at
            self._queue.acks_may_wait = effects.acks_may_wait
            perform(effects, self)
            self._last_turn = self.clock.now()
            self.turns += 1
        finally:
            self._in_turn = False

    def _collect(self) -> list[Event]:
        """The events of the next turn: first that rounds are written, then what waits."""
        events: list[Event] = []
        for directory in self.directories.values():
            if directory.written:
                events += directory.take_written()
        self._queue.collect(events)
        if self._crowded and self._queue.has_room:
            self._crowded = False
            self._room.set()
            self._room = trio.Event()
        self._wanted = self._queue.wants_turn
        self._synced = False
        return events

    # --- the hands of `perform` ---

    def write(self, writes: Sequence[Write]) -> None:
        """Queue rounds for their directories' log threads."""
        for write in writes:
            self.directories[write.directory].write(write)

    def unlink(self, unlink: Unlink) -> None:
        """End a session with a peer."""
        self.peers.unlink(unlink)

    def keep_peers(self, peers: tuple[PeerAddress, ...]) -> None:
        """Keep links to these peers and no others."""
        self.peers.keep(peers)

    def send(self, sends: Sequence[PeerSend]) -> None:
        """Send to peers, in one system call a link."""
        for send in sends:
            self.peers.send(send)
        self.peers.flush()

    def throttle(self, change: Pause | Resume) -> None:
        """Stop reading from a connection, or read on."""
        if type(change) is Pause:
            self.connections.pause(change.connection)
        else:
            self.connections.resume(change.connection)

    def reply(self, replies: Sequence[Reply]) -> None:
        """Answer clients, in one system call a connection."""
        for reply in replies:
            self.connections.reply(reply)
        self.connections.flush()

    def hang_up(self, hangup: Hangup) -> None:
        """Close a connection."""
        self.connections.close(hangup.connection)

    def read(self, read: Read) -> None:
        """Queue a cold read."""
        self.directories[read.slice.directory].read(read)

    def run_job(self, job: Job) -> None:
        """Queue a job."""
        self.directories[job.directory].run_job(job)

    def answer_admin(self, reply: AdminReply) -> None:
        """Answer an admin call."""
        self.admin.answer(reply)

    def sync_lone_rounds(self, writes: Sequence[Write]) -> None:
        """Sync a round that is alone on a quick disk here and now (decision 0049)."""
        for write in writes:
            ends = self.directories[write.directory].sync_inline_if_lone()
            for end in ends:
                self._queue.post(end)
            # A round that something waits for, or one that failed, brings about a turn at once.
            if ends and (write.awaited or type(ends[0]) is not Persisted):
                self._synced = self._wanted = True

    def leave(self) -> None:
        """The broker has stopped: the process may end."""
        self.stopped.set()
