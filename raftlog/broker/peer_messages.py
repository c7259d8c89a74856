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
"""What a peer of protocol 1 or 2 says of its wall clock: nothing."""


@final
class Offer(NamedTuple):
    """`leader` leads `group` in `term` and agreed on that with `follower` in this session: from the
    heartbeat that carries this on, the node's heartbeats stand for the group."""

    group: GroupId
    term: Term
    leader: ReplicaId
    follower: ReplicaId


@final
class Place(NamedTuple):
    """A group as of a term, in the lists of what a node heartbeat stands for no longer."""

    group: GroupId
    term: Term


@final
class NodeHeartbeat(NamedTuple):
    """From a node that leads groups to one that follows in them; `round` counts within the session.

    Lists are repeated until the reply to a round that carried them came back, so that a later
    heartbeat never speaks for a group that the sender stopped leading. `acked_round` is the highest
    round whose reply the sender has worked in. `wall_ms` is the sender's wall clock.
    """

    round: int
    acked_round: int
    offers: tuple[Offer, ...]
    stopped: tuple[Place, ...]
    wall_ms: WallMillis = NO_WALL


@final
class NodeHeartbeatReply(NamedTuple):
    """The same round back. `disagreed` are groups offered or covered for which the replier knows a
    higher term, another leader, or no running replica; repeated until `acked_round` passed it.
    `wall_ms` is the replier's wall clock."""

    round: int
    disagreed: tuple[Place, ...]
    wall_ms: WallMillis = NO_WALL


@final
@enum.unique
class ControllerKind(enum.IntEnum):
    """What a broker asks of the active controller; the body's form belongs to the kind's owner."""

    PROPOSE = 1
    """A metadata command; answered when it is applied, or with the error that applying it gave."""
    REGISTER = 2
    """A boot of a broker presents itself."""
    HEARTBEAT = 3
    """A registered boot is alive, and how far its image is."""
    REPORT = 4
    """Leaders' reports: membership reached, leader and term."""


@final
class ControllerRequest(NamedTuple):
    """`request_no` is unique among the sender's open requests of this boot."""

    request_no: int
    kind: int
    body: bytes


@final
class ControllerReply(NamedTuple):
    """`error` is Kafka's code: 0 done; 41 not the controller (then `text` is the node id of the one
    that is believed to be it, or empty); 7 busy, and nothing was done."""

    request_no: int
    error: int
    text: str
    body: bytes


@final
@enum.unique
class Naming(enum.IntEnum):
    """How a peer comes to name a life of our data directory."""

    NAMED = 0
    """Another voter has named it."""
    KNOWN = 1
    """It is the last one that the peer has synced. It says so once in each session, at least."""
    REPLACED = 2
    """So it is, and our present one will take its place when we have confirmed it."""


@final
class IncarnationQuestion(NamedTuple):
    """Is this life on the list of your data directory? 0: I know of none."""

    incarnation: Incarnation
    naming: Naming


@final
class IncarnationConfirmed(NamedTuple):
    """It is. There is no answer otherwise: the directory is an old copy, and its broker ends."""

    incarnation: Incarnation
    naming: Naming


@final
class VouchQuestion(NamedTuple):
    """Which life of that directory have you synced last? It says to me that it is this one."""

    directory: DirectoryId
    incarnation: Incarnation


@final
class VouchAnswer(NamedTuple):
    """The question, and what is known: 0 when it is nothing."""

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
