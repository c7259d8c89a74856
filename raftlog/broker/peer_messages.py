"""Messages between brokers besides Raft's own: node heartbeats, controller requests, incarnations.

All are plain tuples; `peer_codec` gives their bytes. A message belongs to a link session and means
nothing outside it.
"""

import enum
from typing import Final, NamedTuple, final

from raftlog.base.ids import DirectoryId, GroupId, ReplicaId, Term
from raftlog.base.units import WallMillis
from raftlog.storage.directories.incarnations import Incarnation

NO_WALL: Final = WallMillis(-1)
"""The wall clock of a peer of protocol 1 or 2, which tells none."""


@final
class Offer(NamedTuple):
    """An offer to let node heartbeats stand for a group.

    `leader` leads `group` in `term` and agreed on that with `follower` in this session. The node's
    heartbeats stand for the group from the one with this offer on.
    """

    group: GroupId
    term: Term
    leader: ReplicaId
    follower: ReplicaId


@final
class Place(NamedTuple):
    """A group and a term, in the lists of groups for which a node heartbeat stands no longer."""

    group: GroupId
    term: Term


@final
class NodeHeartbeat(NamedTuple):
    """From a node that leads groups to one that follows in them; `round` counts within the session.

    Its lists are repeated until the reply to a round that carried them came back. So a later
    heartbeat never speaks for a group that the sender stopped leading. `acked_round` is the highest
    round whose reply the sender has handled. `wall_ms` is the sender's wall clock.
    """

    round: int
    acked_round: int
    offers: tuple[Offer, ...]
    stopped: tuple[Place, ...]
    wall_ms: WallMillis = NO_WALL


@final
class NodeHeartbeatReply(NamedTuple):
    """The reply to a NodeHeartbeat, with its round.

    `disagreed` are offered or covered groups for which the replier knows a higher term, another
    leader, or no running replica. They are repeated until `acked_round` has passed the first reply
    with them. `wall_ms` is the replier's wall clock.
    """

    round: int
    disagreed: tuple[Place, ...]
    wall_ms: WallMillis = NO_WALL


@final
@enum.unique
class ControllerKind(enum.IntEnum):
    """The kinds of requests to the active controller; a kind's owner defines its body."""

    PROPOSE = 1
    """A metadata command; answered when it is applied, or with the error of applying it."""
    REGISTER = 2
    """The registration of a broker's boot."""
    HEARTBEAT = 3
    """The sign of life of a registered boot, with the version of its image."""
    REPORT = 4
    """Leaders' reports: the membership reached, leader and term."""


@final
class ControllerRequest(NamedTuple):
    """A request to the controller; `request_no` is unique among the sender's open requests."""

    request_no: int
    kind: int
    body: bytes


@final
class ControllerReply(NamedTuple):
    """The answer to a ControllerRequest. `error` is Kafka's code.

    NONE: done. NOT_CONTROLLER: then `text` is the node id of the presumed controller, or empty.
    REQUEST_TIMED_OUT: the controller is busy, and did nothing.
    """

    request_no: int
    error: int
    text: str
    body: bytes


@final
@enum.unique
class Naming(enum.IntEnum):
    """The reasons for which a peer names a life of our data directory."""

    NAMED = 0
    """Another voter has named it."""
    KNOWN = 1
    """It is the last one that the peer has synced, which the peer names at least once in each
    session."""
    REPLACED = 2
    """The same, and our present one will take its place once we have confirmed it."""


@final
class IncarnationQuestion(NamedTuple):
    """The question whether this life is on the list of the receiver's data directory.

    0 means that the sender knows of none.
    """

    incarnation: Incarnation
    naming: Naming


@final
class IncarnationConfirmed(NamedTuple):
    """The answer that it is.

    Otherwise none comes: the directory is an old copy, and its broker ends.
    """

    incarnation: Incarnation
    naming: Naming


@final
class VouchQuestion(NamedTuple):
    """The question which life of that directory the receiver synced last; it claims to be this."""

    directory: DirectoryId
    incarnation: Incarnation


@final
class VouchAnswer(NamedTuple):
    """The question, with the life that is known here; 0 when there is none."""

    directory: DirectoryId
    incarnation: Incarnation
    known: Incarnation


BrokerMessage = (
    NodeHeartbeat
    | NodeHeartbeatReply
    | ControllerRequest
    | ControllerReply
    | IncarnationQuestion
    | IncarnationConfirmed
    | VouchQuestion
    | VouchAnswer
)
