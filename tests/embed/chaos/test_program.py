"""The user's program beside a run: shown, judged by its exit code, and gone at the end."""

import io
import os
import time

import pytest

from raftlog.embed.chaos import program
from raftlog.embed.chaos.program import Program

pytestmark = pytest.mark.processes


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture
def start(tmp_path):
    started = []

    def begin(command: str, **environment: str) -> tuple[Program, io.BytesIO]:
        shown = io.BytesIO()
        begun = Program(command, environment, tmp_path / "program.txt", shown)
        started.append(begun)
        return begun, shown

    yield begin
    for each in started:
        each.end()


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ("exit 0", ""),
        ("exit 3", "it ended with 3"),
        ("kill -9 $$", "SIGKILL ended it"),
        ("no-such-program-at-all", "it ended with 127"),
    ],
)
def test_how_it_ended(start, command, problem):
    begun, _ = start(command)
    assert begun.wait(30) == problem


def test_its_output_is_shown_and_kept(start, tmp_path, monkeypatch):
    monkeypatch.setattr(program, "OUTPUT_BYTES_MAX", 7)
    begun, shown = start("echo to $RAFTLOG_TOPIC; echo wrong >&2", RAFTLOG_TOPIC="work")
    assert begun.wait(30) == ""
    begun.end()
    assert shown.getvalue() == b"to work\nwrong\n"
    assert (tmp_path / "program.txt").read_bytes() == b"to work"


def test_one_that_does_not_end_is_ended_with_all_that_it_started(start, tmp_path, monkeypatch):
    monkeypatch.setattr(program, "_END_SECONDS", 0.2)
    command = f"trap '' TERM; sleep 600 & echo $! > {tmp_path}/pid; echo ready; wait; sleep 600"
    begun, shown = start(command)
    deadline = time.perf_counter() + 30
    while b"ready" not in shown.getvalue():
        assert time.perf_counter() < deadline
        time.sleep(0.01)
    child = int((tmp_path / "pid").read_text())
    assert begun.wait(0.1) == "it did not end in time"
    begun.end()
    assert begun.code == -9
    while alive(child):
        assert time.perf_counter() < deadline
        time.sleep(0.01)
