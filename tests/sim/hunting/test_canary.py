"""The canary: a cluster in which one replica is a quorum must fail all the way to the report.

Every step between an invariant that breaks and the page that a person reads could lose the failure;
a simulator that finds nothing would look the same. Without the canary the same seeds pass.
"""

import json
import subprocess
import sys

import pytest
from raftlog_sim.hunting import mutation

SWEEP = ["sweep", "--seeds", "1..4", "--jobs", "1", "--check-every", "0", "--format", "json"]
CANARY = ["--mutant", "canary"]
KILLERS = mutation.named("canary").expected


def simulator(folder, *arguments):
    command = [sys.executable, "-m", "raftlog_sim", *map(str, arguments)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def read_json(path):
    return json.loads(path.read_text())


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """The folder of a sweep that must fail, and what it said."""
    folder = tmp_path_factory.mktemp("canary")
    return folder, simulator(folder, *SWEEP, *CANARY, "--out", "found")


def first_failure(swept):
    """The run folder of the first failure, and the failure."""
    folder, done = swept
    group = json.loads(done.stdout)["failures"][0]
    return folder / group["folders"][0], group["example"]


def test_without_it_the_seeds_pass(tmp_path):
    done = simulator(tmp_path, *SWEEP)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["failed"] == 0
    assert not list(tmp_path.iterdir())


def test_a_sweep_fails(swept):
    _, done = swept
    assert done.returncode == 1, done.stdout + done.stderr
    said = json.loads(done.stdout)
    assert said["failed"] == sum(group["count"] for group in said["failures"]) >= 1
    assert said["failures"][0]["class"] in KILLERS


def test_its_run_folder_says_invalid_and_fails_again(swept):
    folder, failure = first_failure(swept)
    broken = failure.partition(":")[0]
    verdict = read_json(folder / "verdict.json")
    assert verdict["verdict"] == "invalid"
    assert verdict["invariants"][broken]["status"] == "violated"
    assert read_json(folder / "run.json")["failure"] == failure
    assert (folder / "trace.txt").read_text().splitlines()
    again = simulator(folder, "replay", folder, "--no-folder", "--format", "json")
    assert again.returncode == 1, again.stderr
    assert json.loads(again.stdout)["failure"] == failure


def test_its_report_says_so(swept, tmp_path):
    folder, failure = first_failure(swept)
    done = simulator(tmp_path, "replay", folder, "--out", "one", "--report")
    assert done.returncode == 1, done.stdout + done.stderr
    assert failure in done.stdout.splitlines()
    page = (tmp_path / "one" / "report.html").read_text()
    assert '"FAIL"' in page
    assert f"{failure.partition(':')[0]}, a check of the run's own, was violated." in page


@pytest.mark.slow
def test_a_sweep_files_it_as_a_bug(tmp_path):
    done = simulator(tmp_path, *SWEEP, *CANARY, "--bugs", "bugs", "--shrink-limit", 60)
    assert done.returncode == 1, done.stdout + done.stderr
    (found, *_) = json.loads(done.stdout)["shrunk"]
    shrunk = tmp_path / found / "shrunk.json"
    story = (tmp_path / found / "story.md").read_text()
    assert any(f"invariant **{name}**: violated" in story for name in KILLERS)
    assert "--mutant canary" in story
    again = simulator(tmp_path, "replay", shrunk, *CANARY, "--no-folder", "--format", "json")
    assert again.returncode == 1, again.stderr
    assert json.loads(again.stdout)["failure"].partition(":")[0] in KILLERS
