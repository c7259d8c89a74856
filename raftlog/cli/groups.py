"""`raftlog groups`: list, describe, reset-offsets, delete, delete-offsets."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import click

from raftlog.base.amounts import amount
from raftlog.base.errors import RaftlogError
from raftlog.cli.connect import with_client
from raftlog.cli.group_reset import (
    Moved,
    ResetTarget,
    before_now,
    execute,
    parse_datetime,
    parse_duration,
    plan,
)
from raftlog.cli.output.group_view import (
    GroupDescription,
    all_places,
    describe,
    list_known,
    parse_places,
)
from raftlog.cli.output.render import (
    DONE_CODE,
    FAILED_CODE,
    bootstrap_option,
    format_option,
    print_json,
    print_table,
)
from raftlog.client.core.group_asks import delete_group, delete_offsets
from raftlog.client.core.results import PartitionResult
from raftlog.client.trio_driver import Client
from raftlog.kafka.error_codes import ErrorCode, error_name

_CONTEXT: dict[str, Any] = {"max_content_width": 100}
_TOPIC_HELP = "A topic, or some of its partitions: orders or orders:0,2. May be repeated."


@click.group(epilog="Example: raftlog groups describe billing", context_settings=_CONTEXT)
def groups() -> None:
    """Show consumer groups and their lag, move their offsets, delete them."""


@groups.command("list", epilog="Example: raftlog groups list", context_settings=_CONTEXT)
@bootstrap_option()
@format_option()
def list_command(bootstrap: str, form: str) -> None:
    """List the groups of all brokers with their states, sorted.

    When a broker does not answer, the groups of the others are listed, and the exit code is 1.
    """
    found = with_client(bootstrap, list_known)
    if form == "json":
        shown = [{"group": each.group_id, "state": each.group_state} for each in found.groups]
        print_json({"groups": shown, "silent_brokers": sorted(found.silent)})
    elif found.groups:
        rows = [[each.group_id, each.group_state] for each in found.groups]
        print_table(["GROUP", "STATE"], rows)
    found.check()


@groups.command(
    "describe", epilog="Example: raftlog groups describe billing", context_settings=_CONTEXT
)
@click.argument("names", nargs=-1, required=True, metavar="GROUP...")
@bootstrap_option()
@format_option()
def describe_command(names: tuple[str, ...], bootstrap: str, form: str) -> None:
    """Show who is in a group, what is committed, and how far that is behind.

    The lag of a partition is the number of offsets between the committed one and the end. `-`
    stands where nothing is committed, or where a partition is gone.
    """

    async def work(client: Client) -> list[GroupDescription]:
        return [await describe(client, name) for name in names]

    described = with_client(bootstrap, work)
    if form == "json":
        print_json({"groups": [each.as_json() for each in described]})
        return
    for at, each in enumerate(described):
        if at:
            print()
        _print_group(each)


def _print_group(group: GroupDescription) -> None:
    where = f"coordinator broker {group.coordinator.node}"
    lag = f"lag {_shown(group.lag)}"
    if group.uncommitted:
        lag += f" ({amount(group.uncommitted, 'partition')} without a committed offset)"
    print(f"group {group.name}: {group.state}, {where}, {lag}")
    if group.members:
        print_table(
            ["MEMBER", "INSTANCE", "CLIENT", "HOST", "PARTITIONS"],
            [
                [
                    each.member_id,
                    each.instance_id or "-",
                    each.client_id,
                    each.host,
                    " ".join(map(str, each.partitions)) or "-",
                ]
                for each in group.members
            ],
        )
    if group.offsets:
        print_table(
            ["TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "MEMBER"],
            [
                [
                    each.place.topic,
                    each.place.partition,
                    _shown(each.committed),
                    _shown(each.end),
                    _shown(each.lag),
                    each.member.member_id if each.member else "-",
                ]
                for each in group.offsets
            ],
        )


def _shown(number: int | None) -> str:
    return "-" if number is None else str(number)


# --- reset-offsets --------------------------------------------------------------------------------


@groups.command(
    "reset-offsets",
    epilog="""\b
Examples:
  raftlog groups reset-offsets billing --topic orders --to-earliest
  raftlog groups reset-offsets billing --all-topics --to-datetime 2026-01-31T12:00:00 --execute""",
    context_settings=_CONTEXT,
)
@click.argument("group")
@click.option("--topic", "topics", multiple=True, metavar="TOPIC[:PARTITION,...]", help=_TOPIC_HELP)
@click.option("--all-topics", is_flag=True, help="Every topic that the group has offsets of.")
@click.option("--to-earliest", is_flag=True, help="To the first record.")
@click.option("--to-latest", is_flag=True, help="Behind the last record.")
@click.option("--to-current", is_flag=True, help="To what is committed; without, to the end.")
@click.option("--to-offset", type=click.IntRange(0), help="To this offset.")
@click.option("--shift-by", type=int, help="By so many, forwards or (negative) back.")
@click.option("--to-datetime", metavar="TIME", help="To a time: 2026-01-31T12:00:00, in UTC.")
@click.option("--by-duration", metavar="DURATION", help="To so long ago: P7D, PT1H30M.")
@click.option("--execute", "execute_it", is_flag=True, help="Do it. Without, it is only shown.")
@bootstrap_option()
@format_option()
def reset_command(group: str, bootstrap: str, form: str, **flags: Any) -> None:
    """Move the offsets of a group that has no members: to read again, or to skip.

    Without --execute nothing is changed. An offset beyond the ends of a partition becomes the
    nearer end.
    """
    target = _target(flags)
    if bool(flags["topics"]) == flags["all_topics"]:
        raise click.UsageError("give --topic or --all-topics, and not both")
    wanted = None if flags["all_topics"] else _places(flags["topics"])

    async def work(client: Client) -> list[Moved]:
        moved = await plan(client, group, wanted, target)
        if flags["execute_it"]:
            await execute(client, group, moved)
        return moved

    moved = with_client(bootstrap, work)
    if form == "json":
        offsets = [
            {**each.place._asdict(), "before": each.before, "after": each.after} for each in moved
        ]
        print_json({"group": group, "executed": flags["execute_it"], "offsets": offsets})
        return
    print_table(
        ["TOPIC", "PARTITION", "BEFORE", "AFTER"],
        [
            [each.place.topic, each.place.partition, _shown(each.before), each.after]
            for each in moved
        ],
    )
    if not flags["execute_it"]:
        print("nothing was changed: --execute does it")


def _target(flags: dict[str, Any]) -> ResetTarget:
    """The one target among the flags; `UsageError` for none, several or a bad one."""
    try:
        targets = targets_of(flags)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    if len(targets) != 1:
        raise click.UsageError(
            "give one of --to-earliest, --to-latest, --to-current, --to-offset, --shift-by, "
            "--to-datetime and --by-duration"
        )
    return targets[0]


def targets_of(flags: dict[str, Any]) -> list[ResetTarget]:
    """All targets among the flags. `ValueError` for a text that is no time."""
    found = [ResetTarget(kind) for kind in ("earliest", "latest", "current") if flags[f"to_{kind}"]]
    if flags["to_offset"] is not None:
        found.append(ResetTarget("offset", flags["to_offset"]))
    if flags["shift_by"] is not None:
        found.append(ResetTarget("shift", flags["shift_by"]))
    if flags["to_datetime"] is not None:
        found.append(ResetTarget("time", parse_datetime(flags["to_datetime"])))
    if flags["by_duration"] is not None:
        found.append(ResetTarget("time", before_now(parse_duration(flags["by_duration"]))))
    return found


def _places(topics: Sequence[str]) -> dict[str, tuple[int, ...]]:
    try:
        return parse_places(topics)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--topic") from None


# --- delete, delete-offsets -----------------------------------------------------------------------


@groups.command(
    "delete", epilog="Example: raftlog groups delete billing", context_settings=_CONTEXT
)
@click.argument("names", nargs=-1, required=True, metavar="GROUP...")
@bootstrap_option()
@format_option()
def delete_command(names: tuple[str, ...], bootstrap: str, form: str) -> int:
    """Delete groups that have no members, with all their offsets."""
    refused = with_client(bootstrap, partial(delete_groups, names))
    gone = [name for name in names if name not in refused]
    if form == "json" and gone:
        document: dict[str, Any] = {"deleted": gone}
        if refused:
            document["refused"] = [
                {"group": name, "error": error.what} for name, error in refused.items()
            ]
        print_json(document)
        return FAILED_CODE if refused else DONE_CODE
    for name in gone:
        print(f"deleted group {name}", flush=True)
    for error in refused.values():
        raise error
    return DONE_CODE


async def delete_groups(names: Sequence[str], client: Client) -> dict[str, RaftlogError]:
    """Delete each group; returns the errors of those that were refused."""
    refused: dict[str, RaftlogError] = {}
    for name in names:
        try:
            await client.ask(delete_group(name))
        except RaftlogError as error:
            refused[name] = error
    return refused


@groups.command(
    "delete-offsets",
    epilog="Example: raftlog groups delete-offsets billing --topic orders:0",
    context_settings=_CONTEXT,
)
@click.argument("group")
@click.option(
    "--topic",
    "topics",
    multiple=True,
    required=True,
    metavar="TOPIC[:PARTITION,...]",
    help=_TOPIC_HELP,
)
@bootstrap_option()
@format_option()
def delete_offsets_command(group: str, topics: tuple[str, ...], bootstrap: str, form: str) -> int:
    """Forget what a group has committed for topics to which no member subscribes."""
    results = with_client(bootstrap, partial(delete_some, group, _places(topics)))
    refused = [each for each in results if each.error_code != ErrorCode.NONE]
    if form == "json":
        found = [{**each.place._asdict(), "error": error_name(each.error_code)} for each in results]
        print_json({"group": group, "offsets": found})
        return FAILED_CODE if refused else DONE_CODE
    for each in results:
        if each not in refused:
            print(f"deleted the offset of {each.place}", flush=True)
    for each in refused:
        each.check()
    return DONE_CODE


async def delete_some(
    group: str, wanted: dict[str, tuple[int, ...]], client: Client
) -> list[PartitionResult]:
    """Delete the offsets of these partitions; returns each result."""
    places = await all_places(client, wanted)
    results: list[PartitionResult] = await client.ask(delete_offsets(group, places))
    return results
