"""The plugin as its users have it: in a pytest run of their own, named by a conftest.py.

A run of its own also keeps its cluster, which lives for the whole run, out of the process in which
other tests patch the product's classes.
"""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftlog.embed.pytest_plugin import topic_name
from raftlog.metadata.topic_names import topic_name_problem

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


@pytest.mark.processes
def test_faults_of_a_test_end_with_it_and_are_reported(tmp_path):
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_theirs.py").write_text(FAULTS)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "test_theirs.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "1 failed, 1 passed" in done.stdout, done.stdout
    assert 'used 1 time, brokers 1, 2, 3: {"do": "error", "on": "Produce"' in done.stdout


@pytest.mark.processes
def test_a_run_of_ones_own(tmp_path):
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_theirs.py").write_text(TESTS)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "test_theirs.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "5 passed" in done.stdout, done.stdout


@given(st.text(max_size=300), st.text(max_size=300))
def test_names_are_allowed_and_differ(one, other):
    assert topic_name_problem(topic_name(one)) is None
    assert (topic_name(one) == topic_name(other)) == (one == other)
