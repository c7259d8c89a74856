"""A replica's background tasks: reads for far-behind followers, snapshots, removal of old files.

Each task is a job on the replica's own directory, and its result comes back by its token. The
replica judges a result again when it arrives, because the log may have moved on meanwhile.
"""

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Final, TypeVar, final

from raftlog.base.entries import InstallPosition
from raftlog.base.errors import CorruptData, DiskError, RaftlogError
from raftlog.base.ids import Chain, RaftIndex, Term
from raftlog.base.limits import (
    LOG_READ_FAILURES_MAX,
    LOG_READ_HANDOVER_MS,
    LOG_READ_PLACES_MAX,
    REMOVAL_PAUSE_MS,
)
from raftlog.base.ports import Tracer
from raftlog.base.probes import probe
from raftlog.base.trace import TraceEvent
from raftlog.base.units import Instant, millis
from raftlog.partition.maintenance.retention import AgeAsk
from raftlog.partition.output import JobCall, ReplicaJob
from raftlog.partition.tracker import Snapshot
from raftlog.raft.node import RaftNode
from raftlog.raft.output import LogRead, Output, SnapshotRead
from raftlog.raft.quorum import majority
from raftlog.records.batch import crc_matches, read_header
from raftlog.storage.partition_log import PartitionLog
from raftlog.storage.segments.cold import ColdRead, EntriesRead, SegmentDamaged, SegmentsRemoved
from raftlog.storage.segments.jobs import remove_files
from raftlog.storage.segments.scrub import measure_damage
from raftlog.storage.segments.segment import Segment, SegmentRef
from raftlog.storage.segments.snapshot import newest_snapshot, write_made_snapshot, write_snapshot
from raftlog.storage.segments.sparse_index import SegmentIndex

_NO_CHAIN: Final = Chain(0)
_ALL_BYTES: Final = 2**62

JobThen = Callable[[object, Instant], None]
PlaceT = TypeVar("PlaceT")


@final
class BackgroundTasks:
    """The background tasks of one replica. `damage` is the first damage for which the replica must
    be recovered; None while there is none."""

    __slots__ = (
        "_asked_in",
        "_client_reads_failed",
        "_hand_over_from",
        "_jobs",
        "_learning",
        "_log",
        "_measuring",
        "_node",
        "_reads_failed",
        "_removal_again_at",
        "_removal_failed",
        "_removal_until",
        "_removing",
        "_snapshots_failed",
        "_token",
        "_tracer",
        "_waiting",
        "_where",
        "damage",
    )

    def __init__(self, log: PartitionLog, node: RaftNode, tracer: Tracer, where: str) -> None:
        self._log = log
        self._node = node
        self._tracer = tracer
        self._where = where
        self._token = 0
        self._waiting: dict[int, JobThen] = {}
        self._reads_failed: dict[RaftIndex, int] = {}
        """First index of a failed read for a follower -> how many reads failed there in a row."""
        self._client_reads_failed: dict[Hashable, int] = {}
        """Place of a failed read for a client -> how many reads failed there in a row."""
        self._hand_over_from = Instant(0)
        """When this replica may hand over next. It may be the only one that can win an election."""
        self._asked_in: Term | None = None
        """The last term in which it asked a voter to lead, because it has a gap."""
        self._snapshots_failed = (RaftIndex(0), 0)
        """The snapshot's raft index whose state cannot be read for followers, and how many reads of
        it failed."""
        self._learning = False
        self._measuring: Segment | None = None
        self._removing = False
        self._removal_until: RaftIndex | None = log.last_index
        self._removal_failed: tuple[object, ...] | None = None
        self._removal_again_at = Instant(0)
        self._jobs: list[ReplicaJob] = []
        self.damage: RaftlogError | None = None

    def done(self, token: int, value: object, now: Instant) -> None:
        """Hand the result of a job to its task: the value that it returned, or the exception that
        it raised. An exception that is no RaftlogError is raised again."""
        then = self._waiting.pop(token)
        if isinstance(value, RaftlogError):
            self._tracer.emit(TraceEvent("errand-failed", self._where, (("why", str(value)),)))
        elif isinstance(value, BaseException):
            raise value
        then(value, now)

    def found_damage(self, error: CorruptData, now: Instant) -> None:
        """Act on stored bytes that are not what was written.

        Recovery gives up the entries behind the damage, and a leader may be the last replica to
        have them. So the broker recovers a leader only while a majority of the voters is sound
        without it. Else the leader goes on with the whole part, hands over as soon as another
        replica can lead (`hand_over_gap`), and does not serve the damaged part.
        """
        probe("damage-found-by-a-read")
        if self.damage is not None:
            return
        segment = self._closed_segment(error.on)
        if segment is None or self._may_give_up():
            self.damage = error
            self._node.step_down(now, f"damage: {error}")
        elif segment.damage is None and self._measuring is None:
            probe("damage-kept-by-a-leader")
            self._measuring = segment
            # The error does not say how far the segment is whole: a job walks it once more.
            self.start(measure_damage, (self._reference(segment),), self._measured)

    def _may_give_up(self) -> bool:
        """Whether the group has this replica's entries without it, so that recovery may drop some.

        A follower may always: its leader has them. A sole voter never may. A leader may while
        enough successors hold its log.
        """
        node = self._node
        if node.membership.decides_alone and node.me in node.membership.voters:
            return False
        return not node.leading or node.successors >= majority(len(node.membership.all_voters()))

    def _closed_segment(self, on: str) -> Segment | None:
        """The segment that an error names, if it is closed and its file holds all its entries."""
        path, durable = on.partition(",")[0], self._log.durable_index
        closed = (each for each in self._log.segments[:-1] if each.end.raft_index <= durable)
        return next((each for each in closed if each.path == path), None)

    def _reference(self, segment: Segment) -> SegmentRef:
        log = self._log
        return segment.reference(log.spec.replica.directory, log.options.interval_bytes)

    def _measured(self, value: object, now: Instant) -> None:
        segment, self._measuring = self._measuring, None
        assert segment is not None, "a measure that nobody started"
        if isinstance(value, DiskError):
            # The disk cannot even read the segment for the walk: serve nothing of it.
            start, why = segment.start(), str(value)
            index = SegmentIndex(self._log.options.interval_bytes)
            sequence, end = segment.header.file_sequence, segment.end_index
            value = SegmentDamaged(sequence, end, start, index, why)
        self._log.cold_done(value)
        if segment.damage is not None:
            first, until = segment.damage.place.offset, segment.end.next_offset
            told = (("file", segment.path), ("from", first), ("until", until))
            why = segment.damage.why
            event = TraceEvent("segment-damaged", self._where, (*told, ("why", why)))
            self._tracer.emit(event)

    def hand_over_gap(self, now: Instant) -> None:
        """Hand the leadership over if the log has a gap and another voter can lead now: followers
        and clients need what lies there. That voter may have come back, or caught up, long after
        the damage was found.

        The others may have gaps too, at other places. So a replica that comes to lead with its gap
        leads for a while, and sends what it has. In each term it first asks a voter, and leads on
        until that one leads. It may be unable to bring that voter to its end; then it steps down.
        """
        if not self._log.gaps:
            return
        node = self._node
        if not node.leading:
            self._put_hand_over_off(now)
        elif node.successors and now >= self._hand_over_from:
            self._put_hand_over_off(now)
            if self._asked_in == node.term:
                node.step_down(now, f"damage: {self._log.gaps[0].why}")
            else:
                self._asked_in = node.term
                node.hand_over(now)

    def _put_hand_over_off(self, now: Instant) -> None:
        self._hand_over_from = Instant(now + millis(LOG_READ_HANDOVER_MS))

    def client_read_done(self, what: Hashable, value: object, now: Instant) -> None:
        """Take the result of a read for a client: the value that it returned, or the exception that
        it raised. `what` names the place; equal places are equal values."""
        self.note_damage(value, now)
        if isinstance(value, DiskError):
            self._count_failed_client_read(what, value, now)
        elif not isinstance(value, Exception):
            self._client_reads_failed.pop(what, None)
            self._log.cold_done(value)

    def _count_failed_client_read(self, what: Hashable, error: DiskError, now: Instant) -> None:
        """Count a failed read for a client; step down when reads of one place keep failing."""
        failed = _counted(self._client_reads_failed, what)
        if failed < LOG_READ_FAILURES_MAX or len(self._node.membership.all_voters()) == 1:
            return
        if now >= self._hand_over_from:
            # The disk fails at this place again and again. Another replica may be able to read it,
            # so that one should lead. This is not treated as damage: this replica may be the only
            # one that can lead, and the rest of its log is good. So the hand-over has a pause.
            probe("client-read-failed-handed-over")
            self._put_hand_over_off(now)
            self._client_reads_failed.clear()
            self._node.step_down(now, f"cannot be read again and again: {error}")

    def run(self, drained: Output, unknown: AgeAsk | None, now: Instant) -> None:
        """Start the reads and checks that the node asks for, and the timestamps that retention
        wants (`unknown`)."""
        for log_read in drained.log_reads:
            self.read_log(log_read, now)
        for snapshot_read in drained.snapshot_reads:
            self.read_snapshot(snapshot_read)
        for first, last in drained.verify:
            self.verify(first, last, now)
        if unknown is not None:
            self.learn_largest(unknown)

    def read_log(self, read: LogRead, now: Instant) -> None:
        """Read entries from the files for a follower, because memory no longer holds them."""
        if read.first_index > self._log.written_index or self._in_a_gap(read.first_index):
            self._log_read(read, None, now)
            return
        self.start_cold(
            self._log.plan_entries(read.first_index, read.bytes_max),
            partial(self._log_read, read),
        )

    def _in_a_gap(self, index: RaftIndex) -> bool:
        """Whether the entry lies in the damaged part of a kept segment."""
        # Each read there would fail and be traced. So the follower waits for a leader that has it.
        if not self._log.gaps:
            return False
        return any(
            each.damage is not None and each.damage.place.raft_index <= index < each.end_index
            for each in self._log.segments
        )

    def read_snapshot(self, read: SnapshotRead) -> None:
        """Read the snapshot before the log's first entry, for a follower that is further back."""
        position = self._log.snapshot_position
        self.start(
            newest_snapshot,
            (self._log.spec, position.raft_index),
            partial(self._snapshot_read, read, position.raft_index),
        )

    def verify(self, first: RaftIndex, last: RaftIndex, now: Instant) -> None:
        """Check the range of entries that a follower refused for its content, in memory and on
        disk."""
        held = self._log.entries(first, _ALL_BYTES) if first <= self._log.last_index else None
        for entry in held or ():
            if not crc_matches(entry.batch, read_header(entry.batch)):
                self.found_damage(
                    CorruptData("a batch in memory fails its CRC", on=self._where), now
                )
                return
        if first <= self._log.written_index:
            self.start_cold(self._log.plan_verify(first, last), self._verified)

    def write_producers(self, snapshots: Sequence[Snapshot]) -> None:
        """Write producer snapshots, each beside the segment that begins at its place."""
        for snapshot in snapshots:
            position = self._log.position_before(snapshot.before)
            self.write_snapshot(position, snapshot.body, self._forget)

    def write_snapshot(self, position: InstallPosition, body: bytes, then: JobThen) -> None:
        """Write a snapshot of the partition at the beginning of a segment; `then` hears of it."""
        self.want_removal()
        self.start(write_snapshot, (self._log.spec, position, body), then)

    def write_made_snapshot(
        self, position: InstallPosition, make: Callable[[], bytes], then: JobThen
    ) -> None:
        """Write a snapshot whose bytes take long to make, so that the job makes them."""
        self.want_removal()
        self.start(write_made_snapshot, (self._log.spec, position, make), then)

    def want_removal(self) -> None:
        """Look for removable segments from now on: the log start moved, or a segment was closed.

        The looks end once the log's present last entry is committed and durable here.
        """
        self._removal_until = self._log.last_index

    def remove_segments(self, now: Instant) -> None:
        """Start the removal of segments below the log start, if one may go now.

        The replica calls it whenever more is committed or durable. One removal runs at a time. A
        failed one is tried again when the next segment may go too, and after REMOVAL_PAUSE_MS,
        because an error of a disk may pass.
        """
        if self._removal_until is None or self._removing:
            return
        plan = self._log.plan_removal()
        again = now >= self._removal_again_at
        if plan is not None and (again or plan.args != self._removal_failed):
            self._removing = True
            self.start_cold(plan, partial(self._segments_removed, plan.args))
        elif self._removal_until <= min(self._log.durable_index, self._node.commit):
            self._removal_until = None

    def learn_largest(self, ask: AgeAsk) -> None:
        """Compute the largest timestamp of a segment's records, in short jobs, one segment at a
        time.

        The jobs end early at a record that is young enough to keep the segment. A call while a
        computation runs changes nothing.
        """
        if self._learning or ask.segment.seen.largest >= ask.kept_from_ms:
            return
        step = self._log.times().largest_of(ask.segment, ask.until)
        if step is not None:
            self._learning = True
            self.start_cold(step, partial(self._learned, ask))

    def _learned(self, ask: AgeAsk, value: object, now: Instant) -> None:
        self._learning = False
        self.note_damage(value, now)
        if not isinstance(value, BaseException):
            self._log.cold_done(value)
            self.learn_largest(ask)

    def remove_files(self, paths: Sequence[str]) -> None:
        """Remove the void files that recovery found."""
        if paths:
            self.start(remove_files, (tuple(paths),), self._forget)

    def take_jobs(self) -> list[ReplicaJob]:
        """The jobs to be started now, the log's own background work included."""
        for job in self._log.take_jobs():
            self.start_cold(job, self._forget)
        jobs, self._jobs = self._jobs, []
        return jobs

    def start(self, function: JobCall, args: tuple[object, ...], then: JobThen) -> None:
        """Run a job on the replica's directory; `then` gets its value or exception, and the
        time."""
        self._token += 1
        self._waiting[self._token] = then
        self._jobs.append(ReplicaJob(self._token, function, args))

    def start_cold(self, read: ColdRead, then: JobThen) -> None:
        """Run a read of the log; `then` gets its value or exception, and the time."""
        self.start(read.function, read.args, then)

    def _forget(self, value: object, now: Instant) -> None:
        """Ignore the result of a task: success and failure need nothing more."""

    def _log_read(self, read: LogRead, value: object, now: Instant) -> None:
        self.note_damage(value, now)
        node = self._node
        if isinstance(value, DiskError):
            self._count_failed_read(read.first_index, value, now)
        if not isinstance(value, EntriesRead):
            node.log_read_done(read.token, read.first_index, _NO_CHAIN, None)
            return
        self._reads_failed.pop(read.first_index, None)
        self._log.cold_done(value)
        node.log_read_done(read.token, value.first_index, value.prev_chain, value.entries)

    def _count_failed_read(self, first: RaftIndex, error: DiskError, now: Instant) -> None:
        """Count a failed read for a follower; treat the place as damaged when it keeps failing."""
        if _counted(self._reads_failed, first) >= LOG_READ_FAILURES_MAX:
            # The fault does not pass, so these entries are lost here. A follower that needs them
            # would wait without end, unless another replica leads.
            self.found_damage(CorruptData(f"entry {first} cannot be read: {error}"), now)

    def _snapshot_read(
        self, read: SnapshotRead, asked: RaftIndex, value: object, now: Instant
    ) -> None:
        position = self._log.snapshot_position
        if isinstance(value, tuple) and value[0].raft_index == position.raft_index:
            self._node.snapshot_read_done(read.token, position, value[1])
            return
        probe("snapshot-read-out-of-date")
        self._node.snapshot_read_done(read.token, None, b"")
        if asked == position.raft_index:
            self._count_failed_snapshot(asked, now)

    def _count_failed_snapshot(self, index: RaftIndex, now: Instant) -> None:
        """Count a failed read of the snapshot; step down when it keeps failing."""
        at, failed = self._snapshots_failed
        failed = failed + 1 if at == index else 1
        self._snapshots_failed = (index, failed)
        if failed == LOG_READ_FAILURES_MAX:
            # This leader can install no follower; another replica may be able to. It steps down
            # once for each snapshot: it may be the only one that can lead, and its log is good.
            probe("snapshot-unreadable-handed-over")
            self._node.step_down(now, f"the state before entry {index + 1} cannot be read")

    def _verified(self, value: object, now: Instant) -> None:
        self.note_damage(value, now)
        if not isinstance(value, BaseException):
            probe("refused-range-is-sound")

    def _segments_removed(self, args: tuple[object, ...], value: object, now: Instant) -> None:
        self._removing = False
        if isinstance(value, SegmentsRemoved):
            self._log.cold_done(value)
            self.remove_segments(now)
        else:
            probe("segment-removal-failed")
            self._removal_failed = args
            self._removal_again_at = Instant(now + millis(REMOVAL_PAUSE_MS))

    def note_damage(self, value: object, now: Instant) -> None:
        """Act on the result of a job if it is damage that the job found."""
        if isinstance(value, CorruptData):
            self.found_damage(value, now)


def _counted(failures: dict[PlaceT, int], place: PlaceT) -> int:
    """Count a failure at a place: how many there were in a row, this one included.

    With more than LOG_READ_PLACES_MAX places the oldest is forgotten.
    """
    failures[place] = failed = failures.pop(place, 0) + 1
    if len(failures) > LOG_READ_PLACES_MAX:
        del failures[next(iter(failures))]
    return failed
