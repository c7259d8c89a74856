"""Goal: what goes is what the bound asks for: never less than it stays, never what is not
committed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftlog.kafka.error_codes import ErrorCode
from raftlog.partition.maintenance.retention import (
    SegmentSpan,
    log_start_asked,
    log_start_by_age,
    log_start_by_size,
)
from raftlog.records.timestamps import NO_TIMESTAMP


def spans(*sizes, step=10):
    return [SegmentSpan(n * step, (n + 1) * step, size) for n, size in enumerate(sizes)]


@pytest.mark.parametrize(
    ("sizes", "bytes_max", "wanted"),
    [
        ((), 0, None),
        ((100,), 0, None),
        ((100, 100), 200, None),
        ((100, 100), 150, None),
        ((100, 100), 100, 10),
        ((100, 100, 100), 100, 20),
        ((100, 100, 100), 101, 10),
        ((100, 100, 0), 0, 20),
    ],
)
def test_the_oldest_segments_go_and_the_bound_stays(sizes, bytes_max, wanted):
    assert log_start_by_size(spans(*sizes), bytes_max, 10**6) == wanted


def test_nothing_above_the_high_watermark_goes():
    segments = spans(100, 100, 100)
    assert log_start_by_size(segments, 0, 19) == 10
    assert log_start_by_size(segments, 0, 20) == 20
    assert log_start_by_size(segments, 0, 9) is None


@given(
    st.lists(st.integers(0, 1_000), max_size=12),
    st.integers(0, 5_000),
    st.integers(0, 150),
)
def test_the_bound_holds_for_any_log(sizes, bytes_max, high_watermark):
    segments = spans(*sizes)
    found = log_start_by_size(segments, bytes_max, high_watermark)
    if found is None:
        return
    assert found <= high_watermark
    assert sum(s.byte_count for s in segments if s.base_offset >= found) >= bytes_max
    assert found in [segment.base_offset for segment in segments[1:]]


@pytest.mark.parametrize(
    ("offset", "wanted"),
    [
        (-1, 50),
        (50, 50),
        (11, 11),
        (10, None),
        (0, None),
        (51, ErrorCode.OFFSET_OUT_OF_RANGE),
        (-2, ErrorCode.OFFSET_OUT_OF_RANGE),
    ],
)
def test_what_delete_records_may_ask_for(offset, wanted):
    assert log_start_asked(offset, 10, 50) == wanted


def test_deleting_everything_of_an_empty_log_is_done_already():
    assert log_start_asked(-1, 0, 0) is None


# --- by age ---------------------------------------------------------------------------------------

KEPT_FROM = 1_000


def aged(*timestamps, step=10):
    return [SegmentSpan(n * step, (n + 1) * step, 100, at) for n, at in enumerate(timestamps)]


@pytest.mark.parametrize(
    ("timestamps", "wanted"),
    [
        ((), None),
        ((1,), 10),
        ((1, 999), 20),
        ((1, 1_000), 10),
        ((NO_TIMESTAMP,), None),
        ((999, None), 10),
        ((1_000, None), None),
        ((1, 999, 500, None), 30),
        ((1, 1_000, 1, None), 10),
        ((2_000, 1, None), None),
        ((None, 1, None), None),
        ((1, None, 1, None), 10),
        ((NO_TIMESTAMP, None), None),
        ((NO_TIMESTAMP, 1, None), 20),
        ((NO_TIMESTAMP, 1_000, None), None),
        ((1, NO_TIMESTAMP, None), 10),
    ],
)
def test_a_segment_goes_when_all_in_it_is_older_and_all_before_it_goes(timestamps, wanted):
    """The last segment is the active one. One whose largest timestamp is not known stays, and so
    does everything behind it; one without timestamps is as old as the next that has some."""
    assert log_start_by_age(aged(*timestamps), KEPT_FROM, 10**6).log_start == wanted


def test_nothing_above_the_high_watermark_goes_by_age():
    assert log_start_by_age(aged(1, 1, None), KEPT_FROM, 19).log_start == 10
    assert log_start_by_age(aged(1, 1, None), KEPT_FROM, 20).log_start == 20
    assert log_start_by_age(aged(1, 1, None), KEPT_FROM, 9).log_start is None
    assert log_start_by_age(aged(1, 1), KEPT_FROM, 19).log_start == 10, "the active one as well"


def test_the_first_segment_that_must_be_known_is_named():
    assert log_start_by_age(aged(1, None, None, None), KEPT_FROM, 10**6) == (10, 1)
    assert log_start_by_age(aged(1, 2_000, None, None), KEPT_FROM, 10**6) == (10, None)
    assert log_start_by_age(aged(1, None), KEPT_FROM, 10**6) == (10, 1), "the active one too"
    young = aged(1, None)[1]._replace(largest_seen=KEPT_FROM)
    found = log_start_by_age([*aged(1), young], KEPT_FROM, 10**6)
    assert found == (10, None), "one record that is young is enough to keep a segment"


def test_a_segment_without_records_holds_nothing_back():
    segments = [SegmentSpan(0, 0, 100), SegmentSpan(0, 10, 100, 1), SegmentSpan(10, 10, 100)]
    assert log_start_by_age(segments, KEPT_FROM, 10**6) == (10, None)


@given(
    st.lists(st.one_of(st.none(), st.integers(-1, 3_000)), max_size=12),
    st.integers(0, 2_000),
    st.integers(0, 150),
)
def test_whatever_goes_was_old_and_committed(timestamps, kept_from, high_watermark):
    segments = aged(*timestamps)
    found = log_start_by_age(segments, kept_from, high_watermark).log_start
    if found is None:
        return
    assert found <= high_watermark
    gone = [segment for segment in segments if segment.base_offset < found]
    assert all(s.largest_timestamp is not None and s.largest_timestamp < kept_from for s in gone)
    assert found in [segment.next_offset for segment in segments]
