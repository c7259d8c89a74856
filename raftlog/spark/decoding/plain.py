"""The reference decoder without numpy, record by record. Slow and simple; its result is right by
definition.

The fast decoder (`raftlog.spark.decoding.vectors`) passes it all bytes that it does not understand.
Tests compare the two bit for bit.
"""

import warnings
from collections.abc import Iterator, Sequence

import pyarrow as pa

from raftlog.base.binary import Buffer
from raftlog.base.errors import CorruptData
from raftlog.records.batch import CONTROL, LOG_APPEND_TIME, read_header
from raftlog.records.record import Record, records_of
from raftlog.spark.decoding.columns import (
    ARROW_TYPES,
    HEADERS,
    KEY,
    MICROS_PER_MILLI,
    OFFSET,
    PARTITION,
    TIMESTAMP,
    TIMESTAMP_MS_MAX,
    TIMESTAMP_TYPE,
    TOPIC,
    VALUE,
    ColumnsWanted,
    arrow_schema,
)


def decode(batches: Sequence[Buffer], wanted: ColumnsWanted) -> pa.RecordBatch:
    """The wanted columns of the records in these whole, checked batches, in order. Control batches
    have no rows. `CorruptData` for a batch whose content is wrong."""
    on = f"{wanted.topic}-{wanted.partition}"
    rows = list(_rows(batches, wanted, on))
    arrays = [
        pa.array(_column(name, rows, wanted, on), type=ARROW_TYPES[name]) for name in wanted.columns
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(wanted.columns))


def _rows(
    batches: Sequence[Buffer], wanted: ColumnsWanted, on: str
) -> Iterator[tuple[Record, int]]:
    """The records in range, each with its timestamp type."""
    for batch in batches:
        attributes = read_header(batch).attributes
        if attributes & CONTROL:
            continue
        kind = 1 if attributes & LOG_APPEND_TIME else 0
        for record in _records(batch, wanted, on):
            if wanted.first <= record.offset < wanted.stop:
                yield record, kind


def _records(batch: Buffer, wanted: ColumnsWanted, on: str) -> Iterator[Record]:
    """The records of a batch. If damaged batches may be skipped, one that cannot be read to its end
    has no records at all: how many could be read first would depend only on the damage."""
    if not wanted.skip_corrupt:
        yield from _checked(batch, on)
        return
    try:
        yield from list(_checked(batch, on))
    except CorruptData as error:
        header = read_header(batch)
        last = header.next_offset - 1
        warnings.warn(
            f"skipped offsets {header.base_offset} to {last} of {on}: {error.what}", stacklevel=2
        )


def _checked(batch: Buffer, on: str) -> Iterator[Record]:
    for record in records_of(batch, CorruptData, on):
        if not 0 <= record.offset < 2**63:
            raise CorruptData(f"offset {record.offset} is out of range", on=on)
        yield record


def _column(
    name: str, rows: list[tuple[Record, int]], wanted: ColumnsWanted, on: str
) -> list[object]:
    if name == KEY:
        return [record.key for record, _ in rows]
    if name == VALUE:
        return [record.value for record, _ in rows]
    if name == TOPIC:
        return [wanted.topic] * len(rows)
    if name == PARTITION:
        return [wanted.partition] * len(rows)
    if name == OFFSET:
        return [record.offset for record, _ in rows]
    if name == TIMESTAMP:
        return [_micros(record, on) for record, _ in rows]
    if name == TIMESTAMP_TYPE:
        return [kind for _, kind in rows]
    assert name == HEADERS, name
    return [
        [{"key": each.key, "value": each.value} for each in record.headers] or None
        for record, _ in rows
    ]


def _micros(record: Record, on: str) -> int:
    if abs(record.timestamp_ms) > TIMESTAMP_MS_MAX:
        raise CorruptData(
            f"timestamp {record.timestamp_ms} ms is beyond what Spark can hold",
            on=f"{on}, offset {record.offset}",
            do="leave the column timestamp out: .schema('key BINARY, value BINARY, offset BIGINT')",
        )
    return record.timestamp_ms * MICROS_PER_MILLI
