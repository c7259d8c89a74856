"""The entry point: loads commands when they are used, gives each mistake one clear line and a code.

Exit codes: 0 done or valid, 1 failed or invalid, 2 unknown, 64 wrong usage, 130 interrupted. With
`--format json` an error is one JSON document on standard error:
{"version": 1, "error": {"what", "on", "do"}}.
"""

import io
import os
import sys
from collections.abc import Sequence
from itertools import pairwise
from typing import Final, NoReturn, final

import click

from raftlog.base.error_text import error_text
from raftlog.base.errors import RaftlogError
from raftlog.base.imports import imported
from raftlog.cli.output.render import UNKNOWN_CODE, USAGE_CODE, print_json

_INTERRUPTED_CODE: Final = 130

# Command -> (module, attribute, short help). The help stands here so that `raftlog --help` loads no
# command.
COMMANDS: Final[dict[str, tuple[str, str, str]]] = {
    "brokers": (
        "raftlog.cli.admin.brokers",
        "brokers",
        "List brokers, and forget those that are gone for good.",
    ),
    "chaos": (
        "raftlog.cli.chaos",
        "chaos",
        "Play a scenario of faults on real brokers, beside your program.",
    ),
    "cluster": ("raftlog.cli.cluster", "cluster", "Show the state of a running cluster."),
    "configs": (
        "raftlog.cli.admin.configs",
        "configs",
        "Show and change the settings of topics and brokers.",
    ),
    "consume": ("raftlog.cli.consume", "consume", "Read records from a topic."),
    "delete-records": (
        "raftlog.cli.admin.deletions",
        "delete_records_command",
        "Delete the oldest records of partitions.",
    ),
    "demo": (
        "raftlog.cli.demo.command",
        "demo_command",
        "Run the main job: real data, real faults, and the proof.",
    ),
    "down": ("raftlog.cli.up", "down", "Stop the cluster that `raftlog up --detach` started."),
    "elect-leaders": (
        "raftlog.cli.admin.elections",
        "elect_leaders_command",
        "Give partitions back to the brokers that shall lead them.",
    ),
    "format": ("raftlog.cli.format", "format_command", "Found a cluster: format data directories."),
    "groups": (
        "raftlog.cli.groups",
        "groups",
        "Show consumer groups and their lag, move their offsets, delete them.",
    ),
    "incident": (
        "raftlog.cli.incident",
        "incident",
        "Look into recordings of brokers, and play them again.",
    ),
    "inspect": ("raftlog.cli.inspect", "inspect", "Walk a data directory and say what is in it."),
    "kafka-configs": (
        "raftlog.cli.shims.configs",
        "kafka_configs",
        "Kafka's own tool for settings, flag for flag.",
    ),
    "kafka-consumer-groups": (
        "raftlog.cli.shims.kafka_consumer_groups",
        "kafka_consumer_groups",
        "Kafka's own group tool, flag for flag.",
    ),
    "kafka-delete-records": (
        "raftlog.cli.shims.delete_records",
        "kafka_delete_records",
        "Kafka's own tool for deletions of records, flag for flag.",
    ),
    "kafka-get-offsets": (
        "raftlog.cli.shims.get_offsets",
        "kafka_get_offsets",
        "Kafka's own tool for offsets, flag for flag.",
    ),
    "kafka-leader-election": (
        "raftlog.cli.shims.leader_election",
        "kafka_leader_election",
        "Kafka's own tool for elections of leaders, flag for flag.",
    ),
    "kafka-log-dirs": (
        "raftlog.cli.shims.log_dirs",
        "kafka_log_dirs",
        "Kafka's own tool for data directories, flag for flag.",
    ),
    "kafka-reassign-partitions": (
        "raftlog.cli.shims.reassign_partitions",
        "kafka_reassign_partitions",
        "Kafka's own tool for moves of partitions, flag for flag.",
    ),
    "kafka-topics": (
        "raftlog.cli.shims.kafka_topics",
        "kafka_topics",
        "Kafka's own topic tool, flag for flag.",
    ),
    "log-dirs": (
        "raftlog.cli.admin.disks",
        "log_dirs_command",
        "Show what the disks of brokers hold.",
    ),
    "produce": ("raftlog.cli.produce", "produce", "Write records to a topic."),
    "quorum": (
        "raftlog.cli.admin.quorum",
        "quorum_command",
        "Show the quorum of the metadata.",
    ),
    "reassign": (
        "raftlog.cli.admin.reassign",
        "reassign",
        "Move partitions to other brokers, by plans in Kafka's form.",
    ),
    "recover": (
        "raftlog.cli.recover",
        "recover",
        "Let a data directory go on whose fellow voters are lost for ever.",
    ),
    "serve": ("raftlog.cli.serve", "serve", "Run one broker."),
    "shims": (
        "raftlog.cli.shims.written",
        "shims_command",
        "Write kafka-topics.sh and the others as files.",
    ),
    "sim": ("raftlog.cli.sim", "sim", "Run whole clusters from a seed."),
    "spark": ("raftlog.cli.spark", "spark", "Jobs that run on Spark: verify a topic at scale."),
    "topics": (
        "raftlog.cli.topics",
        "topics",
        "Create, list, describe, alter, delete, export and import topics.",
    ),
    "up": ("raftlog.cli.up", "up", "Start a local cluster of real broker processes."),
    "verify": ("raftlog.cli.verify", "verify", "Judge a history of operations."),
}


@final
class _LazyGroup(click.Group):
    """Finds commands by name in the table above."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        home = COMMANDS.get(cmd_name)
        if home is None:
            return None
        command = getattr(imported(home[0]), home[1])
        assert isinstance(command, click.Command), home
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name][2]) for name in self.list_commands(ctx)])


@click.group(
    cls=_LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Example: raftlog up --brokers 3 --detach && raftlog topics list && raftlog down",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json"]),
    help="How to print the version. A command takes it behind its name.",
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=lambda context, _, wanted: _print_version(context, wanted=wanted),
    help="Print the version, and the layout and protocol levels that it reads and speaks.",
)
def cli(form: str | None) -> None:
    """A Raft-replicated log that speaks the Kafka protocol."""
    if form is not None:
        raise click.UsageError("--format belongs behind the command: raftlog topics list --format")


def _print_version(context: click.Context, *, wanted: bool) -> None:
    if not wanted or context.resilient_parsing:
        return
    from raftlog.cli.version import version_document, version_text

    # This runs before --format is read, which may also stand behind --version.
    if _wants_json(context.obj or ()):
        print_json(version_document())
    else:
        print(version_text())
    context.exit()


def run(arguments: Sequence[str]) -> int:
    """Run the command line; returns its exit code. No mistake of a user ends in a traceback."""
    as_json = _wants_json(arguments)
    try:
        result = cli.main(
            args=list(arguments), prog_name="raftlog", standalone_mode=False, obj=list(arguments)
        )
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        print(error.format_message(), file=sys.stderr)  # a group without a command: its help
        return USAGE_CODE
    except click.UsageError as error:
        on = error.ctx.command_path if error.ctx else "raftlog"
        _print_error(error.format_message(), on, f"see {on} --help", as_json=as_json)
        return USAGE_CODE
    except click.ClickException as error:
        _print_error(error.format_message(), "", "", as_json=as_json)
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return _INTERRUPTED_CODE
    except RaftlogError as error:
        _print_error(error.what, error.on, error.do, as_json=as_json)
        return 1
    except BrokenPipeError:
        # The reader of the output has closed it (`| head`), so nothing more can be written.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return result if isinstance(result, int) else 0


def _wants_json(arguments: Sequence[str]) -> bool:
    return "--format=json" in arguments or ("--format", "json") in pairwise(arguments)


def _print_error(what: str, on: str, do: str, *, as_json: bool) -> None:
    print(error_text(what, on, do, as_json=as_json), file=sys.stderr)


def main() -> NoReturn:
    """Run as the console script.

    A text that no terminal can show (half a surrogate pair in a history, a name that is no UTF-8)
    is shown escaped instead of ending the command.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    sys.exit(run(sys.argv[1:]))


assert UNKNOWN_CODE == 2
