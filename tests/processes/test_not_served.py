"""Other people's clients ask for transactions and hear soon that there are none.

A client that hears a retriable error asks again in silence, and its application sees nothing. On a
quiet machine each client here tells its application within a second; a silent one fails its test.
"""

import asyncio
import time
from contextlib import closing

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError as AioKafkaError
from confluent_kafka import (
    OFFSET_STORED,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaProducer
from kafka.errors import TransactionalIdAuthorizationFailedError

pytestmark = [pytest.mark.processes, pytest.mark.slow]

TOPIC = "not-grouped"
PATIENCE_S = 20.0


@pytest.fixture(scope="module")
def servers(cluster):
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.create_topics([NewTopic(TOPIC, 1, 3)])[TOPIC].result(PATIENCE_S)
    return cluster.bootstrap_servers


@pytest.mark.parametrize("offset", [0, OFFSET_STORED], ids=["an offset", "the committed offset"])
def test_confluent_kafka_reads_what_it_is_assigned_without_an_error(servers, offset):
    """It gives every consumer a group, and commits by itself unless it is told not to."""
    producer = Producer({"bootstrap.servers": servers})
    producer.produce(TOPIC, b"value")
    assert producer.flush(PATIENCE_S) == 0
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": f"g{offset}", "auto.offset.reset": "earliest"}
    )
    consumer.assign([TopicPartition(TOPIC, 0, offset)])
    message, deadline = None, time.monotonic() + PATIENCE_S
    while message is None and time.monotonic() < deadline:
        message = consumer.poll(0.2)
    began = time.monotonic()
    consumer.close()
    assert message is not None, "silence"
    assert (message.error(), message.offset()) == (None, 0)
    assert time.monotonic() - began < PATIENCE_S, "it waited for a coordinator"


def test_confluent_kafka_tells_a_transaction(servers):
    producer = Producer({"bootstrap.servers": servers, "transactional.id": "t"})
    with pytest.raises(KafkaException) as refused:
        producer.init_transactions(PATIENCE_S)
    assert refused.value.args[0].code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_kafka_python_tells_a_transaction(servers):
    producer = KafkaProducer(bootstrap_servers=servers, transactional_id="t")
    with closing(producer), pytest.raises(TransactionalIdAuthorizationFailedError):
        producer.init_transactions()


def test_aiokafka_tells_a_transaction(servers):
    async def start():
        producer = AIOKafkaProducer(bootstrap_servers=servers, transactional_id="t")
        try:
            await asyncio.wait_for(producer.start(), PATIENCE_S)
        finally:
            await producer.stop()

    with pytest.raises(AioKafkaError):
        asyncio.run(start())
