"""Failures filed with seed, plan, shrunk plan and story. A soak used to file nothing."""

import json
import re
import subprocess
import sys
from pathlib import Path

import attrs
import pytest
from raftlog_sim.__main__ import main
from raftlog_sim.base.minimise import Effort
from raftlog_sim.hunting import bug_base
from raftlog_sim.hunting.bug import Bug
from raftlog_sim.hunting.bug_base import (
    FOLDERS_A_SIGNATURE,
    BugBase,
    commit,
    file_log,
    name_of,
)
from raftlog_sim.hunting.bug_story import _worded
from raftlog_sim.hunting.workers import SeedWorkers
from raftlog_sim.playing.cases import load
from raftlog_sim.playing.run_folder import Circumstances
from raftlog_sim.playing.seeds import drawn
from raftlog_sim.schedules.schedule import step

ROOT = Path(__file__).resolve().parents[3]
FOUND = Circumstances(command=("raftlog", "sim", "sweep"), began="now", real_ns=1, commit="c0ffee")
GUEST_FILES = {"history.jsonl", "plan.txt", "run.json", "seen.jsonl", "shrunk.txt", "story.md",
               "trace.txt", "verdict.json"}  # fmt: skip


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RAFTLOG_MUTANT", raising=False)


def guest_bug(seed=3, failure=""):
    """A real failure of another library, which needs no planted bug."""
    case = drawn(seed, "resets", "pysyncobj")
    outcome = case.play(trace=True)
    assert outcome.failure
    return Bug(case=case, failure=failure or outcome.failure, circumstances=FOUND,
               play=lambda: outcome)  # fmt: skip


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def contents(home):
    return {path: path.read_bytes() for path in home.rglob("*") if path.is_file()}


def sweep(*more, seeds="3..6"):
    return main(["sweep", "--subject", "pysyncobj", "--seeds", seeds, "--jobs", "1",
                 "--check-every", "0", "--format", "json", "--bugs", "bugs", *more])  # fmt: skip


def test_a_sweep_files_its_failures_and_shrinks_one_of_each_kind(tmp_path, capsys):
    assert sweep() == 1
    document = json.loads(capsys.readouterr().out)
    folders = [folder for group in document["failures"] for folder in group["folders"]]
    assert sorted(folders) == sorted(str(path) for path in Path("bugs").iterdir())
    assert not Path("runs").exists()
    assert len(document["shrunk"]) == len(document["failures"])
    (first, *_) = document["shrunk"]
    assert {path.name for path in Path(first).iterdir()} == GUEST_FILES
    manifest = json.loads(Path(first, "run.json").read_text())
    assert manifest["commit"] == commit()
    assert re.fullmatch(r"([0-9a-f]{40}(-dirty)?)?", commit())
    assert Path(first).name == f"{manifest['failure'].partition(':')[0]}-{manifest['seed']}"
    assert manifest["options"]["nodes"] == 3
    small, _ = load(Path(first, "shrunk.txt"))
    assert small.size < load(Path(first))[0].size
    assert small.play().signature == manifest["signature"]
    page = Path(first, "story.md").read_text()
    for words in (manifest["failure"], f"raftlog sim replay {first}/shrunk.txt", manifest["commit"],
                  f"raftlog sim replay {first}/plan.txt", "## The last of its trace"):  # fmt: skip
        assert words in page, words


def test_what_is_met_again_is_counted_and_nothing_is_written_over(capsys):
    sweep(seeds="3..3")
    before = contents(Path("bugs"))
    capsys.readouterr()
    assert sweep(seeds="3..3") == 1
    after = contents(Path("bugs"))
    (folder,) = Path("bugs").iterdir()
    assert [row["seed"] for row in lines_of(folder / "seen.jsonl")] == [3, 3]
    assert {path: text for path, text in after.items() if path.name != "seen.jsonl"} == {
        path: text for path, text in before.items() if path.name != "seen.jsonl"
    }
    document = json.loads(capsys.readouterr().out)
    assert document["shrunk"] == []
    assert document["failures"][0]["folders"] == [str(folder)]


def test_a_few_folders_of_a_signature_are_enough(tmp_path):
    base, bug = BugBase(tmp_path), guest_bug()
    folders = []
    for seed in range(3, 3 + FOLDERS_A_SIGNATURE + 2):
        case = attrs.evolve(bug.case, plan=attrs.evolve(bug.case.plan, seed=seed))
        folders.append(base.file(attrs.evolve(bug, case=case)))
    assert len(set(folders)) == FOLDERS_A_SIGNATURE
    assert folders[-1] == folders[-2] == folders[0]
    assert [row["seed"] for row in lines_of(folders[0] / "seen.jsonl")] == [3, 6, 7]
    assert (
        f"the first of this kind is: `{folders[0].name}`" in (folders[1] / "story.md").read_text()
    )


def test_another_cause_of_that_name_gets_a_folder_of_its_own(tmp_path):
    base, bug = BugBase(tmp_path), guest_bug()
    mutated = attrs.evolve(bug, circumstances=attrs.evolve(FOUND, mutant="9"))
    one, other = base.file(bug), base.file(mutated)
    assert (one.name, other.name) == (f"{bug.failure_class}-3", f"{bug.failure_class}-3-2")
    assert base.file(mutated) == other


def test_shrinking_that_does_not_finish_files_the_best_so_far_and_says_so(tmp_path):
    base, bug = BugBase(tmp_path), guest_bug()
    folder = base.file(bug)
    asked = iter(range(1_000))
    assert base.shrink(lambda: Effort(out_of_time=lambda: next(asked) > 30)) == [folder]
    assert "**Not finished**" in (folder / "story.md").read_text()
    small, _ = load(folder / "shrunk.txt")
    assert small.size < bug.case.size
    assert small.play().signature == bug.signature


def test_without_time_nothing_is_shrunk_and_the_page_says_so(tmp_path):
    base, bug = BugBase(tmp_path), guest_bug()
    folder = base.file(bug)
    assert base.shrink(lambda: Effort(out_of_time=lambda: True)) == []
    assert "Not shrunk: there was no time." in (folder / "story.md").read_text()
    again = BugBase(tmp_path)
    again.file(bug)
    assert again.shrink(lambda: Effort(out_of_time=lambda: False)) == []


def test_what_does_not_fail_again_is_filed_and_not_shrunk(tmp_path):
    base = BugBase(tmp_path)
    folder = base.file(guest_bug(failure="order: something else"))
    assert base.shrink(lambda: Effort(out_of_time=lambda: False)) == []
    assert "run again it gave another result" in (folder / "story.md").read_text()


def test_a_seed_whose_process_died_is_filed_and_not_run(tmp_path, monkeypatch):
    def rows(self, calls):
        from raftlog_sim.hunting.workers import Lost

        yield next(iter(calls)), Lost("worker-died: the process was ended by SIGKILL")

    monkeypatch.setattr(SeedWorkers, "answers", rows)
    assert main(["sweep", "--seeds", "7..7", "--jobs", "2", "--bugs", "bugs"]) == 1
    folder = Path("bugs/worker-died-7")
    assert {path.name for path in folder.iterdir()} == {
        "schedule.json", "run.json", "seen.jsonl", "story.md",
    }  # fmt: skip
    assert load(folder)[0] == drawn(7, "swarm")
    assert "its process died" in (folder / "story.md").read_text()


def test_the_log_of_a_test_that_failed_is_filed_by_its_name(tmp_path):
    log = tmp_path / "log"
    log.write_bytes(b"noise \xff\nFAILED tests/raft/test_x.py::test_votes[3] - no\n1 failed\n")
    command = ["python", "-m", "pytest", "-k", "a b"]
    one = file_log(tmp_path / "bugs", "examples", command, 1, log, "c0ffee")
    assert one.name == "examples-test-x-py-test-votes-3"
    page = (one / "story.md").read_text()
    assert "python -m pytest -k 'a b'" in page
    assert "FAILED tests/raft/test_x.py::test_votes[3]" in page
    assert json.loads((one / "run.json").read_text())["commit"] == "c0ffee"
    before = (one / "story.md").read_bytes()
    log.write_text("FAILED tests/raft/test_x.py::test_votes[3] - otherwise\n")
    assert file_log(tmp_path / "bugs", "examples", command, 1, log, "c0ffee") == one
    assert (one / "story.md").read_bytes() == before
    assert len(lines_of(one / "seen.jsonl")) == 2
    log.write_text("nothing to see\n")
    assert file_log(tmp_path / "bugs", "power", command, 3, log, "").name == "power-exit-3"


def test_names_of_folders_hold_nothing_strange():
    assert name_of("../../etc: x/Y") == "etc-x-y"
    assert name_of("!!") == "unnamed"
    assert len(name_of("x" * 500)) == bug_base.NAME_CHARS_MAX


def test_steps_are_told_in_words():
    crash = step(60, "crash", 80, node="leader:0")
    assert list(_worded((crash,))) == [
        "* 60 ms: **crash** (node leader:0, for 80 ms): a process is killed; its machine's page "
        "cache lives on"
    ]


@pytest.mark.slow
def test_a_planted_bug_is_filed_and_its_shrunk_plan_fails_alike(tmp_path):
    """Mutant 1 tells votes before they are synced, which is seen at the first one of any seed."""
    simulator = [sys.executable, "-m", "raftlog_sim"]
    filed = subprocess.run(
        [*simulator, "sweep", "--seeds", "1..2", "--jobs", "2", "--mutant", "1", "--check-every",
         "0", "--bugs", "bugs", "--shrink-limit", "60"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert filed.returncode == 1, filed.stderr
    (shrunk,) = (tmp_path / "bugs").glob("*/shrunk.json")
    folder = shrunk.parent
    assert folder.name == "promise-durable-1"
    page = (folder / "story.md").read_text()
    (command,) = re.findall(r"^raftlog sim (replay \S+shrunk.json --mutant 1)$", page, re.MULTILINE)
    again = subprocess.run(
        [*simulator, *command.split(), "--no-folder", "--format", "json"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert again.returncode == 1, again.stderr
    assert json.loads(again.stdout)["failure"].startswith("promise-durable: ")
    steps = json.loads(shrunk.read_text())["steps"]
    assert len(steps) < len(json.loads((folder / "schedule.json").read_text())["steps"]) / 4
    assert "invariant **promise-durable**: violated" in page
    assert (tmp_path / "bugs" / "promise-durable-2" / "story.md").is_file()
