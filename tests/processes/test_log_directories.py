"""Brokers with several log directories: placed evenly, failing one by one, replicas that move."""

import json
import subprocess
import sys
import time
from functools import partial

import pytest

from raftlog.base.errors import OperatingError
from raftlog.client.blocking import BlockingClient
from raftlog.client.core.admin_asks import alter_replica_log_dirs, describe_log_dirs
from raftlog.client.core.asks import fetch
from raftlog.client.core.values import TopicPartition
from raftlog.kafka.error_codes import ErrorCode
from raftlog.runtime.local import cluster as local_cluster

pytestmark = [pytest.mark.processes, pytest.mark.slow]
PARTITIONS = 6


def with_directories(running, node, *names):
    """Give a broker of a founded cluster further log directories."""
    path = running.directory / f"broker{node}.properties"
    paths = [str(running.data_path(node)), *(str(running.directory / name) for name in names)]
    lines = path.read_text().splitlines()
    changed = [
        f"log.dirs = {','.join(paths)}" if line.startswith("log.dirs") else line for line in lines
    ]
    path.write_text("\n".join(changed) + "\n")


def directories(client, node=1):
    found = client.ask(describe_log_dirs(node))
    return {each.path.rpartition("/")[2]: each for each in found}


def written_to_all(client, text):
    for number in range(PARTITIONS):
        client.produce("orders", text, partition=number)


def read_from_all(client):
    found = []
    for number in range(PARTITIONS):
        piece = client.ask(fetch(TopicPartition("orders", number), 0, max_wait_ms=500))
        found.append([bytes(record.value) for record in piece.records()])
    return found


def test_one_directory_fails_and_the_others_serve(tmp_path, monkeypatch):
    control = tmp_path / "control"
    control.write_text("")
    monkeypatch.setenv("RAFTLOG_TEST_DISK", f"control={control},only=second")
    running = local_cluster.found(tmp_path / "data", brokers=3)
    with_directories(running, 1, "second", "third")
    try:
        running.start_all()
        with BlockingClient(running.bootstrap_servers) as client:
            client.create_topic("orders", partitions=PARTITIONS, replication_factor=3)
            written_to_all(client, b"before")
            found = directories(client)
            assert {name: len(each.replicas) for name, each in found.items()} == {
                "broker1": 2,
                "second": 2,
                "third": 2,
            }
            assert all(each.usable_bytes for each in found.values())
            assert list(directories(client, 2)) == ["broker2"]

            control.write_text("fail-write")
            written_to_all(client, b"while it fails")
            assert running.is_alive(1)
            found = directories(client)
            assert found["second"].error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert found["second"].replicas == ()
            assert [len(found[name].replicas) for name in ("broker1", "third")] == [2, 2]
            assert "log-directory-failed" in running.log_path(1).read_text()

            control.write_text("")
            running.terminate(1)
            running.restart(1)
            written_to_all(client, b"after")
            expected = [b"before", b"while it fails", b"after"]
            assert read_from_all(client) == [expected] * PARTITIONS
            assert len(directories(client)["second"].replicas) == 2
    finally:
        running.stop()


def test_a_directory_that_is_gone_takes_its_replicas_offline(tmp_path):
    """With one replica each, nothing may begin empty elsewhere: what was acknowledged would be lost
    without a word."""
    running = local_cluster.found(tmp_path / "data", brokers=1)
    with_directories(running, 1, "second")
    second = running.directory / "second"
    try:
        running.start_all()
        with BlockingClient(running.bootstrap_servers) as client:
            client.create_topic("orders", partitions=2, replication_factor=1)
            for number in range(2):
                client.produce("orders", b"before", partition=number)
            here = directories(client)["broker1"].replicas[0].place.partition
        running.terminate(1)
        second.rename(tmp_path / "away")
        second.mkdir()
        running.start(1)  # not ready: a replica is offline
        with BlockingClient(running.bootstrap_servers) as client:
            assert client.produce("orders", b"on", partition=here).offset == 1
            found = directories(client)
            assert [len(found[name].replicas) for name in ("broker1", "second")] == [1, 0]
        running.terminate(1)
        for each in sorted(second.rglob("*"), reverse=True):
            each.rmdir() if each.is_dir() else each.unlink()
        second.rmdir()
        (tmp_path / "away").rename(second)
        running.restart(1)
        with BlockingClient(running.bootstrap_servers) as client:
            assert client.produce("orders", b"back", partition=1 - here).offset == 1
    finally:
        running.stop()


def test_directories_in_a_wrong_order_are_refused(tmp_path):
    running = local_cluster.found(tmp_path / "data", brokers=1)
    with_directories(running, 1, "second")
    try:
        running.start_all()
        running.terminate(1)
        path = running.directory / "broker1.properties"
        first, second = running.data_path(1), running.directory / "second"
        path.write_text(path.read_text().replace(f"{first},{second}", f"{second},{first}"))
        with pytest.raises(OperatingError, match="log directory of a broker"):
            running.restart(1)
    finally:
        running.stop()


def moved(client, place, to):
    """Whether that replica of broker 1 lies in a directory, and none is on its way."""
    found = {
        (each.path.rpartition("/")[2], one.is_future)
        for each in client.ask(describe_log_dirs(1, [place]))
        for one in each.replicas
    }
    return found == {(to, False)}


@pytest.mark.parametrize("brokers", [1, 3])
def test_replicas_move_between_directories_under_load(tmp_path, brokers):
    running = local_cluster.found(tmp_path / "data", brokers=brokers)
    with_directories(running, 1, "second")
    second = running.directory / "second"
    try:
        running.start_all()
        with BlockingClient(running.bootstrap_servers) as client:
            client.create_topic("orders", partitions=PARTITIONS, replication_factor=brokers)
            written_to_all(client, b"before")
            paths = {"broker1": str(running.data_path(1)), "second": str(second)}
            for to in ("second", "broker1", "second"):
                places = [TopicPartition("orders", number) for number in range(PARTITIONS)]
                answers = client.ask(alter_replica_log_dirs(1, dict.fromkeys(places, paths[to])))
                assert [each.error_code for each in answers] == [0] * PARTITIONS
                written_to_all(client, b"during")
                for place in places:
                    _wait_until(partial(moved, client, place, to))
            expected = [b"before", *[b"during"] * 3]
            assert read_from_all(client) == [expected] * PARTITIONS
            assert len(list((second / "groups").iterdir())) == PARTITIONS
            assert not list(second.rglob("moving"))
            running.terminate(1)
            running.restart(1)
            assert read_from_all(client) == [expected] * PARTITIONS
            (refused,) = client.ask(alter_replica_log_dirs(1, {places[0]: "/nowhere"}))
            assert refused.error_code == ErrorCode.LOG_DIR_NOT_FOUND
    finally:
        running.stop()


def test_plans_name_directories(tmp_path):
    """Our command and Kafka's move a replica that is here, and place one that is to come."""
    running = local_cluster.found(tmp_path / "data", brokers=3)
    with_directories(running, 1, "second")
    plan, second = tmp_path / "plan.json", str(running.directory / "second")

    def tool(*arguments):
        command = [sys.executable, "-m", "raftlog", *map(str, arguments)]
        command += ["--bootstrap-server", running.bootstrap_servers]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        return done.returncode, done.stdout + done.stderr

    def write(partition, brokers):
        directories = [second if node == 1 else "any" for node in brokers]
        entry = {"topic": "orders", "partition": partition, "replicas": brokers}
        entries = [{**entry, "log_dirs": directories}]
        plan.write_text(json.dumps({"version": 1, "partitions": entries}))

    try:
        running.start_all()
        with BlockingClient(running.bootstrap_servers) as client:
            client.create_topic("orders", partitions=2, replication_factor=3)
            places = [TopicPartition("orders", number) for number in range(2)]
            here = next(each for each in places if moved(client, each, "broker1"))
            write(here.partition, [1, 2, 3])
            assert tool("reassign", "execute", plan)[0] == 0
            code, told = tool("reassign", "verify", plan, "--watch", "--timeout", 50)
            assert (code, "done" in told) == (0, True), told
            assert moved(client, here, "second")

            flags = ["kafka-reassign-partitions", "--reassignment-json-file", plan]
            write(here.partition, [2, 3])
            assert tool(*flags, "--execute")[0] == 0
            assert tool("reassign", "verify", plan, "--watch", "--timeout", 50)[0] == 0
            write(here.partition, [2, 3, 1])
            code, told = tool(*flags, "--execute")
            assert code == 0
            assert f"for replica {here.topic}-{here.partition} with broker 1 \n" in told
            assert tool("reassign", "verify", plan, "--watch", "--timeout", 50)[0] == 0
            code, told = tool(*flags, "--verify")
            replica = f"{here.topic}-{here.partition}-1"
            assert f"Reassignment of replica {replica} completed successfully." in told, told
            assert moved(client, here, "second")
    finally:
        running.stop()


@pytest.mark.parametrize("ours", [True, False])
def test_a_throttled_move_serves_is_taken_back_and_ends(tmp_path, ours):
    """By our command and by the flags of Kafka's: the only replica serves while it is copied."""
    running = local_cluster.found(tmp_path / "data", brokers=1)
    with_directories(running, 1, "second")
    first, second = str(running.data_path(1)), str(running.directory / "second")
    plan, other = tmp_path / "plan.json", tmp_path / "other.json"
    for path, directory in ((plan, first), (other, second)):
        entry = {"topic": "orders", "partition": 0, "replicas": [1], "log_dirs": [directory]}
        path.write_text(json.dumps({"version": 1, "partitions": [entry]}))

    def tool(*arguments):
        command = [sys.executable, "-m", "raftlog", *map(str, arguments)]
        command += ["--bootstrap-server", running.bootstrap_servers]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        return done.returncode, done.stdout + done.stderr

    if ours:
        execute = ("reassign", "execute", plan, "--log-dirs-throttle")
        cancel, verify = ("reassign", "cancel", plan), ("reassign", "verify", plan)
        stays = "orders-0: stays in"
    else:
        flags = ("kafka-reassign-partitions", "--reassignment-json-file", plan)
        execute = (*flags, "--execute", "--replica-alter-log-dirs-throttle")
        cancel, verify = (*flags, "--cancel"), (*flags, "--verify")
        stays = f"Successfully started moving log directory to {second} for replica orders-0"
    try:
        running.start_all()
        with BlockingClient(running.bootstrap_servers) as client:
            client.create_topic("orders", partitions=1, replication_factor=1)
            place = TopicPartition("orders", 0)
            assert moved(client, place, "second")
            for number in range(20):
                client.produce("orders", b"%d" % number + b"x" * 100_000, partition=0)
            assert tool(*execute, 10_000)[0] == 0
            assert "10000" in tool("configs", "describe", "broker", 1)[1]
            code, told = tool("log-dirs", "--replicas")
            assert (code, "future" in told) == (0, True), told
            client.produce("orders", b"during", partition=0)
            assert tool(*verify)[0] == (1 if ours else 0)
            # Another plan for the replica has not ended either: its verify leaves the throttle.
            told = tool(*[other if each is plan else each for each in verify])[1]
            assert ours or f"is being moved to log dir {first} instead of {second}." in told, told
            assert "10000" in tool("configs", "describe", "broker", 1)[1]
            assert not moved(client, place, "broker1")
            code, told = tool(*cancel)
            assert (code, stays in told) == (0, True), told
            assert moved(client, place, "second")

            assert tool(*execute, 50_000_000)[0] == 0
            _wait_until(partial(moved, client, place, "broker1"))
            assert tool(*verify)[0] == 0
            assert "io.max.bytes" not in tool("configs", "describe", "broker", 1)[1]
            client.produce("orders", b"after", partition=0)
            assert len(read_from(client, place)) == 22
    finally:
        running.stop()


def read_from(client, place):
    found = []
    while len(found) < 22:
        piece = client.ask(fetch(place, len(found), max_wait_ms=500))
        found += [bytes(record.value) for record in piece.records()]
    return found


def _wait_until(holds):
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline, holds
        time.sleep(0.05)
