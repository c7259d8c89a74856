"""Records inside a batch, read lazily. Only the producer vouches for the inside of a stored batch.

Layout of a record (Kafka protocol guide, "Record"; all varints are zigzag):

    length varint | attributes i8 | timestamp delta varlong | offset delta varint
    key length varint, -1 = null | key | value length varint, -1 = null | value
    header count varint | per header: key length varint | key
                                      value length varint, -1 = null | value

The broker does not look inside the batches that it stores. So this reader checks every length
against the bytes left, and the caller names the error to raise. Records before a fault are good.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple, final

from raftlog.base.binary import Buffer
from raftlog.base.errors import RaftlogError
from raftlog.base.ids import Offset
from raftlog.base.limits import BATCH_HEADER_BYTES, DECOMPRESSED_BYTES_MAX, RECORD_HEADERS_MAX
from raftlog.base.units import WallMillis
from raftlog.records.batch import CODEC_MASK, LOG_APPEND_TIME, BatchHeader, read_header
from raftlog.records.compression import decompress

_VARLONG_SHIFT_MAX: Final = 63
_I64_END: Final = 2**63
_RECORD_HEADER_BYTES_MIN: Final = 2
"""The lengths of its key and its value."""


class RecordHeader(NamedTuple):
    """A header of a record. Bytes of its key that are not UTF-8 become backslash escapes. A null
    key becomes an empty one."""

    key: str
    value: bytes | None


class Record(NamedTuple):
    """One record, with its absolute offset and timestamp."""

    offset: Offset
    timestamp_ms: WallMillis
    key: bytes | None
    value: bytes | None
    headers: tuple[RecordHeader, ...]


def records_of(
    batch: Buffer,
    error: type[RaftlogError],
    on: str,
    *,
    cap: int = DECOMPRESSED_BYTES_MAX,
) -> Iterator[Record]:
    """The records of a whole batch (magic 2, shape and CRC checked by the caller), in order.

    Yields nothing for one of Raft's own entries. Raises `error` where the inside cannot be read:
    wrong lengths, a codec's output, fewer records than the count.

    Everything else is read, as other clients do, since the broker acknowledged it. Offsets may fall
    or leave the batch's range, and a header may have a null key. Bytes behind the last record are
    skipped.
    """
    header = read_header(batch)
    if header.is_raft_entry:
        return
    body = memoryview(batch)[BATCH_HEADER_BYTES : header.size]
    inside = decompress(header.attributes & CODEC_MASK, body, error, on, cap)
    cursor = _Cursor(memoryview(inside), error, on)
    for _ in range(header.records_count):
        yield _read_record(cursor, header)


def _read_record(cursor: "_Cursor", header: BatchHeader) -> Record:
    """The record at the cursor."""
    size = cursor.varint()
    if size < 0 or size > cursor.end - cursor.position:
        raise cursor.fail(f"record of {size} bytes, {cursor.end - cursor.position} are left")
    end = cursor.position + size
    cursor.skip(1)
    timestamp = header.base_timestamp + cursor.varint()
    if header.attributes & LOG_APPEND_TIME:
        timestamp = header.max_timestamp
    elif not -_I64_END <= timestamp < _I64_END:
        # Every client that counts in 64 bits wraps here, and an answer has only 64 bits for it.
        timestamp = (timestamp + _I64_END) % (2 * _I64_END) - _I64_END
    delta = cursor.varint()
    key = cursor.nullable()
    value = cursor.nullable()
    headers = _read_headers(cursor)
    if cursor.position != end:
        raise cursor.fail(f"record ends at {cursor.position}, its length says {end}")
    offset = Offset(header.base_offset + delta)
    if not 0 <= offset < _I64_END:
        raise cursor.fail(f"record of offset {offset}")
    return Record(offset, WallMillis(timestamp), key, value, headers)


def _read_headers(cursor: "_Cursor") -> tuple[RecordHeader, ...]:
    count = cursor.varint()
    if count == 0:
        return ()
    left = (cursor.end - cursor.position) // _RECORD_HEADER_BYTES_MIN
    if count < 0 or count > min(RECORD_HEADERS_MAX, left):
        raise cursor.fail(f"{count} record headers")
    headers: list[RecordHeader] = []
    for _ in range(count):
        key = cursor.nullable() or b""
        headers.append(RecordHeader(key.decode("utf-8", "backslashreplace"), cursor.nullable()))
    return tuple(headers)


@final
class _Cursor:
    """A place in decompressed records; every step is checked against the end."""

    __slots__ = ("_error", "_on", "_view", "end", "position")

    def __init__(self, view: memoryview, error: type[RaftlogError], on: str) -> None:
        self._view = view
        self._error = error
        self._on = on
        self.position = 0
        self.end = len(view)

    def fail(self, what: str) -> RaftlogError:
        return self._error(what, on=f"{self._on}, byte {self.position} of the records")

    def skip(self, size: int) -> None:
        if size > self.end - self.position:
            raise self.fail("record is cut short")
        self.position += size

    def varint(self) -> int:
        """A zigzag varint of at most 64 bits."""
        value = shift = 0
        view, position, end = self._view, self.position, self.end
        while True:
            if position >= end:
                raise self.fail("varint is cut short")
            byte = view[position]
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift > _VARLONG_SHIFT_MAX:
                raise self.fail("varint is longer than 64 bits")
        self.position = position
        return (value >> 1) ^ -(value & 1)

    def nullable(self) -> bytes | None:
        """Bytes with a varint length, -1 for null."""
        size = self.varint()
        if size == -1:
            return None
        if size < 0 or size > self.end - self.position:
            raise self.fail(f"field of {size} bytes, {self.end - self.position} are left")
        start = self.position
        self.position = start + size
        return bytes(self._view[start : self.position])
