"""Every named scenario gives what its file says; the files are read strictly."""

import json

import pytest
from raftlog_sim.__main__ import main
from raftlog_sim.hunting import scenarios
from raftlog_sim.playing import scenario_files
from raftlog_sim.playing.cases import PYSYNCOBJ, BrokerCase, GuestCase

from raftlog.base.errors import OperatingError

NAMES = scenario_files.names()
PAGE = scenario_files.FOLDER.parents[1] / "docs" / "internals" / "named_scenarios.md"
OUTSIDE_THE_ATLAS = ("lying-sync", "rot-of-a-sole-replica", "rot-on-all")
"""No protocol survives these: an oracle must see them."""
WITH_MUTANTS = [name for name in NAMES if scenario_files.load(name).mutants]


@pytest.mark.parametrize("name", NAMES)
def test_it_gives_what_its_file_says(name):
    scenario = scenario_files.load(name)
    expected = [line for line in scenario.expected if not line.startswith("=> mutant ")]
    assert scenarios.results(scenario, mutants=False) == expected


@pytest.mark.slow
@pytest.mark.parametrize("name", WITH_MUTANTS)
def test_its_planted_bugs_make_it_fail(name):
    scenario = scenario_files.load(name)
    expected = [line for line in scenario.expected if line.startswith("=> mutant ")]
    assert len(expected) == len(scenario.mutants)
    assert not any(line.endswith("SURVIVES") for line in expected)
    assert scenarios.mutant_results(scenario) == expected


@pytest.mark.parametrize("name", NAMES)
def test_it_tells_its_story(name):
    scenario = scenario_files.load(name)
    assert scenario.lines[0].startswith("# ")
    assert len([line for line in scenario.lines if line.startswith("# ")]) >= 2
    assert scenario.expected, "run `raftlog sim scenarios --rewrite` and review"
    assert not any("NOT REACHED" in line for line in scenario.expected)
    assert not any("NOT AVOIDED" in line for line in scenario.expected)
    passes = isinstance(scenario.case, BrokerCase) and name not in OUTSIDE_THE_ATLAS
    assert passes is (scenario.expected[0] == "=> ok"), "our own brokers pass, guests are guilty"


def test_the_page_tells_which_have_no_planted_bug():
    """Regression: it counted eleven for four."""
    bare = [name for name in NAMES if name not in WITH_MUTANTS]
    guests = [name for name in bare if scenario_files.load(name).subject == PYSYNCOBJ]
    others = [name for name in bare if name not in (*guests, "lying-sync")]
    page = " ".join(PAGE.read_text(encoding="utf-8").split())
    told = [f"`{name}`" for name in others]
    for sentence in (
        f"{len(bare)} files have no line of `mutants`. The {len(guests)} guests",
        "`lying-sync` must fail as it stands",
        f"In the other {len(others)} ({', '.join(told)}) the rule has no mutant",
    ):
        assert sentence in page


TEXT = """\
# one title
# a story
set partitions 2
mutants 3 9b
reaches torn-tail-cut
avoids installed
100 produce slot=0 partition=1 count=4
50 power node=n2+n3 keep=none for 200
=> ok
"""


def test_a_scenario_is_read():
    found = scenario_files.read("x", TEXT)
    assert found.title == "one title"
    assert found.mutants == ("3", "9b")
    assert found.reaches == ("torn-tail-cut",)
    assert found.avoids == ("installed",)
    assert found.expected == ("=> ok",)
    assert isinstance(found.case, BrokerCase)
    schedule = found.case.schedule
    assert schedule.options.partitions == 2
    assert [step.kind for step in schedule.steps] == ["power", "produce"]
    assert schedule.steps[0].for_ms == 200
    assert scenario_files.rewritten(found, ["=> new"]) == TEXT.replace("=> ok", "=> new")


def test_what_a_scenario_says_is_told_by_its_lines(tmp_path, capsys):
    file = tmp_path / "x.txt"
    file.write_text(TEXT)
    assert main(["steps", str(file)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "line 3: set partitions 2",
        "line 8: 50 power node=n2+n3 keep=none for 200",
        "line 7: 100 produce slot=0 partition=1 count=4",
    ]
    assert main(["steps", str(file), "--format", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["settings"] == [{"line": 3, "name": "partitions", "value": 2}]
    assert told["steps"][1] == {
        "line": 7, "at": 100, "kind": "produce", "slot": 0, "partition": 1, "count": 4,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("# t\nmutants 3\n100 crash node=n9 for 1\n", "x.txt, line 3"),
        ("# t\nsubject pysyncobj\nnodes 3\n=> ok\n", "pysyncobj"),
        ("hello\n", "it is no scenario"),
    ],
)
def test_what_is_no_scenario_of_brokers_has_no_steps(tmp_path, capsys, text, why):
    (tmp_path / "x.txt").write_text(text)
    assert main(["steps", str(tmp_path / "x.txt")]) == 64
    assert why in capsys.readouterr().err
    assert main(["steps", str(tmp_path / "nowhere")]) == 64


def test_a_step_is_its_text():
    steps = scenario_files.read("x", TEXT).case.schedule.steps
    assert [scenario_files.parse_step(str(step).split()) for step in steps] == list(steps)


@pytest.mark.parametrize(
    "line",
    ["100", "100 explode", "x power node=n1 keep=all", "100 power node=n1", "set partitions",
     "set nothing 3", "100 crash node=n1 for", "100 produce slot=a partition=0 count=1"],
)  # fmt: skip
def test_a_line_without_sense_is_refused(line):
    with pytest.raises(OperatingError):
        _ = scenario_files.read("x", f"# t\n{line}\n").case


def test_a_guest_is_recognised():
    found = scenario_files.read("x", "# t\nsubject pysyncobj\nnodes 3\n100 isolate 3\n=> ok\n")
    assert isinstance(found.case, GuestCase)
    assert found.case.size == 1


def test_a_scenario_that_gives_something_else_fails(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(scenario_files, "FOLDER", tmp_path)
    (tmp_path / "calm.txt").write_text(
        "# calm\n# nothing happens\nset safety_ms 50\nreaches installed\n=> ok\n"
    )
    assert main(["scenarios", "calm"]) == 1
    said = capsys.readouterr().out
    assert "FAILED calm" in said
    assert "NOT REACHED: installed" in said
    assert main(["scenarios", "calm", "--rewrite"]) == 0
    assert "=> NOT REACHED: installed" in (tmp_path / "calm.txt").read_text()
    assert main(["scenarios", "nobody"]) == 64


def test_a_scenario_that_passes_what_it_avoids_fails(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(scenario_files, "FOLDER", tmp_path)
    (tmp_path / "calm.txt").write_text(
        "# calm\n# nothing happens\nset safety_ms 50\navoids cluster-founded installed\n=> ok\n"
    )
    assert main(["scenarios", "calm"]) == 1
    assert "NOT AVOIDED: cluster-founded\n" in capsys.readouterr().out


def test_scenarios_are_listed(capsys):
    assert main(["scenarios", "--list"]) == 0
    assert "pysyncobj-s1-second-copy" in capsys.readouterr().out


def test_a_scenario_replays_and_can_be_stepped(capsys):
    path = scenario_files.FOLDER / "power-loss-all.txt"
    assert main(["replay", str(path), "--no-folder"]) == 0
    assert "faults: power 2" in capsys.readouterr().out
