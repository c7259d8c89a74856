"""The output of a partition replica after a turn, and its answers to waiting requests.

The broker takes one ReplicaOutput from every replica that it touched and folds it into its effects.
Then it calls each completion, `then(answer)`, in order.
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
"""A function of storage whose first argument is the disk."""

NO_OFFSET: Final = Offset(-1)
NO_TIME_MS: Final = -1


class HardStateStore(Protocol):
    """The part of `storage.StoreImage` that a replica needs."""

    def set_hard_state(self, group: GroupId, hard_state: HardState) -> bytes:
        """Set the hard state; returns the store record to be written, which makes it durable."""
        ...


class ProduceAnswer(NamedTuple):
    """The answer to one partition of a Produce request.

    On success the batch is committed at `base_offset`. `log_append_time_ms` is the leader's wall
    time, -1 with CreateTime.
    """

    error: ErrorCode
    base_offset: Offset = NO_OFFSET
    log_append_time_ms: int = NO_TIME_MS
    log_start: Offset = NO_OFFSET
    message: str | None = None
    raft_index: RaftIndex = RaftIndex(0)


class ProposalAnswer(NamedTuple):
    """The answer to a batch that the broker itself built (`PartitionReplica.propose_records`).

    On success the batch is committed at `raft_index`, its first record has `base_offset`, and the
    machine of this replica has applied it. REQUEST_TIMED_OUT and NOT_ENOUGH_REPLICAS_AFTER_APPEND
    leave the outcome open: the batch was appended and may be committed already, or later.
    """

    error: ErrorCode
    raft_index: RaftIndex = RaftIndex(0)
    base_offset: Offset = NO_OFFSET


class ReadAnswer(NamedTuple):
    """The answer to a read index: without an error, this replica still leads.

    Then everything committed now may be served, as linearizable, to requests that came before the
    question.
    """

    error: ErrorCode


class DeleteAnswer(NamedTuple):
    """The answer to a DeleteRecords of one partition; `log_start` is the new low watermark."""

    error: ErrorCode
    log_start: Offset = NO_OFFSET


class Completion(NamedTuple):
    """An answer to be given, `then(answer)`, after all replicas of the turn were taken."""

    then: Then
    answer: object


class ReplicaJob(NamedTuple):
    """A job on the replica's directory: run `function(disk, *args)`, then call
    `job_done(token, value, now)` with the value that it returned or the exception that it
    raised."""

    token: int
    function: JobCall
    args: tuple[object, ...]


@final
@attrs.define(eq=False)
class ReplicaOutput:
    """The output of one take of a replica; its lists belong to the caller.

    * `send`: messages in order. `ops`, `store_records`: to be written with the io_id of this take.
    * `leadership`: role, term, leader or readiness changed. `membership`: it changed or was
      committed. `in_sync`: the in-sync set changed. `committed`: the commit moved.
    * `agreed`, `uncovered`: as in the raft node's output, for heartbeats per pair of nodes.
    * `damage`: stored bytes are not what was written: close the replica and recover it.
    * `serves_machine`: the answer of `PartitionReplica.serves_machine` changed.
    * `differs`: why the replica stopped for good: its machine cannot go on, or its state differs
      from the leader's.
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
