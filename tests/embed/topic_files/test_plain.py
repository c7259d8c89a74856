"""Batches as files hold them: what stays as it is, and what is built again."""

import struct

import pytest

from raftlog.base.errors import CorruptData
from raftlog.embed.topic_files.plain import at_offset, committed, fault_of, plain_batch
from raftlog.records.batch import (
    CONTROL,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    read_header,
    stamp_append_time,
)
from raftlog.records.record import records_of
from tests.embed.topic_files.exports import batch_of, with_crc

PRODUCER = {"producer_id": 7, "producer_epoch": 1, "base_sequence": 3}


def told(batch: bytes) -> list[tuple[int, bytes | None]]:
    return [(each.offset, each.value) for each in records_of(batch, CorruptData, "test")]


def marker(producer_id: int, at: int) -> memoryview:
    """A control batch as Kafka's coordinator writes one; its inside is never looked at."""
    batch = bytearray(
        batch_of(b"", at=at, producer_id=producer_id, producer_epoch=1, base_sequence=0)
    )
    struct.pack_into(">h", batch, 21, TRANSACTIONAL | CONTROL)
    return memoryview(with_crc(batch))


def sent(producer_id: int, at: int) -> memoryview:
    """A transactional batch of one record."""
    return memoryview(
        batch_of(
            b"%d" % at,
            at=at,
            producer_id=producer_id,
            producer_epoch=1,
            base_sequence=0,
            transactional=True,
        )
    )


@pytest.mark.parametrize("codec", range(5))
def test_a_whole_batch_keeps_its_bytes_but_for_the_producer(codec):
    batch = batch_of(b"a", None, b"c", at=40, codec=codec, **PRODUCER)
    kept = plain_batch(memoryview(batch), 0, 100, "test")
    assert kept is not None
    header = read_header(kept)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (-1, -1, -1)
    assert kept[61:] == batch[61:]
    assert told(kept) == [(40, b"a"), (41, None), (42, b"c")]
    assert fault_of(kept, deep=True) is None


@pytest.mark.parametrize(
    ("first", "end", "left"),
    [(0, 100, 3), (40, 43, 3), (41, 43, 2), (40, 42, 2), (42, 43, 1), (43, 99, 0), (0, 40, 0)],
)
def test_only_the_records_of_the_range_stay(first, end, left):
    kept = plain_batch(memoryview(batch_of(b"a", b"b", b"c", at=40)), first, end, "test")
    found = [] if kept is None else told(kept)
    assert len(found) == left
    assert found == [each for each in told(batch_of(b"a", b"b", b"c", at=40)) if each in found]


def test_the_brokers_time_becomes_the_time_of_the_records():
    batch = bytearray(batch_of(b"a", b"b", at=5))
    stamp_append_time(batch, 77_000)
    kept = plain_batch(memoryview(bytes(batch)), 0, 9, "test")
    assert kept is not None
    assert not read_header(kept).attributes & LOG_APPEND_TIME
    assert [each.timestamp_ms for each in records_of(kept, CorruptData, "")] == [77_000, 77_000]


def test_a_batch_with_holes_is_built_without_them():
    """Kafka's compaction leaves a last offset delta beyond the records."""
    batch = bytearray(batch_of(b"a", b"b", at=5))
    struct.pack_into(">i", batch, 23, 9)
    kept = plain_batch(memoryview(with_crc(batch)), 0, 99, "test")
    assert kept is not None
    assert told(kept) == [(5, b"a"), (6, b"b")]
    assert fault_of(kept, deep=True) is None


def test_a_batch_that_no_reader_reads_is_an_error():
    batch = bytearray(batch_of(b"a"))
    batch[61] = 0x7E
    with pytest.raises(CorruptData, match="record of 63 bytes"):
        plain_batch(memoryview(with_crc(batch)), 0, 9, "test")


def test_aborted_transactions_and_markers_are_left_out():
    batches = [
        sent(1, 0),
        sent(2, 1),
        marker(2, 2),  # commits
        sent(1, 3),
        marker(1, 4),  # aborts
        sent(1, 5),
        marker(1, 6),  # commits
        memoryview(batch_of(b"plain", at=7)),
    ]
    kept = [read_header(each).base_offset for each in committed(batches, [(1, 0)])]
    assert kept == [1, 5, 7]
    assert len(list(committed(batches, []))) == 5


@pytest.mark.parametrize(
    ("batch", "why"),
    [
        (batch_of(b"a", **PRODUCER), "producer"),
        (sent(1, 0), "producer"),
        (bytes(marker(1, 0)), "control"),
        (at_offset(batch_of(b"a"), -5), "offset -5"),
        (batch_of(b"a")[:-1], "exactly one record batch"),
        (batch_of(b"a")[:-1] + b"\xff", "CRC"),
    ],
)
def test_what_no_export_writes_is_a_fault(batch, why):
    assert why in (fault_of(bytes(batch), deep=False) or "")
