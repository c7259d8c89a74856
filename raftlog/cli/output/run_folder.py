"""The folder of a run: `runs/<UTC yyyymmddThhmmss>-<command>-<seed>/`, and `runs/latest` beside it.

Its contents are those of docs/guides/verify.md: run.json, history.jsonl, verdict.json, report.html
and the files that the nodes left.
"""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from raftlog.base.ports import Clock

RUNS: Final = Path("runs")
LATEST: Final = "latest"


def utc_text(clock: Clock) -> str:
    """The present time in UTC, to the second, for a run's manifest."""
    return datetime.fromtimestamp(clock.wall() / 1000, UTC).isoformat(timespec="seconds")


def make_run_folder(command: str, seed: int, out: Path | None, clock: Clock) -> Path:
    """A new folder, at `out` when that is given. `latest` then points to it."""
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        return out.resolve()
    stamp = datetime.fromtimestamp(clock.wall() / 1000, UTC).strftime("%Y%m%dT%H%M%S")
    name, number = f"{stamp}-{command}-{seed}", 1
    while (RUNS / name).exists():
        number += 1
        name = f"{stamp}-{command}-{seed}-{number}"
    folder = RUNS / name
    folder.mkdir(parents=True)
    latest = RUNS / LATEST
    aside = RUNS / f".{LATEST}-{name}"
    aside.symlink_to(name)
    aside.replace(latest)
    return folder.resolve()


def write_json(path: Path, document: dict[str, Any]) -> None:
    """Write a document whole or not at all."""
    aside = path.with_name(path.name + ".tmp")
    aside.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    aside.replace(path)
