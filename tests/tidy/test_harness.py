"""The harness itself: needed programs, the count of probes, an empty run.

Each test runs pytest in a process of its own on a file of its own, with our conftest as a plugin.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tidy.tree import ROOT

pytestmark = pytest.mark.slow

NEEDS_NOTHING_KNOWN = """
import pytest

@pytest.mark.needs_command("no-such-program-anywhere")
def test_it():
    pass
"""
PASSES_ONE_PROBE = """
from raftlog.base.probes import probe

def test_one():
    probe("planted-one")

def test_two():
    pass
"""


def pytest_on(folder: Path, text: str, *options: str, env=None) -> subprocess.CompletedProcess[str]:
    """Run pytest on one file with tests/conftest.py as a plugin."""
    (folder / "test_planted.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-c", os.devnull]
    return subprocess.run(
        [*command, "--rootdir", str(folder), "-p", "no:cacheprovider", *options, str(folder)],
        cwd=ROOT,
        env=env,
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_a_missing_program_fails_and_names_the_script(tmp_path: Path):
    done = pytest_on(tmp_path, NEEDS_NOTHING_KNOWN)
    assert done.returncode == 1
    assert "no-such-program-anywhere is not installed: run scripts/system_packages" in done.stdout


def test_no_system_skips_instead(tmp_path: Path):
    done = pytest_on(tmp_path, NEEDS_NOTHING_KNOWN, "--no-system")
    assert done.returncode == 0
    assert "1 skipped" in done.stdout
    assert "left out: 1, for no-such-program-anywhere is not installed" in done.stdout


def test_what_is_left_out_is_told_with_the_command_that_brings_it(tmp_path: Path):
    text = NEEDS_NOTHING_KNOWN.replace("no-such-program-anywhere", "kcat")
    without = {**os.environ, "PATH": str(tmp_path)}
    done = pytest_on(tmp_path, text, "--no-system", env=without)
    advice = "as root run: apt-get install -y --no-install-recommends kcat"
    assert f"left out: 1, for kcat is not installed; {advice}" in done.stdout


def test_a_run_without_tests_fails(tmp_path: Path):
    assert pytest_on(tmp_path, "").returncode == pytest.ExitCode.NO_TESTS_COLLECTED


@pytest.mark.parametrize("processes", [[], ["-n", "2"]], ids=["alone", "two processes"])
def test_probes_are_counted_over_all_processes(tmp_path: Path, processes: list[str], monkeypatch):
    plugin = tmp_path / "planted_plugin.py"
    plugin.write_text(
        "import pytest\nfrom tests import conftest\n"
        "conftest.named_probes = lambda: {'planted-one', 'planted-two'}\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    options = ["-p", "planted_plugin", "--require-probes", *processes]
    done = pytest_on(tmp_path, PASSES_ONE_PROBE, *options)
    assert "probe reached by no test: planted-two" in done.stdout
    assert "probe reached by no test: planted-one" not in done.stdout
    assert done.returncode == 1
