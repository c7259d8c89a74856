"""Headers of produced batches: every fault alone, and the moment valid becomes invalid."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftlog.base.limits import BATCH_HEADER_BYTES, DECOMPRESSED_BYTES_MAX
from raftlog.records.batch import CONTROL, LOG_APPEND_TIME, BatchHeader, read_header
from raftlog.records.builder import RecordBatchBuilder
from raftlog.records.validate import (
    RECORD_BYTES_MIN,
    BatchFault,
    timestamp_fault,
    validate_produced,
)
from tests.records.making import NOW_MS, changed, plain_batch

ROOMY = 1 << 20


def test_a_good_batch_gives_its_header():
    batch = plain_batch(5)
    assert validate_produced(batch, ROOMY) == read_header(batch)


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"magic": 1}, BatchFault.MAGIC),
        ({"magic": 3}, BatchFault.MAGIC),
        ({"base_offset": 1}, BatchFault.BASE_OFFSET),
        ({"base_offset": -1}, BatchFault.BASE_OFFSET),
        ({"last_offset_delta": -1, "records_count": 0}, BatchFault.COUNT),
        ({"last_offset_delta": -1}, BatchFault.COUNT),
        ({"records_count": 2}, BatchFault.COUNT),
        ({"records_count": -3}, BatchFault.COUNT),
        ({"attributes": 5}, BatchFault.CODEC),
        ({"attributes": 7}, BatchFault.CODEC),
        ({"attributes": LOG_APPEND_TIME}, BatchFault.TIMESTAMP_TYPE),
        ({"attributes": CONTROL}, BatchFault.CONTROL),
        ({"producer_id": 5}, BatchFault.PRODUCER),
        ({"producer_id": 5, "producer_epoch": 0}, BatchFault.PRODUCER),
        ({"producer_id": 5, "base_sequence": 0}, BatchFault.PRODUCER),
        ({"producer_id": -2}, BatchFault.PRODUCER),
        ({"crc": 7}, BatchFault.CRC),
        ({"batch_length": 48}, BatchFault.NOT_ONE_BATCH),
        ({"batch_length": -1}, BatchFault.NOT_ONE_BATCH),
        ({"batch_length": 2**31 - 1}, BatchFault.NOT_ONE_BATCH),
    ],
)
def test_each_fault_is_named(fields, fault):
    batch = changed(plain_batch(3), fix_crc="crc" not in fields, **fields)
    assert validate_produced(batch, ROOMY) is fault


def test_no_batch_says_more_records_than_its_bytes_can_hold():
    """A hundred bytes that said two billion records used up two billion offsets."""
    builder = RecordBatchBuilder()
    for _ in range(5):
        builder.append(None, timestamp_ms=NOW_MS)
    batch = builder.build()
    assert len(batch) == BATCH_HEADER_BYTES + 5 * RECORD_BYTES_MIN
    assert isinstance(validate_produced(batch, ROOMY), BatchHeader)
    for count in (6, 2**31 - 1):
        lying = changed(batch, records_count=count, last_offset_delta=count - 1)
        assert validate_produced(lying, ROOMY) is BatchFault.CROWDED


def test_a_compressed_batch_may_say_what_fits_when_it_is_decompressed():
    most = DECOMPRESSED_BYTES_MAX // RECORD_BYTES_MIN
    batch = changed(plain_batch(), attributes=4, records_count=most, last_offset_delta=most - 1)
    assert isinstance(validate_produced(batch, ROOMY), BatchHeader)
    batch = changed(batch, records_count=most + 1, last_offset_delta=most)
    assert validate_produced(batch, ROOMY) is BatchFault.CROWDED


def test_a_forged_raft_entry_is_refused_whatever_else_it_says():
    """A zero-wide control batch is one of Raft's own entries: a client must never make one."""
    forged = changed(plain_batch(3), attributes=CONTROL, last_offset_delta=-1, records_count=0)
    assert read_header(forged).is_raft_entry
    assert isinstance(validate_produced(forged, ROOMY), BatchFault)


def test_size_limit_counts_the_whole_batch():
    batch = plain_batch()
    assert isinstance(validate_produced(batch, len(batch)), BatchHeader)
    assert validate_produced(batch, len(batch) - 1) is BatchFault.TOO_LARGE


@pytest.mark.parametrize("extra", [b"x", plain_batch()])
def test_more_than_one_batch_is_refused(extra):
    assert validate_produced(plain_batch() + extra, ROOMY) is BatchFault.NOT_ONE_BATCH


def test_every_truncation_is_refused():
    batch = plain_batch()
    for size in range(len(batch)):
        assert isinstance(validate_produced(batch[:size], ROOMY), BatchFault)


def test_every_flipped_bit_below_the_crc_is_refused():
    batch = plain_batch(1)
    for bit in range(21 * 8, len(batch) * 8):
        rotten = bytearray(batch)
        rotten[bit // 8] ^= 1 << bit % 8
        assert isinstance(validate_produced(bytes(rotten), ROOMY), BatchFault)


def test_memoryviews_are_accepted():
    batch = plain_batch()
    assert isinstance(validate_produced(memoryview(bytearray(batch)), ROOMY), BatchHeader)


@pytest.mark.parametrize(
    ("latest", "refused"),
    [
        (-1, False),
        (-2, True),
        (NOW_MS, False),
        (NOW_MS - 1000, False),
        (NOW_MS - 1001, True),
        (NOW_MS + 500, False),
        (NOW_MS + 501, True),
    ],
)
def test_timestamp_bounds(latest, refused):
    header = read_header(changed(plain_batch(), max_timestamp=latest))
    fault = timestamp_fault(header, NOW_MS, before_max_ms=1000, after_max_ms=500)
    assert (fault is BatchFault.TIMESTAMP) == refused


@given(st.binary(max_size=200))
def test_no_bytes_make_it_raise(data):
    assert isinstance(validate_produced(data, ROOMY), BatchFault)
