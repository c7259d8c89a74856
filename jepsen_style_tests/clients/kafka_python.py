"""kafka-python."""

import logging
import time
from collections.abc import Mapping
from typing import Any, Final, final

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError

from jepsen_style_tests.clients.face import (
    CallRefused,
    ClientSettings,
    Done,
    Found,
    Unknown,
    gathered,
)

NAME: Final = "kafka-python"
logging.getLogger("kafka").setLevel(logging.CRITICAL)


@final
class KafkaPythonClient:
    """A `face.Client`."""

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        self._closed = False
        servers = settings.bootstrap.split(",")
        millis = int(settings.seconds * 1000)
        tries = int(settings.request_seconds * 1000)
        try:
            self._producer = KafkaProducer(
                bootstrap_servers=servers,
                acks="all",
                enable_idempotence=settings.idempotent,
                retries=2147483647 if settings.retries else 0,
                linger_ms=0,
                request_timeout_ms=tries,
                delivery_timeout_ms=millis,
                max_block_ms=millis,
                reconnect_backoff_max_ms=500,
                metadata_max_age_ms=5000,
            )
            self._consumer = KafkaConsumer(
                bootstrap_servers=servers,
                group_id=None,
                enable_auto_commit=False,
                auto_offset_reset="none",
                fetch_max_wait_ms=50,
                request_timeout_ms=tries + 500,
                default_api_timeout_ms=millis,
                reconnect_backoff_max_ms=500,
                metadata_max_age_ms=2000,
            )
        except KafkaError as error:
            raise Unknown(f"cannot connect: {error}") from error
        self._waiting: list[Any] = []

    def send(self, topic: str, partition: int, value: str) -> int:
        future = self._put(topic, partition, value)
        try:
            return int(future.get(timeout=2 * self._settings.seconds).offset)
        except KafkaError as error:
            raise Unknown(repr(error)) from error

    def send_soon(self, topic: str, partition: int, value: str, done: Done) -> None:
        try:
            future = self._put(topic, partition, value)
        except CallRefused as error:
            done(None, error)
            return
        self._waiting = [each for each in self._waiting if not each.is_done]
        self._waiting.append(future)
        future.add_callback(lambda found: done(int(found.offset), None))
        future.add_errback(lambda error: done(None, Unknown(repr(error))))

    def _put(self, topic: str, partition: int, value: str) -> Any:
        try:
            return self._producer.send(topic, value.encode(), partition=partition)
        except (KafkaError, AssertionError) as error:  # nothing was queued: no metadata, no room
            raise CallRefused(repr(error)) from error

    def settle(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        for future in self._waiting:
            while not future.is_done and time.monotonic() < deadline:
                time.sleep(0.005)

    def assign(self, positions: Mapping[tuple[str, int], int]) -> None:
        places = {TopicPartition(*place): offset for place, offset in positions.items()}
        try:
            self._consumer.assign(list(places))
            for place, offset in places.items():
                self._consumer.seek(place, offset)
        except KafkaError as error:
            raise Unknown(repr(error)) from error

    def poll(self, seconds: float) -> Found:
        try:
            batches = self._consumer.poll(timeout_ms=int(seconds * 1000))
        except KafkaError as error:
            raise Unknown(repr(error)) from error
        return gathered(
            [
                (place.topic, place.partition, each.offset, each.value)
                for place, records in batches.items()
                for each in records
            ]
        )

    def end(self, topic: str, partition: int) -> int:
        place = TopicPartition(topic, partition)
        try:
            return int(self._consumer.end_offsets([place])[place])
        except (KafkaError, KeyError) as error:
            raise Unknown(repr(error)) from error

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._producer.close(timeout=0.2)
            self._consumer.close(autocommit=False)
