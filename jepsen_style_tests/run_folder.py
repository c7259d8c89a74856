"""The folder of a run: `runs/<UTC yyyymmddThhmmss>-<command>-<seed>/`, `runs/latest` beside it."""

import json
import platform
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

RUNS: Final = Path("runs")
LATEST: Final = "latest"
_PACKAGES: Final = ("raftlog", "confluent-kafka", "kafka-python", "aiokafka")


def make(command: str, seed: int, out: Path | None) -> Path:
    """A new folder, at `out` when that is given. `latest` then points to it."""
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        return out.resolve()
    stem = f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{command}-{seed}"
    name, number = stem, 1
    while (RUNS / name).exists():
        number += 1
        name = f"{stem}-{number}"
    folder = RUNS / name
    folder.mkdir(parents=True)
    aside = RUNS / f".{LATEST}-{name}"
    aside.symlink_to(name)
    aside.replace(RUNS / LATEST)
    return folder.resolve()


def write_json(path: Path, document: Mapping[str, Any]) -> None:
    """Write a document whole or not at all."""
    aside = path.with_name(path.name + ".tmp")
    aside.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    aside.replace(path)


def utc_now() -> str:
    """The present, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def versions() -> dict[str, str]:
    """The parts of the run."""
    found = {"python": sys.version.split()[0], "platform": platform.platform()}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "a checkout"
    return found
