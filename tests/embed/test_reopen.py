"""A cluster on a directory that an earlier one left behind, and one that was killed as a whole.

The story: an embedded cluster of three became ready on a directory once and never again, for its
brokers took new ports, and each dialled the others only where they had been registered. `restart`
of the first broker after all were killed raised, and the broker ran.
"""

import socket
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from raftlog.base.errors import LocalMisuse, OperatingError
from raftlog.client.blocking import BlockingClient
from raftlog.embed.cluster import Cluster
from raftlog.embed.replicated_log import ReplicatedLog
from raftlog.runtime.local import cluster as local_cluster
from raftlog.runtime.local.ports import HOST

pytestmark = pytest.mark.processes

IN_PROCESS_AND_AS_PROCESSES = pytest.mark.parametrize("processes", [False, True])


def taken(ports: list[int], stack: ExitStack) -> None:
    """Listen on all of these."""
    for port in ports:
        listening = stack.enter_context(socket.socket())
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((HOST, port))
        listening.listen()


def ports_of(cluster: Cluster, nodes=(1, 2, 3)) -> list[int]:
    return [port for node in nodes for port in cluster._running.place(node).ports]


@IN_PROCESS_AND_AS_PROCESSES
def test_a_directory_opens_any_number_of_times_at_the_same_ports(processes, tmp_path: Path):
    servers = set()
    for turn in range(3):
        with (
            Cluster(brokers=3, directory=tmp_path, processes=processes) as cluster,
            BlockingClient(cluster.bootstrap_servers) as client,
        ):
            if turn == 0:
                client.create_topic("t", partitions=1, replication_factor=3)
            assert client.produce("t", b"x").offset == turn
            servers.add(cluster.bootstrap_servers)
    assert len(servers) == 1


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets two sockets share a port")
@IN_PROCESS_AND_AS_PROCESSES
def test_no_other_cluster_is_given_the_ports_of_a_dead_broker(processes):
    """A producer had found the cluster of another test at the port of its dead broker."""
    with Cluster(brokers=3, processes=processes) as cluster:
        cluster.kill(2)
        for port in ports_of(cluster, [2]):
            with socket.socket() as other, pytest.raises(OSError, match="in use"):
                other.bind((HOST, port))
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection((HOST, port))
        cluster.restart(2)
        ports = ports_of(cluster)
    with ExitStack() as stack:
        taken(ports, stack)


@IN_PROCESS_AND_AS_PROCESSES
@pytest.mark.parametrize("moved", [(1, 2, 3), (2,)], ids=["all", "one"])
def test_brokers_whose_ports_were_taken_move(moved, processes, tmp_path: Path):
    with (
        Cluster(brokers=3, directory=tmp_path, processes=processes) as cluster,
        BlockingClient(cluster.bootstrap_servers) as client,
    ):
        client.create_topic("t", partitions=1, replication_factor=3)
        client.produce("t", b"before")
        stayed = ports_of(cluster, [node for node in (1, 2, 3) if node not in moved])
        left = ports_of(cluster, moved)
    with ExitStack() as stack:
        taken(left, stack)
        with (
            Cluster(brokers=3, directory=tmp_path, processes=processes) as cluster,
            BlockingClient(cluster.bootstrap_servers) as client,
        ):
            assert set(stayed) <= set(ports_of(cluster))
            assert not set(left) & set(ports_of(cluster))
            assert client.produce("t", b"after").offset == 1
            cluster.wait_until_healthy()


def test_a_replicated_log_of_three_opens_again(tmp_path: Path):
    for turn in range(3):
        with ReplicatedLog(replicas=3, directory=tmp_path) as log:
            assert log.append(b"%d" % turn) == turn
            assert [each.data for each in log.read()] == [b"%d" % each for each in range(turn + 1)]


def test_a_directory_keeps_its_brokers_and_controllers(tmp_path: Path):
    with Cluster(brokers=3, directory=tmp_path):
        pass
    with pytest.raises(LocalMisuse, match="1 broker of a cluster that has 3"):
        Cluster(brokers=1, directory=tmp_path).start()
    with pytest.raises(LocalMisuse, match="founded with 3"):
        Cluster(brokers=3, controllers=1, directory=tmp_path).start()
    again = local_cluster.found(tmp_path, brokers=4)
    assert again.founded_controllers == 3
    assert (tmp_path / "broker4.properties").read_text().count(f"@{HOST}:") == 4


@IN_PROCESS_AND_AS_PROCESSES
def test_a_directory_belongs_to_one_running_cluster(processes, tmp_path: Path):
    """A second one wrote its ports into the configuration of the first, whose brokers then came
    back elsewhere, before it failed at the lock of a data directory."""
    with Cluster(brokers=1, directory=tmp_path, processes=processes) as cluster:
        written = (tmp_path / "broker1.properties").read_text()
        with pytest.raises(OperatingError, match="brokers 1 are running already"):
            Cluster(brokers=1, directory=tmp_path).start()
        assert (tmp_path / "broker1.properties").read_text() == written
        cluster.restart(1)


def test_one_that_joins_is_no_controller(tmp_path: Path):
    """A cluster that one broker founded has one controller, however many join it later. Its files
    name them all: any of them may have become one."""
    local_cluster.found(tmp_path, brokers=1)
    again = local_cluster.found(tmp_path, brokers=3)
    assert (tmp_path / "broker1.properties").read_text().count(f"@{HOST}:") == 3
    assert again.founded_controllers == 1


@IN_PROCESS_AND_AS_PROCESSES
def test_a_cluster_that_was_killed_as_a_whole_comes_back(processes):
    with Cluster(brokers=3, processes=processes) as cluster:
        with BlockingClient(cluster.bootstrap_servers) as client:
            client.create_topic("t", partitions=1, replication_factor=3)
            client.produce("t", b"before")
        for node in (1, 2, 3):
            cluster.kill(node)
        cluster.restart(3)  # it listens, and waits for others
        assert cluster.alive == [3]
        waits_for = cluster._running.lacking(3, None)
        assert waits_for is not None
        assert "controller has not answered" in waits_for
        cluster.restart(1, wait=False)
        cluster.restart(2)
        cluster.wait_until_healthy()
        for node in (1, 2, 3):
            cluster.kill(node)
        cluster.start_all()
        assert cluster.alive == [1, 2, 3]
        with BlockingClient(cluster.bootstrap_servers) as client:
            assert client.produce("t", b"after").offset == 1


@IN_PROCESS_AND_AS_PROCESSES
def test_a_broker_whose_port_was_taken_meanwhile_says_by_whom(processes):
    with Cluster(brokers=1, processes=processes) as cluster, ExitStack() as stack:
        cluster.kill(1)
        _, port = cluster.address_of(1)
        taken([port], stack)
        with pytest.raises(
            OperatingError, match="cannot listen: the port is taken by process"
        ) as told:
            cluster.restart(1)
        assert told.value.on == f"{HOST}:{port}"
        assert cluster.alive == []


@IN_PROCESS_AND_AS_PROCESSES
def test_a_broker_that_does_not_become_ready_says_what_it_waits_for(processes, monkeypatch):
    with Cluster(brokers=3, processes=processes) as cluster:
        for node in (1, 2, 3):
            cluster.kill(node)
        cluster.restart(2)
        monkeypatch.setattr(local_cluster, "START_SECONDS", 1.0)
        monkeypatch.setattr("raftlog.embed.in_process.START_SECONDS", 1.0)
        with pytest.raises(OperatingError, match="controller has not answered"):
            (cluster._inside or cluster._running).wait_ready(2)
        assert cluster.alive == [2]
