"""The folder of a run: `runs/<UTC yyyymmddThhmmss>-<command>-<seed>/`, and `runs/latest` beside it.

Its contents are those of docs/guides/verify.md: run.json, history.jsonl, verdict.json,
report.html and what the nodes left behind.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
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


@contextmanager
def removed_if_empty(folder: Path) -> Iterator[None]:
    """Leave no empty folder behind when the block fails before it wrote anything."""
    try:
        yield
    except BaseException:
        if not any(folder.iterdir()):
            folder.rmdir()
            latest = folder.parent / LATEST
            if latest.is_symlink() and not latest.exists():
                latest.unlink()
            if folder.parent.name == RUNS.name and not any(folder.parent.iterdir()):
                folder.parent.rmdir()
        raise


def write_json(path: Path, document: dict[str, Any]) -> None:
    """Write a document whole or not at all."""
    aside = path.with_name(path.name + ".tmp")
    aside.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    aside.replace(path)
