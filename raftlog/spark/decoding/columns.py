"""The columns of a topic's table: those of Spark's own Kafka source, with the same names.

    key binary, value binary, topic string, partition int, offset long, timestamp timestamp,
    timestampType int (0 create time, 1 log append time), headers array<struct<key, value>>

A record without headers has null headers, as in Spark's source. All columns are nullable. A task's
output must match Spark's Arrow schema exactly in types and nullability, so the types are written
here.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import pyarrow as pa

KEY: Final = "key"
VALUE: Final = "value"
TOPIC: Final = "topic"
PARTITION: Final = "partition"
OFFSET: Final = "offset"
TIMESTAMP: Final = "timestamp"
TIMESTAMP_TYPE: Final = "timestampType"
HEADERS: Final = "headers"

HEADER_TYPE: Final = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
ARROW_TYPES: Final[dict[str, pa.DataType]] = {
    KEY: pa.binary(),
    VALUE: pa.binary(),
    TOPIC: pa.string(),
    PARTITION: pa.int32(),
    OFFSET: pa.int64(),
    TIMESTAMP: pa.timestamp("us", tz="UTC"),
    TIMESTAMP_TYPE: pa.int32(),
    HEADERS: pa.list_(pa.field("element", HEADER_TYPE)),
}
COLUMNS: Final = (KEY, VALUE, TOPIC, PARTITION, OFFSET, TIMESTAMP, TIMESTAMP_TYPE)
"""The columns without headers, which are only included on request."""

MICROS_PER_MILLI: Final = 1000
TIMESTAMP_MS_MAX: Final = (2**63 - 1) // MICROS_PER_MILLI
"""The largest timestamp that Spark can show: it counts microseconds in 64 bits."""

# Bounds of both fast decoders.
FAR: Final = 2**62
"""A limit for numbers: the sum of two numbers below it stays below 2**63."""
RECORD_BYTES_MIN: Final = 7
"""The smallest record: length, attributes, two deltas, two lengths and a count of one byte each."""
BODY_BYTES_MAX: Final = 2**31 - 1
"""The largest body: Arrow's borders are 32 bits wide."""


class ColumnsWanted(NamedTuple):
    """The request to a decoder: columns of the records of one partition in [first, stop). With
    `skip_corrupt` a batch whose content cannot be read has no rows; otherwise it is an error."""

    topic: str
    partition: int
    columns: tuple[str, ...]
    first: int
    stop: int
    skip_corrupt: bool = False


def arrow_schema(columns: Sequence[str]) -> pa.Schema:
    """The Arrow schema of a task's output."""
    return pa.schema([pa.field(name, ARROW_TYPES[name]) for name in columns])
