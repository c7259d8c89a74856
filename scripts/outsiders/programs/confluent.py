"""confluent-kafka (librdkafka in Python), any release from 2.3 on."""

import time
from functools import cache
from importlib.metadata import version

import confluent_kafka
import speaking
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka import admin as kafka_admin

SECONDS = 12.0
COMMITTED_OFFSET = 4


@cache
def admin(place):
    """Returns the administration client, which is kept: one that is let go ends its requests."""
    return kafka_admin.AdminClient({"bootstrap.servers": place.bootstrap})


def done(futures):
    return {key: future.result(SECONDS) for key, future in futures.items()}


def create(place):
    topic = kafka_admin.NewTopic(place.topic, 2, 3, config={"retention.ms": "3600000"})
    done(admin(place).create_topics([topic]))


def grow(place):
    done(admin(place).create_partitions([kafka_admin.NewPartitions(place.topic, 3)]))


def describe(place):
    found = admin(place).list_topics(place.topic, timeout=SECONDS).topics[place.topic]
    replicas = [sorted(each.replicas) for each in found.partitions.values()]
    speaking.expect(replicas, [[1, 2, 3]] * 2, "replicas")


def delete(place):
    done(admin(place).delete_topics([place.topic]))


def describe_configs(place):
    resource = kafka_admin.ConfigResource("topic", place.topic)
    [found] = done(admin(place).describe_configs([resource])).values()
    speaking.expect(found["retention.ms"].value, "3600000", "retention.ms")


def alter_configs(place):
    change = kafka_admin.ConfigEntry(
        "retention.ms", "7200000", incremental_operation=kafka_admin.AlterConfigOpType.SET
    )
    resource = kafka_admin.ConfigResource("topic", place.topic, incremental_configs=[change])
    done(admin(place).incremental_alter_configs([resource]))


def produce(**settings):
    """Returns a function that writes the feature's records with these settings."""

    def function(place):
        names = {name.replace("_", "."): value for name, value in settings.items()}
        producer = Producer(
            {"bootstrap.servers": place.bootstrap, "message.timeout.ms": 12000, **names}
        )
        _write(producer, place)

    return function


def _write(producer, place):
    failed = []
    for number in range(speaking.WRITTEN_RECORDS):
        producer.produce(
            place.topic,
            f"{place.feature}-{number}",
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
    if left := producer.flush(SECONDS + 2):
        raise TimeoutError(f"{left} records are not delivered")
    if failed:
        raise KafkaException(failed[0])


def consumer(place, **settings):
    names = {name.replace("_", "."): value for name, value in settings.items()}
    return Consumer(
        {
            "bootstrap.servers": place.bootstrap,
            "group.id": place.group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **names,
        }
    )


def read(reader, count):
    """Read some records; raise an error of the client."""
    messages = []
    deadline = time.monotonic() + SECONDS
    while len(messages) < count and time.monotonic() < deadline:
        message = reader.poll(0.5)
        if message is None:
            continue
        if message.error() is not None:
            raise KafkaException(message.error())
        messages.append(message)
    if not messages:
        raise TimeoutError("no record came, and no error")
    return messages


def all_filled(reader):
    messages = read(reader, len(speaking.FILLED_VALUES))
    found = sorted(each.value().decode() for each in messages)
    speaking.expect(found, speaking.FILLED_VALUES, "records")


def consume(**settings):
    """Returns a function that reads the filled topic by assignment with these settings."""

    def function(place):
        reader = consumer(place, **settings)
        partitions = range(speaking.FILLED_PARTITIONS)
        reader.assign([TopicPartition(place.filled, partition, 0) for partition in partitions])
        all_filled(reader)
        reader.close()

    return function


def consume_time(place):
    reader = consumer(place)
    asked = [TopicPartition(place.filled, 1, speaking.TIME)]
    reader.assign(reader.offsets_for_times(asked, timeout=SECONDS))
    speaking.expect(read(reader, 1)[0].value(), b"1:5", "the first record")
    reader.close()


def delete_records(place):
    if not hasattr(kafka_admin.AdminClient, "delete_records"):
        raise speaking.AbsentError("this release has no delete_records")
    done(admin(place).delete_records([TopicPartition(place.topic, 0, 5)]))


def list_groups(place):
    found = admin(place).list_consumer_groups(request_timeout=SECONDS).result(SECONDS)
    if found.errors:
        raise KafkaException(found.errors[0])
    speaking.expect_among(place.known_group, [each.group_id for each in found.valid], "groups")


def group(**settings):
    """Returns a function that reads as a member of a group, and commits."""

    def function(place):
        reader = consumer(place, **settings)
        try:
            reader.subscribe([place.filled])
            all_filled(reader)
            reader.commit(asynchronous=False)
        finally:
            reader.close()

    return function


def kip_848(place):
    try:
        group(group_protocol="consumer")(place)
    except KafkaException as error:
        if error.args[0].code() == KafkaError._INVALID_ARG:
            raise speaking.AbsentError(f"this release: {error.args[0].str()}") from error
        raise


def transaction(place):
    producer = Producer({"bootstrap.servers": place.bootstrap, "transactional.id": place.group})
    producer.init_transactions(SECONDS)
    producer.begin_transaction()
    _write(producer, place)
    producer.commit_transaction(SECONDS)


# --- what this client alone is asked ---


def needs(name, function):
    """Returns the function, for releases whose administration client has a method of this name."""
    if hasattr(kafka_admin.AdminClient, name):
        return function
    return speaking.absent(f"this release has no {name}")


def describe_cluster(place):
    found = admin(place).describe_cluster().result(SECONDS)
    speaking.expect(sorted(node.id for node in found.nodes), [1, 2, 3], "nodes")


def max_timestamp(place):
    asked = {TopicPartition(place.filled, 1): kafka_admin.OffsetSpec.max_timestamp()}
    [found] = done(admin(place).list_offsets(asked)).values()
    speaking.expect(found.offset, speaking.FILLED_RECORDS - 1, "offset")


def describe_broker_configs(place):
    resource = kafka_admin.ConfigResource("broker", "1")
    [found] = done(admin(place).describe_configs([resource])).values()
    speaking.expect("log.retention.ms" in found, True, "log.retention.ms")


def describe_topics(place):
    asked = confluent_kafka.TopicCollection([place.filled])
    [found] = done(admin(place).describe_topics(asked)).values()
    speaking.expect(len(found.partitions), speaking.FILLED_PARTITIONS, "partitions")


def alter_configs_whole(place):
    """Replace all settings of a topic, as clients did before Kafka 2.3."""
    resource = kafka_admin.ConfigResource(
        "topic", f"{place.prefix}-work", set_config={"retention.ms": "3600000"}
    )
    done(admin(place).alter_configs([resource]))


def create_twice(place):
    topic = kafka_admin.NewTopic(place.filled, 1, 3)
    code = KafkaError.TOPIC_ALREADY_EXISTS
    refused(code, lambda: done(admin(place).create_topics([topic])))


def validate_only(place):
    topic = kafka_admin.NewTopic(place.topic, 3, 3)
    done(admin(place).create_topics([topic], validate_only=True))
    topics = admin(place).list_topics(timeout=SECONDS).topics
    speaking.expect(place.topic in topics, False, "made")


def delete_unknown(place):
    code = KafkaError.UNKNOWN_TOPIC_OR_PART
    refused(code, lambda: done(admin(place).delete_topics([place.topic])))


def max_timestamp_live(place):
    """The newest timestamp is committed at any moment: there is one, and its record can never be
    lost."""
    producer = Producer({"bootstrap.servers": place.bootstrap, "linger.ms": 1})
    at = TopicPartition(f"{place.prefix}-work", 2)
    producer.produce(at.topic, b"first", partition=at.partition)
    producer.flush(SECONDS)
    asked = {at: kafka_admin.OffsetSpec.max_timestamp()}
    for _ in range(100):
        for _ in range(20):
            producer.produce(at.topic, b"x" * 100, partition=at.partition)
        producer.poll(0)
        [found] = done(admin(place).list_offsets(asked)).values()
        speaking.expect(found.offset >= 0, True, "an offset")
    speaking.expect(producer.flush(SECONDS), 0, "records left")


def elect_leaders(place):
    partition = TopicPartition(place.filled, 0)
    kind = confluent_kafka.ElectionType.PREFERRED
    admin(place).elect_leaders(kind, [partition], request_timeout=SECONDS).result(SECONDS)


def describe_acls(place):
    every = kafka_admin.AclBindingFilter(
        *(kafka_admin.ResourceType.ANY, None, kafka_admin.ResourcePatternType.ANY, None, None),
        *(kafka_admin.AclOperation.ANY, kafka_admin.AclPermissionType.ANY),
    )
    admin(place).describe_acls(every, request_timeout=SECONDS).result(SECONDS)


def describe_groups(place):
    asked = admin(place).describe_consumer_groups([place.known_group], request_timeout=SECONDS)
    [found] = done(asked).values()
    speaking.expect(found.state.name, "EMPTY", "state of a group without members")


def delete_groups(place):
    asked = admin(place).delete_consumer_groups([f"{place.prefix}-doomed"], request_timeout=SECONDS)
    done(asked)


def commit(place):
    reader = consumer(place)
    reader.commit(offsets=[TopicPartition(place.filled, 0, COMMITTED_OFFSET)], asynchronous=False)
    reader.close()


def committed(place):
    reader = consumer(place, group_id=place.known_group)
    asked = [TopicPartition(place.filled, number) for number in range(2)]
    found = reader.committed(asked, timeout=SECONDS)
    reader.close()
    wanted = [speaking.KNOWN_OFFSET, confluent_kafka.OFFSET_INVALID]
    speaking.expect([each.offset for each in found], wanted, "an offset, and one of no commit")


def sent(place, topic, value, **settings):
    """Returns the message of one record in partition 0; raises an error of its delivery."""
    told = []
    limits = {"message.timeout.ms": 12000, "message.max.bytes": 5_000_000}
    producer = Producer({"bootstrap.servers": place.bootstrap, **limits})
    producer.produce(
        topic, value, partition=0, on_delivery=lambda *both: told.append(both), **settings
    )
    producer.flush(SECONDS + 2)
    [(error, message)] = told
    if error is not None:
        raise KafkaException(error)
    return message


def record(place):
    topic = f"{place.prefix}-work"
    headers = [("none", None), ("some", b"\x01\x02")]
    written = sent(place, topic, None, key="key", timestamp=speaking.TIME, headers=headers)
    reader = consumer(place)
    reader.assign([TopicPartition(topic, 0, written.offset())])
    [found] = read(reader, 1)
    reader.close()
    speaking.expect((found.key(), found.value()), (b"key", None), "key and value")
    speaking.expect(found.timestamp()[1], speaking.TIME, "timestamp")
    speaking.expect(found.headers(), headers, "headers")


def large(place):
    sent(place, f"{place.prefix}-work", b"x" * 900_000)


def refused(code, call):
    """Expect the call to fail with this error."""
    try:
        call()
    except KafkaException as error:
        if error.args[0].code() != code:
            raise
    else:
        raise ValueError("it was not refused")


def too_large(place):
    topic = f"{place.prefix}-work"
    code = KafkaError.MSG_SIZE_TOO_LARGE
    refused(code, lambda: sent(place, topic, b"x" * 2_000_000))


def auto_create(place):
    speaking.expect(sent(place, place.topic, b"x").offset(), 0, "offset")


def gapless(place):
    settings = {"enable.idempotence": True, "enable.gapless.guarantee": True}
    producer = Producer({"bootstrap.servers": place.bootstrap, **settings})
    failed = []
    for number in range(1000):
        producer.produce(
            f"{place.prefix}-work",
            str(number),
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
    speaking.expect((producer.flush(SECONDS), failed[:1]), (0, []), "left, and errors")


def out_of_range(place):
    reader = consumer(place, auto_offset_reset="error")
    reader.assign([TopicPartition(place.filled, 1, 1_000_000)])
    code = KafkaError._AUTO_OFFSET_RESET
    refused(code, lambda: read(reader, 1))
    reader.close()


def seek(place):
    reader = consumer(place)
    partition = TopicPartition(place.filled, 1, 0)
    reader.assign([partition])
    read(reader, 1)
    reader.seek(TopicPartition(place.filled, 1, 7))
    # Records that were fetched before the seek may still come.
    while read(reader, 1)[0].offset() != 7:
        pass
    speaking.expect(reader.position([partition])[0].offset, 8, "position")
    reader.pause([partition])
    reader.resume([partition])
    speaking.expect(read(reader, 1)[0].value(), b"1:8", "the next record")
    reader.close()


OWN = {
    "create-twice": create_twice,
    "validate-only": validate_only,
    "delete-unknown": delete_unknown,
    "describe-topics": needs("describe_topics", describe_topics),
    "describe-broker-configs": describe_broker_configs,
    "alter-configs-whole": alter_configs_whole,
    "read-committed": consume(isolation_level="read_committed"),
    # One batch is larger than an answer may hold of a partition; it must come all the same.
    "small-fetches": consume(
        fetch_message_max_bytes=1, fetch_max_bytes=1000, message_max_bytes=1000
    ),
    "describe-cluster": needs("describe_cluster", describe_cluster),
    "max-timestamp": needs("list_offsets", max_timestamp),
    "max-timestamp-live": needs("list_offsets", max_timestamp_live),
    "elect-leaders": needs("elect_leaders", elect_leaders),
    "describe-acls": describe_acls,
    "describe-groups": describe_groups,
    "delete-groups": delete_groups,
    "commit": commit,
    "committed": committed,
    "record": record,
    "large": large,
    "too-large": too_large,
    "gapless": gapless,
    "auto-create": auto_create,
    "out-of-range": out_of_range,
    "seek": seek,
}
FEATURES = {
    **OWN,
    "create": create,
    "grow": grow,
    "describe": describe,
    "delete": delete,
    "describe-configs": describe_configs,
    "alter-configs": alter_configs,
    **{
        f"produce-{codec}": produce(compression_type=codec)
        for codec in ("none", "gzip", "snappy", "lz4", "zstd")
    },
    **{f"acks-{acks}": produce(acks=acks) for acks in ("0", "1", "all")},
    "idempotent": produce(enable_idempotence=True),
    "consume": consume(),
    "consume-time": consume_time,
    "delete-records": delete_records,
    "reassign": speaking.absent("librdkafka has no reassignment"),
    "list-groups": list_groups,
    "group": group(),
    "transaction": transaction,
    "kip-848": kip_848,
}

if __name__ == "__main__":
    library = confluent_kafka.libversion()[0]
    speaking.main(f"{version('confluent-kafka')} (librdkafka {library})", FEATURES.__getitem__)
