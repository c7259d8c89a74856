"""Executors in processes of their own; and Spark's own Kafka connector on the same topic.

The connector is not on PyPI. RAFTLOG_KAFKA_CONNECTOR names it: a folder of JARs (docs/testing.md
says how to fill one), or the first of the Maven coordinates in `raftlog.spark.versions`: Spark
fetches what it needs beside it. Without, that test is skipped.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.processes,
    pytest.mark.slow,
    pytest.mark.needs_command("java"),
    pytest.mark.filterwarnings("ignore"),
]

CONNECTOR = os.environ.get("RAFTLOG_KAFKA_CONNECTOR", "")

SCRIPT = """
import json, sys
from raftlog.spark import local_session
master, form, servers, topic, settings = sys.argv[1:]
settings = json.loads(settings)
settings["spark_executor_memory"] = "512m"
spark = local_session(master, memory="512m", spark_ui_showConsoleProgress="false", **settings)
table = (
    spark.read.format(form)
    .option("kafka.bootstrap.servers", servers)
    .option("subscribe", topic)
    .option("includeHeaders", "true")
    .load()
)
assert table.schema == spark.read.format("raftlog").options(
    **{"kafka.bootstrap.servers": servers, "subscribe": topic, "includeHeaders": "true"}
).load().schema
rows = table.selectExpr(
    "partition", "offset", "CAST(key AS STRING)", "CAST(value AS STRING)",
    "CAST(timestamp AS STRING)", "timestampType", "to_json(headers) AS headers",
).orderBy("partition", "offset")
print(json.dumps([list(row) for row in rows.collect()]))
"""


def connector() -> dict[str, str]:
    """The settings with which Spark loads it."""
    folder = Path(CONNECTOR)
    if folder.is_dir():
        return {"spark_jars": ",".join(str(jar) for jar in sorted(folder.glob("*.jar")))}
    return {"spark_jars_packages": CONNECTOR}


def read_by(form: str, master: str, servers: str, topic: str, settings: dict[str, str]) -> list:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, master, form, servers, topic, json.dumps(settings)],
        check=False,
        capture_output=True,
        text=True,
        timeout=230,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_executors_in_processes_of_their_own(cluster, fill, topic):
    fill(topic, partitions=4, count=50)
    found = read_by("raftlog", "local-cluster[2,1,512]", cluster.bootstrap_servers, topic, {})
    assert [(row[0], row[1], row[3]) for row in found] == [
        (partition, offset, f"{partition}:{offset}")
        for partition in range(4)
        for offset in range(50)
    ]


@pytest.mark.skipif(not CONNECTOR, reason="RAFTLOG_KAFKA_CONNECTOR names no connector")
def test_sparks_own_connector_reads_the_same(cluster, fill, topic):
    fill(topic, partitions=3, count=20)
    servers = cluster.bootstrap_servers
    theirs = read_by("kafka", "local[2]", servers, topic, connector())
    assert theirs == read_by("raftlog", "local[2]", servers, topic, {})
    assert len(theirs) == 60
