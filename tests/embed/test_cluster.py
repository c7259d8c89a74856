"""Clusters in this process, and one of real processes: faults, healing, and nothing left behind."""

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import trio

import raftlog
from raftlog.base.errors import LocalMisuse, OperatingError
from raftlog.client.blocking import BlockingClient
from raftlog.client.trio_driver import Client
from raftlog.embed.cluster import Cluster
from raftlog.embed.in_process import InProcessBrokers
from raftlog.runtime.disks.locks import is_locked

pytestmark = pytest.mark.processes


def threads() -> list[str]:
    return sorted(
        each.name for each in threading.enumerate() if not each.name.startswith("Trio thread")
    )


def test_a_cluster_serves_and_leaves_nothing_behind():
    before = threads()
    with raftlog.Cluster(brokers=3) as cluster:
        directory = cluster.directory
        assert cluster.nodes == [1, 2, 3]
        assert cluster.alive == [1, 2, 3]
        assert len(cluster.bootstrap_servers.split(",")) == 3
        with BlockingClient(cluster.bootstrap_servers) as client:
            client.create_topic("t", partitions=3, replication_factor=3)
            assert client.produce("t", b"x", partition=0).offset == 0
        cluster.wait_until_healthy()
        assert cluster.leader_of("t", 1) in cluster.nodes
        assert directory.is_dir()
    assert not directory.exists()
    assert threads() == before
    with pytest.raises(LocalMisuse):
        print(cluster.bootstrap_servers)


def test_a_leader_of_what_does_not_exist_is_said_soon():
    """It said "nope-0 has no leader" after 30 seconds."""
    with Cluster(brokers=1) as cluster, BlockingClient(cluster.bootstrap_servers) as client:
        client.create_topic("t", partitions=1)
        for place, what, do in (
            (("nope", 0), "there is no topic nope", "create it first"),
            (("t", 7), "there is no partition t-7", "t has 1 partition, numbered from 0"),
        ):
            began = time.perf_counter()
            with pytest.raises(OperatingError) as caught:
                cluster.leader_of(*place)
            assert (caught.value.what, caught.value.do) == (what, do)
            assert 3 <= time.perf_counter() - began < 20
            with pytest.raises(OperatingError, match=rf"not in 0\.1 seconds: {what}"):
                cluster.leader_of(*place, seconds=0.1)


def test_a_leader_of_a_topic_that_is_made_meanwhile():
    with (
        Cluster(brokers=1) as cluster,
        BlockingClient(cluster.bootstrap_servers) as client,
        ThreadPoolExecutor(1) as asking,
    ):
        leader = asking.submit(cluster.leader_of, "late")
        time.sleep(0.5)
        client.create_topic("late")
        assert leader.result(30) == 1


PARENT = """
import pathlib, signal, sys, time, raftlog
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # whoever starts the tests may ignore it (nohup)
with raftlog.Cluster(brokers=2, processes=True, directory=sys.argv[1]) as cluster:
    cluster.kill(2)
    cluster.restart(2)
    print("up", flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGHUP])
def test_processes_end_with_their_parent_whatever_ends_it(number, tmp_path):
    """They ran on, without a parent, and kept their ports."""
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "up\n"
        folders = [str(tmp_path / f"broker{node}") for node in (1, 2)]
        assert [is_locked(folder) for folder in folders] == [True, True]
        parent.send_signal(number)
        assert parent.wait(30) == -number
    deadline = time.perf_counter() + 30
    while any(map(is_locked, folders)):
        assert time.perf_counter() < deadline, "brokers outlive their parent"
        time.sleep(0.02)
    with Cluster(brokers=2, directory=tmp_path, processes=True) as again:
        again.wait_until_healthy()


def test_kill_fail_over_restart_heal():
    with Cluster(brokers=3) as cluster, BlockingClient(cluster.bootstrap_servers) as client:
        client.create_topic("t", partitions=1, replication_factor=3)
        client.produce("t", b"before")
        leader = cluster.leader_of("t")
        cluster.kill(leader)
        assert leader not in cluster.alive
        assert client.produce("t", b"after").offset == 1
        assert cluster.leader_of("t") != leader
        with pytest.raises(OperatingError, match="dead or paused"):
            cluster.wait_until_healthy(seconds=0.1)
        cluster.restart(leader)
        cluster.wait_until_healthy()
        with pytest.raises(LocalMisuse):
            cluster.kill(99)


def test_a_killed_broker_takes_no_turn_any_more():
    """Its tasks unwind, and each posts that its connection is gone: the broker answered that by
    turns, which a process that SIGKILL ends does not take."""
    with Cluster(brokers=3) as cluster, BlockingClient(cluster.bootstrap_servers) as client:
        client.create_topic("t", partitions=1, replication_factor=3)
        driver = cluster._inside._brokers[1].control.driver
        handle, heard = driver.broker.handle, []

        class Watched:
            def handle(self, events, now_ns, wall_ms):
                heard.extend(type(event).__name__ for event in events)
                return handle(events, now_ns, wall_ms)

        driver.broker = Watched()
        cluster.kill(1)
        assert heard.count("LinkDown") == 0
        assert heard.count("ConnectionClosed") == 0


def test_pause_is_survived_and_resumed():
    with Cluster(brokers=3) as cluster, BlockingClient(cluster.bootstrap_servers) as client:
        client.create_topic("t", partitions=1, replication_factor=3)
        client.produce("t", b"before")
        leader = cluster.leader_of("t")
        cluster.pause(leader)
        assert client.produce("t", b"meanwhile").offset == 1
        cluster.resume(leader)
        cluster.wait_until_healthy()
        assert client.produce("t", b"after").offset == 2


def test_a_graceful_stop_hands_over():
    with Cluster(brokers=3) as cluster, BlockingClient(cluster.bootstrap_servers) as client:
        client.create_topic("t", partitions=1, replication_factor=3)
        leader = cluster.leader_of("t")
        cluster.shut_down(leader)
        assert client.produce("t", b"x").offset == 0
        cluster.restart(leader)
        cluster.wait_until_healthy()


def test_a_given_directory_keeps_the_data(tmp_path: Path):
    with (
        Cluster(brokers=1, directory=tmp_path) as cluster,
        BlockingClient(cluster.bootstrap_servers) as client,
    ):
        client.create_topic("t")
        client.produce("t", b"kept")
    assert (tmp_path / "broker1.log").exists()
    with (
        Cluster(brokers=1, directory=tmp_path) as cluster,
        BlockingClient(cluster.bootstrap_servers) as client,
    ):
        assert client.produce("t", b"more").offset == 1


def test_a_broker_that_ended_by_itself_is_dead_and_comes_back():
    """It counted as alive, and so nothing would start it again."""
    with Cluster(brokers=1) as cluster:
        running = cluster._inside._brokers[1]
        token = cluster._inside._token
        token.run_sync_soon(running.control.stop)
        trio.from_thread.run(running.ended.wait, trio_token=token)
        with pytest.raises(OperatingError, match="broker 1 is dead"):
            cluster.wait_until_healthy(seconds=0.2)
        assert cluster.alive == []
        with pytest.raises(LocalMisuse, match="not running"):
            cluster.kill(1)
        cluster.start_all()
        assert cluster.alive == [1]
        cluster.restart(1)


async def test_inside_trio():
    async with Cluster(brokers=1) as cluster, Client(cluster.bootstrap_servers) as client:
        await client.create_topic("t")
        assert (await client.produce("t", b"x")).offset == 0
        assert await cluster.aio.leader_of("t") == 1
        await cluster.aio.kill(1)
        with trio.move_on_after(0.2) as scope:
            await client.produce("t", b"y")
        assert scope.cancelled_caught
        await cluster.aio.restart(1)
        assert (await client.produce("t", b"z")).offset in (1, 2)
        await cluster.aio.pause(1)
        await cluster.aio.resume(1)
        await cluster.aio.wait_until_healthy()
        await cluster.aio.shut_down(1)


def test_an_error_of_the_block_comes_out_bare_and_everything_ends():
    before = threads()
    with pytest.raises(ValueError, match="mine"), Cluster(brokers=1):
        raise ValueError("mine")
    assert threads() == before


def test_what_cannot_start_says_why():
    before = threads()
    with pytest.raises(OperatingError, match=r"no\.such\.setting"):
        Cluster(brokers=1, settings={"no.such.setting": "1"}).start()
    assert threads() == before
    with pytest.raises(LocalMisuse):
        Cluster(brokers=0)


def test_real_processes():
    with (
        Cluster(brokers=3, processes=True) as cluster,
        BlockingClient(cluster.bootstrap_servers) as client,
    ):
        directory = cluster.directory
        client.create_topic("t", partitions=1, replication_factor=3)
        client.produce("t", b"before")
        leader = cluster.leader_of("t")
        processes = {node: each.pid for node, each in cluster._running.processes.items()}
        cluster.kill(leader)
        assert client.produce("t", b"after").offset == 1
        cluster.restart(leader)
        cluster.wait_until_healthy()
        other = cluster.leader_of("t")
        cluster.pause(other)
        assert client.produce("t", b"meanwhile").offset == 2
        cluster.resume(other)
        cluster.wait_until_healthy()
    assert not directory.exists()
    for pid in processes.values():
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_an_event_loop_that_does_not_start_is_an_error_and_no_wait_without_end(monkeypatch):
    """A process without file descriptors waited for its brokers and said nothing."""

    def no_descriptors(main):
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(trio, "run", no_descriptors)
    with pytest.raises(OperatingError, match=r"does not start: .*Too many open files"):
        Cluster(brokers=1).start()


def test_ctrl_c_while_the_brokers_loop_starts_ends_the_start(monkeypatch: pytest.MonkeyPatch):
    """The cluster was stopped before its loop could be told to end, and then waited for the loop
    for ever."""
    main = InProcessBrokers._main

    async def slow(brokers: InProcessBrokers) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        await trio.sleep(0.5)
        await main(brokers)

    monkeypatch.setattr(InProcessBrokers, "_main", slow)
    cluster = Cluster(brokers=1)
    with pytest.raises(KeyboardInterrupt):
        cluster.start()
    assert not [each for each in threading.enumerate() if each.name == "raftlog brokers"]
    monkeypatch.undo()
    with cluster:
        assert cluster.alive == [1]
