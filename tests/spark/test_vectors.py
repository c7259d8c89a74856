"""The fast decoders and the plain one are one decoder: equal rows, equal errors, bit for bit."""

import struct

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftlog.base.errors import CorruptData
from raftlog.records.compression import GZIP, compress
from raftlog.spark.decoding import chains, compiled, plain, vectors
from raftlog.spark.decoding.chains import Odd
from raftlog.spark.decoding.columns import COLUMNS, HEADERS, ColumnsWanted
from tests.records.making import changed, with_body
from tests.spark.batches import COUNT_AT, built, by_hand, record

ALL = (*COLUMNS, HEADERS)
EVERYTHING = ColumnsWanted("orders", 3, ALL, 0, 2**62)

texts = st.binary(max_size=12)
long_texts = st.one_of(st.none(), texts, st.integers(60, 300).map(lambda size: b"v" * size))
headers = st.lists(st.tuples(st.text(max_size=5), st.none() | texts), max_size=3)
records = st.tuples(st.integers(-1, 2**48), st.none() | texts, long_texts, headers)
plain_batches = st.lists(records, min_size=1, max_size=40)


@st.composite
def logs(draw):
    """Batches of one partition, back to back, with every codec, some by append time."""
    found, base = [], draw(st.integers(0, 2**40))
    for _ in range(draw(st.integers(1, 5))):
        rows = draw(plain_batches)
        stamp = draw(st.none() | st.integers(0, 2**45))
        found.append(built(rows, base=base, codec=draw(st.integers(0, 4)), append_time=stamp))
        base += len(rows) + draw(st.sampled_from([0, 0, 7]))
    return found


def outcome(decode, batches, wanted):
    """The rows, or the error with its text."""
    try:
        found = decode(batches, wanted)
    except CorruptData as error:
        return str(error)
    found.validate(full=True)
    return found


def agree(batches, wanted=EVERYTHING):
    """Compare all decoders, with headers and also without, since the compiled one leaves headers to
    another."""
    slow = outcome(plain.decode, batches, wanted)
    _same(slow, outcome(vectors.decode, batches, wanted))
    _same(slow, outcome(compiled.decode, batches, wanted))
    fewer = wanted._replace(columns=tuple(name for name in wanted.columns if name != HEADERS))
    if fewer.columns:
        _same(outcome(plain.decode, batches, fewer), outcome(compiled.decode, batches, fewer))
    return slow


def _same(slow, fast):
    if isinstance(slow, str) or isinstance(fast, str):
        assert slow == fast
    else:
        assert slow.schema.equals(fast.schema)
        assert fast.equals(slow)


@given(logs())
def test_all_read_the_same(batches):
    assert agree(batches).num_rows > 0


@given(logs())
def test_the_fast_way_is_taken_for_all_that_producers_write(batches):
    headers = [vectors.read_header(batch) for batch in batches]
    assert vectors._decode(batches, headers, EVERYTHING, "t").num_rows > 0


@given(logs(), st.integers(-5, 60), st.integers(0, 80), st.sets(st.sampled_from(ALL), min_size=1))
def test_ranges_and_fewer_columns(batches, skip, take, names):
    first = max(0, vectors.read_header(batches[0]).base_offset + skip)
    columns = tuple(name for name in ALL if name in names)
    found = agree(batches, ColumnsWanted("t", 0, columns, first, first + take))
    assert found.num_rows <= take
    assert found.schema.names == list(columns)


@given(logs(), st.data())
def test_spoilt_bytes_are_judged_alike(batches, data):
    """In any of the batches, or in several: the first lie in the order of the log is told."""
    for _ in range(data.draw(st.integers(1, 3))):
        number = data.draw(st.integers(0, len(batches) - 1))
        batch = bytearray(batches[number])
        at = data.draw(st.integers(61, len(batch) - 1))
        batch[at] = data.draw(st.sampled_from([0, 1, 2, 3, 0x7F, 0x80, 0xFF, 200]))
        batches[number] = bytes(batch)
    agree(batches)


@given(logs(), st.integers(-3, 2**31 - 1))
def test_a_lying_count_is_judged_alike(batches, count):
    batch = bytearray(batches[0])
    struct.pack_into(">i", batch, COUNT_AT, count)
    batches[0] = bytes(batch)
    agree(batches)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=30), st.booleans())
def test_compacted_batches_keep_their_gaps(steps, keep_end):
    deltas = [sum(steps[: at + 1]) for at in range(len(steps))]
    body = b"".join(record(delta, value=b"%d" % delta) for delta in deltas)
    last = deltas[-1] + (0 if keep_end else 5)
    found = agree([by_hand(body, count=len(deltas), last_delta=last, base=100)])
    assert found.column("offset").to_pylist() == [100 + delta for delta in deltas]


def test_an_empty_batch_has_no_rows():
    one = record(0, value=b"v")
    batches = [
        by_hand(one, count=1, last_delta=0, base=0),
        by_hand(b"", count=0, last_delta=4, base=1),
        by_hand(one, count=1, last_delta=0, base=6),
    ]
    assert agree(batches).column("offset").to_pylist() == [0, 6]
    assert agree(batches[1:2]).num_rows == 0


@pytest.mark.parametrize(
    ("body", "count", "last_delta", "offsets"),
    [
        (record(1) + record(0), 2, 1, [1, 0]),
        (record(0) + record(0), 2, 1, [0, 0]),
        (record(0) + record(5), 2, 1, [0, 5]),
        (record(0) + b"\0", 1, 0, [0]),
        (record(0) + record(1), 1, 1, [0]),
    ],
)
def test_what_a_broker_takes_is_read_by_both(body, count, last_delta, offsets):
    """As confluent-kafka reads it, and as our client does."""
    found = agree([by_hand(body, count=count, last_delta=last_delta)])
    assert not isinstance(found, str)
    assert found.column("offset").to_pylist() == offsets


@pytest.mark.parametrize(
    ("body", "count", "last_delta"),
    [
        (record(-1), 1, 0),
        (record(0)[:-1], 1, 0),
        (b"\x01" + record(0), 2, 1),
        (b"\xff" * 12, 1, 0),
        (b"", 1, 0),
        (record(0, key=b"k")[:-4] + b"\x7f\0\0\0", 1, 0),
    ],
)
def test_what_lies_inside_a_batch_is_refused_by_both(body, count, last_delta):
    batch = by_hand(body, count=count, last_delta=last_delta)
    assert isinstance(agree([batch]), str)


def test_odd_but_legal_bytes_are_read():
    overlong = b"\x8c\x80\x80\x80\x80\0" + record(0)[1:]  # six bytes for a small length
    found = agree([by_hand(overlong, count=1, last_delta=0)])
    assert found.num_rows == 1
    found = agree([by_hand(record(0, headers=[(b"\xff", None)]), count=1, last_delta=0)])
    assert found.column("headers").to_pylist() == [[{"key": "\\xff", "value": None}]]


def test_a_timestamp_that_spark_cannot_hold_is_named_unless_left_out():
    batch = by_hand(record(0, timestamp_delta=2**60), count=1, last_delta=0)
    assert "timestamp" in agree([batch])
    assert agree([batch], EVERYTHING._replace(columns=("offset", "value"))).num_rows == 1


def test_control_batches_have_no_rows():
    marker = bytearray(by_hand(record(0, key=b"\0\0\0\1"), count=1, last_delta=0))
    struct.pack_into(">h", marker, 21, 0x20)
    data = built([(5, b"k", b"v", ())], base=1)
    assert agree([bytes(marker), data]).column("offset").to_pylist() == [1]
    assert agree([bytes(marker)]).num_rows == 0


def test_large_batches_and_small_ones_together():
    large = [(at, b"key%d" % (at % 7), b"x" * (at % 300), ()) for at in range(3000)]
    batches = [built(large, base=0), built(large[:3], base=3000), built(large, base=3003, codec=4)]
    found = agree(batches)
    assert found.num_rows == 6003
    assert found.column("offset").to_pylist() == list(range(6003))


@given(st.data())
def test_large_batches_are_cut_and_nobody_notices(data):
    """Values that are records themselves, so that a false beginning is believed now and then."""
    trap = b"".join(record(delta, value=b"trap") for delta in range(1, 9))
    sizes = data.draw(st.lists(st.integers(0, 250), min_size=3, max_size=9))
    traps = data.draw(st.sampled_from([0, 5, 40]))
    rows = [
        (at * 1000, None, trap if traps and at % traps == 0 else b"v" * sizes[at % len(sizes)], ())
        for at in range(data.draw(st.integers(500, 1500)))
    ]
    assert agree([built(rows), built(rows[:300], base=len(rows))]).num_rows == len(rows) + 300


def test_a_large_batch_is_cut_where_records_begin():
    rows = [(at, b"key", b"x" * 90, ()) for at in range(5000)]
    batch = built(rows)
    body = np.frombuffer(batch[61:] + bytes(chains.PAD_BYTES), dtype=np.uint8)
    one = np.array([len(batch) - 61]), np.array([5000])
    whole = chains._Chains(np.array([0]), *one)
    cut = chains._cut(body, whole)
    assert len(cut.begins) == 5000 // chains.PIECE_RECORDS
    assert cut.counts.sum() == 5000
    assert np.array_equal(chains._confirmed(body, cut), chains._confirmed(body, whole))


def test_null_is_not_empty():
    rows = [(1, None, None, ()), (1, b"", b"", ()), (1, None, b"v", ())]
    found = agree([built(rows)])
    assert found.column("key").to_pylist() == [None, b"", None]
    assert found.column("value").to_pylist() == [None, b"", b"v"]
    assert found.column("headers").null_count == 3


def test_the_schema_is_what_spark_expects():
    types = pytest.importorskip("pyspark.sql.pandas.types")
    source = pytest.importorskip("raftlog.spark.connector.source")
    fields = [source.StructField(name, source.SQL_TYPES[name]) for name in ALL]
    schema = types.to_arrow_schema(source.StructType(fields), timezone="UTC")
    assert schema.equals(agree([built([(1, b"k", b"v", [("h", b"x")])])]).schema)
    assert isinstance(schema, pa.Schema)


def test_the_fast_way_gives_up_on_what_it_does_not_understand():
    headers = [vectors.read_header(by_hand(record(0) + b"\0", count=1, last_delta=0))]
    with pytest.raises(Odd):
        vectors._decode(
            [by_hand(record(0) + b"\0", count=1, last_delta=0)], headers, EVERYTHING, "t"
        )


@pytest.mark.parametrize("decoder", [plain, vectors, compiled])
@pytest.mark.parametrize("columns", [EVERYTHING.columns, ("value",), ("offset", "timestamp")])
def test_a_batch_that_cannot_be_read_is_an_error_or_is_skipped(decoder, columns):
    """One poisoned batch stopped every query over its topic for good."""
    wanted = EVERYTHING._replace(columns=columns)
    good = [built([(1, b"k", b"v", [])] * 3, base=base, codec=1) for base in (0, 9)]
    body = bytearray(compress(GZIP, bytes(300)))
    body[15:20] = b"12345"
    bad = changed(with_body(bytes(body), count=6, codec=GZIP), base_offset=3)
    batches = [good[0], bad, good[1]]
    with pytest.raises(CorruptData, match="decompress"):
        decoder.decode(batches, wanted)
    skipping = wanted._replace(skip_corrupt=True)
    with pytest.warns(UserWarning, match="skipped offsets 3 to 8"):
        found = decoder.decode(batches, skipping)
    assert found.equals(plain.decode(good, wanted))
