"""The driver: collects what is ready into a turn, calls `Broker.handle`, performs its effects in
order.

Order of performing (DESIGN: the contract of the broker): queue the writes, then send to peers,
then answer clients. Nothing else is ordered. A turn is synchronous; whoever has an event posts it
and, when the last turn was long enough ago, runs the turn itself, which saves a task switch for a
lone request. When events come thick, they wait for the driver's task and share a turn; and what
could not be written yet anyway waits for the end of the round that is being written.
"""

from collections import deque
from collections.abc import Sequence
from typing import Final, Protocol, final

import attrs
import trio

from raftlog.base.ids import ConnectionId, DirectoryId, NodeId
from raftlog.base.limits import TURN_BYTES_MAX, TURN_EVENTS_MAX
from raftlog.base.ports import Clock
from raftlog.base.units import NANOS_PER_MICRO, NANOS_PER_SECOND, NEVER, Instant
from raftlog.broker.events import (
    AdminReply,
    ConnectionClosed,
    Effects,
    Event,
    Pause,
    PeerAddress,
    PeerMessages,
    PeerSend,
    Persisted,
    Reply,
    Request,
    Resume,
    Unlink,
)
from raftlog.raft.messages import Append, AppendReply
from raftlog.runtime.disks.log_writer import DirectoryThreads

LONE_GAP_NANOS: Final = 60 * NANOS_PER_MICRO
"""A post this long after the last turn runs its turn at once; a sooner one waits for company."""

CROWDED_SHARE: Final = 8
"""Requests of one connection at a time while others have some queued: eight have room in a turn."""
QUEUED_BYTES_MAX: Final = 2 * TURN_BYTES_MAX
"""Of requests that wait for a turn: what the next one takes, and the one after it."""
WAITING_ACKS_MAX: Final = 64
"""Acknowledgements that wait for whatever turn is next; one more brings it about."""
LONGEST_WAIT_SECONDS: Final = 3600.0

_BULKY: Final = (Request, PeerMessages, ConnectionClosed)
"""What waits for a turn with room. The end of a connection stands behind what came over it: a
producer with acks=0 closes when its last request has left, and that one counts."""


class DrivenBroker(Protocol):
    """What the driver drives: `raftlog.broker.Broker`, or a fake in tests."""

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
    """No turn is taken: what SIGSTOP is to a process. What is posted waits."""
    _completions: deque[Event] = attrs.field(factory=deque, init=False)
    _acks: deque[Event] = attrs.field(factory=deque, init=False)
    """Taken before all requests: what their sender said later is among those."""
    _requests: deque[Event] = attrs.field(factory=deque, init=False)
    _request_bytes: int = attrs.field(default=0, init=False)
    """Of those that clients have sent."""
    _in_turn: bool = attrs.field(default=False, init=False)
    _wanted: bool = attrs.field(default=False, init=False)
    """Something is queued that should not wait for other events to bring about a turn."""
    _synced: bool = attrs.field(default=False, init=False)
    """A round that somebody waits for was synced inside the turn that handed it out."""
    _armed: Instant = attrs.field(default=NEVER, init=False)
    """When the driver's task will look at the clock by itself."""
    _acks_may_wait: bool = attrs.field(default=False, init=False)
    """What the last turn said of acknowledgements."""
    _failed: BaseException | None = attrs.field(default=None, init=False)
    _wake_at: Instant = attrs.field(default=NEVER, init=False)
    _last_turn: Instant = attrs.field(default=Instant(0), init=False)
    _wake: trio.Event = attrs.field(factory=trio.Event, init=False)
    _room: trio.Event = attrs.field(factory=trio.Event, init=False)
    _crowded: bool = attrs.field(default=False, init=False)
    """Some reader waits for `_room`."""

    def post(self, event: Event) -> None:
        """Hand in an event, from the trio thread. It may run a turn before it returns."""
        self._queue(event)
        self._want()

    def post_all(self, events: Sequence[Event], *, streamed: bool = False) -> None:
        """Hand in what arrived together: one turn takes it all, up to the bounds of a turn.

        What is `streamed`, by somebody who goes on sending without waiting for answers, shares the
        turn of a round that is about to come back: it would only be written after it, and a turn of
        its own costs as much as some ten requests."""
        for event in events:
            self._queue(event)
        if events and not (streamed and self._round_ends_soon()):
            self._want()

    def _round_ends_soon(self) -> bool:
        """Whether the end of a round will bring about a turn at once, and there is room until
        then. Should the disk hang, the next deadline's turn takes what waits."""
        return self._has_room() and any(each.round_ends_soon for each in self.directories.values())

    def _has_room(self) -> bool:
        return len(self._requests) <= TURN_EVENTS_MAX and self._request_bytes <= QUEUED_BYTES_MAX

    def post_from_peer(self, events: Sequence[PeerMessages]) -> None:
        """`post_all` for what one peer has sent, with acknowledgements that may wait: of two
        followers the second confirms what the first has made certain, and a turn for that alone
        would cost as much as the one that mattered."""
        room = len(self._acks) < WAITING_ACKS_MAX
        if room and self._acks_may_wait and _only_acknowledges(events):
            self._acks.extend(events)
        else:
            self.post_all(events, streamed=_only_entries(events))

    async def room(self) -> None:
        """Wait while more requests are queued than a turn or two take. A reader waits here before
        it receives more: else a client that sends faster than turns are taken would be queued
        without bound."""
        while not self._has_room():
            self._crowded = True
            await self._room.wait()

    def share(self) -> int:
        """Requests that one connection may hand in now: a whole turn's when nobody else has any
        queued, else a few, so that those who send one at a time wait for a turn and not behind
        everything that a flood has sent."""
        queued = len(self._requests)
        if not queued and not self._crowded:
            return TURN_EVENTS_MAX
        return min(CROWDED_SHARE, max(1, TURN_EVENTS_MAX - queued))

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
        self._queue(event)
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

    def _queue(self, event: Event) -> None:
        if isinstance(event, _BULKY):
            self._requests.append(event)
            if type(event) is Request:
                self._request_bytes += len(event.frame)
        else:
            self._completions.append(event)

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
                # What arrived in time is read before a late timer speaks: a busy machine wakes
                # timers and readers together, and in any order.
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
            self._acks_may_wait = effects.acks_may_wait
            self._perform(effects)
            self._last_turn = self.clock.now()
            self.turns += 1
        finally:
            self._in_turn = False

    def _collect(self) -> list[Event]:
        """Completions first; then acknowledgements, then requests, up to the bounds of a turn."""
        completions, requests = self._completions, self._requests
        events: list[Event] = []
        for directory in self.directories.values():
            if directory.written:
                events += directory.take_written()
        while completions and len(events) < TURN_EVENTS_MAX:
            events.append(completions.popleft())
        while self._acks and len(events) < TURN_EVENTS_MAX:
            events.append(self._acks.popleft())
        size = 0
        while (
            requests and len(events) < TURN_EVENTS_MAX and not self._acks and size < TURN_BYTES_MAX
        ):
            event = requests.popleft()
            events.append(event)
            if type(event) is Request:
                size += len(event.frame)
        self._request_bytes -= size
        if self._crowded and self._has_room():
            self._crowded = False
            self._room.set()
            self._room = trio.Event()
        self._wanted = bool(completions or requests)
        self._synced = False
        return events

    def _perform(self, effects: Effects) -> None:
        for write in effects.writes:
            self.directories[write.directory].write(write)
        for unlink in effects.unlinks:
            self.peers.unlink(unlink)
        if effects.peers is not None:
            self.peers.keep(effects.peers)
        for send in effects.sends:
            self.peers.send(send)
        if effects.sends:
            self.peers.flush()
        self._answer(effects)
        for read in effects.reads:
            self.directories[read.slice.directory].read(read)
        for job in effects.jobs:
            self.directories[job.directory].run_job(job)
        for answer in effects.admin_replies:
            self.admin.answer(answer)
        for write in effects.writes:
            ends = self.directories[write.directory].sync_inline_if_lone()
            if ends:
                self._completions.extend(ends)
                if write.awaited or type(ends[0]) is not Persisted:
                    self._synced = self._wanted = True
        if effects.stopped:
            self.stopped.set()

    def _answer(self, effects: Effects) -> None:
        connections = self.connections
        for change in effects.pauses:
            if type(change) is Pause:
                connections.pause(change.connection)
            else:
                assert type(change) is Resume, change
                connections.resume(change.connection)
        for reply in effects.replies:
            connections.reply(reply)
        if effects.replies:
            connections.flush()
        for hangup in effects.hangups:
            self.connections.close(hangup.connection)


def _only_acknowledges(events: Sequence[PeerMessages]) -> bool:
    """Whether nothing but success of appends is reported."""
    return all(type(each) is AppendReply for event in events for each in event.messages)


def _only_entries(events: Sequence[PeerMessages]) -> bool:
    """Whether nothing but entries arrived, which must be written before anything is answered."""
    return all(
        type(each) is Append and each.entries and not each.read_context
        for event in events
        for each in event.messages
    )
