"""`raftlog sim` is the simulator's process: its exit codes, its signals. It used to start one and
leave it behind when SIGTERM came."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, "-m", "raftlog", "sim"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'sim'}"}


def command_line_of(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
    except OSError:
        return []


def test_its_exit_code_and_errors_are_the_simulators(tmp_path):
    done = subprocess.run(
        [*COMMAND, "run", "--format", "json"], cwd=tmp_path, env=ENVIRONMENT, check=False,
        capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (64, "")
    assert done.stderr.startswith('{"version": 1, "error": {"what": ')


BEHIND_AN_AMPERSAND = ["sh", "-c", 'trap "" INT; exec "$@"', "sh"]
"""A shell without job control starts what is in the background with SIGINT ignored."""


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks at a process in /proc")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_reaches_the_simulator(number, tmp_path):
    """It is sent once the first seed has failed: a sweep that has not begun has nothing to tell."""
    process = subprocess.Popen(
        [*BEHIND_AN_AMPERSAND, *COMMAND, "sweep", "--seeds", "1..100000", "--jobs", "1",
         "--mutant", "canary", "--out", "found"],
        cwd=tmp_path, env={**ENVIRONMENT, "PYTHONFAULTHANDLER": "1"},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        deadline = time.perf_counter() + 60
        while not (tmp_path / "found").is_dir():
            assert time.perf_counter() < deadline
            time.sleep(0.02)
        assert "raftlog_sim" in command_line_of(process.pid)
        process.send_signal(number)
        try:
            out, error = process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGABRT)
            pytest.fail("it did not end; where it was: " + process.communicate(timeout=10)[1])
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130, error
    assert "interrupted: this is what was done so far" in out
    assert out.startswith("seed 1: committed-durable: "), out
