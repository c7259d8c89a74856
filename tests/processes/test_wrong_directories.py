"""Brokers under a foreign identity: a directory of another broker or cluster, a number that is
taken.

Each is told so by name; the others go on and lose nothing.
"""

import subprocess
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from raftlog.client.blocking import BlockingClient
from raftlog.client.core.asks import EARLIEST
from raftlog.runtime.local import cluster as local_cluster
from raftlog.runtime.local.cluster import LocalCluster
from raftlog.runtime.local.ports import free_ports

pytestmark = [pytest.mark.processes, pytest.mark.slow]

SECONDS = 60
TOPIC = "beside-strangers"


@pytest.fixture(scope="module", autouse=True)
def topic(cluster):
    with BlockingClient(cluster.bootstrap_servers) as client:
        client.create_topic(TOPIC, partitions=3, replication_factor=3)


def settings_of(cluster: LocalCluster, node: int, **changes: str) -> dict[str, str]:
    """The configuration of a broker of the cluster, on ports of its own, with changes."""
    text = (cluster.directory / f"broker{node}.properties").read_text()
    found = dict(line.split(" = ", 1) for line in text.splitlines())
    client, peer = free_ports(2)
    found["listeners"] = f"PLAINTEXT://127.0.0.1:{client}"
    found["raftlog.peer.listener"] = f"127.0.0.1:{peer}"
    del found["raftlog.admin.listener"]
    return found | {key.replace("_", "."): value for key, value in changes.items()}


def serve(settings: dict[str, str], folder: Path) -> subprocess.Popen[str]:
    config = folder / "stranger.properties"
    config.write_text("".join(f"{key} = {value}\n" for key, value in settings.items()))
    command = [sys.executable, "-m", "raftlog", "serve", "--config", str(config)]
    output = (folder / "stranger.log").open("w")
    with output:
        return subprocess.Popen(command, stdout=output, stderr=output, text=True)


def wait_for(folder: Path, words: str) -> str:
    """Returns the stranger's output, once these words are in it."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        said = (folder / "stranger.log").read_text()
        if words in said:
            return said
        time.sleep(0.1)
    raise AssertionError(f"{words!r} was not said: {said[-2000:]}")


def produced(cluster: LocalCluster, count: int) -> None:
    """Records are acknowledged, and all are there."""
    with BlockingClient(cluster.bootstrap_servers) as client:
        before = sum(client.offsets(TOPIC, -1).values())
        for number in range(count):
            client.produce(TOPIC, str(number).encode(), key=str(number).encode())
        assert sum(client.offsets(TOPIC, -1).values()) == before + count
        assert set(client.offsets(TOPIC, EARLIEST).values()) == {0}


def test_a_directory_of_another_broker(cluster, tmp_path):
    foreign = str(cluster.directory / "broker2")
    stranger = serve(settings_of(cluster, 1, log_dirs=foreign), tmp_path)
    assert stranger.wait(SECONDS) == 1
    said = (tmp_path / "stranger.log").read_text()
    assert "Traceback" not in said
    assert "in use by another process" in said or "belongs to node 2, not 1" in said
    produced(cluster, 10)


def test_a_directory_of_another_cluster(cluster, tmp_path):
    """Formatted elsewhere, with our secret and our controllers: no broker here links with it."""
    other = local_cluster.found(tmp_path / "other", brokers=1)
    wrong = settings_of(cluster, 2, log_dirs=str(other.directory / "broker1"))
    stranger = serve(wrong, tmp_path)
    assert stranger.wait(SECONDS) == 1
    assert "belongs to node 1, not 2" in (tmp_path / "stranger.log").read_text()
    stranger = serve(wrong | {"node.id": "1"}, tmp_path)
    try:
        said = wait_for(tmp_path, "belongs to cluster")
        assert "point it at its own cluster" in said
        produced(cluster, 10)
    finally:
        stranger.terminate()
        stranger.wait(SECONDS)


def test_a_number_that_is_taken(cluster, tmp_path):
    """A second broker of a number, on an empty disk, that knows the secret. It is refused for as
    long as the first one lives, and what it does to the links of the first one stops no broker.
    Not the number of the active controller: a broker that takes that has none to ask, and only
    waits."""
    found = AdminClient({"bootstrap.servers": cluster.bootstrap_servers}).list_topics(timeout=10)
    number = 1 if found.controller_id != 1 else 2
    stranger = serve(settings_of(cluster, number, log_dirs=str(tmp_path / "empty")), tmp_path)
    try:
        wait_for(tmp_path, f"node id {number} is alive on data directory")
        for _ in range(5):
            produced(cluster, 20)
        assert stranger.poll() is None
        assert [each.poll() for each in cluster.processes.values()] == [None] * 3
    finally:
        stranger.terminate()
        stranger.wait(SECONDS)
    produced(cluster, 10)
