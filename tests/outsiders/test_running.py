"""Programs that tell, stay silent, end early and lie."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from outsiders.outcomes import Cell
from outsiders.running import ProgramError, judge, run_program

from raftlog.base.errors import OperatingError

# Says its features as the argument in front of them tells: works, silent, chats or dies.
PROGRAM = """
import json, sys, time
acts = dict(each.split("=") for each in sys.argv[1].split(","))
print("a library says hello", flush=True)
print(json.dumps({"version": "7"}), flush=True)
for name in sys.argv[4:]:
    if acts[name] == "dies":
        sys.exit("its last words")
    while acts[name] == "silent":
        time.sleep(60)
    while acts[name] == "chats":
        print("a library goes on", flush=True)
        time.sleep(0.05)
    print(json.dumps({"feature": name}), flush=True)
"""
PLACE = ["broker", "prefix"]


def run(acts, seconds=60):
    names = [each.partition("=")[0] for each in acts.split(",")]
    return run_program([sys.executable, "-c", PROGRAM, acts], PLACE, names, seconds)


def test_every_feature_has_its_cell():
    done = run("create=works,grow=works")
    assert done.version == "7"
    assert done.cells == {"create": ("works", ""), "grow": ("works", "")}


@pytest.mark.slow
def test_a_silent_program_hangs_and_the_rest_is_run():
    done = run("create=works,grow=silent,delete=works", seconds=6)
    assert done.cells["grow"] == ("hang", "silent for 6 s")
    assert [cell.outcome for cell in done.cells.values()] == ["works", "hang", "works"]


def test_a_program_that_ends_early_is_wrong_there_and_the_rest_is_run():
    done = run("create=dies,grow=works")
    assert done.cells["create"].outcome == "wrong"
    assert "it ended with 1: its last words" in done.cells["create"].said
    assert done.cells["grow"].outcome == "works"


@pytest.mark.slow
def test_a_program_that_prints_without_a_result_hangs():
    """Regression: each byte gave it more time, so it never ended."""
    assert run("create=works,grow=chats", seconds=4).cells["grow"] == ("hang", "silent for 4 s")


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('\'{"feature": "grow"}\'', "told of 'grow', not of \\['create'\\]"),
        ("'{broken'", "no JSON: b'{broken'"),
        ("'{\"other\": 1}'", "told of None"),
        ("'x' * 200_000", "has no end"),
    ],
)
def test_a_line_that_cannot_be_a_cell_is_an_error_of_the_program(line, told):
    code = f"import time; print({line}, flush=True); time.sleep(60)"
    with pytest.raises(ProgramError, match=told):
        run_program([sys.executable, "-c", code], PLACE, ["create"], 60)


def test_without_a_cluster_no_cell_counts():
    def gone():
        raise OperatingError("broker 2 ended with -9")

    command = [sys.executable, "-c", PROGRAM, "create=dies,grow=works"]
    with pytest.raises(OperatingError, match="broker 2"):
        run_program(command, PLACE, ["create", "grow"], 60, still_there=gone)


ENDED = """
import sys
from outsiders.running import end_whole, run_program
end_whole()
child = "import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(300)"
run_program([sys.executable, "-c", child], [sys.argv[1]], ["create"], 300)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_ends_the_program_too(tmp_path, number):
    """Regression: two of these left a client, a JVM and three brokers behind."""
    told = tmp_path / "pid"
    code = f"import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n{ENDED}"
    command = [sys.executable, "-c", code, str(told)]
    outer = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    while not told.exists() or not told.read_text():
        time.sleep(0.02)
    child = Path("/proc", told.read_text())
    assert child.exists()
    outer.send_signal(number)
    assert outer.wait(30) != 0
    # Its own parent has reaped it, so nothing of it is left.
    assert not child.exists()


class Witness:
    """Sees the effect of no feature but `create`."""

    def denial_of(self, feature):
        return {
            "create": None,
            "grow": Cell("wrong", "there is no such topic"),
            "kip-848": Cell("falls back", "it reads by another protocol"),
        }[feature]


def test_works_counts_when_the_cluster_shows_it():
    done = run("create=works,grow=works,kip-848=works,delete=dies")
    judge(done, Witness())
    assert done.cells["create"].outcome == "works"
    assert done.cells["grow"] == ("wrong", "it said that it works, but there is no such topic")
    assert done.cells["kip-848"] == ("falls back", "it reads by another protocol")
    assert "its last words" in done.cells["delete"].said
