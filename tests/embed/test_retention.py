"""Nothing that a test stamps with an old year, and no ReplicatedLog, is deleted by surprise."""

import time

import pytest

from raftlog import Cluster, ReplicatedLog
from raftlog.client.blocking import BlockingClient
from raftlog.client.core.asks import EARLIEST
from raftlog.client.core.values import TopicPartition
from raftlog.runtime.local import cluster as local_cluster
from raftlog.runtime.real_ports import SystemClock

pytestmark = pytest.mark.processes

JAN_2013 = 1_356_998_400_000
MONTH_MS = 30 * 24 * 3_600_000
CHECKED_OFTEN = {"log.retention.check.interval.ms": "100"}
SECONDS = 60.0


def start_of(client, topic):
    return client.offset(TopicPartition(topic, 0), EARLIEST).offset


def wait_until_shrunk(client, topic):
    """Retention ran: this topic, for which it was asked, has lost its records."""
    deadline = time.perf_counter() + SECONDS
    while start_of(client, topic) < 1:
        assert time.perf_counter() < deadline, f"nothing was deleted of {topic}"
        time.sleep(0.05)


def read(client, topic, count):
    client.assign({TopicPartition(topic, 0): 0})
    found = []
    deadline = time.perf_counter() + SECONDS
    while len(found) < count and time.perf_counter() < deadline:
        for fetched in client.poll(seconds=5):
            found += [bytes(record.value) for record in fetched.records()]
    client.unassign(TopicPartition(topic, 0))
    return found


def test_records_of_2013_are_there_after_the_retention_check_ran():
    """A topic that asks for an age shows that the check ran; the other one says nothing."""
    with (
        Cluster(brokers=3, settings=CHECKED_OFTEN) as cluster,
        BlockingClient(cluster.bootstrap_servers) as client,
    ):
        client.create_topic("kept", partitions=1, configs={"segment.ms": "1000"})
        client.create_topic("asked", partitions=1, configs={"retention.ms": "1000"})
        for topic in ("kept", "asked"):
            for number in range(3):
                client.produce(topic, b"%d" % number, partition=0, timestamp_ms=JAN_2013 + number)
        wait_until_shrunk(client, "asked")
        assert start_of(client, "kept") == 0
        assert read(client, "kept", 3) == [b"0", b"1", b"2"]


def test_a_replicated_log_is_whole_after_the_clock_moved_thirty_days(monkeypatch):
    """In a cluster whose defaults would delete it for its age and its size."""
    off = [0]
    real = SystemClock.wall
    monkeypatch.setattr(SystemClock, "wall", lambda self: real(self) + off[0])
    greedy = {
        **CHECKED_OFTEN,
        "log.retention.ms": "3600000",
        "log.retention.bytes": "1",
        "log.roll.ms": "1000",
    }
    with (
        Cluster(brokers=3, settings=greedy) as cluster,
        ReplicatedLog(cluster=cluster) as log,
        BlockingClient(cluster.bootstrap_servers) as client,
    ):
        client.create_topic("ordinary", partitions=1)
        for number in range(3):
            log.append(b"%d" % number)
            client.produce("ordinary", b"%d" % number, partition=0)
        off[0] = MONTH_MS
        wait_until_shrunk(client, "ordinary")
        assert log.start() == 0
        assert [each.data for each in log.read(0)] == [b"0", b"1", b"2"]


@pytest.mark.parametrize("unit", ["ms", "minutes", "hours"])
def test_a_local_cluster_keeps_all_unless_its_user_says_otherwise(unit):
    """In any of Kafka's units: log.retention.ms=-1 would win over the two others."""
    assert local_cluster._kept_for_ever({}) == {"log.retention.ms": "-1"}
    assert local_cluster._kept_for_ever({f"log.retention.{unit}": "1"}) == {}


def test_the_files_of_a_local_cluster_say_so(tmp_path):
    """`raftlog up` and embedded clusters are made by the same function."""
    local_cluster.found(tmp_path / "kept", brokers=1)
    local_cluster.found(tmp_path / "asked", brokers=1, settings={"log.retention.hours": "1"})
    kept = (tmp_path / "kept" / "broker1.properties").read_text()
    asked = (tmp_path / "asked" / "broker1.properties").read_text()
    assert "log.retention.ms = -1\n" in kept
    assert "log.retention.hours = 1\n" in asked
    assert "log.retention.ms" not in asked
