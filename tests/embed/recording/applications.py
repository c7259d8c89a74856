"""One small application per library: it sends values, and reads until it has seen so many."""

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import attrs
import trio
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError as AioError
from confluent_kafka import Consumer, Producer
from kafka.errors import KafkaError

from raftlog import verify
from raftlog.base.errors import RaftlogError
from raftlog.base.units import millis
from raftlog.client.blocking import BlockingClient
from raftlog.client.blocking_consumer import BlockingConsumer
from raftlog.client.consumer import Consumer as TrioConsumer
from raftlog.client.trio_driver import Client
from tests.kafka_python import KafkaConsumer, KafkaProducer

READ_SECONDS = 60.0


@attrs.frozen
class Application:
    """`send` gives an error or None for each value, in order; `read` the values that came."""

    name: str
    send: Callable[[Any, str, Sequence[str], float], list[Any]]
    """(history, addresses, values, seconds after which a send is given up)"""
    read: Callable[[Any, str, int], list[str]]


TOPIC = "orders"


def confluent_send(history, servers, values, seconds):
    errors = []
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "log_level": 0,
            "enable.idempotence": True,
            "message.timeout.ms": int(seconds * 1000),
            "linger.ms": 0,
        }
    )
    producer = verify.record(producer, history)
    for value in values:
        producer.produce(TOPIC, value, value, on_delivery=lambda error, _: errors.append(error))
        producer.flush()
    return errors


def confluent_read(history, servers, count):
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "log_level": 0,
            "group.id": "shop",
            "auto.offset.reset": "earliest",
        }
    )
    consumer = verify.record(consumer, history)
    consumer.subscribe([TOPIC])
    found = []
    deadline = time.monotonic() + READ_SECONDS
    while len(found) < count and time.monotonic() < deadline:
        message = consumer.poll(0.5)
        if message is not None and message.error() is None:
            found.append(message.value().decode())
    consumer.close()
    return found


def kafka_python_send(history, servers, values, seconds):
    producer = KafkaProducer(
        bootstrap_servers=servers.split(","),
        enable_idempotence=True,
        request_timeout_ms=int(seconds * 500),
        delivery_timeout_ms=int(seconds * 1000),
        max_block_ms=int(seconds * 1000),
    )
    producer = verify.record(producer, history)
    errors = []
    for value in values:
        try:
            producer.send(TOPIC, value.encode(), key=value.encode()).get(timeout=4 * seconds)
            errors.append(None)
        except KafkaError as error:
            errors.append(error)
    producer.close(timeout=1)
    return errors


def kafka_python_read(history, servers, count):
    consumer = KafkaConsumer(
        TOPIC,
        bootstrap_servers=servers.split(","),
        group_id="shop",
        auto_offset_reset="earliest",
        consumer_timeout_ms=int(READ_SECONDS * 1000),
    )
    consumer = verify.record(consumer, history)
    found = []
    for record in consumer:
        found.append(record.value.decode())
        if len(found) == count:
            break
    consumer.close()
    return found


def aiokafka_send(history, servers, values, seconds):
    async def main():
        producer = AIOKafkaProducer(
            bootstrap_servers=servers,
            enable_idempotence=True,
            request_timeout_ms=int(seconds * 1000),
        )
        errors = []
        producer = verify.record(producer, history)
        await producer.start()
        for value in values:
            data = value.encode()
            sending = producer.send_and_wait(TOPIC, data, key=data)
            try:
                await asyncio.wait_for(sending, 2 * seconds)
                errors.append(None)
            except (AioError, TimeoutError) as error:
                errors.append(error)
        with suppress(TimeoutError):  # it waits for a broker that stands still
            await asyncio.wait_for(producer.stop(), 2 * seconds)
        return errors

    return asyncio.run(main())


def aiokafka_read(history, servers, count):
    async def main():
        consumer = AIOKafkaConsumer(
            TOPIC, bootstrap_servers=servers, group_id="shop", auto_offset_reset="earliest"
        )
        found = []
        async with verify.record(consumer, history) as consumer:
            with suppress(TimeoutError):
                async with asyncio.timeout(READ_SECONDS):
                    async for record in consumer:
                        found.append(record.value.decode())
                        if len(found) == count:
                            break
        return found

    return asyncio.run(main())


def blocking_send(history, servers, values, seconds):
    errors = []
    client = BlockingClient(servers, delivery_timeout_ns=millis(int(seconds * 1000)))
    with verify.record(client, history) as client:
        for value in values:
            try:
                client.produce(TOPIC, value.encode(), key=value.encode())
                errors.append(None)
            except RaftlogError as error:
                errors.append(error)
    return errors


def blocking_read(history, servers, count):
    found = []
    consumer = BlockingConsumer(servers, group_id="shop", auto_offset_reset="earliest")
    with verify.record(consumer, history) as consumer:
        consumer.subscribe([TOPIC])
        for record in consumer:
            found.append(record.value.decode())
            if len(found) == count:
                break
    return found


def trio_send(history, servers, values, seconds):
    async def main():
        errors = []
        client = Client(servers, delivery_timeout_ns=millis(int(seconds * 1000)))
        async with verify.record(client, history) as client:
            for value in values:
                try:
                    await client.send_soon(TOPIC, value.encode(), key=value.encode())
                    await client.flush()
                    errors.append(None)
                except RaftlogError as error:
                    errors.append(error)
        return errors

    return trio.run(main)


def trio_read(history, servers, count):
    async def main():
        found = []
        consumer = TrioConsumer(servers, group_id="shop", auto_offset_reset="earliest")
        async with verify.record(consumer, history) as consumer:
            consumer.subscribe([TOPIC])
            async for record in consumer:
                found.append(record.value.decode())
                if len(found) == count:
                    break
        return found

    return trio.run(main)


APPLICATIONS = [
    Application("confluent-kafka", confluent_send, confluent_read),
    Application("kafka-python", kafka_python_send, kafka_python_read),
    Application("aiokafka", aiokafka_send, aiokafka_read),
    Application("raftlog-blocking", blocking_send, blocking_read),
    Application("raftlog-trio", trio_send, trio_read),
]


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()[1:]]


def sends_of(path: Path) -> dict[str, list[dict[str, Any]]]:
    """Value -> the lines of its send."""
    found: dict[str, list[dict[str, Any]]] = {}
    called: dict[int, str] = {}
    for line in lines_of(path):
        if line["f"] == "send":
            if line["type"] == "invoke":
                called[line["process"]] = line["value"]
            found.setdefault(called[line["process"]], []).append(line)
    return found
