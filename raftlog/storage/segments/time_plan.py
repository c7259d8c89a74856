"""Plans how a question about timestamps is answered: what to compute first, then what to walk.

Every question has a lower and an upper limit: the log start and, usually, the high watermark. A
record outside of them neither answers nor counts.

The answer lies in the first stretch (see `sparse_index`) whose largest timestamp is late enough. A
stretch that was not computed may match, so a job computes it, and the question is planned again.
Each such job takes a bounded piece of the log. Its results are kept in memory and, once the segment
is whole, in its index file. So the first question about an old part of the log reads that part
once, in many short jobs; later questions read next to nothing. Produce requests pay nothing.
"""

from collections.abc import Iterator, Sequence
from typing import final

import attrs

from raftlog.base.binary import Buffer
from raftlog.base.ids import DirectoryId, Offset, RaftIndex
from raftlog.base.limits import TIMES_SCAN_BYTES
from raftlog.records.timestamps import NO_TIMESTAMP
from raftlog.storage.segments.cold import ColdRead, TimesScanned
from raftlog.storage.segments.jobs import verify_segment
from raftlog.storage.segments.segment import Segment, SegmentRef, TimesSeen
from raftlog.storage.segments.sparse_index import NOT_KNOWN, SegmentIndex
from raftlog.storage.segments.term_table import TermTable
from raftlog.storage.segments.time_jobs import (
    ScanTimesOrder,
    TimeOrder,
    TimeRange,
    find_time,
    largest_in,
    scan_times,
)
from raftlog.storage.segments.walk import WalkPlace


@final
@attrs.define(eq=False)
class TimePlanner:
    """Plans one question, on the log as it is now, whose records begin at the offset `start`.

    Entries up to `written` can be read from files; `unwritten` are the batches behind it. The last
    of the segments may grow, so its last stretch is walked each time.
    """

    segments: Sequence[Segment]
    terms: TermTable
    directory: DirectoryId
    interval_bytes: int
    start: Offset
    written: RaftIndex
    unwritten: Sequence[Buffer]

    def first_at(self, timestamp_ms: int, limit: Offset) -> ColdRead:
        """A job toward the first record below `limit` at or after a timestamp.

        It ends in `TimeFound`, or computes the stretches that must be known first.
        """
        start, ranges = self.start, list[TimeRange]()
        for segment in self._between(limit):
            largest = segment.largest_timestamp
            if largest is not None and largest < timestamp_ms:
                continue
            index = segment.index
            if index is None or not segment.verified:
                return self._verify(segment)
            number, last = index.stretch_of(start), index.stretch_of(Offset(limit - 1))
            closed = self._closed(segment, index)
            stop = min(last + 1, closed)
            while (number := index.next_candidate(number, stop, timestamp_ms)) < stop:
                if index.largest_of(number) == NOT_KNOWN:
                    return self._scan(segment, index, number, stop)
                ranges.append(self._range(segment, index, number))
                if _is_whole(segment, index, number, start, limit):
                    # A record of this stretch is late enough, so later ones are not looked at.
                    order = TimeOrder(tuple(ranges), (), timestamp_ms, start, limit)
                    return ColdRead(find_time, (order,))
                number += 1
            if closed <= last:
                ranges.append(self._range(segment, index, closed))
        unwritten = tuple(self.unwritten)
        order = TimeOrder(tuple(ranges), unwritten, timestamp_ms, start, limit)
        return ColdRead(find_time, (order,))

    def largest(self, limit: Offset) -> ColdRead:
        """A job toward the largest timestamp of the records below `limit`.

        It ends in `LargestFound`, or computes the stretches that must be known first.
        """
        start, known, ranges = self.start, NO_TIMESTAMP, list[TimeRange]()
        for segment in self._between(limit):
            inside = segment.base_offset >= start and segment.end.next_offset <= limit
            if inside and segment.largest_timestamp is not None:
                known = max(known, segment.largest_timestamp)
                continue
            index = segment.index
            if index is None or not segment.verified:
                return self._verify(segment)
            first, last = index.stretch_of(start), index.stretch_of(Offset(limit - 1))
            closed = self._closed(segment, index)
            stop = min(last + 1, closed)
            unknown = index.next_unknown(first, stop)
            if unknown < stop:
                return self._scan(segment, index, unknown, stop)
            # Only the first and the last stretch may reach beyond the limits.
            known = max(known, index.largest_between(first + 1, stop - 1))
            for number in sorted({first, stop - 1}) if first < stop else ():
                if _is_whole(segment, index, number, start, limit):
                    known = max(known, index.largest_of(number))
                else:
                    ranges.append(self._range(segment, index, number))
            if closed <= last:
                ranges.append(self._range(segment, index, closed))
        order = TimeOrder(tuple(ranges), tuple(self.unwritten), known, start, limit)
        return ColdRead(largest_in, (order,))

    def largest_of(self, segment: Segment, until: Offset) -> ColdRead | None:
        """A job toward `segment.largest_timestamp`.

        While the segment grows, the job is toward the largest timestamp of its records below
        `until`, which can be read from files. None when that is known, or the segment is no longer
        the log's.
        """
        if segment.largest_timestamp is not None or not self._holds(segment):
            return None
        index = segment.index
        if index is None or not segment.verified:
            return self._verify(segment)
        closed = self._closed(segment, index)
        grows = segment is self.segments[-1]
        if grows and segment.seen.until >= until:
            return None
        unknown = index.next_unknown(segment.seen.stretches, closed)
        if unknown < closed or grows:
            # The last stretch of a segment that grows is read as far as it is written.
            return self._scan(segment, index, unknown, closed + 1 if grows else closed)
        return None

    def _holds(self, segment: Segment) -> bool:
        return any(segment is other for other in self.segments)

    def _between(self, limit: Offset) -> Iterator[Segment]:
        """The segments with records within the limits that are at least partly in files."""
        for segment in self.segments:
            if segment.base_offset >= limit or segment.first_index > self.written:
                return
            if segment.end.next_offset > self.start:
                yield segment

    def _closed(self, segment: Segment, index: SegmentIndex) -> int:
        """The number of the segment's stretches that are in the file and grow no more."""
        written = RaftIndex(self.written + 1)
        count = index.stretches_before(written)
        sealed = segment is not self.segments[-1] and segment.end_index <= written
        return count + 1 if sealed and count == len(index) else count

    def _range(self, segment: Segment, index: SegmentIndex, number: int) -> TimeRange:
        """A stretch to walk, as far as it is in the file."""
        end = index.end_of(number, segment.end_index)
        stop = min(end, RaftIndex(self.written + 1))
        return TimeRange(self._reference(segment), self._start(segment, index, number), stop)

    def _start(self, segment: Segment, index: SegmentIndex, number: int) -> WalkPlace:
        """The place where a stretch begins."""
        if number == 0:
            return segment.start()
        point = index.point(number - 1)
        term = self.terms.at(RaftIndex(point.raft_index - 1))
        return WalkPlace(point.raft_index, point.offset, point.position, point.chain, term)

    def _verify(self, segment: Segment) -> ColdRead:
        return ColdRead(verify_segment, (self._reference(segment),))

    def _scan(self, segment: Segment, index: SegmentIndex, first: int, stop: int) -> ColdRead:
        """A job that computes unknown stretches: at least one, then about TIMES_SCAN_BYTES."""
        start = self._start(segment, index, first)
        ends: list[RaftIndex] = []
        for number in range(first, stop):
            if ends and index.largest_of(number) != NOT_KNOWN:
                break
            end = index.end_of(number, segment.end_index)
            ends.append(min(end, RaftIndex(self.written + 1)))
            if number < len(index) and (
                index.point(number).position - start.position >= TIMES_SCAN_BYTES
            ):
                break
        order = ScanTimesOrder(self._reference(segment), first, start, tuple(ends))
        return ColdRead(scan_times, (order,))

    def _reference(self, segment: Segment) -> SegmentRef:
        return segment.reference(self.directory, self.interval_bytes)


def _is_whole(
    segment: Segment, index: SegmentIndex, number: int, start: Offset, limit: Offset
) -> bool:
    """Whether all records of a stretch lie within the limits."""
    begin = index.point(number - 1).offset if number else segment.base_offset
    end = index.point(number).offset if number < len(index) else segment.end.next_offset
    return begin >= start and end <= limit


def learn_times(segments: Sequence[Segment], result: TimesScanned) -> Segment | None:
    """Keep the computed timestamps, where the segment is still as it was.

    Returns the segment when this makes it wholly known: its index file should say so.
    """
    for segment in segments:
        if segment.header.file_sequence == result.file_sequence:
            return _learn(segment, result, may_grow=segment is segments[-1])
    return None


def _learn(segment: Segment, result: TimesScanned, *, may_grow: bool) -> Segment | None:
    index = segment.index
    if index is None:
        return None
    for number, end, timestamp_ms in result.stretches:
        if number < len(index):
            index.learn_largest(number, end, timestamp_ms)
        elif number == len(index) and end == segment.end_index and not may_grow:
            index.tail = timestamp_ms
    _note_seen(segment, index, result)
    return segment if note_largest(segment, may_grow=may_grow) else None


def _note_seen(segment: Segment, index: SegmentIndex, result: TimesScanned) -> None:
    """Keep how far the segment's beginning is known.

    The last stretch may have been read in part, so it does not count as a whole one.
    """
    seen, last = segment.seen, result.stretches[-1]
    if last.number < seen.stretches or last.end > segment.end_index:
        return  # known already, or a truncation cut off the part that was read
    if index.next_unknown(seen.stretches, last.number) < last.number:
        return  # a look-up read a part in the middle
    known = index.largest_between(seen.stretches, last.number)
    largest = max(seen.largest, known, last.timestamp_ms)
    segment.seen = TimesSeen(last.number, max(seen.until, result.until), largest)


def note_largest(segment: Segment, *, may_grow: bool) -> bool:
    """Take a segment's largest timestamp from its index; returns whether it became known now."""
    if may_grow or segment.largest_timestamp is not None or segment.index is None:
        return False
    segment.largest_timestamp = segment.index.largest()
    return segment.largest_timestamp is not None
