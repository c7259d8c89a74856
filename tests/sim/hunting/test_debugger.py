"""The debugger: forwards, backwards, and the same state at the same turn."""

import io
import json

import pytest
from raftlog_sim.__main__ import main
from raftlog_sim.commands.debug import obey
from raftlog_sim.hunting.debugger import Debugger
from raftlog_sim.schedules.drawing import draw_schedule
from raftlog_sim.schedules.options import SimOptions
from raftlog_sim.schedules.schedule import step

from raftlog.base.errors import OperatingError


@pytest.fixture
def debugger():
    schedule = draw_schedule(SimOptions(seed=5, safety_ms=150))
    crash = step(60, "crash", 40, node="leader:0")
    return Debugger(schedule.with_steps([*schedule.steps, crash]))


def test_back_is_the_same_place(debugger):
    debugger.next(120)
    there, state = debugger.where(), debugger.state()
    debugger.next(40)
    assert debugger.position == 160
    assert debugger.diff()
    debugger.back(40)
    assert debugger.where() == there
    assert debugger.state() == state


def test_back_stops_at_the_beginning(debugger):
    debugger.next(3)
    debugger.back(10)
    assert debugger.position == 0
    assert debugger.where() == "turn 0 at 0.000 ms, set-up"


def test_until_a_fault_strikes(debugger):
    debugger.until(["phase", "safety"])
    assert not debugger.ended
    debugger.until(["fault"])
    down = [key for key, text in debugger.state().items() if text.startswith("down")]
    assert len(down) == 1


def test_until_an_event_and_its_node(debugger):
    debugger.until(["event", "LinkUp"])
    assert "LinkUp" in debugger.where()
    debugger.until(["node", "n3"])
    assert ": n3 took" in debugger.where()


def test_to_the_end_and_what_it_says(debugger):
    debugger.until(["end"])
    assert debugger.ended.startswith("over; every invariant holds")
    at = debugger.position
    debugger.next(5)
    assert debugger.position == at


def test_until_a_leader(debugger):
    debugger.until(["phase", "safety"])
    [leader] = {
        key.split()[0]
        for key, text in debugger.state().items()
        if "group 1" in key and text.startswith("leader")
    }
    debugger.back(debugger.position)
    debugger.until(["leader", leader])
    assert debugger.position > 0
    assert not debugger.ended


@pytest.mark.parametrize("words", [["until"], ["until", "turn", "x"], ["back", "x"], ["jump"]])
def test_a_line_without_sense_is_refused(debugger, words):
    with pytest.raises(OperatingError):
        obey(debugger, words)


def test_what_happens_next_is_in_order(debugger):
    debugger.next(70)
    times = [float(line.split()[0]) for line in debugger.queue(8)]
    assert times == sorted(times)
    assert len(times) == 8


def test_state_of_one_node(debugger):
    debugger.next(50)
    assert all(key.startswith("n2") for key in debugger.state("n2"))


def test_commands_come_from_a_pipe(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    script = "next 4\n\n# a comment\nwhere\nshow\nnonsense\nquit\nnext 9\n"
    monkeypatch.setattr("sys.stdin", io.StringIO(script))
    assert main(["debug", "--seed", "3", "--format", "json"]) == 0
    answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [each["command"] for each in answers] == ["next 4", "where", "show", "nonsense"]
    assert all(each["turn"] == 4 for each in answers)
    assert "no command" in answers[-1]["answer"][0]


def test_guests_cannot_be_stepped(capsys):
    assert main(["debug", "--seed", "3", "--subject", "pysyncobj"]) == 64
    assert "trace.txt" in capsys.readouterr().err
