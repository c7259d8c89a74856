"""Record batches for the decoders: built by the product, put at an offset, thinned, and spoilt."""

import struct

from raftlog.base.units import WallMillis
from raftlog.records.batch import LOG_APPEND_TIME
from raftlog.records.builder import RecordBatchBuilder

COUNT_AT, LAST_DELTA_AT, ATTRIBUTES_AT, MAX_TIMESTAMP_AT = 57, 23, 21, 35


def built(records, *, base=0, codec=0, append_time=None) -> bytes:
    """A batch of (timestamp, key, value, headers) at `base`; CRCs are checked before decoding."""
    builder = RecordBatchBuilder(codec=codec)
    for timestamp, key, value, headers in records:
        builder.append(value, key=key, timestamp_ms=WallMillis(timestamp), headers=headers)
    batch = bytearray(builder.build())
    struct.pack_into(">q", batch, 0, base)
    if append_time is not None:
        struct.pack_into(">h", batch, ATTRIBUTES_AT, codec | LOG_APPEND_TIME)
        struct.pack_into(">q", batch, MAX_TIMESTAMP_AT, append_time)
    return bytes(batch)


def zigzag(number: int) -> bytes:
    raw = (number << 1) ^ (number >> 63)
    raw &= 2**64 - 1
    found = bytearray()
    while raw > 0x7F:
        found.append(raw & 0x7F | 0x80)
        raw >>= 7
    found.append(raw)
    return bytes(found)


def record(delta, *, key=None, value=b"", timestamp_delta=0, headers=()) -> bytes:
    """One record's bytes, by hand, so that a compacted or lying batch can be made."""
    inside = b"\0" + zigzag(timestamp_delta) + zigzag(delta)
    for field in (key, value):
        inside += zigzag(-1) if field is None else zigzag(len(field)) + field
    inside += zigzag(len(headers))
    for name, text in headers:
        inside += zigzag(len(name)) + name
        inside += zigzag(-1) if text is None else zigzag(len(text)) + text
    return zigzag(len(inside)) + inside


def by_hand(body: bytes, *, count, last_delta, base=0, base_timestamp=1000) -> bytes:
    """A batch around these records' bytes, with the numbers that it claims."""
    batch = bytearray(built([(base_timestamp, None, b"", ())], base=base)[:61])
    struct.pack_into(">i", batch, 8, 61 - 12 + len(body))
    struct.pack_into(">i", batch, LAST_DELTA_AT, last_delta)
    struct.pack_into(">i", batch, COUNT_AT, count)
    return bytes(batch) + body
