"""The user's program beside a run: shown, judged by its exit code, and gone at the end."""

import io
import os
import signal
import threading
import time
from types import SimpleNamespace

import pytest

from raftlog.embed.chaos import program, run
from raftlog.embed.chaos.program import Program, interrupts_held

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


def test_an_interrupt_while_the_program_starts_ends_it(tmp_path, monkeypatch):
    """The story: a Ctrl-C between the start of the program and the note that it runs ended the run
    and left the program behind."""
    command = f"sleep 615; : {tmp_path}"
    asked = SimpleNamespace(
        command=command, folder=tmp_path, shown=io.BytesIO(), plan=SimpleNamespace(seed=1)
    )
    started, start = [], threading.Thread.start

    def interrupted(thread):
        signal.raise_signal(signal.SIGINT)
        start(thread)

    class Watched(Program):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            started.append(self)

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    monkeypatch.setattr(run, "Program", Watched)
    with pytest.raises(KeyboardInterrupt), run._program(asked, "127.0.0.1:1"):
        raise AssertionError("the interrupt comes before")
    (program,) = started
    assert program.code is not None, "it is ended"


def test_interrupts_that_are_held_come_once_and_ignored_ones_stay_ignored():
    seen = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: seen.append(number))
    ignored = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with interrupts_held():
            signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGINT)
            assert seen == []
        assert seen == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, before)
        signal.signal(signal.SIGINT, ignored)
