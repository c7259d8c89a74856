"""`format("raftlog")`: the data source as Spark sees it.

    spark.read.format("raftlog").option("kafka.bootstrap.servers", "localhost:9092")
         .option("subscribe", "orders").load()

Spark pickles the objects here on their way to executors, so they hold options and never a socket.
"""

from collections.abc import Iterator, Mapping
from typing import Final, final

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    Filter,
    InputPartition,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from raftlog.base.arguments import kind_of
from raftlog.base.errors import ConfigError, WrongType
from raftlog.spark.connector.cluster import ClusterView
from raftlog.spark.connector.filters import FilterBounds, bounds_of
from raftlog.spark.connector.offsets import (
    KnownOffsets,
    TopicPlace,
    check_batch,
    given_offsets,
    ranges,
)
from raftlog.spark.connector.one_line import each_in_one_line, one_line
from raftlog.spark.connector.options import (
    Border,
    BorderKind,
    Mode,
    ReadOptions,
    read_options,
    write_options,
)
from raftlog.spark.connector.parts import RangePartition
from raftlog.spark.connector.reading import read_range
from raftlog.spark.connector.sink import BatchSink, StreamSink
from raftlog.spark.connector.stream import RefusedStream, StreamReader
from raftlog.spark.decoding.columns import COLUMNS, HEADERS
from raftlog.spark.requirements import settle_python, too_old

SQL_TYPES: Final = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": ArrayType(
        StructType([StructField("key", StringType()), StructField("value", BinaryType())])
    ),
}


@final
class RaftlogDataSource(DataSource):  # type: ignore[misc]
    """The data source `raftlog`."""

    @classmethod
    def name(cls) -> str:
        return "raftlog"

    def schema(self) -> StructType:
        """The columns of Spark's Kafka source, with headers if the option includeHeaders asks for
        them."""
        names = list(COLUMNS)
        if str(self.options.get("includeHeaders", "false")).strip().lower() == "true":
            names.append(HEADERS)
        return StructType([StructField(name, SQL_TYPES[name]) for name in names])

    @one_line
    def reader(self, schema: StructType) -> DataSourceReader:
        options = read_options(_plain(self.options), Mode.BATCH)
        return BatchReader(options, columns_of(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        try:
            options = read_options(_plain(self.options), Mode.STREAM)
            return StreamReader(options, columns_of(schema))
        except ConfigError as error:
            return RefusedStream(error)

    @one_line
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        if overwrite:
            raise ConfigError("a log is appended to, not overwritten", do=".mode('append')")
        return BatchSink(write_options(_plain(self.options)), schema)

    @one_line
    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        return StreamSink(write_options(_plain(self.options)), schema)


def register(spark: SparkSession) -> None:
    """Register `format("raftlog")` with a session, even one that was made before raftlog was
    imported. If no Python was chosen for its workers, they run this one. `OperatingError` when the
    session's Spark is too old, or its workers' Python has no raftlog."""
    if not hasattr(spark, "dataSource"):  # a session of Spark Connect has another class
        raise WrongType(f"spark must be a SparkSession of Spark 4, not {kind_of(spark)}")
    error = too_old(spark.version, "the session")
    if error is not None:
        raise error
    if isinstance(spark, SparkSession):  # a session of Spark Connect has no workers of its own
        settle_python(spark)
    spark.dataSource.register(RaftlogDataSource)


def columns_of(schema: StructType) -> tuple[str, ...]:
    """The columns of a schema, all or some; `ConfigError` for unknown ones."""
    for field in schema.fields:
        wanted = SQL_TYPES.get(field.name)
        if wanted is None:
            raise ConfigError(
                f"there is no column {field.name}", on="schema", do=f"use {', '.join(SQL_TYPES)}"
            )
        if field.dataType != wanted:
            raise ConfigError(
                f"column {field.name} is {wanted.simpleString()}, not "
                f"{field.dataType.simpleString()}",
                on="schema",
            )
    if not schema.fields:
        raise ConfigError("at least one column is needed", on="schema")
    return tuple(field.name for field in schema.fields)


def _plain(options: Mapping[str, str]) -> dict[str, str]:
    return {str(name): str(value) for name, value in options.items()}


@final
class BatchReader(DataSourceReader):  # type: ignore[misc]
    """A batch read between two borders, which are fixed when the query is planned."""

    def __init__(self, options: ReadOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns
        self.bounds = FilterBounds()

    @property
    def pushFilters(self) -> "_Pushing":  # noqa: N802 - Spark's name
        return _Pushing(self)

    @one_line
    def partitions(self) -> list[InputPartition]:
        """Ask the cluster, fix the borders, and divide them into ranges."""
        options = self._options
        with ClusterView(options) as view:
            known = view.known()
            start = self._border(view, options.start, known, start=True)
            end = self._border(view, options.end, known, start=False)
            # A start by timestamp was looked up after `known`. Records may have come in between, so
            # it may lie after the known end.
            if options.start.kind in (BorderKind.TIMESTAMP, BorderKind.TIMESTAMPS):
                start = {place: min(low, known.end[place]) for place, low in start.items()}
            if options.end.kind in (BorderKind.TIMESTAMP, BorderKind.TIMESTAMPS):
                end = {place: min(high, known.end[place]) for place, high in end.items()}
                end = {place: max(start[place], high) for place, high in end.items()}
            check_batch(start, end, known)
            start, end = self.bounds.narrow(start, end, view, known)
        found = ranges(
            start,
            end,
            known.ids,
            partitions_min=options.partitions_min,
            records_max=options.records_per_partition_max,
        )
        return [RangePartition(each) for each in found]

    def _border(
        self, view: ClusterView, border: Border, known: KnownOffsets, *, start: bool
    ) -> dict[TopicPlace, int]:
        if border.kind in (BorderKind.TIMESTAMP, BorderKind.TIMESTAMPS):
            return view.by_timestamp(border, known, start=start)
        return given_offsets(border, known)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a range; Spark calls this in a task. Without any range Spark still starts one task
        with nothing to read."""
        if not isinstance(partition, RangePartition):
            return iter(())
        return each_in_one_line(read_range(partition.part, self._columns, self._options))


@final
class _Pushing:
    """The object behind `reader.pushFilters`, which takes filters in order to read less.

    While filter pushdown is off, which is the default, Spark refuses a reader that overrides
    pushFilters, and a reader cannot ask whether it is off. Spark compares the function behind the
    bound method with the base class's. This object shows the base class's function, so Spark
    accepts the reader. When pushdown is on, Spark calls the object itself.
    """

    # staticmethod, because a plain function would become a bound method here and differ from the
    # base class's function.
    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, reader: BatchReader) -> None:
        self._reader = reader

    def __call__(self, filters: list[Filter]) -> list[Filter]:
        """Keep the filters that narrow the ranges; return the others, which Spark evaluates."""
        self._reader.bounds, left = bounds_of(filters)
        return left
