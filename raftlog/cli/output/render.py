"""Prints text for people, one JSON document for programs, and progress on a terminal only."""

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final, TypeVar

import click

DONE_CODE: Final = 0
FAILED_CODE: Final = 1
UNKNOWN_CODE: Final = 2
USAGE_CODE: Final = 64

_Function = TypeVar("_Function", bound=Callable[..., Any])


def format_option(*more: str) -> Callable[[_Function], _Function]:
    """The option `--format text|json`, with further forms that a command has."""
    return click.option(
        "--format",
        "form",
        type=click.Choice(["text", "json", *more]),
        default="text",
        show_default=True,
        help="How to print the result.",
    )


def bootstrap_option() -> Callable[[_Function], _Function]:
    """The option `-b` / `--bootstrap-server`."""
    return click.option(
        "-b",
        "--bootstrap-server",
        "bootstrap",
        default="localhost:9092",
        show_default=True,
        metavar="HOST:PORT[,...]",
        envvar="RAFTLOG_BOOTSTRAP_SERVER",
        show_envvar=True,
        help="Brokers to ask first.",
    )


def print_json(document: dict[str, Any]) -> None:
    """Print one document, with its version."""
    print(json.dumps({"version": 1, **document}, indent=1, ensure_ascii=False))


def print_json_line(line: dict[str, Any]) -> None:
    """Print one line of a stream of documents."""
    print(json.dumps({"version": 1, **line}, ensure_ascii=False), flush=True)


def print_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print columns as wide as their widest cell, two spaces apart, uncut and uncoloured."""
    table = [list(header), *[[str(cell) for cell in row] for row in rows]]
    widths = [max(len(row[at]) for row in table) for at in range(len(header))]
    for row in table:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        print("  ".join(cells).rstrip())


def progress(what: str, total: int | None) -> AbstractContextManager[Callable[[int], None]]:
    """A progress bar on standard error, if that is a terminal; gives a function to advance it."""
    if not sys.stderr.isatty():
        return nullcontext(_no_progress)
    from raftlog.cli.output.progress_bar import Bar

    return Bar(what, total)


def _no_progress(amount: int) -> None:
    del amount
