"""Killing every broker at once loses no acknowledged record; a build that skips a sync does.

Goal: what an acknowledgement promises survives a power failure of the whole cluster. Method: all
brokers run on the write-back test disk, which keeps in process memory whatever was not synced, so
that `kill -9` loses exactly that. Under load all three are killed, restarted, and everything that
was acknowledged is read back from its offset.
"""

import random
import re

import pytest

from raftlog.base.errors import RaftlogError
from raftlog.runtime.local import cluster as local_cluster
from tests.processes.load import TOPIC, Load, make_topic, read_all

pytestmark = [pytest.mark.processes, pytest.mark.slow]

PARTITIONS = 3
ROUNDS = 10
CONTROL_ROUNDS = 10
ACKS_PER_ROUND = 300


def founded(tmp_path, test_disk: str):
    return local_cluster.found(
        tmp_path / "cluster", brokers=3, environment={"RAFTLOG_TEST_DISK": test_disk}
    )


def one_round(cluster, number: int, acknowledged: dict, random_source) -> None:
    """Load, kill all at once in any order, start all again."""
    with Load(cluster.bootstrap_servers, PARTITIONS, f"round{number}") as load:
        load.wait_for(ACKS_PER_ROUND + random_source.randrange(ACKS_PER_ROUND))
        nodes = [place.node for place in cluster.places]
        random_source.shuffle(nodes)
        for node in nodes:
            cluster.processes[node].kill()
        for node in nodes:
            cluster.processes[node].wait()
    acknowledged.update(load.acknowledged)
    cluster.start_all()


def lost(cluster, acknowledged: dict) -> list:
    """Acknowledged places that hold something else now, or nothing."""
    found = read_all(cluster.bootstrap_servers, PARTITIONS)
    return [place for place, value in acknowledged.items() if found.get(place) != value]


@pytest.mark.timeout(420)
def test_ten_power_failures_lose_nothing(tmp_path):
    source = random.Random(1)
    acknowledged: dict[tuple[int, int], bytes] = {}
    cluster = founded(tmp_path, "writeback")
    try:
        cluster.start_all()
        assert "test-disk" in cluster.log_path(1).read_text(), "the test disk is announced"
        make_topic(cluster.bootstrap_servers, PARTITIONS)
        for number in range(ROUNDS):
            one_round(cluster, number, acknowledged, source)
            assert lost(cluster, acknowledged) == [], f"round {number}"
        assert len(acknowledged) >= ROUNDS * ACKS_PER_ROUND
    finally:
        cluster.stop()


@pytest.mark.timeout(420)
def test_a_build_that_skips_the_sync_of_segments_is_caught(tmp_path):
    """The control: with segment syncs only pretended, the same test must fail: records are gone, or
    the marks show the damage and the cluster refuses to come back."""
    source = random.Random(2)
    acknowledged: dict[tuple[int, int], bytes] = {}
    cluster = founded(tmp_path, "writeback,skip-sync=.log")
    try:
        cluster.start_all()
        make_topic(cluster.bootstrap_servers, PARTITIONS)
        for number in range(CONTROL_ROUNDS):
            try:
                one_round(cluster, number, acknowledged, source)
                missing = lost(cluster, acknowledged)
            except (AssertionError, RaftlogError) as error:
                print(f"round {number}: the cluster does not come back: {error}")
                missing = ["everything"]
            if missing:
                print(f"round {number}: lost {len(missing)} of {len(acknowledged)}")
                return
        pytest.fail(f"{len(acknowledged)} acknowledged records of {TOPIC} survived without syncs")
    finally:
        cluster.stop()


def test_the_test_disk_is_refused_beyond_loopback(tmp_path):
    cluster = local_cluster.found(
        tmp_path / "cluster",
        brokers=1,
        environment={"RAFTLOG_TEST_DISK": "writeback"},
    )
    file = cluster.directory / "broker1.properties"
    text, changed = re.subn(
        r"(?m)^listeners = .*$", "listeners = PLAINTEXT://0.0.0.0:0", file.read_text()
    )
    assert changed == 1
    file.write_text(text)
    try:
        cluster.start(1)
        assert cluster.processes[1].wait(30) == 1
        assert "refused beyond loopback" in cluster.last_lines(1)
    finally:
        cluster.stop()
