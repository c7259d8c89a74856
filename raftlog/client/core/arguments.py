"""The types that the client's public functions accept, for `raftlog.base.arguments.checked`.

`record_arguments` checks records. It handles hundreds of thousands in a second, so it does not use
those types: an ordinary record costs a handful of comparisons.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Annotated, Any

from raftlog.base.arguments import between, check
from raftlog.base.errors import WrongValue
from raftlog.base.limits import INT32_MAX, INT64_MAX, RECORD_HEADERS_MAX, RECORD_TIMESTAMP_MS_MAX
from raftlog.base.units import Nanos
from raftlog.metadata.rules.topic_names import topic_name_problem


def topic_name(name: str, value: str) -> str:
    """Return the text if it is a topic name; else raise an error. `name` is the name of the
    argument."""
    problem = _topic_name_problem(value)
    if problem is not None:
        raise WrongValue(f"{name} is no topic's name: {problem}", on=_shown(value))
    return value


@lru_cache(maxsize=1024)
def _topic_name_problem(name: str) -> str | None:
    return topic_name_problem(name)


def _shown(text: str) -> str:
    return ascii(text if len(text) <= 60 else f"{text[:57]}...")


TopicName = Annotated[str, topic_name]
PartitionIndex = Annotated[int, between(0, INT32_MAX)]
OffsetFrom = Annotated[int, between(0, INT64_MAX)]
"""An offset to read from."""
LookedUp = Annotated[int, between(-5, INT64_MAX)]
"""A timestamp to look up, or one of Kafka's special ones: EARLIEST, LATEST, MAX_TIMESTAMP."""
NodeNumber = Annotated[int, between(0, INT32_MAX)]
PartitionCount = Annotated[int, between(1, INT32_MAX)]
CountOrDefault = Annotated[int, between(-1, INT32_MAX)]
"""A number of partitions or replicas; -1 leaves it to the brokers."""
FactorOrDefault = Annotated[int, between(-1, 2**15 - 1)]
ByteCount = Annotated[int, between(0, INT32_MAX)]
WaitMillis = Annotated[int, between(0, INT32_MAX)]
Seconds = Annotated[float, between(0, float("inf"))]
Timeout = Annotated[Nanos, between(1, INT64_MAX // 4)]
"""Nanoseconds. The limit is low enough that the present time plus a timeout fits into 64 bits."""
_Timestamp = Annotated[int, between(0, RECORD_TIMESTAMP_MS_MAX)]
_Headers = Sequence[tuple[str, bytes | None]]


Record = tuple[
    str, bytes | None, bytes | None, Sequence[tuple[str, bytes | None]], int | None, int | None
]
"""Topic, value, key, headers, partition, timestamp: checked, and copied where the sender could
still change a list or a bytearray."""


def record_arguments(
    topic: Any,
    value: Any,
    key: Any,
    headers: Any,
    partition: Any,
    timestamp_ms: Any,
) -> Record:
    """Check the arguments of a record. `WrongType` and `WrongValue` name the wrong one."""
    if (
        type(topic) is not str
        or (value is not None and type(value) is not bytes)
        or (key is not None and type(key) is not bytes)
    ):
        topic = check("topic", topic, str)
        value = check("value", value, bytes | None)
        key = check("key", key, bytes | None)
    if type(headers) is not tuple or headers:
        headers = check("headers", headers, _Headers)
        if len(headers) > RECORD_HEADERS_MAX:  # consumers refuse such a record
            raise WrongValue(f"headers must be at most {RECORD_HEADERS_MAX}, not {len(headers)}")
    if partition is not None:
        partition = check("partition", partition, PartitionIndex)
    if timestamp_ms is not None:
        timestamp_ms = check("timestamp_ms", timestamp_ms, _Timestamp)
    if _topic_name_problem(topic) is not None:
        topic_name("topic", topic)
    return topic, value, key, headers, partition, timestamp_ms
