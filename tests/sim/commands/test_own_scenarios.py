"""`raftlog sim scenarios FILE|FOLDER`: a user's own scenarios, from any directory.

The story: a user who wrote scenario files could replay each alone, and had to make exit codes and a
report of them with a shell.
"""

import json
import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from raftlog_sim.__main__ import main
from raftlog_sim.commands import own_scenarios
from raftlog_sim.playing import scenario_files

ROOT = Path(__file__).resolve().parents[3]
CALM = """# {name}: one follower is away
set safety_ms 400
100 produce slot=0 partition=0 count=2
200 crash node=n2 for 50
"""


@pytest.fixture
def folder(tmp_path):
    home = tmp_path / "mine"
    home.mkdir()
    (home / "a.txt").write_text(CALM.format(name="a") + "=> ok\n=> struck: crash 1\n")
    (home / "b.txt").write_text(CALM.format(name="b") + "210 pause node=n2 for 20\n=> ok\n")
    (home / "notes.md").write_text("no scenario")
    return home


def play(capsys, *words):
    code = main(["scenarios", *map(str, words)])
    return code, capsys.readouterr()


def test_a_folder_and_files_are_played_and_what_struck_nothing_is_said(folder, capsys):
    code, said = play(capsys, folder)
    assert code == 0
    assert f"ok     {folder / 'a.txt'}\n" in said.out
    assert "    struck nothing: 1 step (210 pause node=n2 for 20)\n" in said.out
    assert said.out.endswith("2 scenarios, 0 failed\n")
    code, said = play(capsys, folder / "b.txt", folder / "b.txt", "review-11-own-vote",
                      "--no-mutants", "--format", "json")  # fmt: skip
    document = json.loads(said.out)
    assert [row["ok"] for row in document["scenarios"]] == [True, True, True]
    assert document["scenarios"][0]["struck_nothing"] == ["210 pause node=n2 for 20"]
    assert document["scenarios"][2]["name"] == "review-11-own-vote"


def test_one_that_differs_fails_and_junit_says_which(folder, tmp_path, capsys):
    (folder / "b.txt").write_text(CALM.format(name="b") + "=> struck: crash 2\n")
    report = tmp_path / "junit.xml"
    code, said = play(capsys, folder, "--junit", report)
    assert code == 1
    assert "    expected  => struck: crash 2\n    now       => ok\n" in said.out
    suite = ET.fromstring(report.read_text())
    assert suite.attrib["tests"] == "2"
    assert suite.attrib["failures"] == "1"
    good, bad = suite.findall("testcase")
    assert good.attrib["name"] == str(folder / "a.txt")
    assert good.find("failure") is None
    assert "expected  => struck: crash 2" in bad.find("failure").text


def test_one_that_expects_nothing_plays_with_a_note_and_can_be_filled_in(folder, capsys):
    path = folder / "b.txt"
    path.write_text(CALM.format(name="b"))
    code, said = play(capsys, path)
    assert code == 0
    assert "nothing was expected: the file has no line that begins with =>; it gave\n" in said.out
    assert "    => struck: crash 1\n" in said.out
    assert play(capsys, path, "--rewrite")[0] == 0
    assert path.read_text() == CALM.format(name="b") + "=> ok\n=> struck: crash 1\n"
    path.write_text("reaches torn-tail-cut\n" + CALM.format(name="b"))
    code, said = play(capsys, path)
    assert code == 1
    assert "NOT REACHED: torn-tail-cut" in said.out


@pytest.mark.parametrize(
    ("line", "number", "what", "do"),
    [
        ("200 explode node=n1", 5, "no such kind of step", "scenario_steps.md"),
        ("200 kill node=n1", 5, "no such kind of step", "write crash"),
        ("200 crsh node=n1", 5, "no such kind of step", "write crash"),
        ("200 crash node=1", 5, "node is '1', not a node or several: n1, leader:0", "steps.md"),
        ("1s crash node=n1", 5, "the instant, in milliseconds, is '1s'", "scenario_steps.md"),
        ("200 crash node=n1 for 1s", 5, "for is '1s', not a whole number", "scenario_steps.md"),
        ("200", 5, "a word is missing", "scenario_steps.md"),
        ("200 crash node=n9", 5, "no node n9", "set brokers 5"),
        ("200 crash", 5, "takes node=, not nothing", "scenario_steps.md"),
        ("set brokers 99", 5, "brokers: 99 is out of bounds", "from 1 to 9"),
        ("set min_in_sync 4", 5, "min_in_sync 4 is more than replication 3", "raise replication"),
        ("set nothing 3", 5, "no such option", "one of seed"),
        ("set brokers", 5, "makes no sense", "how a line is written"),
        ("mutants 3\nset replication 4", 6, "replication 4 is more than brokers", "raise brokers"),
        ("reaches torn-tail-cuts", 5, "no rare path is called", "torn-tail-cut"),
        ("mutants no-such", 5, "no mutant no-such", "--no-mutants"),
        ("=> ok\n200 crash node=n4", 6, "no node n4", "set brokers 5"),
        ("200 crash node=leader:0 for 99999999", 5, "not ms up to", "scenario_steps.md"),
    ],
)
def test_a_bad_line_is_named_before_anything_is_played(line, number, what, do, folder, capsys):
    path = folder / "b.txt"
    path.write_text(CALM.format(name="b") + line + "\n")
    code, said = play(capsys, folder, "--format", "json")
    assert code == 64
    assert said.out == ""
    error = json.loads(said.err)["error"]
    assert error["on"] == f"{path}:{number}"
    assert what in error["what"]
    assert do in error["do"]


def test_what_is_no_scenario_file_is_refused(tmp_path, capsys):
    os.mkfifo(tmp_path / "pipe.txt")
    (tmp_path / "large.txt").write_bytes(b"#" * (own_scenarios.BYTES_MAX + 1))
    (tmp_path / "binary.txt").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "empty.txt").write_text("")
    many = tmp_path / "many.txt"
    many.write_text(
        CALM.format(name="m") + "100 load slot=0 partition=0 count=999 every_ms=1\n" * 101
    )
    (tmp_path / "none").mkdir()
    for name, what in (
        ("pipe.txt", "is no regular file"),
        ("large.txt", "4194305 bytes, at most 4194304"),
        ("binary.txt", "is no text"),
        ("empty.txt", "it has no steps"),
        ("many.txt", "at most 100000"),
        ("none", "no file *.txt lies in this folder"),
        ("gone.txt", "No such file"),
        ("gone/", "No such file"),
    ):
        code, said = play(capsys, tmp_path / name if name[-1] != "/" else f"{tmp_path}/{name}")
        assert code == 64, name
        assert what in said.err, name
        assert str(tmp_path / name) in said.err, name
    assert play(capsys, "nobody")[0] == 64
    assert "No such file" in play(capsys, "../../no-such-file")[1].err  # it can be a file only
    assert play(capsys, many, "--junit", tmp_path / "gone" / "x.xml")[0] == 64


def test_too_many_files_are_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(own_scenarios, "FILES_MAX", 2)
    for name in "abc":
        (tmp_path / f"{name}.txt").write_text(CALM.format(name=name))
    code, said = play(capsys, tmp_path)
    assert code == 64
    assert "more than 2 scenarios" in said.err
    (tmp_path / "c.txt").unlink()
    assert play(capsys, tmp_path)[0] == 0


def test_without_a_checkout_own_files_play_and_names_say_where_they_are(
    folder, monkeypatch, capsys
):
    monkeypatch.setattr(scenario_files, "FOLDER", folder / "gone")
    assert play(capsys, folder / "a.txt")[0] == 0
    code, said = play(capsys, "review-11-own-vote")
    assert code == 64
    assert "named scenarios are in a checkout only" in said.err


def test_a_folder_plays_from_a_package_in_any_directory(folder):
    """The packages as a wheel has them, and no checkout around."""
    home = folder.parent / "installed"
    for package in (ROOT / "raftlog", ROOT / "sim" / "raftlog_sim"):
        shutil.copytree(package, home / package.name, ignore=shutil.ignore_patterns("__pycache__"))
    done = subprocess.run(
        [sys.executable, "-m", "raftlog_sim", "scenarios", "."], cwd=folder, check=False,
        env={**os.environ, "PYTHONPATH": str(home)}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "ok     a.txt\n" in done.stdout
