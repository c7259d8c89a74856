"""`raftlog verify --check-report`: the receiver of a report need not believe it."""

import json
import re

import pytest

from raftlog.cli.main import run
from raftlog.verify import Header
from tests.verify.sample_runs import write_folder
from tests.verify.writing import op, poll, send, written

GOOD = [send(0, (1, 2), "k#1", 0), poll(1, (3, 4), (0, "k#1"))]
LOST = [send(0, (1, 2), "k#1", 0), send(0, (3, 4), "k#2", 1), poll(1, (5, 6), (1, "k#2"))]


@pytest.fixture
def reported(tmp_path):
    def make(operations, *more, **options):
        history, report = tmp_path / "history.jsonl", tmp_path / "report.html"
        history.write_text(written(*operations, **options), encoding="utf-8")
        run(["verify", str(history), "--report", str(report), *more])
        return history, report

    return make


def checked(report, path, *more):
    return run(["verify", str(path), "--check-report", str(report), *more])


@pytest.mark.parametrize("operations", [GOOD, LOST])
def test_the_same_history_says_the_same(operations, reported, capsys):
    history, report = reported(operations)
    capsys.readouterr()
    assert checked(report, history) == 0
    out = capsys.readouterr().out
    assert out.startswith("SAME  ")
    assert "reads committed-prefix, allowed: int-send-skip" in out
    assert checked(report, history, "--format", "json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["same"] is True
    assert re.fullmatch("[0-9a-f]{64}", document["report"]["history_sha256"])


def test_options_are_the_reports(reported, capsys):
    history, report = reported(LOST, "--allow", "lost-write", "--allow", "unseen")
    assert checked(report, history) == 0
    assert "allowed: int-send-skip, lost-write, owner-overlap, unseen" in capsys.readouterr().out


def test_another_history_is_different(reported, capsys):
    history, report = reported(GOOD)
    history.write_text(history.read_text() + " \n")
    assert checked(report, history) == 1
    assert "it is of another history: sha256" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ('"headline":"FAIL"', '"headline":"PASS"', "summary, headline"),
        ('"verdict":"invalid"', '"verdict":"valid"', "summary, verdict"),
        ('"count":1,', '"count":0,', "classes: lost-write invalid (0), now invalid (1)"),
        ('"name":"lost-write",', '"name":"phantom",', "classes: "),
        ('"accused":[', '"accused":[7,', "accused is not what the history gives"),
        ("Anomalies", "Tidings", "the page around its data"),
        ('"search_steps":', '"search_steps":9', None),
    ],
)
def test_a_report_that_was_changed(before, after, said, reported, capsys):
    history, report = reported(LOST)
    page = report.read_text(encoding="utf-8")
    assert before in page
    report.write_text(page.replace(before, after), encoding="utf-8")
    capsys.readouterr()
    assert checked(report, history) == (0 if said is None else 1)
    if said:
        assert said in capsys.readouterr().out


def test_a_whole_run_is_compared_with_its_folder(tmp_path, capsys):
    folder, report = tmp_path / "failing", tmp_path / "report.html"
    write_folder("failing", folder)
    run(["verify", str(folder), "--report", str(report)])
    assert checked(report, folder) == 0
    (folder / "trace.txt").write_text("")
    assert checked(report, folder) == 1
    assert "messages is not what the history gives" in capsys.readouterr().out
    assert checked(report, folder / "history.jsonl") == 0, "the history alone shows none of that"


def test_a_run_that_failed_its_own_check_stays_failed_for_the_history_alone(tmp_path):
    folder, report = tmp_path / "passing", tmp_path / "report.html"
    write_folder("passing", folder)
    verdict = {"version": 1, "invariants": {"order": {"status": "violated", "checked": 3}}}
    (folder / "verdict.json").write_text(json.dumps(verdict))
    assert run(["verify", str(folder), "--report", str(report)]) == 1
    assert checked(report, folder / "history.jsonl") == 0
    page = report.read_text().replace('"headline":"FAIL"', '"headline":"PASS"')
    report.write_text(page)
    assert checked(report, folder / "history.jsonl") == 1


def test_a_model_of_ones_own_has_to_be_named(reported, capsys):
    header = Header(source="import", model="register")
    calls = [op(0, "write", (1, 2), 5, 5, key="x"), op(0, "read", (3, 4), None, 5, key="x")]
    history, report = reported(calls, header=header)
    report.write_text(report.read_text().replace('"model":"register"', '"model":"mine"'))
    assert checked(report, history) == 64
    assert "--model module:attribute" in capsys.readouterr().err


@pytest.mark.parametrize(
    "text", ["", "<html>", '<script type="application/json" id="data">{}</script>', "\x00"]
)
def test_what_is_no_report_is_refused(text, reported, tmp_path, capsys):
    history, _ = reported(GOOD)
    page = tmp_path / "other.html"
    page.write_text(text)
    assert checked(page, history) == 64
    assert "not a report of raftlog verify" in capsys.readouterr().err


def test_options_without_sense_are_refused(reported, capsys):
    history, report = reported(GOOD)
    report.write_text(report.read_text().replace('"hole_steps":', '"hole_steps":-'))
    assert checked(report, history) == 64
    assert "make no sense" in capsys.readouterr().err


def test_what_a_history_says_makes_no_terminal_do_anything(reported, capsys):
    """The witness printed escape sequences, reversed lines, and lines of its own."""
    evil = "k\x1b[31m\u202e\nVALID"
    history, report = reported([*GOOD, poll(1, (5, 6), (0, evil))])
    said = capsys.readouterr().out
    assert "\x1b" not in said
    assert "\u202e" not in said
    assert r"\u202e\nVALID" in said
    assert "\nVALID" not in said
    page = report.read_text()
    assert r"\\u202e" in page
    assert r"\u202e" not in page.replace(r"\\u202e", "")
    assert checked(report, history) == 0


def test_the_simulators_own_report_is_checked_with_its_folder(tmp_path, monkeypatch):
    """It was different: the check had told the header a read consistency that it has anyway."""
    from raftlog_sim.__main__ import main

    monkeypatch.chdir(tmp_path)
    scenario = tmp_path / "mine.txt"
    scenario.write_text("# t\nset safety_ms 300\n100 produce slot=0 partition=0 count=2\n=> ok\n")
    assert main(["replay", str(scenario), "--out", "run", "--report"]) == 0
    assert checked("run/report.html", "run") == 0
    assert checked("run/report.html", "run/history.jsonl") == 0


@pytest.mark.parametrize("reads", ["linearizable", "committed-prefix"])
def test_a_report_held_to_another_consistency_says_so_and_is_checked_by_it(reads, reported):
    history, report = reported(GOOD, "--reads", reads, read_consistency="committed")
    assert checked(report, history) == 0
    assert f'"reads":"{reads}"' in report.read_text()
