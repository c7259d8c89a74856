"""The timestamps of the records in a batch, as the broker reads them.

A header's `maxTimestamp` is its producer's claim. Sarama 1.45 leaves it unset, and any client may
state too much or too little. It lies under the CRC, so the broker stores the claim as it came. Code
that leaves data out (a look-up by time, retention by time) asks these functions instead. They
decompress, and cost about 0.2 us a record, so they run off the loop.

These functions trust the header in two cases. In a batch with log append time, the leader wrote
that timestamp. A batch whose records cannot be read has no other timestamp, and no reader gets
anything out of it.
"""

from typing import Final

from raftlog.base.binary import Buffer
from raftlog.base.errors import CorruptData
from raftlog.base.ids import Offset
from raftlog.base.limits import BATCH_HEADER_BYTES
from raftlog.records.batch import CODEC_MASK, LOG_APPEND_TIME, BatchHeader
from raftlog.records.compression import decompress
from raftlog.records.record import Record, records_of

NO_TIMESTAMP: Final = -1
"""The largest timestamp of no records at all, and the least that anything here returns."""
_FAR: Final = 2**62
"""The base or delta from which their sum may wrap, as in every client that counts in 64 bits."""
_ON: Final = "timestamps of a batch"


def largest_timestamp(batch: Buffer, header: BatchHeader) -> int:
    """The largest timestamp (ms) of the batch's records; at least NO_TIMESTAMP.

    `batch` is whole and its CRC was checked. One of Raft's own entries has none.
    """
    if header.is_raft_entry:
        return NO_TIMESTAMP
    if header.attributes & LOG_APPEND_TIME:
        return max(NO_TIMESTAMP, header.max_timestamp)
    body = memoryview(batch)[BATCH_HEADER_BYTES : header.size]
    try:
        inside = decompress(header.attributes & CODEC_MASK, body, CorruptData, _ON)
        delta = _largest_delta(bytes(inside), header.records_count)
        if delta is not None and abs(header.base_timestamp) < _FAR:
            largest = header.base_timestamp + delta
        else:
            # Some sum may have wrapped, so each record is decoded.
            largest = max(record.timestamp_ms for record in records_of(batch, CorruptData, _ON))
    except (CorruptData, IndexError, ValueError):
        largest = header.max_timestamp
    return max(NO_TIMESTAMP, largest)


def first_at_or_after(
    batch: Buffer, header: BatchHeader, timestamp_ms: int, start: Offset, limit: Offset
) -> tuple[int, Offset] | None:
    """The first record with this timestamp or a later one, among offsets `start` to `limit`
    (exclusive): its timestamp and offset. None when there is none."""
    if header.is_raft_entry or header.next_offset <= start or header.base_offset >= limit:
        return None
    if largest_timestamp(batch, header) < timestamp_ms:
        return None
    first: Record | None = None
    try:
        for record in records_of(batch, CorruptData, _ON):
            if start <= record.offset < limit and record.timestamp_ms >= timestamp_ms:
                first = record
                break
    except CorruptData:
        # The broker stores records as the producer sent them, so they may be unreadable.
        return header.max_timestamp, Offset(max(header.base_offset, start))
    return None if first is None else (first.timestamp_ms, first.offset)


def largest_within(batch: Buffer, header: BatchHeader, start: Offset, limit: Offset) -> int:
    """The largest timestamp of the batch's records with offsets `start` to `limit` (exclusive)."""
    if header.is_raft_entry or header.next_offset <= start or header.base_offset >= limit:
        return NO_TIMESTAMP
    if header.base_offset >= start and header.next_offset <= limit:
        return largest_timestamp(batch, header)
    largest = NO_TIMESTAMP
    try:
        for record in records_of(batch, CorruptData, _ON):
            if start <= record.offset < limit:
                largest = max(largest, record.timestamp_ms)
    except CorruptData:
        return max(NO_TIMESTAMP, header.max_timestamp)
    return largest


def _largest_delta(inside: bytes, count: int) -> int | None:
    """The largest timestamp delta of `count` records; None when one is at least `_FAR`.

    Raises IndexError or ValueError when the records end early. Ignores bytes behind the last one.
    """
    # This is the loop of the hottest job, so it reads only two varints of each record.
    position, forward, back, far = 0, -1, -1, False
    for _ in range(count):
        size = inside[position]
        position += 1
        if size > 127:
            size, position = _varint_from(inside, position - 1)
        delta = inside[position + 1]  # past the attributes
        if delta > 127:
            delta, _ = _varint_from(inside, position + 1)
            far = far or delta >= _FAR
        # Zigzag: an even number counts forward, an odd one back.
        if not delta & 1:
            if delta > forward:
                forward = delta
        elif back < 0 or delta < back:
            back = delta
        position += (size >> 1) if not size & 1 else len(inside) + 1
    if position > len(inside) or count <= 0:
        raise ValueError(f"{count} records end at {position} of {len(inside)} bytes")
    if far:
        return None
    return forward >> 1 if forward >= 0 else -(back >> 1) - 1


def _varint_from(inside: bytes, position: int) -> tuple[int, int]:
    """An unsigned varint of at most 64 bits, and the place behind it."""
    value = shift = 0
    while True:
        byte = inside[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
        if shift > 63:
            raise ValueError("varint is longer than 64 bits")
