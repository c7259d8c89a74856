"""Kafka's compression codecs, every output capped (KAFKA.md section 4).

A few kilobytes can claim to be gigabytes, and the libraries' own limits cannot be trusted:
zstandard's one-shot call ignores its cap when the frame names a size. So each codec is driven in
the one way that stops in time, and nothing is decompressed before its sender is known.
"""

import zlib
from typing import Final, Protocol

import cramjam
import lz4.frame
import zstandard

from raftlog.base.binary import Buffer
from raftlog.base.errors import RaftlogError
from raftlog.base.limits import (
    DECOMPRESSED_BYTES_FREE,
    DECOMPRESSED_BYTES_MAX,
    DECOMPRESSION_RATIO_MAX,
)
from raftlog.base.units import MIB

NONE: Final = 0
GZIP: Final = 1
SNAPPY: Final = 2
LZ4: Final = 3
ZSTD: Final = 4
CODEC_NAMES: Final = {"none": NONE, "gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}

_ZSTD_WINDOW_MAX: Final = 8 * MIB
_GZIP_WBITS: Final = 31
_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES: Final = 16


class _TooLarge(Exception):
    """The output would pass its cap."""


def output_cap(compressed_bytes: int, cap: int = DECOMPRESSED_BYTES_MAX) -> int:
    """The most that this many compressed bytes may become."""
    return min(cap, max(DECOMPRESSED_BYTES_FREE, compressed_bytes * DECOMPRESSION_RATIO_MAX))


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
    above `output_cap`; memory stays below the cap plus one library buffer.
    """
    if codec == NONE:
        return data
    expand = _EXPAND.get(codec)
    if expand is None:
        raise error(f"compression codec {codec} is unknown", on=on)
    limit = output_cap(len(data), cap)
    try:
        return expand(memoryview(data), limit)
    except _TooLarge:
        raise error(f"{len(data)} compressed bytes become more than {limit}", on=on) from None
    except _LIBRARY_ERRORS as cause:
        raise error(f"compressed records do not decompress: {cause}", on=on) from None


def _expand_gzip(data: memoryview, cap: int) -> bytes:
    """Members may be chained; together they have one cap."""
    output = bytearray()
    rest = bytes(data)
    while True:
        member = zlib.decompressobj(_GZIP_WBITS)
        output += member.decompress(rest, cap + 1 - len(output))
        if len(output) > cap:
            raise _TooLarge
        if not member.eof:
            raise ValueError("gzip member is cut short")
        if not member.unused_data:
            return bytes(output)
        rest = member.unused_data


def _expand_snappy(data: memoryview, cap: int) -> bytes:
    """Raw, or the framing of the Java library: 16 bytes, then blocks with an i32 length each."""
    if bytes(data[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return _expand_snappy_block(data, cap)
    output = bytearray()
    position = _XERIAL_HEADER_BYTES
    while position < len(data):
        size = int.from_bytes(data[position : position + 4], "big", signed=True)
        position += 4
        if size < 0 or size > len(data) - position:
            raise ValueError(f"snappy block says {size} bytes, {len(data) - position} are left")
        output += _expand_snappy_block(data[position : position + size], cap - len(output))
        position += size
    return bytes(output)


def _expand_snappy_block(block: memoryview, cap: int) -> bytes:
    """The library has no cap, so the length that the block declares is read and judged first."""
    declared = cramjam.snappy.decompress_raw_len(bytes(block))
    if declared > cap:
        raise _TooLarge
    return bytes(cramjam.snappy.decompress_raw(bytes(block)))


def _expand_lz4(data: memoryview, cap: int) -> bytes:
    """Frame format only; frames may be chained."""
    output = bytearray()
    rest = bytes(data)
    while True:
        frame = lz4.frame.LZ4FrameDecompressor()
        output += frame.decompress(rest, max_length=cap + 1 - len(output))
        if len(output) > cap:
            raise _TooLarge
        if not frame.eof:
            raise ValueError("lz4 frame is cut short")
        if not frame.unused_data:
            return bytes(output)
        rest = frame.unused_data


def _expand_zstd(data: memoryview, cap: int) -> bytes:
    """Streaming is the only way that honours a cap; a cut frame shows as fewer bytes, which the
    count of records then notices."""
    decompressor = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_MAX)
    with decompressor.stream_reader(data, read_across_frames=True) as stream:
        output = stream.read(cap + 1)
    if len(output) > cap:
        raise _TooLarge
    return output


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
    def __call__(self, data: memoryview, cap: int, /) -> bytes: ...


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
