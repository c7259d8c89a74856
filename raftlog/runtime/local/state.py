"""Reads and writes `cluster.json` of a local cluster, and stops brokers of another process.

A process id is only a number: a process counts as ours when its command line names the broker's
configuration file.
"""

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any, Final

from raftlog.base.errors import OperatingError
from raftlog.base.units import NANOS_PER_SECOND
from raftlog.runtime.local.broker_processes import STOP_SECONDS, BrokerFiles
from raftlog.runtime.real_ports import SystemClock

STATE_FILE: Final = "cluster.json"
STATE_VERSION: Final = 1
_POLL_SECONDS: Final = 0.02
_LEAVING: Final = "leaving"


def load_state(directory: Path) -> dict[str, Any]:
    """The content of `cluster.json`; `OperatingError` when there is none."""
    try:
        state = json.loads((directory / STATE_FILE).read_text())
    except FileNotFoundError:
        raise _not_started(directory) from None
    except ValueError as error:
        raise OperatingError(
            f"cannot be read: {error}",
            on=str(directory / STATE_FILE),
            do="remove it: it holds ports and process ids only",
        ) from error
    if not isinstance(state, dict) or state.get("version") != STATE_VERSION:
        raise OperatingError("is of another version", on=str(directory / STATE_FILE))
    return state


def write_state(directory: Path, state: dict[str, Any]) -> None:
    """Write `cluster.json`, by which other processes know the cluster: the whole file or nothing.

    The version is added here.
    """
    target = directory / STATE_FILE
    aside = target.with_suffix(".tmp")
    aside.write_text(json.dumps({**state, "version": STATE_VERSION}, indent=1) + "\n")
    aside.replace(target)


def note_leaving(directory: Path, node: int) -> None:
    """Note that this broker is about to be stopped for good. The `up` that started it then does not
    take it for one that died."""
    state = load_state(directory)
    for broker in state["brokers"]:
        if broker["node"] == node:
            broker[_LEAVING] = True
    write_state(directory, state)


def has_left(directory: Path, node: int) -> bool:
    """Whether this broker was stopped for good: the state notes that, or names it no more."""
    named = [broker for broker in load_state(directory)["brokers"] if broker["node"] == node]
    return not named or named[0].get(_LEAVING) is True


def _not_started(directory: Path) -> OperatingError:
    return OperatingError(
        "no cluster was started here", on=str(directory), do="raftlog up --dir DIR"
    )


def stop_detached(directory: Path, only: int | None = None) -> list[int]:
    """Stop the brokers that `cluster.json` names, or one, as far as they are ours; the nodes
    stopped. `OperatingError` when none was ever started: `up` may have been refused, and left its
    files."""
    files = BrokerFiles(directory)
    stopped: list[int] = []
    pids: dict[int, int] = {}
    brokers = load_state(directory)["brokers"]
    if all(broker["pid"] is None for broker in brokers):
        raise _not_started(directory)
    for broker in brokers:
        pid, node = broker["pid"], broker["node"]
        if only not in (None, node):
            continue
        if pid is not None and _is_ours(pid, files.config_path(node)):
            pids[node] = pid
            os.kill(pid, signal.SIGCONT)
            os.kill(pid, signal.SIGTERM)
    deadline = _seconds() + STOP_SECONDS
    for node, pid in pids.items():
        config = files.config_path(node)
        while _is_ours(pid, config):
            if _seconds() > deadline:
                os.kill(pid, signal.SIGKILL)
                deadline = _seconds() + STOP_SECONDS
            time.sleep(_POLL_SECONDS)
        stopped.append(node)
    return stopped


def _seconds() -> float:
    return SystemClock().now() / NANOS_PER_SECOND


def _is_ours(pid: int, config: Path) -> bool:
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            if file.read().rpartition(")")[2].split()[0] == "Z":
                return False
        command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except FileNotFoundError:
        if Path("/proc/self").exists():
            return False
        return _is_ours_by_ps(pid, config)
    except ProcessLookupError:
        return False
    return str(config).encode() in command


def _is_ours_by_ps(pid: int, config: Path) -> bool:
    """Where there is no /proc (macOS)."""
    found = subprocess.run(
        ["ps", "-o", "command=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return str(config) in found.stdout
