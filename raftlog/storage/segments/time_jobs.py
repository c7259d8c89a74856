"""Jobs that read timestamps out of records, run off the loop.

`scan_times` computes the largest timestamp of the stretches of a segment, a bounded piece of the
log at a time; the index keeps them. `find_time` and `largest_in` then walk the few stretches that
decide. None of them believes a header (`raftlog.records.timestamps`).
"""

from typing import NamedTuple

from raftlog.base.binary import Buffer
from raftlog.base.ids import Offset, RaftIndex, Term
from raftlog.base.limits import TIMES_SCAN_BYTES, TIMES_SCAN_RECORDS
from raftlog.base.ports import Disk
from raftlog.records.batch import read_header
from raftlog.records.timestamps import (
    NO_TIMESTAMP,
    first_at_or_after,
    largest_timestamp,
    largest_within,
)
from raftlog.storage.files import opened
from raftlog.storage.segments.cold import (
    LargestFound,
    StretchTime,
    TimeFound,
    TimeHit,
    TimesScanned,
)
from raftlog.storage.segments.jobs import check_end, report
from raftlog.storage.segments.segment import SegmentRef
from raftlog.storage.segments.walk import Walk, WalkPlace


class ScanTimesOrder(NamedTuple):
    """An order to compute the stretches from number `first` on, which begins at `start`.

    `ends` are the entries before which they end.
    """

    segment: SegmentRef
    first: int
    start: WalkPlace
    ends: tuple[RaftIndex, ...]


class TimeRange(NamedTuple):
    """A part of a segment to walk: from `start` up to the entry `stop` (exclusive)."""

    segment: SegmentRef
    start: WalkPlace
    stop: RaftIndex


class TimeOrder(NamedTuple):
    """An order to look at these ranges, in order, then at the batches that are not in a file yet.

    Only records with offsets from `start` to `limit` (exclusive) count. `timestamp_ms` is the time
    to look for; for `largest_in` it is the largest that is known already.
    """

    ranges: tuple[TimeRange, ...]
    unwritten: tuple[Buffer, ...]
    timestamp_ms: int
    start: Offset
    limit: Offset


def scan_times(disk: Disk, order: ScanTimesOrder) -> TimesScanned:
    """Job: the largest timestamps of some stretches, at least of one.

    It ends after about TIMES_SCAN_BYTES of log or TIMES_SCAN_RECORDS, so that other jobs have their
    turn: a batch of a few kilobytes may hold a million records.
    """
    segment, found, records = order.segment, [], 0
    with opened(disk, segment.path) as file:
        walk = Walk(file, order.start, segment.group, segment.path)
        for number, end in enumerate(order.ends, order.first):
            largest = NO_TIMESTAMP
            for batch in walk.batches(end):
                largest = max(largest, largest_timestamp(batch.entry.batch, batch.header))
                records += batch.header.records_count
            check_end(walk, segment, end)
            report(disk, walk)
            found.append(StretchTime(number, end, largest))
            if (
                walk.place.position - order.start.position >= TIMES_SCAN_BYTES
                or records >= TIMES_SCAN_RECORDS
            ):
                break
    return TimesScanned(segment.file_sequence, found, walk.place.offset)


def find_time(disk: Disk, order: TimeOrder) -> TimeFound:
    """Job: the first record of the range whose timestamp is at least the one asked for."""
    for place in order.ranges:
        with opened(disk, place.segment.path) as file:
            walk = Walk(file, place.start, place.segment.group, place.segment.path)
            for batch in walk.batches(place.stop):
                hit = _hit_in(batch.entry.batch, order)
                if hit is not None:
                    return TimeFound(hit)
            check_end(walk, place.segment, place.stop)
            report(disk, walk)
    hits = (_hit_in(batch, order) for batch in order.unwritten)
    return TimeFound(next((hit for hit in hits if hit is not None), None))


def largest_in(disk: Disk, order: TimeOrder) -> LargestFound:
    """Job: the largest timestamp in the ranges, the unwritten batches and the known part."""
    largest, start, limit = order.timestamp_ms, order.start, order.limit
    for place in order.ranges:
        with opened(disk, place.segment.path) as file:
            walk = Walk(file, place.start, place.segment.group, place.segment.path)
            for batch in walk.batches(place.stop):
                found = largest_within(batch.entry.batch, batch.header, start, limit)
                largest = max(largest, found)
            check_end(walk, place.segment, place.stop)
            report(disk, walk)
    for unwritten in order.unwritten:
        found = largest_within(unwritten, read_header(unwritten), start, limit)
        largest = max(largest, found)
    return LargestFound(largest)


def _hit_in(batch: Buffer, order: TimeOrder) -> TimeHit | None:
    header = read_header(batch)
    found = first_at_or_after(batch, header, order.timestamp_ms, order.start, order.limit)
    return None if found is None else TimeHit(*found, Term(header.leader_epoch))
