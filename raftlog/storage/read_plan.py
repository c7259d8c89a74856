"""Plans how a range of the log is read: from memory, as slices of files, or by a job first.

For a client's fetch the planner prefers, in this order:

1. a file slice, when the range is written and large: the kernel sends it without a copy;
2. memory;
3. a job, which walks what this boot has not verified, or finds the exact place inside a stretch
   between two points of the sparse index.

Jobs return places, never bytes. The bytes always leave as slices, ending where the next sequential
fetch will begin.
"""

from bisect import bisect_left, bisect_right
from itertools import pairwise
from typing import final

from raftlog.base.binary import Buffer
from raftlog.base.ids import Offset, RaftIndex
from raftlog.base.limits import SCANNED_RANGES_MAX, SEGMENT_HEADER_BYTES, SLICE_BYTES_MIN
from raftlog.base.probes import probe
from raftlog.records.slices import FileSlice
from raftlog.storage.recent_window import RecentWindow
from raftlog.storage.replica import LogOptions, ReplicaSpec
from raftlog.storage.segments.cold import (
    ColdRead,
    Learned,
    RangeScanned,
    SegmentDamaged,
    SegmentWalked,
    TimesScanned,
)
from raftlog.storage.segments.jobs import (
    EntriesOrder,
    IndexOrder,
    NewHead,
    RemovalOrder,
    ReplayOrder,
    ScanOrder,
    read_entries,
    remove_segments,
    replay_producers,
    scan_range,
    verify_segment,
    verify_segments,
    write_index,
)
from raftlog.storage.segments.segment import Damage, Segment, SegmentRef, gaps_in, position_before
from raftlog.storage.segments.sparse_index import NOT_KNOWN, Point, SegmentIndex
from raftlog.storage.segments.term_table import TermTable
from raftlog.storage.segments.time_plan import TimePlanner, learn_times, note_largest
from raftlog.storage.segments.walk import WalkPlace

Parts = list[Buffer | FileSlice]


@final
class ReadPlanner:
    """Plans reads from the log's own segments, window and terms; remembers what scans found."""

    __slots__ = ("_options", "_scanned", "_segments", "_spec", "_terms", "_window", "gaps")

    def __init__(
        self,
        spec: ReplicaSpec,
        options: LogOptions,
        segments: list[Segment],
        window: RecentWindow,
        terms: TermTable,
    ) -> None:
        self._spec = spec
        self._options = options
        self._segments = segments
        self._window = window
        self._terms = terms
        self._scanned: dict[tuple[int, int], RangeScanned] = {}
        self.gaps = gaps_in(segments)

    def look_for_gaps(self) -> None:
        """Look for gaps again: a segment was found damaged, or was removed."""
        self.gaps = gaps_in(self._segments)

    def replace(self, window: RecentWindow, terms: TermTable) -> None:
        """Begin with a new window and new terms, since the log begins again after an install."""
        self._window = window
        self._terms = terms
        self._scanned.clear()
        self.look_for_gaps()

    def forget(self) -> None:
        """Forget the exact places that scans found: a truncation makes them doubtful."""
        self._scanned.clear()
        self.look_for_gaps()

    def plan(
        self, offset: Offset, bytes_max: int, limit: Offset, written: RaftIndex
    ) -> Parts | ColdRead:
        """See `PartitionLog.plan_read`."""
        for gap in self.gaps:
            if offset < gap.until:
                limit = min(limit, gap.first)
                break
        if offset >= limit:
            return []
        window = self._window
        if offset >= window.base_offset:
            index = window.index_of_offset(offset)
            held = index >= window.entries_first
            if index <= written:
                parts = self._window_slices(index, bytes_max, limit, written, keep_small=held)
                if parts:
                    return parts
            if held:
                return self._from_memory(index, bytes_max, limit)
        return self._plan_cold(offset, bytes_max, limit, written)

    # --- near the end of the log ------------------------------------------------------------------

    def _from_memory(self, index: RaftIndex, bytes_max: int, limit: Offset) -> Parts:
        """A few batches from memory, joined when they are many and small."""
        entries = self._window.entries(index, min(bytes_max, SLICE_BYTES_MIN)) or []
        batches = [
            entry.batch for entry in entries if not entry.kind and entry.next_offset <= limit
        ]
        return [b"".join(batches)] if len(batches) > 1 else list(batches)

    def _window_slices(
        self, index: RaftIndex, bytes_max: int, limit: Offset, written: RaftIndex, keep_small: bool
    ) -> Parts:
        """Slices of the one file that holds `index`; [] when memory should answer instead."""
        window = self._window
        segment = self._segments[self._ordinal_of_index(index)]
        high = min(window.index_of_offset(limit), segment.end_index, RaftIndex(written + 1))
        start = window.position_of(index)
        if start is None or high <= index:
            return []
        beyond = window.index_beyond(start + bytes_max, index, high)
        stop = high
        end = self._end_position(segment, high)
        if end - start > bytes_max:
            stop = RaftIndex(max(beyond - 1, index + 1))
            end = self._end_position(segment, stop)
        if end - start < SLICE_BYTES_MIN and keep_small:
            return []
        return self._slices(segment, start, end)

    def _end_position(self, segment: Segment, stop: RaftIndex) -> int:
        """Where the entry before `stop` ends in its segment."""
        if stop < segment.end_index:
            position = self._window.position_of(stop)
        else:
            position = segment.end_position
        assert position is not None, (stop, segment.path)
        return position

    def _slices(self, segment: Segment, start: int, end: int) -> Parts:
        """The bytes from `start` to `end` without Raft's own entries."""
        parts: Parts = []
        index = segment.index
        assert index is not None, segment.path
        controls = index.controls
        row = bisect_right(controls, start, key=lambda control: control.position + control.size - 1)
        while row < len(controls) and controls[row].position < end:
            control = controls[row]
            if control.position > start:
                parts.append(self._slice(segment, start, control.position))
            start = control.position + control.size
            row += 1
        if start < end:
            parts.append(self._slice(segment, start, end))
        return parts

    def _slice(self, segment: Segment, start: int, end: int) -> FileSlice:
        return FileSlice(self._spec.replica.directory, segment.path, start, end - start)

    # --- further back -----------------------------------------------------------------------------

    def _plan_cold(
        self, offset: Offset, bytes_max: int, limit: Offset, written: RaftIndex
    ) -> Parts | ColdRead:
        segment = self._segments[self._ordinal_of_offset(offset)]
        index = segment.index
        if index is None or not segment.verified:
            return ColdRead(verify_segment, (self._reference(segment),))
        start = self._exact_start(segment, index, offset, written)
        if isinstance(start, ColdRead):
            return start
        start = _after_controls(index, start)
        end = self._exact_end(segment, index, start, start + bytes_max, limit, written)
        if isinstance(end, ColdRead):
            return end
        return self._slices(segment, start, end)

    def _exact_start(
        self, segment: Segment, index: SegmentIndex, offset: Offset, written: RaftIndex
    ) -> int | ColdRead:
        """The position of the batch that holds `offset`, or the job that finds it."""
        point = index.at_or_below_offset(offset) or self._first_point(segment)
        if point.offset == offset:
            return point.position
        scanned = self._scanned.get((segment.header.file_sequence, point.position))
        if scanned is None or offset >= scanned.end_offset:
            return self._scan(segment, index, point, written)
        return scanned.positions[bisect_right(scanned.offsets, offset) - 1]

    def _exact_end(
        self,
        segment: Segment,
        index: SegmentIndex,
        start: int,
        target: int,
        limit: Offset,
        written: RaftIndex,
    ) -> int | ColdRead:
        """The position beyond `start` where a batch ends at or before `target` and `limit`."""
        whole = segment.end_position
        whole_fits = segment.end.next_offset <= limit and segment.end.raft_index <= written
        if whole is not None and whole_fits and start < whole <= target:
            return whole
        by_position = index.at_or_below_position(target)
        by_offset = index.at_or_below_offset(limit)
        by_written = index.at_or_below_index(RaftIndex(written + 1))
        if by_position and by_offset and by_written:
            end = min(by_position.position, by_offset.position, by_written.position)
            if end > start:
                return end
        point = index.at_or_below_position(start) or self._first_point(segment)
        scanned = self._scanned.get((segment.header.file_sequence, point.position))
        if scanned is None or start >= scanned.end_position:
            return self._scan(segment, index, point, written)
        return _end_within(scanned, start, target, limit)

    def _scan(
        self, segment: Segment, index: SegmentIndex, point: Point, written: RaftIndex
    ) -> ColdRead:
        """A job that finds the exact places from `point` to the next one."""
        after = index.after(point.position)
        place = WalkPlace(
            point.raft_index,
            point.offset,
            point.position,
            point.chain,
            self._terms.at(RaftIndex(point.raft_index - 1)),
        )
        reference = self._reference(segment)
        stop = min(reference.end_index, RaftIndex(written + 1))
        order = ScanOrder(reference, place, after, stop)
        return ColdRead(scan_range, (order,))

    def _first_point(self, segment: Segment) -> Point:
        start = segment.start()
        return Point(start.raft_index, start.offset, start.position, start.chain, NOT_KNOWN)

    def _reference(self, segment: Segment) -> SegmentRef:
        return segment.reference(self._spec.replica.directory, self._options.interval_bytes)

    def _ordinal_of_index(self, index: RaftIndex) -> int:
        return max(0, bisect_right(self._segments, index, key=_first_index) - 1)

    def _ordinal_of_offset(self, offset: Offset) -> int:
        return max(0, bisect_right(self._segments, offset, key=_base_offset) - 1)

    # --- other questions --------------------------------------------------------------------------

    def bytes_between(self, offset: Offset, limit: Offset) -> int:
        """About how many log bytes lie from `offset` to `limit`."""
        low, high = self._ordinal_of_offset(offset), self._ordinal_of_offset(limit)
        start, stop = self._near(low, offset), self._near(high, limit)
        if low == high:
            return max(1, stop - start)
        between = sum(
            max(0, segment.size_hint - SEGMENT_HEADER_BYTES) for segment in self._segments[low:high]
        )
        return max(1, between - (start - SEGMENT_HEADER_BYTES) + (stop - SEGMENT_HEADER_BYTES))

    def _near(self, ordinal: int, offset: Offset) -> int:
        """The position of `offset` in a segment: exact in the window, else the point below."""
        segment = self._segments[ordinal]
        window = self._window
        if offset >= segment.end.next_offset:
            return max(segment.size_hint, SEGMENT_HEADER_BYTES)
        if offset >= window.base_offset:
            index = window.index_of_offset(offset)
            if segment.first_index <= index:
                position = window.position_of(index)
                return SEGMENT_HEADER_BYTES if position is None else position
        point = segment.index.at_or_below_offset(offset) if segment.index is not None else None
        return point.position if point else SEGMENT_HEADER_BYTES

    def plan_entries(self, first: RaftIndex, bytes_max: int, written: RaftIndex) -> ColdRead:
        """A job that reads entries of one segment from `first`, verified from the point below."""
        segment = self._segments[self._ordinal_of_index(first)]
        point = segment.index.at_or_below_index(first) if segment.index is not None else None
        start = segment.start() if point is None else self._place_of(point)
        stop = min(segment.end_index, RaftIndex(written + 1))
        reach = start.position + bytes_max + 2 * self._options.interval_bytes
        checks = segment.index.between(start.position, reach) if segment.index is not None else ()
        order = EntriesOrder(self._reference(segment), start, first, bytes_max, stop, checks)
        return ColdRead(read_entries, (order,))

    def plan_verify(self, first: RaftIndex, last: RaftIndex, written: RaftIndex) -> ColdRead:
        """A job that walks every segment with entries of the range to its end, where the chain
        is known."""
        low = self._ordinal_of_index(first)
        high = self._ordinal_of_index(RaftIndex(min(last, written)))
        walks = tuple(
            (self._reference(segment), RaftIndex(min(segment.end_index, written + 1)))
            for segment in self._segments[low : high + 1]
        )
        return ColdRead(verify_segments, (walks,))

    def times(self, start: Offset, written: RaftIndex) -> TimePlanner:
        """The planner of questions about timestamps, from the offset `start` on."""
        return TimePlanner(
            self._segments,
            self._terms,
            self._spec.replica.directory,
            self._options.interval_bytes,
            start,
            written,
            self._unwritten(written),
        )

    def _place_of(self, point: Point) -> WalkPlace:
        term = self._terms.at(RaftIndex(point.raft_index - 1))
        return WalkPlace(point.raft_index, point.offset, point.position, point.chain, term)

    def plan_replay(self, written: RaftIndex, last: RaftIndex) -> ColdRead:
        """A job that gives the producer state up to the last entry, written or not."""
        references = tuple(self._reference(segment) for segment in self._segments)
        unwritten = tuple(self._unwritten(written))
        order = ReplayOrder(
            self._spec, references, RaftIndex(written + 1), unwritten, self._terms.copy()
        )
        assert last + 1 == RaftIndex(written + 1 + len(unwritten)), (last, written)
        return ColdRead(replay_producers, (order,))

    def _unwritten(self, written: RaftIndex) -> list[Buffer]:
        window = self._window
        return [
            window.entry(RaftIndex(index)).batch
            for index in range(max(written + 1, window.entries_first), window.end)
        ]

    def plan_removal(
        self, log_start: Offset, marker: RaftIndex, committed: RaftIndex, durable: RaftIndex
    ) -> ColdRead | None:
        """A job that removes whole segments below the log start; never the last one.

        They are durable and committed. The rest must be a log after a power failure, so the next
        segment's first entry, and with it the file, must be durable. The rest must also tell the
        log start at the next boot: the marker lies there, or the first header was written later.
        """
        count = 0
        for segment, following in pairwise(self._segments):
            if segment.end.next_offset > log_start or segment.end.raft_index > committed:
                break
            if following.first_index > durable:
                probe("removal-waits-for-the-next-segment")
                break
            count += 1
        heads = tuple(
            NewHead(position_before(self._segments[going].header), going)
            for going in range(count, 0, -1)
            if self._tells(going, log_start, marker)
        )
        if not heads:
            return None
        paths = tuple(segment.path for segment in self._segments[: heads[0].segments])
        return ColdRead(remove_segments, (RemovalOrder(self._spec, paths, heads),))

    def _tells(self, count: int, log_start: Offset, marker: RaftIndex) -> bool:
        """Whether a log that begins with that segment still tells the log start."""
        first = self._segments[count]
        return first.first_index <= marker or first.header.log_start >= log_start

    def learn(self, result: Learned) -> list[ColdRead]:
        """Keep what a job found, if its segment is still as it was.

        Returns background jobs that keep it on disk as well.
        """
        if isinstance(result, RangeScanned):
            key = (result.file_sequence, result.from_position)
            self._scanned.pop(key, None)
            self._scanned[key] = result
            while len(self._scanned) > SCANNED_RANGES_MAX:
                del self._scanned[next(iter(self._scanned))]
            return []
        if isinstance(result, TimesScanned):
            complete = learn_times(self._segments, result)
            return [] if complete is None else [self.index_job(complete)]
        for segment in self._segments:
            if segment.header.file_sequence == result.file_sequence:
                if isinstance(result, SegmentDamaged):
                    _take_damage(segment, result)
                    self.forget()
                    break
                _take_walk(segment, result)
                note_largest(segment, may_grow=segment is self._segments[-1])
        return []

    def index_job(self, segment: Segment) -> ColdRead:
        """A job that writes the index file of a segment that takes no more entries."""
        sparse, end_position = segment.index, segment.end_position
        assert sparse is not None, segment.path
        assert end_position is not None, segment.path
        order = IndexOrder(self._reference(segment), sparse.copy(), end_position)
        return ColdRead(write_index, (order,))


def _after_controls(index: SegmentIndex, start: int) -> int:
    """The first position from `start` on where none of Raft's own entries begins."""
    controls = index.controls
    row = bisect_left(controls, start, key=lambda control: control.position)
    while row < len(controls) and controls[row].position == start:
        start += controls[row].size
        row += 1
    return start


def _take_walk(segment: Segment, result: SegmentWalked) -> None:
    if segment.index is None:
        segment.index = result.sparse
        if segment.end_index < result.end_index:
            segment.index.cut(segment.end_index)
        else:
            segment.end_position = result.end_position
    if result.end_index >= segment.end_index:
        segment.verified = True


def _take_damage(segment: Segment, result: SegmentDamaged) -> None:
    if segment.end_index != result.end_index:
        return  # the segment was cut meanwhile
    segment.index, segment.end_position, segment.verified = result.sparse, None, True
    segment.damage = Damage(result.place, result.why)


def _end_within(scanned: RangeScanned, start: int, target: int, limit: Offset) -> int:
    """The end of the last batch that ends at or before `target` and `limit`.

    It is at least the end of the batch that begins at `start`.
    """
    positions = [*scanned.positions, scanned.end_position]
    offsets = [*scanned.offsets, scanned.end_offset]
    at = bisect_right(positions, start) - 1
    end = at + 1
    while end + 1 < len(positions) and positions[end + 1] <= target and offsets[end + 1] <= limit:
        end += 1
    return positions[end]


def _first_index(segment: Segment) -> RaftIndex:
    return segment.first_index


def _base_offset(segment: Segment) -> Offset:
    return segment.base_offset
