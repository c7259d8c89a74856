"""`raftlog kafka-leader-election`: the flags and the output of Kafka's tool for elections.

Exit codes are Kafka's: 0, or 1 for everything that goes wrong, wrong usage included. JSON is ours.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from raftlog.base.errors import OperatingError
from raftlog.cli.admin.plan_files import read_places
from raftlog.cli.output.render import DONE_CODE, FAILED_CODE, format_option, print_json
from raftlog.cli.shims.kafka_shim import (
    ShimCommand,
    ask,
    bootstrap_flag,
    command_config_flag,
    usage,
)
from raftlog.client.core.admin_asks import elect_leaders
from raftlog.client.core.results import PartitionResult
from raftlog.client.core.values import TopicPartition
from raftlog.client.trio_driver import Client
from raftlog.kafka.error_codes import ErrorCode, error_name
from raftlog.metadata.rules.topic_names import topic_name_problem

_WAYS = ("topic", "all_topic_partitions", "path_to_json_file")


@click.command(
    "kafka-leader-election",
    cls=ShimCommand,
    epilog="""\b
Example:
  raftlog kafka-leader-election --bootstrap-server localhost:9092 --election-type preferred \\
      --all-topic-partitions""",
    context_settings={"max_content_width": 100},
)
@click.option("--election-type", help="preferred; unclean is refused by raftlog.")
@bootstrap_flag()
@command_config_flag("--admin.config")
@click.option("--topic", help="The topic.")
@click.option("--partition", type=click.IntRange(0, 2**31 - 1), help="Its partition.")
@click.option("--all-topic-partitions", is_flag=True, help="Every partition.")
@click.option("--path-to-json-file", type=click.Path(path_type=Path), help="Some partitions.")
@format_option()
def kafka_leader_election(**flags: Any) -> int:
    """Kafka's own tool for elections of leaders, flag for flag."""
    if flags["election_type"] is None:
        usage("Missing required option(s): election-type")
    kind = flags["election_type"].upper()
    if kind not in ("PREFERRED", "UNCLEAN"):
        usage(f"Cannot parse argument '{flags['election_type']}' of option election-type")
    given = [name for name in _WAYS if flags[name]]
    if len(given) != 1:
        told = ", ".join(name.replace("_", "-") for name in _WAYS)
        usage(f"One and only one of the following options is required: {told}")
    if flags["topic"] and flags["partition"] is None:
        usage("Missing required option(s): partition")
    if flags["partition"] is not None and not flags["topic"]:
        usage("Option partition is only allowed if topic is used")
    problem = topic_name_problem(flags["topic"]) if flags["topic"] else None
    if problem is not None:
        usage(problem)
    return ask(flags, partial(_elect, kind, flags))


async def _elect(kind: str, flags: dict[str, Any], client: Client) -> int:
    places: list[TopicPartition] | None = None
    if flags["path_to_json_file"]:
        places = read_places(flags["path_to_json_file"])
    elif flags["topic"]:
        places = [TopicPartition(flags["topic"], flags["partition"])]
    results: list[PartitionResult] = await client.ask(
        elect_leaders(places, unclean=kind == "UNCLEAN")
    )
    results = sorted(results)
    failed = [
        each
        for each in results
        if each.error_code not in (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED)
    ]
    if flags["form"] == "json":
        told = [
            {**each.place._asdict(), "error": error_name(each.error_code), "message": each.message}
            for each in results
        ]
        print_json({"election_type": kind, "partitions": told})
        return FAILED_CODE if failed else DONE_CODE
    _print(kind, results, failed)
    return DONE_CODE


def _print(
    kind: str, results: Sequence[PartitionResult], failed: Sequence[PartitionResult]
) -> None:
    done = [str(each.place) for each in results if each.error_code == ErrorCode.NONE]
    needless = [
        str(each.place) for each in results if each.error_code == ErrorCode.ELECTION_NOT_NEEDED
    ]
    if done:
        what = f"Successfully completed leader election ({kind}) for partitions"
        print(f"{what} {', '.join(done)}")
    if needless:
        print(f"Valid replica already elected for partitions {', '.join(needless)}")
    for each in failed:
        why = f"{error_name(each.error_code)}: {each.message or ''}".rstrip(": ")
        print(f"Error completing leader election ({kind}) for partition: {each.place}: {why}")
    if failed:
        raise OperatingError(f"{len(failed)} replica(s) could not be elected")
