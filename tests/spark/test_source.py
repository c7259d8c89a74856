"""Batch reads through Spark: what is there is read once and whole, what is wrong is said."""

import socket
import threading

import pytest

from raftlog.base.errors import OperatingError
from raftlog.spark.connector import source
from raftlog.spark.connector.offsets import DataLoss, KnownOffsets, Range, TopicPlace
from raftlog.spark.connector.options import Mode, read_options
from raftlog.spark.connector.reading import read_range

pytestmark = [
    pytest.mark.processes,
    pytest.mark.needs_command("java"),
    pytest.mark.filterwarnings("ignore"),
]

ORDER = ["topic", "partition", "offset"]


def places(frame):
    rows = frame.select("partition", "offset").collect()
    return sorted((row.partition, row.offset) for row in rows)


def grid(partitions, offsets):
    return sorted((partition, offset) for partition in partitions for offset in offsets)


def refused(frame, said):
    """The query fails, and its error says so."""
    with pytest.raises(Exception, match=said):
        frame.count()


def test_the_table_is_kafkas(read, fill, topic, client):
    fill(topic, partitions=1, count=2)
    client.produce(topic, None, partition=0, headers=[("a", b"1"), ("b", None)], timestamp_ms=7)
    frame = read(subscribe=topic, includeHeaders="true")
    assert [field.simpleString() for field in frame.schema] == [
        "key:binary",
        "value:binary",
        "topic:string",
        "partition:int",
        "offset:bigint",
        "timestamp:timestamp",
        "timestampType:int",
        "headers:array<struct<key:string,value:binary>>",
    ]
    rows = frame.orderBy("offset").collect()
    assert [bytes(row.value) if row.value is not None else None for row in rows] == [
        b"0:0",
        b"0:1",
        None,
    ]
    assert [row.topic for row in rows] == [topic] * 3
    assert [row.timestamp.timestamp() for row in rows] == [1.0, 1.001, 0.007]
    assert rows[0].headers is None
    assert [(each.key, each.value) for each in rows[2].headers] == [("a", b"1"), ("b", None)]


def test_assign_pattern_and_borders(read, fill, topic):
    fill(topic, partitions=3, count=10)
    assert places(read(assign=f'{{"{topic}": [2, 0]}}')) == grid([0, 2], range(10))
    named = f'{{"{topic}": {{"0": 4, "1": -2, "2": 10}}}}'
    ends = f'{{"{topic}": {{"0": 6, "1": 1, "2": -1}}}}'
    found = read(subscribePattern=topic[:-1] + ".", startingOffsets=named, endingOffsets=ends)
    assert places(found) == [(0, 4), (0, 5), (1, 0)]
    refused(read(subscribe=topic, endingOffsets=ends.replace("6", "60")), "out of range")
    refused(read(subscribe=topic, startingOffsets=f'{{"{topic}": {{"0": 4}}}}'), "missing")


def test_borders_by_timestamp(read, fill, topic):
    fill(topic, partitions=2, count=10)
    found = read(subscribe=topic, startingTimestamp=1003, endingTimestamp=1006)
    assert places(found) == grid([0, 1], range(3, 6))
    by_place = f'{{"{topic}": {{"0": 1008, "1": 9999}}}}'
    late = {"subscribe": topic, "startingOffsetsByTimestamp": by_place}
    refused(read(**late), "no record is as young")
    found = read(**late, startingOffsetsByTimestampStrategy="latest")
    assert places(found) == [(0, 8), (0, 9)]


def test_tasks_are_cut_and_each_record_is_read_once(read, fill, topic):
    fill(topic, partitions=2, count=30)
    for more in ({"minPartitions": 7}, {"maxRecordsPerPartition": 4}):
        frame = read(subscribe=topic, **more)
        assert frame.rdd.getNumPartitions() >= 7
        assert places(frame) == grid([0, 1], range(30))


@pytest.mark.parametrize("decoder", ["numpy", "plain"])
def test_fewer_columns_and_either_decoder(read, fill, topic, decoder):
    fill(topic, partitions=1, count=5)
    frame = read(subscribe=topic, schema="offset BIGINT, value BINARY", decoder=decoder)
    assert [bytes(row.value) for row in frame.orderBy("offset").collect()] == [
        b"0:%d" % number for number in range(5)
    ]


def test_filters_narrow_what_is_read(read, fill, topic):
    fill(topic, partitions=3, count=20)
    frame = read(subscribe=topic)
    found = frame.where("partition = 1 AND offset >= 5 AND offset < 8")
    assert places(found) == [(1, 5), (1, 6), (1, 7)]
    assert found.rdd.getNumPartitions() == 1
    assert places(frame.where("partition IN (0, 2) AND offset > 17")) == grid([0, 2], [18, 19])
    young = frame.where("timestamp >= timestamp_millis(1018)")
    assert places(young) == grid([0, 1, 2], [18, 19])
    assert frame.where("offset = 3 AND topic = 'another'").count() == 0
    assert frame.where("offset <= 3 AND value IS NOT NULL AND partition != 0").count() == 8


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"subscribe": "a", "assign": '{"a": [0]}'}, "exactly one"),
        ({"subscribe": "a", "endingOfsets": "latest"}, "did you mean endingOffsets"),
        ({"subscribe": "there-is-none"}, "does not exist"),
        ({"subscribe": "a", "schema": "offset INT"}, "offset is bigint, not int"),
        ({"subscribe": "a", "schema": "colour STRING"}, "no column colour"),
    ],
)
def test_what_cannot_be_read_is_said(read, options, said):
    refused(read(**options), said)


def test_brokers_that_cannot_be_reached_are_said(spark):
    """With the defaults, by which questions are asked for two minutes."""
    source = spark.read.format("raftlog").option("kafka.bootstrap.servers", "127.0.0.1:1")
    refused(
        source.option("subscribe", "a").load(),
        r"no broker accepts a connection, 127\.0\.0\.1:1: .*raftlog up",
    )


def test_brokers_that_accept_and_say_nothing_are_said(spark):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        source = spark.read.format("raftlog").option("kafka.bootstrap.servers", address)
        quick = {"kafka.request.timeout.ms": "500", "fetchOffset.numRetries": "1", "subscribe": "a"}
        refused(source.options(**quick).load(), f"brokers do not answer.*{address}")


def test_an_empty_topic_has_no_rows(read, fill, topic):
    fill(topic, partitions=2, count=0)
    assert read(subscribe=topic).count() == 0


def test_a_broker_dies_in_the_middle_of_a_task(read, fill, topic, cluster, spark, client):
    """The leader is killed between a task's first rows and its last; no task reads a record twice
    or misses one."""
    fill(topic, partitions=1, count=400, replicas=3)
    leader = cluster.leader_of(topic)
    # Fetches of 2 kB, and a query that dawdles over its first batches while the leader dies.
    frame = read(
        subscribe=topic, **{"kafka.max.partition.fetch.bytes": 2000, "kafka.fetch.max.bytes": 2000}
    )

    def dawdle(batches):
        import time

        for at, batch in enumerate(batches):
            time.sleep(0.3 if at < 6 else 0)
            yield batch

    killer = threading.Timer(0.8, cluster.kill, [leader])
    killer.start()
    try:
        slow = frame.select("partition", "offset").mapInArrow(dawdle, "partition INT, offset LONG")
        assert places(slow) == grid([0], range(400))
    finally:
        killer.join()
        cluster.restart(leader)
        cluster.wait_until_healthy()


def test_a_topic_created_again_is_another_topic(fill, topic, client, cluster, delete):
    """A query is planned, the topic is deleted and created again with as many records: the task
    refuses to pass the new ones off for the old."""
    fill(topic, partitions=1, count=5)
    planned = Range(TopicPlace(topic, 0), bytes(client.describe(topic).topic_id).hex(), 0, 5)
    options = {"bootstrap.servers": cluster.bootstrap_servers, "subscribe": topic}
    assert sum(b.num_rows for b in read_range(planned, ("offset",), _judged(options))) == 5
    delete(topic)
    with pytest.raises(DataLoss, match="was deleted"):
        list(read_range(planned, ("offset",), _judged(options)))
    fill(topic, partitions=1, count=5)
    with pytest.raises(DataLoss, match="created again"):
        list(read_range(planned, ("offset",), _judged(options)))
    lenient = read_options(options | {"failOnDataLoss": "false"}, Mode.BATCH)
    assert list(read_range(planned, ("offset",), lenient)) == []


def _judged(options):

    return read_options(options, Mode.BATCH)


def test_offsets_beyond_the_log_are_never_rewound(fill, topic, client, cluster):

    fill(topic, partitions=1, count=5)
    topic_id = bytes(client.describe(topic).topic_id).hex()
    beyond = Range(TopicPlace(topic, 0), topic_id, 7, 9)
    options = {"bootstrap.servers": cluster.bootstrap_servers, "subscribe": topic}
    with pytest.raises(DataLoss, match="offset 7 is out of range: the log ends at 5"):
        list(read_range(beyond, ("offset",), _judged(options)))


def test_a_silent_partition_ends_in_an_error(fill, topic, client, cluster):

    fill(topic, partitions=1, count=5)
    topic_id = bytes(client.describe(topic).topic_id).hex()
    options = {"bootstrap.servers": cluster.bootstrap_servers, "subscribe": topic}
    patient = _judged(options | {"kafkaConsumer.pollTimeoutMs": "700"})
    more = Range(TopicPlace(topic, 0), topic_id, 3, 6)  # offset 5 is not written yet
    with pytest.raises(OperatingError, match="nothing was read for 700 ms, at offset 5"):
        list(read_range(more, ("offset",), patient))


class Growing:
    """A cluster whose log grows between the question for its end and the one for a timestamp."""

    def __init__(self, options):
        del options

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        return None

    def known(self):
        return KnownOffsets({"t": "0" * 32}, {TopicPlace("t", 0): 0}, {TopicPlace("t", 0): 10})

    def by_timestamp(self, border, known, *, start):
        del border, known, start
        return {TopicPlace("t", 0): 12}


@pytest.mark.parametrize(
    ("option", "planned"), [("startingTimestamp", []), ("endingTimestamp", [(0, 10)])]
)
def test_records_that_come_while_a_batch_is_planned(monkeypatch, option, planned):
    """A timestamp's offset behind the end that was just read was refused as out of range."""
    monkeypatch.setattr(source, "ClusterView", Growing)
    options = read_options({"bootstrap.servers": "h:1", "subscribe": "t", option: "5"}, Mode.BATCH)
    found = source.BatchReader(options, ("offset",)).partitions()
    assert [(each.part.start, each.part.stop) for each in found] == planned
