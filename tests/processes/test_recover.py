"""Two of three data directories are gone: `raftlog recover` on the third, then it serves."""

import json
import shutil
import subprocess
import sys

import pytest

from raftlog.runtime.local import cluster as local_cluster
from tests.processes.load import Load, make_topic, read_all

pytestmark = [pytest.mark.processes, pytest.mark.slow]

PARTITIONS = 2
RECORDS = 200


def recover(cluster, *more):
    command = [sys.executable, "-m", "raftlog", "recover", str(cluster.data_path(3))]
    lost = ["--lost", "1", "--lost", "2"]
    arguments = [*command, *lost, *more]
    return subprocess.run(arguments, check=False, capture_output=True, text=True, timeout=60)


def test_the_third_of_three_serves_what_was_acknowledged_and_takes_more(tmp_path):
    cluster = local_cluster.found(tmp_path / "cluster", brokers=3)
    try:
        cluster.start_all()
        make_topic(cluster.bootstrap_servers, PARTITIONS)
        with Load(cluster.bootstrap_servers, PARTITIONS, "before") as load:
            load.wait_for(RECORDS)
        acknowledged = dict(load.acknowledged)
        beside = recover(cluster, "--accept-data-loss")
        assert (beside.returncode, "in use by another process" in beside.stderr) == (1, True)
        for node in (1, 2, 3):
            cluster.terminate(node)
        for node in (1, 2):
            shutil.rmtree(cluster.data_path(node))
        told = recover(cluster)
        assert told.returncode == 0, told.stderr
        assert "nothing was given up; --accept-data-loss does it" in told.stdout
        done = json.loads(recover(cluster, "--accept-data-loss", "--format", "json").stdout)
        assert [group["action"] for group in done["groups"]] == ["forced"] * (PARTITIONS + 1)
        cluster.restart(3)
        found = read_all(cluster.bootstrap_servers, PARTITIONS)
        assert [place for place, value in acknowledged.items() if found.get(place) != value] == []
        with Load(cluster.bootstrap_servers, PARTITIONS, "after") as load:
            load.wait_for(RECORDS)
    finally:
        cluster.stop()
