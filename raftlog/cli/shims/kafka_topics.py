"""`raftlog kafka-topics`: the flags, the output and the exit codes of Kafka's own topic tool.

Exit codes are Kafka's: 0, or 1 for everything that goes wrong, wrong usage included. JSON is ours.
"""

import re
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, final

import click

from raftlog.base.error_text import error_text
from raftlog.base.errors import RaftlogError
from raftlog.cli.connect import with_client
from raftlog.cli.output.render import FAILED_CODE, format_option, print_json
from raftlog.cli.output.topic_view import (
    COLLISION_WARNING,
    PartitionView,
    TopicDescription,
    describe_topics,
    id_of_text,
    id_text,
)
from raftlog.cli.shims.kafka_shim import ShimCommand, check_command_config, usage
from raftlog.client.core.asks import (
    create_partitions,
    create_topics,
    delete_topics,
    metadata,
    new_topic,
)
from raftlog.client.core.errors import KafkaError
from raftlog.client.trio_driver import Client
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.messages.metadata import MetadataResponse, MetadataResponseTopic
from raftlog.metadata.rules.topic_names import topic_name_problem

if TYPE_CHECKING:
    from raftlog.client.core.results import TopicResult

_ACTIONS = ("create", "delete", "alter", "describe", "list")


@final
class _Failure(Exception):
    """An error in the words that Kafka's tool has for it."""


class TopicsAsked(NamedTuple):
    """The values of the flags."""

    action: str
    topic: str | None
    topic_id: bytes | None
    partitions: int | None
    replication_factor: int | None
    assignment: tuple[tuple[int, ...], ...]
    configs: dict[str, str]
    if_exists: bool
    if_not_exists: bool
    exclude_internal: bool
    filters: tuple[str, ...]
    form: str


@click.command(
    "kafka-topics",
    cls=ShimCommand,
    epilog="""\b
Examples:
  raftlog kafka-topics --bootstrap-server localhost:9092 --create --topic orders \\
      --partitions 10 --replication-factor 3
  raftlog kafka-topics --bootstrap-server localhost:9092 --describe --topic orders""",
    context_settings={"max_content_width": 100},
)
@click.option("--create", "create", is_flag=True, help="Create a topic.")
@click.option("--delete", "delete", is_flag=True, help="Delete topics.")
@click.option("--alter", "alter", is_flag=True, help="Raise the number of partitions.")
@click.option("--describe", "describe", is_flag=True, help="Show partitions, replicas, ISR.")
@click.option("--list", "list_", is_flag=True, help="List the topics.")
@click.option(
    "--bootstrap-server", "bootstrap", metavar="HOST:PORT[,...]", help="Brokers to ask first."
)
@click.option(
    "--command-config",
    type=click.Path(path_type=Path),
    help="A file of client settings; security.protocol may be PLAINTEXT.",
)
@click.option("--topic", help="A name; for all but --create also a regular expression.")
@click.option("--topic-id", metavar="ID", help="With --describe: the topic of this id.")
@click.option("--partitions", type=int, help="With --create, --alter: how many.")
@click.option("--replication-factor", type=int, help="With --create: how many copies.")
@click.option(
    "--replica-assignment",
    metavar="1:2:3,2:3:1",
    help="With --create, --alter: the brokers of each partition.",
)
@click.option("--config", "configs", multiple=True, metavar="NAME=VALUE", help="With --create.")
@click.option("--if-exists", is_flag=True, help="No error when the topic is not there.")
@click.option("--if-not-exists", is_flag=True, help="No error when the topic is there.")
@click.option("--exclude-internal", is_flag=True, help="Leave internal topics out.")
@click.option("--under-replicated-partitions", is_flag=True, help="With --describe: only these.")
@click.option("--unavailable-partitions", is_flag=True, help="With --describe: only these.")
@click.option("--under-min-isr-partitions", is_flag=True, help="With --describe: only these.")
@click.option("--at-min-isr-partitions", is_flag=True, help="With --describe: only these.")
@click.option(
    "--topics-with-overrides",
    is_flag=True,
    help="With --describe: topics with own settings.",
)
@format_option("legacy")
def kafka_topics(**flags: Any) -> int:
    """Kafka's own topic tool, flag for flag."""
    if not flags["bootstrap"]:
        usage('Missing required argument "[bootstrap-server]"')
    asked = _asked(flags)
    check_command_config(flags["command_config"])
    try:
        with_client(flags["bootstrap"], partial(_ACTS[asked.action], asked))
    except (RaftlogError, _Failure) as error:
        message = error.text if isinstance(error, KafkaError) else str(error)
        if asked.form == "json":
            print(error_text(message, asked.topic or "", "", as_json=True), file=sys.stderr)
        else:
            print(f"Error while executing topic command : {message}")
        return FAILED_CODE
    return 0


def _asked(flags: dict[str, Any]) -> TopicsAsked:
    """Judge the flags as Kafka's tool does."""
    names = {"list_" if action == "list" else action: action for action in _ACTIONS}
    actions = [action for name, action in names.items() if flags[name]]
    if len(actions) != 1:
        usage(
            "Command must include exactly one action: "
            "--list, --describe, --create, --alter or --delete"
        )
    (action,) = actions
    topic, topic_id = flags["topic"], flags["topic_id"]
    if action in ("create", "alter", "delete") and not topic:
        usage('Missing required argument "[topic]"')
    if action == "alter" and flags["partitions"] is None:
        usage('Missing required argument "[partitions]"')
    if action == "alter" and flags["configs"]:
        usage("Option --config is not allowed with --alter: kafka-configs alters settings")
    raw_id = id_of_text(topic_id) if topic_id is not None else None
    if topic_id is not None and (action != "describe" or raw_id is None):
        usage("Option --topic-id takes a topic id and goes with --describe")
    assignment = _assignment(flags["replica_assignment"])
    if assignment and action == "create":
        for name in ("partitions", "replication_factor"):
            if flags[name] is not None:
                option = name.replace("_", "-")
                usage(f'Option "[replica-assignment]" can\'t be used with option "[{option}]"')
    filters = tuple(name for name in (*_FILTERS, "topics_with_overrides") if flags[name])
    if filters and action != "describe":
        usage(f"Option --{filters[0].replace('_', '-')} goes with --describe")
    if len(filters) > 1:
        usage("Only one of the filters of --describe can be used at a time")
    return TopicsAsked(
        action,
        topic,
        raw_id,
        flags["partitions"],
        flags["replication_factor"],
        assignment,
        _configs(flags["configs"]),
        flags["if_exists"],
        flags["if_not_exists"],
        flags["exclude_internal"],
        filters,
        flags["form"],
    )


_FILTERS = {
    "under_replicated_partitions": "under_replicated",
    "unavailable_partitions": "unavailable",
    "under_min_isr_partitions": "under_min_isr",
    "at_min_isr_partitions": "at_min_isr",
}


def _configs(pairs: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            usage(f"requirement failed: Invalid topic config: {pair!r} is not name=value")
        found[key.strip()] = value.strip()
    return found


def _assignment(text: str | None) -> tuple[tuple[int, ...], ...]:
    if text is None:
        return ()
    try:
        return tuple(
            tuple(int(node) for node in partition.split(":")) for partition in text.split(",")
        )
    except ValueError:
        usage(f"Option --replica-assignment: {text!r} is not like 1:2:3,2:3:1")


# --- actions --------------------------------------------------------------------------------------


async def _create(asked: TopicsAsked, client: Client) -> None:
    name = asked.topic or ""
    problem = topic_name_problem(name)
    if problem is not None:
        raise _Failure(problem)
    if asked.form == "text" and ("." in name or "_" in name):
        print(COLLISION_WARNING)
    topic = new_topic(
        name,
        asked.partitions if asked.partitions is not None else -1,
        asked.replication_factor if asked.replication_factor is not None else -1,
        configs=asked.configs,
        assignment=asked.assignment,
    )
    (result,) = await client.ask(create_topics([topic]))
    exists = result.error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    if exists and asked.if_not_exists:
        return
    if exists:
        raise _Failure(f"Topic '{name}' already exists.")
    result.check()
    if asked.form == "json":
        print_json({"created": {"name": name, "topic_id": id_text(result.topic_id)}})
    else:
        print(f"Created topic {name}.")
        if result.message:
            print(f"WARNING: {result.message}")


async def _matching(asked: TopicsAsked, client: Client) -> list[MetadataResponseTopic]:
    """The topics that --topic, --topic-id and --exclude-internal leave, sorted."""
    answer: MetadataResponse = await client.ask(metadata())
    found = [
        topic
        for topic in sorted(answer.topics, key=lambda each: each.name or "")
        if not (asked.exclude_internal and topic.is_internal)
    ]
    if asked.topic_id is not None:
        found = [topic for topic in found if topic.topic_id == asked.topic_id]
        if not found and not asked.if_exists:
            raise _Failure(f"TopicId '{id_text(asked.topic_id)}' does not exist as expected")
    elif asked.topic is not None:
        pattern = _pattern(asked.topic)
        found = [topic for topic in found if pattern.fullmatch(topic.name or "")]
        if not found and not asked.if_exists and asked.action != "list":
            raise _Failure(f"Topic '{asked.topic}' does not exist as expected")
    return found


def _pattern(text: str) -> re.Pattern[str]:
    """The pattern of Kafka's tool: a regular expression, with commas between several."""
    try:
        return re.compile(text.strip().replace(",", "|").strip("\"'"))
    except re.error as error:
        raise _Failure(f"{text} is an invalid regex: {error}") from None


async def _list(asked: TopicsAsked, client: Client) -> None:
    names = [topic.name for topic in await _matching(asked, client)]
    if asked.form == "json":
        print_json({"topics": names})
        return
    for name in names:
        print(name)


async def _describe(asked: TopicsAsked, client: Client) -> None:
    names = [topic.name or "" for topic in await _matching(asked, client)]
    described = await describe_topics(client, names) if names else []
    shown = [_filtered(asked, each) for each in described]
    if asked.form == "json":
        left = [each for each in shown if each.partitions or not asked.filters]
        print_json({"topics": [each.as_json() for each in left]})
        return
    for each in shown:
        _print_description(asked, each)


def _filtered(asked: TopicsAsked, topic: TopicDescription) -> TopicDescription:
    partitions: list[PartitionView] = list(topic.partitions)
    for name in asked.filters:
        if name == "topics_with_overrides":
            return topic if topic.overrides else topic._replace(partitions=())
        partitions = [each for each in partitions if getattr(each, _FILTERS[name])]
    return topic._replace(partitions=tuple(partitions))


def _print_description(asked: TopicsAsked, topic: TopicDescription) -> None:
    legacy = asked.form == "legacy"
    header = topic.legacy_header() if legacy else topic.header()
    if asked.filters == ("topics_with_overrides",):
        if topic.overrides:
            print(header)
        return
    if not asked.filters:
        print(header)
        for warning in topic.warnings:
            print(f"WARNING: topic {topic.name}: {warning}", file=sys.stderr)
    for partition in topic.partitions:
        print(partition.legacy_line() if legacy else partition.line())


async def _alter(asked: TopicsAsked, client: Client) -> None:
    assert asked.partitions is not None, asked
    for topic in await _matching(asked, client):
        name, before = topic.name or "", len(topic.partitions)
        if asked.partitions <= before:
            raise _Failure(
                f"The topic {name} currently has {before} partition(s); {asked.partitions} "
                "would not be an increase."
            )
        assignments = None
        if asked.assignment:
            assignments = {name: asked.assignment[before:]}
        results: list[TopicResult] = await client.ask(
            create_partitions({name: asked.partitions}, assignments=assignments)
        )
        for each in results:
            each.check()


async def _delete(asked: TopicsAsked, client: Client) -> None:
    names = [topic.name or "" for topic in await _matching(asked, client)]
    results: list[TopicResult] = await client.ask(delete_topics(names)) if names else []
    for each in results:
        each.check()


_ACTS = {
    "create": _create,
    "delete": _delete,
    "alter": _alter,
    "describe": _describe,
    "list": _list,
}
