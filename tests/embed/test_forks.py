"""Processes that are forked while clients, logs and clusters are open: those stay the parent's.

The story: a call in the child waited for ever for a thread that only the parent has. A child that
ended removed the folder in which its parent's brokers wrote.
"""

import subprocess
import sys

import pytest

pytestmark = [pytest.mark.processes, pytest.mark.timeout(120)]

FORKS = """
import os, sys
import raftlog
from raftlog.client.blocking import BlockingClient
from raftlog.client.blocking_consumer import BlockingConsumer

def refused(*calls):
    for call in calls:
        try:
            print("not refused:", call())
        except raftlog.base.errors.LocalMisuse as error:
            print("refused:", error)

def child(leave):
    told = os.fork()
    if told == 0:
        return True
    _, status = os.waitpid(told, 0)
    print(leave, os.waitstatus_to_exitcode(status), flush=True)
    return False

with (
    raftlog.Cluster(brokers=3, processes=sys.argv[1] == "processes") as cluster,
    BlockingClient(cluster.bootstrap_servers) as client,
    BlockingConsumer(cluster.bootstrap_servers) as consumer,
    raftlog.ReplicatedLog(cluster=cluster) as log,
):
    log.append(b"a")
    own = raftlog.ReplicatedLog(replicas=1)
    own.append(b"a")
    unopened = raftlog.ReplicatedLog(cluster=cluster.bootstrap_servers)
    sys.stdout.flush()
    if child("exit"):
        refused(
            lambda: client.produce("log", b"x"),
            consumer.assignment,
            log.end,
            lambda: list(log.follow()),
            own.end,
            lambda: cluster.kill(1),
        )
        print("of its own:", unopened.append(b"b"), flush=True)
        unopened.close()
        own.close()
        sys.exit(0)
    if child("with"):
        refused(own.__enter__)
        sys.stdout.flush()
        sys.exit(0)
    print(cluster.directory.exists(), cluster.alive, own.cluster.directory.exists())
    print(log.append(b"c"), own.append(b"d"), unopened.append(b"e"))
    unopened.close()
    own.close()
"""


@pytest.mark.parametrize("how", ["inside", "processes"])
def test_a_forked_process_is_refused_and_harms_nothing(how: str):
    ended = subprocess.run(
        [sys.executable, "-c", FORKS, how], capture_output=True, text=True, timeout=100, check=False
    )
    assert ended.returncode == 0, ended.stderr
    lines = ended.stdout.splitlines()
    refused = [line for line in lines if line.startswith("refused: ")]
    assert [line for line in lines if line not in refused] == [
        "of its own: 1",
        "exit 0",
        "with 0",
        "True [1, 2, 3] True",
        "2 1 3",
    ]
    due = ["the client was", "the consumer was", *["the log 'log' was"] * 3]
    due += ["broker 1" if how == "processes" else "the brokers run in", "the log 'log' was"]
    assert [what in line for line, what in zip(refused, due, strict=True)] == [True] * 7, refused
