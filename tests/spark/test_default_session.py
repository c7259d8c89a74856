"""The first hour: sessions that Spark makes by itself, with nothing of ours in their settings.

`local_session` sets what the source needs, and the other tests use it; so a default session could
not read at all (filter pushdown is off there, and Spark refused the reader), and nothing showed it.
Each test here starts Spark in a process of its own, as a user would.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from raftlog.base.errors import OperatingError

pytestmark = [
    pytest.mark.processes,
    pytest.mark.slow,
    pytest.mark.needs_command("java"),
    pytest.mark.filterwarnings("ignore"),
]

TRACE_LINES_MAX = 30
"""Lines of an error of ours, with the caller's own frames and Spark's: it was up to 79."""

MADE_BEFORE_THE_IMPORT = """
import json, sys, traceback
from pyspark.sql import SparkSession

spark = SparkSession.builder.config("spark.ui.enabled", "false").getOrCreate()
import raftlog.spark

raftlog.spark.register(spark)
servers, topic = sys.argv[1:]
found = {"python": spark.sparkContext.pythonExec}


def table(**options):
    options = {"kafka.bootstrap.servers": servers, "subscribe": topic, **options}
    return spark.read.format("raftlog").options(**options).load()


def write(frame, name):
    writer = frame.write.format("raftlog").option("kafka.bootstrap.servers", servers)
    writer.option("topic", name).mode("append").save()


def stream(**options):
    options = {"kafka.bootstrap.servers": servers, "subscribe": topic, **options}
    rows = spark.readStream.format("raftlog").options(**options).load()
    query = rows.writeStream.format("noop").trigger(availableNow=True).start()
    query.awaitTermination(100)


rows = spark.range(100).selectExpr("CAST(id AS STRING) AS value", "CAST(id AS STRING) AS key")
write(rows, topic)  # which does not exist
for pushdown in ("false", "true"):
    spark.conf.set("spark.sql.python.filterPushdown.enabled", pushdown)
    first = table().where("offset = 0")
    found[pushdown] = [table().count(), first.count(), first.rdd.getNumPartitions()]
refused = {
    "topic": lambda: table(subscribe=topic + "-none").count(),
    "option": lambda: table(startingOfsets="earliest").count(),
    "frame": lambda: write(spark.range(3), topic),
    "task": lambda: write(rows.selectExpr("value", "77 AS partition"), topic),
    "stream": lambda: stream(endingOffsets="latest"),
    "stream topic": lambda: stream(subscribe=topic + "-none"),
}
found["errors"] = {}
for name, attempt in refused.items():
    try:
        attempt()
    except Exception as error:
        found["errors"][name] = "".join(traceback.format_exception(error))
print(json.dumps(found))
"""

IN_THE_SHELL = """
table = spark.read.format("raftlog").option("kafka.bootstrap.servers", {servers!r})
table = table.option("subscribe", {topic!r}).load()
print("found", table.count(), table.where("offset < 3").count())
"""


def environment(folder: Path | None) -> dict[str, str]:
    """Nothing that tells Spark of our Python; `folder` comes first in the path, as a virtual
    environment that is active does."""
    java = Path(shutil.which("java") or "java").parent
    path = [str(folder)] if folder is not None else []
    kept = {name: os.environ[name] for name in ("HOME", "JAVA_HOME") if name in os.environ}
    return {**kept, "PATH": ":".join([*path, str(java), "/usr/bin", "/bin"])}


def finish(command: list[str], folder: Path, env: dict[str, str], text: str = "") -> str:
    """Run a process in a folder without raftlog, which any Python would find there; what it
    printed."""
    done = subprocess.run(
        command,
        check=False,
        capture_output=True,
        text=True,
        timeout=230,
        env=env,
        input=text,
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_a_session_made_before_the_import(cluster, topic, tmp_path):
    """Without PYSPARK_PYTHON and without an active virtual environment, so that Spark would start
    the system's Python; with pushdown off and on; a topic that the sink creates."""
    servers = cluster.bootstrap_servers
    command = [sys.executable, "-c", MADE_BEFORE_THE_IMPORT, servers, topic]
    found = json.loads(finish(command, tmp_path, environment(None)).splitlines()[-1])
    assert found["python"] == sys.executable
    partitions = found["true"][1]
    assert partitions >= 1
    assert found["false"] == found["true"] == [100, partitions, partitions]
    said = {
        "topic": "the topic does not exist",
        "option": "did you mean startingOffsets",
        "frame": "the column value is missing",
        "task": "UNKNOWN_TOPIC_OR_PARTITION",
        "stream": "a stream has no end",
        "stream topic": "the topic does not exist",
    }
    assert sorted(found["errors"]) == sorted(said)
    for name, text in said.items():
        error = found["errors"][name]
        assert text in error, error
        assert len(error.splitlines()) < TRACE_LINES_MAX, error
        assert "raftlog/spark" not in error, error  # no frames of ours


def test_the_shell_finds_the_source_by_itself(cluster, topic, fill, tmp_path):
    fill(topic, partitions=2, count=10)
    folder = Path(sys.executable).parent
    env = environment(folder) | {"PYSPARK_DRIVER_PYTHON_OPTS": "-i"}
    text = IN_THE_SHELL.format(servers=cluster.bootstrap_servers, topic=topic)
    assert "found 20 6" in finish([str(folder / "pyspark")], tmp_path, env, text)


def test_a_chosen_python_without_raftlog_is_named(spark, tmp_path):
    """Spark's own message is a trace that ends in "No module named 'raftlog'"."""
    from raftlog.spark import register

    context = spark.sparkContext
    kept = context.pythonExec
    other = tmp_path / "python3"
    other.write_text("#!/bin/sh\nexit 1\n")
    other.chmod(0o755)
    try:
        for chosen in (str(other), str(tmp_path / "none")):
            context.pythonExec = chosen
            with pytest.raises(OperatingError, match=f"run {chosen}, which has no raftlog") as told:
                register(spark)
            assert told.value.on == "PYSPARK_PYTHON"
            assert f"export PYSPARK_PYTHON={sys.executable}" in told.value.do
        context.pythonExec = "python3"
        register(spark)
        assert context.pythonExec == sys.executable
    finally:
        context.pythonExec = kept
