"""The events a broker is given and the effects it returns: the border of deciding and doing.

One call of `Broker.handle(events, now_ns, wall_ms)` is one turn. Events and effects are plain
tuples; everything in them is immutable after hand-over. The shell queues the writes, then sends,
then answers. It orders nothing else.
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
    """A client connected to the named `listener` and proved to be `principal`."""

    connection: ConnectionId
    listener: str
    principal: str
    address: str


class ConnectionClosed(NamedTuple):
    """The connection is gone; its unanswered requests need no reply any more."""

    connection: ConnectionId


class Request(NamedTuple):
    """One whole frame without its length prefix.

    The runtime numbers the requests of a connection from 0, in arrival order, and sends the replies
    in that order.
    """

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
    """The link broke; every message queued on it is lost."""

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
    """The round is synced: its writes survive a crash. Implies Written."""

    io_id: IoId
    directory: DirectoryId


class WriteFailed(NamedTuple):
    """Part of a round failed.

    `groups` names the replicas concerned, whose later rounds fail too until they are reopened. None
    means the whole directory is poisoned (a failed sync). The other groups of the round still get
    Written and Persisted.
    """

    io_id: IoId
    directory: DirectoryId
    groups: tuple[GroupId, ...] | None
    error: RaftlogError


class ReadDone(NamedTuple):
    """The answer to a Read."""

    token: int
    value: bytes | RaftlogError


class JobDone(NamedTuple):
    """The answer to a Job: the function's result, or the error that it raised."""

    token: int
    value: Any


class AdminCall(NamedTuple):
    """An operator's question from the admin listener or the embedding program."""

    token: int
    command: str
    arguments: tuple[tuple[str, str], ...]


class Stop(NamedTuple):
    """Stop gracefully: transfer leadership, then set `Effects.stopped`, before the deadline."""

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
    """The answer to `answers` requests from `request_no` on; each Request is in exactly one.

    `parts` are the whole frames one behind the other, each with its 4-byte length first, as the
    codec makes them. None stands for acks=0, which has no answer at all.
    """

    connection: ConnectionId
    request_no: int
    parts: list[Part] | None
    answers: int = 1


class Hangup(NamedTuple):
    """Close the connection; the broker has traced why."""

    connection: ConnectionId


class Pause(NamedTuple):
    """Read no more requests from this connection; answers still leave."""

    connection: ConnectionId


class Resume(NamedTuple):
    """Read from this connection again."""

    connection: ConnectionId


class PeerSend(NamedTuple):
    """Messages for a peer, at most one PeerSend per peer and turn.

    They are dropped without a word when the session is over.
    """

    peer: NodeId
    session: SessionId
    messages: Sequence[Any]


class Unlink(NamedTuple):
    """Break the link of this session, if it still exists: no more of its messages are delivered.

    The peer at its other end connects again.
    """

    peer: NodeId
    session: SessionId


class Write(NamedTuple):
    """At most one per data directory and turn: performed in order, then synced as one round."""

    directory: DirectoryId
    io_id: IoId
    ops: Sequence[WriteOp]
    awaited: bool = True
    """Whether the end of the round lets anything happen by itself. It does not when only leaders'
    own copies are in it: each of them counts only together with a peer's answer, which brings a
    turn of its own. If such a round is durable before any other turn, `Persisted` may wait for the
    next one."""


class Read(NamedTuple):
    """A cold read off the loop; ReadDone answers it."""

    token: int
    slice: FileSlice


class Job(NamedTuple):
    """Run `function(disk, *args)`, of raftlog.storage, off the loop on the directory's disk.

    JobDone answers it. Jobs of one directory run one after another, in order.

    A *search* only reads, may take seconds, and runs beside them: `search_of` is its group.
    Searches of one group run one after another. A search that is not `wanted` any more when its
    turn comes may be answered with None instead of being run.
    """

    token: int
    directory: DirectoryId
    function: Callable[..., Any]
    args: tuple[Any, ...]
    search_of: GroupId | None = None
    wanted: Callable[[], bool] | None = None


class AdminReply(NamedTuple):
    """The answer to an AdminCall: a JSON-ready value or an error."""

    token: int
    value: Any


class PeerAddress(NamedTuple):
    """The address at which a node listens for peers."""

    node: NodeId
    host: str
    port: int


@final
@attrs.define(eq=False)
class Effects:
    """Everything that one turn wants done.

    `wake_at` is the instant of the next turn without events.

    `peers` is None when the set of peers to keep links to is unchanged, else the whole new set.
    `stopped` is set once, by the turn after which the process may end. With `acks_may_wait` no
    group here needs acknowledgements of peers to go on: they may wait for the next turn, whatever
    causes it.
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
