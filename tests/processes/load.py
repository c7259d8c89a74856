"""A producer under load and a reader of everything, by confluent-kafka, for tests that break
brokers."""

import threading
import time
from typing import Self

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

TOPIC = "ledger"


def make_topic(bootstrap: str, partitions: int, replication: int = 3, **configs: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    created = admin.create_topics([NewTopic(TOPIC, partitions, replication, config=configs)])
    created[TOPIC].result(60)


class Load:
    """Sends unique values as fast as they are acknowledged, in a thread of its own.

    `acknowledged` maps (partition, offset) to the value that was acknowledged there.
    """

    def __init__(self, bootstrap: str, partitions: int, name: str) -> None:
        self.acknowledged: dict[tuple[int, int], bytes] = {}
        self.failed = 0
        self._partitions = partitions
        self._name = name
        self._stop = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 1,
                "batch.num.messages": 50,
                "message.timeout.ms": 20_000,
                "log_level": 0,
            }
        )
        self._thread = threading.Thread(target=self._run, name=f"load {name}", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(30)

    def wait_for(self, count: int, seconds: float = 60.0) -> None:
        """Wait until so many records are acknowledged in all."""
        deadline = time.monotonic() + seconds
        while len(self.acknowledged) < count:
            assert time.monotonic() < deadline, f"{len(self.acknowledged)} of {count} acknowledged"
            time.sleep(0.005)

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            value = f"{self._name}-{number}".encode()
            try:
                self._producer.produce(
                    TOPIC, value, partition=number % self._partitions, on_delivery=self._delivered
                )
                number += 1
            except BufferError:
                self._producer.poll(0.01)
            self._producer.poll(0 if number % 20 else 0.001)
            if len(self._producer) > 500:
                self._producer.poll(0.01)
        self._producer.purge()
        self._producer.poll(0)
        self._producer.close()  # it would go on asking for its brokers as long as the test goes on

    def _delivered(self, error, message) -> None:
        if error is not None:
            self.failed += 1
            return
        self.acknowledged[(message.partition(), message.offset())] = message.value()


def read_all(bootstrap: str, partitions: int, seconds: float = 60.0) -> dict:
    """Returns every record, (partition, offset) -> value, at least up to the ends found at the
    start.

    Records beyond them are no reason to stop before: a producer that was purged may still have a
    request under way. Once the reader did stop, and missed 67 acknowledged records.
    """
    deadline = time.monotonic() + seconds
    ends = _ends(bootstrap, partitions, deadline)
    consumer = _consumer(bootstrap)
    try:
        consumer.assign([TopicPartition(TOPIC, number, 0) for number in range(partitions)])
        found: dict[tuple[int, int], bytes] = {}
        wanted = {(number, offset) for number, end in enumerate(ends) for offset in range(end)}
        while wanted:
            assert time.monotonic() < deadline, f"{len(found)} records read, {len(wanted)} missing"
            for message in consumer.consume(1000, 0.5):
                if message.error() is None:
                    place = (message.partition(), message.offset())
                    found[place] = message.value()
                    wanted.discard(place)
        return found
    finally:
        consumer.close()


def _consumer(bootstrap: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "log_level": 0,
        }
    )


def _ends(bootstrap: str, partitions: int, deadline: float) -> list[int]:
    """The end of each partition. Each attempt has a consumer of its own: librdkafka asks a leader
    that it once believed in for as long as its cache lives, dead or not."""
    while True:
        consumer = _consumer(bootstrap)
        try:
            return [
                consumer.get_watermark_offsets(TopicPartition(TOPIC, number), timeout=3)[1]
                for number in range(partitions)
            ]
        except KafkaException:
            assert time.monotonic() < deadline, "no broker tells the end of the log"
        finally:
            consumer.close()
