"""`raftlog kafka-log-dirs`: the flags and the output of Kafka's tool for data directories.

Exit codes are Kafka's: 0, or 1 for everything that goes wrong, wrong usage included.
"""

import json
from functools import partial
from typing import Any

import click

from raftlog.base.errors import OperatingError
from raftlog.cli.admin.disks import Disks, describe_disks
from raftlog.cli.admin.moves import known_brokers
from raftlog.cli.output.render import DONE_CODE, format_option
from raftlog.cli.shims.kafka_shim import (
    ShimCommand,
    ask,
    bootstrap_flag,
    command_config_flag,
    usage,
)
from raftlog.client.core.admin_asks import LogDir
from raftlog.client.trio_driver import Client
from raftlog.kafka.error_codes import error_name


@click.command(
    "kafka-log-dirs",
    cls=ShimCommand,
    epilog="""\b
Example:
  raftlog kafka-log-dirs --bootstrap-server localhost:9092 --describe --topic-list orders""",
    context_settings={"max_content_width": 100},
)
@click.option("--describe", is_flag=True, help="Show the directories.")
@bootstrap_flag()
@command_config_flag()
@click.option("--topic-list", default="", metavar="T,T,...", help="Only these topics.")
@click.option("--broker-list", default="", metavar="N,N,...", help="Only these brokers.")
@format_option()
def kafka_log_dirs(**flags: Any) -> int:
    """Kafka's own tool for data directories, flag for flag. JSON leaves two lines out."""
    if not flags["describe"]:
        usage('Missing required argument "[describe]"')
    topics = [each for each in flags["topic_list"].split(",") if each]
    numbers = [each for each in flags["broker_list"].split(",") if each]
    if not all(each.isascii() and each.isdigit() and len(each) < 10 for each in numbers):
        usage(f'For input string: "{flags["broker_list"]}"')
    wanted = sorted({int(each) for each in numbers})
    return ask(flags, partial(_describe, flags, wanted, topics))


async def _describe(
    flags: dict[str, Any], wanted: list[int], topics: list[str], client: Client
) -> int:
    alive = sorted(each.broker_id for each in (await known_brokers(client)).brokers)
    missing = [node for node in wanted if node not in alive]
    if missing:
        gone, there = (",".join(map(str, nodes)) for nodes in (missing, alive))
        raise OperatingError(
            f"ERROR: The given brokers do not exist from --broker-list: {gone}. "
            f"Current existent brokers: {there}"
        )
    text = flags["form"] == "text"
    if text:
        print("Querying brokers for log directories information", flush=True)
    found = await describe_disks(client, wanted, topics)
    if text:
        told = ",".join(map(str, found))
        print(f"Received log directory information from brokers {told}")
    print(json.dumps(_document(found), separators=(",", ":"), ensure_ascii=False))
    return DONE_CODE


def _document(found: Disks) -> dict[str, Any]:
    """The document in the order of Kafka's tool."""
    brokers = [
        {"broker": node, "logDirs": [_directory(each) for each in directories]}
        for node, directories in found.items()
    ]
    return {"brokers": brokers, "version": 1}


def _directory(each: LogDir) -> dict[str, Any]:
    return {
        "partitions": [
            {
                "partition": str(one.place),
                "size": one.size_bytes,
                "offsetLag": one.lag_records,
                "isFuture": one.is_future,
            }
            for one in each.replicas
        ],
        "error": error_name(each.error_code) if each.error_code else None,
        "logDir": each.path,
    }
