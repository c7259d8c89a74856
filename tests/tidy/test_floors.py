"""Each import-linter contract is broken by its planted violation: one that cannot fail is none.

A tree of empty packages with the names of ours gets the contracts of pyproject.toml, and one file
that breaks one of them.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tidy.tree import text_of

pytestmark = pytest.mark.slow

FLOORS = ["base", "records", "raft", "kafka", "storage", "verify", "seal", "metadata"]
FLOORS += [
    "groups",
    "partition",
    "broker",
    "runtime",
    "client",
    "client/core",
    "testing",
    "embed",
    "spark",
    "cli",
]

ROOMS = {
    "broker": [
        "incident",
        "broker",
        "admin",
        "handlers",
        "context",
        "groups",
        "front",
        "replicas",
        "control",
        "turn",
        "deadlines",
        "log_directories",
        "topic_settings",
        "turn_queue",
        "config",
        "events",
        "release",
        "peer_codec",
        "peer_messages",
    ],
}
SIM_ROOMS = ["base", "world", "facts", "checks", "schedules", "workloads", "incidents", "subjects"]
SIM_ROOMS += ["faults", "shell", "playing", "hunting", "commands"]

VIOLATIONS = {
    "the rooms of the broker meet only in broker.py": (
        "raftlog/broker/front/bad.py",
        "import raftlog.broker.replicas",
    ),
    "a floor imports only floors below it": ("raftlog/raft/bad.py", "import raftlog.kafka"),
    "the product never imports what stands beside the tower": (
        "raftlog/cli/bad.py",
        "import raftlog_sim",
    ),
    "everything the simulator must control is sans-I/O": (
        "raftlog/client/core/bad.py",
        "from time import monotonic",
    ),
    "guests stay in their rooms": ("raftlog/embed/bad.py", "import pytest"),
    "the judge knows nothing of the judged": ("raftlog/verify/bad.py", "import raftlog.records"),
    "only raftlog_sim.shell.trio_world may touch the runtime": (
        "raftlog_sim/world/bad.py",
        "import raftlog.runtime",
    ),
    "a room of the simulator imports only rooms below it": (
        "raftlog_sim/world/bad.py",
        "import raftlog_sim.faults",
    ),
    "black-box tests see processes and the judge": (
        "jepsen_style_tests/bad.py",
        "import raftlog.broker",
    ),
}


def small_tree(root: Path) -> None:
    """Packages named as ours, all empty, under our contracts."""
    folders = ["raftlog", *(f"raftlog/{floor}" for floor in FLOORS)]
    folders += [f"raftlog/{floor}/{room}" for floor, rooms in ROOMS.items() for room in rooms]
    folders += ["raftlog_sim", *(f"raftlog_sim/{room}" for room in SIM_ROOMS), "jepsen_style_tests"]
    for folder in folders:
        (root / folder).mkdir()
        (root / folder / "__init__.py").touch()
    (root / "pyproject.toml").write_text(text_of("pyproject.toml") or "")


def linted(root: Path) -> tuple[int, str]:
    """Exit code and report of import-linter on the small tree, which is found before ours."""
    program = Path(sys.executable).with_name("lint-imports")
    environment = {**os.environ, "PYTHONPATH": str(root), "COLUMNS": "200"}
    done = subprocess.run(
        [program, "--no-cache", "--no-logo"],
        cwd=root,
        env=environment,
        check=False,
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout


def add(root: Path, path: str, text: str) -> None:
    """Write one more file of the small tree."""
    (root / path).parent.mkdir(exist_ok=True)
    (root / path).write_text(f"{text}\n")


def test_every_contract_has_a_planted_violation():
    named = [line for line in (text_of("pyproject.toml") or "").splitlines() if "name = " in line]
    contracts = [line.partition('"')[2].rstrip('"') for line in named[1:]]
    assert sorted(contracts) == sorted(VIOLATIONS)


@pytest.mark.parametrize("contract", VIOLATIONS)
def test_a_planted_violation_breaks_its_contract(tmp_path: Path, contract: str):
    small_tree(tmp_path)
    add(tmp_path, *VIOLATIONS[contract])
    code, report = linted(tmp_path)
    assert f"{contract} BROKEN" in report
    assert (code, report.count(" BROKEN")) == (1, 1)


def test_a_new_folder_must_choose_its_floor(tmp_path: Path):
    small_tree(tmp_path)
    add(tmp_path, "raftlog/misc/__init__.py", "")
    code, report = linted(tmp_path)
    assert code == 1
    assert "misc" in report


def test_a_new_module_of_the_broker_must_choose_its_room(tmp_path: Path):
    small_tree(tmp_path)
    add(tmp_path, "raftlog/broker/misc.py", "")
    code, report = linted(tmp_path)
    assert code == 1
    assert "misc" in report


def test_a_loose_file_of_the_simulator_must_choose_its_room(tmp_path: Path):
    small_tree(tmp_path)
    add(tmp_path, "raftlog_sim/loose.py", "")
    code, report = linted(tmp_path)
    assert code == 1
    assert "loose" in report


def test_the_rooms_of_the_guests_are_open(tmp_path: Path):
    small_tree(tmp_path)
    add(tmp_path, "raftlog/embed/pytest_plugin.py", "import pytest")
    add(tmp_path, "raftlog/spark/connector/source.py", "import pyspark")
    add(tmp_path, "raftlog_sim/subjects/__init__.py", "")
    add(tmp_path, "raftlog_sim/subjects/pysyncobj.py", "import pysyncobj")
    add(tmp_path, "raftlog/runtime/server.py", "")
    add(tmp_path, "raftlog/client/trio_driver.py", "")
    add(
        tmp_path,
        "raftlog_sim/shell/trio_world.py",
        "from raftlog.runtime import server\nfrom raftlog.client import trio_driver",
    )
    add(tmp_path, "raftlog_sim/world/world.py", "from raftlog.client import core")
    code, report = linted(tmp_path)
    assert code == 0, report
