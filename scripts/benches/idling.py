"""Measures the CPU and memory that 1,000 idle partitions cost each broker, once all have a
leader."""

import time

from confluent_kafka.admin import AdminClient

from benches import measuring, producing

PARTITIONS = 1000
TOPIC = "idle"
LEADERS_SECONDS = 120
SETTLE_SECONDS = 10
WATCH_SECONDS = 20


def leaders(bootstrap: str) -> dict[int, int]:
    """Returns the leader of each partition that has one."""
    topic = AdminClient({"bootstrap.servers": bootstrap}).list_topics(TOPIC, timeout=30)
    partitions = topic.topics[TOPIC].partitions.values()
    return {each.id: each.leader for each in partitions if each.leader >= 0}


def wait_for_leaders(bootstrap: str) -> float:
    """Returns the seconds until all partitions have a leader."""
    began = time.perf_counter()
    while len(found := leaders(bootstrap)) < PARTITIONS:
        if time.perf_counter() - began > LEADERS_SECONDS:
            raise SystemExit(f"{len(found)} of {PARTITIONS} have leaders, {LEADERS_SECONDS} s on")
        time.sleep(0.2)
    return time.perf_counter() - began


def measure(rounds: int) -> dict:
    """Measure `rounds` new clusters.

    Leadership must stay where it was during the measurement: a cluster that still holds elections
    is not idle, and the measurement says so.
    """
    shares: list[float] = []
    memory: list[float] = []
    elected: list[float] = []
    for _ in range(rounds):
        with measuring.cluster() as cluster:
            producing.make_topic(cluster.bootstrap_servers, PARTITIONS, TOPIC)
            elected.append(wait_for_leaders(cluster.bootstrap_servers))
            time.sleep(SETTLE_SECONDS)
            pids = {node: process.pid for node, process in cluster.processes.items()}
            led = leaders(cluster.bootstrap_servers)
            before = {node: measuring.cpu_seconds(pid) for node, pid in pids.items()}
            time.sleep(WATCH_SECONDS)
            shares += [
                100 * (measuring.cpu_seconds(pid) - before[node]) / WATCH_SECONDS
                for node, pid in pids.items()
            ]
            memory += [measuring.resident_bytes(pid) / 1e6 for pid in pids.values()]
            moved = sum(leaders(cluster.bootstrap_servers)[each] != led[each] for each in led)
            print(f"  leaders after {elected[-1]:.1f} s, {moved} moved while watched")
    what = f"idle: {PARTITIONS} partitions"
    print(f"{what} have leaders after {measuring.shown(elected, ' s')}")
    print(f"{what} cost {measuring.shown(shares, ' %')} of a core per broker")
    print(f"idle: resident memory {measuring.shown(memory, ' MB')} per broker")
    return {
        "leaders_s": measuring.summary(elected),
        "cpu_percent": measuring.summary(shares),
        "resident_mb": measuring.summary(memory),
    }
