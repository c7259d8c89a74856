"""The walk over a produced batch agrees with the reader of records, and names each lie."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raftlog.base.errors import CorruptData
from raftlog.base.limits import RECORD_HEADERS_MAX
from raftlog.records.batch import HEADER, read_header
from raftlog.records.builder import RecordBatchBuilder
from raftlog.records.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD, compress
from raftlog.records.record import records_of
from raftlog.records.record_walk import RecordRules, RecordWalk
from tests.records.making import NOW_MS, plain_batch, with_body

ANY = RecordRules(-(2**62), 2**62, keyed=False)
CODECS = [NONE, GZIP, SNAPPY, LZ4, ZSTD]


def zigzag(value):
    value, out = value << 1 ^ value >> 63, bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def record(delta, *, key=b"k", value=b"v", time=0, headers=(), size=None):
    def field(data):
        return zigzag(-1) if data is None else zigzag(len(data)) + data

    inside = b"\0" + zigzag(time) + zigzag(delta) + field(key) + field(value)
    inside += zigzag(len(headers)) + b"".join(field(k) + field(v) for k, v in headers)
    return zigzag(len(inside) if size is None else size) + inside


def walked(body, count, rules=ANY, codec=NONE, step=None):
    batch = with_body(compress(codec, body), count=count, codec=codec)
    walk = RecordWalk(batch, read_header(batch), rules)
    while not walk.done:
        walk.step(*(() if step is None else (step,)))
    return walk.fault


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("step", [1, 7, 10_000])
def test_good_batches_pass(codec, step):
    builder = RecordBatchBuilder()
    for number in range(200):
        value = None if number % 7 == 0 else bytes(number * number % 3000)
        builder.append(
            value,
            key=None if number % 5 else b"k" * number,
            timestamp_ms=NOW_MS + number * 10_000,
            headers=[("h", None), ("", b"x" * 200)] if number % 3 == 0 else [],
        )
    body = builder.build()[HEADER.size :]
    assert walked(body, 200, codec=codec, step=step) is None


def test_a_record_of_many_pieces_passes():
    body = record(0) + record(1, value=bytes(3_000_000)) + record(2)
    for codec in CODECS:
        assert walked(body, 3, codec=codec, step=1) is None


LIES = {
    "more records than there are": (record(0), 2),
    "fewer records than there are": (record(0) + record(1), 1),
    "a gap in the offsets": (record(0) + record(2), 2),
    "offsets that go back": (record(1) + record(0), 2),
    "bytes behind the last record": (record(0) + b"\0", 1),
    "a length that lies": (record(0, size=50), 1),
    "a length that is short": (record(0, size=4), 1),
    "a negative length": (zigzag(-5) + b"\0" * 9, 1),
    "a key of -2 bytes": (zigzag(6) + b"\0\0\0" + zigzag(-2) + b"\1\0", 1),
    "a value of -2 bytes": (zigzag(6) + b"\0\0\0\1" + zigzag(-2) + b"\0", 1),
    "a key beyond its record": (zigzag(6) + b"\0\0\0" + zigzag(60) + b"\1\0", 1),
    "a header without a key": (record(0, headers=[(None, b"x")]), 1),
    "a header value of -2": (zigzag(8) + b"\0\0\0\1\1" + zigzag(1) + zigzag(0) + zigzag(-2), 1),
    "more headers than allowed": (zigzag(8) + b"\0\0\0\1\1" + zigzag(2**20), 1),
    "a varint without an end": (b"\xff" * 12, 1),
    "nothing": (b"\0" * 7, 1),
}


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("codec", [NONE, GZIP])
def test_each_lie_is_refused(lie, codec):
    body, count = LIES[lie]
    fault = walked(body, count, codec=codec)
    assert fault is not None
    assert not fault.timestamp
    assert fault.what.startswith("record ")


def test_what_does_not_decompress_is_refused():
    good = bytearray(compress(GZIP, plain_batch(9)[HEADER.size :]))
    good[20:30] = b"0123456789"
    batch = with_body(bytes(good), count=9, codec=GZIP)
    walk = RecordWalk(batch, read_header(batch), ANY)
    walk.step()
    assert walk.done
    assert "decompress" in walk.fault.what


def test_timestamps_and_keys_by_the_rules_of_the_topic():
    base = read_header(plain_batch()).base_timestamp
    body = record(0, time=-5) + record(1, time=5, key=None)
    for rules, refused, timestamp in (
        (RecordRules(base - 5, base + 5, keyed=False), False, False),
        (RecordRules(base - 4, base + 5, keyed=False), True, True),
        (RecordRules(base - 5, base + 4, keyed=False), True, True),
        (RecordRules(base - 5, base + 5, keyed=True), True, False),
    ):
        fault = walked(body, 2, rules)
        assert (fault is not None) is refused, rules
        assert fault is None or fault.timestamp is timestamp


def test_a_step_looks_at_so_many_records_and_no_more():
    body = b"".join(record(at) for at in range(100))
    batch = with_body(body, count=100)
    walk = RecordWalk(batch, read_header(batch), ANY)
    steps = 0
    while not walk.done:
        walk.step(7)
        steps += 1
    assert steps == 15
    assert walk.fault is None


def reads_as_kafka_asks(body, count):
    """The dumb twin: the layout of the protocol guide, read field by field."""

    def number(data, at):
        value = 0
        for place in range(10):
            value |= (data[at + place] & 127) << 7 * place
            if data[at + place] < 128:
                return value >> 1 ^ -(value & 1), at + place + 1
        raise ValueError

    def field(data, at, least):
        size, at = number(data, at)
        if size < least or at + max(size, 0) > len(data):
            raise ValueError
        return at + max(size, 0)

    try:
        for index in range(count):
            size, at = number(body, 0)
            if not 0 <= size <= len(body) - at:
                return False
            inside, body = body[at : at + size], body[at + size :]
            _, at = number(inside, 1)
            delta, at = number(inside, at)
            at = field(inside, field(inside, at, -1), -1)
            headers, at = number(inside, at)
            if delta != index or not 0 <= headers <= RECORD_HEADERS_MAX:
                return False
            for _ in range(headers):
                at = field(inside, field(inside, at, 0), -1)
            if at != len(inside):
                return False
    except (IndexError, ValueError):
        return False
    return body == b""


@settings(max_examples=300)
@given(st.binary(max_size=60), st.integers(1, 4), st.data())
def test_it_agrees_with_its_twin_and_with_the_reader(rubbish, count, data):
    """The reader reads every record that the walk lets in, with its offset; the walk agrees with
    its twin."""
    good = b"".join(record(at, headers=[(b"h", None)] * (at % 2)) for at in range(count))
    at = data.draw(st.integers(0, len(good)))
    spoilt = [rubbish, good[:at] + rubbish, good[:at] + good[at + 1 :], good[:at] + b"\x01" + good]
    body = data.draw(st.sampled_from([good, *spoilt]))
    let_in = walked(body, count) is None
    assert let_in == reads_as_kafka_asks(body, count)
    if let_in:
        batch = with_body(body, count=count)
        offsets = [each.offset for each in records_of(batch, CorruptData, "test")]
        assert offsets == list(range(count))
