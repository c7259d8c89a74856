"""The snippets of the guides run: Python in this process, commands in a shell."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from raftlog.embed.cluster import Cluster
from tests.tidy.tree import ROOT

pytestmark = pytest.mark.processes

GUIDES = ROOT / "docs" / "guides"


def blocks(page: str, language: str) -> list[str]:
    """The fenced blocks of a page in a language."""
    found, block = [], None
    for line in (GUIDES / page).read_text(encoding="utf-8").splitlines():
        if block is None and line == f"```{language}":
            block = []
        elif block is not None and line == "```":
            found.append("\n".join(block) + "\n")
            block = None
        elif block is not None:
            block.append(line)
    return found


def run_python(text: str, page: str, **names: object) -> None:
    exec(compile(text, page, "exec"), {"__name__": "__guide__", **names})


@pytest.mark.parametrize("at", range(len(blocks("embed.md", "python"))))
def test_embed(at):
    run_python(blocks("embed.md", "python")[at], "embed.md")


@pytest.mark.parametrize("at", range(len(blocks("fault_verbs.md", "python"))))
def test_fault_verbs(at):
    run_python(blocks("fault_verbs.md", "python")[at], "fault_verbs.md")


@pytest.mark.needs_command("curl")
def test_faults_over_the_admin_listener(tmp_path: Path):
    (snippet,) = blocks("fault_verbs.md", "sh")
    assert run_shell([snippet], tmp_path, "") == ""


def test_client():
    snippets = blocks("client.md", "python")
    assert len(snippets) >= 5
    with Cluster(brokers=3) as cluster:
        for snippet in snippets:
            run_python(snippet, "client.md", bootstrap=cluster.bootstrap_servers)


def test_groups(tmp_path: Path):
    """Python and shell use the same topic and groups, so they share a cluster."""
    snippets = blocks("groups.md", "python")
    assert len(snippets) >= 3
    with Cluster(brokers=3) as cluster:
        for snippet in snippets:
            run_python(snippet, "groups.md", bootstrap=cluster.bootstrap_servers)
        told = run_shell(blocks("groups.md", "sh"), tmp_path, cluster.bootstrap_servers)
    # Kafka's tool says this on standard error too.
    assert told.strip() == "Consumer group 'shell' has no active members."


def test_command_line(tmp_path: Path):
    snippets = blocks("command_line.md", "sh")
    assert len(snippets) >= 3
    with Cluster(brokers=3) as cluster:
        assert run_shell(snippets, tmp_path, cluster.bootstrap_servers) == ""


def test_topics_as_files(tmp_path: Path):
    with Cluster(brokers=1) as cluster:
        told = run_shell(blocks("topic_files.md", "sh"), tmp_path, cluster.bootstrap_servers)
    assert told == ""
    (snippet,) = blocks("topic_files.md", "python")
    (tmp_path / "test_orders.py").write_text(snippet)
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_orders.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert "1 passed" in ran.stdout, ran.stdout + ran.stderr


@pytest.mark.slow
def test_chaos(tmp_path: Path):
    for name, language in (("leader-dies.txt", "scenario"), ("shop.py", "python")):
        (snippet,) = blocks("chaos.md", language)
        (tmp_path / name).write_text(snippet)
    (tmp_path / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (tmp_path / "python").chmod(0o755)
    told = run_shell(blocks("chaos.md", "sh"), tmp_path, "")
    assert "300 of 300 orders are in the log" in told
    assert 'failures="0"' in (tmp_path / "chaos.xml").read_text()


def test_incidents(tmp_path: Path):
    (snippet,) = blocks("incidents.md", "python")
    (tmp_path / "shop.py").write_text(snippet)
    (tmp_path / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (tmp_path / "python").chmod(0o755)
    assert run_shell(blocks("incidents.md", "sh"), tmp_path, "") == ""


def run_shell(snippets: list[str], tmp_path: Path, bootstrap: str) -> str:
    """Run each; what they wrote to standard error."""
    program = tmp_path / "raftlog"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m raftlog "$@"\n')
    program.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "RAFTLOG_BOOTSTRAP_SERVER": bootstrap,
        "PYTHONPATH": str(ROOT),
    }
    told = ""
    for snippet in snippets:
        done = subprocess.run(
            ["sh", "-e", "-c", snippet],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
        assert done.returncode == 0, (snippet, done.stdout, done.stderr)
        told += done.stderr
    return told
