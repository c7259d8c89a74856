"""Measures how long CreateTopics takes, with its wait until every broker names the leaders."""

import time

from confluent_kafka.admin import AdminClient, NewTopic

from benches import measuring

REPLICAS = 3
PARTITIONS = (1, 6)
TOPICS_A_ROUND = 10
PAUSE_SECONDS = 0.2
GOAL_MS = 150
"""The bound for the median of one partition, in milliseconds."""


def creation_ms(admin: AdminClient, name: str, partitions: int) -> float:
    """Returns the milliseconds until the client has the answer."""
    began = time.perf_counter()
    created = admin.create_topics([NewTopic(name, partitions, REPLICAS)])
    created[name].result(30)
    return (time.perf_counter() - began) * 1000


def measure(rounds: int) -> dict:
    figures = {}
    with measuring.cluster() as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
        admin.list_topics(timeout=10)
        for partitions in PARTITIONS:
            took = []
            for number in range(rounds * TOPICS_A_ROUND):
                took.append(creation_ms(admin, f"bench-{partitions}-{number}", partitions))
                time.sleep(PAUSE_SECONDS)
            figures[f"ms_of_{partitions}_partitions"] = measuring.summary(took)
            print(f"create: {partitions} x {REPLICAS} replicas {measuring.shown(took, ' ms')}")
    median = figures[f"ms_of_{PARTITIONS[0]}_partitions"]["median"]
    print(f"create: goal of one partition: {GOAL_MS} ms, {'met' if median < GOAL_MS else 'MISSED'}")
    return figures
