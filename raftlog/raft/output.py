"""The output of a RaftNode after a turn: everything that leaves it, in one record.

All messages in `send` may leave at once. Messages that must wait for the disk (votes, vote
requests, append replies) stay inside the node and come out of a later `take`, after `persisted`.
"""

from collections.abc import Sequence
from typing import NamedTuple, final

import attrs

from raftlog.base.binary import Buffer
from raftlog.base.entries import HardState, InstallPosition
from raftlog.base.ids import RaftIndex, ReplicaId
from raftlog.base.units import NEVER, Instant
from raftlog.raft.messages import RaftMessage


class ReadState(NamedTuple):
    """Answer to `read_index`: serve once everything up to `raft_index` is applied. None: refused,
    this replica does not lead (any more) or too many wait."""

    token: int
    raft_index: RaftIndex | None


class LogRead(NamedTuple):
    """Entries for a follower that are not in memory; answered by `log_read_done`. A verified disk
    read of at least one entry, then up to `bytes_max`, with the chain before `first_index`."""

    token: int
    first_index: RaftIndex
    bytes_max: int


class SnapshotRead(NamedTuple):
    """The state before the first entry still held, to be installed at a follower that is further
    back; answered by `snapshot_read_done`."""

    token: int
    follower: ReplicaId


class Installed(NamedTuple):
    """The log was replaced by this position; the state machine must be loaded from the snapshot."""

    position: InstallPosition
    snapshot: Buffer


class TransferDone(NamedTuple):
    """A transfer ended: `to` leads now, or (not `ok`) it was given up."""

    to: ReplicaId
    ok: bool


@final
@attrs.define(eq=False)
class Output:
    """One drain of a node.

    * `send`: messages in order. `hard_state`: not None when it changed and must be persisted with
      the io_id of this take. `log_changed`: the log has a pending write for this io_id. When
      neither, the node does not use this io_id and expects no completion.
    * `commit`: the new commit index, when it moved. `reads`: answered read-index requests.
    * `log_reads`, `snapshot_reads`: what must be fetched off the loop.
    * `installed`: the log was replaced in this turn.
    * `verify`: first and last index of log ranges whose content a follower refused; when one
      proves bad the driver calls `step_down`.
    * `agreed`: peers with whom group, term and leader are agreed on since the link's session began
      (told once). `uncovered`: covered peers whose cover ended by itself.
    * `deadline`: when `tick` must be called at the latest; NEVER when nothing waits for time.
    """

    send: Sequence[RaftMessage] = ()
    hard_state: HardState | None = None
    log_changed: bool = False
    commit: RaftIndex | None = None
    reads: Sequence[ReadState] = ()
    log_reads: Sequence[LogRead] = ()
    snapshot_reads: Sequence[SnapshotRead] = ()
    installed: Installed | None = None
    verify: Sequence[tuple[RaftIndex, RaftIndex]] = ()
    agreed: Sequence[ReplicaId] = ()
    uncovered: Sequence[ReplicaId] = ()
    transfer_done: TransferDone | None = None
    deadline: Instant = NEVER
