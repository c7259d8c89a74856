"""Executors in processes of their own. `scripts/strangers` compares us with Spark's connector."""

import json
import subprocess
import sys

import pytest

pytestmark = [
    pytest.mark.processes,
    pytest.mark.slow,
    pytest.mark.needs_command("java"),
    pytest.mark.filterwarnings("ignore"),
]

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
