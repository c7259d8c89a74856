"""A broker that may open few files keeps half of them for its log, its peers and its operator.

The fault: clients could take all of them, and the next roll of a segment or election failed.
"""

import json
import socket
import subprocess
import sys

import pytest

from raftlog.client.blocking import BlockingClient

pytestmark = [pytest.mark.processes, pytest.mark.slow]

OPEN_FILES = 240
FLOOD = 400


@pytest.fixture
def bootstrap(tmp_path):
    """One broker in a process that may open few files."""
    up = f"-m raftlog up --brokers 1 --port 0 --detach --format json --dir {tmp_path / 'data'}"
    limited = f"ulimit -n {OPEN_FILES} && exec {sys.executable} {up}"
    told = subprocess.run(["sh", "-c", limited], check=True, capture_output=True, text=True)
    yield json.loads(told.stdout)["bootstrap_servers"], tmp_path / "data"
    down = [sys.executable, "-m", "raftlog", "down", "--dir", str(tmp_path / "data")]
    subprocess.run(down, check=True, capture_output=True)


def test_connections_leave_files_to_the_log(bootstrap):
    servers, data = bootstrap
    host, port = servers.rsplit(":", 1)
    opened = []
    with BlockingClient(servers) as client:
        client.create_topic("before", partitions=1, replication_factor=1)
        client.produce("before", b"x")
        try:
            opened.extend(
                socket.create_connection((host, int(port)), timeout=10) for _ in range(FLOOD)
            )
            client.create_topic("beside", partitions=30, replication_factor=1)
            for partition in range(30):
                client.produce("beside", b"x", partition=partition)
        finally:
            for each in opened:
                each.close()
    said = "".join(path.read_text() for path in data.glob("*.log"))
    assert "connections-limited-by-files" in said
    assert "accept-failed" not in said
