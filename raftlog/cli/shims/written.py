"""`raftlog shims DIR`: files with the names of Kafka's tools, which run raftlog's commands."""

import shlex
import sys
from pathlib import Path
from typing import Any, Final

import click

from raftlog.base.errors import OperatingError
from raftlog.cli.output.render import format_option, print_json

TOOLS: Final = (
    "kafka-configs",
    "kafka-consumer-groups",
    "kafka-delete-records",
    "kafka-get-offsets",
    "kafka-leader-election",
    "kafka-log-dirs",
    "kafka-reassign-partitions",
    "kafka-topics",
)
_MARK: Final = "# Written by `raftlog shims`."
_CONTEXT: dict[str, Any] = {"max_content_width": 100}


@click.command(
    "shims",
    epilog="""\b
Example:
  raftlog shims kafka/bin
  kafka/bin/kafka-topics.sh --bootstrap-server localhost:9092 --list""",
    context_settings=_CONTEXT,
)
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False))
@format_option()
def shims_command(directory: Path, form: str) -> None:
    """Write kafka-topics.sh and the others into a directory, for scripts that call them.

    Each takes the flags of Kafka's tool and prints what it prints, without a JVM. A file that
    something else wrote stays as it is, and ends the command.
    """
    paths = [directory / f"{tool}.sh" for tool in TOOLS]
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for path in paths:
            if path.exists() and _MARK not in path.read_text(encoding="utf-8", errors="replace"):
                raise OperatingError(
                    "a file of another program is there, and nothing was written",
                    on=str(path),
                    do="name a directory that is empty",
                )
        for tool, path in zip(TOOLS, paths, strict=True):
            path.write_text(_script(tool), encoding="utf-8")
            path.chmod(0o755)
    except OSError as error:
        raise OperatingError(f"the files cannot be written: {error}", on=str(directory)) from error
    if form == "json":
        print_json({"written": [str(path) for path in paths]})
        return
    for path in paths:
        print(path)


def _script(tool: str) -> str:
    python = shlex.quote(sys.executable)
    return f'#!/bin/sh\n{_MARK}\nexec {python} -m raftlog {tool} "$@"\n'
