"""`raftlog sim gate`: do these tools tell a broken release of a library from a good one?

PySyncObj 0.3.14 never stores its term and vote; 0.3.17 does. Whole-cluster restarts with a partial
return must convict the first and acquit the second, in this family of runs. Both are installed by
pip into folders of their own; nothing of them is kept here.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import raftlog
import raftlog_sim
from raftlog.base.amounts import amount
from raftlog_sim.commands import common
from raftlog_sim.hunting import mutation

GUILTY: Final = "0.3.14"
INNOCENT: Final = "0.3.17"
PROFILE: Final = "restarts"
SEEDS: Final = range(1, 21)
INSTALL_SECONDS: Final = 120
_ASK: Final = "from raftlog_sim.subjects.pysyncobj import VERSION; print(VERSION)"


def add(parsers: common.Parsers) -> None:
    """Add `gate` to the commands."""
    gate = common.add_command(
        parsers, "gate", _gate,
        f"PySyncObj {GUILTY} must fail whole-cluster restarts, {INNOCENT} must pass (uses pip)",
        "gate --seeds 1..20",
    )  # fmt: skip
    gate.add_argument(
        "--seeds", type=common.seeds, default=SEEDS, metavar="A..B",
        help=f"which seeds each release plays; default: {SEEDS.start}..{SEEDS.stop - 1}",
    )  # fmt: skip
    gate.add_argument(
        "--into", type=Path, metavar="DIR",
        help="where the releases go, and stay; default: a folder that is gone afterwards",
    )  # fmt: skip


def _gate(options: argparse.Namespace) -> int:
    found: dict[str, dict[str, Any]] = {}
    with _folder(options.into) as home:
        for version in (GUILTY, INNOCENT):
            why = install(version, home / version)
            if why:
                return _skipped(options, version, why)
            found[version] = sweep(home / version, version, options.seeds)
    ok = found[GUILTY]["failed"] > 0 and found[INNOCENT]["failed"] == 0
    if options.format == "json":
        common.print_json({"ok": ok, "skipped": "", "releases": found})
    else:
        for version, document in found.items():
            groups = ", ".join(
                f"{each['count']} x {each['class']}" for each in document["failures"]
            )
            told = f"{document['failed']} of {amount(document['seeds'], 'seed')} fail"
            print(f"pysyncobj {version}: {told}{f' ({groups})' if groups else ''}")
        print(
            "the gate holds" if ok else f"THE GATE FAILS: {GUILTY} must fail, {INNOCENT} must not"
        )
    return common.DONE if ok else common.FAILED


def _skipped(options: argparse.Namespace, version: str, why: str) -> int:
    if options.format == "json":
        common.print_json({"ok": None, "skipped": why, "releases": {}})
    else:
        print(f"skipped: pysyncobj {version} cannot be installed: {why}")
    return common.DISAGREED


@contextmanager
def _folder(into: Path | None) -> Iterator[Path]:
    if into is not None:
        common.check_folder(into)
        into.mkdir(parents=True, exist_ok=True)
        yield into
        return
    with tempfile.TemporaryDirectory(prefix="raftlog-gate-") as home:
        yield Path(home)


def install(version: str, folder: Path) -> str:
    """Let pip install that release into the folder, unless it is there; returns an error or ""."""
    if (folder / "pysyncobj").is_dir():
        return ""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-input"]
    command += ["--disable-pip-version-check", "--target", str(folder), f"pysyncobj=={version}"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=INSTALL_SECONDS
        )
    except subprocess.TimeoutExpired:
        return f"pip took more than {INSTALL_SECONDS} s"
    lines = done.stderr.strip().splitlines() or ["pip failed"]
    return lines[-1] if done.returncode else ""


def sweep(folder: Path, version: str, seeds: range) -> dict[str, Any]:
    """Sweep over that release, in a process that imports it from its folder; returns the
    findings."""
    home = [str(Path(package.__file__ or "").parents[1]) for package in (raftlog, raftlog_sim)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *home])}
    environment.pop(mutation.VARIABLE, None)  # bugs of brokers do not go with a guest
    arguments = ["sweep", "--subject", "pysyncobj", "--profile", PROFILE, "--jobs", "1",
                 "--seeds", f"{seeds.start}..{seeds.stop - 1}", "--no-folders",
                 "--check-every", "0", "--format", "json"]  # fmt: skip
    told = _output([sys.executable, "-c", _ASK], environment).strip()
    assert told == version, f"the process found pysyncobj {told}, not {version}"
    text = _output([sys.executable, "-m", "raftlog_sim", *arguments], environment)
    document: dict[str, Any] = json.loads(text)
    return document


def _output(command: list[str], environment: dict[str, str]) -> str:
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr[-2000:]
    return done.stdout
