"""The plugin as its users have it: in a pytest run of their own, named by a conftest.py.

A run of its own also keeps its cluster, which lives for the whole run, out of the process in which
other tests patch the product's classes.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftlog.embed.test_names import seed_of, topic_name
from raftlog.metadata.rules.topic_names import topic_name_problem

CONFTEST = 'pytest_plugins = ["raftlog.embed.pytest_plugin"]\n'
TESTS = """
import asyncio
import threading

import pytest
import trio

from raftlog.client.blocking import BlockingClient

CLUSTERS, TOPICS = [], []


def brokers():
    return [each for each in threading.enumerate() if each.name == "raftlog brokers"]


def test_nothing_runs_before_a_test_asks():
    assert brokers() == []


@pytest.mark.parametrize("turn", [1, 2])
def test_a_cluster_and_a_topic_of_ones_own(turn, raftlog_cluster, raftlog_topic):
    assert len(brokers()) == 1
    CLUSTERS.append(raftlog_cluster)
    TOPICS.append(raftlog_topic)
    assert len(set(TOPICS)) == turn and len(set(map(id, CLUSTERS))) == 1
    with BlockingClient(raftlog_cluster.bootstrap_servers) as client:
        client.create_topic(raftlog_topic)
        assert client.produce(raftlog_topic, b"%d" % turn).offset == 0


@pytest.mark.parametrize("run", [lambda main: asyncio.run(main()), trio.run])
def test_it_is_used_in_an_event_loop(run, raftlog_cluster, raftlog_topic):
    with BlockingClient(raftlog_cluster.bootstrap_servers) as client:
        client.create_topic(raftlog_topic)

    async def main():
        assert await raftlog_cluster.aio.leader_of(raftlog_topic) in (1, 2, 3)
        await raftlog_cluster.aio.wait_until_healthy()

    run(main)
"""

FAULTS = """
from confluent_kafka import Producer


def send(cluster, topic):
    told = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0,
                         "message.send.max.retries": 0})
    producer.produce(topic, b"v", on_delivery=lambda error, _: told.append(error))
    producer.flush(30)
    return told[0] and told[0].name()


def test_one_breaks_it(raftlog_faults, raftlog_topic):
    assert send(raftlog_faults, raftlog_topic) is None
    raftlog_faults.on("Produce").error("INVALID_RECORD", times=7)
    raftlog_faults.isolate(1)
    assert send(raftlog_faults, raftlog_topic) == "INVALID_RECORD"
    raftlog_faults.kill(2)
    raftlog_faults.pause(3)
    assert False, "so that the report is shown"


def test_the_next_one_has_it_whole(raftlog_faults, raftlog_topic):
    assert raftlog_faults.alive == [1, 2, 3]
    assert send(raftlog_faults, raftlog_topic) is None
"""


def their_run(folder, tests, *options, code=1):
    """The output of a pytest run of these tests in a folder of their own; `code` is its end."""
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_theirs.py").write_text(tests)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options, "test_theirs.py"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


@pytest.mark.processes
def test_faults_of_a_test_end_with_it_and_are_reported(tmp_path):
    said = their_run(tmp_path, FAULTS)
    assert "1 failed, 1 passed" in said
    assert 'used 1 time, brokers 1, 2, 3: {"do": "error", "on": "Produce"' in said
    # The cluster of the faults is the cluster of the run: its output is there once.
    assert [line[-11:] for line in said.splitlines() if line.startswith("broker: ")] == [
        "broker1.log",
        "broker2.log",
        "broker3.log",
    ]


TWO_CLUSTERS = """
def test_two(raftlog_cluster, raftlog_own_cluster):
    raise AssertionError("so that both leave their output")
"""


@pytest.mark.processes
def test_two_clusters_of_a_failed_test_leave_the_output_of_both(tmp_path):
    said = their_run(tmp_path, TWO_CLUSTERS)
    left = [
        Path(line.removeprefix("broker: "))
        for line in said.splitlines()
        if line.startswith("broker: ")
    ]
    assert [(each.parent.name, each.name) for each in left] == [
        (fixture, f"broker{node}.log")
        for fixture in ("raftlog_cluster", "raftlog_own_cluster")
        for node in (1, 2, 3)
    ]
    assert len({each.read_text() for each in left}) == 6


@pytest.mark.processes
def test_a_run_of_ones_own(tmp_path):
    assert "5 passed" in their_run(tmp_path, TESTS, code=0)


@given(st.text(max_size=300), st.text(max_size=300))
def test_names_are_allowed_and_differ(one, other):
    assert topic_name_problem(topic_name(one)) is None
    assert (topic_name(one) == topic_name(other)) == (one == other)


@given(st.integers(0, 1 << 62), st.text(max_size=50), st.text(max_size=50))
def test_seeds_repeat_and_differ_by_test(seed, one, other):
    assert seed_of(seed, one) == seed_of(seed, one) >= 0
    assert (seed_of(seed, one) == seed_of(seed, other)) == (one == other)


FAILING = """
from raftlog.embed.recording.history import Seats


def test_what_is_lost_is_told(raftlog_history, raftlog_seed):
    print("dice", raftlog_seed)
    seats = Seats()
    for at, value in enumerate("ab"):
        raftlog_history.begin_send(seats, "t", 0, value).sent("t", 0, at)
    raftlog_history.begin(seats, "poll").ok({"t/0": [[1, "b"]]})


def test_of_its_own_accord(raftlog_history, raftlog_seed):
    print("dice", raftlog_seed)
    raise AssertionError("no order came")


def test_that_passes(raftlog_history):
    seats = Seats()
    raftlog_history.begin_send(seats, "t", 0, "a").sent("t", 0, 0)
    raftlog_history.begin(seats, "poll").ok({"t/0": [[0, "a"]]})
"""


def test_what_a_failed_test_leaves_is_where_its_output_says(tmp_path):
    once = their_run(tmp_path, FAILING, "-n", "2")
    assert "2 failed, 1 passed" in once
    # Where CI is set, pytest repeats whole messages in its summary.
    failures, _, _ = once.partition("short test summary info")
    assert failures.count("lost-write (1)") == 1
    assert "During handling" not in once
    kept = re.findall(r"^(history|report): (.+)$", once, re.M)
    assert len(kept) >= 4
    for _, place in kept:
        assert Path(place).stat().st_size > 0
    # The test that passed has left nothing.
    folders = {Path(place).parent for _, place in kept}
    assert set((tmp_path / "raftlog-failures").iterdir()) == folders
    (seed,) = set(re.findall(r"--raftlog-seed=(\d+)", once))
    again = their_run(tmp_path, FAILING, "--raftlog-seed", seed)
    assert sorted(re.findall(r"^dice \d+$", once, re.M)) == sorted(
        re.findall(r"^dice \d+$", again, re.M)
    )
    assert len(set(re.findall(r"^dice \d+$", again, re.M))) == 2


RECORDED = """
def test_that_fails(raftlog_own_cluster):
    raise AssertionError("no order came")


def test_that_passes(raftlog_own_cluster):
    assert raftlog_own_cluster.recordings is not None
"""


def test_a_failed_test_leaves_the_recording_of_its_cluster(tmp_path):
    said = their_run(tmp_path, RECORDED, "--raftlog-record")
    assert "1 failed, 1 passed" in said
    (folder,) = re.findall(r"^replay: raftlog incident replay (.+)$", said, re.M)
    replayed = subprocess.run(
        [sys.executable, "-m", "raftlog", "incident", "replay", folder],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (replayed.returncode, replayed.stderr) == (0, "")
    assert replayed.stdout.startswith("equal\nn1-boot1: ")
    assert len(list((tmp_path / "raftlog-failures").iterdir())) == 1
