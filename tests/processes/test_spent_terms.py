"""A topic comes into the last term; `raftlog recover --spent` copies it, and clients go on. And so
with the metadata group, where the whole cluster is copied."""

import http.client
import json
import subprocess
import sys
import time

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from raftlog.base.entries import HardState
from raftlog.base.ids import METADATA_GROUP, TERM_MAX, IoId, Term
from raftlog.runtime.local import cluster as local_cluster
from raftlog.runtime.real_ports import PosixDisk
from raftlog.storage.directories.store_records import hard_state_record
from raftlog.storage.ops import StoreRecords
from raftlog.storage.write_round import DirectoryWriter
from tests.kafka_python import KafkaProducer
from tests.processes.load import TOPIC, Load, make_topic, read_all

pytestmark = [pytest.mark.processes, pytest.mark.slow]

PARTITIONS = 2
RECORDS = 200
NODES = (1, 2, 3)
WAIT_SECONDS = 60
QUIET = {"enable.idempotence": True, "log_level": 0}


def recover(cluster, *more):
    paths = [str(cluster.data_path(node)) for node in NODES]
    command = [sys.executable, "-m", "raftlog", "recover", "--spent", *paths, *more]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)


def replica(cluster, node, name):
    connection = http.client.HTTPConnection("127.0.0.1", cluster.place(node).admin_port, timeout=5)
    try:
        connection.request("GET", "/status")
        groups = json.loads(connection.getresponse().read())["groups"]
    finally:
        connection.close()
    return next(each for each in groups if each["name"] == name)


def put_into_term(cluster, group, term):
    """As a lie, or a loop of elections, would have done, on every broker."""
    for node in NODES:
        writer = DirectoryWriter(PosixDisk(str(cluster.data_path(node))))
        records = [hard_state_record(group, HardState(term, None))]
        assert writer.perform(IoId(1), [StoreRecords(records)]).poisoned is None
        writer.close()


def stop_all(cluster):
    for node in NODES:
        cluster.terminate(node)


def until(reached, what):
    deadline = time.monotonic() + WAIT_SECONDS
    while not reached():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


class Member:
    """A consumer of a group that lives through it all, and remembers leader epochs."""

    def __init__(self, bootstrap):
        self.consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "readers",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "log_level": 0,
            }
        )
        self.consumer.subscribe([TOPIC])
        self.seen = {}

    def read_until(self, wanted):
        deadline = time.monotonic() + WAIT_SECONDS
        while any(self.seen.get(place) != value for place, value in wanted.items()):
            assert time.monotonic() < deadline, f"{len(self.seen)} read, {len(wanted)} wanted"
            for message in self.consumer.consume(500, 0.5):
                if message.error() is None:
                    self.seen[(message.partition(), message.offset())] = message.value()

    def commit(self):
        self.consumer.commit(asynchronous=False)


def deliver(producer, value):
    """Send one record to the partition that comes into the last term; where it lies."""
    delivered = []
    producer.produce(
        TOPIC, value, partition=0, on_delivery=lambda error, message: delivered.append(
            (error, message.partition(), message.offset())
        )
    )  # fmt: skip
    assert producer.flush(WAIT_SECONDS) == 0
    ((error, partition, offset),) = delivered
    assert error is None, error
    return {(partition, offset): value}


def committed(bootstrap):
    other = Consumer({"bootstrap.servers": bootstrap, "group.id": "readers", "log_level": 0})
    try:
        places = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
        return [each.offset for each in other.committed(places, 30)]
    finally:
        other.close()


def by_old_producer(producer, value):
    """Send one record to the partition that comes into the last term; where it lies."""
    sent = producer.send(TOPIC, value, partition=0).get(WAIT_SECONDS)
    return {(sent.partition, sent.offset): value}


def test_a_topic_without_terms_is_copied_and_its_group_goes_on(tmp_path):
    """A librdkafka client that knows the old epochs is begun again, as the guide says: it keeps
    sending to the leader that it knew (librdkafka 4898). kafka-python's goes on."""
    cluster = local_cluster.found(tmp_path / "cluster", brokers=3)
    try:
        cluster.start_all()
        make_topic(cluster.bootstrap_servers, PARTITIONS)
        with Load(cluster.bootstrap_servers, PARTITIONS, "before") as load:
            load.wait_for(RECORDS)
        acknowledged = dict(load.acknowledged)
        group = replica(cluster, 1, f"{TOPIC}-0")["group"]
        stop_all(cluster)
        put_into_term(cluster, group, Term(TERM_MAX - 1))
        cluster.start_all()
        member = Member(cluster.bootstrap_servers)
        with Load(cluster.bootstrap_servers, PARTITIONS, "last term") as load:
            load.wait_for(RECORDS)
        acknowledged |= load.acknowledged
        producer = KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, acks="all")
        acknowledged |= by_old_producer(producer, b"by the old producer, before")
        member.read_until(acknowledged)
        member.commit()
        offsets = committed(cluster.bootstrap_servers)
        assert replica(cluster, 1, f"{TOPIC}-0")["term"] == TERM_MAX
        member.consumer.close()
        beside = recover(cluster, "--accept-new-ids")
        assert (beside.returncode, "in use by another process" in beside.stderr) == (1, True)

        stop_all(cluster)
        cluster.start_all()
        for node in NODES:  # the one that campaigns stops, and none of them leads
            until(
                lambda node=node: replica(cluster, node, f"{TOPIC}-1")["leader"] is not None,
                "the other partition has a leader",
            )
        states = [replica(cluster, node, f"{TOPIC}-0") for node in NODES]
        assert all(each["leader"] is None for each in states)
        stop_all(cluster)

        told = recover(cluster)
        assert told.returncode == 0, told.stderr
        assert "nothing was changed; --accept-new-ids does it" in told.stdout
        done = recover(cluster, "--accept-new-ids", "--format", "json")
        assert done.returncode == 0, done.stderr
        assert [each["name"] for each in json.loads(done.stdout)["copies"]] == [
            f"{TOPIC}-{number}" for number in range(PARTITIONS)
        ]
        cluster.start_all()
        found = read_all(cluster.bootstrap_servers, PARTITIONS)
        before = acknowledged | member.seen
        assert [place for place, value in before.items() if found.get(place) != value] == []
        assert committed(cluster.bootstrap_servers) == offsets
        with Load(cluster.bootstrap_servers, PARTITIONS, "after") as load:
            load.wait_for(RECORDS)
        sent = load.acknowledged | by_old_producer(producer, b"by the old producer, after")
        producer.close()
        member = Member(cluster.bootstrap_servers)
        member.read_until(sent)
        assert not set(member.seen) & set(acknowledged), "it goes on where the group was"
        member.consumer.close()
    finally:
        cluster.stop()


def test_a_cluster_without_metadata_terms_is_copied_and_old_clients_go_on(tmp_path):
    cluster = local_cluster.found(tmp_path / "cluster", brokers=3)
    into = tmp_path / "copies"
    try:
        cluster.start_all()
        make_topic(cluster.bootstrap_servers, PARTITIONS)
        member = Member(cluster.bootstrap_servers)
        producer = Producer({**QUIET, "bootstrap.servers": cluster.bootstrap_servers})
        with Load(cluster.bootstrap_servers, PARTITIONS, "before") as load:
            load.wait_for(RECORDS)
        acknowledged = load.acknowledged | deliver(producer, b"by the old producer, before")
        member.read_until(acknowledged)
        member.commit()
        offsets = committed(cluster.bootstrap_servers)
        old_id = cluster.cluster_id
        stop_all(cluster)
        put_into_term(cluster, METADATA_GROUP, TERM_MAX)
        for node in NODES:
            cluster.start(node)
        until(
            lambda: any(
                f"term {TERM_MAX} is the last one" in cluster.log_path(node).read_text()
                for node in NODES
            ),
            "the metadata group is in its last term",
        )
        beside = recover(cluster, "--into", str(into), "--accept-new-ids")
        assert (beside.returncode, "in use by another process" in beside.stderr) == (1, True)
        stop_all(cluster)
        alone = recover(cluster)
        assert (alone.returncode, "--into DIRECTORY" in alone.stderr) == (1, True)
        told = recover(cluster, "--into", str(into))
        assert (told.returncode, into.exists()) == (0, False), told.stderr
        assert "nothing was changed; --accept-new-ids does it" in told.stdout
        done = recover(cluster, "--into", str(into), "--accept-new-ids")
        assert done.returncode == 0, done.stderr
        for node in NODES:
            cluster.data_path(node).rename(tmp_path / f"old{node}")
            (into / f"broker{node}").rename(cluster.data_path(node))
        cluster.start_all()
        assert cluster.cluster_id != old_id
        found = read_all(cluster.bootstrap_servers, PARTITIONS)
        assert [place for place, value in acknowledged.items() if found.get(place) != value] == []
        assert committed(cluster.bootstrap_servers) == offsets
        with Load(cluster.bootstrap_servers, PARTITIONS, "after") as load:
            load.wait_for(RECORDS)
        member.read_until(load.acknowledged | deliver(producer, b"by the old producer, after"))
        member.consumer.close()
    finally:
        cluster.stop()
