"""Takes a produced batch through its partition: judge, check, stamp, propose, wait, answer.

Rules:
1. Every successful produce answer comes from `_success`, which asserts that the last offset lies
   below the published high watermark.
2. acks=all: before the append, at least `min.insync.replicas` voters must be in sync, else
   NOT_ENOUGH_REPLICAS. Before the reply, that many of them must hold the batch durably. When the
   in-sync set has shrunk below that number, the reply is NOT_ENOUGH_REPLICAS_AFTER_APPEND.
   acks=1 and acks=0 mean committed.
3. A leader that takes no proposals yet parks batches, in order: it has not committed in its term,
   or it is handing over. It judges a parked batch at once. It checks the producer's sequence when
   the batch's turn comes.
4. A duplicate waits until every entry that the log holds now is decided. An earlier answer would
   acknowledge a batch that is not durable yet.
"""

from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Final, NamedTuple, final

from raftlog.base.binary import Buffer
from raftlog.base.ids import Offset, RaftIndex, Term
from raftlog.base.limits import (
    BATCH_HEADER_BYTES,
    PARKED_BYTES_MAX,
    RECORD_COPY_BYTES_MAX,
    SEGMENT_HEADER_BYTES,
)
from raftlog.base.probes import probe
from raftlog.base.units import NEVER, Instant, WallMillis
from raftlog.kafka.error_codes import ErrorCode
from raftlog.partition.config import PartitionConfig
from raftlog.partition.high_watermark import HighWatermark
from raftlog.partition.in_sync import InSyncSet
from raftlog.partition.output import NO_TIME_MS, Completion, ProduceAnswer, ProposalAnswer
from raftlog.partition.producing.appending import BatchRefused, judged, stamped, stamped_with_time
from raftlog.partition.producing.producers import Duplicate, ProducerTable
from raftlog.partition.tracker import LogTracker
from raftlog.partition.waiters import ProduceWaiter, ProduceWaiters, Then
from raftlog.raft.node import RaftNode
from raftlog.records.batch import LOG_APPEND_TIME, BatchHeader, is_numbered, read_header
from raftlog.storage.partition_log import PartitionLog

ACKS_ALL: Final = -1


class _Parked(NamedTuple):
    """A judged batch that waits for its leader to take proposals."""

    records: Buffer
    header: BatchHeader
    acks: int
    deadline: Instant
    then: Then


@final
class ProducePath:
    """The produce path of one replica while it leads.

    * `completed`: collects the answers to requests that waited.
    * `held_back`: an acks=all batch is committed, but too few in-sync replicas hold it. `settle`
      must look again when a follower acknowledges more, though the commit stands still.
    * `parked_bytes`: the bytes of the parked batches. `uncommitted_bytes`: the bytes that this
      leader has appended and not committed.
    """

    __slots__ = (
        "_batch_bytes_max",
        "_in_sync",
        "_log",
        "_mark",
        "_node",
        "_parked",
        "_parked_earliest",
        "_tracker",
        "_uncommitted",
        "_waiters",
        "completed",
        "config",
        "held_back",
        "parked_bytes",
        "uncommitted_bytes",
    )

    def __init__(
        self,
        *,
        node: RaftNode,
        log: PartitionLog,
        tracker: LogTracker,
        mark: HighWatermark,
        in_sync: InSyncSet,
        config: PartitionConfig,
        completed: list[Completion],
    ) -> None:
        self._node = node
        self._log = log
        self._tracker = tracker
        self._mark = mark
        self._in_sync = in_sync
        self._parked: deque[_Parked] = deque()
        self._parked_earliest = NEVER
        self._uncommitted: deque[tuple[RaftIndex, int]] = deque()
        self._waiters = ProduceWaiters()
        self.configure(config)
        self.completed = completed
        self.held_back = False
        self.parked_bytes = 0
        self.uncommitted_bytes = 0

    def configure(self, config: PartitionConfig) -> None:
        """Take the topic's settings, at the start and at each change; the log has them already."""
        self.config = config
        self._batch_bytes_max = self._log.options.segment_bytes - SEGMENT_HEADER_BYTES

    @property
    def producers(self) -> ProducerTable:
        """The table of producers that number their batches; for reading only."""
        return self._tracker.producers

    @property
    def parked(self) -> bool:
        return bool(self._parked)

    @property
    def waiting(self) -> int:
        """Requests that will be answered later."""
        return len(self._parked) + len(self._waiters)

    @property
    def deadline(self) -> Instant:
        """When `expire` must be called at the latest."""
        return min(self._waiters.deadline, self._parked_earliest if self._parked else NEVER)

    def submit(
        self,
        records: Buffer,
        acks: int,
        deadline: Instant,
        then: Then,
        now: Instant,
        wall_ms: WallMillis,
    ) -> ProduceAnswer | None:
        """Take a produced batch: an answer now, or None and `then(ProduceAnswer)` later."""
        try:
            header = judged(records, self.config, wall_ms)
        except BatchRefused as refused:
            return ProduceAnswer(refused.code, message=refused.message)
        if len(records) > self._batch_bytes_max:
            return ProduceAnswer(ErrorCode.RECORD_LIST_TOO_LARGE)
        if self._parked or not self._node.ready:
            return self._park(_Parked(records, header, acks, deadline, then))
        return self._append(records, header, acks, deadline, then, now, wall_ms)

    def propose(
        self, batch: bytes, deadline: Instant, then: Then, now: Instant, wall_ms: WallMillis
    ) -> ErrorCode | None:
        """Take a batch that this broker built, as acks=all: an error now, or None and
        `then(ProposalAnswer)` later."""
        header = read_header(batch)
        assert header.size == len(batch), (header.size, len(batch))
        assert header.producer_id < 0, header.producer_id
        if len(batch) > min(self.config.max_message_bytes, self._batch_bytes_max):
            return ErrorCode.MESSAGE_TOO_LARGE
        told = partial(_tell_proposer, then)
        if self._parked or not self._node.ready:
            refused = self._park(_Parked(batch, header, ACKS_ALL, deadline, told))
        else:
            refused = self._append(batch, header, ACKS_ALL, deadline, told, now, wall_ms)
        return None if refused is None else refused.error

    def takes_runs(self, acks: int) -> bool:
        """Whether batches may be appended together now.

        They may when no batch is parked before them, none needs a time stamp or a check of its
        records, and enough replicas are in sync for acks=all.
        """
        config = self.config
        if config.log_append_time or config.validate_records:
            return False
        if self._parked or not self._node.ready:
            return False
        return acks != ACKS_ALL or len(self._in_sync) >= self.config.min_insync_replicas

    def submit_run(
        self,
        fields: Sequence[Buffer],
        acks: int,
        deadline: Instant,
        then: Then,
        now: Instant,
        wall_ms: WallMillis,
    ) -> list[Offset]:
        """Append several batches of one connection; returns the base offset of each one appended.

        One answer decides all of them, when the last is decided. The run ends before the first
        batch that `submit` might refuse or find to be a duplicate. The caller has just asked
        `takes_runs`.
        """
        node = self._node
        first_offset = following = self._log.next_offset
        batches: list[Buffer] = []
        offsets: list[Offset] = []
        for field in fields:
            if not BATCH_HEADER_BYTES <= len(field) <= self._batch_bytes_max or is_numbered(field):
                break
            try:
                header = judged(field, self.config, wall_ms)
            except BatchRefused:
                break
            batches.append(stamped(field, header, following, node.term))
            offsets.append(following)
            following = Offset(following + header.records_count)
        if not batches:
            return []
        self._tracker.look()
        first, last = node.propose(batches, now, wall_ms)
        self._tracker.appended_unnumbered(first, last)
        self._wait_for(last, sum(map(len, batches)), now)
        last_offset = Offset(following - 1)
        waiter = ProduceWaiter(last, first_offset, last_offset, NO_TIME_MS, deadline, then)
        self._waiters.add(waiter, in_sync=acks == ACKS_ALL)
        return offsets

    def resume(self, now: Instant, wall_ms: WallMillis) -> None:
        """Append the parked batches, in order, as far as the leader takes proposals."""
        while self._parked and self._node.ready:
            records, header, acks, deadline, then = self._parked.popleft()
            self.parked_bytes -= len(records)
            answer = self._append(records, header, acks, deadline, then, now, wall_ms)
            if answer is not None:
                self.completed.append(Completion(then, answer))

    def settle(self) -> None:
        """Answer every produce that is decided by the present commit and in-sync set."""
        uncommitted, commit = self._uncommitted, self._node.commit
        while uncommitted and uncommitted[0][0] <= commit:
            self.uncommitted_bytes -= uncommitted.popleft()[1]
        if not self._waiters:
            return
        node, waiters, minimum = self._node, self._waiters, self.config.min_insync_replicas
        held = self._in_sync.held_by(minimum, node.progress, node.durable)
        for waiter in waiters.take_committed(commit, held):
            answer = self._success(
                waiter.base_offset,
                waiter.last_offset,
                waiter.log_append_time_ms,
                waiter.raft_index,
            )
            self.completed.append(Completion(waiter.then, answer))
        if len(self._in_sync) < minimum:
            short = ProduceAnswer(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
            for waiter in waiters.take_short_of_replicas(commit):
                probe("produce-short-of-replicas-after-append")
                self.completed.append(Completion(waiter.then, short))
        self.held_back = waiters.committed_and_waiting(commit)

    def expire(self, now: Instant) -> None:
        """Answer REQUEST_TIMED_OUT to produces whose deadline has passed.

        The outcome is unknown to the client; the entry stays in the log.
        """
        timed_out = ProduceAnswer(ErrorCode.REQUEST_TIMED_OUT)
        for waiter in self._waiters.take_expired(now):
            probe("produce-timed-out")
            self.completed.append(Completion(waiter.then, timed_out))
        if now >= self._parked_earliest:
            self._expire_parked(now, timed_out)

    def fail(self, error: ErrorCode) -> None:
        """Answer all produces: this replica decides nothing any more.

        A parked batch was never appended, so its answer is `error`. An appended batch gets
        REQUEST_TIMED_OUT, because the next leader may still commit it. Clients take the errors of a
        moved leader or a failed disk for "not written" (docs/decisions/0042).
        """
        unknown = ProduceAnswer(ErrorCode.REQUEST_TIMED_OUT)
        for waiter in self._waiters.take_all():
            probe("produce-left-undecided")
            self.completed.append(Completion(waiter.then, unknown))
        answer = ProduceAnswer(error)
        for parked in self._parked:
            self.completed.append(Completion(parked.then, answer))
        self._parked.clear()
        self._parked_earliest = NEVER
        self.parked_bytes = 0
        self._uncommitted.clear()
        self.uncommitted_bytes = 0
        self.held_back = False

    def _expire_parked(self, now: Instant, timed_out: ProduceAnswer) -> None:
        kept: deque[_Parked] = deque()
        for parked in self._parked:
            if parked.deadline > now:
                kept.append(parked)
                continue
            probe("parked-produce-timed-out")
            self.parked_bytes -= len(parked.records)
            self.completed.append(Completion(parked.then, timed_out))
        self._parked = kept
        self._parked_earliest = min((parked.deadline for parked in kept), default=NEVER)

    def _park(self, parked: _Parked) -> ProduceAnswer | None:
        size = len(parked.records)
        if self.parked_bytes and self.parked_bytes + size > PARKED_BYTES_MAX:
            probe("parked-produce-refused")
            return ProduceAnswer(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        probe("produce-parked")
        if size < RECORD_COPY_BYTES_MAX:
            parked = parked._replace(records=bytes(parked.records))
        self.parked_bytes += size
        self._parked.append(parked)
        self._parked_earliest = min(self._parked_earliest, parked.deadline)
        return None

    def _append(
        self,
        records: Buffer,
        header: BatchHeader,
        acks: int,
        deadline: Instant,
        then: Then,
        now: Instant,
        wall_ms: WallMillis,
    ) -> ProduceAnswer | None:
        in_sync = acks == ACKS_ALL
        if in_sync and len(self._in_sync) < self.config.min_insync_replicas:
            probe("produce-short-of-replicas")
            return ProduceAnswer(ErrorCode.NOT_ENOUGH_REPLICAS)
        self._tracker.look()
        if header.producer_id >= 0:
            verdict = self._tracker.producers.check(header)
            if isinstance(verdict, Duplicate):
                return self._append_duplicate(verdict, deadline, then, in_sync=in_sync)
            if verdict is not None:
                return ProduceAnswer(verdict)
        node, base_offset, time_ms = self._node, self._log.next_offset, NO_TIME_MS
        if self.config.log_append_time:
            time_ms = wall_ms
            batch: Buffer = stamped_with_time(records, header, base_offset, node.term, wall_ms)
            attributes = header.attributes | LOG_APPEND_TIME
            header = header._replace(attributes=attributes, max_timestamp=wall_ms)
        else:
            batch = stamped(records, header, base_offset, node.term)
        index, _ = node.propose((batch,), now, wall_ms)
        self._tracker.appended(header, base_offset, index)
        self._wait_for(index, len(batch), now)
        last_offset = Offset(base_offset + header.last_offset_delta)
        waiter = ProduceWaiter(index, base_offset, last_offset, time_ms, deadline, then)
        self._waiters.add(waiter, in_sync=in_sync)
        return None

    def _wait_for(self, index: RaftIndex, size: int, now: Instant) -> None:
        """Count `size` bytes as uncommitted until the entry `index` is committed."""
        self._uncommitted.append((index, size))
        self.uncommitted_bytes += size
        if self._in_sync.deadline == NEVER:
            self._in_sync.watch(now)

    def _append_duplicate(
        self, known: Duplicate, deadline: Instant, then: Then, *, in_sync: bool
    ) -> ProduceAnswer | None:
        """A retry of what is in the log: success once that is decided, with its first offset."""
        node = self._node
        base_offset, last_offset = Offset(known.base_offset), Offset(known.last_offset)
        before = self._log.term_end_offset(Term(node.term - 1), self._log.next_offset)
        if before is not None and base_offset < before[1]:
            probe("duplicate-of-an-earlier-term")
        wait_for = self._log.last_index
        if last_offset < self._mark.published:
            wait_for = node.commit
            if not in_sync or self._enough_hold(wait_for):
                return self._success(base_offset, last_offset, NO_TIME_MS, wait_for)
        probe("duplicate-waits-for-commit")
        waiter = ProduceWaiter(wait_for, base_offset, last_offset, NO_TIME_MS, deadline, then)
        self._waiters.add_duplicate(waiter, in_sync=in_sync)
        self.held_back = True
        return None

    def _enough_hold(self, index: RaftIndex) -> bool:
        node = self._node
        minimum = self.config.min_insync_replicas
        return self._in_sync.held_by(minimum, node.progress, node.durable) >= index

    def _success(
        self, base_offset: Offset, last_offset: Offset, log_append_time_ms: int, index: RaftIndex
    ) -> ProduceAnswer:
        self._mark.promise(last_offset)
        log_start = self._log.log_start
        return ProduceAnswer(
            ErrorCode.NONE, base_offset, log_append_time_ms, log_start, raft_index=index
        )


def _tell_proposer(then: Then, answer: ProduceAnswer) -> None:
    then(ProposalAnswer(answer.error, answer.raft_index, answer.base_offset))
