"""Clusters of 1,000 and 3,000 partitions: creation, rest, failover, start and graceful stop."""

import time
from collections.abc import Callable

from confluent_kafka.admin import AdminClient

from benches import measuring, producing

PARTITIONS = (1000, 3000)
TOPIC = "scale"
LEADERS_SECONDS = 300
SETTLE_SECONDS = 5
WATCH_SECONDS = 10
LOOK_SECONDS = 0.05
GOALS = {"failover_s": 3.0, "start_s": 5.0, "stop_one_s": 5.0, "stop_all_s": 5.0}
"""The goals for 1,000 partitions, of which the broker in question leads a third."""


def leaders(bootstrap: str) -> list[int]:
    """Returns the leaders of the partitions that have one."""
    topic = AdminClient({"bootstrap.servers": bootstrap}).list_topics(TOPIC, timeout=30)
    return [each.leader for each in topic.topics[TOPIC].partitions.values() if each.leader >= 0]


def seconds_until(holds: Callable[[], bool], what: str) -> float:
    began = time.perf_counter()
    while not holds():
        if time.perf_counter() - began > LEADERS_SECONDS:
            raise SystemExit(f"no {what} within {LEADERS_SECONDS} s")
        time.sleep(LOOK_SECONDS)
    return time.perf_counter() - began


def took(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def one_round(partitions: int, found: dict[str, list[float]]) -> None:
    """Measure one cluster from its creation to its stop."""

    def add(name: str, *values: float) -> None:
        found.setdefault(name, []).extend(values)
        print(f"  {partitions} partitions: {name} {', '.join(f'{each:.2f}' for each in values)}")

    with measuring.cluster() as cluster:
        servers = cluster.bootstrap_servers

        def create() -> None:
            producing.make_topic(servers, partitions, TOPIC)
            seconds_until(lambda: len(leaders(servers)) == partitions, "leaders of all")

        add("creation_s", took(create))
        time.sleep(SETTLE_SECONDS)
        pids = [process.pid for process in cluster.processes.values()]
        before = [measuring.cpu_seconds(pid) for pid in pids]
        time.sleep(WATCH_SECONDS)
        used = [measuring.cpu_seconds(pid) for pid in pids]
        shares = [100 * (b - a) / WATCH_SECONDS for a, b in zip(before, used, strict=True)]
        add("cpu_percent", *shares)
        add("memory_mb", *[measuring.resident_bytes(pid) / 1e6 for pid in pids])

        led = leaders(servers).count(1)
        cluster.kill(1)
        others = ",".join(servers.split(",")[1:])
        add(
            "failover_s",
            seconds_until(
                lambda: len([each for each in leaders(others) if each != 1]) == partitions,
                f"new leaders of {led} partitions",
            ),
        )
        add("start_s", took(lambda: cluster.restart(1)))
        add("start_cpu_s", measuring.cpu_seconds(cluster.processes[1].pid))
        time.sleep(SETTLE_SECONDS)
        add("stop_one_s", took(lambda: cluster.terminate(2)))
        cluster.restart(2)
        time.sleep(SETTLE_SECONDS)
        add("stop_all_s", took(cluster.stop))


def measure(rounds: int) -> dict:
    figures: dict[str, dict] = {}
    for partitions in PARTITIONS:
        found: dict[str, list[float]] = {}
        for _ in range(rounds):
            one_round(partitions, found)
        for name, values in found.items():
            goal = GOALS.get(name) if partitions == PARTITIONS[0] else None
            met = "" if goal is None else ", met" if max(values) <= goal else f", MISSED {goal} s"
            print(f"scale: {partitions} partitions: {name} {measuring.shown(values)}{met}")
        figures[str(partitions)] = {k: measuring.summary(v) for k, v in found.items()}
    return figures
