"""The checks of a produced batch before the leader proposes it: headers only, never the records.

Kafka also walks the records. This broker does not, so it stores a batch with false contents as it
was sent, and every reader of records must survive it (`raftlog.records.record`). Three faults show
without a walk, and the broker refuses them:

* The first bytes of a compressed field are not of its codec. No reader would ever get past it.
* No content of this size can have so many records. The count would use up billions of offsets.
* The batch may decompress to more than readers accept.

The faults are ours; the Kafka front maps them to Kafka's error codes.
"""

import enum
from typing import Final, final

from raftlog.base.binary import Buffer
from raftlog.base.limits import BATCH_HEADER_BYTES, DECOMPRESSED_BYTES_MAX
from raftlog.base.units import WallMillis
from raftlog.records.batch import (
    CODEC_MASK,
    CONTROL,
    LOG_APPEND_TIME,
    MAGIC,
    BatchHeader,
    crc_matches,
    read_header,
)
from raftlog.records.codec_frames import content_bytes_max

_CODEC_LAST: Final = 4
RECORD_BYTES_MIN: Final = 7
"""Length, attributes, two deltas, null key, null value, no headers: a byte each."""
_NONE: Final = -1


@final
class BatchFault(enum.Enum):
    """The reasons to refuse a produced batch, in the order of the checks."""

    NOT_ONE_BATCH = "the field is not exactly one record batch"
    TOO_LARGE = "the batch is larger than the topic allows"
    MAGIC = "the batch is not of format version 2"
    CRC = "the batch fails its CRC-32C"
    BASE_OFFSET = "the batch does not begin at offset 0"
    COUNT = "the records count does not fit the last offset delta"
    CROWDED = "the batch says that it holds more records than its bytes can"
    CODEC = "the batch names an unknown compression codec"
    FRAME = "the compressed records do not begin as their codec does"
    SWELLS = "the batch may become more than 64 MiB when it is decompressed, which no reader takes"
    TIMESTAMP_TYPE = "the batch claims log append time"
    CONTROL = "the batch claims to be a control batch"
    PRODUCER = "the batch names a producer without epoch or sequence"
    TIMESTAMP = "the batch's latest timestamp is out of bounds"


def validate_produced(field: Buffer, bytes_max: int) -> BatchHeader | BatchFault:
    """The header of a batch that the leader may patch and propose, or the reason to refuse it.

    `field` is the whole records field of one partition; `bytes_max` is the topic's
    `max.message.bytes`. Never raises, for any bytes.
    """
    if len(field) < BATCH_HEADER_BYTES:
        return BatchFault.NOT_ONE_BATCH
    header = read_header(field)
    # The old formats (magic 0 and 1) keep their size elsewhere, so the magic is checked first.
    if header.magic != MAGIC:
        return BatchFault.MAGIC
    if header.size != len(field):
        return BatchFault.NOT_ONE_BATCH
    if len(field) > bytes_max:
        return BatchFault.TOO_LARGE
    if not crc_matches(field, header):
        return BatchFault.CRC
    return _fault_of(field, header) or header


def _fault_of(field: Buffer, header: BatchHeader) -> BatchFault | None:
    if header.base_offset != 0:
        return BatchFault.BASE_OFFSET
    # Raft's own entries are zero offsets wide: this check keeps a client from forging one.
    if header.last_offset_delta < 0 or header.records_count != header.last_offset_delta + 1:
        return BatchFault.COUNT
    attributes = header.attributes
    codec = attributes & CODEC_MASK
    if codec > _CODEC_LAST:
        return BatchFault.CODEC
    content_max = content_bytes_max(codec, memoryview(field)[BATCH_HEADER_BYTES:])
    if content_max is None:
        return BatchFault.FRAME
    if content_max > DECOMPRESSED_BYTES_MAX:
        return BatchFault.SWELLS
    if header.records_count * RECORD_BYTES_MIN > content_max:
        return BatchFault.CROWDED
    if attributes & LOG_APPEND_TIME:
        return BatchFault.TIMESTAMP_TYPE
    if attributes & CONTROL:
        return BatchFault.CONTROL
    if header.producer_id != _NONE and _producer_is_wrong(header):
        return BatchFault.PRODUCER
    return None


def _producer_is_wrong(header: BatchHeader) -> bool:
    return header.producer_id < 0 or header.producer_epoch < 0 or header.base_sequence < 0


def timestamp_fault(
    header: BatchHeader, wall_ms: WallMillis, before_max_ms: int, after_max_ms: int
) -> BatchFault | None:
    """TIMESTAMP when the header's latest timestamp is too long before or after `wall_ms`.

    A latest timestamp of -1 means none and is allowed (`message.timestamp.before.max.ms` and
    `message.timestamp.after.max.ms`, KIP-937).
    """
    latest = header.max_timestamp
    if latest == _NONE:
        return None
    if latest < 0 or wall_ms - latest > before_max_ms or latest - wall_ms > after_max_ms:
        return BatchFault.TIMESTAMP
    return None
