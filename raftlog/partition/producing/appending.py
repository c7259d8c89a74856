"""From a produced records field to the batch that goes into the log: judge, then stamp.

The leader copies a field under 64 KiB once, here; the copy is immutable. It stamps a larger field
in the receive slab, and the batch stays a view of that slab. Either way the same memory goes to
the file and to the followers.
"""

import struct
from typing import Final

from raftlog.base.binary import Buffer
from raftlog.base.checksum import crc32c
from raftlog.base.ids import Offset, Term
from raftlog.base.limits import BATCH_HEADER_BYTES, RECORD_COPY_BYTES_MAX
from raftlog.base.units import WallMillis
from raftlog.kafka.error_codes import ErrorCode
from raftlog.partition.config import PartitionConfig
from raftlog.records.batch import (
    CRC_FROM,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    BatchHeader,
    patch,
    read_header,
)
from raftlog.records.validate import BatchFault, timestamp_fault, validate_produced

_STAMP: Final = struct.Struct(">qii")
_CRC: Final = struct.Struct(">I")
_CRC_AT: Final = 17
_ATTRIBUTES: Final = struct.Struct(">h")
_MAX_TIMESTAMP: Final = struct.Struct(">q")
_MAX_TIMESTAMP_AT: Final = 35

FAULT_CODES: Final = {
    BatchFault.NOT_ONE_BATCH: ErrorCode.CORRUPT_MESSAGE,
    BatchFault.TOO_LARGE: ErrorCode.MESSAGE_TOO_LARGE,
    BatchFault.MAGIC: ErrorCode.INVALID_RECORD,
    BatchFault.CRC: ErrorCode.CORRUPT_MESSAGE,
    BatchFault.BASE_OFFSET: ErrorCode.INVALID_RECORD,
    BatchFault.COUNT: ErrorCode.INVALID_RECORD,
    BatchFault.CROWDED: ErrorCode.INVALID_RECORD,
    BatchFault.CODEC: ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    BatchFault.FRAME: ErrorCode.INVALID_RECORD,
    BatchFault.SWELLS: ErrorCode.MESSAGE_TOO_LARGE,
    BatchFault.TIMESTAMP_TYPE: ErrorCode.INVALID_TIMESTAMP,
    BatchFault.CONTROL: ErrorCode.INVALID_RECORD,
    BatchFault.PRODUCER: ErrorCode.INVALID_RECORD,
    BatchFault.TIMESTAMP: ErrorCode.INVALID_TIMESTAMP,
}
"""The Kafka error that a client receives for each fault of a batch."""

TRANSACTIONAL_REFUSED: Final = "transactions are not served"


class BatchRefused(Exception):
    """A produced batch must not be appended: the error code and a sentence for the client."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message


def judged(records: Buffer, config: PartitionConfig, wall_ms: WallMillis) -> BatchHeader:
    """The header of a produced batch, once it is fit to be appended; raises BatchRefused.

    `records` must be exactly one batch. `wall_ms` is the leader's wall clock, in milliseconds.
    """
    header = validate_produced(records, config.max_message_bytes)
    if isinstance(header, BatchFault):
        raise BatchRefused(_code_of(header, records), header.value)
    if header.attributes & TRANSACTIONAL:
        raise BatchRefused(ErrorCode.INVALID_REQUEST, TRANSACTIONAL_REFUSED)
    if not config.log_append_time:
        fault = timestamp_fault(
            header, wall_ms, config.timestamp_before_max_ms, config.timestamp_after_max_ms
        )
        if fault is not None:
            raise BatchRefused(FAULT_CODES[fault], fault.value)
    return header


def stamped(records: Buffer, header: BatchHeader, base_offset: Offset, term: Term) -> Buffer:
    """The batch with its base offset and term: a copy when it is small or read-only, else the same
    memory, changed."""
    view = memoryview(records)
    if len(view) < RECORD_COPY_BYTES_MAX or view.readonly:
        return b"".join((_STAMP.pack(base_offset, header.batch_length, term), view[_STAMP.size :]))
    patch(view, base_offset, term)
    return view.toreadonly()


def stamped_with_time(
    records: Buffer, header: BatchHeader, base_offset: Offset, term: Term, wall_ms: WallMillis
) -> bytes:
    """A copy of the batch with base offset, term and the leader's time, for LogAppendTime.

    With `message.timestamp.type=LogAppendTime` the leader sets the attribute bit and the latest
    timestamp. The CRC covers both, so the leader computes it again (33 us a MiB). No other setting
    changes bytes under a producer's CRC.
    """
    batch = bytearray(records)
    patch(batch, base_offset, term)
    _ATTRIBUTES.pack_into(batch, CRC_FROM, header.attributes | LOG_APPEND_TIME)
    _MAX_TIMESTAMP.pack_into(batch, _MAX_TIMESTAMP_AT, wall_ms)
    _CRC.pack_into(batch, _CRC_AT, crc32c(memoryview(batch)[CRC_FROM:]))
    return bytes(batch)


def _code_of(fault: BatchFault, records: Buffer) -> ErrorCode:
    """The Kafka error for a fault of these bytes."""
    if fault is not BatchFault.NOT_ONE_BATCH or len(records) < BATCH_HEADER_BYTES:
        return FAULT_CODES[fault]
    # A field that is longer than its first batch holds several batches. That is the producer's
    # mistake, so it must not retry. Damage on the way (CORRUPT_MESSAGE) may pass with a retry.
    several = BATCH_HEADER_BYTES <= read_header(records).size < len(records)
    return ErrorCode.INVALID_RECORD if several else FAULT_CODES[fault]
