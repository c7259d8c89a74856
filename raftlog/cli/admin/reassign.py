"""`raftlog reassign`: generate, execute, verify, cancel, list."""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click
import trio

from raftlog.base.amounts import amount
from raftlog.base.errors import OperatingError
from raftlog.base.ids import NodeId
from raftlog.cli.admin.directory_states import (
    DirectoryState,
    directory_states,
    print_directories,
    take_moves_back,
)
from raftlog.cli.admin.moves import (
    MoveState,
    UnknownPlace,
    alter,
    alter_directories,
    check_alive,
    check_directories,
    current_moves,
    current_of,
    states,
    with_progress,
)
from raftlog.cli.admin.plan_files import (
    Moves,
    plan_document,
    plan_text,
    read_directories,
    read_moves,
    read_topics,
)
from raftlog.cli.admin.propose import propose
from raftlog.cli.admin.throttles import is_throttled, take_away, throttle, throttle_directories
from raftlog.cli.connect import with_client
from raftlog.cli.output.render import (
    DONE_CODE,
    FAILED_CODE,
    bootstrap_option,
    format_option,
    print_json,
    print_table,
)
from raftlog.client.core.asks import list_reassignments
from raftlog.client.core.results import PartitionResult
from raftlog.client.core.values import Moving, TopicPartition
from raftlog.client.trio_driver import Client
from raftlog.kafka.error_codes import ErrorCode, error_name
from raftlog.metadata.settings.config_checks import LONG_MAX

_CONTEXT: dict[str, Any] = {"max_content_width": 100}
_PLAN = click.argument("plan_path", metavar="PLAN", type=click.Path(path_type=Path))
_LOOK_SECONDS: Final = 1.0
_OVER: Final = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


@click.group(
    epilog="Example: raftlog reassign generate --topic orders --brokers 1,2,3,4 > plan.json",
    context_settings=_CONTEXT,
)
def reassign() -> None:
    """Move partitions to other brokers, by plans in the JSON form of Kafka's tool."""


@reassign.command(
    epilog="""\b
Examples:
  raftlog reassign generate --topic orders --brokers 1,2,3,4 > plan.json
  raftlog reassign generate --topics-file topics.json --brokers 2,3,4 --format json""",
    context_settings=_CONTEXT,
)
@click.option("--topic", "topics", multiple=True, help="A topic to spread. May be repeated.")
@click.option(
    "--topics-file",
    type=click.Path(path_type=Path),
    help='The topics as Kafka\'s tool takes them: {"topics": [{"topic": "orders"}]}.',
)
@click.option("--brokers", required=True, metavar="N,N,...", help="The brokers to spread over.")
@click.option(
    "--replication-factor",
    "factor",
    type=click.IntRange(1),
    help="How many copies; as many as now if left out.",
)
@bootstrap_option()
@format_option()
def generate(
    topics: tuple[str, ...],
    topics_file: Path | None,
    brokers: str,
    factor: int | None,
    bootstrap: str,
    form: str,
) -> None:
    """Propose a plan that spreads topics evenly over brokers and racks, with few moves.

    Nothing is moved. The plan goes to standard output: `execute --dry-run` shows what it changes.
    """
    names = list(topics)
    if topics_file is not None:
        names += read_topics(topics_file)
    if not names:
        raise click.UsageError("give --topic or --topics-file")
    nodes = _nodes(brokers)

    async def work(client: Client) -> tuple[Moves, Moves]:
        current = await current_moves(client, names)
        brokers = await check_alive(client, nodes)
        racks = {node: each.rack or "" for node, each in brokers.items()}
        return current, propose(current, racks, factor)

    current, proposed = with_client(bootstrap, work)
    if form == "json":
        print_json({"current": plan_document(current), "proposed": plan_document(proposed)})
        return
    print(json.dumps(plan_document(proposed), indent=1))
    if sys.stderr.isatty():
        changed = sum(proposed[place] != current[place] for place in proposed)
        told = f"{changed} of {amount(len(proposed), 'partition')} would change"
        print(f"{told}: raftlog reassign execute PLAN --dry-run shows how", file=sys.stderr)


def _nodes(text: str) -> list[int]:
    parts = [each.strip() for each in text.split(",")]
    if not all(each.isascii() and each.isdigit() and len(each) < 10 for each in parts):
        raise click.BadParameter(f"{text!r} is not like 1,2,3", param_hint="--brokers")
    nodes = [int(each) for each in parts]
    if len(dict.fromkeys(nodes)) != len(nodes):
        raise click.BadParameter(f"{text!r} names a broker twice", param_hint="--brokers")
    return nodes


# --- execute --------------------------------------------------------------------------------------


@reassign.command(
    epilog="""\b
Examples:
  raftlog reassign execute plan.json --dry-run
  raftlog reassign execute plan.json --rollback-file before.json
  raftlog reassign execute plan.json --throttle 10000000""",
    context_settings=_CONTEXT,
)
@_PLAN
@click.option("--dry-run", is_flag=True, help="Show what would move, and move nothing.")
@click.option("--additional", is_flag=True, help="Although other partitions are moving now.")
@click.option(
    "--rollback-file",
    type=click.Path(path_type=Path),
    help="Where to write the plan that takes everything back.",
)
@click.option(
    "--throttle",
    "rate",
    type=click.IntRange(1, LONG_MAX),
    help="Bytes a second at most, at each broker. `verify` takes it away when the plan is done.",
)
@click.option(
    "--log-dirs-throttle",
    "directory_rate",
    type=click.IntRange(1, LONG_MAX),
    help="Bytes a second at most that each broker copies between its log directories.",
)
@bootstrap_option()
@format_option()
def execute(
    plan_path: Path,
    dry_run: bool,
    additional: bool,
    rollback_file: Path | None,
    rate: int | None,
    directory_rate: int | None,
    bootstrap: str,
    form: str,
) -> int:
    """Begin the moves of a plan. They go on by themselves; `verify` shows how far they are."""
    plan, directories = read_moves(plan_path), read_directories(plan_path)

    async def work(client: Client) -> tuple[Moves, list[PartitionResult]]:
        moving: dict[TopicPartition, Moving] = await client.ask(list_reassignments())
        if moving and not additional:
            raise OperatingError(
                f"already moving: {amount(len(moving), 'partition')}",
                on=", ".join(map(str, sorted(moving)[:5])),
                do="wait for them, or give --additional",
            )
        await check_alive(client, sorted({node for nodes in plan.values() for node in nodes}))
        await check_directories(client, directories)
        current = await current_of(client, plan)
        if dry_run:
            return current, []
        if rollback_file is not None:
            _save(rollback_file, plan_text(current))
        if rate is not None:
            await throttle(client, plan, current, moving, rate)
        if directory_rate is not None:
            await throttle_directories(client, directories, directory_rate)
        refused = await alter_directories(client, directories)
        return current, refused + await alter(client, plan)

    current, results = with_client(bootstrap, work)
    refused = [each for each in results if each.error_code != ErrorCode.NONE]
    if form == "json":
        print_json(
            {
                "dry_run": dry_run,
                "moves": _moves_json(current, plan),
                "rollback": plan_document(current),
                "refused": _refused_json(refused),
            }
        )
        return FAILED_CODE if refused else DONE_CODE
    _print_moves(current, plan)
    if dry_run:
        print("nothing was moved: it was a dry run")
        return DONE_CODE
    for each, between in ((rate, "brokers"), (directory_rate, "log directories")):
        if each is not None:
            told = f"{amount(each, 'byte')} a second per broker"
            print(f"moves between {between} throttled to {told}, until `verify` sees their end")
    if rollback_file is None:
        print(f"the plan that takes it back: {plan_text(current)}")
    print(f"the move of {amount(len(results) - len(refused), 'partition')} began", flush=True)
    return _print_refused(refused)


def _save(path: Path, text: str) -> None:
    try:
        path.write_text(f"{text}\n", encoding="utf-8")
    except OSError as error:
        raise OperatingError(
            f"the rollback plan cannot be written, so nothing was moved: {error}", on=str(path)
        ) from error


def _print_moves(current: Moves, plan: Moves) -> None:
    print_table(
        ["TOPIC", "PARTITION", "NOW", "THEN", "NEW", "GONE"],
        [
            [
                place.topic,
                place.partition,
                _told(current[place]),
                _told(nodes),
                _told([node for node in nodes if node not in current[place]]),
                _told([node for node in current[place] if node not in nodes]),
            ]
            for place, nodes in sorted(plan.items())
        ],
    )


def _told(nodes: Sequence[int]) -> str:
    return ",".join(map(str, nodes)) or "-"


def _moves_json(current: Moves, plan: Moves) -> list[dict[str, Any]]:
    return [
        {**place._asdict(), "now": list(current[place]), "then": list(nodes)}
        for place, nodes in sorted(plan.items())
    ]


def _refused_json(refused: Sequence[PartitionResult]) -> list[dict[str, Any]]:
    return [
        {**each.place._asdict(), "error": error_name(each.error_code), "message": each.message}
        for each in refused
    ]


def _print_refused(refused: Sequence[PartitionResult]) -> int:
    """Print all refusals but the first, which is the command's error."""
    for each in refused[1:]:
        print(f"{each.place}: {error_name(each.error_code)}: {each.message}", file=sys.stderr)
    if refused:
        refused[0].check()
    return DONE_CODE


# --- verify, list ---------------------------------------------------------------------------------


@reassign.command(
    epilog="""\b
Examples:
  raftlog reassign verify plan.json
  raftlog reassign verify plan.json --watch --timeout 600""",
    context_settings=_CONTEXT,
)
@_PLAN
@click.option("--watch", is_flag=True, help="Look again every second until nothing moves.")
@click.option("--timeout", type=click.FloatRange(0.1), help="Give up after so many seconds.")
@click.option("--preserve-throttles", "preserve", is_flag=True, help="Leave throttles as they are.")
@bootstrap_option()
@format_option()
def verify(
    plan_path: Path,
    watch: bool,
    timeout: float | None,
    preserve: bool,
    bootstrap: str,
    form: str,
) -> int:
    """Show how far a plan is: done, moving (with how much is copied), or differs.

    When nothing in the cluster moves any more, throttles of moves are taken away. Exit code 0
    when every partition is where the plan wants it, else 1.
    """
    if timeout is not None and not watch:
        raise click.UsageError("--timeout goes with --watch")
    plan, directories = read_moves(plan_path), read_directories(plan_path)

    async def work(client: Client) -> tuple[list[MoveState], list[DirectoryState], bool]:
        found: list[MoveState] = []
        lying: list[DirectoryState] = []
        with trio.move_on_after(timeout if timeout is not None else float("inf")):
            while True:
                found = await with_progress(client, await states(client, plan))
                lying = await directory_states(client, directories)
                moves = any(each.moving is not None for each in found)
                if not watch or not (moves or any(each.state == "moving" for each in lying)):
                    break
                if sys.stderr.isatty():
                    print(_summary(found), file=sys.stderr, flush=True)
                await trio.sleep(_LOOK_SECONDS)
        topics = sorted({place.topic for place in plan})
        moves = any(each.future is not None for each in lying)
        gone = not (preserve or moves) and await _ended_throttles(client, topics)
        return found, lying, gone

    found, lying, gone = with_client(bootstrap, work)
    done = bool(found) and all(each.state == "done" for each in found)
    done = done and all(each.state == "done" for each in lying)
    if form == "json":
        partitions = [each.as_json() for each in found]
        told = {"directories": [each.as_json() for each in lying], "throttles_removed": gone}
        print_json({"done": done, "partitions": partitions, **told})
    else:
        _print_states(found)
        print_directories(lying)
        if gone:
            print("the throttles of moves are taken away")
    return DONE_CODE if done else FAILED_CODE


async def _ended_throttles(client: Client, topics: Sequence[str]) -> bool:
    """Remove throttles when nothing moves any more; returns whether there were any."""
    if await client.ask(list_reassignments()):
        return False
    known = [topic for topic in topics if await _exists(client, topic)]
    if not await is_throttled(client, known):
        return False
    await take_away(client, known)
    return True


async def _exists(client: Client, topic: str) -> bool:
    try:
        await current_moves(client, [topic])
    except UnknownPlace:
        return False
    return True


def _summary(found: Sequence[MoveState]) -> str:
    moving = sum(each.moving is not None for each in found)
    copied = [one.percent for each in found for one in each.copying if one.percent is not None]
    share = f", {sum(copied) // len(copied)} % copied" if copied else ""
    return f"still moving: {moving} of {amount(len(found), 'partition')}{share}"


def _print_states(found: Sequence[MoveState]) -> None:
    print_table(
        ["TOPIC", "PARTITION", "STATE", "NOW", "THEN", "COPIED"],
        [
            [
                each.place.topic,
                each.place.partition,
                each.state,
                _told(each.current),
                _told(each.wanted),
                _copied(each),
            ]
            for each in found
        ],
    )


def _copied(each: MoveState) -> str:
    told = [
        f"{one.node}:{'?' if one.percent is None else f'{one.percent}%'}" for one in each.copying
    ]
    return " ".join(told) or "-"


@reassign.command(
    "list", epilog="Example: raftlog reassign list --format json", context_settings=_CONTEXT
)
@bootstrap_option()
@format_option()
def list_command(bootstrap: str, form: str) -> None:
    """List the partitions that are moving now, and how much is copied."""

    async def work(client: Client) -> list[MoveState]:
        moving: dict[TopicPartition, Moving] = await client.ask(list_reassignments())
        plan = {place: _wanted(each) for place, each in moving.items()}
        found = await with_progress(client, await states(client, plan))
        return [each for each in found if each.moving is not None]

    found = with_client(bootstrap, work)
    if form == "json":
        print_json({"partitions": [each.as_json() for each in found]})
    elif found:
        _print_states(found)
    else:
        print("no partition is moving")


def _wanted(moving: Moving) -> tuple[NodeId, ...]:
    return tuple(node for node in moving.replicas if node not in moving.removing)


# --- cancel ---------------------------------------------------------------------------------------


@reassign.command(
    epilog="""\b
Examples:
  raftlog reassign cancel plan.json
  raftlog reassign cancel --all --dry-run""",
    context_settings=_CONTEXT,
)
@click.argument("plan_path", metavar="[PLAN]", required=False, type=click.Path(path_type=Path))
@click.option("--all", "all_", is_flag=True, help="Every move of the cluster.")
@click.option("--dry-run", is_flag=True, help="Show what would be taken back, and do nothing.")
@bootstrap_option()
@format_option()
def cancel(plan_path: Path | None, all_: bool, dry_run: bool, bootstrap: str, form: str) -> int:
    """Take moves back that are under way. A partition that has moved already stays where it is."""
    if (plan_path is None) != all_:
        raise click.UsageError("give a plan or --all, and not both")
    plan = read_moves(plan_path) if plan_path is not None else None
    directories = read_directories(plan_path) if plan_path is not None else {}

    async def work(
        client: Client,
    ) -> tuple[list[TopicPartition], list[DirectoryState], list[PartitionResult]]:
        moving: Mapping[TopicPartition, Moving] = await client.ask(list_reassignments())
        places = sorted(place for place in moving if plan is None or place in plan)
        lying = await directory_states(client, directories)
        if dry_run:
            return places, [each for each in lying if each.future is not None], []
        within, refused = await take_moves_back(client, lying)
        return places, within, refused + await alter(client, dict.fromkeys(places))

    places, within, results = with_client(bootstrap, work)
    # A move may end between the list and the request.
    over = [each.place for each in results if each.error_code == _OVER]
    refused = [each for each in results if each.error_code not in (ErrorCode.NONE, _OVER)]
    kept = [*over, *(each.place for each in refused)]
    gone = [place for place in places if place not in kept]
    if form == "json":
        document = {
            "dry_run": dry_run,
            "cancelled": [place._asdict() for place in gone],
            "moved_already": [place._asdict() for place in over],
            "directories": [each.as_json() for each in within],
            "refused": _refused_json(refused),
        }
        print_json(document)
        return FAILED_CODE if refused else DONE_CODE
    if not places and not within:
        print("none of these partitions is moving")
    for place in gone:
        print(f"{place}: {'would be taken back' if dry_run else 'taken back'}", flush=True)
    for each in within:
        print(f"{each.place}: {'would stay' if dry_run else 'stays'} in {each.current}", flush=True)
    for place in over:
        print(f"{place}: has moved already", flush=True)
    return _print_refused(refused)
