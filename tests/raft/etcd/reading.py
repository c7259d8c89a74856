"""Reads the case files of this folder: plain lines, `#` for comments."""

from collections.abc import Iterator
from pathlib import Path

from tests.raft.cluster import rid

HERE = Path(__file__).parent


def case_lines(name: str) -> Iterator[tuple[int, str]]:
    """Line numbers and lines, comments and empty ones left out."""
    for number, line in enumerate((HERE / name).read_text().splitlines(), 1):
        if line.strip() and not line.startswith("#"):
            yield number, line.strip()


def ids(text: str, between: str | None = None) -> tuple:
    """Replica ids of a list of numbers; `.` and `-` are none."""
    return () if text in (".", "-") else tuple(sorted(rid(int(n)) for n in text.split(between)))
