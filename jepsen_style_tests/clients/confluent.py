"""librdkafka, through confluent-kafka."""

import time
from collections.abc import Mapping
from typing import Any, Final, final

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from jepsen_style_tests.clients.face import (
    CallRefused,
    ClientSettings,
    Done,
    Found,
    NoTopic,
    TooFew,
    TopicExists,
    Unknown,
    gathered,
)

NAME: Final = "confluent-kafka"
_RECORDS_PER_POLL: Final = 500
# The client itself says these before anything is sent.
_LOCAL: Final = (KafkaError._QUEUE_FULL, KafkaError._INVALID_ARG, KafkaError.MSG_SIZE_TOO_LARGE)


@final
class ConfluentClient:
    """A `face.Client`."""

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        self._closed = False
        quiet = {"bootstrap.servers": settings.bootstrap, "log_level": 0}
        millis = int(settings.seconds * 1000)
        tries = int(settings.request_seconds * 1000)
        # librdkafka sends a request again that is in flight to a broker which leaves the metadata,
        # as a fenced one does. It does so even with `retries` 0. Without idempotence this may write
        # a record twice.
        self._producer = Producer(
            {
                **quiet,
                "acks": "all",
                "enable.idempotence": True,
                "retries": 2147483647,
                "linger.ms": 0,
                "message.timeout.ms": millis,
                "request.timeout.ms": tries,
                "socket.timeout.ms": tries + 500,
                "reconnect.backoff.max.ms": 500,
                "topic.metadata.refresh.interval.ms": 5000,
            }
        )
        self._consumer = Consumer(
            {
                **quiet,
                "group.id": settings.name,
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "fetch.wait.max.ms": 50,
                "fetch.error.backoff.ms": 50,
                "socket.timeout.ms": tries + 500,
                "reconnect.backoff.max.ms": 500,
                "topic.metadata.refresh.interval.ms": 2000,
                "check.crcs": True,
            }
        )

    def send(self, topic: str, partition: int, value: str) -> int:
        answers: list[tuple[int | None, Exception | None]] = []
        self.send_soon(topic, partition, value, lambda *answer: answers.append(answer))
        deadline = time.monotonic() + 2 * self._settings.seconds
        while not answers and time.monotonic() < deadline:
            self._producer.poll(0.05)
        if not answers:
            raise Unknown("no delivery report")
        offset, error = answers[0]
        if error is not None:
            raise error
        assert offset is not None
        return offset

    def send_soon(self, topic: str, partition: int, value: str, done: Done) -> None:
        def delivered(error: Any, message: Any) -> None:
            done(*((message.offset(), None) if error is None else (None, _why(error))))

        try:
            self._producer.produce(topic, value.encode(), partition=partition, callback=delivered)
        except BufferError:
            done(None, CallRefused("the client's queue is full"))
        except KafkaException as error:
            done(None, _why(error.args[0]))
        self._producer.poll(0)

    def settle(self, seconds: float) -> None:
        self._producer.flush(seconds)

    def assign(self, positions: Mapping[tuple[str, int], int]) -> None:
        places = [TopicPartition(topic, at, offset) for (topic, at), offset in positions.items()]
        try:
            self._consumer.assign(places)
        except KafkaException as error:
            raise Unknown(str(error)) from error

    def poll(self, seconds: float) -> Found:
        messages = self._consumer.consume(_RECORDS_PER_POLL, seconds)
        found: list[Any] = [
            (each.topic(), each.partition(), each.offset(), each.value())
            for each in messages
            if each.error() is None
        ]
        return gathered(found)

    def end(self, topic: str, partition: int) -> int:
        place = TopicPartition(topic, partition)
        try:
            low_high = self._consumer.get_watermark_offsets(place, timeout=self._settings.seconds)
        except KafkaException as error:
            raise Unknown(str(error)) from error
        if low_high is None:
            raise Unknown("no answer")
        return int(low_high[1])

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._producer.purge()
            self._producer.poll(0)
            self._consumer.close()


def _why(error: Any) -> Exception:
    text = error.str()
    return CallRefused(text) if error.code() in _LOCAL else Unknown(f"{error.name()}: {text}")


@final
class ConfluentAdmin:
    """A `face.Admin`."""

    def __init__(self, settings: ClientSettings) -> None:
        self._bootstrap = settings.bootstrap
        self._seconds = settings.seconds
        self._admin = AdminClient(
            {
                "bootstrap.servers": settings.bootstrap,
                "log_level": 0,
                "socket.timeout.ms": int(settings.seconds * 1000),
                "reconnect.backoff.max.ms": 500,
            }
        )

    def create(self, topic: str, partitions: int, configs: Mapping[str, str]) -> None:
        new = NewTopic(topic, partitions, -1, config=dict(configs))
        asked = self._admin.create_topics(
            [new], operation_timeout=self._seconds, request_timeout=self._seconds
        )
        self._wait(asked[topic])

    def delete(self, topic: str) -> None:
        asked = self._admin.delete_topics(
            [topic], operation_timeout=self._seconds, request_timeout=self._seconds
        )
        self._wait(asked[topic])

    def grow(self, topic: str, partitions: int) -> None:
        asked = self._admin.create_partitions(
            [NewPartitions(topic, partitions)],
            operation_timeout=self._seconds,
            request_timeout=self._seconds,
        )
        self._wait(asked[topic])

    def topics(self) -> dict[str, int]:
        try:
            answer = self._admin.list_topics(timeout=self._seconds)
        except KafkaException as error:
            raise Unknown(str(error)) from error
        return {name: len(topic.partitions) for name, topic in answer.topics.items()}

    def committed(self, group: str, topic: str, partitions: int) -> dict[int, int | None]:
        """The offsets that a group has committed, None where it has nothing."""
        quiet = {"bootstrap.servers": self._bootstrap, "log_level": 0}
        consumer = Consumer({**quiet, "group.id": group})
        places = [TopicPartition(topic, number) for number in range(partitions)]
        try:
            found = consumer.committed(places, timeout=self._seconds)
        except KafkaException as error:
            raise Unknown(str(error)) from error
        finally:
            consumer.close()
        if any(place.error is not None for place in found):
            raise Unknown(str(found))
        return {place.partition: place.offset if place.offset >= 0 else None for place in found}

    def _wait(self, future: Any) -> None:
        try:
            future.result(2 * self._seconds)
        except KafkaException as error:
            code, text = error.args[0].code(), error.args[0].str()
            if code == KafkaError.TOPIC_ALREADY_EXISTS:
                raise TopicExists(text) from error
            if code == KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise NoTopic(text) from error
            if code == KafkaError.INVALID_PARTITIONS:
                raise TooFew(text) from error
            raise Unknown(f"{error.args[0].name()}: {text}") from error
        except TimeoutError as error:
            raise Unknown("no answer") from error

    def close(self) -> None:
        """Nothing is kept open that the garbage collector would not close."""
