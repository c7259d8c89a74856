"""What the commands with the flags of Kafka's own tools share: wrong usage, and client settings."""

import sys
from pathlib import Path
from typing import Any, NoReturn, final

import click

from raftlog.base.errors import RaftlogError
from raftlog.cli.render import FAILED_CODE
from raftlog.runtime.config_file import parse_properties
from raftlog.runtime.security_settings import SERVED_PROTOCOL, security_name, security_problem


@final
class ShimCommand(click.Command):
    """Wrong usage is exit code 1, as with Kafka's tool."""

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        try:
            return super().make_context(info_name, args, parent, **extra)
        except click.UsageError as error:
            usage(error.format_message())


def usage(what: str) -> NoReturn:
    """End the command: its flags are wrong."""
    print(what, file=sys.stderr)
    raise click.exceptions.Exit(FAILED_CODE)


def check_command_config(path: Path | None) -> None:
    """Refuse settings that this release does not serve, and do not ignore them: they are about
    security."""
    if path is None:
        return
    try:
        lines = parse_properties(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError, RaftlogError) as error:
        usage(f"{path}: {error}")
    for key, line in lines.items():
        if key == "security.protocol" and line.value.upper() not in ("", SERVED_PROTOCOL):
            usage(f"{path}: security.protocol={line.value} is not served by this release")
        problem = security_problem(key, line.value) if security_name(key) else None
        if problem is not None:
            usage(f"{path}: {problem}")
