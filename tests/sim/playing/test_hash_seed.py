"""The same seed gives the same run in two processes with different hash seeds."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]

RUN = """
import hashlib
from tests.broker.cluster import Cluster
cluster = Cluster(4, 3, seed=9, encode=True).ready()
cluster.create("orders", 3, 3)
cluster.create("clicks", 2, 2)
for number in range(8):
    cluster.put("orders", [f"v{number}"], number=number % 3)
cluster.kill(cluster.leader("orders").number)
cluster.put("orders", ["after"])
digest = hashlib.sha256()
for event in cluster.tracer.events:
    digest.update(repr(event).encode())
print(digest.hexdigest(), cluster.world.now, cluster.world.steps)
"""


SEEDS = range(301, 313)
SWARM = f"""
from raftlog_sim.playing.seeds import drawn
for seed in range({SEEDS.start}, {SEEDS.stop}):
    outcome = drawn(seed, "swarm").play()
    print(seed, outcome.trace_hash, outcome.events, outcome.failure)
"""


def run(hash_seed: str, program: str = RUN) -> str:
    environment = dict(os.environ, PYTHONHASHSEED=hash_seed)
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "sim")])
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=True
    )
    return found.stdout.strip()


def test_two_hash_seeds_give_one_trace():
    first = run("1")
    assert len(first.split()[0]) == 64
    assert run("2") == first


@pytest.mark.slow
def test_swarm_seeds_have_one_trace_under_two_hash_seeds():
    """A sample of whole runs, faults, real runtime and all."""
    one, other = (run(hash_seed, SWARM).splitlines() for hash_seed in ("1", "2"))
    assert len(one) == len(SEEDS) >= 10
    differ = [
        f"raftlog sim run --seed {seed} --double-check"
        for seed, left, right in zip(SEEDS, one, other, strict=True)
        if left != right
    ]
    assert differ == []
