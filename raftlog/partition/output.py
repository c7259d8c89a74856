"""What a partition replica wants done after a turn, and the answers that it gives to those who
wait.

The broker takes one ReplicaOutput from every replica that it touched, folds it into its effects,
and then calls each completion: `then(answer)`, in order.
"""

from collections.abc import Callable
from typing import Final, NamedTuple, Protocol, final

import attrs

from raftlog.base.entries import HardState
from raftlog.base.errors import RaftlogError
from raftlog.base.ids import GroupId, Offset, RaftIndex, ReplicaId
from raftlog.base.units import NEVER, Instant
from raftlog.kafka.error_codes import ErrorCode
from raftlog.partition.waiters import Then
from raftlog.raft.messages import RaftMessage
from raftlog.storage.ops import WriteOp

JobCall = Callable[..., object]  # type: ignore[explicit-any]  # each job has its own arguments
"""A function of storage: the disk comes first."""

NO_OFFSET: Final = Offset(-1)
NO_TIME_MS: Final = -1


class HardStateStore(Protocol):
    """The part of `storage.StoreImage` that a replica needs."""

    def set_hard_state(self, group: GroupId, hard_state: HardState) -> bytes:
        """The store record that makes it so."""
        ...


class ProduceAnswer(NamedTuple):
    """One partition of a Produce request is decided.

    On success the batch lies at `base_offset`, committed. `log_append_time_ms` is -1 with
    CreateTime.
    """

    error: ErrorCode
    base_offset: Offset = NO_OFFSET
    log_append_time_ms: int = NO_TIME_MS
    log_start: Offset = NO_OFFSET
    message: str | None = None
    raft_index: RaftIndex = RaftIndex(0)


class ProposalAnswer(NamedTuple):
    """A batch of the broker's own is decided (`PartitionReplica.propose_records`).

    On success it is committed at `raft_index`, its first record has `base_offset`, and the machine
    of this replica has applied it. REQUEST_TIMED_OUT and NOT_ENOUGH_REPLICAS_AFTER_APPEND do not
    say that it was not: a batch that was appended may be committed later, or is already.
    """

    error: ErrorCode
    raft_index: RaftIndex = RaftIndex(0)
    base_offset: Offset = NO_OFFSET


class ReadAnswer(NamedTuple):
    """A read index is confirmed (or, with an error, not): what is committed now may be served as
    linearizable to whoever asked before."""

    error: ErrorCode


class DeleteAnswer(NamedTuple):
    """A DeleteRecords of one partition is decided; `log_start` is the new low watermark."""

    error: ErrorCode
    log_start: Offset = NO_OFFSET


class Completion(NamedTuple):
    """Call `then(answer)` after all replicas of the turn were taken."""

    then: Then
    answer: object


class ReplicaJob(NamedTuple):
    """Run `function(disk, *args)` on the replica's directory; `job_done(token, value, now)`
    answers, with what it returned or the exception that it raised."""

    token: int
    function: JobCall
    args: tuple[object, ...]


@final
@attrs.define(eq=False)
class ReplicaOutput:
    """One drain of a replica; the lists are the taker's.

    * `send`: messages in order. `ops`, `store_records`: to be written with the io_id of this take.
    * `leadership`: role, term, leader or readiness changed. `membership`: it changed or was
      committed. `in_sync`: the in-sync set changed. `committed`: the commit moved.
    * `agreed`, `uncovered`: as the raft node says, for heartbeats per pair of nodes.
    * `damage`: stored bytes are not what was written: close the replica and recover it.
    * `serves_machine`: the answer of `PartitionReplica.serves_machine` changed.
    * `differs`: the machine can go on no more, or is not what the leader's is, and why: the replica
      stopped for good.
    * `deadline`: when `tick` must be called at the latest.
    """

    send: list[RaftMessage] = attrs.Factory(list)
    ops: list[WriteOp] = attrs.Factory(list)
    store_records: list[bytes] = attrs.Factory(list)
    jobs: list[ReplicaJob] = attrs.Factory(list)
    completed: list[Completion] = attrs.Factory(list)
    agreed: list[ReplicaId] = attrs.Factory(list)
    uncovered: list[ReplicaId] = attrs.Factory(list)
    leadership: bool = False
    membership: bool = False
    in_sync: bool = False
    committed: bool = False
    installed: bool = False
    damage: RaftlogError | None = None
    serves_machine: bool = False
    differs: str | None = None
    deadline: Instant = NEVER
