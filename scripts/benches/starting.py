"""Measures how long a program waits for a cluster of three, from its first line into `with`."""

import json
import os
import subprocess
import sys

from benches import measuring

PROGRAM = """
import json, sys, time
began = time.perf_counter()
import raftlog
cluster = raftlog.Cluster(brokers=3, processes=sys.argv[1] == "processes")
imported = time.perf_counter()
with cluster:
    ready = time.perf_counter()
print(json.dumps([imported - began, ready - imported]))
"""


def one_start(how: str) -> tuple[float, float]:
    """Returns the seconds of importing and of starting.

    Compiled modules are kept, as an installed wheel's are. Only the first start of a checkout
    compiles them.
    """
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, how],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    imported, started = json.loads(done.stdout)
    return imported, started


def measure(rounds: int) -> dict:
    """Measure starts in process and as processes, in turn."""
    found: dict = {}
    one_start("in process")
    for _ in range(rounds):
        for how in ("in process", "processes"):
            imported, started = one_start(how)
            took = found.setdefault(how, {"import_s": [], "start_s": [], "both_s": []})
            took["import_s"].append(imported)
            took["start_s"].append(started)
            took["both_s"].append(imported + started)
    for how, took in found.items():
        for name, seconds in took.items():
            print(f"start, {how}: {name} {measuring.shown(seconds, ' s')}")
    return {how: {k: measuring.summary(v) for k, v in took.items()} for how, took in found.items()}
