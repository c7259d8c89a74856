"""Batches that a broker takes from other people's clients, and that Spark must read.

The story: headers without timestamps (Sarama 1.45) lost rows to a filter on `timestamp`, and 8 MB
of zeros under zstd let a stream stand still.
"""

import pytest

from raftlog.client.core.asks import delete_records
from raftlog.client.core.values import TopicPartition
from raftlog.records.builder import RecordBatchBuilder
from raftlog.records.compression import ZSTD
from tests.cli.test_corrupt_batches import produce_raw
from tests.records.making import changed

BASE = 1_700_000_000_000


@pytest.fixture
def unset(cluster, client, topic):
    """Ten batches of a record, ten ms apart; their headers state no largest timestamp."""
    client.create_topic(topic, partitions=1, replication_factor=1)
    for number in range(10):
        builder = RecordBatchBuilder()
        builder.append(b"%d" % number, timestamp_ms=BASE + 10 * number)
        batch = changed(builder.build(), max_timestamp=-1)
        assert produce_raw(cluster.bootstrap_servers, topic, batch) == 0
    return topic


def offsets(frame):
    return sorted(row.offset for row in frame.select("offset").collect())


def test_headers_without_timestamps_lose_no_row(read, unset):
    frame = read(subscribe=unset)
    assert offsets(frame.where(f"timestamp >= timestamp_millis({BASE + 35})")) == [4, 5, 6, 7, 8, 9]
    assert offsets(read(subscribe=unset, startingTimestamp=BASE + 30)) == [3, 4, 5, 6, 7, 8, 9]
    latest = {"startingTimestamp": BASE, "startingOffsetsByTimestampStrategy": "latest"}
    assert offsets(read(subscribe=unset, **latest)) == list(range(10))
    assert offsets(read(subscribe=unset, endingTimestamp=BASE + 30)) == [0, 1, 2]


def test_a_start_by_time_below_the_log_start_is_the_log_start(read, client, unset):
    client.ask(delete_records(TopicPartition(unset, 0), 6))
    assert offsets(read(subscribe=unset, startingTimestamp=BASE)) == [6, 7, 8, 9]
    assert offsets(read(subscribe=unset, endingTimestamp=BASE + 10)) == []


def test_a_batch_that_shrank_ten_thousandfold(read, cluster, client, topic):
    client.create_topic(topic, partitions=1, replication_factor=1)
    builder = RecordBatchBuilder(codec=ZSTD)
    builder.append(b"0" * 8_000_000, timestamp_ms=BASE)
    batch = builder.build()
    assert len(batch) < 1_000
    assert produce_raw(cluster.bootstrap_servers, topic, batch) == 0
    (row,) = read(subscribe=topic).selectExpr("length(value) size").collect()
    assert row.size == 8_000_000
