"""aiokafka, the asyncio client."""

from contextlib import asynccontextmanager

import aiokafka
import speaking
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import for_code


@asynccontextmanager
async def admin(place):
    client = AIOKafkaAdminClient(bootstrap_servers=place.bootstrap)
    try:
        await client.start()
        yield client
    finally:
        await client.close()


def accepted(answer, field):
    """Raise the error of a topic in an answer; aiokafka returns answers as they came."""
    for _, code, *told in getattr(answer, field):
        if code:
            raise for_code(code)(*told)


async def create(place):
    topic = NewTopic(place.topic, 2, 3, topic_configs={"retention.ms": "3600000"})
    async with admin(place) as client:
        accepted(await client.create_topics([topic]), "topic_errors")


async def grow(place):
    async with admin(place) as client:
        answer = await client.create_partitions({place.topic: NewPartitions(3)})
        accepted(answer, "topic_errors")


async def describe(place):
    async with admin(place) as client:
        [found] = await client.describe_topics([place.topic])
    replicas = [sorted(each["replicas"]) for each in found["partitions"]]
    speaking.expect(replicas, [[1, 2, 3]] * 2, "replicas")


async def delete(place):
    async with admin(place) as client:
        accepted(await client.delete_topics([place.topic]), "topic_error_codes")


async def describe_configs(place):
    async with admin(place) as client:
        resource = ConfigResource(ConfigResourceType.TOPIC, place.topic)
        [answer] = await client.describe_configs([resource])
    settings = {entry[0]: entry[1] for resource in answer.resources for entry in resource[4]}
    speaking.expect(settings.get("retention.ms"), "3600000", "retention.ms")


async def alter_configs(place):
    async with admin(place) as client:
        change = {"retention.ms": "7200000"}
        resource = ConfigResource(ConfigResourceType.TOPIC, place.topic, configs=change)
        [answer] = await client.alter_configs([resource])
    for code, told, *_ in answer.resources:
        if code:
            raise for_code(code)(told)


def produce(**settings):
    """Returns a function that writes the feature's records with these settings."""

    async def function(place):
        producer = AIOKafkaProducer(bootstrap_servers=place.bootstrap, **settings)
        try:
            await producer.start()
            await _write(producer, place)
        finally:
            await producer.stop()

    return function


async def _write(producer, place):
    sent = [
        await producer.send(place.topic, f"{place.feature}-{number}".encode())
        for number in range(speaking.WRITTEN_RECORDS)
    ]
    for each in sent:
        await each


@asynccontextmanager
async def consumer(place, *topics, **settings):
    reader = AIOKafkaConsumer(
        *topics,
        bootstrap_servers=place.bootstrap,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        **settings,
    )
    try:
        await reader.start()
        yield reader
    finally:
        await reader.stop()


async def read(reader, count):
    return [(await reader.getone()).value.decode() for _ in range(count)]


async def consume(place):
    async with consumer(place) as reader:
        reader.assign([TopicPartition(place.filled, n) for n in range(speaking.FILLED_PARTITIONS)])
        found = await read(reader, len(speaking.FILLED_VALUES))
    speaking.expect(sorted(found), speaking.FILLED_VALUES, "records")


async def consume_time(place):
    partition = TopicPartition(place.filled, 1)
    async with consumer(place) as reader:
        reader.assign([partition])
        found = await reader.offsets_for_times({partition: speaking.TIME})
        reader.seek(partition, found[partition].offset)
        speaking.expect(await read(reader, 1), ["1:5"], "the first record")


async def delete_records(place):
    partition = TopicPartition(place.topic, 0)
    async with admin(place) as client:
        await client.delete_records({partition: RecordsToDelete(before_offset=5)})


async def list_groups(place):
    async with admin(place) as client:
        listed = [name for name, _ in await client.list_consumer_groups()]
    speaking.expect_among(place.known_group, listed, "groups")


async def group(place):
    async with consumer(place, place.filled, group_id=place.group) as reader:
        found = await read(reader, len(speaking.FILLED_VALUES))
        await reader.commit()
    speaking.expect(sorted(found), speaking.FILLED_VALUES, "records")


async def transaction(place):
    settings = {"bootstrap_servers": place.bootstrap, "transactional_id": place.group}
    producer = AIOKafkaProducer(**settings)
    try:
        await producer.start()
        async with producer.transaction():
            await _write(producer, place)
    finally:
        await producer.stop()


async def list_topics(place):
    async with admin(place) as client:
        found = await client.list_topics()
    speaking.expect(place.filled in found, True, f"{place.filled} in {found}")


async def describe_cluster(place):
    async with admin(place) as client:
        found = await client.describe_cluster()
    nodes = sorted(each["node_id"] for each in found["brokers"])
    speaking.expect((nodes, found["controller_id"] in nodes), ([1, 2, 3], True), "nodes")


async def end_offsets(place):
    partition = TopicPartition(place.filled, 1)
    async with consumer(place) as reader:
        both = [await reader.beginning_offsets([partition]), await reader.end_offsets([partition])]
    found = [each[partition] for each in both]
    speaking.expect(found, [0, speaking.FILLED_RECORDS], "offsets")


FEATURES = {
    "list-topics": list_topics,
    "describe-cluster": describe_cluster,
    "end-offsets": end_offsets,
    "create": create,
    "grow": grow,
    "describe": describe,
    "delete": delete,
    "describe-configs": describe_configs,
    "alter-configs": alter_configs,
    "produce-none": produce(compression_type=None),
    **{
        f"produce-{codec}": produce(compression_type=codec)
        for codec in ("gzip", "snappy", "lz4", "zstd")
    },
    "acks-0": produce(acks=0),
    "acks-1": produce(acks=1),
    "acks-all": produce(acks="all"),
    "idempotent": produce(enable_idempotence=True),
    "consume": consume,
    "consume-time": consume_time,
    "delete-records": delete_records,
    "reassign": speaking.absent("aiokafka has no reassignment"),
    "list-groups": list_groups,
    "group": group,
    "transaction": transaction,
    "kip-848": speaking.absent("aiokafka has the classic group protocol alone"),
}

if __name__ == "__main__":
    speaking.main(aiokafka.__version__, FEATURES.__getitem__)
