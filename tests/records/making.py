"""Batches for the tests of records: plain ones, and ones whose inside lies."""

import struct

from raftlog.base.checksum import crc32c
from raftlog.records.batch import CRC_FROM, HEADER, LENGTH_OVERHEAD, read_header
from raftlog.records.builder import RecordBatchBuilder

NOW_MS = 1_700_000_000_000


def plain_batch(count=3, **options):
    builder = RecordBatchBuilder(**options)
    for number in range(count):
        builder.append(b"value-%d" % number, key=b"k", timestamp_ms=NOW_MS + number)
    return builder.build()


def changed(batch, *, fix_crc=True, **fields):
    """The batch with header fields replaced; the CRC is made right again unless told otherwise."""
    header = read_header(batch)._replace(**fields)
    made = bytearray(HEADER.pack(*header) + batch[HEADER.size :])
    if fix_crc:
        struct.pack_into(">I", made, 17, crc32c(bytes(made[CRC_FROM:])))
    return bytes(made)


def with_body(body, *, count, codec=0, last_offset_delta=None):
    """A batch with a true header around any body."""
    delta = count - 1 if last_offset_delta is None else last_offset_delta
    return changed(
        plain_batch()[: HEADER.size] + body,
        batch_length=HEADER.size + len(body) - LENGTH_OVERHEAD,
        attributes=codec,
        last_offset_delta=delta,
        records_count=count,
    )
