"""The shared part of the commands with flags of Kafka's own tools: wrong usage, client settings."""

import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn, TextIO, TypeVar, final

import click

from raftlog.base.error_text import error_text
from raftlog.base.errors import RaftlogError
from raftlog.cli.connect import with_client
from raftlog.cli.output.render import FAILED_CODE
from raftlog.client.core.errors import KafkaError
from raftlog.client.trio_driver import Client
from raftlog.runtime.settings.config_file import parse_properties
from raftlog.runtime.settings.security_settings import (
    SERVED_PROTOCOL,
    security_name,
    security_problem,
)

_Function = TypeVar("_Function", bound=Callable[..., Any])


@final
class ShimCommand(click.Command):
    """A command whose exit code for wrong usage is 1, as with Kafka's tools."""

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
    """Refuse settings that this release does not serve.

    It must not ignore them: they are about security.
    """
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


def bootstrap_flag() -> Callable[[_Function], _Function]:
    """The option `--bootstrap-server`."""
    return click.option(
        "--bootstrap-server", "bootstrap", metavar="HOST:PORT[,...]", help="Brokers to ask first."
    )


def command_config_flag(*more: str) -> Callable[[_Function], _Function]:
    """The option `--command-config`, with its older names."""
    return click.option(
        "--command-config",
        *more,
        "command_config",
        type=click.Path(path_type=Path),
        help="A file of client settings; security.protocol may be PLAINTEXT.",
    )


def told(error: RaftlogError) -> str:
    """An error as Kafka's tools print it: the broker's sentence without the name of its code."""
    return error.text if isinstance(error, KafkaError) else str(error)


def ask(
    flags: Mapping[str, Any],
    work: Callable[[Client], Awaitable[int]],
    *,
    told: Callable[[RaftlogError], str] = told,
    stream: TextIO | None = None,
) -> int:
    """Run a tool's work with an open client; returns its exit code, or 1 after an error.

    The error goes to standard error or to `stream`. With `--format json` it is one document on
    standard error.
    """
    if not flags["bootstrap"]:
        usage('Missing required argument "[bootstrap-server]"')
    check_command_config(flags["command_config"])
    try:
        return with_client(flags["bootstrap"], work)
    except RaftlogError as error:
        if flags["form"] == "json":
            print(error_text(told(error), error.on, error.do, as_json=True), file=sys.stderr)
        else:
            print(told(error), file=stream or sys.stderr)
        return FAILED_CODE
