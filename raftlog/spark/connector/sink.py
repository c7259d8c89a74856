"""The sink: `df.write.format("raftlog")` and `df.writeStream.format("raftlog")`.

Columns, as for Spark's Kafka sink: value (string or binary), and optionally key (string or binary),
topic (string; the option topic wins), partition (int), headers with includeHeaders. Others are
ignored. Keyed records go where Kafka's default partitioner (murmur2) sends them.

Guarantee: at least once. Every record of a task is acknowledged with acks=all before the task is
done. Within a task an idempotent producer retries without writing twice, also across failovers.
When Spark runs a task again, or repeats a trigger after a crash, its records are written again: no
transaction ties records to a checkpoint. Readers that need each record once give records a unique
key and drop repeats.

The brokers create a topic that does not exist, with their defaults, unless
auto.create.topics.enable forbids it, as with Spark's Kafka sink. The driver looks the topic of the
option up when the query is planned. So an error of the topic is reported once, and not by every
task.
"""

from collections.abc import Iterator
from typing import Any, Final, final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import BinaryType, IntegerType, StringType, StructType

from raftlog.base.errors import ConfigError, OperatingError, RaftlogError
from raftlog.base.units import millis
from raftlog.client.blocking import BlockingClient
from raftlog.client.core.calls import KnowTopic
from raftlog.records.compression import CODEC_NAMES
from raftlog.spark.connector.cluster import explained, reach
from raftlog.spark.connector.one_line import one_line
from raftlog.spark.connector.options import WriteOptions

TEXTS: Final = (StringType(), BinaryType())
EXPECTED: Final = {
    "key": TEXTS,
    "value": TEXTS,
    "topic": (StringType(),),
    "partition": (IntegerType(),),
}


@final
class WrittenBatch(WriterCommitMessage):  # type: ignore[misc]
    """The number of records that one task wrote, all of them acknowledged."""

    def __init__(self, records: int) -> None:
        self.records = records


@final
class BatchSink(DataSourceArrowWriter):  # type: ignore[misc]
    """One batch write. A job that fails may leave records of tasks that had finished."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        self._options = options
        self._columns = columns_of(schema, options)
        find_topic(options)

    @one_line
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenBatch:
        """Run by a task."""
        return WrittenBatch(write_all(iterator, self._columns, self._options))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Nothing to do: every task's records are acknowledged already."""

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Do nothing: written records stay, because a log cannot remove them."""


@final
class StreamSink(DataSourceStreamArrowWriter):  # type: ignore[misc]
    """The writes of a stream, one for each trigger."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        self._options = options
        self._columns = columns_of(schema, options)
        find_topic(options)

    @one_line
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenBatch:
        """Run by a task."""
        return WrittenBatch(write_all(iterator, self._columns, self._options))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Nothing to do: every task's records are acknowledged already."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Do nothing: written records stay. Spark repeats the trigger, which writes them again."""


def columns_of(schema: StructType, options: WriteOptions) -> dict[str, int]:
    """Column name -> its index; `ConfigError` for a frame that cannot be written."""
    places = {field.name: at for at, field in enumerate(schema.fields)}
    if "value" not in places:
        raise ConfigError("the column value is missing", on="write", do="SELECT ... AS value")
    for name, allowed in EXPECTED.items():
        if name in places and schema.fields[places[name]].dataType not in allowed:
            raise ConfigError(
                f"column {name} is {schema.fields[places[name]].dataType.simpleString()}, not "
                + " or ".join(kind.simpleString() for kind in allowed),
                on="write",
                do="cast it",
            )
    if options.topic is None and "topic" not in places:
        raise ConfigError(
            "neither the option topic nor a column topic is given", on="topic", do="give one"
        )
    wanted = ["key", "value", "partition"]
    if options.topic is None:
        wanted.append("topic")
    if options.include_headers:
        wanted.append("headers")
    return {name: places[name] for name in wanted if name in places}


def find_topic(options: WriteOptions) -> None:
    """Wait until the option's topic is known, which creates it where that is allowed. Without the
    option the rows name their topics, and this does nothing. Raises the brokers' error, or an error
    when they do not answer."""
    if options.topic is None:
        return
    reach(options.bootstrap)
    with _client(options) as client:
        try:
            client.ask(KnowTopic(options.topic))
        except RaftlogError as error:
            raise explained(error, options.bootstrap) from error


def write_all(
    batches: Iterator[pa.RecordBatch], columns: dict[str, int], options: WriteOptions
) -> int:
    """Write every row, wait until all are acknowledged, and return their number. Raises the
    client's error for the first record that is not."""
    count = 0
    with _client(options) as client:
        for batch in batches:
            rows = {name: batch.column(at).to_pylist() for name, at in columns.items()}
            absent = [None] * batch.num_rows
            for value, key, partition, topic, headers in zip(
                rows["value"],
                rows.get("key", absent),
                rows.get("partition", absent),
                rows.get("topic", absent),
                rows.get("headers", absent),
                strict=True,
            ):
                client.send_soon(
                    _topic(options, topic),
                    _bytes(value),
                    key=_bytes(key),
                    partition=partition,
                    headers=_headers(headers),
                )
            count += batch.num_rows
            if client.failure is not None:
                break  # the task fails anyway; writing its other rows would be useless
        client.flush()
    return count


def _client(options: WriteOptions) -> BlockingClient:
    return BlockingClient(
        options.bootstrap,
        client_id=options.client_id,
        acks=-1,
        idempotent=True,
        auto_create=True,
        call_timeout_ns=millis(options.request_timeout_ms),
        compression=CODEC_NAMES[options.compression],
        batch_bytes=options.batch_bytes,
        delivery_timeout_ns=millis(options.delivery_timeout_ms),
        request_timeout_ns=millis(options.request_timeout_ms),
    )


def _topic(options: WriteOptions, found: str | None) -> str:
    topic = options.topic if options.topic is not None else found
    if topic is None:
        raise OperatingError("a row has no topic", on="write", do="set the option topic")
    return topic


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def _headers(found: list[dict[str, Any]] | None) -> list[tuple[str, bytes | None]]:
    return [(each["key"], each["value"]) for each in found or ()]
