"""The programs of docs/examples run and say what they promise."""

import subprocess
import sys

import pytest

from tests.tidy.tree import ROOT

pytestmark = [pytest.mark.processes, pytest.mark.slow]

FOLDER = ROOT / "docs" / "examples"
SAYS = {
    "kill_the_leader.py": "[b'before', b'after']",
    "replicated_counter.py": "42",
    "judge_a_seed.py": "VALID",
}


def test_each_example_has_an_expectation_and_a_row():
    assert {path.name for path in FOLDER.glob("*.py")} == set(SAYS)
    page = (FOLDER / "index.md").read_text(encoding="utf-8")
    assert [name for name in SAYS if f"({name})" not in page] == []


@pytest.mark.parametrize("name", SAYS)
def test_an_example_runs(name: str):
    done = subprocess.run(
        [sys.executable, str(FOLDER / name)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert SAYS[name] in done.stdout
