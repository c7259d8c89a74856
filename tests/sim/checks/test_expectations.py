"""A scenario of somebody's own says what it needs, what struck nothing, and what it expects.

The story: a file that paused and crashed node 9 of three ended with `ok`, as it expected, though
nothing had happened to any node. Its `=>` lines were not looked at, either.
"""

import json

import pytest
from raftlog_sim.__main__ import main
from raftlog_sim.checks.invariants import Invariants
from raftlog_sim.playing import scenario_files

from raftlog.base.errors import OperatingError

STEPS = """# mine
set safety_ms 400
100 produce slot=0 partition=0 count=2
{steps}
"""


@pytest.fixture
def replay(tmp_path, capsys):
    def play(steps, *expected, more=()):
        path = tmp_path / "mine.txt"
        path.write_text(STEPS.format(steps=steps) + "".join(f"=> {line}\n" for line in expected))
        code = main(["replay", str(path), "--no-folder", *more])
        return code, capsys.readouterr()

    return play


@pytest.mark.parametrize(
    ("steps", "missing"),
    [
        ("200 pause node=n9 for 50", "no node n9: this run has n1 to n3"),
        ("200 crash node=n1+n4 for 50", "no node n4"),
        ("200 pause node=leader:1 for 50", "no partition 1: this run has 0 to 0"),
        ("200 produce slot=0 partition=3 count=1", "no partition 3"),
        ("200 partition side=n5 how=loud for 50", "no node n5"),
    ],
)
def test_a_step_that_names_what_there_is_not_is_an_error(steps, missing, replay):
    code, said = replay(steps, "ok", more=("--format", "json"))
    assert code == 64
    error = json.loads(said.err)["error"]
    assert missing in error["what"]
    assert error["on"].endswith("line 4")
    for wrong, right in (("n9", "n3"), ("n4", "n2"), ("n5", "n1"), (":1", ":0"), ("=3 ", "=0 ")):
        steps = steps.replace(wrong, right)
    assert replay(steps, "ok")[0] == 0


def test_with_more_of_them_the_step_is_fine():
    text = "# t\nset brokers 5\nset partitions 2\n100 crash node=n5 for 9\n100 read partition=1\n"
    assert scenario_files.read("x", text).case.size == 2


def test_what_struck_nothing_is_said(replay):
    steps = (
        "200 crash node=n1 for 100\n210 pause node=n1 for 20\n399 pause node=n2\n500 pause node=n2"
    )
    code, said = replay(steps, "ok", "struck: crash 1, pause 1")
    assert code == 0
    assert "struck nothing: 2 steps (500 pause node=n2 (after safety_ms); 210" in said.out
    document = json.loads(replay(steps, "ok", more=("--format", "json"))[1].out)
    assert len(document["struck_nothing"]) == 2
    assert document["as_expected"] is True


def test_steps_of_clients_that_did_nothing_are_said_too(replay):
    """They were left out without a word: a member killed that there was not, a late record."""
    steps = (
        "100 consume member=0 group=0 how=eager id=dynamic every_ms=5\n"
        "150 consume member=0 group=0 how=eager id=dynamic every_ms=5\n"
        "200 die member=1\n300 die member=0\n310 commit member=0\n"
        "400 produce slot=0 partition=0 count=1"
    )
    document = json.loads(replay(steps, "ok", more=("--format", "json"))[1].out)
    assert document["struck_nothing"] == [
        "400 produce slot=0 partition=0 count=1 (after safety_ms)",
        "150 consume member=0 group=0 how=eager id=dynamic every_ms=5",
        "200 die member=1",
        "310 commit member=0",
    ]


def test_steps_that_came_after_the_last_event_are_said_too(replay):
    steps = "set events_max 20\n380 crash node=n2\n390 read partition=0"
    document = json.loads(replay(steps, "ok", more=("--format", "json"))[1].out)
    late = ["100 produce slot=0 partition=0 count=2", "380 crash node=n2", "390 read partition=0"]
    assert document["struck_nothing"] == [f"{step} (after events_max)" for step in late]


def test_a_scenario_that_expects_nothing_plays_with_a_note(replay, tmp_path, capsys):
    """It was refused: "neither a schedule (JSON) nor a plan"."""
    code, said = replay("200 crash node=n2 for 50")
    assert code == 0
    assert "nothing was expected: the file has no line that begins with =>" in said.out
    bare = tmp_path / "bare.txt"
    bare.write_text("200 crash node=n2 for 50\n")  # without a story, too
    assert main(["replay", str(bare), "--no-folder"]) == 0
    assert "nothing was expected" in capsys.readouterr().out


def test_what_was_not_expected_fails(replay):
    steps = "200 crash node=n1 for 100"
    assert replay(steps, "ok")[0] == 0
    assert replay(steps, "struck: crash 1")[0] == 0
    code, said = replay(steps, "ok", "struck: crash 2")
    assert code == 1
    assert "not as the file expects:\n    expected  => struck: crash 2\n    now" in said.out
    assert "now       => struck: crash 1" in said.out
    assert replay(steps, "lost-acknowledged")[0] == 1
    document = json.loads(replay(steps, "stuck", more=("--format", "json"))[1].out)
    assert document["as_expected"] is False
    assert document["differences"][0] == "expected  => stuck"


def test_a_probe_that_was_not_reached_fails_whatever_is_expected(replay):
    code, said = replay("reaches torn-tail-cut\n200 crash node=n1 for 100", "ok")
    assert code == 1
    assert "NOT REACHED: torn-tail-cut" in said.out


def test_a_check_that_never_ran_has_not_held():
    found = Invariants().document("order")
    assert found.pop("order") == {"status": "violated", "checked": 0}
    assert {entry["status"] for entry in found.values()} == {"not exercised"}
    ran = Invariants()
    ran.checked["order"] = 3
    assert ran.document()["order"] == {"status": "held", "checked": 3}


@pytest.mark.parametrize("step", ["100 isolate 9", "100 cut 1 4", "100 write 7 x", "100 kill 0"])
def test_a_step_of_guests_that_names_a_node_that_does_not_exist_is_an_error(step):
    text = f"# t\nsubject pysyncobj\nnodes 3\n{step}\n"
    with pytest.raises(OperatingError, match="there is no node"):
        _ = scenario_files.read("x", text).case
    fine = text.replace("9", "3").replace("4", "2").replace("7", "leader").replace(" 0", " 1")
    assert scenario_files.read("x", fine).case.size == 1
