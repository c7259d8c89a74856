"""The leader's duties beside serving: retention, DeleteRecords, trimming, and the periodic marker.

Retention goes by size and by age. Trimming moves the log start behind the snapshots of a machine.
For each of them the leader proposes an entry of Raft's own, and every replica acts once that entry
is committed. A group in which nothing is committed schedules nothing, so idle groups cost nothing.
"""

from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple, final

from raftlog.base.entries import EntryKind
from raftlog.base.ids import Offset, RaftIndex
from raftlog.base.limits import DELETES_PENDING_MAX, SEGMENT_HEADER_BYTES
from raftlog.base.probes import probe
from raftlog.base.units import NEVER, Instant, WallMillis, millis
from raftlog.kafka.error_codes import ErrorCode
from raftlog.partition.config import UNLIMITED, PartitionConfig
from raftlog.partition.high_watermark import HighWatermark
from raftlog.partition.machine.machine_feed import MachineFeed
from raftlog.partition.maintenance.clocks import PeerClocks, most_share
from raftlog.partition.maintenance.retention import (
    AgeAsk,
    SegmentSpan,
    log_start_asked,
    log_start_by_age,
    log_start_by_size,
)
from raftlog.partition.output import Completion, DeleteAnswer
from raftlog.partition.producing.expiry import SilenceWatch
from raftlog.partition.producing.producers import ProducerTable
from raftlog.partition.waiters import Then
from raftlog.raft.node import RaftNode
from raftlog.records.control import Marker, write_log_start, write_marker
from raftlog.storage.partition_log import PartitionLog
from raftlog.storage.segments.segment import Segment

_NO_DIGEST: Final = b""
_SOON_NS: Final = millis(1_000)
"""The time after which retention looks again when it waits for a job to read a timestamp."""


class _Delete(NamedTuple):
    """A DeleteRecords that waits until the log-start marker at `raft_index` is committed.

    The marker is for its own offset or for a higher one.
    """

    raft_index: RaftIndex
    deadline: Instant
    then: Then


@final
class LeaderDuties:
    """The duties of one replica while it leads.

    * `check_at`: when `tick` looks at retention and markers next.
    * `_markers`: the raft indexes of proposed log starts that may not be committed yet. The last
      one is the marker of the highest, `_proposed_start`. A DeleteRecords for a lower offset waits
      for that marker too.
    """

    __slots__ = (
        "_clocks",
        "_deletes",
        "_feed",
        "_log",
        "_mark",
        "_markers",
        "_node",
        "_producers",
        "_proposed_start",
        "_silence",
        "_unknown",
        "check_at",
        "completed",
        "config",
    )

    def __init__(
        self,
        *,
        node: RaftNode,
        log: PartitionLog,
        producers: ProducerTable,
        feed: MachineFeed | None,
        mark: HighWatermark,
        clocks: PeerClocks,
        config: PartitionConfig,
        completed: list[Completion],
    ) -> None:
        self._node = node
        self._log = log
        self._producers = producers
        self._feed = feed
        self._mark = mark
        self._clocks = clocks
        self._deletes: list[_Delete] = []
        self._markers: deque[RaftIndex] = deque()
        self._proposed_start = Offset(0)
        self._silence = SilenceWatch()
        self.config = config
        self.completed = completed
        self.check_at = NEVER
        self._unknown: AgeAsk | None = None

    @property
    def waiting(self) -> int:
        """DeleteRecords requests that will be answered later."""
        return len(self._deletes)

    @property
    def deadline(self) -> Instant:
        """When `tick` must be called at the latest."""
        if not self._deletes:
            return self.check_at
        return min(self.check_at, *(delete.deadline for delete in self._deletes))

    def arm(self, now: Instant) -> None:
        """Something was committed while this replica leads: look after it in a while."""
        if len(self._producers):
            expiration_ms = self.config.producer_expiration_ms
            self._silence.look(now, self._producers.clock_ms, expiration_ms)
        may_delete = self.config.deletes and self._holds_records
        compares = self._feed is not None and self._feed.comparison_due
        if self.check_at == NEVER and (may_delete or compares or len(self._producers)):
            self.check_at = Instant(now + self.config.retention_check_ns)

    def tick(self, now: Instant, wall_ms: WallMillis) -> None:
        """Answer the deletes whose deadline has passed; enforce retention and write a marker when
        they are due."""
        expired = [delete for delete in self._deletes if delete.deadline <= now]
        if expired:
            self._deletes = [delete for delete in self._deletes if delete.deadline > now]
            self._answer(expired, DeleteAnswer(ErrorCode.REQUEST_TIMED_OUT))
        if now >= self.check_at:
            self.check_at = NEVER
            if self._node.ready:
                self._enforce_retention(now, wall_ms)
                self._write_marker(now, wall_ms)
            if self.config.retention_ms != UNLIMITED and self._holds_records:
                # Records age without a commit. So the next look must not wait for one.
                next_at = Instant(now + self.config.retention_check_ns)
                self.check_at = min(self.check_at, next_at)

    def delete_records(
        self, offset: int, deadline: Instant, then: Then, now: Instant, wall_ms: WallMillis
    ) -> DeleteAnswer | None:
        """Move the log start to `offset`: an answer now, or None and `then(DeleteAnswer)` later.

        The caller has checked that this replica is ready.
        """
        wanted = log_start_asked(offset, self._log.log_start, self._mark.published)
        if isinstance(wanted, ErrorCode):
            return DeleteAnswer(wanted)
        if wanted is None:
            return DeleteAnswer(ErrorCode.NONE, self._log.log_start)
        if max(len(self._deletes), len(self._markers)) >= DELETES_PENDING_MAX:
            probe("too-many-deletes-wait")
            return DeleteAnswer(ErrorCode.REQUEST_TIMED_OUT)
        if wanted > self._proposed_start or not self._markers:
            self._propose_log_start(wanted, now, wall_ms)
        self._deletes.append(_Delete(self._markers[-1], deadline, then))
        return None

    def committed(self, commit: RaftIndex) -> None:
        """Answer the deletes whose marker is committed."""
        while self._markers and self._markers[0] <= commit:
            self._markers.popleft()
        if self._deletes:
            done = [delete for delete in self._deletes if delete.raft_index <= commit]
            self._deletes = [delete for delete in self._deletes if delete.raft_index > commit]
            self._answer(done, DeleteAnswer(ErrorCode.NONE, self._log.log_start))

    def fail(self, error: ErrorCode) -> None:
        """Answer all deletes with `error` and forget the rest: this replica leads no more."""
        deletes, self._deletes = self._deletes, []
        self._answer(deletes, DeleteAnswer(error))
        self.check_at = NEVER
        self._unknown = None
        self._markers.clear()
        self._proposed_start = Offset(0)
        self._silence.reset()

    def _answer(self, deletes: list[_Delete], answer: DeleteAnswer) -> None:
        self.completed.extend(Completion(delete.then, answer) for delete in deletes)

    def _enforce_retention(self, now: Instant, wall_ms: WallMillis) -> None:
        if not self.config.deletes or self._log.gaps:
            # A damaged segment stays until a replica repairs it or an operator gives it up.
            return
        segments = [_span_of(segment) for segment in self._log.segments]
        begun = max(self._log.log_start, self._proposed_start)
        by_size = self._start_by_size(segments)
        if by_size is not None and by_size > begun:
            probe("retention-by-size")
            self._propose_log_start(by_size, now, wall_ms)
            begun = by_size
        by_age = self._start_by_age(segments, now, wall_ms)
        if by_age is None or by_age <= begun:
            return
        if most_share(self._clocks, self._node.membership, self._node.me, now, wall_ms):
            probe("retention-by-age")
            self._propose_log_start(by_age, now, wall_ms)
        else:
            probe("retention-waits-for-clocks")

    def _start_by_size(self, segments: Sequence[SegmentSpan]) -> Offset | None:
        bytes_max = self.config.retention_bytes
        if bytes_max == UNLIMITED:
            return None
        return log_start_by_size(segments, bytes_max, self._mark.published)

    def _start_by_age(
        self, segments: Sequence[SegmentSpan], now: Instant, wall_ms: WallMillis
    ) -> Offset | None:
        kept_ms = self.config.retention_ms
        if kept_ms == UNLIMITED:
            return None
        kept_from_ms = wall_ms - kept_ms
        aged = log_start_by_age(segments, kept_from_ms, self._mark.published)
        if aged.unknown is not None:
            segment = self._log.segments[aged.unknown]
            grows = segment is self._log.segments[-1]
            if not grows or self._log.written_index == self._log.last_index:
                # A job reads the records of that segment first, from its file.
                self._unknown = AgeAsk(segment, segment.end.next_offset, kept_from_ms)
            self.check_at = Instant(now + min(self.config.retention_check_ns, _SOON_NS))
        return aged.log_start

    def take_unknown(self) -> AgeAsk | None:
        """The segment whose unknown largest timestamp retention by age needs next, if any; once."""
        unknown, self._unknown = self._unknown, None
        return unknown

    @property
    def _holds_records(self) -> bool:
        return self._log.log_start < self._log.next_offset

    def _propose_log_start(self, log_start: Offset, now: Instant, wall_ms: WallMillis) -> None:
        assert log_start <= self._mark.published, (log_start, self._mark.published)
        self._proposed_start = max(self._proposed_start, log_start)
        body = write_log_start(log_start)
        self._markers.append(self._node.propose_control(EntryKind.LOG_START, body, now, wall_ms))

    def trim(self, covered: Offset, now: Instant, wall_ms: WallMillis) -> None:
        """Propose a log start at `covered`, the offset that a durable machine snapshot reaches.

        That snapshot is this leader's. Followers write their own, and each removes only what its
        own snapshot covers.
        """
        if max(self._log.log_start, self._proposed_start) < covered <= self._mark.published:
            probe("log-start-behind-a-machine-snapshot")
            self._propose_log_start(covered, now, wall_ms)

    def _write_marker(self, now: Instant, wall_ms: WallMillis) -> None:
        """Propose a marker if producers expire or replicas have a machine to compare."""
        expiration_ms = self.config.producer_expiration_ms
        self._silence.look(now, self._producers.clock_ms, expiration_ms)
        cut_off_ms = self._silence.cut_off(now, expiration_ms)
        expires = self._producers.marker_due(wall_ms, cut_off_ms, expiration_ms)
        if expires:
            probe("producer-marker")
        feed = self._feed
        if not expires and not (feed is not None and feed.comparison_due):
            return
        digest = _NO_DIGEST if feed is None else feed.comparison()
        body = write_marker(Marker(WallMillis(cut_off_ms), digest))
        self._node.propose_control(EntryKind.MARKER, body, now, wall_ms)


def _span_of(segment: Segment) -> SegmentSpan:
    byte_count = max(0, segment.size_hint - SEGMENT_HEADER_BYTES)
    return SegmentSpan(
        segment.base_offset,
        segment.end.next_offset,
        byte_count,
        segment.largest_now,
        segment.seen.largest,
    )
