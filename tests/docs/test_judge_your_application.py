"""The tests of the guide are tests: pytest runs each of them as it stands there."""

import re
import subprocess
import sys

import pytest

from tests.docs.test_guides import blocks
from tests.tidy.tree import ROOT

pytestmark = [pytest.mark.processes, pytest.mark.slow, pytest.mark.timeout(200)]

PAGE = "judge_your_application.md"
TESTS = blocks(PAGE, "python")


def test_the_first_is_short_and_there_is_one_for_each_library():
    lines = [line for line in TESTS[0].partition("):\n")[2].splitlines() if line.strip()]
    assert len(lines) <= 18
    imported = [re.findall(r"^from (\w+)", test, re.M)[0] for test in TESTS]
    assert imported == ["confluent_kafka", "kafka", "aiokafka", "raftlog"]


@pytest.mark.parametrize("at", range(len(TESTS)))
def test_it_passes(at, tmp_path):
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_orders.py").write_text(TESTS[at])
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--basetemp", "kept"],
        cwd=tmp_path,
        env={"PATH": "", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    kept = tmp_path / "kept" / "test_no_order_is_lost0"
    report, history = kept / "report.html", kept / "history.jsonl"
    assert '"verdict":"valid"' in report.read_text(encoding="utf-8").replace(" ", "")
    judged = subprocess.run(
        [sys.executable, "-m", "raftlog", "verify", str(history)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert judged.returncode == 0, judged.stdout + judged.stderr
