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


class ConnectedClient(Protocol):
    """The client's end of a connection. Answers may come in another order than the requests."""

    def answered(self, request_no: int, frame: bytes | None) -> None:
        """Take the answer to a request; the frame is None when the request asked for none."""

    def lost(self) -> None:
        """Hear that the node hung up or died."""


@final
@attrs.define(eq=False)
class Performing:
    """Write rounds that the disk performs as one round.

    `inline` says that the process performs them on its loop, which stands still meanwhile.
    """

    writes: list[e.Write]
    steps: WriteRound
    inline: bool
    told: bool = False
    """Whether the broker has heard that everything is written."""


@final
class BootTurn(NamedTuple):
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
    """Wraps the broker and records its turns; None when the run is not recorded."""
    begun: BootTurn | None = None
    """The turn whose clocks are read but which the broker serves later (`Node.late_turn_ns`)."""
    turn_due: bool = False
    busy_until: int = 0
    """When the last turn is over, in world time."""
    wake_at: int | None = None
    """When the broker wants its next turn, in world time."""
    alarm: int | None = None
    """World time of the earliest alarm that is set, at most `wake_at`. An alarm that rings too
    early is set again, so that not every turn needs an alarm of its own."""
    rounds: deque[e.Write] = attrs.Factory(deque)
    writing: bool = False
    inline: Performing | None = None
    """A round that is synced inside its turn: no other turn begins before it has ended."""
    turn_refused: bool = False
    """Whether a turn was due while the inline round kept the loop."""
    jobs: deque[e.Job | e.Read] = attrs.Factory(deque)
    working: bool = False
    peers: tuple[e.PeerAddress, ...] = ()
    clients: dict[ConnectionId, ConnectedClient] = attrs.Factory(dict)
    paused: dict[ConnectionId, None] = attrs.Factory(dict)
    held: list[e.Request] = attrs.Factory(list)
    """Requests of paused connections, which lie unread in their sockets."""
    stopped: bool = False
    mending: bool = False
    """Whether an operator is about to restart the broker for a failed directory (`more_disks`)."""
    admin: dict[int, Any] = attrs.Factory(dict)
