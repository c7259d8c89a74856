"""One life of a simulated broker process: what it has in hand, and what it waits for."""

from collections import deque
from typing import Any, NamedTuple, Protocol, final

import attrs

from raftlog.base.ids import ConnectionId
from raftlog.base.units import Instant, WallMillis
from raftlog.broker import events as e
from raftlog.broker.broker import Broker
from raftlog.broker.incident.recorder import Recorder
from raftlog.broker.turn_queue import TurnQueue
from raftlog.storage.write_round import DirectoryWriter, WriteRound
from raftlog_sim.world.arrivals import ArrivalQueue
from raftlog_sim.world.clock import NodeClock


class Connected(Protocol):
    """Who is connected to a node. Answers may come in another order than the requests."""

    def answered(self, request_no: int, frame: bytes | None) -> None:
        """The answer to that request, or None: it asked for none."""

    def lost(self) -> None:
        """The node hung up, or is gone."""


@final
@attrs.define(eq=False)
class Performing:
    """Rounds that are performed as one. `inline`: on the loop, which stands still meanwhile."""

    writes: list[e.Write]
    steps: WriteRound
    inline: bool
    told: bool = False
    """That everything is written."""


@final
class Turn(NamedTuple):
    """Events that are handled together, and what the clocks said when they were taken up."""

    events: list[e.Event]
    now: Instant
    wall: WallMillis


@final
@attrs.define(eq=False)
class Boot:
    """One life of a broker process; a later one makes all callbacks of this one void."""

    broker: Broker
    writer: DirectoryWriter
    clock: NodeClock
    inbox: TurnQueue | ArrivalQueue
    """The events that wait for the next turns."""
    recorder: Recorder | None = None
    """Stands around the broker where the run is recorded."""
    begun: Turn | None = None
    """The turn that is served late (`Node.late_turn_ns`), until it is."""
    turn_due: bool = False
    busy_until: int = 0
    """When the last turn is over, in world time."""
    wake_at: int | None = None
    """When the broker wants its next turn, in world time."""
    alarm: int | None = None
    """The earliest alarm that is set, at most `wake_at`: one that comes too early is set again, so
    that not every turn needs one of its own."""
    rounds: deque[e.Write] = attrs.Factory(deque)
    writing: bool = False
    inline: Performing | None = None
    """A round that is synced inside its turn: no other turn begins before it has ended."""
    turn_refused: bool = False
    """One was due meanwhile."""
    jobs: deque[e.Job | e.Read] = attrs.Factory(deque)
    working: bool = False
    peers: tuple[e.PeerAddress, ...] = ()
    clients: dict[ConnectionId, Connected] = attrs.Factory(dict)
    paused: dict[ConnectionId, None] = attrs.Factory(dict)
    held: list[e.Request] = attrs.Factory(list)
    """Requests of paused connections: in their sockets, unread."""
    stopped: bool = False
    mending: bool = False
    """A directory of it has failed, and an operator knows (`more_disks`)."""
    admin: dict[int, Any] = attrs.Factory(dict)
