"""`raftlog kafka-reassign-partitions`: the flags and the output of Kafka's tool for moves.

Exit codes are Kafka's: 0, or 1 for everything that goes wrong, wrong usage included. Like Kafka's
tool, it prints its errors on standard output. JSON is ours.
"""

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, final

import click

from raftlog.base.errors import OperatingError, RaftlogError
from raftlog.cli.admin.directory_states import directory_states, take_moves_back
from raftlog.cli.admin.moves import (
    MoveState,
    alter,
    alter_directories,
    check_directories,
    current_moves,
    current_of,
    known_brokers,
    states,
)
from raftlog.cli.admin.plan_files import (
    Directories,
    Moves,
    plan_document,
    plan_text,
    read_directories,
    read_moves,
    read_topics,
)
from raftlog.cli.admin.propose import propose
from raftlog.cli.admin.throttles import take_away, throttle, throttle_directories
from raftlog.cli.output.render import DONE_CODE, FAILED_CODE, format_option, print_json
from raftlog.cli.shims.kafka_shim import (
    ShimCommand,
    ask,
    bootstrap_flag,
    command_config_flag,
    usage,
)
from raftlog.client.core.asks import list_reassignments
from raftlog.client.core.errors import KafkaError
from raftlog.client.core.results import PartitionResult
from raftlog.client.core.values import Moving, TopicPartition
from raftlog.client.trio_driver import Client
from raftlog.kafka.error_codes import ErrorCode, error_name

_ACTIONS: Final = ("generate", "execute", "verify", "cancel", "list")
_NEEDS: Final = {
    "generate": ("topics_to_move_json_file", "broker_list"),
    "execute": ("reassignment_json_file",),
    "verify": ("reassignment_json_file",),
    "cancel": ("reassignment_json_file",),
    "list": (),
}
_THROTTLES: Final = ("throttle", "directory_rate")
_VERIFY_LATER: Final = (
    "Warning: You must run --verify periodically, until the reassignment completes, to ensure the "
    "throttle is removed."
)
_EXISTING: Final = (
    "Cannot execute because there is an existing partition assignment.  Use --additional to "
    "override this and create a new partition assignment in addition to the existing one. The "
    "--additional flag can also be used to change the throttle by resubmitting the current "
    "reassignment."
)


@click.command(
    "kafka-reassign-partitions",
    cls=ShimCommand,
    epilog="""\b
Examples:
  raftlog kafka-reassign-partitions --bootstrap-server localhost:9092 --generate \\
      --topics-to-move-json-file topics.json --broker-list 1,2,3
  raftlog kafka-reassign-partitions --bootstrap-server localhost:9092 --execute \\
      --reassignment-json-file plan.json""",
    context_settings={"max_content_width": 100},
)
@click.option("--generate", is_flag=True, help="Propose a plan.")
@click.option("--execute", is_flag=True, help="Begin the moves of a plan.")
@click.option("--verify", is_flag=True, help="Tell how far a plan is.")
@click.option("--cancel", is_flag=True, help="Take the moves of a plan back.")
@click.option("--list", "list_", is_flag=True, help="List all moves.")
@bootstrap_flag()
@command_config_flag()
@click.option("--reassignment-json-file", type=click.Path(path_type=Path), help="The plan.")
@click.option(
    "--topics-to-move-json-file",
    type=click.Path(path_type=Path),
    help="With --generate: the topics.",
)
@click.option("--broker-list", metavar="N,N,...", help="With --generate: the brokers.")
@click.option("--disable-rack-aware", is_flag=True, help="With --generate: do not mind racks.")
@click.option("--additional", is_flag=True, help="With --execute: although others move now.")
@click.option(
    "--disallow-replication-factor-change",
    is_flag=True,
    help="With --execute: refuse a plan that changes how many copies there are.",
)
@click.option("--preserve-throttles", is_flag=True, help="Leave throttles as they are.")
@click.option("--throttle", type=int, help="With --execute: bytes a second per broker.")
@click.option(
    "--replica-alter-log-dirs-throttle",
    "directory_rate",
    type=int,
    help="With --execute: bytes a second that a broker copies between its log directories.",
)
@click.option("--timeout", type=int, help="Taken, and without effect.")
@format_option()
def kafka_reassign_partitions(**flags: Any) -> int:
    """Kafka's own tool for moves of partitions, flag for flag."""
    flags["list"] = flags.pop("list_")
    actions = [name for name in _ACTIONS if flags[name]]
    if len(actions) != 1:
        told = ", ".join(f"--{name}" for name in _ACTIONS)
        usage(f"Command must include exactly one action: {told}")
    (action,) = actions
    for key in _NEEDS[action]:
        if flags[key] is None:
            usage(f'Missing required argument "[{key.replace("_", "-")}]"')

    async def work(client: Client) -> int:
        return int(await _ACTS[action](flags, client))

    return ask(flags, work, told=_error, stream=sys.stdout)


@final
class _Terse(OperatingError):
    """An error that is printed as it is, without "Error: " before it."""


def _error(error: RaftlogError) -> str:
    if isinstance(error, _Terse):
        return error.what
    return f"Error: {error.text if isinstance(error, KafkaError) else error}"


def _named(places: Iterable[TopicPartition]) -> str:
    return ",".join(map(str, sorted(places)))


def _plural(count: int) -> str:
    return "" if count == 1 else "s"


# --- generate, execute ----------------------------------------------------------------------------


async def _generate(flags: dict[str, Any], client: Client) -> int:
    topics = read_topics(flags["topics_to_move_json_file"])
    nodes = _nodes(flags["broker_list"])
    known = {each.broker_id: each.rack or "" for each in (await known_brokers(client)).brokers}
    racks = {node: known[node] for node in nodes if node in known}
    if flags["disable_rack_aware"]:
        racks = dict.fromkeys(racks, "")
    elif any(racks.values()) and not all(racks.values()):
        raise OperatingError(
            "Not all brokers have rack information. Add --disable-rack-aware in command line to "
            "make replica assignment without rack information."
        )
    current = await current_moves(client, topics)
    proposed = propose(current, racks)
    if flags["form"] == "json":
        print_json({"current": plan_document(current), "proposed": plan_document(proposed)})
        return DONE_CODE
    print(f"Current partition replica assignment\n{plan_text(current)}\n")
    print(f"Proposed partition reassignment configuration\n{plan_text(proposed)}")
    return DONE_CODE


def _nodes(text: str) -> list[int]:
    try:
        nodes = [int(each) for each in text.split(",")]
    except ValueError:
        raise OperatingError(f'For input string: "{text}"') from None
    twice = sorted({node for node in nodes if nodes.count(node) > 1})
    if twice:
        raise OperatingError(f"Broker list contains duplicate entries: {twice}")
    return nodes


async def _execute(flags: dict[str, Any], client: Client) -> int:
    plan = read_moves(flags["reassignment_json_file"])
    moving: dict[TopicPartition, Moving] = await client.ask(list_reassignments())
    if moving and not flags["additional"]:
        raise _Terse(_EXISTING)
    alive = [each.broker_id for each in (await known_brokers(client)).brokers]
    for node in sorted({node for nodes in plan.values() for node in nodes}):
        if node not in alive:
            raise OperatingError(f"Unknown broker id {node}")
    directories = read_directories(flags["reassignment_json_file"])
    await check_directories(client, directories)
    current = await current_of(client, plan)
    if flags["form"] == "text":
        print(f"Current partition replica assignment\n\n{plan_text(current)}\n")
        print("Save this to use as the --reassignment-json-file option during rollback", flush=True)
    await _throttle(flags, client, plan, current, moving, directories)
    same_factor = flags["disallow_replication_factor_change"]
    elsewhere = await alter_directories(client, directories)
    results = elsewhere + await alter(client, plan, factor_may_change=not same_factor)
    refused = _refused(results)
    if flags["form"] == "json":
        started = [place._asdict() for place in sorted(plan) if place not in refused]
        print_json(
            {"current": plan_document(current), "started": started, "refused": _told(refused)}
        )
        return FAILED_CODE if refused else DONE_CODE
    if refused:
        raise _Terse("Error reassigning partition(s):\n" + _lines(refused))
    print(f"Successfully started partition reassignment{_plural(len(plan))} for {_named(plan)}")
    _tell_directory_moves(
        (place, node, path) for node, named in directories.items() for place, path in named.items()
    )
    return DONE_CODE


def _tell_directory_moves(replicas: Iterable[tuple[TopicPartition, int, str]]) -> None:
    """Print the line of Kafka's tool for each replica that moves within its broker."""
    for place, node, path in sorted(replicas):
        what = f"Successfully started moving log directory to {path}"
        # The blank at the end is Kafka's.
        print(f"{what} for replica {place} with broker {node} ")


async def _throttle(
    flags: dict[str, Any],
    client: Client,
    plan: Moves,
    current: Moves,
    moving: Mapping[TopicPartition, Moving],
    directories: Directories,
) -> None:
    """Set the throttles that were asked for. A negative rate, Kafka's default, is none."""
    between, within = ((-1 if flags[key] is None else flags[key]) for key in _THROTTLES)
    says = print if flags["form"] == "text" else _says_nothing
    if between >= 0 or within >= 0:
        says(_VERIFY_LATER)
    if between >= 0:
        await throttle(client, plan, current, moving, between)
        says(f"The inter-broker throttle limit was set to {between} B/s")
    if within >= 0:
        await throttle_directories(client, directories, within)
        says(f"The replica-alter-dir throttle limit was set to {within} B/s")


def _says_nothing(text: str) -> None:
    """With JSON the document says everything."""


def _refused(results: Sequence[PartitionResult]) -> dict[TopicPartition, PartitionResult]:
    return {each.place: each for each in results if each.error_code != ErrorCode.NONE}


def _lines(refused: Mapping[TopicPartition, PartitionResult]) -> str:
    return "\n".join(
        f"{place}: {each.message or error_name(each.error_code)}"
        for place, each in sorted(refused.items())
    )


def _told(refused: Mapping[TopicPartition, PartitionResult]) -> list[dict[str, Any]]:
    return [
        {**place._asdict(), "error": error_name(each.error_code), "message": each.message}
        for place, each in sorted(refused.items())
    ]


# --- verify, cancel, list -------------------------------------------------------------------------


async def _verify(flags: dict[str, Any], client: Client) -> int:
    plan = read_moves(flags["reassignment_json_file"])
    found = await states(client, plan)
    lying = await directory_states(client, read_directories(flags["reassignment_json_file"]))
    moving: dict[TopicPartition, Moving] = await client.ask(list_reassignments())
    if flags["form"] == "json":
        told = {"directories": [each.as_json() for each in lying]}
        print_json({"partitions": [each.as_json() for each in found], **told})
    else:
        print("Status of partition reassignment:")
        for each in found:
            print(_state(each))
        # Kafka's tool has an empty line here when the plan names no directories.
        print("\n".join(one.as_kafka_says() for one in lying))
    is_over = not moving and all(each.is_over for each in lying)
    if is_over and not flags["preserve_throttles"]:
        await _clear_throttles(flags, client, plan)
    return DONE_CODE


def _state(each: MoveState) -> str:
    if each.state == "done":
        return f"Reassignment of partition {each.place} is completed."
    if each.state == "moving":
        return f"Reassignment of partition {each.place} is still in progress."
    now, then = (",".join(map(str, nodes)) for nodes in (each.current, each.wanted))
    return (
        f"There is no active reassignment of partition {each.place}, "
        f"but replica set is {now} rather than {then}."
    )


async def _clear_throttles(flags: dict[str, Any], client: Client, plan: Moves) -> None:
    """Remove the throttles of all brokers and of the plan's topics, as Kafka's tool does."""
    topics = sorted({place.topic for place in plan})
    nodes = await take_away(client, topics)
    if flags["form"] == "text":
        told = ",".join(map(str, nodes))
        print(f"Clearing broker-level throttles on broker{_plural(len(nodes))} {told}")
        print(f"Clearing topic-level throttles on topic{_plural(len(topics))} {','.join(topics)}")


async def _cancel(flags: dict[str, Any], client: Client) -> int:
    plan = read_moves(flags["reassignment_json_file"])
    moving: dict[TopicPartition, Moving] = await client.ask(list_reassignments(sorted(plan)))
    places = sorted(moving)
    refused = _refused(await alter(client, dict.fromkeys(places))) if places else {}
    lying = await directory_states(client, read_directories(flags["reassignment_json_file"]))
    within, elsewhere = await take_moves_back(client, lying)
    refused |= _refused(elsewhere)
    if flags["form"] == "json":
        gone = [place._asdict() for place in places if place not in refused]
        told = {"directories": [each.as_json() for each in within]}
        print_json({"cancelled": gone, "refused": _told(refused), **told})
        return FAILED_CODE if refused else DONE_CODE
    if refused:
        what = f"Error cancelling partition reassignment{_plural(len(refused))} for:"
        raise _Terse(f"{what}\n{_lines(refused)}")
    if places:
        what = f"Successfully cancelled partition reassignment{_plural(len(places))} for:"
        print(f"{what} {_named(places)}")
    else:
        print("None of the specified partition reassignments are active.")
    if within:
        _tell_directory_moves((each.place, each.node, each.current or "") for each in within)
    else:
        print("None of the specified partition moves are active.")
    if not flags["preserve_throttles"]:
        await _clear_throttles(flags, client, plan)
    return DONE_CODE


async def _list(flags: dict[str, Any], client: Client) -> int:
    moving: dict[TopicPartition, Moving] = await client.ask(list_reassignments())
    if flags["form"] == "json":
        told = [
            {**place._asdict(), **{key: list(nodes) for key, nodes in each._asdict().items()}}
            for place, each in sorted(moving.items())
        ]
        print_json({"partitions": told})
        return DONE_CODE
    if not moving:
        print("No partition reassignments found.")
        return DONE_CODE
    print("Current partition reassignments:")
    for place, each in sorted(moving.items()):
        line = f"{place}: replicas: {_numbers(each.replicas)}."
        line += f" adding: {_numbers(each.adding)}." if each.adding else ""
        line += f" removing: {_numbers(each.removing)}." if each.removing else ""
        print(line)
    return DONE_CODE


def _numbers(nodes: Iterable[int]) -> str:
    return ",".join(map(str, nodes))


_ACTS: Final = {
    "generate": _generate,
    "execute": _execute,
    "verify": _verify,
    "cancel": _cancel,
    "list": _list,
}
