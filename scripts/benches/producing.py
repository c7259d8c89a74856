"""Measures confluent-kafka's producer against us and against librdkafka's in-process mock
cluster."""

import os
import time

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from benches import measuring

TOPIC = "bench"
MEGABYTE = 1e6


def make_topic(bootstrap: str, partitions: int = 1, name: str = TOPIC) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    created = admin.create_topics([NewTopic(name, partitions, 3)])
    created[name].result(60)


def producer_settings(batch_bytes: int) -> dict[str, object]:
    return {
        "acks": "all",
        "linger.ms": 5,
        "batch.size": batch_bytes,
        "batch.num.messages": 1_000_000,
        "queue.buffering.max.messages": 2_000_000,
        "queue.buffering.max.kbytes": 1_000_000,
        "log_level": 3,
    }


def produce_rate(settings: dict[str, object], record_bytes: int, total_bytes: int) -> float:
    """Returns MB/s of values, from the first send to the last acknowledgement; every one is
    checked."""
    failed: list[object] = []

    def delivered(error: object, _message: object) -> None:
        if error is not None:
            failed.append(error)

    producer = Producer(settings)
    value = os.urandom(record_bytes)
    warm_up(producer, value)
    count = total_bytes // record_bytes
    began = time.perf_counter()
    for ordinal in range(count):
        while True:
            try:
                producer.produce(TOPIC, value, partition=0, on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.01)
        if ordinal % 1000 == 0:
            producer.poll(0)
    left = producer.flush(120)
    seconds = time.perf_counter() - began
    if left or failed:
        raise SystemExit(f"{left} records left, {len(failed)} failed: {failed[:1]}")
    return count * record_bytes / MEGABYTE / seconds


def warm_up(producer: Producer, value: bytes) -> None:
    producer.produce(TOPIC, value, partition=0)
    if producer.flush(30):
        raise SystemExit("the cluster does not answer")


def compare(name: str, rounds: int, record_bytes: int, batch_bytes: int, total: int) -> dict:
    """Measure ours and the mock, interleaved; returns the ratio of each round.

    For batches other than 1 MB the mock's rate with 1 MB batches is measured too, since the goal
    speaks of it.
    """
    ours: list[float] = []
    mock: list[float] = []
    mock_large: list[float] = []
    settings = producer_settings(batch_bytes)
    with measuring.cluster() as cluster:
        make_topic(cluster.bootstrap_servers)
        real = {**settings, "bootstrap.servers": cluster.bootstrap_servers}
        for _ in range(rounds):
            measuring.wait_for_good_disk(cluster.directory, name)
            mock.append(produce_rate({**settings, "test.mock.num.brokers": 3}, record_bytes, total))
            large = {**producer_settings(1_000_000), "test.mock.num.brokers": 3}
            mock_large.append(
                mock[-1] if batch_bytes >= 1_000_000 else produce_rate(large, 1024, total)
            )
            ours.append(produce_rate(real, record_bytes, total))
            print(f"  ours {ours[-1]:.0f} MB/s, mock {mock[-1]:.0f} MB/s")
    ratios = [mine / theirs for mine, theirs in zip(ours, mock, strict=True)]
    per_gigabyte = [mine / (theirs / 1000) for mine, theirs in zip(ours, mock_large, strict=True)]
    print(f"{name}: ours {measuring.shown(ours, ' MB/s')}, mock {measuring.shown(mock, ' MB/s')}")
    print(f"{name}: ratio {measuring.shown(ratios, 'x')}")
    print(f"{name}: {measuring.shown(per_gigabyte)} MB/s for each GB/s of the mock (1 MB batches)")
    return {
        "ours_mb_s": measuring.summary(ours),
        "mock_mb_s": measuring.summary(mock),
        "ratio": measuring.summary(ratios),
        "mb_s_per_mock_gb_s": measuring.summary(per_gigabyte),
    }
