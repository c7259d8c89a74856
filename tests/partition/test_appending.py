"""Goal: what is judged, what is stamped, and that nothing but the stamp changes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftlog.base.limits import RECORD_COPY_BYTES_MAX
from raftlog.kafka.error_codes import ErrorCode
from raftlog.partition.config import PartitionConfig
from raftlog.partition.producing.appending import (
    FAULT_CODES,
    BatchRefused,
    judged,
    stamped,
    stamped_with_time,
)
from raftlog.records.batch import LOG_APPEND_TIME, crc_matches, read_header
from raftlog.records.record import records_of
from raftlog.records.validate import BatchFault
from tests.partition.group import WALL, batch_of

CONFIG = PartitionConfig()


def code_of(records, config=CONFIG, wall=WALL):
    with pytest.raises(BatchRefused) as caught:
        judged(records, config, wall)
    assert caught.value.message
    return caught.value.code


def test_every_fault_has_a_code():
    assert set(FAULT_CODES) == set(BatchFault)
    assert all(code != ErrorCode.NONE for code in FAULT_CODES.values())


@given(st.binary(max_size=300))
def test_no_bytes_raise_anything_but_refused(records):
    code_of(records)


@given(st.integers(0, 200), st.integers(0, 255))
def test_a_changed_byte_is_refused_or_outside_what_counts(position, value):
    batch = bytearray(batch_of(b"abc", b"def"))
    position %= len(batch)
    if batch[position] == value:
        return
    batch[position] = value
    try:
        judged(bytes(batch), CONFIG, WALL)
    except BatchRefused:
        return
    assert 12 <= position < 16, position  # the leader epoch: whatever the producer put there


def test_a_lying_length_is_damage_and_several_batches_are_a_mistake():
    batch = batch_of(b"a")
    assert code_of(batch[:-1]) is ErrorCode.CORRUPT_MESSAGE
    assert code_of(batch + batch) is ErrorCode.INVALID_RECORD
    assert code_of(batch + b"\0") is ErrorCode.INVALID_RECORD


def test_timestamps_are_checked_on_both_sides_at_their_bounds():
    config = PartitionConfig(timestamp_before_max_ms=10, timestamp_after_max_ms=20)
    for shift in (-10, 0, 20):
        judged(batch_of(b"a", timestamp_ms=WALL + shift), config, WALL)
    for shift in (-11, 21):
        batch = batch_of(b"a", timestamp_ms=WALL + shift)
        assert code_of(batch, config) is ErrorCode.INVALID_TIMESTAMP


def test_with_log_append_time_the_producers_clock_does_not_matter():
    config = PartitionConfig(timestamp_before_max_ms=10, log_append_time=True)
    judged(batch_of(b"a", timestamp_ms=5), config, WALL)


@pytest.mark.parametrize("size", [10, RECORD_COPY_BYTES_MAX - 200, RECORD_COPY_BYTES_MAX + 10])
@pytest.mark.parametrize("kind", [bytes, bytearray])
def test_a_stamp_changes_base_offset_and_epoch_only(size, kind):
    sent = batch_of(b"x" * size)
    records = memoryview(kind(sent))
    batch = stamped(records, read_header(sent), 77, 5)
    header = read_header(batch)
    assert (header.base_offset, header.leader_epoch) == (77, 5)
    assert bytes(batch[16:]) == sent[16:]
    assert bytes(batch[8:12]) == sent[8:12]
    assert crc_matches(batch, header)
    in_place = kind is bytearray and len(sent) >= RECORD_COPY_BYTES_MAX
    assert isinstance(batch, memoryview) == in_place


def test_what_was_stamped_in_place_cannot_be_changed_through_it():
    sent = bytearray(batch_of(b"x" * RECORD_COPY_BYTES_MAX))
    batch = stamped(memoryview(sent), read_header(sent), 77, 5)
    with pytest.raises(TypeError):
        batch[0] = 1


def test_log_append_time_has_a_true_crc_and_the_leaders_time():
    sent = batch_of(b"a", b"b", timestamp_ms=5)
    batch = stamped_with_time(sent, read_header(sent), 7, 3, WALL)
    header = read_header(batch)
    assert crc_matches(batch, header)
    assert header.attributes & LOG_APPEND_TIME
    assert (header.max_timestamp, header.base_offset, header.leader_epoch) == (WALL, 7, 3)
    assert [bytes(record.value) for record in records_of(batch, ValueError, "t")] == [b"a", b"b"]
