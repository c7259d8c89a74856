"""The errors of every simulator command about wrong usage and about files that are no case."""

import json

import pytest
from raftlog_sim.__main__ import main, parser
from raftlog_sim.commands import gate, run, sweep
from raftlog_sim.hunting import mutation
from raftlog_sim.playing.cases import PROFILES_OF, BrokerCase
from raftlog_sim.playing.run_folder import check_writable
from raftlog_sim.schedules.options import PROFILES

COMMANDS = sorted(next(each for each in parser()._actions if each.dest == "command").choices)


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def ran(*arguments, capsys):
    return main([*map(str, arguments)]), capsys.readouterr()


def is_error(text) -> dict:
    assert text.count("\n") == 1, text
    document = json.loads(text)
    assert set(document) == {"version", "error"}
    assert set(document["error"]) == {"what", "on", "do"}
    return document["error"]


@pytest.mark.parametrize("name", COMMANDS)
def test_wrong_usage_under_format_json_is_one_json_error(name, capsys):
    for form in (["--format", "json"], ["--format=json"]):
        code, said = ran(name, "--no-such-option", *form, capsys=capsys)
        assert code == 64
        assert said.out == ""
        error = is_error(said.err)
        assert error["on"] in ("raftlog sim", f"raftlog sim {name}", f"raftlog {name}")
        assert "--help" in error["do"]


def test_errors_are_text_as_those_of_every_other_command(tmp_path, capsys):
    """They were JSON unless wrong usage: a person read braces."""
    code, said = ran("run", "--seed", "1", "--no-such-option", capsys=capsys)
    assert (code, said.out) == (64, "")
    usage = "raftlog: unrecognized arguments: --no-such-option (raftlog sim)"
    assert said.err == f"{usage}\n  see raftlog sim --help\n"
    (tmp_path / "bad").write_text("{")
    code, said = ran("replay", "bad", capsys=capsys)
    assert (code, said.out) == (64, "")
    first, advice = said.err.splitlines()
    assert first.startswith("raftlog: ")
    assert first.endswith("(bad)")
    assert advice.startswith("  ")


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["explode"],
        ["run"],
        ["run", "--seed", "x"],
        ["run", "--seed", "9" * 30],
        ["run", "--seed", "1", "--format", "xml"],
        ["sweep", "--seeds", "4..3"],
        ["sweep", "--seeds", "1..²"],
        ["sweep", "--seeds", "1..2", "--jobs", "0"],
        ["sweep", "--seeds", "1..2", "--time-limit", "nan"],
        ["sweep", "--seeds", "1..2", "--time-limit", "-1"],
        ["shrink"],
        ["debug"],
        ["turns", "file", "--seed", "1"],
        ["mutants", "no-such"],
        ["sweep", "--seeds", "1..2", "--jobs", "100000"],
        ["sweep", "--seeds", "1..2", "--check-every", "-1"],
        ["sweep", "--seeds", "1..2", "--compiled", "nowhere"],
        ["sweep", "--seeds", "1..2", "--mutant", "no-such"],
        ["scenarios", "nope"],
        ["mutants", "1", "--shrink", "-1"],
        ["mutants", "1", "--budget", "0"],
        ["mutants", "1", "--kills", "0"],
        ["mutants", "1", "--from", "9" * 30],
        ["mutants", "24b", "--histories", "-1"],
        ["mutants", "1", "--seconds", "nan"],
    ],
)
def test_so_is_what_makes_no_sense(arguments, capsys):
    code, said = ran(*arguments, "--format", "json", capsys=capsys)
    assert (code, said.out) == (64, "")
    is_error(said.err)


@pytest.mark.parametrize("command", ["run", "sweep", "shrink", "debug", "turns"])
@pytest.mark.parametrize(
    ("more", "why"),
    [
        (["--profile", "kills"], f"kills is none of brokers: one of {', '.join(PROFILES)}"),
        (["--subject", "pysyncobj", "--profile", "calm"],
         "--profile calm is none of pysyncobj: one of resets, kills, restarts"),
        (["--mutant", "24b"], "is a bug of the judge: no seed hunts it"),
        (["--subject", "pysyncobj", "--mutant", "4"], "runs of pysyncobj do not have it"),
        (["--mutant", "2x"], "no mutant 2x; the nearest are 2"),
    ],
)  # fmt: skip
def test_what_does_not_go_together_is_64(command, more, why, capsys):
    """Regression: a profile of the other subject was a name for other random numbers, and a planted
    bug that nothing passes was played without a word."""
    seeds = ["--seeds", "1..2"] if command == "sweep" else ["--seed", "1"]
    code, said = ran(command, *seeds, *more, "--format", "json", capsys=capsys)
    assert (code, said.out) == (64, "")
    assert why in is_error(said.err)["what"]


def test_each_subject_has_a_default_profile(monkeypatch, capsys):
    asked = []

    def drawing(*arguments):
        asked.append(arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "drawn", drawing)
    for subject in PROFILES_OF:
        assert ran("run", "--seed", "1", "--subject", subject, capsys=capsys)[0] == 130
    assert asked == [(1, "swarm", "brokers"), (1, "resets", "pysyncobj")]


def test_a_planted_bug_of_brokers_is_refused_with_a_plan_of_guests(tmp_path, capsys):
    (tmp_path / "plan.txt").write_text("subject pysyncobj\n100 isolate 3\n")
    code, said = ran("replay", "plan.txt", "--mutant", "4", "--format", "json", capsys=capsys)
    assert code == 64
    assert "runs of pysyncobj do not have it" in is_error(said.err)["what"]


@pytest.mark.parametrize(
    ("name", "said_so"),
    [
        ("review-10", "no scenario review-10; these begin so: review-10-lease, review-10-pause, "),
        ("own-vote", "these have that in them: review-11-own-vote ("),
        ("power-los-all", "the nearest are power-loss-all, "),
    ],
)
def test_a_scenario_that_there_is_not_names_those_that_may_be_meant(name, said_so, capsys):
    """Regression: it named all of them."""
    code, said = ran("scenarios", name, capsys=capsys)
    assert (code, said.out) == (64, "")
    assert said_so in said.err
    assert said.err.count(", ") < 6


@pytest.mark.parametrize("name", ["replay", "shrink", "debug", "turns"])
@pytest.mark.parametrize(
    "text",
    ["", '{"version": 1, "options": {"seed": 1, "brokers": 0}, "steps": []}', "[" * 100_000,
     "hello world", "{", '{"version": 9}', "subject pysyncobj\n100 explode", "# a\n100 x\n=> ok"],
    ids=["empty", "no brokers", "deep", "text", "half", "version", "plan", "scenario"],
)  # fmt: skip
def test_a_file_that_is_no_case_is_64(name, text, tmp_path, capsys):
    """Regression: `on` was empty, or `schedule`."""
    (tmp_path / "bad.json").write_text(text)
    code, said = ran(name, "bad.json", "--format", "json", capsys=capsys)
    assert (code, said.out) == (64, "")
    error = is_error(said.err)
    assert error["on"].partition(",")[0] == "bad.json"
    assert error["do"]


def test_a_folder_without_a_case_is_no_run_folder(tmp_path, capsys):
    """Regression: it was said that schedule.json, which no argument had named, was not there."""
    (tmp_path / "empty").mkdir()
    code, said = ran("replay", "empty", "--format", "json", capsys=capsys)
    assert code == 64
    error = is_error(said.err)
    assert error["on"] == "empty"
    assert error["what"].startswith("no run folder: it holds no schedule.json")


@pytest.mark.parametrize(("content", "why"), [(None, "No such file"), (b"\xff\xfe", "is no text")])
def test_a_file_that_cannot_be_read_says_so_in_words(content, why, tmp_path, capsys):
    if content is not None:
        (tmp_path / "bad").write_bytes(content)
    code, said = ran("replay", "bad", "--format", "json", capsys=capsys)
    assert code == 64
    error = is_error(said.err)
    assert error["on"] == "bad"
    assert why in error["what"]
    assert "Errno" not in error["what"]


def test_a_manifest_that_is_too_deep_names_no_mutant(tmp_path, capsys):
    (tmp_path / "run.json").write_text('{"mutant":' * 100_000)
    code, said = ran("replay", tmp_path, "--format", "json", capsys=capsys)
    assert code == 64
    is_error(said.err)


def test_turns_under_format_json_are_one_document(tmp_path, capsys):
    """They were text."""
    options = '{"seed": 1, "brokers": 1, "controllers": 1, "replication": 1, "safety_ms": 1}'
    (tmp_path / "case.json").write_text(f'{{"version": 1, "options": {options}, "steps": []}}')
    code, said = ran("turns", "case.json", capsys=capsys)
    lines = said.out.splitlines()
    assert (code, len(lines) > 10) == (0, True)
    code, said = ran("turns", "case.json", "--format", "json", capsys=capsys)
    assert code == 0
    assert json.loads(said.out) == {"version": 1, "turns": lines}


@pytest.mark.parametrize(
    "command",
    [
        ["run", "--seed", "1", "--out", "taken"],
        ["run", "--seed", "1", "--out", "taken/below"],
        ["shrink", "--seed", "2", "--out", "taken"],
        ["sweep", "--seeds", "1..2", "--out", "taken"],
        ["sweep", "--seeds", "1..2", "--bugs", "taken/below"],
        ["mutants", "1", "--score", "taken"],
        ["mutants", "1", "--table", "taken/page.md"],
        ["gate", "--into", "taken"],
    ],
)
def test_where_nothing_can_be_kept_no_work_is_begun(command, tmp_path, monkeypatch, capsys):
    """Regression: that was found after the work, by a traceback, and the work was lost."""

    def worked(*arguments, **more):
        raise AssertionError("work was begun")

    monkeypatch.setattr(BrokerCase, "play", worked)
    monkeypatch.setattr(mutation, "hunt", worked)
    monkeypatch.setattr(sweep, "run_seed", worked)
    monkeypatch.setattr(gate, "install", worked)
    (tmp_path / "taken").write_text("no folder, and no score")
    code, said = ran(*command, "--format", "json", capsys=capsys)
    assert (code, said.out) == (64, "")
    assert is_error(said.err)["on"].partition("/")[0] == "taken"


@pytest.mark.parametrize("command", [["run", "--seed", "1"], ["shrink", "--seed", "2"]])
def test_so_it_is_where_no_runs_can_be_kept(command, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(BrokerCase, "play", None)
    (tmp_path / "runs").write_text("no folder")
    code, said = ran(*command, "--format", "json", capsys=capsys)
    assert (code, said.out) == (64, "")
    assert is_error(said.err)["on"] == "runs"


def test_to_ask_whether_a_folder_can_be_written_makes_none(tmp_path):
    check_writable(tmp_path / "a" / "b")
    assert list(tmp_path.iterdir()) == []


def test_incidents_go_by_the_name_that_users_type(capsys):
    with pytest.raises(SystemExit):
        main(["incident", "--help"])
    told = capsys.readouterr().out
    assert "Example: raftlog incident replay" in told
    assert "raftlog sim" not in told
