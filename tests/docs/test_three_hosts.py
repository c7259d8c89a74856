"""The guide to three brokers on three hosts, played with three brokers on one machine.

Names of hosts become addresses of the loopback interface, folders become ones of the test, and the
ports are free ones. All else is taken from the page as it stands.
"""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from tests.docs.test_guides import blocks
from tests.tidy.tree import ROOT

pytestmark = [pytest.mark.processes, pytest.mark.slow]

PAGE = "three_hosts.md"
NODES = (1, 2, 3)
COMMAND = [sys.executable, "-m", "raftlog"]
SECONDS = 120


@pytest.fixture
def place(tmp_path):
    """From a text of the page and a node to what that node uses in this test."""
    ports = iter(free_ports(3 * len(NODES)))
    client, peer = ({node: next(ports) for node in NODES} for _ in range(2))
    admin = {node: next(ports) for node in NODES}

    def placed(text: str, node: int) -> str:
        text = re.sub(r"log(\d):9092", lambda m: f"127.0.0.1:{client[int(m[1])]}", text)
        text = re.sub(r"log(\d):9192", lambda m: f"127.0.0.1:{peer[int(m[1])]}", text)
        text = text.replace("127.0.0.1:9644", f"127.0.0.1:{admin[node]}")
        return text.replace("/etc/raftlog", f"{tmp_path}/etc{node}").replace(
            "/var/lib/raftlog", f"{tmp_path}/lib{node}"
        )

    for node in NODES:
        (tmp_path / f"etc{node}").mkdir()
        (text,) = blocks(PAGE, "properties")
        text = text.replace("node.id=1", f"node.id={node}")
        for setting in ("listeners=PLAINTEXT://log1", "raftlog.peer.listener=log1"):
            assert setting in text
            text = text.replace(setting, setting.replace("log1", f"log{node}"))
        (tmp_path / f"etc{node}/broker.properties").write_text(placed(text, node))
    return placed


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def shell(text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a block of the page, with `raftlog` on the PATH."""
    program = folder / "raftlog"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m raftlog "$@"\n')
    program.chmod(0o755)
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        ["sh", "-e", "-c", text],
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


def served(place, node: int, log: Path) -> subprocess.Popen[bytes]:
    config = place("/etc/raftlog/broker.properties", node)
    with log.open("wb") as output:
        return subprocess.Popen([*COMMAND, "serve", "--config", config], stderr=output, cwd=ROOT)


def until_it_answers(admin: str) -> None:
    """Two of three are enough for the status to be good. The third may still import Python modules
    then, and a signal ends it before it can stop gracefully."""
    deadline = time.monotonic() + SECONDS
    while True:
        try:
            with urllib.request.urlopen(f"http://{admin}/livez", timeout=SECONDS) as answer:
                assert answer.status == 200
                return
        except OSError:
            assert time.monotonic() < deadline, f"{admin} does not answer"
            time.sleep(0.05)


def test_the_page_founds_a_cluster(tmp_path, place):
    (secret,), (found,), (status,) = (blocks(PAGE, kind) for kind in ("secret", "format", "status"))
    assert (
        shell(place(secret.replace("chown raftlog", "chown $(id -un)"), 1), tmp_path).stderr == ""
    )
    for node in NODES[1:]:
        Path(place("/etc/raftlog/secret", node)).write_bytes(
            (tmp_path / "etc1/secret").read_bytes()
        )
        Path(place("/etc/raftlog/secret", node)).chmod(0o600)
    ids = json.loads(shell("raftlog format --random --format json", tmp_path).stdout)
    found = found.replace("CLUSTER", ids["cluster_id"])
    for node, directory in zip(NODES, ids["directory_ids"], strict=True):
        found = found.replace(f"DIRECTORY{node}", directory)
    brokers = []
    try:
        for node in NODES:
            Path(place("/var/lib/raftlog", node)).mkdir()
            done = shell(place(found, node), tmp_path)
            assert done.returncode == 0, done.stderr
            brokers.append(served(place, node, tmp_path / f"log{node}"))
        done = shell(place(status, 1), tmp_path)
        assert done.returncode == 0, (done.stdout, done.stderr)
        for node in NODES:
            until_it_answers(place("127.0.0.1:9644", node))
    finally:
        for broker in brokers:
            broker.send_signal(signal.SIGTERM)
        codes = [broker.wait(SECONDS) for broker in brokers]
    assert codes == [0, 0, 0]


def test_a_founder_without_format_names_the_command(tmp_path, place):
    secret = Path(place("/etc/raftlog/secret", 1))
    secret.write_bytes(b"0" * 32)
    secret.chmod(0o600)
    log = tmp_path / "log"
    broker = served(place, 1, log)
    try:
        while b"join-failed" not in log.read_bytes():
            assert broker.poll() is None, log.read_text()
    finally:
        broker.kill()
        broker.wait()
    (said,) = [line for line in log.read_text().splitlines() if '"joining"' in line]
    assert "if the cluster is new, stop this broker and found the cluster by raftlog format" in said


def test_a_sole_controller_without_format_does_not_wait(tmp_path, place):
    """There is no other controller that could ever answer."""
    secret = Path(place("/etc/raftlog/secret", 1))
    secret.write_bytes(b"0" * 32)
    secret.chmod(0o600)
    config = Path(place("/etc/raftlog/broker.properties", 1))
    config.write_text(re.sub(r",2@.*", "", config.read_text()))
    done = shell(f"raftlog serve --config {config}", tmp_path)
    assert done.returncode == 1
    assert "is not formatted, and no other controller is configured" in done.stderr
    assert "raftlog format" in done.stderr
