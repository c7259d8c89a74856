"""Mutants made by a program: their changes, the lines that stay, and that an import sees them."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from scripts import _mutation
from scripts.mutation.mutants import mutants_of
from tests.tidy.tree import ROOT

SOURCE = '''
LIMIT = 3


def chosen(values: list[int], least: int = 0) -> int:
    """Add up."""
    assert least < 7, "small"
    probe("chosen")
    total = 0
    for value in values:
        if value > least and not value == 5:
            total += value * (least + 2)
    if total is None:
        raise ValueError("never 1")
    values.clear()
    return max(total, 1)
'''


@pytest.fixture
def made(tmp_path):
    (tmp_path / "sums.py").write_text(SOURCE)
    return mutants_of(tmp_path, "sums.py")


def test_each_place_is_changed_once(made):
    assert Counter(mutant.kind for mutant in made) == {
        "number": 4,
        "never": 2,
        "always": 2,
        "comparison": 3,
        "boolean": 1,
        "not": 1,
        "left-out": 2,
        "arithmetic": 2,
        "swapped": 1,
    }


def test_a_mutant_changes_its_statement_and_nothing_else(made):
    before = SOURCE.splitlines()
    for mutant in made:
        after = mutant.applied(SOURCE).splitlines()
        changed = [n for n, (a, b) in enumerate(zip(before, after, strict=True), 1) if a != b]
        assert len(changed) == 1, mutant
        assert mutant.first <= changed[0] <= mutant.last, mutant
        line = before[changed[0] - 1]
        assert not any(word in line for word in ("assert", "probe", "raise", "LIMIT", "def ")), line


def test_parentheses_stay_where_they_are(made):
    lines = {mutant.applied(SOURCE).splitlines()[mutant.first - 1].strip() for mutant in made}
    assert "total += value // (least + 2)" in lines
    assert "total += value * (least - 2)" in lines
    assert "if value > least or not value == 5:" in lines
    assert "if value > least and bool(value == 5):" in lines


@pytest.mark.slow
def test_a_process_imports_the_mutant_and_the_sample_can_be_drawn(tmp_path):
    path = "raftlog/raft/quorum.py"
    source = (ROOT / path).read_text()
    told = tmp_path / "mutant.json"
    told.write_text(
        json.dumps(
            {
                "module": "raftlog.raft.quorum",
                "path": path,
                "source": source + "MARK = 7\n",
                "cpu_seconds": 300,
            }
        )
    )
    program = "import mutation.hook; from raftlog.raft import quorum; print(quorum.MARK)"
    environment = {"RAFTLOG_MADE_MUTANT": str(told), "PYTHONPATH": f"{ROOT / 'scripts'}:{ROOT}"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "7"
    told = subprocess.run(
        [sys.executable, Path(ROOT, "scripts/_mutation.py"), "--tell", "--state", str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout == "nothing is judged yet\n"


@pytest.mark.parametrize(("code", "told"), [(0, ""), (1, "seeds 1..10")])
def test_a_sweep_that_fails_catches_the_mutant(monkeypatch, tmp_path, code, told):
    ended = subprocess.CompletedProcess([], code, "", "")
    monkeypatch.setattr(_mutation, "_run", lambda *_: ended)
    assert _mutation._by_seeds(tmp_path) == told


def test_a_sweep_that_cannot_run_catches_nothing(monkeypatch, tmp_path):
    """The story: each sweep ended with a usage error, and every mutant that passed the tests was
    "killed by seeds"."""
    monkeypatch.setattr(
        _mutation, "_run", lambda *_: subprocess.CompletedProcess([], 64, "", "no such seed")
    )
    with pytest.raises(SystemExit, match="no such seed"):
        _mutation._by_seeds(tmp_path)


@pytest.mark.parametrize(("came", "stops"), [("survived", False), ("killed by seeds", True)])
def test_a_hunt_begins_with_a_mutant_that_changes_nothing(monkeypatch, tmp_path, came, stops):
    asked = []

    def judged(mutant, tests, folder):
        asked.append((mutant.applied(SOURCE), tests))
        return came, "seeds 1..10"

    monkeypatch.setattr(_mutation, "judged", judged)
    lines = {("other.py", 1): ["a"], ("sums.py", 3): ["b", "c"]}
    if stops:
        with pytest.raises(SystemExit, match="unchanged source is killed by seeds"):
            _mutation.check_control("sums.py", lines, tmp_path)
    else:
        _mutation.check_control("sums.py", lines, tmp_path)
    assert asked == [(SOURCE, ["b"])]
