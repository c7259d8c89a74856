"""`raftlog kafka-consumer-groups`: the flags, the output and the exit codes of Kafka's group tool.

Exit codes are Kafka's: 0, or 1 for everything that goes wrong, wrong usage included.
"""

import sys
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from raftlog.base.error_text import error_text
from raftlog.base.errors import RaftlogError
from raftlog.cli.connect import with_client
from raftlog.cli.group_reset import GroupIsActive, ResetTarget, execute, plan
from raftlog.cli.groups import delete_groups, delete_some, targets_of
from raftlog.cli.output.group_view import (
    GroupDescription,
    describe,
    list_all,
    list_known,
    parse_places,
)
from raftlog.cli.output.render import DONE_CODE, FAILED_CODE, format_option, print_json
from raftlog.cli.shims.kafka_shim import ShimCommand, check_command_config, usage
from raftlog.client.core.group.protocol import by_topic
from raftlog.client.trio_driver import Client
from raftlog.kafka.error_codes import ErrorCode, error_name
from raftlog.kafka.messages.list_groups import ListedGroup

_ACTIONS = ("list", "describe", "delete", "reset_offsets", "delete_offsets")
_VERBOSE_COLUMNS = ["CURRENT-EPOCH", "CURRENT-ASSIGNMENT", "TARGET-EPOCH", "TARGET-ASSIGNMENT"]


@click.command(
    "kafka-consumer-groups",
    cls=ShimCommand,
    epilog="""\b
Examples:
  raftlog kafka-consumer-groups --bootstrap-server localhost:9092 --describe --group billing
  raftlog kafka-consumer-groups --bootstrap-server localhost:9092 --group billing \\
      --reset-offsets --to-earliest --topic orders --execute""",
    context_settings={"max_content_width": 100},
)
@click.option("--list", "list_", is_flag=True, help="List the groups.")
@click.option("--describe", "describe_", is_flag=True, help="Show offsets, lag and members.")
@click.option("--delete", is_flag=True, help="Delete groups without members.")
@click.option("--reset-offsets", is_flag=True, help="Move offsets of a group without members.")
@click.option("--delete-offsets", is_flag=True, help="Forget the offsets of topics.")
@click.option(
    "--bootstrap-server", "bootstrap", metavar="HOST:PORT[,...]", help="Brokers to ask first."
)
@click.option(
    "--command-config",
    type=click.Path(path_type=Path),
    help="A file of client settings; security.protocol may be PLAINTEXT.",
)
@click.option("--group", "groups", multiple=True, help="The group. May be repeated.")
@click.option("--all-groups", is_flag=True, help="Every group.")
@click.option("--topic", "topics", multiple=True, help="orders, or orders:0,1 for partitions.")
@click.option("--all-topics", is_flag=True, help="Every topic with offsets of the group.")
@click.option(
    "--state",
    is_flag=False,
    flag_value="",
    metavar="[STATE,...]",
    help="With --list: also the states, or only these. With --describe: the state alone.",
)
@click.option("--members", is_flag=True, help="With --describe: the members.")
@click.option("--offsets", is_flag=True, help="With --describe: the offsets, as without it.")
@click.option("--verbose", is_flag=True, help="With --describe --members: what each has.")
@click.option("--to-earliest", is_flag=True, help="To the first record.")
@click.option("--to-latest", is_flag=True, help="Behind the last record.")
@click.option("--to-current", is_flag=True, help="To what is committed.")
@click.option("--to-offset", type=int, help="To this offset.")
@click.option("--shift-by", type=int, help="By so many, forwards or back.")
@click.option("--to-datetime", metavar="TIME", help="To a time: 2026-01-31T12:00:00.000.")
@click.option("--by-duration", metavar="DURATION", help="To so long ago: P7D, PT1H30M.")
@click.option("--execute", "execute_it", is_flag=True, help="Do the reset.")
@click.option("--dry-run", is_flag=True, help="Only show the reset, as without --execute.")
@click.option("--export", is_flag=True, help="Show the reset as lines of CSV.")
@click.option("--timeout", type=int, help="Taken, and without effect.")
@format_option()
def kafka_consumer_groups(**flags: Any) -> int:
    """Kafka's own group tool, flag for flag."""
    if not flags["bootstrap"]:
        usage('Missing required argument "[bootstrap-server]"')
    names = {"list_": "list", "describe_": "describe"}
    named = [names.get(key, key) for key, value in flags.items() if value is True]
    actions = [name for name in _ACTIONS if name in named]
    if len(actions) != 1:
        usage(
            "Command must include exactly one action: "
            "--list, --describe, --delete, --reset-offsets, --delete-offsets"
        )
    (action,) = actions
    if action != "list" and not flags["groups"] and not flags["all_groups"]:
        option = action.replace("_", "-")
        usage(f"Option [{option}] takes one of these options: [all-groups], [group]")
    check_command_config(flags["command_config"])
    try:
        return with_client(flags["bootstrap"], partial(_ACTS[action], flags))
    except (RaftlogError, ValueError) as error:
        if flags["form"] == "json":
            print(error_text(str(error), "", "", as_json=True), file=sys.stderr)
        else:
            what = f"Executing consumer group command failed due to {error}"
            print(f"\nError: {what}", file=sys.stderr)
        return FAILED_CODE


def _table(widths: Sequence[int], rows: Iterable[Sequence[object]]) -> None:
    """Print a table like Kafka's: an empty line, then columns of at least so many characters.

    A width of 0 is as wide as its text.
    """
    print()
    for row in rows:
        cells = (str(cell).ljust(width) for cell, width in zip(row, widths, strict=True))
        print(" ".join(cells))


def _width(least: int, cells: Iterable[str]) -> int:
    return max([least, *(len(each) for each in cells)])


async def _names(flags: dict[str, Any], client: Client) -> list[str]:
    if flags["all_groups"]:
        return [each.group_id for each in await list_all(client)]
    return list(dict.fromkeys(flags["groups"]))


# --- list, describe -------------------------------------------------------------------------------


async def _list(flags: dict[str, Any], client: Client) -> int:
    listing = await list_known(client)
    _print_list(flags, listing.groups)
    listing.check()
    return DONE_CODE


def _print_list(flags: dict[str, Any], found: Sequence[ListedGroup]) -> None:
    if flags["form"] == "json":
        states = [{"group": each.group_id, "state": each.group_state} for each in found]
        print_json({"groups": states})
        return
    if flags["state"] is None:
        for each in found:
            print(each.group_id)
        return
    wanted = {each.strip().lower() for each in flags["state"].split(",") if each.strip()}
    shown = [each for each in found if not wanted or each.group_state.lower() in wanted]
    width = _width(15, (each.group_id for each in shown))
    print(f"{'GROUP'.ljust(width)} {'STATE'.ljust(20)}")
    for each in shown:
        print(f"{each.group_id.ljust(width)} {each.group_state.ljust(20)}")


async def _describe(flags: dict[str, Any], client: Client) -> int:
    if flags["form"] == "json":
        groups = [await describe(client, name) for name in await _names(flags, client)]
        print_json({"groups": [each.as_json() for each in groups]})
        return DONE_CODE
    for name in await _names(flags, client):
        group = await describe(client, name)
        if group.state == "Empty":
            print(f"\nConsumer group '{name}' has no active members.", file=sys.stderr)
        elif group.state in ("PreparingRebalance", "CompletingRebalance"):
            print(f"\nWarning: Consumer group '{name}' is rebalancing.", file=sys.stderr)
        sys.stderr.flush()
        if flags["members"]:
            _print_members(group, verbose=flags["verbose"])
        elif flags["state"] is not None:
            _print_state(group)
        elif group.offsets:
            _print_offsets(group)
        sys.stdout.flush()
    return DONE_CODE


def _print_offsets(group: GroupDescription) -> None:
    rows: list[list[object]] = []
    for each in group.offsets:
        member = each.member
        who = ["-"] * 3 if member is None else [member.member_id, member.host, member.client_id]
        numbers = (each.committed, each.end, each.lag)
        shown = ["-" if number is None else number for number in numbers]
        rows.append([group.name, each.place.topic, each.place.partition, *shown, *who])
    widths = [
        _width(15, [group.name]),
        _width(15, (each.place.topic for each in group.offsets)),
        10,
        15,
        15,
        15,
        _width(15, (str(row[6]) for row in rows)),
        _width(15, (str(row[7]) for row in rows)),
        0,
    ]
    header = "GROUP TOPIC PARTITION CURRENT-OFFSET LOG-END-OFFSET LAG CONSUMER-ID HOST CLIENT-ID"
    _table(widths, [header.split(), *rows])


def _print_members(group: GroupDescription, *, verbose: bool) -> None:
    static = any(each.instance_id is not None for each in group.members)
    header = ["GROUP", "CONSUMER-ID", *(["GROUP-INSTANCE-ID"] if static else [])]
    header += ["HOST", "CLIENT-ID", "#PARTITIONS", *(_VERBOSE_COLUMNS if verbose else [])]
    rows: list[list[object]] = []
    for each in group.members:
        row: list[object] = [group.name, each.member_id]
        if static:
            row.append(each.instance_id or "-")
        row += [each.host, each.client_id, len(each.partitions)]
        if verbose:
            assigned = ", ".join(
                f"{topic}({','.join(map(str, partitions))})"
                for topic, partitions in by_topic(each.partitions)
            )
            row += ["-", assigned or "-", "-", "-"]
        rows.append(row)
    least = {"GROUP-INSTANCE-ID": 17, "CURRENT-ASSIGNMENT": 20, "TARGET-ASSIGNMENT": 20}
    widths = [
        _width(least.get(name, 15), (str(row[at]) for row in rows))
        for at, name in enumerate(header)
    ]
    _table(widths, [header, *rows])


def _print_state(group: GroupDescription) -> None:
    where = group.coordinator
    coordinator = f"{where.host}:{where.port}  ({where.node})"
    header = ["GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE", "#MEMBERS"]
    row = [group.name, coordinator, group.assignor or "-", group.state, len(group.members)]
    widths = [_width(15, [group.name]), _width(25, [coordinator]), 20, 20, 0]
    _table(widths, [header, row])


# --- reset, delete --------------------------------------------------------------------------------


async def _reset(flags: dict[str, Any], client: Client) -> int:
    targets: list[ResetTarget] = targets_of(flags)
    if len(targets) != 1:
        usage(
            "Option [reset-offsets] takes exactly one of: [to-offset], [shift-by], [to-datetime], "
            "[by-duration], [to-earliest], [to-latest], [to-current]"
        )
    if bool(flags["topics"]) == flags["all_topics"]:
        usage("Option [reset-offsets] takes one of these options: [all-topics], [topic]")
    if flags["execute_it"] and flags["dry_run"]:
        usage("Option [execute] can't be used with option [dry-run]")
    if not (flags["execute_it"] or flags["dry_run"] or flags["export"]):
        print(
            "WARN: No action will be performed as the --execute option is missing.",
            file=sys.stderr,
        )
    wanted = None if flags["all_topics"] else parse_places(flags["topics"])
    rows: list[list[object]] = []
    for name in await _names(flags, client):
        try:
            moved = await plan(client, name, wanted, targets[0])
        except GroupIsActive as error:
            print(
                f"\nError: Assignments can only be reset if the group '{name}' is inactive, "
                f"but the current state is {error.state}.",
                file=sys.stderr,
            )
            return FAILED_CODE
        if flags["execute_it"]:
            await execute(client, name, moved)
        rows += [[name, each.place.topic, each.place.partition, each.after] for each in moved]
    if flags["form"] == "json":
        keys = ("group", "topic", "partition", "after")
        offsets = [dict(zip(keys, row, strict=True)) for row in rows]
        print_json({"executed": flags["execute_it"], "offsets": offsets})
        return DONE_CODE
    _print_reset(rows, csv=flags["export"], several=len(flags["groups"]) != 1)
    return DONE_CODE


def _print_reset(rows: Sequence[Sequence[object]], *, csv: bool, several: bool) -> None:
    if csv:
        for row in rows:
            print(",".join(str(cell) for cell in (row if several else row[1:])))
        return
    widths = [_width(15, (str(row[at]) for row in rows)) for at in (0, 1)]
    header = ["GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"]
    _table([*widths, 10, 0], [header, *rows])


async def _delete(flags: dict[str, Any], client: Client) -> int:
    names = await _names(flags, client)
    refused = await delete_groups(names, client)
    if flags["form"] == "json":
        errors = [{"group": name, "error": error.what} for name, error in refused.items()]
        done = [name for name in names if name not in refused]
        print_json({"deleted": done, "refused": errors})
        return FAILED_CODE if refused else DONE_CODE
    gone = ", ".join(f"'{name}'" for name in names if name not in refused)
    if not refused:
        print(f"Deletion of requested consumer groups ({gone}) was successful.")
        return DONE_CODE
    print("\nError: Deletion of some consumer groups failed:", file=sys.stderr)
    for name, error in refused.items():
        print(f"* Group '{name}' could not be deleted due to: {error.what}", file=sys.stderr)
    if gone:
        print(f"\nThese consumer groups were deleted successfully: {gone}")
    return FAILED_CODE


async def _delete_offsets(flags: dict[str, Any], client: Client) -> int:
    if not flags["topics"] or len(flags["groups"]) != 1:
        usage("Option [delete-offsets] takes the following options: [group], [topic]")
    (name,) = flags["groups"]
    results = await delete_some(name, parse_places(flags["topics"]), client)
    refused = [each for each in results if each.error_code != ErrorCode.NONE]
    if flags["form"] == "json":
        found = [{**each.place._asdict(), "error": error_name(each.error_code)} for each in results]
        print_json({"group": name, "offsets": found})
        return FAILED_CODE if refused else DONE_CODE
    if refused:
        print("\nError: Encounter some partition level error, see the follow-up details.")
    else:
        print(f"Request succeeded for deleting offsets from group {name}.")
    rows = [
        [
            each.place.topic,
            each.place.partition,
            f"Error: {error_name(each.error_code)}" if each in refused else "Successful",
        ]
        for each in results
    ]
    width = _width(15, (each.place.topic for each in results))
    _table([width, 10, 15], [["TOPIC", "PARTITION", "STATUS"], *rows])
    return FAILED_CODE if refused else DONE_CODE


_ACTS = {
    "list": _list,
    "describe": _describe,
    "delete": _delete,
    "reset_offsets": _reset,
    "delete_offsets": _delete_offsets,
}
