"""Offsets of a query: borders, ranges for tasks, and the share of each partition in a trigger.

Pure functions: the cluster's answers come in as values (`KnownOffsets`), and ranges to read go out.

A stream's offset, as Spark writes it into its checkpoint, is

    {"topic": {"id": "<topic id, 32 hex digits>", "offsets": {"0": 23, "1": 7}}}

with sorted names, because Spark compares offsets as texts. The topic id distinguishes a topic that
was deleted and created again from the one that was read before. The end of a query's first trigger
also has a "start" of the same shape: where the query began.
"""

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any, Final, NamedTuple

from raftlog.base.amounts import amount
from raftlog.base.errors import ConfigError, OperatingError
from raftlog.spark.connector.options import EARLIEST, LATEST, Border, BorderKind

TASKS_MAX: Final = 100_000
"""The most ranges of one query. The driver holds all of them, and a task costs Spark 25 ms."""


class TopicPlace(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class KnownOffsets(NamedTuple):
    """The cluster's answer: topic ids, and the first and end offset of each partition."""

    ids: Mapping[str, str]
    first: Mapping[TopicPlace, int]
    end: Mapping[TopicPlace, int]


class Range(NamedTuple):
    """Offsets [start, stop) of one partition of the topic with this id."""

    place: TopicPlace
    topic_id: str
    start: int
    stop: int

    @property
    def size(self) -> int:
        return self.stop - self.start


class DataLoss(OperatingError):
    """Records that a query should read no longer exist."""


LOSS_ADVICE: Final = (
    "set failOnDataLoss to false to go on with what is left, or start a new query and checkpoint"
)


# --- borders --------------------------------------------------------------------------------------


def given_offsets(border: Border, known: KnownOffsets) -> dict[TopicPlace, int]:
    """The offsets of a border that needs no timestamps. `ConfigError` unless it names exactly the
    partitions that are read."""
    if border.kind is BorderKind.EARLIEST:
        return dict(known.first)
    if border.kind is BorderKind.LATEST:
        return dict(known.end)
    assert border.kind is BorderKind.OFFSETS, border.kind
    named = named_places(border, known.end)
    return {
        place: known.first[place]
        if offset == EARLIEST
        else known.end[place]
        if offset == LATEST
        else offset
        for place, offset in named.items()
    }


def named_places(border: Border, read: Iterable[TopicPlace]) -> dict[TopicPlace, int]:
    """The numbers of a border by partition. It must name exactly the partitions that are read."""
    named = {
        TopicPlace(topic, partition): number
        for topic, partitions in sorted(border.by_place.items())
        for partition, number in sorted(partitions.items())
    }
    wanted = sorted(read)
    if sorted(named) != wanted:
        missing = [str(place) for place in wanted if place not in named]
        strange = [str(place) for place in named if place not in wanted]
        raise ConfigError(
            "must name every partition that is read, and no other"
            + (f"; missing: {', '.join(missing)}" if missing else "")
            + (f"; not read: {', '.join(strange)}" if strange else ""),
            on=border.option,
        )
    return named


def check_batch(
    start: Mapping[TopicPlace, int], end: Mapping[TopicPlace, int], known: KnownOffsets
) -> None:
    """Refuse borders outside of the log, and a start after its end. A batch never rewinds."""
    for place, low in start.items():
        high = end[place]
        if low > high:
            raise OperatingError(
                f"the start {low} is behind the end {high}",
                on=str(place),
                do="check startingOffsets and endingOffsets",
            )
        if high > known.end[place]:
            raise OperatingError(
                f"offset {high} is out of range: the log ends at {known.end[place]}", on=str(place)
            )


# --- ranges ---------------------------------------------------------------------------------------


def ranges(
    start: Mapping[TopicPlace, int],
    end: Mapping[TopicPlace, int],
    ids: Mapping[str, str],
    *,
    partitions_min: int | None = None,
    records_max: int | None = None,
) -> list[Range]:
    """The ranges that tasks read, in order: one for each partition, divided further for parallel
    tasks.

    There are never more ranges than records, and never more than `TASKS_MAX`. At that limit
    `partitions_min` is not reached, and a `records_max` that is too small raises
    `OperatingError`."""
    whole = [
        Range(place, ids[place.topic], start[place], end[place])
        for place in sorted(end)
        if end[place] > start[place]
    ]
    total = sum(each.size for each in whole)
    if records_max is not None:
        tasks = sum(-(-each.size // records_max) for each in whole)
        if tasks > TASKS_MAX:
            raise OperatingError(
                f"{amount(total, 'record')} in tasks of {records_max} would take "
                f"{amount(tasks, 'task')}; at most {TASKS_MAX} are allowed",
                on="maxRecordsPerPartition",
                do="raise it",
            )
        whole = [part for each in whole for part in _cut(each, -(-each.size // records_max))]
    if partitions_min is not None and len(whole) < partitions_min:
        partitions_min = min(partitions_min, TASKS_MAX)
        cut: list[Range] = []
        for each in whole:
            # As in Spark's Kafka source: in proportion to the size, at least one for each
            # partition.
            parts = max(1, round(each.size * partitions_min / total))
            cut += _cut(each, parts)
        whole = cut
    return whole


def _cut(whole: Range, parts: int) -> list[Range]:
    """Divide a range into nearly equal parts, none of them empty."""
    parts = max(1, min(parts, whole.size))
    borders = [whole.start + whole.size * at // parts for at in range(parts + 1)]
    return [whole._replace(start=low, stop=high) for low, high in pairwise(borders)]


# --- a stream's offset ----------------------------------------------------------------------------


def stream_offset(at: Mapping[TopicPlace, int], ids: Mapping[str, str]) -> dict[str, Any]:
    """A stream's offset in the form of the checkpoint."""
    topics: dict[str, dict[str, Any]] = {}
    for place in sorted(at):
        topic = topics.setdefault(place.topic, {"id": ids[place.topic], "offsets": {}})
        topic["offsets"][str(place.partition)] = at[place]
    return topics


def with_start(end: Mapping[str, Any], start: Mapping[str, Any]) -> dict[str, Any]:
    """The end of a query's first trigger, with the query's start added. A topic that was created in
    between, or is another topic by now, is not in the start: it began with this trigger."""
    return {
        topic: {
            **each,
            "start": start[topic]["offsets"]
            if topic in start and start[topic]["id"] == each["id"]
            else {},
        }
        for topic, each in end.items()
    }


def start_within(end: Mapping[str, Any]) -> dict[str, Any] | None:
    """The start in the end of a first trigger; None in the end of any other trigger."""
    found = {
        topic: {"id": each["id"], "offsets": each["start"]}
        for topic, each in end.items()
        if isinstance(each, Mapping) and "id" in each and "start" in each
    }
    return found or None


def parse_stream_offset(document: Any) -> tuple[dict[TopicPlace, int], dict[str, str]]:
    """Parse a checkpoint's offset into (offsets, topic ids); `OperatingError` for any other
    document."""
    try:
        at = {
            TopicPlace(topic, int(partition)): int(offset)
            for topic, each in document.items()
            for partition, offset in each["offsets"].items()
        }
        ids = {topic: str(each["id"]) for topic, each in document.items()}
    except (AttributeError, KeyError, TypeError, ValueError):
        raise OperatingError(
            "the checkpoint's offset is not one of ours",
            on=str(document)[:200],
            do="a checkpoint of another source cannot be continued: use a new one",
        ) from None
    return at, ids


def admit(
    start: Mapping[TopicPlace, int], end: Mapping[TopicPlace, int], rows_max: int | None
) -> dict[TopicPlace, int]:
    """The end of a trigger that may take `rows_max` records. Each partition gets a share in
    proportion to its waiting records, and at least one record if any waits, so that none
    starves."""
    waiting = {place: max(0, end[place] - start[place]) for place in end}
    total = sum(waiting.values())
    if rows_max is None or total <= rows_max:
        return {place: start[place] + waits for place, waits in waiting.items()}
    return {
        place: start[place] + min(waits, max(1, waits * rows_max // total) if waits else 0)
        for place, waits in waiting.items()
    }
