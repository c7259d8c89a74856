"""A plugin of pytest that books each line on the test that runs it.

It also notes how long each test takes, in the file that RAFTLOG_DURATIONS names.
"""

import json
import os
from pathlib import Path

import coverage
import pytest

DURATIONS = "RAFTLOG_DURATIONS"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item, nextitem):
    """Book the lines that run from now on for this test."""
    measured = coverage.Coverage.current()
    assert measured is not None, "run under `coverage run`"
    measured.switch_context(item.nodeid)
    return (yield)


def pytest_runtest_logreport(report):
    """Note how long the test took."""
    if report.when == "call" and report.passed:
        with Path(os.environ[DURATIONS]).open("a") as file:
            file.write(json.dumps([report.nodeid, report.duration]) + "\n")
