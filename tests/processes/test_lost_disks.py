"""Disks are wiped, lost in part, or restored from an old copy, under real broker processes.

No broker votes or acknowledges under an identity for which it cannot answer. It comes back under a
new replica id by a committed change of membership, catches up, and nothing is lost.
"""

import json
import shutil
import time
from http.client import HTTPConnection

import pytest

from raftlog.runtime.local import cluster as local_cluster
from raftlog.runtime.local import ports as local_ports
from raftlog.runtime.real_ports import PosixDisk
from raftlog.storage.inspect import inspect_directory
from tests.processes.load import Load, make_topic, read_all

pytestmark = [pytest.mark.processes, pytest.mark.slow]

PARTITIONS = 2
RECORDS = 200
SECONDS = 60
VICTIM = 3


@pytest.fixture
def running(tmp_path):
    """A cluster of its own for each test, with some acknowledged records."""
    cluster = local_cluster.found(tmp_path / "cluster", brokers=3)
    try:
        cluster.start_all()
        make_topic(cluster.bootstrap_servers, PARTITIONS)
        with Load(cluster.bootstrap_servers, PARTITIONS, "before") as load:
            load.wait_for(RECORDS)
        yield cluster, load.acknowledged
    finally:
        cluster.stop()


def status(cluster, node: int) -> dict:
    connection = HTTPConnection("127.0.0.1", cluster.place(node).admin_port, timeout=5)
    try:
        connection.request("GET", "/status")
        return json.loads(connection.getresponse().read())
    finally:
        connection.close()


def wait_in_sync(cluster) -> None:
    """Wait until the leaders of all groups count three replicas in sync."""
    deadline = time.monotonic() + SECONDS
    while True:
        led = [
            group
            for node in (1, 2, 3)
            for group in status(cluster, node)["groups"]
            if group.get("ready") and group["group"] != 0
        ]
        if len(led) == PARTITIONS and all(len(group["in_sync"]) == 3 for group in led):
            return
        assert time.monotonic() < deadline, led
        time.sleep(0.1)


def replicas_on_disk(cluster, node: int) -> dict[int, str]:
    """Replica ids by group, as a broker's directory has them registered."""
    found = inspect_directory(PosixDisk(str(cluster.data_path(node))), verify=False)
    return {row["group"]: row["replica"] for row in found["groups"]}


def nothing_lost(cluster, acknowledged: dict) -> None:
    found = read_all(cluster.bootstrap_servers, PARTITIONS)
    assert [place for place, value in acknowledged.items() if found.get(place) != value] == []


def test_a_wiped_broker_comes_back_under_a_new_identity(running):
    cluster, acknowledged = running
    before = replicas_on_disk(cluster, VICTIM)
    cluster.kill(VICTIM)
    shutil.rmtree(cluster.data_path(VICTIM))
    cluster.restart(VICTIM)
    wait_in_sync(cluster)
    after = replicas_on_disk(cluster, VICTIM)
    assert set(after.values()).isdisjoint(before.values()), "a new id for every replica"
    with Load(cluster.bootstrap_servers, PARTITIONS, "after") as load:
        load.wait_for(RECORDS)
    acknowledged |= load.acknowledged
    cluster.kill(1)
    nothing_lost(cluster, acknowledged)


def test_a_lost_partition_directory_is_a_new_replica(running):
    cluster, acknowledged = running
    before = replicas_on_disk(cluster, VICTIM)
    cluster.kill(VICTIM)
    found = inspect_directory(PosixDisk(str(cluster.data_path(VICTIM))), verify=False)
    lost = next(row for row in found["groups"] if row["group"] != 0)
    shutil.rmtree(cluster.data_path(VICTIM) / lost["path"])
    cluster.restart(VICTIM)
    wait_in_sync(cluster)
    after = replicas_on_disk(cluster, VICTIM)
    assert after[lost["group"]] != before[lost["group"]]
    kept = [group for group in before if group != lost["group"]]
    assert [after[group] for group in kept] == [before[group] for group in kept]
    nothing_lost(cluster, acknowledged)


def test_an_old_copy_of_a_disk_is_noticed(running, tmp_path):
    cluster, acknowledged = running
    cluster.terminate(VICTIM)
    shutil.copytree(cluster.data_path(VICTIM), tmp_path / "copy")
    for _ in range(2):
        cluster.restart(VICTIM)
        with Load(cluster.bootstrap_servers, PARTITIONS, "meanwhile") as load:
            load.wait_for(RECORDS)
        acknowledged |= load.acknowledged
        cluster.terminate(VICTIM)
    shutil.rmtree(cluster.data_path(VICTIM))
    shutil.copytree(tmp_path / "copy", cluster.data_path(VICTIM))
    cluster.start(VICTIM)
    deadline = time.monotonic() + SECONDS
    while "directory-refused" not in cluster.last_lines(VICTIM):
        assert time.monotonic() < deadline, cluster.last_lines(VICTIM)
        time.sleep(0.1)
    nothing_lost(cluster, acknowledged)


def test_an_old_copy_that_was_started_twice_alone_is_no_majority_with_who_was_away(
    running, tmp_path
):
    """Its boot number is above the one that the other knows: only the life that it has not had
    tells."""
    cluster, acknowledged = running
    wait_in_sync(cluster)
    cluster.terminate(VICTIM)
    shutil.copytree(cluster.data_path(VICTIM), tmp_path / "copy")
    cluster.restart(VICTIM)
    wait_in_sync(cluster)
    cluster.kill(2)
    with Load(cluster.bootstrap_servers, PARTITIONS, "meanwhile") as load:
        load.wait_for(RECORDS)
    acknowledged |= load.acknowledged
    cluster.kill(1)
    cluster.kill(VICTIM)
    shutil.rmtree(cluster.data_path(VICTIM))
    shutil.copytree(tmp_path / "copy", cluster.data_path(VICTIM))
    for _ in range(2):
        cluster.start(VICTIM)
        time.sleep(3)
        cluster.kill(VICTIM)
    cluster.start(VICTIM)
    cluster.start(2)
    deadline = time.monotonic() + SECONDS
    while "directory-refused" not in cluster.last_lines(VICTIM):
        assert time.monotonic() < deadline, cluster.last_lines(VICTIM)
        time.sleep(0.1)
    time.sleep(3)
    assert [group for group in status(cluster, 2)["groups"] if group.get("ready")] == []
    cluster.start(1)
    nothing_lost(cluster, acknowledged)


def test_two_brokers_with_one_id_are_told(running):
    """A second broker with another's node id and an empty directory gets no place in the
    cluster."""
    cluster, acknowledged = running
    place = cluster.place(VICTIM)
    ports = local_ports.free_ports(3)
    impostor = local_cluster.BrokerPlace(
        node=VICTIM, client_port=ports[0], peer_port=ports[1], admin_port=ports[2]
    )
    text = (cluster.directory / f"broker{VICTIM}.properties").read_text()
    for old, new in (
        (place.client_port, impostor.client_port),
        (place.admin_port, impostor.admin_port),
        (f"{cluster.data_path(VICTIM)}\n", f"{cluster.directory / 'impostor'}\n"),
    ):
        text = text.replace(str(old), str(new))
    text = text.replace(
        f"raftlog.peer.listener = 127.0.0.1:{place.peer_port}",
        f"raftlog.peer.listener = 127.0.0.1:{impostor.peer_port}",
    )
    folder = cluster.directory / "second"
    folder.mkdir()
    (folder / f"broker{VICTIM}.properties").write_text(text)
    second = local_cluster.LocalCluster(folder, (impostor,), {})
    second.start(VICTIM)
    try:
        time.sleep(3)
        wait_in_sync(cluster)
        with Load(cluster.bootstrap_servers, PARTITIONS, "beside") as load:
            load.wait_for(RECORDS)
        nothing_lost(cluster, acknowledged | load.acknowledged)
    finally:
        second.stop()
