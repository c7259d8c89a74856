"""The streaming read: `spark.readStream.format("raftlog")`.

Spark plans a trigger as (start, end) and writes the end into its checkpoint before it reads. After
a crash it plans the same trigger again. A task reads exactly the offsets of its range, so the rows
of a trigger are the same each time. A sink that is idempotent per trigger (files, foreachBatch with
the batch id) then sees each record once.

* The checkpoint has the ends of triggers, but not where the query began. After a crash Spark asks
  for the start again, and `latest`, a timestamp and even `earliest` may be another offset by then.
  So the end of the first trigger also contains its start, and that one counts.
* New partitions and new topics of a pattern begin at their earliest offset.
* minOffsetsPerTrigger, maxOffsetsPerTrigger and maxTriggerDelay are combined here, because Spark
  supports only one limit at a time. With Trigger.AvailableNow the end is fixed when the query
  starts, and the minimum does not delay it.
* An offset never goes back. Planned records that no longer exist are data loss
  (`raftlog.spark.connector.reading`). The same holds for a topic that was deleted and created
  again.
"""

import time
import warnings
from collections.abc import Iterator
from typing import Any, final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from raftlog.base.errors import ConfigError, RaftlogError
from raftlog.spark.connector.cluster import WAITS_SECONDS, ClusterView, places_text
from raftlog.spark.connector.offsets import (
    LOSS_ADVICE,
    DataLoss,
    KnownOffsets,
    TopicPlace,
    admit,
    given_offsets,
    parse_stream_offset,
    ranges,
    start_within,
    stream_offset,
    with_start,
)
from raftlog.spark.connector.one_line import each_in_one_line, one_line
from raftlog.spark.connector.options import BorderKind, ReadOptions
from raftlog.spark.connector.parts import RangePartition
from raftlog.spark.connector.reading import read_range


@final
class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """The reader of a streaming query. It lives in a process of the driver as long as the query;
    only its options go to tasks."""

    def __init__(self, options: ReadOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns
        self._view: ClusterView | None = None
        self._initial: dict[str, Any] | None = None
        self._available: dict[TopicPlace, int] | None = None
        """Under Trigger.AvailableNow: where everything ends."""
        self._planned_at: float | None = None
        self._accepted_loss = False

    def __getstate__(self) -> dict[str, Any]:
        return {"_options": self._options, "_columns": self._columns}

    # --- offsets ----------------------------------------------------------------------------------

    @one_line
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """The offset at which a query without a checkpoint begins. Spark asks twice and gets the
        same answer."""
        if self._initial is None:
            known = self._known()
            border = self._options.start
            if border.kind in (BorderKind.TIMESTAMP, BorderKind.TIMESTAMPS):
                at = self._cluster().by_timestamp(border, known, start=True)
            else:
                at = given_offsets(border, known)
            self._initial = stream_offset(at, known.ids)
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        most = self._options.offsets_per_trigger_max
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    @one_line
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """The end of the next trigger; `start` itself when no trigger should run yet."""
        end = self._end(start, limit)
        if start == self._initial:
            return with_start(end, start)
        same = parse_stream_offset(end) == parse_stream_offset(start)
        return start if same else end  # the same text, or Spark would see new data

    def _end(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The end of the next trigger."""
        known = self._known_after(start)
        at, ids = self._continued(start, known)
        end = {place: max(at[place], known.end.get(place, at[place])) for place in at}
        if self._available is not None:
            # Do not wait for records that no longer exist (the log was cut, the topic created
            # again).
            limits = {place: min(end[place], self._available.get(place, 0)) for place in at}
            end = {place: max(at[place], limits[place]) for place in at}
        elif self._is_too_early(sum(end[place] - at[place] for place in at)):
            return start
        rows_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        self._planned_at = time.monotonic()  # noqa: TID251 - a query runs in real time
        return stream_offset(admit(at, end, rows_max), ids)

    def _is_too_early(self, waiting: int) -> bool:
        """Whether to wait until minOffsetsPerTrigger records wait; never longer than
        maxTriggerDelay."""
        least = self._options.offsets_per_trigger_min
        if least is None or waiting >= least:
            return False
        now = time.monotonic()  # noqa: TID251
        if self._planned_at is None:
            self._planned_at = now
        return (now - self._planned_at) * 1000 < self._options.trigger_delay_ms_max

    @one_line
    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        known = self._known()
        return stream_offset(known.end, known.ids)

    @one_line
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._available = dict(self._known().end)

    def _known_after(self, start: dict[str, Any]) -> KnownOffsets:
        """The cluster's answer. If records seem to be lost, it is asked for a moment longer, unless
        the loss was accepted before."""
        at, ids = parse_stream_offset(start)
        for wait_seconds in () if self._accepted_loss else WAITS_SECONDS:
            known = self._known()
            if all(known.ids.get(topic) == ids[topic] for topic in ids) and all(
                known.end.get(place, -1) >= at[place] for place in at
            ):
                return known
            time.sleep(wait_seconds)
        return self._known()

    def _continued(
        self, start: dict[str, Any], known: KnownOffsets
    ) -> tuple[dict[TopicPlace, int], dict[str, str]]:
        """The position in every partition: from the checkpoint, or the earliest offset for a new
        partition. A partition that is missing keeps its position. Otherwise it would be read from
        its beginning when it comes back."""
        at, ids = parse_stream_offset(start)
        gone = [place for place in at if place not in known.end]
        if gone:
            self._lost(f"partitions are gone: {places_text(gone)}")
        again = [topic for topic in sorted(ids) if known.ids.get(topic, ids[topic]) != ids[topic]]
        if again:
            self._lost(f"deleted and created again: {', '.join(again)}")
        found = {
            place: at[place] if place in at and place.topic not in again else known.first[place]
            for place in sorted(known.end)
        }
        kept = {place: at[place] for place in gone if place.topic not in again}
        behind = [place for place in found if found[place] > known.end[place]]
        if behind:
            self._lost(f"the log ends before the offsets that were read: {places_text(behind)}")
        return found | kept, ids | dict(known.ids)

    # --- ranges -----------------------------------------------------------------------------------

    @one_line
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The ranges of one trigger. The same end always gives the same ranges."""
        low, low_ids = parse_stream_offset(start)
        high, ids = parse_stream_offset(end)
        told = start_within(end)
        if told is not None and start_within(start) is None:  # otherwise the first trigger is over
            low, low_ids = parse_stream_offset(told)
        known: KnownOffsets | None = None
        first: dict[TopicPlace, int] = {}
        for place in sorted(high):
            same = low_ids.get(place.topic, ids[place.topic]) == ids[place.topic]
            if place in low and same:
                first[place] = low[place]
                continue
            known = known or self._known()
            first[place] = known.first.get(place, 0)
            if place not in low and first[place] > 0:
                self._lost(f"the new partition {place} already begins at {first[place]}, not at 0")
        rewound = [place for place in high if high[place] < first[place]]
        if rewound and start != self._initial:
            self._lost(f"the checkpoint goes back in {places_text(rewound)}")
        found = ranges(
            first,
            high,
            ids,
            partitions_min=self._options.partitions_min,
            records_max=self._options.records_per_partition_max,
        )
        return [RangePartition(each) for each in found]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a range; Spark calls this in a task."""
        if not isinstance(partition, RangePartition):
            return iter(())
        return each_in_one_line(read_range(partition.part, self._columns, self._options))

    # --- life -------------------------------------------------------------------------------------

    def commit(self, end: dict[str, Any]) -> None:
        """Commit the query's position for the group of commitGroup. A failure is only a warning,
        because only Spark's checkpoint counts. Spark may end a query without the last call."""
        group = self._options.commit_group
        if group is None:
            return
        at, _ = parse_stream_offset(end)
        try:
            self._cluster().commit(group, at)
        except RaftlogError as error:
            warnings.warn(f"group {group} was not told of offsets: {error}", stacklevel=2)

    def stop(self) -> None:
        if self._view is not None:
            self._view.close()
            self._view = None

    def _cluster(self) -> ClusterView:
        if self._view is None:
            view = ClusterView(self._options)
            view.__enter__()
            self._view = view
        return self._view

    def _known(self) -> KnownOffsets:
        return self._cluster().known()

    def _lost(self, what: str) -> None:
        if self._options.fail_on_data_loss:
            raise DataLoss(what, on="the stream", do=LOSS_ADVICE)
        self._accepted_loss = True
        warnings.warn(f"data loss, accepted: {what}", stacklevel=2)


@final
class RefusedStream(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """A reader for a stream whose options are wrong: it raises the error at Spark's first question.
    If the error were raised when the reader is made, Spark would try to stop a reader that it did
    not get, and show an UnboundLocalError instead."""

    def __init__(self, error: ConfigError) -> None:
        self._error = error

    @one_line
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        raise self._error

    @one_line
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        raise self._error

    @one_line
    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        raise self._error

    @one_line
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        raise self._error

    @one_line
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        raise self._error

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        raise self._error
