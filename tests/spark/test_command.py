"""`raftlog spark verify`: what it shows while it works, and one line for what goes wrong."""

import json
import os
import pty
import socket
import subprocess
import sys
import threading

import pytest
from pyspark.errors import ParseException

from raftlog.base.errors import OperatingError
from raftlog.cli.main import run
from raftlog.cli.output.spark_progress import tasks_of
from raftlog.spark.connector.one_line import as_ours
from tests.spark.test_verify_job import run_and_write

pytestmark = [
    pytest.mark.processes,
    pytest.mark.needs_command("java"),
    pytest.mark.filterwarnings("ignore"),
]


@pytest.fixture
def history(tmp_path):
    """An empty one: what is wrong is found before it is read."""
    path = tmp_path / "history.jsonl"
    path.write_text("")
    return str(path)


def test_no_java_no_broker_and_no_topic_are_one_line_each(
    history, cluster, monkeypatch, capsys, tmp_path
):
    """Each with a line of advice, before Spark is started: without a broker the command was silent
    for two minutes."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        nowhere = f"127.0.0.1:{closed.getsockname()[1]}"
    asked = ["spark", "verify", "--history", history, "--topic", "nothing", "-b"]
    assert run([*asked, nowhere]) == 1
    said = capsys.readouterr().err.splitlines()
    assert said[-2].startswith("raftlog: no broker accepts a connection")
    assert run([*asked, cluster.bootstrap_servers]) == 1
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "raftlog: the topic does not exist (nothing)"
    assert len(said) == 2
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert run([*asked, cluster.bootstrap_servers]) == 1
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "raftlog: there is no Java (Spark)"
    assert len(said) == 2


@pytest.mark.slow
def test_a_terminal_shows_the_steps(cluster, topic, tmp_path):
    run_and_write(cluster, topic, tmp_path / "history.jsonl")
    command = [sys.executable, "-m", "raftlog", "spark", "verify", "--format", "json"]
    command += ["-b", cluster.bootstrap_servers, "--topic", topic, "--history", str(tmp_path)]
    mine, terminal = pty.openpty()
    shown = bytearray()
    reader = threading.Thread(target=read_all, args=(mine, shown))
    reader.start()
    try:
        done = subprocess.run(
            command, check=False, stdout=subprocess.PIPE, stderr=terminal, timeout=230
        )
    finally:
        os.close(terminal)
        reader.join()
        os.close(mine)
    text = shown.decode(errors="replace")
    assert done.returncode == 0, text[-3000:]
    assert json.loads(done.stdout)["verdict"] == "valid"
    for step in ("starting Spark", "reading the history", f"comparing {topic} with its history"):
        assert step in text


def read_all(terminal, into):
    """Read what a terminal is sent, until its other end is closed."""
    while True:
        try:
            piece = os.read(terminal, 1 << 16)
        except OSError:  # Linux: the last writer is gone
            return
        if not piece:
            return
        into += piece


def test_tasks_of_what_runs_are_counted(spark):
    tracker = spark.sparkContext.statusTracker()
    assert tasks_of(tracker) == ""
    seen = []
    running = threading.Thread(target=lambda: seen.append(slow_job(spark)))
    running.start()
    while not seen:
        told = tasks_of(tracker)
        if told:
            seen.append(told)
    running.join()
    assert seen[0] in ("0 of 2 tasks", "1 of 2 tasks")


def slow_job(spark):
    """Two tasks of a second."""

    def wait(_rows):
        import time

        time.sleep(1)
        return iter(())

    return spark.sparkContext.parallelize(range(2), 2).mapPartitions(wait).count()


def test_what_a_worker_tells_is_raised_as_our_error(spark, read):
    with pytest.raises(OperatingError) as told, as_ours():
        read(subscribe="nosuch").count()
    assert str(told.value) == "the topic does not exist (nosuch): raftlog topics create nosuch"
    with pytest.raises(ParseException), as_ours():
        spark.sql("SELEKT 1")
