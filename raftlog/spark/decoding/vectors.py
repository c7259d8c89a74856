"""The fast decoder: record batches to Arrow columns, without a Python step per record.

    batches -> one buffer of records (decompressed)      Python, a step per batch
            -> where each record begins                  step k reads the length of record k of
                                                         *all* batches at once
            -> all fields of all records, field by field numpy, flat over records
            -> keys and values                           one Arrow array over the buffer with the
                                                         borders [start, end, start, end, ...], of
                                                         which the even rows are taken

A batch is a chain of lengths, so record k + 1 cannot be found before record k. It is fast because
many chains are walked side by side (`raftlog.spark.decoding.chains`).

The decoder trusts no content: it compares lengths with the borders of their record, and offset
deltas with each other. A batch that does not fit, or is too rare for a fast path (varints of more
than ten bytes, headers that are not UTF-8), goes to `raftlog.spark.decoding.plain`, whose result or
error counts.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from raftlog.base.binary import Buffer
from raftlog.base.errors import CorruptData
from raftlog.base.limits import BATCH_HEADER_BYTES
from raftlog.records.batch import CODEC_MASK, CONTROL, LOG_APPEND_TIME, BatchHeader, read_header
from raftlog.records.compression import decompress
from raftlog.spark.decoding import plain
from raftlog.spark.decoding.chains import PAD_BYTES, Bytes, Ints, Odd, record_starts, varints
from raftlog.spark.decoding.columns import (
    BODY_BYTES_MAX,
    FAR,
    HEADER_TYPE,
    HEADERS,
    KEY,
    MICROS_PER_MILLI,
    OFFSET,
    PARTITION,
    RECORD_BYTES_MIN,
    TIMESTAMP,
    TIMESTAMP_MS_MAX,
    TIMESTAMP_TYPE,
    TOPIC,
    VALUE,
    ColumnsWanted,
    arrow_schema,
)

_HEADER_STEPS_MAX: Final = 10_000
"""The most headers of one record. Each is a step over all records; `plain` reads records with
more."""


class _Spans(NamedTuple):
    """Byte ranges, one a record; `absent` where the field is null."""

    starts: Ints
    ends: Ints
    absent: npt.NDArray[np.bool_]


class _Headers(NamedTuple):
    """Headers of all records, in order: how many each record has, and the spans of all."""

    counts: Ints
    keys: _Spans
    values: _Spans


class _Fields(NamedTuple):
    """All fields of all records of a buffer."""

    offsets: Ints
    timestamps: Ints
    kinds: Ints
    keys: _Spans
    values: _Spans
    headers: _Headers | None


def decode(batches: Sequence[Buffer], wanted: ColumnsWanted) -> pa.RecordBatch:
    """Decode as `plain.decode` does, with the same result in every bit and the same errors."""
    headers = [read_header(batch) for batch in batches]
    if any(each.attributes & CONTROL for each in headers):
        pairs = [
            pair for pair in zip(batches, headers, strict=True) if not pair[1].attributes & CONTROL
        ]
        batches, headers = [batch for batch, _ in pairs], [header for _, header in pairs]
    if sum(each.records_count for each in headers) <= 0:
        return plain.decode(batches, wanted)
    on = f"{wanted.topic}-{wanted.partition}"
    try:
        return _decode(batches, headers, wanted, on)
    except (Odd, CorruptData):
        # an earlier batch may be damaged as well, and its error comes first
        return plain.decode(batches, wanted)


def _decode(
    batches: Sequence[Buffer], headers: Sequence[BatchHeader], wanted: ColumnsWanted, on: str
) -> pa.RecordBatch:
    areas = [
        decompress(
            header.attributes & CODEC_MASK,
            memoryview(batch)[BATCH_HEADER_BYTES : header.size],
            CorruptData,
            on,
        )
        for batch, header in zip(batches, headers, strict=True)
    ]
    sizes = np.array([len(area) for area in areas], dtype=np.int64)
    body = b"".join([*areas, bytes(PAD_BYTES)])
    if len(body) > BODY_BYTES_MAX:
        raise Odd
    for header, area in zip(headers, areas, strict=True):
        _check_sane(header, len(area))
    table = np.array(
        [
            (
                each.base_offset,
                each.records_count,
                each.last_offset_delta,
                each.base_timestamp,
                each.max_timestamp,
                each.attributes,
            )
            for each in headers
        ],
        dtype=np.int64,
    )
    fields = _fields(np.frombuffer(body, dtype=np.uint8), sizes, table, HEADERS in wanted.columns)
    first = int(np.searchsorted(fields.offsets, wanted.first))
    stop = int(np.searchsorted(fields.offsets, wanted.stop))
    return _assemble(body, fields, slice(first, max(first, stop)), wanted)


def _check_sane(header: BatchHeader, area_bytes: int) -> None:
    """Check that int64 sums of a header's numbers cannot overflow, and that its count of records
    fits into its bytes."""
    if not (
        0 <= header.records_count * RECORD_BYTES_MIN <= area_bytes
        and 0 <= header.base_offset < FAR
        and abs(header.base_timestamp) < FAR
        and header.last_offset_delta >= 0
    ):
        raise Odd


# --- fields ---------------------------------------------------------------------------------------


def _fields(body: Bytes, sizes: Ints, table: Ints, with_headers: bool) -> _Fields:
    """All fields. Raises `Odd` for whatever `plain` should judge."""
    base_offsets, counts, last_deltas, base_times, max_times, attributes = table.T
    starts, ends = record_starts(body, sizes, counts)
    deltas_at = starts + 1  # skip the attributes, which have no meaning yet
    time_deltas, at = varints(body, deltas_at)
    deltas, at = varints(body, at)
    _check_deltas(deltas, counts, last_deltas)
    keys, at = _span(body, at)
    values, at = _span(body, at)
    header_counts, at = varints(body, at)
    found = None
    if header_counts.any():
        found, at = _headers(body, at, header_counts)
    if not np.array_equal(at, ends):
        raise Odd
    if int(time_deltas.max()) >= FAR or int(time_deltas.min()) <= -FAR:
        raise Odd
    stamps = np.repeat(base_times, counts) + time_deltas
    appended = (attributes & LOG_APPEND_TIME) != 0
    if appended.any():
        stamps = np.where(np.repeat(appended, counts), np.repeat(max_times, counts), stamps)
    offsets = np.repeat(base_offsets, counts) + deltas
    if bool((np.diff(offsets) <= 0).any()):
        raise Odd
    kinds = np.repeat(appended.astype(np.int64), counts)
    return _Fields(offsets, stamps, kinds, keys, values, found if with_headers else None)


def _check_deltas(deltas: Ints, counts: Ints, last_deltas: Ints) -> None:
    """Check that offset deltas ascend within a batch, from at least 0 to at most the last delta."""
    wrong = deltas[1:] <= deltas[:-1]
    stops = np.cumsum(counts)
    filled = stops[counts > 0]
    wrong[filled[:-1] - 1] = False  # the first delta of the next batch need not be larger
    firsts = (stops - counts)[counts > 0]
    if wrong.any() or (deltas[firsts] < 0).any():
        raise Odd
    if (deltas[filled - 1] > last_deltas[counts > 0]).any():
        raise Odd


def _span(body: Bytes, at: Ints) -> tuple[_Spans, Ints]:
    """The spans of fields that have their length in front (-1 for null), and the places after
    them."""
    lengths, starts = varints(body, at)
    low, high = int(lengths.min()), int(lengths.max())
    if low < -1 or high > len(body):
        raise Odd
    absent = lengths < 0
    ends = starts + (np.maximum(lengths, 0) if low < 0 else lengths)
    return _Spans(starts, ends, absent), ends


def _headers(body: Bytes, at: Ints, counts: Ints) -> tuple[_Headers, Ints]:
    """Read the headers: step j reads header j of all records that have so many."""
    if bool((counts < 0).any()) or int(counts.max()) > _HEADER_STEPS_MAX:
        raise Odd
    total = int(counts.sum())
    if total > len(body):
        raise Odd
    first = np.cumsum(counts) - counts
    places = np.zeros((4, total), dtype=np.int64)
    absent = np.zeros(total, dtype=np.bool_)
    at = at.copy()
    for step in range(int(counts.max())):
        having = np.flatnonzero(counts > step)
        keys, behind = _span(body, at[having])
        if keys.absent.any():
            raise Odd
        values, behind = _span(body, behind)
        rows = first[having] + step
        places[:, rows] = (keys.starts, keys.ends, values.starts, values.ends)
        absent[rows] = values.absent
        at[having] = behind
    never = np.zeros(total, dtype=np.bool_)
    keys = _Spans(places[0], places[1], never)
    return _Headers(counts, keys, _Spans(places[2], places[3], absent)), at


# --- Arrow ----------------------------------------------------------------------------------------


def _assemble(body: bytes, fields: _Fields, rows: slice, wanted: ColumnsWanted) -> pa.RecordBatch:
    count = rows.stop - rows.start
    if TIMESTAMP in wanted.columns and count:
        stamps = fields.timestamps[rows]
        if int(stamps.max()) > TIMESTAMP_MS_MAX or int(stamps.min()) < -TIMESTAMP_MS_MAX:
            raise Odd
    arrays: list[Any] = []
    for name in wanted.columns:
        if name == KEY:
            arrays.append(_binary(body, fields.keys, rows, pa.binary()))
        elif name == VALUE:
            arrays.append(_binary(body, fields.values, rows, pa.binary()))
        elif name == TOPIC:
            arrays.append(_topics(wanted.topic, _rounded(count)).slice(0, count))
        elif name == PARTITION:
            arrays.append(pa.array(np.full(count, wanted.partition, dtype=np.int32)))
        elif name == OFFSET:
            arrays.append(pa.array(fields.offsets[rows]))
        elif name == TIMESTAMP:
            micros = pa.array(fields.timestamps[rows] * MICROS_PER_MILLI)
            arrays.append(micros.view(pa.timestamp("us", tz="UTC")))
        elif name == TIMESTAMP_TYPE:
            arrays.append(pa.array(fields.kinds[rows].astype(np.int32)))
        else:
            assert name == HEADERS, name
            arrays.append(_header_lists(body, fields.headers, rows))
    return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(wanted.columns))


def _binary(body: bytes, spans: _Spans, rows: slice, kind: pa.DataType) -> pa.Array:
    """The bytes of these spans, which ascend, as an array of their own."""
    count = rows.stop - rows.start
    if not count:
        return pa.array([], type=kind)
    borders = np.empty(2 * count + 1, dtype=np.int32)
    borders[0:-1:2] = spans.starts[rows]
    borders[1::2] = spans.ends[rows]
    borders[-1] = borders[-2]
    buffers = [None, pa.py_buffer(borders), pa.py_buffer(body)]
    whole = pa.Array.from_buffers(kind, 2 * count, buffers)
    evens = np.arange(0, 2 * count, 2, dtype=np.int32)
    absent = spans.absent[rows]
    if absent.any():
        return whole.take(pa.array(evens, mask=absent))
    return whole.take(pa.array(evens))


def _header_lists(body: bytes, headers: _Headers | None, rows: slice) -> pa.Array:
    """Lists of (key, value); null for a record without any."""
    kind = pa.list_(pa.field("element", HEADER_TYPE))
    count = rows.stop - rows.start
    if headers is None:
        return pa.nulls(count, type=kind)
    before = int(headers.counts[: rows.start].sum())
    counts = headers.counts[rows]
    inside = slice(before, before + int(counts.sum()))
    keys = _binary(body, headers.keys, inside, pa.binary())
    try:
        texts = keys.cast(pa.string())
    except pa.ArrowInvalid:
        raise Odd from None
    values = _binary(body, headers.values, inside, pa.binary())
    pairs = pa.StructArray.from_arrays([texts, values], fields=list(HEADER_TYPE))
    borders = np.zeros(count + 1, dtype=np.int32)
    np.cumsum(counts, out=borders[1:])
    return pa.ListArray.from_arrays(pa.array(borders), pairs, type=kind, mask=pa.array(counts == 0))


def _rounded(count: int) -> int:
    """The next power of two. There are few such sizes, so that arrays of them are worth caching."""
    return 1 << max(10, (count - 1).bit_length())


@lru_cache(maxsize=8)
def _topics(topic: str, count: int) -> pa.Array:
    """An array that repeats the topic's name."""
    return pa.repeat(pa.scalar(topic, type=pa.string()), count)
