"""Kafka's compression codecs, every output capped.

A few kilobytes can claim to be gigabytes, and the libraries' own limits cannot be trusted:
zstandard's one-shot call ignores its cap when the frame names a size. So each codec is driven in
the one way that stops in time, and nothing is decompressed before its sender is known.

The time is bounded too: it grows with the bytes that go in and the bytes that come out, whatever
they are. A batch may be a chain of many members of a few bytes each. A library that is shown all
that is left at each of them copies it each time: 4 MB of empty lz4 frames took minutes. So a member
is shown a window that begins small and grows.
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
"""What zstd's own decoder allows, and its levels 20 to 22 ask for."""
_GZIP_WBITS: Final = 31
XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
XERIAL_HEADER_BYTES: Final = 16
_WINDOW_BYTES_MIN: Final = 4 * KIB
"""What a member is shown at first, then four times as much: few bytes to copy for a short one."""
_WINDOW_BYTES_MAX: Final = 64 * KIB
_PIECE_BYTES: Final = 256 * KIB
"""What comes out at a time; for snappy, whose library has no cap, a block."""


class _TooLarge(Exception):
    """The output would pass its cap."""


def compress(codec: int, data: bytes) -> bytes:
    """`data` under `codec`, as Kafka's Java and C clients read it."""
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
    """What `data` was before `codec`; a view of `data` itself for NONE.

    Raises `error` for an unknown codec, for bytes that are not of the codec, and for an output
    above `cap`; memory stays below twice the cap, time is linear.
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
    """The same in pieces, none of them empty; each is found in bounded time but for chains of empty
    members, which are linear. What came before a fault is good."""
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
    """Members may be chained."""
    position = 0
    while True:
        member = zlib.decompressobj(_GZIP_WBITS)
        window = _WINDOW_BYTES_MIN
        while not member.eof:
            shown = data[position : position + window]
            if not shown:
                raise ValueError("gzip member is cut short")
            yield member.decompress(shown, _PIECE_BYTES)
            # At the end of a member zlib may put the same bytes into both: one of them counts.
            tails = (member.unconsumed_tail, member.unused_data)
            position += len(shown) - len(tails[member.eof])
            window = min(4 * window, _WINDOW_BYTES_MAX)
        if position >= len(data):
            return


def _expand_snappy(data: memoryview, cap: int) -> Iterator[bytes]:
    """Raw, or the framing of the Java library: 16 bytes, then blocks with an i32 length each."""
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
    """The library has no cap, so the length that the block declares is read and judged first."""
    declared = cramjam.snappy.decompress_raw_len(bytes(block))
    if declared > cap:
        raise _TooLarge
    return bytes(cramjam.snappy.decompress_raw(bytes(block)))


def _expand_lz4(data: memoryview, cap: int) -> Iterator[bytes]:
    """Frame format only; frames may be chained."""
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
    """Streaming is the only way that honours a cap; a cut frame shows as fewer bytes, which the
    count of records then notices."""
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
    """Independent blocks and no content size: the Java client reads nothing else."""
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
