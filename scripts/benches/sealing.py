"""Measures the cost of sealed links: throughput and the p50 of a lone record, beside plain links.

Two clusters of three brokers run at one time, and each round measures both. Brokers of the plain
one speak what the last release speaks, which cannot seal. This release has no setting for that.
"""

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benches import latency, measuring, producing
from raftlog.runtime.local import cluster as local_cluster
from raftlog.runtime.local.cluster import LocalCluster

RECORD_BYTES = 1024
TOTAL_BYTES = 100_000_000
_LAST_RELEASE = """
from raftlog.broker import peer_codec
for version in [each for each in peer_codec.PROTOCOLS if each >= peer_codec.SEALED_FROM]:
    del peer_codec.PROTOCOLS[version]
"""


@contextmanager
def plain_cluster() -> Iterator[LocalCluster]:
    """Start three brokers that speak the protocols of the last release."""
    with tempfile.TemporaryDirectory(prefix="raftlog-bench-") as name:
        directory = Path(name)
        (directory / "sitecustomize.py").write_text(_LAST_RELEASE)
        running = local_cluster.found(
            directory / "cluster",
            brokers=3,
            port=0,
            settings={"raftlog.peer.seal": "allowed"},
            environment={"PYTHONPATH": str(directory)},
        )
        try:
            running.start_all()
            yield running
        finally:
            running.stop()


def compare(rounds: int) -> dict:
    """Returns rates and latencies of both clusters, and the ratio of each round."""
    rates: dict[str, list[float]] = {"plain": [], "sealed": []}
    lone: dict[str, list[float]] = {"plain": [], "sealed": []}
    cpu: dict[str, list[float]] = {"plain": [], "sealed": []}
    settings = producing.producer_settings(1_000_000)
    with ExitStack() as stack:
        clusters = {
            "plain": stack.enter_context(plain_cluster()),
            "sealed": stack.enter_context(measuring.cluster()),
        }
        clients = {}
        for name, cluster in clusters.items():
            producing.make_topic(cluster.bootstrap_servers)
            clients[name] = latency.steady_client(cluster.bootstrap_servers)
        for number in range(rounds):
            order = list(clusters) if number % 2 else list(reversed(clusters))
            for name in order:
                cluster = clusters[name]
                measuring.wait_for_good_disk(cluster.directory, name)
                real = {**settings, "bootstrap.servers": cluster.bootstrap_servers}
                began = _cpu_seconds(cluster)
                rates[name].append(producing.produce_rate(real, RECORD_BYTES, TOTAL_BYTES))
                cpu[name].append((_cpu_seconds(cluster) - began) * 1e9 / TOTAL_BYTES)
                times = latency.raw_latencies(clients[name])
                lone[name].append(times[len(times) // 2] * 1e6)
            print(
                f"  plain {rates['plain'][-1]:.0f} MB/s, {lone['plain'][-1]:.0f} us, "
                f"{cpu['plain'][-1]:.1f} s of CPU a GB; sealed {rates['sealed'][-1]:.0f} MB/s, "
                f"{lone['sealed'][-1]:.0f} us, {cpu['sealed'][-1]:.1f} s",
                flush=True,
            )
        for client in clients.values():
            client.close()
    slower = [s / p for s, p in zip(rates["sealed"], rates["plain"], strict=True)]
    later = [s / p for s, p in zip(lone["sealed"], lone["plain"], strict=True)]
    more = [s / p for s, p in zip(cpu["sealed"], cpu["plain"], strict=True)]
    print(f"seal: CPU of all brokers {measuring.shown(more, 'x')} of plain links")
    print(f"seal: throughput {measuring.shown(slower, 'x')} of plain links")
    print(f"seal: p50 of a lone record {measuring.shown(later, 'x')} of plain links")
    return {
        "plain_mb_s": measuring.summary(rates["plain"]),
        "sealed_mb_s": measuring.summary(rates["sealed"]),
        "plain_p50_us": measuring.summary(lone["plain"]),
        "sealed_p50_us": measuring.summary(lone["sealed"]),
        "cpu_ratio": measuring.summary(more),
        "throughput_ratio": measuring.summary(slower),
        "p50_ratio": measuring.summary(later),
    }


def _cpu_seconds(cluster: LocalCluster) -> float:
    """Returns the CPU seconds of all brokers so far."""
    return sum(measuring.cpu_seconds(each.pid) for each in cluster.processes.values())
