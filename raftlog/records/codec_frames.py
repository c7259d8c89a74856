"""Checks of a compressed records field that need no decompression.

The broker judges a produced batch by its header, since decompressing would cost more than all the
rest. But no client can read a field whose first bytes are not of its codec, so every consumer would
stop at that batch for good. So the broker checks the first bytes, in constant time:

1. The magic and the fixed bits of the frame.
2. The most bytes that a field of this size can decompress to. If readers do not accept that many,
   the heads of its blocks give a closer bound (`raftlog.records.codec_blocks`).

Every framing that Kafka's clients write passes: chained gzip members and zstd frames, lz4 with
linked blocks or a wrong header checksum, snappy raw or in blocks with version numbers of either
byte order. The broker does not check the bytes behind the first ones.
"""

from typing import Final

from raftlog.base.binary import Buffer
from raftlog.base.limits import DECOMPRESSED_BYTES_MAX
from raftlog.base.units import KIB
from raftlog.records.codec_blocks import blocks_bytes_max
from raftlog.records.compression import (
    GZIP,
    LZ4,
    NONE,
    SNAPPY,
    XERIAL_HEADER_BYTES,
    XERIAL_MAGIC,
    ZSTD,
)

_GZIP_MAGIC: Final = b"\x1f\x8b\x08"
_GZIP_RESERVED_FLAGS: Final = 0xE0
_GZIP_BYTES_MIN: Final = 20
"""Header 10, an empty deflate stream 2, trailer 8 (RFC 1952)."""
_GZIP_RATIO_MAX: Final = 1032
"""Deflate: a match of 258 bytes takes two bits (zlib's technical notes)."""
_LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
_LZ4_BYTES_MIN: Final = 11
"""Magic 4, flags 3, end mark 4."""
_LZ4_RATIO_MAX: Final = 255
"""A match grows by 255 bytes for each further byte of its length."""
_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_ZSTD_BYTES_MIN: Final = 9
"""Magic 4, descriptor 1, window or size 1, block header 3 (RFC 8878)."""
_ZSTD_RESERVED_BIT: Final = 0x08
_ZSTD_BLOCK_BYTES: Final = 128 * KIB
_ZSTD_BLOCK_COST: Final = 4
"""A block of one repeated byte: its header and that byte."""
_SNAPPY_GROWTH: Final = (64, 3)
"""A copy of 64 bytes takes three."""
_SNAPPY_OVERHEAD_BYTES: Final = 32
_SNAPPY_OVERHEAD_SHARE: Final = 6
"""No encoder makes more of n bytes than n + n/6 + 32 (snappy's own MaxCompressedLength)."""
_VARINT_BYTES_MAX: Final = 5


def content_bytes_max(codec: int, body: Buffer) -> int | None:
    """The most bytes that `body` can decompress to; None when `body` is not of its codec.

    For raw snappy it is exactly the size that the field declares. No reader accepts a batch of more
    than DECOMPRESSED_BYTES_MAX.
    """
    view = memoryview(body)
    if codec == NONE:
        return len(view)
    found: int | None
    if codec == GZIP:
        found = len(view) * _GZIP_RATIO_MAX if _is_gzip(view) else None
    elif codec == LZ4:
        found = len(view) * _LZ4_RATIO_MAX if _is_lz4(view) else None
    elif codec == ZSTD:
        blocks = len(view) // _ZSTD_BLOCK_COST
        found = blocks * _ZSTD_BLOCK_BYTES if _is_zstd(view) else None
    elif codec == SNAPPY:
        found = _snappy_bytes_max(view)
    else:
        found = None
    if found is None or found <= DECOMPRESSED_BYTES_MAX:
        return found
    return blocks_bytes_max(codec, view)


def _is_gzip(view: memoryview) -> bool:
    return (
        len(view) >= _GZIP_BYTES_MIN
        and bytes(view[:3]) == _GZIP_MAGIC
        and not view[3] & _GZIP_RESERVED_FLAGS
    )


def _is_lz4(view: memoryview) -> bool:
    """Whether an lz4 frame begins here: version 01, no reserved bit, block sizes 4 to 7. The check
    ignores the header's checksum, since old clients wrote a wrong one (KAFKA-3160)."""
    if len(view) < _LZ4_BYTES_MIN or bytes(view[:4]) != _LZ4_MAGIC:
        return False
    flags, block = view[4], view[5]
    return flags >> 6 == 1 and not flags & 0x02 and not block & 0x8F and block >> 4 >= 4


def _is_zstd(view: memoryview) -> bool:
    return (
        len(view) >= _ZSTD_BYTES_MIN
        and bytes(view[:4]) == _ZSTD_MAGIC
        and not view[4] & _ZSTD_RESERVED_BIT
    )


def _snappy_bytes_max(view: memoryview) -> int | None:
    if bytes(view[: len(XERIAL_MAGIC)]) != XERIAL_MAGIC:
        return _declared(view)
    if len(view) < XERIAL_HEADER_BYTES + 4:
        return None
    block_at = XERIAL_HEADER_BYTES + 4
    size = int.from_bytes(view[XERIAL_HEADER_BYTES:block_at], "big", signed=True)
    if not 0 < size <= len(view) - block_at or _declared(view[block_at : block_at + size]) is None:
        return None
    most, per = _SNAPPY_GROWTH
    return len(view) * most // per


def _declared(block: memoryview) -> int | None:
    """The length that a raw snappy block declares, a varint. None when it is longer than a varint
    may be, or the bytes behind it cannot be a block of that length."""
    declared = 0
    for at, byte in enumerate(block[:_VARINT_BYTES_MAX]):
        declared |= (byte & 0x7F) << 7 * at
        if byte < 0x80:
            return declared if _snappy_fits(block, at + 1, declared) else None
    return None


def _snappy_fits(block: memoryview, start: int, declared: int) -> bool:
    """Whether a raw snappy block may decompress to `declared` bytes."""
    # Upper limit: a block of nothing but copies of 64 bytes. Lower limit: an encoder adds little to
    # bytes that it cannot compress. The first element is a literal, since a copy has nothing to
    # repeat yet.
    most, per = _SNAPPY_GROWTH
    packed_max = declared + declared // _SNAPPY_OVERHEAD_SHARE + _SNAPPY_OVERHEAD_BYTES
    return (
        0 < declared <= len(block) * most // per
        and len(block) <= packed_max
        and len(block) > start
        and block[start] & 0x03 == 0
    )
