"""Other people's clients, unchanged: create a topic, produce in every way, read back by assignment.

Each client sends plain, compressed and idempotent records to three real brokers and reads all of
them back. The content of the log is looked at too: a client that was told the wrong versions falls
back to sending uncompressed, silently (librdkafka issue 4956).
"""

import asyncio
import gzip
import subprocess
import time
from collections import Counter
from typing import NamedTuple

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioTopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewTopic as AioNewTopic
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka import TopicPartition as PythonTopicPartition
from kafka.admin import NewTopic as PythonNewTopic
from kafka.errors import (
    NoReassignmentInProgressError,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
)

from raftlog.client.blocking import BlockingClient
from raftlog.client.core import asks
from raftlog.client.core import values as core
from raftlog.client.core.partitioner import partition_of
from raftlog.records.batch import CODEC_MASK, read_header

pytestmark = [pytest.mark.processes, pytest.mark.slow]

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
PARTITIONS = 3
COUNT = 300
KEYS = [f"key-{number}".encode() for number in range(COUNT)]
SECONDS = 60


def value_of(kind: str, number: int) -> bytes:
    return f"{kind}:{number}:".encode() + b"compressible " * 20


def expected(kinds) -> set:
    return {(key, value_of(kind, number)) for kind in kinds for number, key in enumerate(KEYS)}


class Stored(NamedTuple):
    """The content of a topic's log: its batches' codecs, how many records, and whether a partition
    changed its leader meanwhile."""

    codecs: set[int]
    records: int
    led_by_several: bool


def stored(cluster, topic: str) -> Stored:
    """As the brokers tell it, batch by batch."""
    codecs, records, epochs = set(), 0, {}
    with BlockingClient(cluster.bootstrap_servers) as client:
        for partition in range(PARTITIONS):
            place = core.TopicPartition(topic, partition)
            end = client.offset(place, asks.LATEST).offset
            offset = 0
            while offset < end:
                piece = client.ask(asks.fetch(place, offset))
                for batch in piece.batches:
                    header = read_header(batch)
                    codecs.add(header.attributes & CODEC_MASK)
                    epochs.setdefault(partition, set()).add(header.leader_epoch)
                    records += header.records_count
                offset = piece.next_offset
    return Stored(codecs, records, any(len(each) > 1 for each in epochs.values()))


def check(read: list, kinds: list, log: Stored) -> None:
    """All records are there, once. On a busy machine a leader may be replaced: then, and only then,
    a producer that is not idempotent sends again what no broker had answered, and one that does not
    wait for all replicas may lose."""
    counted = Counter(read)
    twice = {kind_of(record) for record, times in counted.items() if times > 1}
    lost = {kind_of(record) for record in expected(kinds) - set(read)}
    assert set(read) <= expected(kinds)
    assert log.led_by_several or not (twice or lost), (twice, lost)
    assert "idempotent" not in twice
    assert lost <= {"acks0", "acks1"}
    assert log.codecs == set(CODECS.values())


def kind_of(record: tuple[bytes, bytes]) -> str:
    return record[1].partition(b":")[0].decode()


def test_confluent_kafka(cluster):
    topic = "by-confluent"
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.create_topics([NewTopic(topic, PARTITIONS, 3)])[topic].result(SECONDS)
    for codec in CODECS:
        _confluent_produce(cluster, topic, codec, {"compression.type": codec, "acks": "all"})
    _confluent_produce(cluster, topic, "idempotent", {"enable.idempotence": True})
    _confluent_produce(cluster, topic, "acks1", {"acks": "1"})
    _confluent_produce(cluster, topic, "acks0", {"acks": "0"})
    kinds = [*CODECS, "idempotent", "acks1", "acks0"]
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "nobody",
            "enable.auto.commit": False,
            "check.crcs": True,
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    log, read = stored(cluster, topic), []
    deadline = time.monotonic() + SECONDS
    while len(read) < log.records:
        assert time.monotonic() < deadline, len(read)
        for message in consumer.consume(500, 1.0):
            assert message.error() is None, message.error()
            assert message.partition() == partition_of(message.key(), PARTITIONS)
            read.append((message.key(), message.value()))
    consumer.close()
    check(read, kinds, log)


def _confluent_produce(cluster, topic: str, kind: str, settings: dict) -> None:
    failed = []
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "partitioner": "murmur2_random",
            "linger.ms": 20,
            **settings,
        }
    )
    for number, key in enumerate(KEYS):
        producer.produce(
            topic,
            value_of(kind, number),
            key=key,
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
    assert producer.flush(SECONDS) == 0
    assert failed == []


def test_kafka_python(cluster):
    topic = "by-kafka-python"
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)
    admin.create_topics([PythonNewTopic(topic, num_partitions=PARTITIONS, replication_factor=3)])
    admin.close()
    for codec in CODECS:
        settings = {"compression_type": None if codec == "none" else codec, "linger_ms": 20}
        _python_produce(cluster, topic, codec, {**settings, "enable_idempotence": False})
    _python_produce(cluster, topic, "idempotent", {"enable_idempotence": True})
    kinds = [*CODECS, "idempotent"]
    consumer = KafkaConsumer(
        bootstrap_servers=cluster.bootstrap_servers,
        enable_auto_commit=False,
        consumer_timeout_ms=SECONDS * 1000,
    )
    places = [PythonTopicPartition(topic, number) for number in range(PARTITIONS)]
    consumer.assign(places)
    consumer.seek_to_beginning(*places)
    log, read = stored(cluster, topic), []
    for message in consumer:
        assert message.partition == partition_of(message.key, PARTITIONS)
        read.append((message.key, message.value))
        if len(read) == log.records:
            break
    consumer.close()
    check(read, kinds, log)


def test_kafka_python_moves_partitions_and_deletes_records(cluster):
    topic = "moved-by-kafka-python"
    place, ghost = PythonTopicPartition(topic, 0), PythonTopicPartition("ghost", 0)
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)
    admin.create_topics([PythonNewTopic(topic, replica_assignments={0: [1, 2]})])
    _python_produce(cluster, topic, "none", {})
    wanted = {place: [2, 3], ghost: [1, 2]}
    told = admin.alter_partition_reassignments(wanted)
    assert told == {place: None, ghost: UnknownTopicOrPartitionError}
    deadline = time.monotonic() + SECONDS
    while admin.list_partition_reassignments():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    (described,) = admin.describe_topics([topic])
    assert sorted(described["partitions"][0]["replica_nodes"]) == [2, 3]
    assert admin.list_partition_reassignments([place]) == {}
    cancelled = admin.alter_partition_reassignments({place: None})
    assert cancelled == {place: NoReassignmentInProgressError}
    assert admin.delete_records({place: 100})[place]["low_watermark"] == 100
    assert admin.delete_records({place: -1})[place]["low_watermark"] == COUNT
    with pytest.raises(OffsetOutOfRangeError):
        admin.delete_records({place: COUNT + 1})
    admin.close()


def test_confluent_kafka_deletes_records(cluster):
    topic = "deleted-by-confluent"
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.create_topics([NewTopic(topic, 1, 3)])[topic].result(SECONDS)
    _confluent_produce(cluster, topic, "none", {"acks": "all"})
    for offset, left in ((100, 100), (-1, COUNT)):
        place = TopicPartition(topic, 0, offset)
        (deleted,) = admin.delete_records([place]).values()
        assert deleted.result(SECONDS).low_watermark == left


def _python_produce(cluster, topic: str, kind: str, settings: dict) -> None:
    producer = KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, acks="all", **settings)
    sent = [
        producer.send(topic, value_of(kind, number), key=key) for number, key in enumerate(KEYS)
    ]
    producer.flush(SECONDS)
    offsets = [each.get(SECONDS).offset for each in sent]
    producer.close()
    assert min(offsets) >= 0


def test_aiokafka(cluster):
    topic, kinds = "by-aiokafka", [*CODECS, "idempotent"]
    asyncio.run(_aiokafka_writes(cluster, topic))
    log = stored(cluster, topic)
    check(asyncio.run(_aiokafka_reads(cluster, topic, log.records)), kinds, log)


async def _aiokafka_writes(cluster, topic: str) -> None:
    servers = cluster.bootstrap_servers
    admin = AIOKafkaAdminClient(bootstrap_servers=servers)
    await admin.start()
    await admin.create_topics([AioNewTopic(topic, PARTITIONS, 3)])
    await admin.close()
    for codec in CODECS:
        compression = None if codec == "none" else codec
        await _aio_produce(servers, topic, codec, {"compression_type": compression})
    await _aio_produce(servers, topic, "idempotent", {"enable_idempotence": True})


async def _aiokafka_reads(cluster, topic: str, count: int) -> list:
    servers = cluster.bootstrap_servers
    consumer = AIOKafkaConsumer(bootstrap_servers=servers, enable_auto_commit=False)
    await consumer.start()
    try:
        places = [AioTopicPartition(topic, number) for number in range(PARTITIONS)]
        consumer.assign(places)
        await consumer.seek_to_beginning(*places)
        read = []
        async with asyncio.timeout(SECONDS):
            while len(read) < count:
                for messages in (await consumer.getmany(timeout_ms=500)).values():
                    read += [(message.key, message.value) for message in messages]
    finally:
        await consumer.stop()
    return read


async def _aio_produce(servers: str, topic: str, kind: str, settings: dict) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=servers, acks="all", linger_ms=20, **settings)
    await producer.start()
    try:
        sent = [
            await producer.send(topic, value_of(kind, number), key=key)
            for number, key in enumerate(KEYS)
        ]
        await asyncio.gather(*sent)
    finally:
        await producer.stop()


@pytest.mark.needs_command("kcat")
def test_kcat(cluster):
    """kcat 1.7.1 as Debian has it, on librdkafka 2.0.2: it reads minimum versions literally."""
    topic = "by-kcat"
    with BlockingClient(cluster.bootstrap_servers) as client:
        client.create_topic(topic, partitions=PARTITIONS, replication_factor=3)
    for codec in CODECS:
        _kcat_produce(cluster, topic, codec, ["-z", codec])
    _kcat_produce(cluster, topic, "idempotent", ["-X", "enable.idempotence=true"])
    kinds = [*CODECS, "idempotent"]
    done = subprocess.run(
        ["kcat", "-b", cluster.bootstrap_servers, "-C", "-t", topic, "-o", "beginning", "-e", "-q",
         "-f", "%k\t%s\n"],
        capture_output=True,
        timeout=SECONDS,
        check=True,
    )  # fmt: skip
    read = [tuple(line.split(b"\t")) for line in done.stdout.splitlines()]
    check(read, kinds, stored(cluster, topic))


def _kcat_produce(cluster, topic: str, kind: str, options: list) -> None:
    lines = b"".join(
        key + b"\t" + value_of(kind, number) + b"\n" for number, key in enumerate(KEYS)
    )
    subprocess.run(
        ["kcat", "-b", cluster.bootstrap_servers, "-P", "-t", topic, "-K", "\t",
         "-X", "linger.ms=20", "-X", "topic.partitioner=murmur2_random", *options],
        input=lines,
        capture_output=True,
        timeout=SECONDS,
        check=True,
    )  # fmt: skip


def test_compression_is_worth_something():
    """The values of these tests do compress, so that an uncompressed log cannot pass for one."""
    value = value_of("x", 1) * 10
    assert len(gzip.compress(value)) < len(value) / 5
