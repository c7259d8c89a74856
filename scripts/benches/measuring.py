"""Medians, spreads, the disk probe, and a cluster to measure."""

import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from raftlog.runtime.local import cluster as local_cluster
from raftlog.runtime.local.cluster import LocalCluster

SLOW_SYNC_SECONDS = 0.001
SLOW_WAITS = 30
SLOW_WAIT_SECONDS = 10
PROBE_SYNCS = 300
BLOCK = b"\xa5" * 4096


def sync_probe(directory: Path) -> float:
    """Returns the median seconds of one 4 KiB append and fdatasync to a growing file."""
    path = directory / "probe"
    times = []
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        for _ in range(PROBE_SYNCS):
            began = time.perf_counter()
            os.write(fd, BLOCK)
            os.fdatasync(fd)
            times.append(time.perf_counter() - began)
    finally:
        os.close(fd)
        path.unlink()
    return statistics.median(times)


def wait_for_good_disk(directory: Path, what: str) -> None:
    """Print the probe, and wait while the disk is in its slow mode: such a round would say
    nothing."""
    for _ in range(SLOW_WAITS):
        seconds = sync_probe(directory)
        if seconds < SLOW_SYNC_SECONDS:
            print(f"  probe: fdatasync {seconds * 1e6:.0f} us [{what}]")
            return
        print(f"  probe: fdatasync {seconds * 1e6:.0f} us: the disk is slow, waiting", flush=True)
        time.sleep(SLOW_WAIT_SECONDS)
    raise SystemExit("the disk stayed slow: set TMPDIR to another one, or come back later")


def summary(values: list[float]) -> dict[str, float]:
    """Returns median, lowest and highest value, and their number."""
    return {
        "median": statistics.median(values),
        "low": min(values),
        "high": max(values),
        "rounds": len(values),
    }


def shown(values: list[float], unit: str = "") -> str:
    found = summary(values)
    return f"{found['median']:.3g}{unit} ({found['low']:.3g} to {found['high']:.3g})"


@contextmanager
def cluster(settings: dict[str, str] | None = None, brokers: int = 3) -> Iterator[LocalCluster]:
    """A running cluster in a temporary directory beside this tree's, so on the disk in question."""
    directory = Path(tempfile.mkdtemp(prefix="raftlog-bench-"))
    running = local_cluster.found(directory, brokers=brokers, port=0, settings=settings)
    try:
        running.start_all()
        yield running
    finally:
        running.stop()
        shutil.rmtree(directory, ignore_errors=True)


def cpu_seconds(pid: int) -> float:
    """Returns user and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_bytes(pid: int) -> int:
    fields = Path(f"/proc/{pid}/statm").read_text().split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")


def hardware() -> dict[str, object]:
    """Returns the hardware on which the numbers were measured."""
    model = "?"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
    return {"cpu": model, "cores": os.cpu_count(), "python": sys.version}


def save(results: dict[str, object], path: Path) -> None:
    path.write_text(json.dumps({"version": 1, "hardware": hardware(), **results}, indent=1) + "\n")
