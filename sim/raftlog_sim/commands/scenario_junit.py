"""Writes the results of scenarios as JUnit XML, for build servers: one test case per scenario."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from raftlog.base.amounts import amount
from raftlog.verify.report.junit import attribute, xml_text
from raftlog_sim.commands.common import RefusedError


def check(path: Path) -> None:
    """Raise `RefusedError` for a file that cannot be written, before anything is played."""
    if path.is_dir() or not path.parent.is_dir():
        what = "is a folder" if path.is_dir() else "lies in no folder that there is"
        raise RefusedError(what, on=str(path), do="give a file in a folder that exists")


def write(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Write these rows of `sim scenarios`. Raises `RefusedError` when it cannot."""
    try:
        path.write_text(text(rows), encoding="utf-8")
    except OSError as error:
        raise RefusedError(
            f"cannot be written: {error.strerror}", on=str(path), do="give another file"
        ) from None


def text(rows: Sequence[dict[str, Any]]) -> str:
    """Returns one test suite. A scenario that could not be played is a skipped case."""
    failed = sum(row["ok"] is False for row in rows)
    skipped = sum(row["ok"] is None for row in rows)
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f'<testsuite name="raftlog sim scenarios" tests="{len(rows)}" failures="{failed}" '
        f'errors="0" skipped="{skipped}">',
        *map(_case, rows),
        "</testsuite>",
    ]
    return "\n".join(lines) + "\n"


def _case(row: dict[str, Any]) -> str:
    head = f'  <testcase classname="raftlog.sim.scenarios" name={attribute(row["name"])}>'
    inside = ""
    if row["ok"] is None:
        inside += f"<skipped message={attribute(row['skipped'])}/>"
    elif not row["ok"]:
        message = attribute(f"{amount(len(row['differences']), 'line')} not as expected")
        told = escape(xml_text("\n".join(row["differences"])))
        inside += f"<failure message={message}>{told}</failure>"
    struck = [f"struck nothing: {step}" for step in row["struck_nothing"]]
    said = [*([row["note"]] if row["note"] else []), *struck]
    if said:
        inside += f"<system-out>{escape(xml_text(chr(10).join(said)))}</system-out>"
    return f"{head}{inside}</testcase>"
