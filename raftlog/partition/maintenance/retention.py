"""The log start that a leader proposes: by size, by age, or because a client deletes records.

Log start is replicated. The leader proposes a marker, and once that is committed each replica
removes its own whole segments below it. So the proposal is an offset, never a file.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from raftlog.base.ids import Offset
from raftlog.kafka.error_codes import ErrorCode
from raftlog.records.timestamps import NO_TIMESTAMP
from raftlog.storage.segments.segment import Segment

TO_HIGH_WATERMARK: Final = -1
"""The offset in a DeleteRecords that means "everything up to the high watermark"."""


class SegmentSpan(NamedTuple):
    """One segment, as retention sees it.

    * `base_offset`, `next_offset`: the offset of its first record, and the one after its last.
    * `byte_count`: its size without the header.
    * `largest_timestamp`: the largest timestamp of its records, computed from the records and never
      a batch header's claim. -1 when no record has one, None until it is known.
    * `largest_seen`: the largest timestamp of the records read so far.
    """

    base_offset: Offset
    next_offset: Offset
    byte_count: int
    largest_timestamp: int | None = None
    largest_seen: int = NO_TIMESTAMP


class AgeAsk(NamedTuple):
    """A question of retention: the largest timestamp of the records of `segment` below the offset
    `until`. A record that is not older than `kept_from_ms` answers it early."""

    segment: Segment
    until: Offset
    kept_from_ms: int


def log_start_by_size(
    segments: Sequence[SegmentSpan], bytes_max: int, high_watermark: Offset
) -> Offset | None:
    """The log start that retention by size wants; None when no segment can go.

    It drops the oldest segments and leaves at least `bytes_max` bytes, as Kafka does. It never
    drops the active segment, and never lies above the high watermark.
    """
    surplus = sum(segment.byte_count for segment in segments) - bytes_max
    log_start = None
    for segment, following in pairwise(segments):
        surplus -= segment.byte_count
        if surplus < 0 or following.base_offset > high_watermark:
            break
        log_start = following.base_offset
    return log_start


class Aged(NamedTuple):
    """The result of retention by age.

    * `log_start`: the wanted log start; None when no segment can go.
    * `unknown`: the place of the segment whose largest timestamp must be known before more can go.
    """

    log_start: Offset | None
    unknown: int | None


def log_start_by_age(
    segments: Sequence[SegmentSpan], kept_from_ms: int, high_watermark: Offset
) -> Aged:
    """The log start that retention by age wants.

    It drops the oldest segments in which every record is older than `kept_from_ms`, the active one
    too. It never lies above the high watermark, and drops nothing behind a segment whose largest
    timestamp is not known. A segment without any timestamp is as old as the next one that has some.
    """
    log_start = None
    for place, segment in enumerate(segments):
        if segment.next_offset > high_watermark:
            break  # Some of its records are not committed.
        if segment.next_offset == segment.base_offset:
            continue  # only entries of Raft's own
        latest = segment.largest_timestamp
        if (segment.largest_seen if latest is None else latest) >= kept_from_ms:
            break
        if latest is None:
            return Aged(log_start, place)
        if latest != NO_TIMESTAMP:
            log_start = segment.next_offset
    return Aged(log_start, None)


def log_start_asked(
    offset: int, log_start: Offset, high_watermark: Offset
) -> Offset | ErrorCode | None:
    """The log start that a DeleteRecords for `offset` proposes.

    None when the log starts there or later already; an error when uncommitted records would go.
    """
    wanted = high_watermark if offset == TO_HIGH_WATERMARK else Offset(offset)
    if offset < TO_HIGH_WATERMARK or wanted > high_watermark:
        return ErrorCode.OFFSET_OUT_OF_RANGE
    return wanted if wanted > log_start else None
