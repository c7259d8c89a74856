"""A command that fails before it wrote anything leaves no folder in `runs`, and no `runs`."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
from raftlog_sim.__main__ import main

from tests.tidy.tree import ROOT


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def full_disk(monkeypatch, *names):
    """Files of these names cannot be written."""
    real = Path.replace

    def replace(path, target):
        if Path(target).name in names:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(path, target)

    monkeypatch.setattr(Path, "replace", replace)


def test_a_run_that_cannot_be_kept_leaves_nothing(tmp_path, monkeypatch):
    full_disk(monkeypatch, "schedule.json")
    assert main(["run", "--seed", "1"]) != 0
    assert list(tmp_path.iterdir()) == []


SWEEP_ON_A_FULL_DISK = """
import errno, sys
from pathlib import Path
from raftlog_sim.__main__ import main

real = Path.replace

def replace(path, target):
    if Path(target).name == "schedule.json":
        raise OSError(errno.ENOSPC, "No space left on device")
    return real(path, target)

Path.replace = replace
sys.exit(main(["sweep", "--seeds", "1..1", "--mutant", "canary"]))
"""


def test_a_failed_seed_of_a_sweep_that_cannot_be_kept_leaves_nothing(tmp_path):
    """In a process of its own: a planted bug stays in the process that planted it."""
    paths = os.pathsep.join([str(ROOT), str(ROOT / "sim")])
    done = subprocess.run(
        [sys.executable, "-c", SWEEP_ON_A_FULL_DISK],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode != 0
    assert "No space left on device" in done.stderr + done.stdout
    assert list(tmp_path.iterdir()) == []


def test_what_was_written_stays(tmp_path, monkeypatch):
    full_disk(monkeypatch, "trace.txt")
    assert main(["run", "--seed", "1"]) != 0
    (folder,) = (each for each in (tmp_path / "runs").iterdir() if not each.is_symlink())
    assert sorted(each.name for each in folder.iterdir()) == ["history.jsonl", "schedule.json"]


@pytest.mark.parametrize(
    "command",
    [
        ["run", "--seed", "1", "--no-folder"],
        ["replay", "nowhere"],
        ["shrink", "--seed", "1", "--profile", "calm"],
        ["scenarios", "--list"],
        ["sweep", "--seeds", "1..1", "--profile", "calm"],
    ],
)
def test_what_keeps_no_run_makes_no_folder(command, tmp_path):
    main(command)
    assert list(tmp_path.iterdir()) == []
