"""docs/guides/simulate_failures.md says that its output is real: what there is most of, is."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from raftlog_sim.playing import scenario_files

ROOT = Path(__file__).resolve().parents[3]
GUIDE = (ROOT / "docs" / "guides" / "simulate_failures.md").read_text(encoding="utf-8")


def said(*arguments, home):
    """Returns the simulator's output, from a process of its own: a planted bug cannot be taken
    back."""
    done = subprocess.run(
        [sys.executable, "-m", "raftlog_sim", *arguments],
        cwd=home, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'sim'}"},
    )  # fmt: skip
    return done.stdout


@pytest.mark.slow
def test_a_run_a_sweep_and_the_debugger_say_what_the_guide_shows(tmp_path):
    """Regression: seeds, turns and counts were those of a build of days before."""
    lines = said("run", "--seed", "4", "--mutant", "4", home=tmp_path).splitlines()
    verdict = next(number for number, line in enumerate(lines) if line.startswith("commit-rule"))
    for line in (lines[verdict], lines[verdict + 1].partition(", trace")[0]):
        assert f"\n{line}" in GUIDE
    swept = said("sweep", "--seeds", "1..8", "--mutant", "4", "--no-folders", "--check-every", "0",
                 "--jobs", "1", "--format", "json", home=tmp_path)  # fmt: skip
    (group,) = json.loads(swept)["failures"]
    seeds = ", ".join(map(str, group["seeds"]))
    assert f"\n{group['count']} x {group['signature']}\n  seeds {seeds}\n" in GUIDE


def test_the_scenario_that_it_shows_is_the_file():
    name = "review-11-own-vote"
    assert (scenario_files.FOLDER / f"{name}.txt").read_text(encoding="utf-8") in GUIDE
