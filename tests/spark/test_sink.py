"""The sink: everything acknowledged is there, keys lie where Kafka's clients would put them."""

import threading

import pytest

from raftlog.base.errors import ConfigError
from raftlog.client.core.partitioner import partition_of
from raftlog.spark.connector.options import write_options
from raftlog.spark.connector.sink import columns_of
from raftlog.spark.connector.source import SQL_TYPES, StructField, StructType

pytestmark = [
    pytest.mark.processes,
    pytest.mark.needs_command("java"),
    pytest.mark.filterwarnings("ignore"),
]


def write(frame, cluster, **options):
    writer = frame.write.format("raftlog").mode("append")
    writer.option("kafka.bootstrap.servers", cluster.bootstrap_servers).options(**options).save()


def rows(spark, count):
    return spark.range(count).selectExpr(
        "concat('k', id % 7) AS key",
        "CAST(concat('v', id) AS BINARY) AS value",
        "array(named_struct('key', 'n', 'value', CAST(id AS STRING))) AS named",
    )


def test_keys_lie_where_kafka_puts_them_and_all_is_there(spark, cluster, client, topic, read):
    client.create_topic(topic, partitions=4, replication_factor=3)
    frame = rows(spark, 200).selectExpr(
        "key",
        "value",
        "transform(named, x -> named_struct('key', x.key, 'value', CAST(x.value AS BINARY))) "
        "AS headers",
        "'ignored' AS colour",
    )
    write(frame, cluster, topic=topic, includeHeaders="true", **{"kafka.compression.type": "zstd"})
    found = read(subscribe=topic, includeHeaders="true").collect()
    assert sorted(bytes(row.value) for row in found) == sorted(b"v%d" % at for at in range(200))
    for row in found:
        assert row.partition == partition_of(bytes(row.key), 4)
        assert [each.key for each in row.headers] == ["n"]


def test_a_column_names_topic_and_partition(spark, cluster, client, topic, read):
    for number in (0, 1):
        client.create_topic(f"{topic}{number}", partitions=3, replication_factor=1)
    frame = spark.range(20).selectExpr(
        "CAST(id AS STRING) AS value",
        f"concat('{topic}', id % 2) AS topic",
        "CAST(id % 3 AS INT) AS partition",
    )
    write(frame, cluster)
    for row in read(subscribePattern=f"{topic}.").collect():
        number = int(row.value)
        assert (row.topic, row.partition, row.key) == (f"{topic}{number % 2}", number % 3, None)


def test_a_leader_dies_while_a_stream_is_written(spark, cluster, client, topic, read, tmp_path):
    """Read one topic as a stream, write it into another, kill the leader of both in the middle:
    at least once, and here, where no task failed, exactly once."""
    for name in (topic, f"{topic}-copy"):
        client.create_topic(name, partitions=1, replication_factor=3)
    for number in range(3000):
        client.send_soon(topic, b"v%d" % number, key=b"k%d" % (number % 5))
    client.flush()
    leader = cluster.leader_of(f"{topic}-copy")
    source = spark.readStream.format("raftlog").option("subscribe", topic)
    query = (
        source.option("kafka.bootstrap.servers", cluster.bootstrap_servers)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "1000")
        .load()
        .select("key", "value")
        .writeStream.format("raftlog")
        .option("kafka.bootstrap.servers", cluster.bootstrap_servers)
        .option("topic", f"{topic}-copy")
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
    )
    killer = threading.Timer(0.5, cluster.kill, [leader])
    killer.start()
    try:
        query.start().awaitTermination()
    finally:
        killer.join()
        cluster.restart(leader)
        cluster.wait_until_healthy()
    values = [bytes(row.value) for row in read(subscribe=f"{topic}-copy").collect()]
    assert set(values) == {b"v%d" % number for number in range(3000)}
    assert len(values) == 3000


def test_what_cannot_be_written_is_said(spark, cluster):
    with pytest.raises(Exception, match="neither the option topic nor a column"):
        write(rows(spark, 1).select("value"), cluster)
    overwriting = rows(spark, 1).select("value").write.format("raftlog").mode("overwrite")
    with pytest.raises(Exception, match="appended to"):
        overwriting.option("bootstrap.servers", "h:1").option("topic", "t").save()


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"key": "key"}, "column value is missing"),
        ({"value": "offset"}, "value is bigint, not string or binary"),
        ({"value": "value", "partition": "offset"}, "partition is bigint, not int"),
        ({"value": "value", "topic": "key"}, "topic is binary, not string"),
    ],
)
def test_a_frame_of_the_wrong_shape_is_refused(fields, said):
    schema = StructType([StructField(name, SQL_TYPES[kind]) for name, kind in fields.items()])
    with pytest.raises(ConfigError, match=said):
        columns_of(schema, write_options({"bootstrap.servers": "h:1", "topic": "t"}))
