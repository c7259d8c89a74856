"""Which log start a leader proposes: by size, or because a client deletes records.

Log start is replicated: the leader proposes a marker, and when it is committed each replica
removes its own whole segments below it (DESIGN section 5). So the proposal is an offset, never a
file.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from raftlog.base.ids import Offset
from raftlog.kafka.error_codes import ErrorCode

TO_HIGH_WATERMARK: Final = -1
"""What DeleteRecords sends for "everything"."""


class SegmentSpan(NamedTuple):
    """One segment: the offset of its first record, and its bytes without the header."""

    base_offset: Offset
    byte_count: int


def log_start_by_size(
    segments: Sequence[SegmentSpan], bytes_max: int, high_watermark: Offset
) -> Offset | None:
    """The log start that drops as many of the oldest segments as the bound asks for and leaves at
    least `bytes_max` behind, as Kafka does; never the active segment, never above the high
    watermark. None when nothing can go."""
    surplus = sum(segment.byte_count for segment in segments) - bytes_max
    log_start = None
    for segment, following in pairwise(segments):
        surplus -= segment.byte_count
        if surplus < 0 or following.base_offset > high_watermark:
            break
        log_start = following.base_offset
    return log_start


def log_start_asked(
    offset: int, log_start: Offset, high_watermark: Offset
) -> Offset | ErrorCode | None:
    """What a DeleteRecords for `offset` proposes: a new log start; None when it is there already;
    an error when records would go that are not committed."""
    wanted = high_watermark if offset == TO_HIGH_WATERMARK else Offset(offset)
    if offset < TO_HIGH_WATERMARK or wanted > high_watermark:
        return ErrorCode.OFFSET_OUT_OF_RANGE
    return wanted if wanted > log_start else None
