"""Filters that narrow what is read: on topic, partition, offset, and the younger end of timestamp.

Spark pushes filters to a Python source only with spark.sql.python.filterPushdown.enabled. A filter
that the source applies exactly is not evaluated by Spark; all others go back to Spark. `timestamp
>= t` begins the read at the first offset with a record at or after t. Spark checks this filter
again, because timestamps need not ascend.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, final

import attrs
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from raftlog.spark.connector.offsets import KnownOffsets, TopicPlace

OFFSET_MAX: Final = 2**63 - 1
NEVER_NULL: Final = ("topic", "partition", "offset", "timestamp", "timestampType")

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@final
@attrs.frozen(kw_only=True)
class FilterBounds:
    """The range that the pushed filters leave: offsets in [low, high), these topics, these
    partitions."""

    low: int = 0
    high: int = OFFSET_MAX
    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    since_ms: int | None = None

    def admits(self, place: TopicPlace) -> bool:
        """Whether a partition may have wanted records."""
        return (self.topics is None or place.topic in self.topics) and (
            self.partitions is None or place.partition in self.partitions
        )

    def narrow(
        self,
        start: Mapping[TopicPlace, int],
        end: Mapping[TopicPlace, int],
        view: Any,
        known: KnownOffsets,
    ) -> tuple[dict[TopicPlace, int], dict[TopicPlace, int]]:
        """Narrow starts and ends to the bounds. `view` answers questions for offsets by
        timestamp."""
        low: dict[TopicPlace, int] = {}
        high: dict[TopicPlace, int] = {}
        for place in start:
            if not self.admits(place):
                continue
            first = max(start[place], self.low)
            if self.since_ms is not None:
                young = view.offset(place, self.since_ms)
                first = max(first, known.end[place] if young < 0 else young)
            low[place] = first
            high[place] = min(end[place], self.high)
        return low, high


def bounds_of(filters: Sequence[Filter]) -> tuple[FilterBounds, list[Filter]]:
    """The bounds, and the filters that Spark still has to evaluate."""
    bounds = FilterBounds()
    left: list[Filter] = []
    for each in filters:
        narrower = _narrowed(bounds, each)
        if narrower is None:
            left.append(each)
            continue
        bounds = narrower
        if each.attribute == ("timestamp",) and not isinstance(each, IsNotNull):
            left.append(each)
    return bounds, left


def _narrowed(bounds: FilterBounds, each: Filter) -> FilterBounds | None:
    """The bounds with one more filter; None for a filter that the source cannot use."""
    attribute: tuple[str, ...] = getattr(each, "attribute", ())
    if len(attribute) != 1:
        return None
    (name,) = attribute
    if isinstance(each, IsNotNull):
        return bounds if name in NEVER_NULL else None
    value = getattr(each, "value", None)
    if name == "offset":
        return _offsets(bounds, each, value)
    if name == "timestamp":
        return _timestamps(bounds, each, value)
    wanted = _values(each, value, int if name == "partition" else str)
    if wanted is None or name not in ("topic", "partition"):
        return None
    if name == "topic":
        topics = bounds.topics
        return attrs.evolve(bounds, topics=wanted if topics is None else topics & wanted)
    parts = bounds.partitions
    return attrs.evolve(bounds, partitions=wanted if parts is None else parts & wanted)


def _values(each: Filter, value: Any, kind: type) -> frozenset[Any] | None:
    if isinstance(each, EqualTo) and type(value) is kind:
        return frozenset([value])
    if isinstance(each, In) and all(type(one) is kind for one in value):
        return frozenset(value)
    return None


def _offsets(bounds: FilterBounds, each: Filter, value: Any) -> FilterBounds | None:
    if type(value) is not int:
        return None
    low, high = bounds.low, bounds.high
    if isinstance(each, EqualTo):
        low, high = max(low, value), min(high, value + 1)
    elif isinstance(each, GreaterThanOrEqual):
        low = max(low, value)
    elif isinstance(each, GreaterThan):
        low = max(low, value + 1)
    elif isinstance(each, LessThan):
        high = min(high, value)
    elif isinstance(each, LessThanOrEqual):
        high = min(high, value + 1)
    else:
        return None
    return attrs.evolve(bounds, low=low, high=high)


def _timestamps(bounds: FilterBounds, each: Filter, value: Any) -> FilterBounds | None:
    if not isinstance(value, datetime) or not isinstance(
        each, GreaterThan | GreaterThanOrEqual | EqualTo
    ):
        return None
    aware = value if value.tzinfo is not None else value.astimezone()
    # Rounded down. Spark evaluates the filter again, so records before it are read but never shown.
    since = (aware - _EPOCH) // timedelta(milliseconds=1)
    if since < 0:
        return bounds
    known = bounds.since_ms
    return attrs.evolve(bounds, since_ms=since if known is None else max(known, since))
