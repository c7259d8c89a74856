"""Measures the longest gap between acknowledgements after `kill -9` of a leader, by default
settings."""

import itertools
import time

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from benches import measuring, producing

BEFORE_SECONDS = 2.0
AFTER_SECONDS = 5.0
PACE_SECONDS = 0.002


def leader_of(bootstrap: str) -> int:
    topics = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=10).topics
    return topics[producing.TOPIC].partitions[0].leader


def one_gap(cluster) -> float:
    """Returns the seconds of the longest silence from the kill on."""
    acked: list[float] = []

    def delivered(error, _message) -> None:
        if error is None:
            acked.append(time.perf_counter())

    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "acks": "all",
            "linger.ms": 0,
            "enable.idempotence": True,
            "log_level": 0,
        }
    )
    killed = 0.0
    node = -1
    began = time.perf_counter()
    while (elapsed := time.perf_counter() - began) < BEFORE_SECONDS + AFTER_SECONDS:
        if not killed and elapsed > BEFORE_SECONDS:
            node = leader_of(cluster.bootstrap_servers)
            cluster.kill(node)
            killed = time.perf_counter()
        producer.produce(producing.TOPIC, b"x" * 100, partition=0, on_delivery=delivered)
        producer.poll(PACE_SECONDS)
    if producer.flush(30):
        raise SystemExit("records were left without an acknowledgement")
    cluster.restart(node)
    around = [killed, *[at for at in acked if at > killed]]
    return max(later - earlier for earlier, later in itertools.pairwise(around))


def measure(rounds: int) -> dict:
    with measuring.cluster() as cluster:
        producing.make_topic(cluster.bootstrap_servers)
        gaps = []
        for _ in range(rounds):
            gaps.append(one_gap(cluster))
            print(f"  longest gap {gaps[-1] * 1000:.0f} ms")
            time.sleep(3)
    print(f"failover: longest gap between acknowledgements {measuring.shown(gaps, ' s')}")
    return {"gap_s": measuring.summary(gaps)}
