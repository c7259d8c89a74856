"""Records inside a batch, above all those that lie: the broker never looked inside."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftlog.base.entries import EntryKind
from raftlog.base.errors import CorruptData
from raftlog.records.batch import LOG_APPEND_TIME
from raftlog.records.builder import RecordBatchBuilder
from raftlog.records.compression import CODEC_NAMES
from raftlog.records.control import build_control_entry
from raftlog.records.record import Record, RecordHeader, records_of
from tests.records.making import NOW_MS, changed, plain_batch, with_body


def read(batch):
    return list(records_of(batch, CorruptData, "test"))


NULLABLE = st.none() | st.binary(max_size=40)
RECORDS = st.lists(
    st.tuples(
        NULLABLE,
        NULLABLE,
        st.integers(-1000, 2**41),
        st.lists(st.tuples(st.text(max_size=5), NULLABLE), max_size=3),
    ),
    min_size=1,
    max_size=20,
)


@given(records=RECORDS, codec=st.sampled_from(list(CODEC_NAMES.values())))
def test_what_was_built_is_read(records, codec):
    builder = RecordBatchBuilder(codec=codec)
    for key, value, timestamp, headers in records:
        builder.append(value, key=key, timestamp_ms=timestamp, headers=headers)
    batch = changed(builder.build(), base_offset=100, leader_epoch=3)
    assert read(batch) == [
        Record(100 + n, timestamp, key, value, tuple(RecordHeader(*pair) for pair in headers))
        for n, (key, value, timestamp, headers) in enumerate(records)
    ]


def test_log_append_time_overrides_the_records():
    batch = changed(plain_batch(2), attributes=LOG_APPEND_TIME, max_timestamp=77)
    assert [record.timestamp_ms for record in read(batch)] == [77, 77]


def test_raft_entries_hold_no_records():
    entry = build_control_entry(
        EntryKind.MARKER,
        group=1,
        term=1,
        raft_index=1,
        base_offset=0,
        timestamp_ms=NOW_MS,
        body=b"x",
    )
    assert read(entry.batch) == []


def zigzag(value):
    value = (value << 1) ^ (value >> 63)
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])


def record(*fields, length=None):
    body = b"\x00" + b"".join(
        field if isinstance(field, bytes) else zigzag(field) for field in fields
    )
    return zigzag(len(body) if length is None else length) + body


GOOD = record(0, 0, -1, -1, 0)
LIES = {
    "nothing inside": b"",
    "a length beyond the end": record(0, 0, -1, -1, 0, length=1000),
    "a negative length": record(0, 0, -1, -1, 0, length=-1),
    "a length that is too short": record(0, 0, -1, -1, 0, length=3),
    "a key beyond the end": record(0, 0, 1 << 30, -1, 0),
    "an offset below 0": record(0, -1, -1, -1, 0),
    "a key length of -2": record(0, 0, -2, -1, 0),
    "headers without end": record(0, 0, -1, -1, 1 << 30),
    "a negative number of headers": record(0, 0, -1, -1, -1),
    "more headers than bytes": record(0, 0, -1, -1, 2, 0, 0, 0),
    "an endless varint": b"\xff" * 20,
}


@pytest.mark.parametrize("name", LIES)
def test_lies_are_the_named_error(name):
    with pytest.raises(CorruptData):
        read(with_body(LIES[name], count=1))


def test_what_was_read_before_a_lie_is_good():
    records = records_of(with_body(GOOD + b"\x7f", count=2), CorruptData, "test")
    assert next(records).offset == 0
    with pytest.raises(CorruptData, match="record of -64 bytes"):
        next(records)


ODD = {
    "offsets that fall": (record(0, 1, -1, -1, 0) + record(0, 0, -1, -1, 0), 2, [1, 0]),
    "an offset twice": (GOOD + GOOD, 2, [0, 0]),
    "an offset beyond the batch": (GOOD + record(0, 2, -1, -1, 0), 2, [0, 2]),
    "more records than the count": (GOOD + GOOD, 1, [0]),
    "bytes left over": (GOOD + b"\0", 1, [0]),
}


@pytest.mark.parametrize("name", ODD)
def test_what_a_broker_takes_and_other_clients_read_is_read(name):
    """The story: a broker acknowledged such batches, confluent-kafka read them, and ours did not.
    Kafka refuses them, for it walks the records."""
    body, count, offsets = ODD[name]
    assert [each.offset for each in read(with_body(body, count=count))] == offsets


def test_a_header_with_a_null_key_is_read():
    body = record(0, 0, -1, -1, 2, -1, -1, 1, b"k", 1, b"v")
    (kept,) = read(with_body(body, count=1))
    assert kept.headers == (RecordHeader("", None), RecordHeader("k", b"v"))


@pytest.mark.parametrize("count", [10_000, 10_001, 100_000])
def test_many_headers_are_read(count):
    body = record(0, 0, -1, -1, count, bytes(2 * count))
    (kept,) = read(with_body(body, count=1))
    assert kept.headers == (RecordHeader("", b""),) * count


def test_compaction_may_leave_holes():
    body = record(0, 3, -1, -1, 0) + record(0, 9, -1, -1, 0)
    batch = with_body(body, count=2, last_offset_delta=9)
    assert [kept.offset for kept in read(batch)] == [3, 9]


def test_header_keys_that_are_not_text_stay_readable():
    body = record(0, 0, -1, -1, 1, 2, b"\xffa", -1)
    (kept,) = read(with_body(body, count=1))
    assert kept.headers == (RecordHeader("\\xffa", None),)


@given(body=st.binary(max_size=100), count=st.integers(0, 2**31 - 1), codec=st.integers(0, 7))
def test_no_inside_does_harm(body, count, codec):
    with contextlib.suppress(CorruptData):
        read(with_body(body, count=count, codec=codec, last_offset_delta=2**31 - 1))
