"""The most bytes that a compressed field may decompress to, read from the heads of its blocks.

In every codec, each block or the whole frame declares its decompressed size, exactly or at most. A
decoder that finds more refuses the field, so no reader gets more out of it. The walk reads a few
bytes of each block, and never more than CODEC_BLOCKS_MAX blocks.

zstd may split its blocks, and then its "at most" is far too large. In that case the broker
decompresses the field and counts, provided the field is large enough for honest data.

gzip declares a size only at its end, that of the last member. Kafka's clients write one member.
"""

import struct
from typing import Final, final

from raftlog.base.errors import CorruptData
from raftlog.base.limits import CODEC_BLOCKS_MAX, DECOMPRESSED_BYTES_MAX
from raftlog.base.units import KIB
from raftlog.records.compression import (
    GZIP,
    LZ4,
    SNAPPY,
    XERIAL_HEADER_BYTES,
    XERIAL_MAGIC,
    ZSTD,
    ZSTD_WINDOW_MAX,
    expanded,
)

_U32_LITTLE: Final = struct.Struct("<I")
_TOO_MUCH: Final = DECOMPRESSED_BYTES_MAX + 1
_HONEST_RATIO_MAX: Final = 1000

_ZSTD_MAGIC: Final = 0xFD2FB528
_SKIPPABLE_MAGIC: Final = 0x184D2A50
_SKIPPABLE_MASK: Final = 0xFFFFFFF0
_ZSTD_BLOCK_BYTES: Final = 128 * KIB
_ZSTD_RAW: Final = 0
_ZSTD_REPEATED: Final = 1
_ZSTD_COMPRESSED: Final = 2
_LZ4_MAGIC: Final = 0x184D2204
_LZ4_RATIO_MAX: Final = 255


@final
class CheckingCost:
    """The cost of checking compressed fields so far, in array elements of a request.

    The meter of a turn charges the difference. 8 KiB of decompressed bytes, or 16 block heads,
    count as one element: 10 us."""

    __slots__ = ("_sixteenths",)

    def __init__(self) -> None:
        self._sixteenths = 0

    @property
    def items(self) -> int:
        return self._sixteenths // 16

    def decompressed(self, size: int) -> None:
        self._sixteenths += size // 512

    def looked_at(self, heads: int) -> None:
        self._sixteenths += heads


TALLY: Final = CheckingCost()
"""The tally of the broker's loop, the only thread that calls `blocks_bytes_max`."""


class _Ends(Exception):
    """The field ends within a frame, or is of another form than its codec's."""


def blocks_bytes_max(codec: int, body: memoryview) -> int | None:
    """The most bytes that `body` can decompress to; None when its blocks do not fill it.

    Every result above DECOMPRESSED_BYTES_MAX only says that the body is too large."""
    try:
        if codec == GZIP:
            return int(_U32_LITTLE.unpack_from(body, len(body) - 4)[0])
        if codec == SNAPPY:
            return _snappy(body)
        assert codec in (LZ4, ZSTD), codec
        most = _frames(codec, body)
    except (_Ends, struct.error, IndexError):
        return None
    return _counted(codec, body) if most > DECOMPRESSED_BYTES_MAX else most


def _counted(codec: int, body: memoryview) -> int | None:
    """The size of the decompressed `body`, by decompressing it; None when that fails."""
    if len(body) * _HONEST_RATIO_MAX < DECOMPRESSED_BYTES_MAX:
        # Honest data that shrink so much fill their blocks. This field was made to cost time.
        return _TOO_MUCH
    total = 0
    try:
        for piece in expanded(codec, body, CorruptData, "a produced batch", _TOO_MUCH):
            total += len(piece)
            if total > DECOMPRESSED_BYTES_MAX:
                return _TOO_MUCH
    except CorruptData:
        return None
    finally:
        TALLY.decompressed(total)
    return total


def _frames(codec: int, body: memoryview) -> int:
    """The most bytes that a chain of frames can decompress to, skippable frames included."""
    position = total = 0
    budget = CODEC_BLOCKS_MAX
    while position < len(body):
        magic = _u32(body, position)
        budget -= 1
        if magic & _SKIPPABLE_MASK == _SKIPPABLE_MAGIC:
            position += 8 + _u32(body, position + 4)
            continue
        frame = _zstd_frame if codec == ZSTD else _lz4_frame
        position, content, blocks = frame(body, position, budget)
        budget -= blocks
        TALLY.looked_at(blocks)
        total += content
        if total > DECOMPRESSED_BYTES_MAX or budget <= 0:
            return _TOO_MUCH
    if position != len(body):
        raise _Ends
    return total


def _zstd_frame(body: memoryview, start: int, budget: int) -> tuple[int, int, int]:
    """The end of a zstd frame, its decompressed size at most, and its number of blocks.

    See RFC 8878, section 3.1.1."""
    if _u32(body, start) != _ZSTD_MAGIC:
        raise _Ends
    descriptor = body[start + 4]
    size_flag, single, dictionary = descriptor >> 6, descriptor >> 5 & 1, descriptor & 3
    position, window = start + 5, 0
    if not single:
        exponent, mantissa = body[position] >> 3, body[position] & 7
        window = (1 << 10 + exponent) + (1 << 10 + exponent) // 8 * mantissa
        position += 1
    # No Kafka client reads a frame that needs a dictionary or has a larger window.
    if dictionary or window > ZSTD_WINDOW_MAX:
        raise _Ends
    size_bytes = (single, 2, 4, 8)[size_flag]
    declared = int.from_bytes(body[position : position + size_bytes], "little")
    declared += 256 if size_flag == 1 else 0
    position += size_bytes
    block_max = min(_ZSTD_BLOCK_BYTES, declared if single else window)
    content = blocks = 0
    last = False
    while not last and (size_bytes or content <= DECOMPRESSED_BYTES_MAX) and blocks < budget:
        head = int.from_bytes(body[position : position + 3], "little")
        last, kind, size = bool(head & 1), head >> 1 & 3, head >> 3
        if position + 3 > len(body) or kind > _ZSTD_COMPRESSED:
            raise _Ends
        content += block_max if kind == _ZSTD_COMPRESSED else size
        position += 3 + (1 if kind == _ZSTD_REPEATED else size)
        blocks += 1
    if size_bytes:
        content = declared  # the decoder refuses a frame that has another size
    return position + (4 if descriptor & 4 else 0), content, blocks


def _lz4_frame(body: memoryview, start: int, budget: int) -> tuple[int, int, int]:
    """The end of an lz4 frame, its decompressed size at most, and its number of blocks."""
    if _u32(body, start) != _LZ4_MAGIC:
        raise _Ends
    flags, sizes = body[start + 4], body[start + 5]
    block_max = 1 << 8 + 2 * (sizes >> 4 & 7)
    if flags & 1:
        raise _Ends  # a dictionary, which no client of Kafka has
    position, declared = start + 6, None
    if flags & 8:
        declared = int.from_bytes(body[position : position + 8], "little")
        position += 8
    position += 1  # the checksum of the header
    check_bytes = 4 if flags & 16 else 0
    content = blocks = 0
    while (declared is not None or content <= DECOMPRESSED_BYTES_MAX) and blocks < budget:
        head = _u32(body, position)
        position += 4
        if head == 0:
            position += 4 if flags & 4 else 0
            break
        size, plain = head & 0x7FFFFFFF, head >> 31
        content += size if plain else min(block_max, size * _LZ4_RATIO_MAX)
        position += size + check_bytes
        blocks += 1
    return position, content if declared is None else declared, blocks


def _snappy(body: memoryview) -> int:
    """The size that a snappy field declares: raw, or the sum of blocks behind the Java library's
    header."""
    if bytes(body[: len(XERIAL_MAGIC)]) != XERIAL_MAGIC:
        return _declared(body, 0)
    position, total = XERIAL_HEADER_BYTES, 0
    for _ in range(CODEC_BLOCKS_MAX):
        if position == len(body):
            return total
        size = int.from_bytes(body[position : position + 4], "big", signed=True)
        if size <= 0 or position + 4 + size > len(body):
            raise _Ends
        total += _declared(body, position + 4)
        TALLY.looked_at(1)
        if total > DECOMPRESSED_BYTES_MAX:
            break
        position += 4 + size
    return _TOO_MUCH


def _declared(body: memoryview, position: int) -> int:
    value = shift = 0
    while shift < 35:
        byte = body[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value
        position += 1
        shift += 7
    raise _Ends


def _u32(body: memoryview, position: int) -> int:
    return int(_U32_LITTLE.unpack_from(body, position)[0])
