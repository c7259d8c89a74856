"""`raftlog log-dirs`: the replicas on the disks of brokers, and the room that is left."""

from collections.abc import Sequence
from typing import Any

import click

from raftlog.base.ids import NodeId
from raftlog.cli.admin.moves import check_alive, current_moves, known_brokers
from raftlog.cli.connect import with_client
from raftlog.cli.output.render import bootstrap_option, format_option, print_json, print_table
from raftlog.client.core.admin_asks import LogDir, describe_log_dirs
from raftlog.client.trio_driver import Client, gather
from raftlog.kafka.error_codes import error_name

Disks = dict[int, list[LogDir]]
"""Broker -> its data directories."""


@click.command(
    "log-dirs",
    epilog="""\b
Examples:
  raftlog log-dirs
  raftlog log-dirs --broker 1 --topic orders --replicas""",
    context_settings={"max_content_width": 100},
)
@click.option("--broker", "brokers", type=click.IntRange(0), multiple=True, help="Only these.")
@click.option("--topic", "topics", multiple=True, help="Only replicas of these topics.")
@click.option("--replicas", is_flag=True, help="Show each replica; JSON always does.")
@bootstrap_option()
@format_option()
def log_dirs_command(
    brokers: tuple[int, ...], topics: tuple[str, ...], replicas: bool, bootstrap: str, form: str
) -> None:
    """Show the data directories of brokers: their replicas, sizes in bytes, and the room left.

    A lag is the number of records by which a replica ends behind what is committed. A replica on
    its way to another directory is a future one there, and its lag is what is not copied yet.
    """

    async def work(client: Client) -> Disks:
        await current_moves(client, topics)  # a topic that does not exist is a mistake
        return await describe_disks(client, brokers, topics)

    found = with_client(bootstrap, work)
    if form == "json":
        print_json({"brokers": [_as_json(node, found[node]) for node in sorted(found)]})
        return
    _print_directories(found)
    if replicas:
        _print_replicas(found)


async def describe_disks(
    client: Client, brokers: Sequence[int] = (), topics: Sequence[str] = ()
) -> Disks:
    """The log directories of these brokers, or of all living ones, with the replicas in them.

    Only replicas of these topics are shown, or of all. Raises `OperatingError` for a broker that is
    not alive.
    """
    await client.know_brokers()
    asked = brokers or [each.broker_id for each in (await known_brokers(client)).brokers]
    await check_alive(client, asked)
    found: Disks = {}

    async def ask(node: int) -> None:
        directories: list[LogDir] = await client.ask(describe_log_dirs(NodeId(node)))
        found[node] = [_only(each, topics) for each in directories]

    async with gather() as nursery:
        for node in dict.fromkeys(asked):
            nursery.start_soon(ask, node)
    return dict(sorted(found.items()))


def _only(directory: LogDir, topics: Sequence[str]) -> LogDir:
    shown = [each for each in directory.replicas if not topics or each.place.topic in topics]
    return directory._replace(replicas=tuple(sorted(shown)))


def _print_directories(found: Disks) -> None:
    rows = [
        [
            node,
            each.path,
            error_name(each.error_code) if each.error_code else "ok",
            len(each.replicas),
            each.size_bytes,
            "-" if each.usable_bytes is None else each.usable_bytes,
            "-" if each.total_bytes is None else each.total_bytes,
        ]
        for node, directories in found.items()
        for each in directories
    ]
    header = ["BROKER", "DIRECTORY", "STATE", "REPLICAS", "BYTES", "FREE-BYTES", "DISK-BYTES"]
    print_table(header, rows)


def _print_replicas(found: Disks) -> None:
    rows = [
        [
            node,
            each.place.topic,
            each.place.partition,
            each.size_bytes,
            each.lag_records,
            "future" if each.is_future else "here",
            directory.path,
        ]
        for node, directories in found.items()
        for directory in directories
        for each in directory.replicas
    ]
    print_table(["BROKER", "TOPIC", "PARTITION", "BYTES", "LAG", "STATE", "DIRECTORY"], rows)


def _as_json(node: int, directories: Sequence[LogDir]) -> dict[str, Any]:
    return {
        "broker": node,
        "directories": [
            {
                "path": each.path,
                "error": error_name(each.error_code) if each.error_code else None,
                "size_bytes": each.size_bytes,
                "usable_bytes": each.usable_bytes,
                "total_bytes": each.total_bytes,
                "replicas": [
                    {
                        **one.place._asdict(),
                        "size_bytes": one.size_bytes,
                        "lag_records": one.lag_records,
                        "is_future": one.is_future,
                    }
                    for one in each.replicas
                ],
            }
            for each in directories
        ],
    }
