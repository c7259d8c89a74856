"""Goal: what goes is what the bound asks for: never less than it stays, never what is not
committed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftlog.kafka.error_codes import ErrorCode
from raftlog.partition.retention import SegmentSpan, log_start_asked, log_start_by_size


def spans(*sizes, step=10):
    return [SegmentSpan(number * step, size) for number, size in enumerate(sizes)]


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
