"""Timestamps that the broker computes from records itself, against the plain reader of records.

The story: Sarama 1.45 leaves `maxTimestamp` of its batches unset. Look-ups by time believed the
header, answered that there was no such record, and Spark's filter lost the rows.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftlog.base.errors import CorruptData
from raftlog.records.batch import HEADER, LOG_APPEND_TIME, read_header
from raftlog.records.builder import RecordBatchBuilder
from raftlog.records.compression import compress
from raftlog.records.record import records_of
from raftlog.records.timestamps import (
    NO_TIMESTAMP,
    first_at_or_after,
    largest_timestamp,
    largest_within,
)
from tests.records.making import NOW_MS, changed, plain_batch, with_body
from tests.records.test_record import ODD

I64 = st.integers(-(2**63), 2**63 - 1)
NEAR = st.integers(NOW_MS - 200, NOW_MS + 200)
TIMES = st.lists(st.one_of(NEAR, I64, st.just(-1)), min_size=1, max_size=9)
CLAIMS = st.one_of(st.just(-1), NEAR, I64)


def batch_at(times, *, claim, codec=0, base_offset=0, value=b"v", base=None):
    """Records of these timestamps under a header with any claim; `base`: any base timestamp."""
    builder = RecordBatchBuilder()
    for time in times:
        builder.append(value, timestamp_ms=time)
    plain = builder.build()
    made = with_body(compress(codec, bytes(plain[HEADER.size :])), count=len(times), codec=codec)
    base = times[0] if base is None else base
    return changed(made, max_timestamp=claim, base_timestamp=base, base_offset=base_offset)


def truth(batch):
    return [(record.timestamp_ms, record.offset) for record in records_of(batch, CorruptData, "t")]


@given(TIMES, CLAIMS, st.integers(0, 4), st.one_of(st.none(), I64), st.sampled_from([1, 90, 9000]))
def test_no_claim_changes_the_largest_timestamp(times, claim, codec, base, size):
    batch = batch_at(times, claim=claim, codec=codec, base=base, value=b"v" * size)
    expected = max([NO_TIMESTAMP, *(time for time, _ in truth(batch))])
    assert largest_timestamp(batch, read_header(batch)) == expected


@given(TIMES, CLAIMS, st.integers(0, 4), NEAR, st.integers(0, 30), st.integers(0, 30))
def test_the_first_record_within_the_limits(times, claim, codec, wanted, start, limit):
    batch = batch_at(times, claim=claim, codec=codec, base_offset=10)
    inside = [pair for pair in truth(batch) if start <= pair[1] < limit]
    expected = next((pair for pair in inside if pair[0] >= wanted), None)
    assert first_at_or_after(batch, read_header(batch), wanted, start, limit) == expected
    largest = max((time for time, _ in inside), default=NO_TIMESTAMP)
    assert largest_within(batch, read_header(batch), start, limit) == max(NO_TIMESTAMP, largest)


def test_times_read_back_as_they_were_written():
    batch = batch_at([NOW_MS, -1, 2**63 - 1], claim=-1)
    assert [time for time, _ in truth(batch)] == [NOW_MS, -1, 2**63 - 1]


def test_a_sum_beyond_64_bits_wraps_as_in_every_client():
    batch = changed(plain_batch(2), base_timestamp=2**63 - 1)
    assert truth(batch) == [(2**63 - 1, 0), (-(2**63), 1)]


def test_log_append_time_is_the_leaders_and_is_believed():
    batch = changed(plain_batch(2), attributes=LOG_APPEND_TIME, max_timestamp=77)
    header = read_header(batch)
    assert largest_timestamp(batch, header) == 77
    assert first_at_or_after(batch, header, 78, 0, 2) is None
    assert first_at_or_after(batch, header, 77, 1, 2) == (77, 1)


@pytest.mark.parametrize(
    ("body", "count", "codec"),
    [
        (b"rubbish", 2, 0),
        (b"rubbish", 2, 1),
        (b"", 1, 0),
        (b"\x7f", 1, 0),
        (b"\x01" * 8, 1, 0),
        (b"\xff" * 30, 1, 0),
        (b"\x0e\x00" + b"\xff" * 30, 1, 0),
    ],
)
def test_records_that_nobody_can_read_are_taken_at_their_headers_word(body, count, codec):
    batch = changed(with_body(body, count=count, codec=codec), max_timestamp=NOW_MS)
    header = read_header(batch)
    assert largest_timestamp(batch, header) == NOW_MS
    assert first_at_or_after(batch, header, NOW_MS, 0, 9) == (NOW_MS, 0)
    assert first_at_or_after(batch, header, NOW_MS + 1, 0, 9) is None


@pytest.mark.parametrize("name", ODD)
def test_odd_records_that_readers_read_are_asked_for_their_times(name):
    body, count, _ = ODD[name]
    later = body.replace(b"\x0c\0\0", b"\x0c\0\x14", 1)  # the first is 10 ms later
    batch = changed(with_body(later, count=count), max_timestamp=-1)
    times = [time for time, _ in truth(batch)]
    assert max(times) == times[0] == NOW_MS + 10
    header = read_header(batch)
    assert largest_timestamp(batch, header) == NOW_MS + 10
    assert first_at_or_after(batch, header, NOW_MS + 5, 0, 9) == truth(batch)[0]


@given(st.binary(max_size=80), st.integers(1, 5), st.integers(0, 4))
def test_whatever_is_inside_it_never_raises(body, count, codec):
    batch = with_body(body, count=count, codec=codec)
    header = read_header(batch)
    assert largest_timestamp(batch, header) >= NO_TIMESTAMP
    first_at_or_after(batch, header, NOW_MS, 0, 9)
    largest_within(batch, header, 1, 2)
