"""`raftlog up` and `down`: the processes of a local cluster, and their directory."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from raftlog.cli import up
from raftlog.client.blocking import BlockingClient
from raftlog.client.core.admin_asks import describe_quorum
from raftlog.runtime.local.cluster import LocalCluster
from raftlog.runtime.local.ports import free_ports, is_free
from tests.processes.load import TOPIC, Load, make_topic, read_all
from tests.tidy.tree import ROOT

pytestmark = pytest.mark.processes


def running(directory: Path) -> list[int]:
    """The process ids of a cluster's directory that are alive."""
    brokers = json.loads((directory / "cluster.json").read_text())["brokers"]
    return [each["pid"] for each in brokers if each["pid"] and alive(each["pid"])]


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


def wait_until_gone(directory: Path) -> None:
    """A process that has ended may be about to be a zombie for a moment."""
    deadline = time.perf_counter() + 20
    while running(directory):
        assert time.perf_counter() < deadline, running(directory)
        time.sleep(0.01)


def started(*arguments):
    """Returns what `raftlog up` prints, from a process of its own: its brokers are not our
    children."""
    done = subprocess.run(
        [sys.executable, "-m", "raftlog", *map(str, arguments), "--format", "json"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    return json.loads(done.stdout)


def test_up_down_and_up_again(raftlog, tmp_path):
    directory = tmp_path / "data"
    try:
        told = started("up", "--port", 0, "--dir", directory, "--detach", "--brokers", 1)
        assert told["directory"] == str(directory)
        assert len(told["brokers"]) == 1
        with BlockingClient(told["bootstrap_servers"]) as client:
            client.create_topic("kept")
            client.produce("kept", b"x")
        again = raftlog("up", "--dir", directory, "--detach", "--brokers", 1)
        assert again.code == 1
        assert "running already" in again.err
        assert len(running(directory)) == 1
    finally:
        down = raftlog("down", "--dir", directory)
    assert (down.code, down.out) == (0, "stopped brokers 1\n")
    wait_until_gone(directory)
    assert raftlog("down", "--dir", directory, "--format", "json").json["stopped"] == []
    shown = raftlog("inspect", directory / "broker1", "--format", "json")
    assert shown.code == 0
    assert shown.json
    assert raftlog("inspect", directory / "broker1").code == 0
    assert raftlog("inspect", directory).code == 1


class Operator:
    """Commands about a local cluster that runs, and a file for plans."""

    def __init__(self, raftlog, directory, plan, servers):
        self.raftlog, self.directory, self.plan, self.servers = raftlog, directory, plan, servers

    def told(self, *arguments):
        ran = self.raftlog(*arguments, "-b", self.servers)
        assert ran.code == 0, ran.err
        return ran

    def rows(self):
        return self.told("brokers", "list", "--format", "json").json["brokers"]

    def begin(self, brokers, rate):
        made = self.told("reassign", "generate", "--topic", TOPIC, "--brokers", brokers)
        self.plan.write_text(made.out)
        self.told("reassign", "execute", self.plan, "--throttle", rate)

    def moved(self, brokers):
        """Replicas of each broker after the move."""
        self.begin(brokers, 50_000_000)
        done = ("reassign", "verify", self.plan, "--watch", "--timeout", 120, "--format", "json")
        assert self.told(*done).json["throttles_removed"]
        return [each["replicas"] for each in self.rows()]

    def cancel_all(self):
        self.told("reassign", "cancel", "--all")
        wait_until(
            lambda: not self.told("reassign", "list", "--format", "json").json["partitions"],
            "moves are not taken back",
        )

    def leaders_come_first(self):
        (topic,) = self.told("topics", "describe", TOPIC, "--format", "json").json["topics"]
        return all(each["leader"] == each["replicas"][0] for each in topic["partitions"])

    def cannot_remove(self, node, why):
        ran = self.raftlog("up", "--remove-broker", node, "--dir", self.directory)
        assert (ran.code, f"broker {node} {why}" in ran.err) == (1, True)


def wait_until(reached, what):
    deadline = time.perf_counter() + 60
    while not reached():
        assert time.perf_counter() < deadline, what


def test_a_cluster_under_load_grows_and_shrinks(raftlog, tmp_path):
    """A broker joins while records come. Partitions move to it, throttled; the moves are taken
    back, and begun again; the topic gets more partitions. The new broker takes the place of the
    first one as a controller. The first one is drained, stopped and forgotten, and leaders are
    those that come first by themselves. No record that was acknowledged is lost, none is there
    twice, and no send fails."""
    directory = tmp_path / "data"
    soon = "leader.imbalance.check.interval.seconds=1"
    brokers = ("up", "--brokers", 3, "--port", 0, "--dir", directory, "--detach")
    try:
        first = started(*brokers, "--set", soon)["bootstrap_servers"]
        make_topic(first, 4)
        operator = Operator(raftlog, directory, tmp_path / "plan.json", first)
        with Load(first, 4, "steady") as load:
            load.wait_for(200)
            grown = started("up", "--add-broker", "--dir", directory)
            assert [each["node"] for each in grown["brokers"]] == [1, 2, 3, 4]
            assert grown["bootstrap_servers"].startswith(first)
            assert len(running(directory)) == 4
            new = operator.rows()[3]
            assert (new["fenced"], new["replicas"]) == (False, 0)
            operator.begin("1,2,3,4", 1_024)
            operator.cancel_all()
            assert operator.moved("1,2,3,4") == [3, 3, 3, 3]
            operator.told("topics", "alter", TOPIC, "--partitions", 8)
            load.wait_for(len(load.acknowledged) + 200)

            assert operator.told("quorum", "add", 4).out == "controllers: 1, 2, 3, 4\n"
            operator.cannot_remove(1, "is a controller")
            assert operator.told("quorum", "remove", 1).out == "controllers: 2, 3, 4\n"
            operator.cannot_remove(1, "is not drained: it holds ")
            assert operator.moved("2,3,4") == [0, 8, 8, 8]
            load.wait_for(len(load.acknowledged) + 200)
            left = started("up", "--remove-broker", 1, "--dir", directory)
            assert [each["node"] for each in left["brokers"]] == [2, 3, 4]
            operator.servers = left["bootstrap_servers"]
            assert [each["node"] for each in operator.rows()] == [2, 3, 4]
            wait_until(operator.leaders_come_first, "leaders are not restored")
            load.wait_for(len(load.acknowledged) + 200)
            # Before its end, which throws away what is under way.
            assert load.failed == 0
        found = read_all(operator.servers, 8)
        assert {place: found.get(place) for place in load.acknowledged} == load.acknowledged
        assert len(set(found.values())) == len(found)
        raftlog("down", "--dir", directory)
        again = started(*brokers)
        assert [each["node"] for each in again["brokers"]] == [2, 3, 4]
        assert read_all(again["bootstrap_servers"], 8) == found
    finally:
        raftlog("down", "--dir", directory)
    wait_until_gone(directory)


def test_a_cluster_that_does_not_run_does_not_grow(raftlog, tmp_path):
    none = raftlog("up", "--add-broker", "--dir", tmp_path / "nothing")
    assert (none.code, "no cluster was started here" in none.err) == (1, True)
    for more in (("--brokers", 3), ("--detach",), ("--set", "a=b"), ("--port", 0)):
        assert raftlog("up", "--add-broker", "--dir", tmp_path, *more).code == 64
        assert raftlog("up", "--remove-broker", 1, "--dir", tmp_path, *more).code == 64
    assert raftlog("up", "--remove-broker", 1, "--add-broker", "--dir", tmp_path).code == 64
    gone = raftlog("up", "--remove-broker", 1, "--dir", tmp_path / "nothing")
    assert (gone.code, "no cluster was started here" in gone.err) == (1, True)


def test_a_broker_that_cannot_start_shows_its_last_lines(raftlog, tmp_path):
    """`raftlog up` on a port that is taken."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        if port > 65_000:
            pytest.skip("the free port lies too high for --port")
        ran = raftlog("up", "--port", port, "--dir", tmp_path, "--detach", "--brokers", 1)
    assert ran.code == 1
    assert "cannot listen" in ran.err
    assert running(tmp_path) == []


def test_serve_on_a_taken_port_says_who_holds_it(raftlog, tmp_path):
    """It said "Address already in use", and `raftlog up` said whose it is."""
    directory, copy = tmp_path / "first", tmp_path / "copy"
    try:
        started("up", "--port", 0, "--dir", directory, "--detach", "--brokers", 1)
        shutil.copytree(directory / "broker1", copy)
        config = directory / "broker1.properties"
        ran = raftlog("serve", "--config", config, "--set", f"log.dirs={copy}", "--format", "json")
        assert (ran.code, ran.out) == (1, "")
        error = json.loads(ran.err.splitlines()[-1])["error"]
        taken = rf"cannot listen: the port is taken by process \d+, a broker .* {directory}"
        assert re.fullmatch(taken, error["what"])
        assert f"raftlog down --dir {directory}" in error["do"]
        assert error["on"].rpartition(":")[2] in config.read_text()
    finally:
        raftlog("down", "--dir", directory)


def first_of_free_ports(brokers: int = 3) -> int:
    """A --port for so many brokers."""
    while True:
        (port,) = free_ports(1)
        wanted = [port + more + at for more in (0, 100, 200) for at in range(brokers)]
        if port <= 65_000 and all(is_free(each) for each in wanted):
            return port


def test_a_cluster_comes_up_after_a_change_of_ports(raftlog, tmp_path):
    """Every broker dialled the others where they had been registered, which no longer was what the
    configuration said, and none became ready."""
    directory = tmp_path / "data"
    try:
        told = started("up", "--port", 0, "--dir", directory, "--detach")
        with BlockingClient(told["bootstrap_servers"]) as client:
            client.create_topic("t", partitions=1, replication_factor=3)
            client.produce("t", b"x")
        assert raftlog("down", "--dir", directory).out == "stopped brokers 1, 2, 3\n"
        port = first_of_free_ports()
        moved = started("up", "--port", port, "--dir", directory, "--detach")
        assert moved["bootstrap_servers"].startswith(f"127.0.0.1:{port},")
        with BlockingClient(moved["bootstrap_servers"]) as client:
            assert client.produce("t", b"y").offset == 1
        assert raftlog("down", "--dir", directory).code == 0
        again = started("up", "--port", 0, "--dir", directory, "--detach")
        assert again["bootstrap_servers"] == moved["bootstrap_servers"]
    finally:
        raftlog("down", "--dir", directory)


@pytest.mark.slow
def test_a_cluster_whose_controllers_were_replaced_comes_up_after_a_change_of_ports(
    raftlog, tmp_path
):
    """The files named the founders only, so the present controllers dialled each other where they
    had been registered, and none led."""
    directory = tmp_path / "data"
    try:
        told = started("up", "--brokers", 5, "--port", 0, "--dir", directory, "--detach")
        servers = told["bootstrap_servers"]
        with BlockingClient(servers) as client:
            client.create_topic("t", partitions=1, replication_factor=3)
            client.produce("t", b"x")
        changes = [("add", 4), ("add", 5), ("remove", 1), ("remove", 2), ("remove", 3)]
        for change, node in changes:
            assert raftlog("quorum", change, node, "--bootstrap-server", servers).code == 0
        assert raftlog("down", "--dir", directory).code == 0
        port = first_of_free_ports(5)
        moved = started("up", "--brokers", 5, "--port", port, "--dir", directory, "--detach")
        with BlockingClient(moved["bootstrap_servers"]) as client:
            assert client.produce("t", b"y").offset == 1
            quorum = client.ask(describe_quorum())
            assert sorted(each.node for each in quorum.replicas if each.voter) == [4, 5]
    finally:
        raftlog("down", "--dir", directory)


def test_a_second_cluster_on_the_ports_of_a_first_says_whose_they_are(raftlog, tmp_path):
    """It said that it was up, with exit code 0, while its brokers were dead and the ports those of
    the first cluster: its readiness had been asked of them."""
    first, second = tmp_path / "first", tmp_path / "second"
    try:
        told = started("up", "--port", 0, "--dir", first, "--detach", "--brokers", 1)
        port = told["brokers"][0]["client_port"]
        if port > 65_000:
            pytest.skip("the free port lies too high for --port")
        ran = raftlog("up", "--port", port, "--dir", second, "--detach", "--brokers", 1)
        assert (ran.code, ran.out) == (1, "")
        assert "broker 1 cannot listen" in ran.err
        assert f"a broker of the cluster in {first}" in ran.err
        assert f"raftlog down --dir {first}" in ran.err
        assert running(second) == []
        assert len(running(first)) == 1
        down = raftlog("down", "--dir", second)
        assert (down.code, down.out) == (1, "")
        assert f"no cluster was started here ({second})" in down.err  # as in an empty folder
    finally:
        raftlog("down", "--dir", first)


def test_a_wrong_setting_is_named(raftlog, tmp_path):
    ran = raftlog(
        "up",
        "--port",
        0,
        "--dir",
        tmp_path,
        "--detach",
        "--brokers",
        1,
        "--set",
        "num.partition=3",
    )
    assert ran.code == 1
    assert "did you mean num.partitions?" in ran.err
    assert raftlog("up", "--set", "nonsense").code == 64
    assert raftlog("up", "--brokers", 0).code == 64


@pytest.mark.parametrize("name", ["log.dirs", "listeners", "node.id", "controller.quorum.voters"])
def test_a_setting_that_brokers_cannot_share_is_refused_before_anything_is_made(
    name, raftlog, tmp_path
):
    """Three brokers in one directory: the second one waited for its lock until time was up."""
    answer = raftlog("up", "--port", 0, "--set", f"{name}=x", "--detach", "--dir", tmp_path / "c")
    assert answer.code == 1, answer
    assert f"{name} cannot be set for all brokers of a local cluster" in answer.err, answer
    assert not (tmp_path / "c").exists()


def test_down_without_a_cluster(raftlog, tmp_path):
    ran = raftlog("down", "--dir", tmp_path, "--format", "json")
    assert ran.code == 1
    assert "no cluster was started here" in ran.json_error["what"]


@contextmanager
def in_the_foreground(directory: Path, brokers: int) -> Iterator[subprocess.Popen[str]]:
    """Runs a cluster by `raftlog up`; Ctrl-C at the end of the block must end all its brokers."""
    command = [sys.executable, "-m", "raftlog", "up", "--port", "0", "--brokers", str(brokers)]
    with subprocess.Popen(
        [*command, "--dir", str(directory)], stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("bootstrap servers: 127.0.0.1:")
        assert len(running(directory)) == brokers
        yield process
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    wait_until_gone(directory)


def test_in_the_foreground_until_interrupted(tmp_path):
    with in_the_foreground(tmp_path, 1):
        started("up", "--add-broker", "--dir", tmp_path)  # it outlived the others
        assert len(running(tmp_path)) == 2


def test_a_broker_that_is_removed_does_not_end_the_cluster_in_the_foreground(tmp_path):
    """`up` took it for a broker that died, and stopped all the others."""
    with in_the_foreground(tmp_path, 2) as process:
        started("up", "--remove-broker", 2, "--dir", tmp_path)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(2)
        assert len(running(tmp_path)) == 1


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError("no room")])
def test_what_interrupts_the_start_leaves_no_broker(error, raftlog, tmp_path, monkeypatch):
    """Ctrl-C while the brokers start, or just after the bootstrap list was printed, ended `up` with
    130 and left the brokers running: they are sessions of their own."""
    stopped = []

    def interrupted(cluster):
        raise error

    monkeypatch.setattr(LocalCluster, "start_all", interrupted)
    monkeypatch.setattr(LocalCluster, "stop", lambda cluster: stopped.append(cluster.directory))
    arguments = ("up", "--port", 0, "--dir", tmp_path, "--brokers", 1)
    if isinstance(error, KeyboardInterrupt):
        assert raftlog(*arguments).code == 130
    else:
        with pytest.raises(OSError, match="no room"):
            raftlog(*arguments)
    assert stopped == [tmp_path]


def test_signals_are_noted_before_the_bootstrap_list_is_printed(raftlog, tmp_path, monkeypatch):
    """A reader of the list may interrupt at once."""
    order = []
    monkeypatch.setattr(LocalCluster, "start_all", lambda cluster: None)
    monkeypatch.setattr(LocalCluster, "stop", lambda cluster: order.append("stop"))
    monkeypatch.setattr(up, "_watch_signals", lambda: order.append("signals") or [signal.SIGINT])
    monkeypatch.setattr(up, "_report", lambda *_: order.append("report"))
    assert raftlog("up", "--port", 0, "--dir", tmp_path, "--brokers", 1).code == 0
    assert order == ["signals", "report", "stop"]
