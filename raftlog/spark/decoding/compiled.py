"""The fastest decoder: record batches to Arrow columns by compiled code
(`raftlog.spark.decoding.kernel`).

    batches -> one buffer of batches, their records expanded     Python, a step per batch
            -> checked, counted, copied into Arrow's buffers     one walk, machine code

When the walk does not understand a batch, the result or error of `raftlog.spark.decoding.plain`
counts. When headers are wanted and exist, `raftlog.spark.decoding.vectors` builds the columns.
"""

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from raftlog.base.binary import Buffer
from raftlog.base.errors import CorruptData
from raftlog.base.limits import BATCH_HEADER_BYTES
from raftlog.records.batch import CODEC_MASK, CONTROL, LENGTH_OVERHEAD
from raftlog.records.compression import decompress
from raftlog.spark.decoding import kernel, plain, vectors
from raftlog.spark.decoding.columns import (
    ARROW_TYPES,
    BODY_BYTES_MAX,
    HEADERS,
    KEY,
    OFFSET,
    PARTITION,
    TIMESTAMP,
    TIMESTAMP_TYPE,
    TOPIC,
    VALUE,
    ColumnsWanted,
    arrow_schema,
)

_KEPT_BYTES: Final = (32 << 20) - (64 << 10)
"""The size of a block that is allocated and freed once, so that glibc keeps a task's buffers. glibc
returns large freed blocks to the kernel, and faulting the next ones in page by page costs as much
as decoding. Its thresholds follow the largest block that was freed, up to 32 MiB (mallopt(3),
M_MMAP_THRESHOLD). With other C libraries this has no effect."""
np.empty(_KEPT_BYTES, dtype=np.uint8)

_STOP_MAX: Final = 2**63 - 1
"""A stop above every offset that the kernel accepts, including those just above `FAR`."""
_SIZE: Final = struct.Struct(">i")
_SIZE_AT: Final = 8
_ATTRIBUTES_AT: Final = 22
"""Where the low byte of the attributes is in a batch. It has the codec and the control bit."""


def decode(batches: Sequence[Buffer], wanted: ColumnsWanted) -> pa.RecordBatch:
    """Decode as `plain.decode` does, with the same result in every bit and the same errors."""
    on = f"{wanted.topic}-{wanted.partition}"
    try:
        parts, sizes = _expanded(batches, on)
    except CorruptData:
        # an earlier batch may be damaged as well, and its error comes first
        return plain.decode(batches, wanted)
    body = np.frombuffer(b"".join(parts), dtype=np.uint8)
    borders = np.zeros(len(sizes) + 1, dtype=np.int64)
    np.cumsum(sizes, out=borders[1:])
    rows_max = kernel.rows_at_most(body, borders) if 0 < len(body) <= BODY_BYTES_MAX else -1
    if rows_max < 0:
        return plain.decode(batches, wanted)
    found = _walk(body, borders, rows_max, wanted)
    if isinstance(found, int):
        judge = vectors if found == kernel.HAS_HEADERS else plain
        return judge.decode(batches, wanted)
    return found


def _expanded(batches: Sequence[Buffer], on: str) -> tuple[list[Buffer], list[int]]:
    """The parts of a body of uncompressed batches, and the size of each batch in it."""
    parts: list[Buffer] = []
    sizes: list[int] = []
    for batch in batches:
        attributes = batch[_ATTRIBUTES_AT]
        if attributes & CODEC_MASK and not attributes & CONTROL:
            view = memoryview(batch)
            end = _SIZE.unpack_from(view, _SIZE_AT)[0] + LENGTH_OVERHEAD
            inside = decompress(
                attributes & CODEC_MASK, view[BATCH_HEADER_BYTES:end], CorruptData, on
            )
            parts += (view[:BATCH_HEADER_BYTES], inside)
            sizes.append(BATCH_HEADER_BYTES + len(inside))
        else:
            parts.append(batch)
            sizes.append(len(batch))
    return parts, sizes


def _walk(
    body: npt.NDArray[np.uint8],
    borders: npt.NDArray[np.int64],
    rows_max: int,
    wanted: ColumnsWanted,
) -> pa.RecordBatch | int:
    """The columns, or the kernel's code (ODD, HAS_HEADERS) instead."""
    columns = wanted.columns
    offsets = np.empty(rows_max if OFFSET in columns else 0, dtype=np.int64)
    micros = np.empty(rows_max if TIMESTAMP in columns else 0, dtype=np.int64)
    kinds = np.empty(rows_max if TIMESTAMP_TYPE in columns else 0, dtype=np.int32)
    keys = _Field.of(KEY in columns, rows_max, len(body))
    values = _Field.of(VALUE in columns, rows_max, len(body))
    rows: int = kernel.walk(
        body,
        borders,
        max(0, wanted.first),
        min(wanted.stop, _STOP_MAX),
        HEADERS in columns,
        offsets,
        micros,
        kinds,
        *keys,
        *values,
    )
    if rows < 0:
        return rows
    assert rows <= rows_max, (rows, rows_max)
    arrays: list[Any] = []
    for name in columns:
        if name == KEY:
            arrays.append(keys.array(rows))
        elif name == VALUE:
            arrays.append(values.array(rows))
        elif name == TOPIC:
            arrays.append(repeated(wanted.topic, pa.string(), rows))
        elif name == PARTITION:
            arrays.append(repeated(wanted.partition, pa.int32(), rows))
        elif name == OFFSET:
            arrays.append(pa.array(offsets[:rows]))
        elif name == TIMESTAMP:
            arrays.append(pa.array(micros[:rows]).view(ARROW_TYPES[TIMESTAMP]))
        elif name == TIMESTAMP_TYPE:
            arrays.append(pa.array(kinds[:rows]))
        else:
            assert name == HEADERS, name
            arrays.append(pa.nulls(rows, type=ARROW_TYPES[HEADERS]))
    return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(columns))


class _Field(NamedTuple):
    """The buffers of a key or value column, which the kernel fills."""

    borders: npt.NDArray[np.int32]
    bytes: npt.NDArray[np.uint8]
    bits: npt.NDArray[np.uint8]

    @staticmethod
    def of(wanted: bool, rows_max: int, bytes_max: int) -> "_Field":
        if not wanted:
            return _NOT_WANTED
        borders = np.empty(rows_max + 1, dtype=np.int32)
        borders[0] = 0
        bits = np.full((rows_max + 7) // 8, 0xFF, dtype=np.uint8)
        return _Field(borders, np.empty(bytes_max, dtype=np.uint8), bits)

    def array(self, rows: int) -> pa.Array:
        """An Arrow array of the first `rows` rows, without copying the buffers."""
        size = int(self.borders[rows])
        assert 0 <= size <= len(self.bytes), (size, len(self.bytes))
        bits, borders, inside = self.bits[: (rows + 7) // 8], self.borders[: rows + 1], self.bytes
        buffers = [pa.py_buffer(each) for each in (bits, borders, inside[:size])]
        return pa.Array.from_buffers(pa.binary(), rows, buffers)


_NOT_WANTED: Final = _Field(
    np.empty(0, dtype=np.int32), np.empty(0, dtype=np.uint8), np.empty(0, dtype=np.uint8)
)


@lru_cache(maxsize=16)
def _many(what: object, kind: pa.DataType, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(what, type=kind), count)


def repeated(what: object, kind: pa.DataType, count: int) -> pa.Array:
    """An array that repeats one value. It is cut from one of the next power of two, so that few
    arrays are made and cached."""
    return _many(what, kind, 1 << max(10, (count - 1).bit_length())).slice(0, count)
