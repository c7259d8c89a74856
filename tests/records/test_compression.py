"""Codecs and their caps: round trips, other people's framings, bombs, rubbish."""

import contextlib
import gzip
import io
import random
import tracemalloc
import zlib

import cramjam
import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from raftlog.base.errors import CorruptData, ProtocolError
from raftlog.base.limits import DECOMPRESSED_BYTES_MAX
from raftlog.records.compression import (
    CODEC_NAMES,
    GZIP,
    LZ4,
    NONE,
    SNAPPY,
    ZSTD,
    compress,
    decompress,
    expanded,
)

REAL = [GZIP, SNAPPY, LZ4, ZSTD]
BOMB_BYTES = 300 * 1024 * 1024


def expand(codec, data, **options):
    return bytes(decompress(codec, data, ProtocolError, "test", **options))


@pytest.mark.parametrize("codec", CODEC_NAMES.values())
@given(data=st.binary(max_size=2000))
def test_round_trip(codec, data):
    assert expand(codec, compress(codec, data)) == data
    assert expand(codec, memoryview(bytearray(compress(codec, data)))) == data


def test_no_codec_is_no_copy():
    view = memoryview(b"abc")
    assert decompress(NONE, view, ProtocolError, "test") is view


@pytest.mark.parametrize("codec", [5, 6, 7, -1])
def test_unknown_codec(codec):
    with pytest.raises(CorruptData, match="unknown"):
        decompress(codec, b"abc", CorruptData, "test")


def zeros_in_pieces(total):
    piece = bytes(1 << 20)
    for _ in range(total // len(piece)):
        yield piece


def gzip_bomb():
    squeezer = zlib.compressobj(level=9, wbits=31)
    return b"".join(map(squeezer.compress, zeros_in_pieces(BOMB_BYTES))) + squeezer.flush()


def lz4_bomb():
    squeezer = lz4.frame.LZ4FrameCompressor()
    parts = [squeezer.begin()]
    parts += [squeezer.compress(piece) for piece in zeros_in_pieces(BOMB_BYTES)]
    return b"".join([*parts, squeezer.flush()])


def zstd_bomb(*, sized):
    squeezer = zstandard.ZstdCompressor(level=3)
    sink = io.BytesIO()
    options = {"size": BOMB_BYTES} if sized else {}
    with squeezer.stream_writer(sink, closefd=False, **options) as stream:
        for piece in zeros_in_pieces(BOMB_BYTES):
            stream.write(piece)
    return sink.getvalue()


def varint(value):
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])


def xerial(*blocks):
    head = b"\x82SNAPPY\x00" + (1).to_bytes(4, "big") * 2
    return head + b"".join(len(block).to_bytes(4, "big") + block for block in blocks)


def snappy_blocks_bomb():
    block = bytes(cramjam.snappy.compress_raw(bytes(1 << 20)))
    return xerial(*[block] * (BOMB_BYTES >> 20))


BOMBS = {
    "gzip": (GZIP, gzip_bomb),
    "gzip, chained members": (GZIP, lambda: gzip.compress(bytes(8 << 20)) * 40),
    "lz4": (LZ4, lz4_bomb),
    "lz4, chained frames": (LZ4, lambda: lz4.frame.compress(bytes(8 << 20)) * 40),
    "zstd that names its size": (ZSTD, lambda: zstd_bomb(sized=True)),
    "zstd that does not": (ZSTD, lambda: zstd_bomb(sized=False)),
    "snappy that lies about its size": (SNAPPY, lambda: varint(2**32 - 1) + bytes(64)),
    "snappy in blocks": (SNAPPY, snappy_blocks_bomb),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_within_bounds(name):
    """Memory must stay near the cap, or a few kilobytes from a client would end the process."""
    codec, make = BOMBS[name]
    bomb = make()
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError):
            expand(codec, bomb)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2 * DECOMPRESSED_BYTES_MAX + (8 << 20)


@pytest.mark.parametrize("codec", REAL)
def test_the_cap_is_exact(codec):
    squeezed = compress(codec, bytes(10_000))
    assert len(expand(codec, squeezed, cap=10_000)) == 10_000
    with pytest.raises(ProtocolError, match="more than 9999"):
        expand(codec, squeezed, cap=9_999)


@pytest.mark.parametrize("codec", [GZIP, LZ4, ZSTD])
def test_no_output_is_judged_by_its_ratio(codec):
    """8 MB of zeros under zstd have 282 bytes: a broker took them, and no reader of ours did."""
    data = bytes(8_000_000)
    assert expand(codec, compress(codec, data)) == data


@pytest.mark.parametrize("codec", [GZIP, LZ4])
def test_chained_frames_are_one_stream(codec):
    assert expand(codec, compress(codec, b"ab") + compress(codec, b"cd")) == b"abcd"


def test_snappy_framing_of_the_java_library():
    blocks = [bytes(cramjam.snappy.compress_raw(part)) for part in (b"left ", b"right")]
    assert expand(SNAPPY, xerial(*blocks)) == b"left right"
    for lie in (b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x00"):
        with pytest.raises(ProtocolError):
            expand(SNAPPY, xerial(*blocks) + lie)


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4])
def test_every_truncation_is_refused(codec):
    squeezed = compress(codec, bytes(range(256)) * 3)
    for size in range(len(squeezed)):
        with pytest.raises(ProtocolError):
            expand(codec, squeezed[:size])


def test_a_truncated_zstd_frame_never_gives_more_than_there_was():
    data = bytes(range(256)) * 3
    squeezed = compress(ZSTD, data)
    for size in range(len(squeezed)):
        try:
            assert data.startswith(expand(ZSTD, squeezed[:size]))
        except ProtocolError:
            continue


@pytest.mark.parametrize("codec", REAL)
@given(data=st.binary(max_size=300))
def test_rubbish_raises_only_the_named_error(codec, data):
    with contextlib.suppress(ProtocolError):
        expand(codec, data)


class Shown:
    """Counts the bytes that decompressors of one library are shown."""

    def __init__(self, make) -> None:
        self.make = make
        self.shown = 0

    def __call__(self, *arguments):
        real, count = self.make(*arguments), self

        class Counting:
            def __getattr__(self, name):
                return getattr(real, name)

            def decompress(self, data, *arguments, **options):
                count.shown += len(data)
                return real.decompress(data, *arguments, **options)

        return Counting()


@pytest.mark.parametrize(
    ("codec", "library", "maker"),
    [(GZIP, zlib, "decompressobj"), (LZ4, lz4.frame, "LZ4FrameDecompressor")],
)
@pytest.mark.parametrize("member", [b"", b"x" * 20_000], ids=["empty", "full"])
def test_a_chain_of_members_is_read_in_linear_time(codec, library, maker, member, monkeypatch):
    """Each member was shown all that was left: a million bytes of empty members took minutes, and
    held up every other look-up and read of the broker."""
    members = 4_000 if not member else 100
    chain = compress(codec, member) * members
    counting = Shown(getattr(library, maker))
    monkeypatch.setattr(library, maker, counting)
    assert len(expand(codec, chain)) == len(member) * members
    assert counting.shown <= members * 4096 + 5 * len(chain)


@pytest.mark.parametrize("codec", REAL)
@given(
    made=st.lists(st.tuples(st.integers(0, 700_000), st.booleans()), min_size=1, max_size=4),
    seed=st.integers(0, 2**32),
)
def test_members_of_any_size_come_out_whole(codec, made, seed):
    draw = random.Random(seed)
    parts = [draw.randbytes(size) if rough else bytes(size) for size, rough in made]
    if codec == SNAPPY:
        squeezed = xerial(*[compress(SNAPPY, part) for part in parts])
    else:
        squeezed = b"".join(compress(codec, part) for part in parts)
    pieces = list(expanded(codec, squeezed, ProtocolError, "test"))
    assert b"".join(pieces) == b"".join(parts)
    assert all(pieces)


def test_lz4_frames_are_what_the_java_client_reads():
    """It refuses linked blocks: bit 5 of the flag byte must say that blocks are independent."""
    assert compress(LZ4, b"abc")[4] & 0x20
