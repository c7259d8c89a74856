"""kafka-python, a client in pure Python."""

import time
from contextlib import closing

import kafka
import speaking
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, NewTopic

SECONDS = 12.0


def admin(place):
    return closing(KafkaAdminClient(bootstrap_servers=place.bootstrap))


def create(place):
    topic = NewTopic(place.topic, 2, 3, topic_configs={"retention.ms": "3600000"})
    with admin(place) as client:
        client.create_topics([topic])


def grow(place):
    with admin(place) as client:
        client.create_partitions({place.topic: 3})


def describe(place):
    with admin(place) as client:
        [found] = client.describe_topics([place.topic])
    replicas = [sorted(each["replica_nodes"]) for each in found["partitions"]]
    speaking.expect(replicas, [[1, 2, 3]] * 2, "replicas")


def delete(place):
    with admin(place) as client:
        client.delete_topics([place.topic])


def describe_configs(place):
    with admin(place) as client:
        found = client.describe_configs([ConfigResource("topic", place.topic)])
    speaking.expect("3600000" in str(found), True, f"3600000 in {str(found)[:300]}")


def alter_configs(place):
    resource = ConfigResource("topic", place.topic, configs={"retention.ms": "7200000"})
    with admin(place) as client:
        [result] = client.alter_configs([resource])["topic"].values()
    refused(result)


def refused(result):
    """Raise the error that a call reports for one item among its results."""
    if isinstance(result, BaseException) or result not in (None, "OK", "NoError"):
        text = getattr(result, "__name__", None) or repr(result)
        raise RuntimeError(text)


def produce(**settings):
    """Returns a function that writes the feature's records with these settings."""

    def function(place):
        with closing(KafkaProducer(bootstrap_servers=place.bootstrap, **settings)) as producer:
            _write(producer, place)

    return function


def _write(producer, place):
    sent = [
        producer.send(place.topic, f"{place.feature}-{number}".encode())
        for number in range(speaking.WRITTEN_RECORDS)
    ]
    for each in sent:
        each.get(SECONDS)


def consumer(place, *topics, **settings):
    return closing(
        KafkaConsumer(
            *topics,
            bootstrap_servers=place.bootstrap,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            **settings,
        )
    )


def read(reader, count):
    values = []
    deadline = time.monotonic() + SECONDS
    while len(values) < count and time.monotonic() < deadline:
        for records in reader.poll(500).values():
            values += [record.value.decode() for record in records]
    if not values:
        raise TimeoutError("no record came, and no error")
    return values


def consume(place, **settings):
    with consumer(place, group_id=None, **settings) as reader:
        reader.assign([TopicPartition(place.filled, n) for n in range(speaking.FILLED_PARTITIONS)])
        found = sorted(read(reader, len(speaking.FILLED_VALUES)))
    speaking.expect(found, speaking.FILLED_VALUES, "records")


def consume_time(place):
    partition = TopicPartition(place.filled, 1)
    with consumer(place, group_id=None) as reader:
        reader.assign([partition])
        reader.seek(
            partition, reader.offsets_for_times({partition: speaking.TIME})[partition].offset
        )
        speaking.expect(read(reader, 1)[0], "1:5", "the first record")


def delete_records(place):
    with admin(place) as client:
        client.delete_records({TopicPartition(place.topic, 0): 5})


def reassign(place):
    partition = TopicPartition(place.topic, 0)
    with admin(place) as client:
        refused(client.alter_partition_reassignments({partition: [2]})[partition])


def list_groups(place):
    with admin(place) as client:
        listed = [each["group_id"] for each in client.list_groups()]
    speaking.expect_among(place.known_group, listed, "groups")


def group(place):
    with consumer(place, place.filled, group_id=place.group) as reader:
        found = sorted(read(reader, len(speaking.FILLED_VALUES)))
        reader.commit()
    speaking.expect(found, speaking.FILLED_VALUES, "records")


def transaction(place):
    settings = {"bootstrap_servers": place.bootstrap, "transactional_id": place.group}
    with closing(KafkaProducer(**settings)) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        _write(producer, place)
        producer.commit_transaction()


def subscribe_alone(place, **settings):
    """Read as no member of a group: a reader gets all partitions of the topics that it names."""
    with consumer(place, place.filled, group_id=None, **settings) as reader:
        found = sorted(read(reader, len(speaking.FILLED_VALUES)))
    speaking.expect(found, speaking.FILLED_VALUES, "records")


def auto_create(place):
    with closing(KafkaProducer(bootstrap_servers=place.bootstrap)) as producer:
        sent = [producer.send(place.topic, b"%d" % n, partition=0) for n in range(20)]
        speaking.expect([each.get(SECONDS).offset for each in sent], list(range(20)), "offsets")
    with consumer(place, group_id=None) as reader:
        reader.assign([TopicPartition(place.topic, 0)])
        found = read(reader, 20)
    speaking.expect(found, [str(number) for number in range(20)], "records")


def old_release(place):
    """Use the oldest release whose records are of today's format."""
    old = {"api_version": (0, 11)}
    produce(**old)(place)
    consume(place, **old)
    subscribe_alone(place, **old)


FEATURES = {
    "subscribe-alone": subscribe_alone,
    "auto-create": auto_create,
    "old-release": old_release,
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
    "acks-0": produce(acks=0, enable_idempotence=False),
    "acks-1": produce(acks=1, enable_idempotence=False),
    "acks-all": produce(acks="all", enable_idempotence=False),
    "idempotent": produce(enable_idempotence=True),
    "consume": consume,
    "consume-time": consume_time,
    "delete-records": delete_records,
    "reassign": reassign,
    "list-groups": list_groups,
    "group": group,
    "transaction": transaction,
    "kip-848": speaking.absent("kafka-python has the classic group protocol alone"),
}

if __name__ == "__main__":
    speaking.main(kafka.__version__, FEATURES.__getitem__)
