"""The header of a v2 record batch: view, patch, and the walk over batches that lie back to back.

Layout (big-endian; Kafka protocol guide, "Record Batch"):

    0  base offset i64 (patched)     27  base timestamp i64
    8  batch length i32 (size - 12)  35  max timestamp i64
    12 leader epoch i32 (patched)    43  producer id i64
    16 magic i8 = 2                  51  producer epoch i16
    17 crc u32 (CRC-32C of 21..end)  53  base sequence i32
    21 attributes i16                57  records count i32
    23 last offset delta i32         61  records, or their compressed form

The leader changes only base offset and leader epoch; both lie outside the CRC.
"""

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from raftlog.base.binary import Buffer
from raftlog.base.checksum import crc32c
from raftlog.base.entries import Entry, EntryKind
from raftlog.base.errors import FutureFormat, RaftlogError
from raftlog.base.ids import Offset, RaftIndex, Term
from raftlog.base.limits import BATCH_BYTES_MAX, BATCH_HEADER_BYTES
from raftlog.base.units import WallMillis

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
LENGTH_OVERHEAD: Final = 12
CRC_FROM: Final = 21
MAGIC: Final = 2
PAYLOAD_VERSION: Final = 1
"""The version of the payloads of Raft's own entries (`control`)."""

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
DELETE_HORIZON: Final = 0x40

_PLACE: Final = struct.Struct(">qiib4xhi")
"""The header fields of an entry: base offset, length, epoch, magic, attributes, last offset delta.
"""
_SIZE_AND_CRC: Final = struct.Struct(">8xi5xI")
_I64: Final = struct.Struct(">q")
_I32: Final = struct.Struct(">i")
_U32: Final = struct.Struct(">I")
_I16: Final = struct.Struct(">h")
_LENGTH_AT: Final = 8
_EPOCH_AT: Final = 12
_CRC_AT: Final = 17
_ATTRIBUTES_AT: Final = 21
_MAX_TIMESTAMP_AT: Final = 35
_PRODUCER_ID_AT: Final = 43
_KIND_AT: Final = BATCH_HEADER_BYTES
_ZERO_WIDTH: Final = -1
_KIND_MAX: Final = max(EntryKind)
_RECORDS: Final = EntryKind.RECORDS  # in CPython 3.11 an Enum member costs 16 times a global name

assert HEADER.size == BATCH_HEADER_BYTES


class BatchHeader(NamedTuple):
    """The 61 header bytes, decoded but not checked."""

    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return self.batch_length + LENGTH_OVERHEAD

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def is_raft_entry(self) -> bool:
        """Whether this is one of Raft's own entries: control bit set, and zero offsets wide.
        Kafka's transaction markers are control batches with a last offset delta of 0, so they are
        records."""
        return bool(self.attributes & CONTROL) and self.last_offset_delta == _ZERO_WIDTH


def read_header(batch: Buffer, position: int = 0) -> BatchHeader:
    """The header at `position`; the caller has checked that 61 bytes are there."""
    return BatchHeader._make(HEADER.unpack_from(batch, position))


def patch(batch: bytearray | memoryview, base_offset: Offset, term: Term) -> None:
    """Write base offset and leader epoch into a batch that is being appended by the leader."""
    _I64.pack_into(batch, 0, base_offset)
    _I32.pack_into(batch, _EPOCH_AT, term)


def crc_matches(batch: Buffer, header: BatchHeader) -> bool:
    """Whether the CRC in the header is that of bytes 21 to the end of this whole batch."""
    return crc32c(memoryview(batch)[CRC_FROM : header.size]) == header.crc


def is_sound(batch: Buffer) -> bool:
    """Whether `batch`, at least 61 bytes, is exactly one batch whose CRC is right."""
    length, crc = _SIZE_AND_CRC.unpack_from(batch)
    whole: bool = length + LENGTH_OVERHEAD == len(batch)
    return whole and crc32c(memoryview(batch)[CRC_FROM:]) == int(crc)


def is_numbered(batch: Buffer) -> bool:
    """Whether an idempotent producer has numbered its records."""
    return bool(_I64.unpack_from(batch, _PRODUCER_ID_AT)[0] >= 0)


def entry_of(raft_index: RaftIndex, batch: Buffer, error: type[RaftlogError], on: str) -> Entry:
    """The entry at `raft_index` that consists of `batch`, exactly one whole batch.

    Checks shape (size, magic, term, width, kind), not the CRC. Raises `error` for a batch that no
    leader writes. Raises `FutureFormat` for one of Raft's own entries that only a later release can
    have written: such an entry is not damaged, and the replica never skips it.
    """
    if len(batch) < BATCH_HEADER_BYTES:
        raise error(f"batch of {len(batch)} bytes is shorter than its header", on=on)
    base_offset, length, term, magic, attributes, last_offset_delta = _PLACE.unpack_from(batch)
    if length + LENGTH_OVERHEAD != len(batch):
        raise error(f"batch says {length + LENGTH_OVERHEAD} bytes and has {len(batch)}", on=on)
    if magic != MAGIC:
        raise error(f"batch has magic {magic}, not 2", on=on)
    if term < 0 or base_offset < 0:
        raise error(f"batch has epoch {term}, offset {base_offset}", on=on)
    kind = _RECORDS
    if last_offset_delta < 0:
        if not attributes & CONTROL or last_offset_delta != _ZERO_WIDTH:
            raise error(f"batch has last offset delta {last_offset_delta}", on=on)
        kind = kind_of(batch, error, on)
    next_offset = base_offset + last_offset_delta + 1
    return Entry(raft_index, term, kind, base_offset, next_offset, batch)


def kind_of(batch: Buffer, error: type[RaftlogError], on: str) -> EntryKind:
    """The kind of a batch that is one of Raft's own entries. Raises as `entry_of`."""
    if len(batch) <= _KIND_AT + 1:
        raise error("raft entry without a payload", on=on)
    kind, version = batch[_KIND_AT], batch[_KIND_AT + 1]
    if kind == 0 or version == 0:
        raise error(f"raft entry of kind {kind}, payload version {version}", on=on)
    if kind > _KIND_MAX or version > PAYLOAD_VERSION:
        raise FutureFormat(
            f"raft entry of unknown kind {kind}, payload version {version}; this release reads"
            f" kinds up to {_KIND_MAX}, version {PAYLOAD_VERSION}",
            on=on,
            do="start the newer release on this broker",
        )
    return EntryKind(kind)


def split(data: Buffer, error: type[RaftlogError], on: str) -> Iterator[memoryview]:
    """The whole batches lying back to back in `data`; raises `error` when they do not fill it."""
    view = memoryview(data)
    position = 0
    while position < len(view):
        left = len(view) - position
        if left < BATCH_HEADER_BYTES:
            raise error(f"{left} bytes left, a batch header has 61", on=on)
        size = int(_I32.unpack_from(view, position + _LENGTH_AT)[0]) + LENGTH_OVERHEAD
        if size < BATCH_HEADER_BYTES or size > min(left, BATCH_BYTES_MAX):
            raise error(f"batch says {size} bytes, {left} are left", on=on)
        yield view[position : position + size]
        position += size


def entries_of(
    first_index: RaftIndex, data: Buffer, error: type[RaftlogError], on: str
) -> list[Entry]:
    """The entries of batches that lie back to back; the first gets `first_index`."""
    return [
        entry_of(RaftIndex(first_index + ordinal), batch, error, on)
        for ordinal, batch in enumerate(split(data, error, on))
    ]


def stamp_append_time(batch: bytearray | memoryview, wall_ms: WallMillis) -> None:
    """Turn a produced batch into one with log append time, before it becomes an entry.

    This is the leader's only change under the CRC, for topics with LogAppendTime. It sets the
    attribute bit and the max timestamp, then computes the CRC again.
    """
    (attributes,) = _I16.unpack_from(batch, _ATTRIBUTES_AT)
    _I16.pack_into(batch, _ATTRIBUTES_AT, attributes | LOG_APPEND_TIME)
    _I64.pack_into(batch, _MAX_TIMESTAMP_AT, wall_ms)
    _U32.pack_into(batch, _CRC_AT, crc32c(memoryview(batch)[CRC_FROM:]))
