"""Headers of produced batches: every fault alone, and the moment valid becomes invalid."""

import gzip
import struct

import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from raftlog.base.limits import BATCH_HEADER_BYTES, DECOMPRESSED_BYTES_MAX
from raftlog.records.batch import CONTROL, LOG_APPEND_TIME, BatchHeader, read_header
from raftlog.records.builder import RecordBatchBuilder
from raftlog.records.compression import CODEC_NAMES, GZIP, LZ4, SNAPPY, ZSTD, compress
from raftlog.records.validate import (
    RECORD_BYTES_MIN,
    BatchFault,
    timestamp_fault,
    validate_produced,
)
from tests.records.making import NOW_MS, changed, plain_batch, with_body

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
    body = compress(ZSTD, bytes(DECOMPRESSED_BYTES_MAX))
    batch = with_body(body, count=most, codec=ZSTD)
    assert isinstance(validate_produced(batch, ROOMY), BatchHeader)
    batch = with_body(body, count=most + 1, codec=ZSTD)
    assert validate_produced(batch, ROOMY) is BatchFault.CROWDED


RATIOS = {"gzip": 1032, "lz4": 255, "zstd": 128 * 1024 / 4, "snappy": 64 / 3}


@pytest.mark.parametrize("codec", RATIOS)
def test_a_count_that_no_batch_of_its_size_can_hold_is_refused(codec):
    """70 bytes said 9.5 million records, and a reader stood before them for good."""
    number = CODEC_NAMES[codec]
    body = compress(number, bytes(50_000))
    held = 50_000 if codec == "snappy" else int(RATIOS[codec] * len(body))
    assert held >= 50_000, "what is there fits"
    fits = 50_000 // RECORD_BYTES_MIN
    for count, fault in ((1, None), (fits, None), (held // RECORD_BYTES_MIN + 1, "CROWDED")):
        found = validate_produced(with_body(body, count=count, codec=number), ROOMY)
        assert getattr(found, "name", None) == fault, (codec, count)


def old_framings():
    """Yields framings that clients write, or wrote: each must pass as long as some reader reads
    it."""
    raw = plain_batch(
        50,
    )[BATCH_HEADER_BYTES:]
    half = len(raw) // 2

    def blocks(order):
        whole = b"\x82SNAPPY\x00" + struct.pack(f"{order}ii", 1, 1)
        for part in (raw[:half], raw[half:]):
            block = compress(SNAPPY, part)
            whole += struct.pack(">i", len(block)) + block
        return whole

    streamed = zstandard.ZstdCompressor(write_content_size=False, write_checksum=True).compressobj()
    broken = bytearray(lz4.frame.compress(raw, store_size=False))
    broken[6] ^= 0xFF
    yield "gzip with a name", GZIP, b"\x1f\x8b\x08\x08" + bytes(6) + b"name\0" + bytes(20)
    yield "gzip of two members", GZIP, gzip.compress(raw[:half]) + gzip.compress(raw[half:])
    yield "gzip that is stored", GZIP, gzip.compress(raw, 0)
    yield "raw snappy", SNAPPY, compress(SNAPPY, raw)
    yield "snappy in blocks", SNAPPY, blocks(">")
    yield "snappy in blocks, versions in the other order", SNAPPY, blocks("<")
    yield "lz4 with linked blocks", LZ4, lz4.frame.compress(raw, block_linked=True)
    yield "lz4 with a wrong header checksum", LZ4, bytes(broken)
    yield "lz4 of two frames", LZ4, lz4.frame.compress(raw[:half]) + lz4.frame.compress(raw[half:])
    yield "zstd of two frames", ZSTD, compress(ZSTD, raw[:half]) + compress(ZSTD, raw[half:])
    yield "zstd that names no size", ZSTD, streamed.compress(raw) + streamed.flush()


OLD = {name: (codec, body) for name, codec, body in old_framings()}


@pytest.mark.parametrize("name", OLD)
def test_framings_of_all_clients_pass(name):
    codec, body = OLD[name]
    found = validate_produced(with_body(body, count=50, codec=codec), ROOMY)
    assert isinstance(found, BatchHeader), found


def bodies_of_no_codec():
    for codec in (GZIP, SNAPPY, LZ4, ZSTD):
        yield codec, b""
        yield codec, b"\x00garbage of no codec at all"
        yield codec, plain_batch(50)[BATCH_HEADER_BYTES:]
        good = compress(codec, plain_batch(50)[BATCH_HEADER_BYTES:])
        if codec != SNAPPY:
            yield codec, b"x" + good
            yield codec, good[:8]
        yield codec, compress({GZIP: LZ4, LZ4: ZSTD, ZSTD: GZIP, SNAPPY: GZIP}[codec], bytes(999))
    yield GZIP, b"\x1f\x8b\x08\xe0" + bytes(30)
    yield LZ4, b"\x04\x22\x4d\x18\x00" + bytes(30)
    yield LZ4, b"\x04\x22\x4d\x18\x40\x30" + bytes(30)
    yield ZSTD, b"\x28\xb5\x2f\xfd\x08" + bytes(30)
    yield SNAPPY, b"\xff\xff\xff\xff\x0f" + b"x" * 50  # declares 4 GiB
    yield SNAPPY, b"\xff\xff\xff\xff\xff\x0f" + b"x" * 50
    yield SNAPPY, b"\x82SNAPPY\x00" + bytes(8)
    yield SNAPPY, b"\x82SNAPPY\x00" + bytes(8) + struct.pack(">i", 99) + b"short"
    yield SNAPPY, b"\x82SNAPPY\x00" + bytes(8) + struct.pack(">i", -1) + bytes(20)


BAD = list(bodies_of_no_codec())


@pytest.mark.parametrize("number", range(len(BAD)))
def test_what_is_not_of_its_codec_is_refused(number):
    codec, body = BAD[number]
    found = validate_produced(with_body(body, count=1, codec=codec), ROOMY)
    assert found is BatchFault.FRAME, (codec, body[:40], found)


@pytest.mark.parametrize("size", [300, 30_000])
def test_raw_snappy_may_declare_what_copies_can_make(size):
    most = (size + 2) * 64 // 3 // 10 * 10
    for declared, fault in ((most, None), (most + 64, BatchFault.FRAME)):
        varint = bytes([declared & 127 | 128, declared >> 7 & 127 | 128, declared >> 14])
        body = varint + bytes(size - 1)
        found = validate_produced(with_body(body, count=1, codec=SNAPPY), ROOMY)
        assert (found if isinstance(found, BatchFault) else None) is fault


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
