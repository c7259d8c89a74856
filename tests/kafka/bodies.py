"""Hypothesis strategies for message bodies, made from the tables, and helpers to compare them.

Values stay inside what all three codecs can say: kio reads error codes as an enum, some timestamps
as dates and some durations as timedeltas, so these fields are drawn from their common range.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from raftlog.kafka.compile import class_finder
from raftlog.kafka.shape import FieldTable, MessageTable, holds
from raftlog.kafka.tables import all_tables

TABLES = all_tables()
PAIRS = [(table, version) for table in TABLES for version in range(table[3][0], table[3][1] + 1)]
"""Every (message, version)."""

DATES = {"log_append_time_ms", "transaction_start_time_ms", "max_timestamp", "expiry_timestamp_ms"}
PERIODS = {"retention_time_ms", "session_lifetime_ms"}
YEAR_9000_MS = 221_845_392_000_000


def pair_id(value: Any) -> str:
    """A readable test id for an element of PAIRS."""
    return value[1] if isinstance(value, tuple) else f"v{value}"


def _integers(bits: int, signed: bool = True) -> st.SearchStrategy[int]:
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    return st.sampled_from([0, -1 if signed else 1, low, high, 7]) | st.integers(low, high)


TEXT = st.text(st.characters(codec="utf-8"), max_size=5) | st.sampled_from(
    ["é" * 64, "x" * 127, "y" * 300]
)
BYTES = st.binary(max_size=6) | st.sampled_from([b"z" * 127, b"r" * 1024, b"R" * 1025])
NO_NAMES: Mapping[str, st.SearchStrategy[Any]] = MappingProxyType({})
SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "int8": _integers(8),
    "int16": _integers(16),
    "uint16": _integers(16, signed=False),
    "int32": _integers(32),
    "uint32": _integers(32, signed=False),
    "int64": _integers(64),
    "float64": st.floats(allow_nan=False),
    "bool": st.booleans(),
    "uuid": st.binary(min_size=16, max_size=16) | st.just(bytes(16)),
    "string": TEXT,
    "bytes": BYTES,
    "records": BYTES,
}


def bodies(
    table: MessageTable, version: int, named: Mapping[str, st.SearchStrategy[Any]] = NO_NAMES
) -> st.SearchStrategy[Any]:
    """Bodies of one message version; fields that it lacks have their defaults. `named` has values
    for the fields of these names, or for the elements of arrays of them."""
    return _struct(class_finder(table), table[1], table[5], version, named)


def _struct(
    class_of: Any, name: str, fields: Any, version: int, named: Any
) -> st.SearchStrategy[Any]:
    given = {
        field[0]: _field(class_of, field, version, named)
        for field in fields
        if holds(field[2], version)
    }
    made = class_of(name)
    return st.fixed_dictionaries(given).map(lambda drawn: made(**drawn))


def _field(class_of: Any, field: FieldTable, version: int, named: Any) -> st.SearchStrategy[Any]:
    name, kind, _, nullable = field[:4]
    base = kind.removeprefix("[]")
    if field[7]:
        value = _struct(class_of, base, field[7], version, named)
    elif name in named:
        value = named[name]
    elif name.endswith("error_code"):
        value = st.sampled_from([int(code) for code in ErrorCode])
    elif name in DATES:
        value = st.integers(0, YEAR_9000_MS)
    elif name in PERIODS:
        value = st.integers(-YEAR_9000_MS, YEAR_9000_MS)
    else:
        value = SCALARS[base]
    if kind.startswith("[]"):
        value = st.lists(value, max_size=2).map(tuple) | _long(field, value)
    return st.none() | value if holds(nullable, version) else value


def _long(field: FieldTable, value: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Arrays beyond the short forms: 16 numbers, and counts of more than one byte."""
    if field[7]:
        return value.map(lambda one: (one,) * 3)
    return st.builds(lambda one, count: (one,) * count, value, st.sampled_from([15, 16, 127, 128]))


def encoded(encode: Any, body: Any) -> bytes:
    """Returns the bytes that an encoder function makes of a body, as one run."""
    parts: list[Any] = []
    encode(body, parts, [])
    return b"".join(parts)
