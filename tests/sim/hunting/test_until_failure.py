"""A sweep that goes on until a seed fails, what it says into a pipe, and what a run passed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from raftlog_sim.__main__ import main
from raftlog_sim.commands import common

ROOT = Path(__file__).resolve().parents[3]
SWEEP = ("sweep", "--seeds", "1..1", "--profile", "calm", "--no-folders", "--until-failure")


def test_it_goes_on_beyond_the_last_seed_until_the_time_is_over(capsys, monkeypatch):
    monkeypatch.setattr(common, "LINE_EVERY_SECONDS", 0.0)
    looks = iter([False, False, False, True])
    monkeypatch.setattr(common.Deadline, "passed", lambda self: next(looks))
    more = ("--jobs", "1", "--check-every", "0")
    assert main([*SWEEP, *more, "--format", "json"]) == 0
    said = capsys.readouterr()
    document = json.loads(said.out)
    assert document["seeds"] == 3
    assert document["failed"] == 0
    lines = said.err.splitlines()
    assert [line.partition(",")[0] for line in lines] == ["seeds: 1", "seeds: 2", "seeds: 3"]


@pytest.mark.slow
def test_it_stops_at_the_first_failure_with_the_line_that_replays_it(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "raftlog_sim", *SWEEP[:3], "--until-failure", "--no-folders",
         "--jobs", "1", "--check-every", "0", "--mutant", "4", "--time-limit", "100"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'sim'}"},
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert done.stdout.count("replay: raftlog sim run --seed ") == 1
    assert ", 1 failed, " in done.stdout


def test_it_does_not_go_with_spark(capsys):
    assert main([*SWEEP, "--spark", "local[1]"]) == 64
    assert "--until-failure does not go with --spark" in capsys.readouterr().err


def test_a_replay_says_which_rare_paths_it_passed(tmp_path, capsys):
    path = tmp_path / "x.txt"
    path.write_text("set safety_ms 400\n100 produce slot=0 partition=0 count=2\n")
    assert main(["replay", str(path), "--no-folder", "--probes"]) == 0
    assert "rare paths passed, and how often:\n  " in capsys.readouterr().out
    assert main(["replay", str(path), "--no-folder", "--probes", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["probes"]["cluster-founded"] == 1
