"""`raftlog kafka-get-offsets`: the flags and the output of Kafka's tool for offsets.

Exit codes are Kafka's: 0, or 1 for everything that goes wrong, wrong usage included. JSON is ours.
"""

import re
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import click

from raftlog.base.errors import OperatingError, RaftlogError
from raftlog.cli.output.render import DONE_CODE, format_option, print_json
from raftlog.cli.shims.kafka_shim import (
    ShimCommand,
    ask,
    bootstrap_flag,
    command_config_flag,
    usage,
)
from raftlog.client.core.asks import metadata
from raftlog.client.core.errors import KafkaError
from raftlog.client.core.values import TopicPartition
from raftlog.client.trio_driver import Client, gather

_TIMES: Final = {
    "latest": -1,
    "earliest": -2,
    "max-timestamp": -3,
    "earliest-local": -4,
    "latest-tiered": -5,
}
_RULE: Final = re.compile(r"([^:,]*)(?::(?:([0-9]*)|(?:([0-9]*)-([0-9]*))))?", re.ASCII)
_NUMBER_DIGITS_MAX: Final = 10
_NO_OFFSET: Final = -1


class Rule(NamedTuple):
    """Partitions of the topics that a pattern matches: from `low` up to, and without, `high`."""

    pattern: re.Pattern[str]
    low: int
    high: float

    def matches(self, place: TopicPartition) -> bool:
        return (
            self.pattern.fullmatch(place.topic) is not None
            and self.low <= place.partition < self.high
        )


@click.command(
    "kafka-get-offsets",
    cls=ShimCommand,
    epilog="""\b
Examples:
  raftlog kafka-get-offsets --bootstrap-server localhost:9092 --topic orders
  raftlog kafka-get-offsets --bootstrap-server localhost:9092 --time earliest \\
      --topic-partitions orders:0-3,payments:1""",
    context_settings={"max_content_width": 100},
)
@bootstrap_flag()
@command_config_flag()
@click.option("--topic", help="A name, or a regular expression; all topics if left out.")
@click.option("--partitions", metavar="N,N,...", help="Only these partitions.")
@click.option("--topic-partitions", metavar="T:N,T:N-N,...", help="Topics with their partitions.")
@click.option(
    "--time",
    "time_",
    default="latest",
    show_default=True,
    help="latest, earliest, max-timestamp, or a time in milliseconds.",
)
@click.option("--exclude-internal-topics", is_flag=True, help="Leave internal topics out.")
@format_option()
def kafka_get_offsets(**flags: Any) -> int:
    """Kafka's own tool for offsets, flag for flag."""
    if flags["topic_partitions"] is not None and (flags["topic"] or flags["partitions"]):
        usage("Error occurred: --topic-partitions cannot be used with --topic or --partitions")
    wanted, timestamp = _wanted(flags), _timestamp(flags["time_"])
    return ask(flags, partial(_tell, flags, wanted, timestamp), told=_error)


def _error(error: RaftlogError) -> str:
    return f"Error occurred: {error}"


def _timestamp(text: str) -> int:
    if text in _TIMES:
        return _TIMES[text]
    try:
        number = int(text)
    except ValueError:
        number = min(_TIMES.values()) - 1
    if not min(_TIMES.values()) <= number < 2**63:
        usage(
            f"Error occurred: Malformed time argument {text}. Please use -1 or latest / -2 or "
            "earliest / -3 or max-timestamp / -4 or earliest-local / -5 or latest-tiered, or a "
            "specified long format timestamp"
        )
    return number


def _wanted(flags: dict[str, Any]) -> Callable[[TopicPartition], bool]:
    if flags["topic_partitions"] is not None:
        rules = [_rule(each) for each in flags["topic_partitions"].split(",")]
        return lambda place: any(rule.matches(place) for rule in rules)
    pattern = _pattern(flags["topic"] or ".*")
    numbers = _numbers(flags["partitions"])
    return lambda place: (
        pattern.fullmatch(place.topic) is not None and (not numbers or place.partition in numbers)
    )


def _numbers(text: str | None) -> list[int]:
    if not text:
        return []
    parts = text.split(",")
    if not all(each.isascii() and each.isdigit() for each in parts):
        usage(
            "Error occurred: --partitions expects a comma separated list of numeric partition ids, "
            f"but received: {text}"
        )
    return [int(each[:_NUMBER_DIGITS_MAX]) for each in parts]


def _rule(text: str) -> Rule:
    found = _RULE.fullmatch(text)
    if found is None:
        usage(f"Error occurred: Invalid rule specification: {text}")
    topic, one, low, high = (each[:249] if each else None for each in found.groups())
    pattern = _pattern(topic or ".*")
    if one is not None:
        return Rule(pattern, int(one), int(one) + 1)
    return Rule(pattern, int(low or 0), int(high) if high else float("inf"))


def _pattern(text: str) -> re.Pattern[str]:
    """The pattern of Kafka's tool: a regular expression, with commas between several."""
    try:
        return re.compile(text.strip().replace(",", "|").strip("\"'"))
    except re.error as error:
        usage(f"Error occurred: {text} is an invalid regex: {error}")


async def _tell(
    flags: dict[str, Any],
    wanted: Callable[[TopicPartition], bool],
    timestamp: int,
    client: Client,
) -> int:
    answer = await client.ask(metadata())
    places = [
        place
        for topic in answer.topics
        for each in topic.partitions
        if not (flags["exclude_internal_topics"] and topic.is_internal)
        and wanted(place := TopicPartition(topic.name or "", each.partition_index))
    ]
    if not places:
        raise OperatingError("Could not match any topic-partitions with the specified filters")
    found = await _offsets(client, places, timestamp)
    # Kafka's tool sorts the partitions as texts.
    shown = sorted(found.items(), key=lambda each: str(each[0]))
    if flags["form"] == "json":
        print_json({"offsets": [{**place._asdict(), "offset": at} for place, at in shown]})
        return DONE_CODE
    for place, at in shown:
        print(f"{place.topic}:{place.partition}:{at}")
    return DONE_CODE


async def _offsets(
    client: Client, places: Sequence[TopicPartition], timestamp: int
) -> dict[TopicPartition, int]:
    """The offsets; partitions without one, or whose leader refused, are left out."""
    found: dict[TopicPartition, int] = {}

    async def one(place: TopicPartition) -> None:
        try:
            told = (await client.offset(place, timestamp)).offset
        except RaftlogError as error:
            why = error.text if isinstance(error, KafkaError) else error.what
            what = f"Skip getting offsets for topic-partition {place} due to error: {why}"
            print(what, file=sys.stderr)
            return
        if told != _NO_OFFSET:
            found[place] = told

    async with gather() as nursery:
        for place in places:
            nursery.start_soon(one, place)
    return found
