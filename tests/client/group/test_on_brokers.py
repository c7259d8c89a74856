"""Consumers of a group on real brokers, of which one is killed and one paused."""

import threading
import time

import pytest

from raftlog.base.errors import RaftlogError
from raftlog.client.blocking import BlockingClient
from raftlog.client.blocking_consumer import BlockingConsumer
from raftlog.embed.cluster import Cluster

pytestmark = pytest.mark.processes

RECORDS = 1_500
PATIENCE_SECONDS = 60


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_every_record_is_read_though_brokers_and_a_member_go(strategy):
    """Each broker is gone once, so the coordinator of the group is, and each leader."""
    read: list[bytes] = []
    errors: list[RaftlogError] = []
    stop = threading.Event()
    one_less = threading.Event()

    def consume(bootstrap: str, enough: threading.Event) -> None:
        with BlockingConsumer(
            bootstrap,
            group_id="g",
            auto_offset_reset="earliest",
            partition_assignment_strategy=strategy,
            heartbeat_interval_ms=100,
            session_timeout_ms=6_000,
            auto_commit_interval_ms=100,
        ) as consumer:
            consumer.subscribe(["t"])
            while not (stop.is_set() or enough.is_set()):
                try:
                    found = consumer.poll(seconds=0.2)
                except RaftlogError as error:
                    errors.append(error)
                else:
                    read.extend(each.value for records in found.values() for each in records)

    with Cluster(brokers=3) as cluster, BlockingClient(cluster.bootstrap_servers) as client:
        client.create_topic("t", partitions=6, replication_factor=3)
        members = [
            threading.Thread(target=consume, args=(cluster.bootstrap_servers, enough))
            for enough in (stop, stop, one_less)
        ]
        for member in members:
            member.start()
        for number in range(RECORDS):
            client.send_soon("t", b"%d" % number, key=b"%d" % number)
            if number == RECORDS // 5:
                cluster.kill(1)
            elif number == RECORDS * 2 // 5:
                cluster.restart(1)
                cluster.kill(2)
            elif number == RECORDS * 3 // 5:
                cluster.restart(2)
                cluster.pause(3)
                one_less.set()
            elif number == RECORDS * 4 // 5:
                cluster.resume(3)
            if number % 50 == 0:
                client.flush()
        client.flush()
        end = time.monotonic() + PATIENCE_SECONDS
        while len(set(read)) < RECORDS and time.monotonic() < end:
            time.sleep(0.05)
        stop.set()
        for member in members:
            member.join()
    assert set(read) == {b"%d" % number for number in range(RECORDS)}
    assert errors == []
