"""`raftlog chaos run`, as a stranger would use it: a file, a program, and what comes of them."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.tidy.tree import ROOT

pytestmark = [pytest.mark.processes, pytest.mark.slow]

LEADER_DIES = """\
# The leader dies while clients write; later a follower is cut off.
set partitions 2
300 crash node=leader:0 for 500
1500 partition side=follower:1 how=silent for 500
2200 pause node=n2 for 300
"""
SHOP = """\
import os, sys
from raftlog import verify
from raftlog.client.blocking import BlockingClient

topic, servers = os.environ["RAFTLOG_TOPIC"], os.environ["RAFTLOG_BOOTSTRAP_SERVER"]
with verify.recording(os.environ["RAFTLOG_HISTORY"]) as history, BlockingClient(servers) as plain:
    client = verify.record(plain, history)
    for number in range(60):
        client.produce(topic, b"order %d" % number, partition=0)
    print("sold", flush=True)
    history.read_back(servers)
sys.exit(int(sys.argv[1]))
"""
FORGETFUL = """\
import json, os
lines = [
    {"format": 1, "source": "embed", "seed": 1, "commit": None, "model": "log",
     "options": {"final_read": True}, "nodes": []},
    {"index": 0, "time_ns": 1, "process": 0, "type": "invoke", "f": "send", "key": "work/0",
     "value": "a"},
    {"index": 1, "time_ns": 2, "process": 0, "type": "ok", "f": "send", "key": "work/0",
     "value": [0, "a"]},
    {"index": 2, "time_ns": 3, "process": 1, "type": "invoke", "f": "poll",
     "key": None, "value": None},
    {"index": 3, "time_ns": 4, "process": 1, "type": "ok", "f": "poll",
     "key": None, "value": {"work/0": [[1, "b"]]}},
]
with open(os.environ["RAFTLOG_HISTORY"], "w") as history:
    for line in lines:
        history.write(json.dumps(line) + "\\n")
"""


def chaos(folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run it in a folder, from a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "raftlog", "chaos", "run", *map(str, arguments)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'sim'}"},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "leader-dies.txt").write_text(LEADER_DIES)
    (tmp_path / "shop.py").write_text(SHOP)
    return tmp_path


def processes_below(folder: Path) -> list[str]:
    """The command lines of processes that name the folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue  # it has ended
            if str(folder) in line:
                found.append(line)
    return found


def test_a_scenario_alone_is_played_and_judged(folder):
    ran = chaos(folder, "leader-dies.txt", "--junit", "chaos.xml", "--seed", 5)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.startswith("VALID")
    assert re.search(
        r"faults: crash 1, partition 1, pause 1\n  used \d+ times, brokers 1, 2, 3: .*partition",
        ran.stdout,
    )
    latest = folder / "runs" / "latest"
    assert latest.resolve().name.endswith("-chaos-5")
    left = sorted(each.name for each in latest.iterdir())
    assert left == ["history.jsonl", "report.html", "run.json", "scenario.txt", "verdict.json"]
    kinds = [json.loads(line) for line in (latest / "history.jsonl").read_text().splitlines()]
    assert [each["f"] for each in kinds if each.get("process") == "nemesis"][:3] == [
        "kill",
        "restart",
        "partition",
    ]
    suite = ET.parse(folder / "chaos.xml").getroot()
    assert (suite.get("name"), suite.get("failures")) == ("leader-dies", "0")
    assert "brokers-alive" in [each.get("name") for each in suite]
    again = subprocess.run(
        [sys.executable, "-m", "raftlog", "verify", str(latest), "--format", "json"],
        capture_output=True,
        check=False,
    )
    assert again.returncode == 0
    assert processes_below(folder) == []


def test_a_users_program_that_passes_and_one_that_fails(folder):
    command = f"{sys.executable} shop.py"
    good = chaos(folder, "leader-dies.txt", "--command", f"{command} 0", "--out", "good")
    assert good.returncode == 0, good.stdout + good.stderr
    assert "sold\n" in good.stderr
    assert "your program ended with 0" in good.stdout
    assert "program-history" in good.stdout

    bad = chaos(
        folder, "leader-dies.txt", "--command", f"{command} 3", "--out", "bad", "--warm-up", 0,
        "--junit", "bad.xml", "--format", "json",
    )  # fmt: skip
    assert bad.returncode == 1
    told = json.loads(bad.stdout)
    assert (told["program_exit_code"], told["struck"]["crash"]) == (3, 1)
    assert told["invariants"]["program"]["status"] == "violated"
    assert (folder / "bad" / "program.txt").read_text() == "sold\n"
    assert "it ended with 3" in (folder / "bad.xml").read_text()
    assert "it ended with 3" in (folder / "bad" / "report.html").read_text()
    assert (folder / "bad" / "cluster" / "broker1.log").exists()
    assert processes_below(folder) == []


def test_a_history_that_the_program_recorded_is_judged(folder):
    (folder / "forgetful.py").write_text(FORGETFUL)
    command = f"{sys.executable} forgetful.py"
    ran = chaos(folder, "leader-dies.txt", "--command", command, "--warm-up", 0)
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert "program-history, a check of the run's own, was violated" in ran.stdout
    assert "phantom" in ran.stdout

    command = f"echo nonsense > $RAFTLOG_HISTORY; : {folder}"
    ran = chaos(folder, "leader-dies.txt", "--command", command, "--warm-up", 0)
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert "program-history, a check of the run's own, was violated" in ran.stdout
    assert "it is no history" in ran.stdout


def test_what_cannot_be_played_is_refused_before_anything_starts(folder):
    (folder / "power.txt").write_text("# Power.\n100 power node=n1 keep=none for 9\n")
    (folder / "wrong.txt").write_text("# Wrong.\n100 crash node=n1 for 9\n200 crsh node=n1\n")
    for name, why in (
        ("power.txt", "line 2: power"),
        ("wrong.txt", "line 3"),
        ("nowhere.txt", "No such file"),
        ("shop.py", "it is no scenario"),
    ):
        ran = chaos(folder, name)
        assert (ran.returncode, ran.stdout) == (64, ""), name
        assert why in ran.stderr
        assert "Traceback" not in ran.stderr
    asked = chaos(folder, "power.txt", "--format", "json")
    assert json.loads(asked.stderr)["error"]["what"].startswith("real processes cannot do this")
    short = chaos(folder, "leader-dies.txt", "--time-limit", 1)
    assert (short.returncode, "raise --time-limit" in short.stderr) == (64, True)
    full = chaos(folder, "leader-dies.txt", "--out", ".")
    assert (full.returncode, "not empty" in full.stderr) == (1, True)
    assert not (folder / "runs").exists()


def test_a_program_that_never_ends_is_ended_at_the_limit(folder):
    ran = chaos(
        folder, "leader-dies.txt", "--command", f"sleep 613; : {folder}", "--warm-up", 0,
        "--time-limit", 15,
    )  # fmt: skip
    assert ran.returncode == 1
    assert "it did not end in time" in ran.stdout
    assert processes_below(folder) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_leaves_no_process_behind(folder, number):
    running = subprocess.Popen(
        [
            *(sys.executable, "-m", "raftlog", "chaos", "run", "leader-dies.txt"),
            *("--command", f"echo begun; sleep 614; : {folder}", "--out", str(folder / "out")),
        ],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'sim'}"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    assert running.stderr is not None
    assert running.stderr.readline() == b"begun\n"
    assert len(processes_below(folder)) >= 4
    running.send_signal(number)
    _, said = running.communicate(timeout=60)
    assert running.returncode == 130
    assert b"Traceback" not in said
    deadline = time.perf_counter() + 20
    while processes_below(folder):
        assert time.perf_counter() < deadline, processes_below(folder)
        time.sleep(0.05)
