"""Goal: the range of offsets and epochs, at each of their edges."""

from types import SimpleNamespace

import pytest

from raftlog.kafka.error_codes import ErrorCode
from raftlog.partition.fetch_plan import FetchView, epoch_error, view_of
from raftlog.storage.segments.segment import Gap


def log_of(log_start=10, next_offset=50, gaps=()):
    return SimpleNamespace(
        log_start=log_start,
        next_offset=next_offset,
        gaps=gaps,
        available_bytes=lambda low, high: (high - low) * 100,
    )


@pytest.mark.parametrize(
    ("offset", "error", "available"),
    [
        (9, ErrorCode.OFFSET_OUT_OF_RANGE, 0),
        (10, ErrorCode.NONE, 3_000),
        (39, ErrorCode.NONE, 100),
        (40, ErrorCode.NONE, 0),
        (49, ErrorCode.NONE, 0),
        (50, ErrorCode.NONE, 0),
        (51, ErrorCode.OFFSET_OUT_OF_RANGE, 0),
        (-1, ErrorCode.OFFSET_OUT_OF_RANGE, 0),
        (2**63 - 1, ErrorCode.OFFSET_OUT_OF_RANGE, 0),
    ],
)
def test_offsets(offset, error, available):
    assert view_of(log_of(), offset, 40) == FetchView(error, 40, 10, available)


@pytest.mark.parametrize("offset", [10, 40, 50])
def test_without_a_published_mark_everything_is_empty(offset):
    assert view_of(log_of(), offset, None) == FetchView(ErrorCode.NONE, -1, 10, 0)


def test_without_a_published_mark_the_range_still_counts():
    assert view_of(log_of(), 51, None).error is ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        (-1, ErrorCode.NONE),
        (7, ErrorCode.NONE),
        (6, ErrorCode.FENCED_LEADER_EPOCH),
        (8, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (-2, ErrorCode.FENCED_LEADER_EPOCH),
    ],
)
def test_epochs(asked, error):
    assert epoch_error(asked, 7) is error


@pytest.mark.parametrize(
    ("offset", "error"),
    [
        (19, ErrorCode.NONE),
        (20, ErrorCode.CORRUPT_MESSAGE),
        (29, ErrorCode.CORRUPT_MESSAGE),
        (30, ErrorCode.NONE),
    ],
)
def test_a_gap_is_said_from_its_first_offset_to_its_last(offset, error):
    log = log_of(gaps=(Gap(20, 30, "file", "rot"),))
    assert view_of(log, offset, 40).error == error
