"""One bound for what a batch may become: enforced where it enters, and kept by every reader.

The story: a broker took 8 MB of zeros under zstd, 282 bytes, and acknowledged them. Our client, the
command line and Spark took them for a bomb, for they had a bound of their own.
"""

import random

import lz4.frame
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from raftlog.base.errors import CorruptData
from raftlog.base.limits import DECOMPRESSED_BYTES_MAX
from raftlog.records import codec_blocks
from raftlog.records.codec_blocks import blocks_bytes_max
from raftlog.records.codec_frames import content_bytes_max
from raftlog.records.compression import GZIP, LZ4, SNAPPY, ZSTD, compress, decompress
from raftlog.records.record import records_of
from raftlog.records.validate import BatchFault, validate_produced
from tests.records.making import with_body
from tests.records.test_record import record

CODECS = {"gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}


def xerial(*blocks):
    framed = b"\x82SNAPPY\x00" + (1).to_bytes(4, "big") * 2
    for block in blocks:
        squeezed = compress(SNAPPY, block)
        framed += len(squeezed).to_bytes(4, "big") + squeezed
    return framed


def lz4_streamed(data, **options):
    with lz4.frame.LZ4FrameCompressor(**options) as squeezer:
        return squeezer.begin() + squeezer.compress(data) + squeezer.flush()


def zstd_streamed(data, level=3, **options):
    squeezer = zstandard.ZstdCompressor(level=level, **options).compressobj()
    return squeezer.compress(data) + squeezer.flush()


WRITERS = {
    "gzip": (GZIP, lambda data: compress(GZIP, data)),
    "snappy": (SNAPPY, lambda data: compress(SNAPPY, data)),
    "snappy in blocks": (SNAPPY, lambda data: xerial(data[:7], data[7:]) if data[7:] else None),
    "lz4": (LZ4, lambda data: compress(LZ4, data)),
    "lz4 streamed": (LZ4, lz4_streamed),
    "lz4 with checksums and its size": (
        LZ4,
        lambda data: lz4.frame.compress(
            data, content_checksum=True, block_checksum=True, store_size=True, block_size=5
        ),
    ),
    "zstd": (ZSTD, lambda data: compress(ZSTD, data)),
    "zstd streamed": (ZSTD, zstd_streamed),
    "zstd with a checksum, split": (
        ZSTD,
        lambda data: zstd_streamed(data, level=19, write_checksum=True),
    ),
    "zstd twice, with a skippable frame": (
        ZSTD,
        lambda data: (
            compress(ZSTD, data[:5]) + b"\x5a\x2a\x4d\x18\x03\0\0\0xyz" + zstd_streamed(data[5:])
        ),
    ),
}
DATA = st.one_of(
    st.binary(min_size=1, max_size=300),
    st.tuples(st.integers(1, 600_000), st.integers(0, 255)).map(
        lambda pair: bytes([pair[1]]) * pair[0]
    ),
    st.tuples(st.integers(1, 300_000), st.integers(0, 9)).map(
        lambda pair: random.Random(pair[1]).randbytes(pair[0] // 9) * 9
    ),
)


@pytest.mark.parametrize("writer", WRITERS)
@given(data=DATA)
@settings(max_examples=15)
def test_what_a_writer_made_is_bounded_from_above_and_read(writer, data):
    codec, squeeze = WRITERS[writer]
    field = squeeze(data)
    if field is None:
        return
    most = blocks_bytes_max(codec, memoryview(field))
    assert most is not None
    assert len(data) <= most
    if writer in ("gzip", "snappy", "zstd", "lz4 with checksums and its size"):
        assert most == len(data)
    assert bytes(decompress(codec, field, CorruptData, "test")) == data


@pytest.mark.parametrize("writer", WRITERS)
def test_every_cut_field_is_refused_or_bounded(writer):
    codec, squeeze = WRITERS[writer]
    data = random.Random(1).randbytes(300) * 3
    field = squeeze(data)
    if writer.startswith(("zstd", "lz4")):
        for size in range(len(field)):
            most = blocks_bytes_max(codec, memoryview(field)[:size])
            assert most is None or most < len(data) or size == 0 or writer.startswith("zstd twice")


@given(st.sampled_from(sorted(CODECS.values())), st.binary(min_size=4, max_size=200))
def test_whatever_the_bytes_are_it_never_raises(codec, field):
    for magic in (b"", b"\x28\xb5\x2f\xfd", b"\x04\x22\x4d\x18", b"\x82SNAPPY\x00" + bytes(8)):
        most = blocks_bytes_max(codec, memoryview(magic + field))
        assert most is None or most >= 0


def batch_of_size(codec, size):
    """A batch whose records are `size` bytes when decompressed."""
    value = bytes(size - 30)
    body = record(0, 0, -1, len(value), value, 0)
    body = record(0, 0, -1, len(value) + size - len(body), bytes(len(value) + size - len(body)), 0)
    assert len(body) == size
    return with_body(compress(codec, body), count=1, codec=codec)


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
def test_the_bound_is_the_readers(codec):
    """At the bound a batch enters and is read; a byte more does not enter."""
    fits = batch_of_size(codec, DECOMPRESSED_BYTES_MAX)
    assert not isinstance(validate_produced(fits, len(fits)), BatchFault)
    (kept,) = records_of(fits, CorruptData, "test")
    assert len(kept.value) > DECOMPRESSED_BYTES_MAX - 40
    swells = batch_of_size(codec, DECOMPRESSED_BYTES_MAX + 1)
    assert validate_produced(swells, len(swells)) is BatchFault.SWELLS
    with pytest.raises(CorruptData, match="become more than"):
        list(records_of(swells, CorruptData, "test"))


def test_split_blocks_are_counted_when_the_field_is_large_enough_for_honest_data(monkeypatch):
    """zstd's blocks say 128 KiB each at most; a field of many small ones is counted exactly."""
    chooser = random.Random(7)
    pieces = [chooser.randbytes(60) * 4 for _ in range(1_200)]
    field = b"".join(map(zstd_streamed, pieces))
    size = sum(map(len, pieces))
    assert content_bytes_max(ZSTD, field) == size
    counted = []
    expanded = codec_blocks.expanded
    monkeypatch.setattr(
        codec_blocks, "expanded", lambda *args: counted.append(args) or expanded(*args)
    )
    small = b"".join(map(zstd_streamed, [b"abcabcabcabcabcabcd" * 2] * 600))
    assert len(small) * 1000 < DECOMPRESSED_BYTES_MAX
    assert content_bytes_max(ZSTD, small) > DECOMPRESSED_BYTES_MAX
    assert not counted


def test_a_window_of_zstds_highest_levels_is_read():
    """Levels 20 to 22 ask for 128 MiB when the writer does not tell the size."""
    data = random.Random(3).randbytes(1000) * 50
    field = zstd_streamed(data, level=22)
    assert content_bytes_max(ZSTD, field) >= len(data)
    assert bytes(decompress(ZSTD, field, CorruptData, "test")) == data
    wide = bytearray(field)
    wide[5] = (28 - 10) << 3
    assert blocks_bytes_max(ZSTD, memoryview(bytes(wide))) is None


@pytest.mark.parametrize("blocks", [3, 4, 5])
def test_a_walk_takes_a_bounded_number_of_blocks(monkeypatch, blocks):
    """Empty raw blocks have three bytes each. Behind the bound the field is held for too large."""
    monkeypatch.setattr(codec_blocks, "CODEC_BLOCKS_MAX", 5)  # a frame counts as one more
    frame = b"\x28\xb5\x2f\xfd\x00\x58" + b"\0\0\0" * (blocks - 1) + b"\x01\0\0"
    most = blocks_bytes_max(ZSTD, memoryview(frame))
    assert most == (0 if blocks < 4 else DECOMPRESSED_BYTES_MAX + 1)
