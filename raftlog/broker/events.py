"""The events a broker is given and the effects it returns: the whole border between deciding and
doing.

One call of `Broker.handle(events, now_ns, wall_ms)` is one turn. Events and effects are plain
tuples; what they carry is immutable after hand-over. The shell performs the effects in this order
and orders nothing else: it queues the writes, then sends, then answers.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, final

import attrs

from raftlog.base.binary import Buffer
from raftlog.base.errors import RaftlogError
from raftlog.base.ids import (
    BootNumber,
    ConnectionId,
    DirectoryId,
    GroupId,
    IoId,
    NodeId,
    SessionId,
)
from raftlog.base.units import NEVER, Instant
from raftlog.records.slices import FileSlice
from raftlog.storage.directories.incarnations import NONE, Incarnation
from raftlog.storage.ops import WriteOp

# --- events ---------------------------------------------------------------------------------------


class ConnectionOpened(NamedTuple):
    """A client connected. `listener` is the listener's name; `principal` is who it proved to be."""

    connection: ConnectionId
    listener: str
    principal: str
    address: str


class ConnectionClosed(NamedTuple):
    """The connection is gone; its unanswered requests need no reply any more."""

    connection: ConnectionId


class Request(NamedTuple):
    """One whole frame without its length prefix. The runtime numbers the requests of a connection
    from 0, in arrival order, and sends the replies in that order."""

    connection: ConnectionId
    request_no: int
    frame: Buffer


class Drained(NamedTuple):
    """This many answer bytes of the connection have left the process."""

    connection: ConnectionId
    byte_count: int


class LinkUp(NamedTuple):
    """A peer proved the cluster secret and that it is `peer` of this cluster, booted as said."""

    peer: NodeId
    session: SessionId
    directory: DirectoryId
    boot: BootNumber
    incarnation: Incarnation = NONE
    """The number that the peer's boot drew. NONE when either end runs a release without such
    numbers."""


class LinkDown(NamedTuple):
    """The link broke; all that was queued on it is lost."""

    peer: NodeId
    session: SessionId


class PeerMessages(NamedTuple):
    """Messages from a peer in sending order: `raft.messages` and `broker.peer_messages`."""

    peer: NodeId
    session: SessionId
    messages: Sequence[Any]


class Written(NamedTuple):
    """The bytes of that round can be read from the files (not yet durable)."""

    io_id: IoId
    directory: DirectoryId


class Persisted(NamedTuple):
    """The round is synced: what it wrote survives a crash. Implies Written."""

    io_id: IoId
    directory: DirectoryId


class WriteFailed(NamedTuple):
    """Part of a round failed. `groups` names the replicas concerned, whose later rounds fail too
    until they are reopened; None means the whole directory is poisoned (a failed sync). The other
    groups of the round still get Written and Persisted."""

    io_id: IoId
    directory: DirectoryId
    groups: tuple[GroupId, ...] | None
    error: RaftlogError


class ReadDone(NamedTuple):
    """Answer to a Read."""

    token: int
    value: bytes | RaftlogError


class JobDone(NamedTuple):
    """Answer to a Job: what the function returned, or the error that it raised."""

    token: int
    value: Any


class AdminCall(NamedTuple):
    """An operator's question from the admin listener or the embedding program."""

    token: int
    command: str
    arguments: tuple[tuple[str, str], ...]


class Stop(NamedTuple):
    """Stop gracefully: transfer leadership, then say so in `Effects.stopped`, before the
    deadline."""

    deadline: Instant


Event = (
    ConnectionOpened
    | ConnectionClosed
    | Request
    | Drained
    | LinkUp
    | LinkDown
    | PeerMessages
    | Written
    | Persisted
    | WriteFailed
    | ReadDone
    | JobDone
    | AdminCall
    | Stop
)

# --- effects --------------------------------------------------------------------------------------

Part = Buffer | FileSlice


class Reply(NamedTuple):
    """Each Request is in exactly one. `parts` is the whole frame, its 4-byte length first, as the
    codec makes it and as it is sent; None for acks=0, which has no answer at all. Of `answers`
    requests from `request_no` on it is their frames, one behind the other."""

    connection: ConnectionId
    request_no: int
    parts: list[Part] | None
    answers: int = 1


class Hangup(NamedTuple):
    """Close the connection; the broker has traced why."""

    connection: ConnectionId


class Pause(NamedTuple):
    """Read no more requests from this connection; answers still go out."""

    connection: ConnectionId


class Resume(NamedTuple):
    """Read again."""

    connection: ConnectionId


class PeerSend(NamedTuple):
    """At most one per peer and turn. Dropped without a word when the session is over."""

    peer: NodeId
    session: SessionId
    messages: Sequence[Any]


class Unlink(NamedTuple):
    """Break the link of this session, if it is still there: nothing more of it is heard. Who lives
    at its other end connects anew."""

    peer: NodeId
    session: SessionId


class Write(NamedTuple):
    """At most one per data directory and turn: performed in order, then synced as one round."""

    directory: DirectoryId
    io_id: IoId
    ops: Sequence[WriteOp]
    awaited: bool = True
    """False when its end alone lets nothing happen: only leaders' own copies are in it, and each of
    them counts only together with a peer's answer, which brings a turn of its own. If such a round
    is durable before any other turn, `Persisted` may wait for the next one."""


class Read(NamedTuple):
    """A cold read off the loop; answered by ReadDone."""

    token: int
    slice: FileSlice


class Job(NamedTuple):
    """`function(disk, *args)` off the loop, on the directory's disk; a function of raftlog.storage.
    Answered by JobDone. Jobs of one directory run one after another, in order.

    A *search* only reads, may take seconds, and runs beside them: `search_of` is its group. Those
    of one group run one after another. One that is not `wanted` any more when its turn comes may
    be answered with None instead of being run."""

    token: int
    directory: DirectoryId
    function: Callable[..., Any]
    args: tuple[Any, ...]
    search_of: GroupId | None = None
    wanted: Callable[[], bool] | None = None


class AdminReply(NamedTuple):
    """Answer to an AdminCall: a JSON-ready value or an error."""

    token: int
    value: Any


class PeerAddress(NamedTuple):
    """Where a node listens for peers."""

    node: NodeId
    host: str
    port: int


@final
@attrs.define(eq=False)
class Effects:
    """What one turn wants done. `wake_at` is the instant of the next turn without events.

    `peers` is None when the set of peers to keep links to is unchanged, else the whole new set.
    `stopped` is set once, by the turn after which the process may end. With `acks_may_wait` no
    group here needs acknowledgements of peers to go on: they may wait for whatever turn is next.
    """

    writes: list[Write] = attrs.Factory(list)
    sends: list[PeerSend] = attrs.Factory(list)
    unlinks: list[Unlink] = attrs.Factory(list)
    replies: list[Reply] = attrs.Factory(list)
    hangups: list[Hangup] = attrs.Factory(list)
    pauses: list[Pause | Resume] = attrs.Factory(list)
    reads: list[Read] = attrs.Factory(list)
    jobs: list[Job] = attrs.Factory(list)
    admin_replies: list[AdminReply] = attrs.Factory(list)
    peers: tuple[PeerAddress, ...] | None = None
    stopped: bool = False
    acks_may_wait: bool = False
    wake_at: Instant = NEVER
