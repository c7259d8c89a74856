"""Builds a record batch from records: our client's producer, group 0's commands, and tests.

The batch begins at base offset 0 with leader epoch -1, as a producer sends it; the leader patches
both.
"""

import struct
from collections.abc import Sequence
from typing import Final, final

from raftlog.base.checksum import crc32c
from raftlog.base.limits import BATCH_HEADER_BYTES
from raftlog.base.units import WallMillis
from raftlog.records.batch import (
    CRC_FROM,
    HEADER,
    LENGTH_OVERHEAD,
    MAGIC,
    TRANSACTIONAL,
)
from raftlog.records.compression import NONE, compress

_CRC_AT: Final = 17
_ABSENT: Final = -1
_RECORD_OVERHEAD_MAX: Final = 36
"""Varints, attributes and counts of a record without headers, at their longest."""


@final
class RecordBatchBuilder:
    """Collects records, then makes the batch once. Offsets follow the order of appending."""

    __slots__ = (
        "_base_sequence",
        "_base_timestamp",
        "_body",
        "_codec",
        "_count",
        "_max_timestamp",
        "_producer_epoch",
        "_producer_id",
        "_transactional",
    )

    def __init__(
        self,
        *,
        codec: int = NONE,
        producer_id: int = _ABSENT,
        producer_epoch: int = _ABSENT,
        base_sequence: int = _ABSENT,
        transactional: bool = False,
    ) -> None:
        assert (producer_id < 0) == (producer_epoch < 0), (producer_id, producer_epoch)
        assert (producer_id < 0) == (base_sequence < 0), (producer_id, base_sequence)
        self._codec = codec
        self._producer_id = producer_id
        self._producer_epoch = producer_epoch
        self._base_sequence = base_sequence
        self._transactional = transactional
        self._body = bytearray()
        self._count = 0
        self._base_timestamp = _ABSENT
        self._max_timestamp = _ABSENT

    @property
    def count(self) -> int:
        """Records appended so far."""
        return self._count

    @property
    def size(self) -> int:
        """Bytes of the batch if it were built now without compression."""
        return BATCH_HEADER_BYTES + len(self._body)

    @staticmethod
    def size_bound(
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes | None]] = (),
    ) -> int:
        """The most bytes that appending the record adds to the batch."""
        size = _RECORD_OVERHEAD_MAX + len(key or b"") + len(value or b"")
        for name, content in headers:
            size += 10 + len(name.encode()) + len(content or b"")
        return size

    def append(
        self,
        value: bytes | None,
        *,
        key: bytes | None = None,
        timestamp_ms: WallMillis,
        headers: Sequence[tuple[str, bytes | None]] = (),
    ) -> int:
        """Add a record; returns its offset delta within the batch."""
        if self._count == 0:
            self._base_timestamp = timestamp_ms
        self._max_timestamp = max(self._max_timestamp, timestamp_ms)
        delta = self._count
        record = bytearray(1)
        _put_varint(record, timestamp_ms - self._base_timestamp)
        _put_varint(record, delta)
        _put_nullable(record, key)
        _put_nullable(record, value)
        _put_varint(record, len(headers))
        for name, content in headers:
            _put_nullable(record, name.encode("utf-8"))
            _put_nullable(record, content)
        _put_varint(self._body, len(record))
        self._body += record
        self._count += 1
        return delta

    def build(self) -> bytes:
        """The whole batch; at least one record was appended."""
        assert self._count > 0, "an empty batch would take no offset"
        body = compress(self._codec, bytes(self._body))
        attributes = self._codec | (TRANSACTIONAL if self._transactional else 0)
        batch = bytearray(
            HEADER.pack(
                0,
                BATCH_HEADER_BYTES + len(body) - LENGTH_OVERHEAD,
                -1,
                MAGIC,
                0,
                attributes,
                self._count - 1,
                self._base_timestamp,
                self._max_timestamp,
                self._producer_id,
                self._producer_epoch,
                self._base_sequence,
                self._count,
            )
        )
        batch += body
        struct.pack_into(">I", batch, _CRC_AT, crc32c(memoryview(batch)[CRC_FROM:]))
        return bytes(batch)


def _put_varint(buffer: bytearray, value: int) -> None:
    """Append a zigzag varint."""
    value = (value << 1) ^ (value >> 63)
    while value > 0x7F:
        buffer.append(value & 0x7F | 0x80)
        value >>= 7
    buffer.append(value)


def _put_nullable(buffer: bytearray, content: bytes | None) -> None:
    if content is None:
        _put_varint(buffer, -1)
        return
    _put_varint(buffer, len(content))
    buffer += content
