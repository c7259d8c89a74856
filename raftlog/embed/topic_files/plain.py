"""Record batches for the files of an export: batches that any producer could send, at their old
offsets.

An export keeps the records with their keys, values, headers and timestamps, the codec, and the
grouping of records into batches. A batch has no producer id and no transaction, because a new
cluster knows neither.

A batch is built again from its records when it cannot stay as it is:

* some of its records lie below the log's start;
* a compaction left holes in it;
* it has the broker's append time instead of the records' own timestamps;
* its encoding is one that readers accept and a strict broker refuses.
"""

import struct
from collections.abc import Iterator, Sequence
from typing import Final

from raftlog.base.checksum import crc32c
from raftlog.base.errors import CorruptData
from raftlog.base.ids import Offset, Term
from raftlog.base.limits import BATCH_BYTES_MAX, INT64_MAX
from raftlog.records.batch import (
    CODEC_MASK,
    CONTROL,
    CRC_FROM,
    HEADER,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    BatchHeader,
    patch,
    read_header,
)
from raftlog.records.builder import RecordBatchBuilder
from raftlog.records.record import Record, records_of
from raftlog.records.record_walk import RecordRules, RecordWalk
from raftlog.records.validate import BatchFault, validate_produced

_NONE: Final = -1
_RULES: Final = RecordRules(-INT64_MAX - 1, INT64_MAX, keyed=False)
_CRC: Final = struct.Struct(">I")
_CRC_AT: Final = 17


def committed(
    batches: Sequence[memoryview], aborted: Sequence[tuple[int, int]]
) -> Iterator[memoryview]:
    """Yield the batches of a fetch without control batches and without batches of aborted
    transactions. `aborted` names those as (producer id, first offset)."""
    waiting = sorted(aborted, key=lambda each: each[1])
    dead: set[int] = set()
    for batch in batches:
        header = read_header(batch)
        while waiting and waiting[0][1] < header.next_offset:
            dead.add(waiting.pop(0)[0])
        if header.attributes & CONTROL:
            # A control batch ends the producer's transaction. The producer's next one may be
            # committed.
            dead.discard(header.producer_id)
        elif not (header.attributes & TRANSACTIONAL and header.producer_id in dead):
            yield batch


def plain_batch(batch: memoryview, first: int, end: int, on: str) -> bytes | None:
    """A batch for a file, with the records of `first` to `end` - 1; None when it has none of them.
    `CorruptData` for a batch that consumers could not read either."""
    header = read_header(batch)
    whole = header.base_offset >= first and header.next_offset <= end
    if whole and not header.attributes & LOG_APPEND_TIME:
        anonymous = _anonymous(batch, header)
        if fault_of(anonymous, deep=True) is None:
            return anonymous
    found = [each for each in records_of(batch, CorruptData, on) if first <= each.offset < end]
    return _built(found, header.attributes & CODEC_MASK) if found else None


def _anonymous(batch: memoryview, header: BatchHeader) -> bytes:
    copy = bytearray(batch)
    HEADER.pack_into(
        copy,
        0,
        *header._replace(
            leader_epoch=_NONE,
            attributes=header.attributes & CODEC_MASK,
            producer_id=_NONE,
            producer_epoch=_NONE,
            base_sequence=_NONE,
        ),
    )
    _CRC.pack_into(copy, _CRC_AT, crc32c(memoryview(copy)[CRC_FROM:]))
    return bytes(copy)


def _built(records: Sequence[Record], codec: int) -> bytes:
    builder = RecordBatchBuilder(codec=codec)
    for each in records:
        builder.append(
            each.value, key=each.key, timestamp_ms=each.timestamp_ms, headers=each.headers
        )
    return at_offset(builder.build(), records[0].offset)


def at_offset(batch: bytes, offset: int) -> bytes:
    """The batch with this base offset. A producer sends 0."""
    copy = bytearray(batch)
    patch(copy, Offset(offset), Term(_NONE))
    return bytes(copy)


def fault_of(batch: bytes, *, deep: bool) -> str | None:
    """Why a broker would refuse this batch of a file; None when it would accept it. With `deep`
    each record is checked."""
    header = read_header(batch)
    judged = validate_produced(at_offset(batch, 0), BATCH_BYTES_MAX)
    if isinstance(judged, BatchFault):
        return judged.value
    if header.base_offset < 0:
        return f"it begins at offset {header.base_offset}"
    if header.attributes & ~CODEC_MASK or header.producer_id != _NONE:
        return "it names a producer, a transaction or a broker's time"
    if header.max_timestamp < _NONE:
        return f"its latest timestamp is {header.max_timestamp}"
    if deep:
        walk = RecordWalk(batch, header, _RULES)
        while not walk.done:
            walk.step()
        if walk.fault is not None:
            return walk.fault.what
    return None
