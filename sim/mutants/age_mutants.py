"""Planted bugs of retention: which clock decides, which age is known, and how much stays.

Only `raftlog_sim.hunting.mutation` loads this file; nothing here is ever installed.
"""

from itertools import pairwise
from typing import Any

from raftlog.partition.maintenance import leader_duties, retention


def one_clock_deletes() -> None:
    """61: a leader deletes by its own wall clock, though no other voter shares it."""
    leader_duties.most_share = lambda *clocks: True


def unknown_is_old() -> None:
    """61b: a segment whose timestamps are not known yet is deleted as if it had none."""
    real = retention.log_start_by_age

    def by_age(segments: Any, kept_from_ms: int, high_watermark: Any) -> Any:
        known = [each._replace(largest_timestamp=each.largest_timestamp or 0) for each in segments]
        return real(known, kept_from_ms, high_watermark)

    leader_duties.log_start_by_age = by_age


def age_passes_the_watermark() -> None:
    """61c: old records are deleted, committed or not."""
    real = retention.log_start_by_age

    def by_age(segments: Any, kept_from_ms: int, high_watermark: Any) -> Any:
        del high_watermark
        return real(segments, kept_from_ms, segments[-1].next_offset if segments else 0)

    leader_duties.log_start_by_age = by_age


def a_segment_more_goes() -> None:
    """84: retention by size ends below the promised size, and not above it."""

    def by_size(segments: Any, bytes_max: int, high_watermark: Any) -> Any:
        surplus = sum(each.byte_count for each in segments) - bytes_max
        log_start = None
        for segment, following in pairwise(segments):
            if surplus <= 0 or following.base_offset > high_watermark:
                break
            surplus -= segment.byte_count
            log_start = following.base_offset
        return log_start

    leader_duties.log_start_by_size = by_size


MUTANTS = (
    ("61", "one-clock-deletes", one_clock_deletes, ("kept-by-age",)),
    ("61b", "unknown-is-old", unknown_is_old, ("kept-by-age",)),
    ("61c", "age-passes-the-watermark", age_passes_the_watermark, ("assertion",)),
    ("84", "a-segment-more-goes", a_segment_more_goes, ("kept-by-size",)),
)
