"""`raftlog recover`: two of three data directories are gone, and the third goes on. And a sole
replica is damaged, and clients read around what is lost."""

import asyncio
import json
import shutil
import subprocess
import sys

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioTopicPartition
from confluent_kafka import Consumer, TopicPartition

from raftlog.base.limits import SEGMENT_HEADER_BYTES
from raftlog.client.blocking import BlockingClient
from raftlog.records.batch import read_header
from raftlog.runtime.local import cluster as local_cluster
from tests.kafka_python import KafkaConsumer
from tests.kafka_python import TopicPartition as KafkaTopicPartition
from tests.processes.load import TOPIC, Load, make_topic, read_all

pytestmark = [pytest.mark.processes, pytest.mark.slow]

PARTITIONS = 2
RECORDS = 200


def recover(cluster, *more):
    command = [sys.executable, "-m", "raftlog", "recover", str(cluster.data_path(3))]
    lost = ["--lost", "1", "--lost", "2"]
    arguments = [*command, *lost, *more]
    return subprocess.run(arguments, check=False, capture_output=True, text=True, timeout=60)


def test_the_third_of_three_serves_what_was_acknowledged_and_takes_more(tmp_path):
    cluster = local_cluster.found(tmp_path / "cluster", brokers=3)
    try:
        cluster.start_all()
        make_topic(cluster.bootstrap_servers, PARTITIONS)
        with Load(cluster.bootstrap_servers, PARTITIONS, "before") as load:
            load.wait_for(RECORDS)
        acknowledged = dict(load.acknowledged)
        beside = recover(cluster, "--accept-data-loss")
        assert (beside.returncode, "in use by another process" in beside.stderr) == (1, True)
        for node in (1, 2, 3):
            cluster.terminate(node)
        for node in (1, 2):
            shutil.rmtree(cluster.data_path(node))
        told = recover(cluster)
        assert told.returncode == 0, told.stderr
        assert "nothing was given up; --accept-data-loss does it" in told.stdout
        done = json.loads(recover(cluster, "--accept-data-loss", "--format", "json").stdout)
        assert [group["action"] for group in done["groups"]] == ["forced"] * (PARTITIONS + 1)
        cluster.restart(3)
        found = read_all(cluster.bootstrap_servers, PARTITIONS)
        assert [place for place, value in acknowledged.items() if found.get(place) != value] == []
        with Load(cluster.bootstrap_servers, PARTITIONS, "after") as load:
            load.wait_for(RECORDS)
    finally:
        cluster.stop()


def damage_a_batch(data_path):
    """Flip the last byte of the third batch in the second segment; the first offset of the batch
    and the one behind it."""
    logs = sorted(data_path.glob("groups/*/*.log"))
    path = [each for each in logs if each.parent == max(logs, key=size_of).parent][1]
    content = bytearray(path.read_bytes())
    at = SEGMENT_HEADER_BYTES
    for _ in range(2):
        at += read_header(content, at).size
    header = read_header(content, at)
    content[at + header.size - 1] ^= 0x55
    path.write_bytes(content)
    return header.base_offset, header.next_offset


def size_of(path):
    return path.stat().st_size


def by_confluent(bootstrap, end):
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "g", "check.crcs": True, "log_level": 0}
    )
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    found = []
    while not found or found[-1] < end - 1:
        (message,) = consumer.consume(1, 60)
        assert message.error() is None, message.error()
        found.append(message.offset())
    consumer.close()
    return found


def by_kafka_python(bootstrap, end):
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, consumer_timeout_ms=60_000)
    consumer.assign([KafkaTopicPartition(TOPIC, 0)])
    consumer.seek_to_beginning()
    found = []
    while not found or found[-1] < end - 1:
        found.append(next(consumer).offset)
    consumer.close()
    return found


def by_aiokafka(bootstrap, end):
    async def read():
        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap)
        await consumer.start()
        consumer.assign([AioTopicPartition(TOPIC, 0)])
        await consumer.seek_to_beginning()
        found = []
        while not found or found[-1] < end - 1:
            found.append((await asyncio.wait_for(consumer.getone(), 60)).offset)
        await consumer.stop()
        return found

    return asyncio.run(read())


def by_raftlog(bootstrap, end):
    command = [sys.executable, "-m", "raftlog", "consume", TOPIC, "-e", "--format", "json"]
    read = subprocess.run(
        [*command, "--bootstrap-server", bootstrap],
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    )
    return [json.loads(line)["offset"] for line in read.stdout.splitlines()]


def test_clients_read_around_what_a_sole_replica_has_lost(tmp_path):
    cluster = local_cluster.found(tmp_path / "cluster", brokers=1)
    try:
        cluster.start_all()
        make_topic(cluster.bootstrap_servers, 1, 1, **{"segment.bytes": "65536"})
        with BlockingClient(cluster.bootstrap_servers) as client:
            end = 1 + max(client.produce(TOPIC, b"x" * 1000).offset for _ in range(RECORDS))
        cluster.terminate(1)
        first, until = damage_a_batch(cluster.data_path(1))
        command = [sys.executable, "-m", "raftlog", "recover", str(cluster.data_path(1))]
        done = subprocess.run(
            [*command, "--accept-data-loss"],
            check=False,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        assert f"offsets {first} to {until - 1}: batch fails its CRC" in done.stdout
        cluster.restart(1)
        wanted = [offset for offset in range(end) if not first <= offset < until]
        for read in (by_confluent, by_kafka_python, by_aiokafka, by_raftlog):
            assert read(cluster.bootstrap_servers, end) == wanted, read.__name__
        with BlockingClient(cluster.bootstrap_servers) as client:
            assert client.produce(TOPIC, b"after").offset == end
    finally:
        cluster.stop()
