"""Other people's clients in consumer groups, against real brokers: they subscribe, commit, take
over from one another, and lose nothing when a coordinator is killed or all brokers restart.

At least once: what a member has not committed, another may read again; nothing is skipped, and no
committed offset goes back.
"""

import asyncio
import json
import subprocess
import sys
import time
from contextlib import closing

import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    ShareConsumer,
)
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer

from raftlog.runtime.local import cluster as local_cluster

pytestmark = [pytest.mark.processes, pytest.mark.slow]

PARTITIONS = 4
COUNT = 400
SECONDS = 60.0
COMMON = {"auto.offset.reset": "earliest", "enable.auto.commit": False}


def fill(servers, topic, first=0, count=COUNT):
    """A topic with `count` records more, the value of each its number."""
    admin = AdminClient({"bootstrap.servers": servers})
    if first == 0:
        admin.create_topics([NewTopic(topic, PARTITIONS, 3)])[topic].result(SECONDS)
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    for number in range(first, first + count):
        producer.produce(topic, str(number), partition=number % PARTITIONS)
    assert producer.flush(SECONDS) == 0


def confluent(servers, group, **more):
    return Consumer({"bootstrap.servers": servers, "group.id": group, **COMMON, **more})


def read(consumer, enough, limit=SECONDS):
    """Returns the numbers that the consumer reads until `enough(numbers)`; its errors fail the
    test."""
    numbers, deadline = [], time.monotonic() + limit
    while not enough(numbers):
        assert time.monotonic() < deadline, len(numbers)
        for message in consumer.consume(100, 0.2):
            assert message.error() is None, message.error()
            numbers.append(int(message.value()))
    return numbers


def all_of(count):
    return lambda numbers: len(set(numbers)) >= count


def committed(consumer, topic):
    places = [Place(topic, number) for number in range(PARTITIONS)]
    return [place.offset for place in consumer.committed(places, SECONDS)]


def until(done, *consumers, limit=SECONDS):
    """Poll the consumers until it is so; what they read meanwhile."""
    numbers, deadline = [], time.monotonic() + limit
    while not done():
        assert time.monotonic() < deadline, "not in time"
        for consumer in consumers:
            message = consumer.poll(0.05)
            if message is not None and message.error() is None:
                numbers.append(int(message.value()))
    return numbers


@pytest.fixture(scope="module")
def servers(cluster):
    return cluster.bootstrap_servers


# --- one member of each client --------------------------------------------------------------------


def test_confluent_kafka_reads_in_a_group_and_goes_on_where_it_committed(servers):
    fill(servers, "g-confluent")
    with closing(confluent(servers, "g-confluent")) as consumer:
        consumer.subscribe(["g-confluent"])
        assert sorted(read(consumer, all_of(COUNT))) == list(range(COUNT))
        consumer.commit(asynchronous=False)
        assert committed(consumer, "g-confluent") == [COUNT // PARTITIONS] * PARTITIONS
    fill(servers, "g-confluent", COUNT, 40)
    with closing(confluent(servers, "g-confluent")) as consumer:
        consumer.subscribe(["g-confluent"])
        assert sorted(read(consumer, all_of(40))) == list(range(COUNT, COUNT + 40))


def test_kafka_python_reads_in_a_group_and_goes_on_where_it_committed(servers):
    fill(servers, "g-python")
    settings = {"bootstrap_servers": servers, "group_id": "g-python", "enable_auto_commit": False}
    for expected in (COUNT, 0):
        consumer = KafkaConsumer("g-python", auto_offset_reset="earliest", **settings)
        with closing(consumer):
            numbers, deadline = [], time.monotonic() + SECONDS
            while len(numbers) < expected or not consumer.assignment():
                assert time.monotonic() < deadline, len(numbers)
                for records in consumer.poll(500).values():
                    numbers += [int(record.value) for record in records]
            assert sorted(numbers) == list(range(expected))
            consumer.commit()


def test_aiokafka_reads_in_a_group_and_goes_on_where_it_committed(servers):
    fill(servers, "g-aio")

    async def consume(expected):
        consumer = AIOKafkaConsumer(
            "g-aio",
            bootstrap_servers=servers,
            group_id="g-aio",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        numbers = []
        await consumer.start()
        try:
            while len(numbers) < expected:
                for records in (await consumer.getmany(timeout_ms=500)).values():
                    numbers += [int(record.value) for record in records]
            if not expected:
                assert not await consumer.getmany(timeout_ms=1000)
            await consumer.commit()
        finally:
            await consumer.stop()
        return sorted(numbers)

    async def twice():
        assert await asyncio.wait_for(consume(COUNT), SECONDS) == list(range(COUNT))
        assert await asyncio.wait_for(consume(0), SECONDS) == []

    asyncio.run(twice())


@pytest.mark.needs_command("kcat")
def test_kcat_reads_in_a_group(servers):
    fill(servers, "g-kcat")
    command = ["kcat", "-b", servers, "-G", "g-kcat", "-X", "auto.offset.reset=earliest"]
    done = subprocess.run(
        [*command, "-c", str(COUNT), "-q", "g-kcat"], capture_output=True, timeout=60, check=True
    )
    assert sorted(map(int, done.stdout.split())) == list(range(COUNT))


def test_the_newer_group_protocol_is_refused_at_once(servers):
    consumer = confluent(servers, "g-new", **{"group.protocol": "consumer"})
    consumer.subscribe(["anything"])
    heard, began = None, time.monotonic()
    while heard is None and time.monotonic() < began + 20:
        message = consumer.poll(0.2)
        heard = message and message.error()
    assert heard is not None, "silence"
    assert heard.code() == KafkaError._FATAL
    assert "ConsumerGroupHeartbeat" in heard.str()
    assert time.monotonic() - began < 5
    consumer.close()


def test_a_share_consumer_is_refused_at_once(servers):
    """Regression: confluent-kafka's share consumer heard nothing, and said nothing."""
    consumer = ShareConsumer({"bootstrap.servers": servers, "group.id": "g-share"})
    consumer.subscribe(["anything"])
    began = time.monotonic()
    with pytest.raises(KafkaException) as heard:
        consumer.poll(20)
    error = heard.value.args[0]
    assert (error.fatal(), error.code()) == (True, KafkaError.UNSUPPORTED_VERSION)
    assert "ShareGroupHeartbeat" in error.str()
    assert time.monotonic() - began < 5
    consumer.close()


# --- several members ------------------------------------------------------------------------------

MEMBER = """
import json, sys
from confluent_kafka import Consumer, KafkaException
settings, topic = json.loads(sys.argv[1]), sys.argv[2]
consumer = Consumer(settings)
consumer.subscribe([topic])
while True:
    message = consumer.poll(0.2)
    if message is not None and message.error() is None:
        print(int(message.value()), flush=True)
        try:
            consumer.commit(message, asynchronous=False)
        except KafkaException:
            pass  # a rebalance ended meanwhile: whoever has the partition now reads it again
"""


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_member_joins_and_another_is_killed(servers, strategy):
    """The partitions of the one that was killed go to the others after its session."""
    topic = group = f"g-{strategy}"
    fill(servers, topic)
    more = {"partition.assignment.strategy": strategy, "session.timeout.ms": 6000}
    settings = {"bootstrap.servers": servers, "group.id": group, **COMMON, **more}
    command = [sys.executable, "-c", MEMBER, json.dumps(settings), topic]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
        lines = [int(other.stdout.readline()) for _ in range(10)]
        with closing(confluent(servers, group, **more)) as consumer:
            consumer.subscribe([topic])
            numbers = until(lambda: len(consumer.assignment()) == 2, consumer)
            other.kill()
            lines += [int(line) for line in other.stdout.read().split()]
            numbers += until(lambda: len(consumer.assignment()) == PARTITIONS, consumer)
            numbers += read(consumer, lambda more: set(numbers + more + lines) >= set(range(COUNT)))


def test_two_members_share_and_the_last_one_takes_all(servers):
    topic = "g-two"
    fill(servers, topic)
    first, second = confluent(servers, topic), confluent(servers, topic)
    first.subscribe([topic])
    second.subscribe([topic])
    numbers = until(
        lambda: [len(each.assignment()) for each in (first, second)] == [2, 2], first, second
    )
    first.close()
    numbers += until(lambda: len(second.assignment()) == PARTITIONS, second)
    numbers += read(second, lambda more: set(numbers + more) >= set(range(COUNT)))
    second.close()


# --- tools ----------------------------------------------------------------------------------------


def test_an_administrator_lists_describes_alters_and_deletes(servers):
    topic = group = "g-admin"
    fill(servers, topic)
    admin = AdminClient({"bootstrap.servers": servers})
    with closing(confluent(servers, group)) as consumer:
        consumer.subscribe([topic])
        read(consumer, all_of(COUNT))
        consumer.commit(asynchronous=False)
        described = admin.describe_consumer_groups([group])[group].result(SECONDS)
        assert described.state.name == "STABLE"
        (member,) = described.members
        assert len(member.assignment.topic_partitions) == PARTITIONS
        assert member.host == "/127.0.0.1"
    listed = admin.list_consumer_groups().result(SECONDS).valid
    assert group in [each.group_id for each in listed]
    wanted = ConsumerGroupTopicPartitions(group, [Place(topic, 0, 7)])
    admin.alter_consumer_group_offsets([wanted])[group].result(SECONDS)
    asked = ConsumerGroupTopicPartitions(group)
    found = admin.list_consumer_group_offsets([asked])[group].result(SECONDS)
    offsets = {place.partition: place.offset for place in found.topic_partitions}
    assert offsets == {0: 7, 1: 100, 2: 100, 3: 100}
    assert admin.delete_consumer_groups([group])[group].result(SECONDS) is None
    listed = admin.list_consumer_groups().result(SECONDS).valid
    assert group not in [each.group_id for each in listed]


# --- brokers that die -----------------------------------------------------------------------------


@pytest.fixture
def own_cluster(tmp_path):
    running = local_cluster.found(tmp_path / "cluster", brokers=3)
    try:
        running.start_all()
        yield running
    finally:
        running.stop()


def coordinator_of(servers, group):
    admin = AdminClient({"bootstrap.servers": servers})
    return admin.describe_consumer_groups([group])[group].result(SECONDS).coordinator.id


def test_a_group_goes_on_when_its_coordinator_is_killed(own_cluster):
    servers, topic = own_cluster.bootstrap_servers, "g-killed"
    fill(servers, topic)
    with closing(confluent(servers, topic)) as consumer:
        consumer.subscribe([topic])
        numbers = read(consumer, all_of(100))
        consumer.commit(asynchronous=False)
        before = committed(consumer, topic)
        own_cluster.kill(coordinator_of(servers, topic))
        numbers += read(consumer, lambda more: set(numbers + more) >= set(range(COUNT)))
        consumer.commit(asynchronous=False)
        after = committed(consumer, topic)
        assert after == [COUNT // PARTITIONS] * PARTITIONS
        assert all(old <= new for old, new in zip(before, after, strict=True))


def test_offsets_outlive_a_restart_of_all_brokers(own_cluster):
    servers, topic = own_cluster.bootstrap_servers, "g-restart"
    fill(servers, topic)
    with closing(confluent(servers, topic)) as consumer:
        consumer.subscribe([topic])
        read(consumer, all_of(COUNT))
        consumer.commit(asynchronous=False)
    for node in (1, 2, 3):
        own_cluster.kill(node)
    own_cluster.start_all()
    fill(servers, topic, COUNT, 40)
    with closing(confluent(servers, topic)) as consumer:
        assert committed(consumer, topic) == [COUNT // PARTITIONS] * PARTITIONS
        consumer.subscribe([topic])
        assert sorted(read(consumer, all_of(40))) == list(range(COUNT, COUNT + 40))
