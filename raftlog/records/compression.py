"""Kafka's compression codecs, every output capped.

A few kilobytes can claim to be gigabytes, and the libraries' own limits cannot be trusted:
zstandard's one-shot call ignores its cap when the frame names a size. So this module drives each
codec in the one way that stops in time, and the broker decompresses nothing before it knows the
sender.

The time is bounded too: it grows only with the bytes that go in and come out. The danger is a batch
that is a chain of many members of a few bytes each. A library that gets all remaining bytes at each
member copies them each time: 4 MB of empty lz4 frames took minutes. So each member gets a window of
the input that begins small and grows.
"""

import zlib
from collections.abc import Iterator
from typing import Final, Protocol

import cramjam
import lz4.frame
import zstandard

from raftlog.base.binary import Buffer
from raftlog.base.errors import RaftlogError
from raftlog.base.limits import DECOMPRESSED_BYTES_MAX
from raftlog.base.units import KIB, MIB

NONE: Final = 0
GZIP: Final = 1
SNAPPY: Final = 2
LZ4: Final = 3
ZSTD: Final = 4
CODEC_NAMES: Final = {"none": NONE, "gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}

ZSTD_WINDOW_MAX: Final = 128 * MIB
"""The largest window that zstd's own decoder allows; its levels 20 to 22 use it."""
_GZIP_WBITS: Final = 31
XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
XERIAL_HEADER_BYTES: Final = 16
_WINDOW_BYTES_MIN: Final = 4 * KIB
"""Input bytes that a member gets first; each later window is four times as large. So a short member
copies few bytes."""
_WINDOW_BYTES_MAX: Final = 64 * KIB
_PIECE_BYTES: Final = 256 * KIB
"""Output bytes of one piece. For snappy, whose library has no cap, a piece is a block."""


class _TooLarge(Exception):
    """The output would pass its cap."""


def compress(codec: int, data: bytes) -> bytes:
    """Compress `data` with `codec` into a form that Kafka's Java and C clients read."""
    if codec == NONE:
        return data
    return _COMPRESS[codec](data)


def decompress(
    codec: int,
    data: Buffer,
    error: type[RaftlogError],
    on: str,
    cap: int = DECOMPRESSED_BYTES_MAX,
) -> Buffer:
    """Decompress `data`; returns `data` itself for NONE.

    Raises `error` for an unknown codec, for bytes that are not of the codec, and for an output
    above `cap` bytes. Memory stays below twice the cap, and time is linear.
    """
    if codec == NONE:
        return data
    pieces = list(expanded(codec, data, error, on, cap))
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def expanded(
    codec: int,
    data: Buffer,
    error: type[RaftlogError],
    on: str,
    cap: int = DECOMPRESSED_BYTES_MAX,
) -> Iterator[bytes]:
    """Decompress `data` piece by piece; no piece is empty. Raises as `decompress`.

    Each piece takes bounded time, except that a chain of empty members takes linear time. Pieces
    before a fault are good."""
    expand = _EXPAND.get(codec)
    if expand is None:
        raise error(f"compression codec {codec} is unknown", on=on)
    left = cap
    try:
        for piece in expand(memoryview(data), cap):
            left -= len(piece)
            if left < 0:
                raise _TooLarge
            if piece:
                yield piece
    except _TooLarge:
        raise error(f"{len(data)} compressed bytes become more than {cap}", on=on) from None
    except _LIBRARY_ERRORS as cause:
        raise error(f"compressed records do not decompress: {cause}", on=on) from None


def _expand_gzip(data: memoryview, cap: int) -> Iterator[bytes]:
    """Decompress gzip; members may be chained."""
    position = 0
    while True:
        member = zlib.decompressobj(_GZIP_WBITS)
        window = _WINDOW_BYTES_MIN
        while not member.eof:
            shown = data[position : position + window]
            if not shown:
                raise ValueError("gzip member is cut short")
            yield member.decompress(shown, _PIECE_BYTES)
            # At the end of a member zlib may put the same bytes into both tails: only one counts.
            tails = (member.unconsumed_tail, member.unused_data)
            position += len(shown) - len(tails[member.eof])
            window = min(4 * window, _WINDOW_BYTES_MAX)
        if position >= len(data):
            return


def _expand_snappy(data: memoryview, cap: int) -> Iterator[bytes]:
    """Decompress snappy: raw, or in the Java library's framing of 16 bytes and then blocks with an
    i32 length each."""
    if bytes(data[: len(XERIAL_MAGIC)]) != XERIAL_MAGIC:
        yield _expand_snappy_block(data, cap)
        return
    position = XERIAL_HEADER_BYTES
    while position < len(data):
        size = int.from_bytes(data[position : position + 4], "big", signed=True)
        position += 4
        if size < 0 or size > len(data) - position:
            raise ValueError(f"snappy block says {size} bytes, {len(data) - position} are left")
        piece = _expand_snappy_block(data[position : position + size], cap)
        cap -= len(piece)
        position += size
        yield piece


def _expand_snappy_block(block: memoryview, cap: int) -> bytes:
    """Decompress one raw snappy block of at most `cap` bytes."""
    # The library has no cap, so the declared length is compared first.
    declared = cramjam.snappy.decompress_raw_len(bytes(block))
    if declared > cap:
        raise _TooLarge
    return bytes(cramjam.snappy.decompress_raw(bytes(block)))


def _expand_lz4(data: memoryview, cap: int) -> Iterator[bytes]:
    """Decompress lz4 in its frame format; frames may be chained."""
    position = 0
    while True:
        frame = lz4.frame.LZ4FrameDecompressor()
        window = _WINDOW_BYTES_MIN
        while not frame.eof:
            if frame.needs_input:
                shown = bytes(data[position : position + window])
                if not shown:
                    raise ValueError("lz4 frame is cut short")
                position += len(shown)
                window = min(4 * window, _WINDOW_BYTES_MAX)
            else:
                shown = b""  # the frame has kept what it had no room for
            yield frame.decompress(shown, max_length=_PIECE_BYTES)
        position -= len(frame.unused_data or b"")
        if position >= len(data):
            return


def _expand_zstd(data: memoryview, cap: int) -> Iterator[bytes]:
    """Decompress zstd; frames may be chained."""
    # Only streaming honours a cap. A frame that is cut short gives fewer bytes and no error; the
    # count of records then shows it.
    decompressor = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW_MAX)
    stream = decompressor.stream_reader(data, read_across_frames=True)
    while piece := stream.read(_PIECE_BYTES):
        yield piece


def _compress_gzip(data: bytes) -> bytes:
    squeezer = zlib.compressobj(wbits=_GZIP_WBITS)
    return squeezer.compress(data) + squeezer.flush()


def _compress_snappy(data: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(data))


def _compress_lz4(data: bytes) -> bytes:
    """Compress with independent blocks and no content size: the Java client reads nothing else."""
    return bytes(lz4.frame.compress(data, block_linked=False, store_size=False))


def _compress_zstd(data: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(data)


class _Expand(Protocol):
    def __call__(self, data: memoryview, cap: int, /) -> Iterator[bytes]: ...


class _Compress(Protocol):
    def __call__(self, data: bytes, /) -> bytes: ...


_EXPAND: Final[dict[int, _Expand]] = {
    GZIP: _expand_gzip,
    SNAPPY: _expand_snappy,
    LZ4: _expand_lz4,
    ZSTD: _expand_zstd,
}
_COMPRESS: Final[dict[int, _Compress]] = {
    GZIP: _compress_gzip,
    SNAPPY: _compress_snappy,
    LZ4: _compress_lz4,
    ZSTD: _compress_zstd,
}
_LIBRARY_ERRORS: Final = (
    ValueError,
    EOFError,
    RuntimeError,
    zlib.error,
    zstandard.ZstdError,
    cramjam.DecompressionError,
)
