"""What 1,000 idle partitions cost each broker: CPU and memory."""

import time

from benches import measuring, producing

PARTITIONS = 1000
SETTLE_SECONDS = 15
WATCH_SECONDS = 20


def measure() -> dict:
    with measuring.cluster() as cluster:
        producing.make_topic(cluster.bootstrap_servers, PARTITIONS, "idle")
        time.sleep(SETTLE_SECONDS)
        pids = {node: process.pid for node, process in cluster.processes.items()}
        before = {node: measuring.cpu_seconds(pid) for node, pid in pids.items()}
        time.sleep(WATCH_SECONDS)
        shares = [
            100 * (measuring.cpu_seconds(pid) - before[node]) / WATCH_SECONDS
            for node, pid in pids.items()
        ]
        memory = [measuring.resident_bytes(pid) / 1e6 for pid in pids.values()]
    print(
        f"idle: {PARTITIONS} partitions cost {measuring.shown(shares, ' %')} of a core per broker"
    )
    print(f"idle: resident memory {measuring.shown(memory, ' MB')} per broker")
    return {"cpu_percent": measuring.summary(shares), "resident_mb": measuring.summary(memory)}
