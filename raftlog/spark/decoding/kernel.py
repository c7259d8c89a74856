"""The compiled part of the decoder: record batches walked record by record, by machine code.

numba compiles these functions when this module is imported, which takes seconds. It caches the
result in `__pycache__` beside this file, else in the user's cache folder, else in NUMBA_CACHE_DIR;
the next import takes a tenth of a second. The cache is trusted like compiled Python files beside a
module. If no folder can be written, every process compiles for itself.

Machine code checks no index, so these laws hold in every line (and tests run the same lines under
arrays that do check):

1. A byte of `body` is read only at `at` with begin <= at < end, where end is the end of its record,
   or of its batch before the record's length is known, and never beyond `borders[-1]`.
2. A length is compared with what is left before anything is added to it.
3. A row is written only while fewer than `rows_max` are; keys and values come from spans of `body`
   that do not overlap, so together they fit in as many bytes as `body` has.
4. All numbers are int64 and below 2**63: varints of more than nine bytes, base offsets and times
   from 2**62 on are ODD.

Bytes that producers do not write so are ODD, and `raftlog.spark.decoding.plain` judges them.
"""

from collections.abc import Callable
from typing import Final, TypeVar, cast

import numba
import numpy as np
import numpy.typing as npt
from numba import int32, int64, types, uint8

from raftlog.base.limits import BATCH_HEADER_BYTES, RECORD_HEADERS_MAX
from raftlog.records.batch import CODEC_MASK, CONTROL, LENGTH_OVERHEAD, LOG_APPEND_TIME
from raftlog.spark.decoding.columns import FAR, MICROS_PER_MILLI, RECORD_BYTES_MIN, TIMESTAMP_MS_MAX

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]
SmallInts = npt.NDArray[np.int32]
Function = TypeVar("Function", bound=Callable[..., object])

ODD: Final = -1
"""The walk does not understand the bytes; the plain decoder decides."""
HAS_HEADERS: Final = -2
"""Headers are wanted and exist; the numpy decoder builds the columns."""

# Numba compiles these in as numbers.
_BATCH_HEADER_BYTES: Final = BATCH_HEADER_BYTES
_VARINT_SHIFT_MAX: Final = 56
"""The shift of the ninth byte of a varint; nine bytes are 63 bits."""

int64_of = cast("Callable[[np.uint8], int]", np.int64)
"""Makes an int64 of a byte: numba computes with bytes modulo 256."""
_BODY: Final = types.Array(uint8, 1, "C", readonly=True)
_BYTES: Final = types.Array(uint8, 1, "C")
_BORDERS: Final = types.Array(int32, 1, "C")
_VARINT: Final = types.UniTuple(int64, 2)


def compiled(signature: object) -> Callable[[Function], Function]:
    """Compile now, or load the cached result. After any failure of the cache, compile without it: a
    task must not fail because of a cache, and a fault of the compiler itself would appear again."""

    def compile_now(function: Function) -> Function:
        try:
            made = numba.njit(signature, cache=True, nogil=True)(function)
        except Exception:
            made = numba.njit(signature, nogil=True)(function)
        return cast("Function", made)

    return compile_now


def inlined(function: Function) -> Function:
    """Compile a function into its callers, because a call would cost more than its work."""
    return cast("Function", numba.njit(inline="always")(function))


@compiled(int64(_BODY, int64, int64))
def number_at(body: Bytes, at: int, size: int) -> int:
    """Read a signed big-endian number of `size` bytes, all of them inside of `body`."""
    number = int64_of(body[at])
    if number >= 128:
        number -= 256
    for place in range(at + 1, at + size):
        number = (number << 8) | int64_of(body[place])
    return number


@compiled(_VARINT(_BODY, int64, int64))
def varint_at(body: Bytes, at: int, end: int) -> tuple[int, int]:
    """A zigzag varint and the place behind it; place ODD where it is cut short or too long."""
    raw = shift = 0
    while at < end and shift <= _VARINT_SHIFT_MAX:
        byte = int64_of(body[at])
        at += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (raw >> 1) ^ -(raw & 1), at
        shift += 7
    return 0, ODD


@compiled(_VARINT(_BODY, int64, int64))
def field_at(body: Bytes, at: int, end: int) -> tuple[int, int]:
    """The size of a field with its length in front, -1 for null, and where its bytes begin; begin
    ODD where it does not fit before `end`."""
    size, start = varint_at(body, at, end)
    if start < 0 or size < -1 or size > end - start:
        return 0, ODD
    return size, start


@compiled(int64(_BODY, int64, int64))
def behind_headers(body: Bytes, at: int, end: int) -> int:
    """The place behind the headers of a record, of which the count lies at `at`."""
    count, at = varint_at(body, at, end)
    if at < 0 or count < 0 or count > RECORD_HEADERS_MAX or count > end - at:
        return ODD
    for _ in range(count):
        size, at = field_at(body, at, end)
        if at < 0 or size < 0:
            return ODD
        at += size
        size, at = field_at(body, at, end)
        if at < 0:
            return ODD
        at += max(size, 0)
    return at


@compiled(int64(_BODY, int64, int64, _BYTES, int64))
def copied(body: Bytes, at: int, size: int, into: Bytes, end: int) -> int:
    """Copy `size` bytes of `body` behind the first `end` of `into`; the new end."""
    # Unsigned places. Signed ones may count from an array's end in numba, so it would copy a byte
    # at a time, ten times as slowly.
    source, target = np.uint64(at), np.uint64(end)
    for byte in range(np.uint64(size)):
        into[target + byte] = body[source + byte]
    return end + size


@compiled(int64(_BODY, types.Array(int64, 1, "C")))
def rows_at_most(body: Bytes, borders: Ints) -> int:
    """How many records the headers of these batches announce; ODD when the walk cannot work with a
    number in a header."""
    rows = 0
    for number in range(len(borders) - 1):
        begin, size = borders[number], borders[number + 1] - borders[number]
        if size < _BATCH_HEADER_BYTES:
            return ODD
        attributes = number_at(body, begin + 21, 2)
        if attributes & CONTROL:
            continue
        count = number_at(body, begin + 57, 4)
        if (
            count < 0
            or count * RECORD_BYTES_MIN > size - _BATCH_HEADER_BYTES
            or number_at(body, begin + 23, 4) < 0
            or not 0 <= number_at(body, begin, 8) < FAR
            or not -FAR < number_at(body, begin + 27, 8) < FAR
            or not -FAR < number_at(body, begin + 35, 8) < FAR
        ):
            return ODD
        if attributes & CODEC_MASK == 0 and number_at(body, begin + 8, 4) != size - LENGTH_OVERHEAD:
            return ODD
        rows += count
    return rows


@compiled(types.UniTuple(int64, 5)(_BODY, int64))
def batch_at(body: Bytes, at: int) -> tuple[int, int, int, int, int]:
    """The numbers in a batch's header: count of records, base offset, last offset delta, base
    timestamp, and the append time (-FAR when the records have times of their own)."""
    append_time = -FAR
    if number_at(body, at + 21, 2) & LOG_APPEND_TIME:
        append_time = number_at(body, at + 35, 8)
    return (
        number_at(body, at + 57, 4),
        number_at(body, at, 8),
        number_at(body, at + 23, 4),
        number_at(body, at + 27, 8),
        append_time,
    )


@inlined
def record_at(body: Bytes, at: int, end: int) -> tuple[int, int, int, int, int, int, int, int]:
    """The record at `at`, whole and well-formed before `end`: its end (else ODD), time delta,
    offset delta, size of the key (-1 for null) and where it begins, likewise of the value, and
    where its headers begin."""
    odd = ODD, 0, 0, 0, 0, 0, 0, 0
    size, at = varint_at(body, at, end)
    if at < 0 or size < 1 or size > end - at:
        return odd
    record_end = at + size
    time_delta, at = varint_at(body, at + 1, record_end)  # `at + 1` skips the attributes
    if at < 0 or not -FAR < time_delta < FAR:
        return odd
    delta, at = varint_at(body, at, record_end)
    if at < 0:
        return odd
    key_size, key_at = field_at(body, at, record_end)
    if key_at < 0:
        return odd
    value_size, value_at = field_at(body, key_at + max(key_size, 0), record_end)
    if value_at < 0:
        return odd
    headers_at = value_at + max(value_size, 0)
    if behind_headers(body, headers_at, record_end) != record_end:
        return odd
    return record_end, time_delta, delta, key_size, key_at, value_size, value_at, headers_at


@compiled(
    int64(
        _BODY,
        types.Array(int64, 1, "C"),
        int64,
        int64,
        types.boolean,
        types.Array(int64, 1, "C"),
        types.Array(int64, 1, "C"),
        types.Array(int32, 1, "C"),
        _BORDERS,
        _BYTES,
        _BYTES,
        _BORDERS,
        _BYTES,
        _BYTES,
    )
)
def walk(
    body: Bytes,
    borders: Ints,
    first: int,
    stop: int,
    with_headers: bool,
    offsets: Ints,
    micros: Ints,
    kinds: SmallInts,
    key_borders: SmallInts,
    key_bytes: Bytes,
    key_bits: Bytes,
    value_borders: SmallInts,
    value_bytes: Bytes,
    value_bits: Bytes,
) -> int:
    """Check every record of the batches in `body`, and write those of [first, stop); how many they
    are, or ODD, or HAS_HEADERS.

    `borders` are the batches' begins and the end of the last; a compressed batch lies there with
    its header and its records expanded. `rows_at_most` has accepted them, and the columns have room
    for that many rows: `offsets`, `micros` and `kinds` one a row, borders one more and beginning
    with 0, `*_bytes` as many as `body` has, `*_bits` a set bit a row. Columns that are not wanted
    are empty."""
    rows = key_end = value_end = 0
    for number in range(len(borders) - 1):
        at, end = borders[number], borders[number + 1]
        if number_at(body, at + 21, 2) & CONTROL:
            continue
        count, base_offset, delta_max, base_time, append_time = batch_at(body, at)
        at += _BATCH_HEADER_BYTES
        delta_before = -1
        for _ in range(count):
            at, time, delta, key_size, key_at, value_size, value_at, headers_at = record_at(
                body, at, end
            )
            if at < 0 or delta <= delta_before or delta > delta_max:
                return ODD
            delta_before = delta
            offset = base_offset + delta
            if offset < first or offset >= stop:
                continue
            if with_headers and at - headers_at > 1:
                return HAS_HEADERS
            if len(offsets):
                offsets[rows] = offset
            if len(kinds):
                kinds[rows] = append_time > -FAR
            if len(micros):
                time = append_time if append_time > -FAR else base_time + time
                if not -TIMESTAMP_MS_MAX <= time <= TIMESTAMP_MS_MAX:
                    return ODD
                micros[rows] = time * MICROS_PER_MILLI
            if len(key_borders):
                if key_size < 0:
                    key_bits[rows >> 3] &= ~(1 << (rows & 7))
                key_end = copied(body, key_at, max(key_size, 0), key_bytes, key_end)
                key_borders[rows + 1] = key_end
            if len(value_borders):
                if value_size < 0:
                    value_bits[rows >> 3] &= ~(1 << (rows & 7))
                value_end = copied(body, value_at, max(value_size, 0), value_bytes, value_end)
                value_borders[rows + 1] = value_end
            rows += 1
        if at != end:
            return ODD
    return rows
