"""`raftlog topics`: create, list, describe, alter, delete, export, import."""

import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

import click

from raftlog.base.amounts import amount
from raftlog.base.errors import OperatingError
from raftlog.cli.connect import with_client
from raftlog.cli.output.partition_ends import with_ends
from raftlog.cli.output.render import (
    DONE_CODE,
    FAILED_CODE,
    bootstrap_option,
    format_option,
    print_json,
)
from raftlog.cli.output.topic_view import TopicDescription, describe_topics, id_text
from raftlog.cli.settings import parse_settings
from raftlog.cli.topic_files import export_command, import_command
from raftlog.client.core.asks import (
    create_partitions,
    create_topics,
    delete_topics,
    metadata,
    new_topic,
)
from raftlog.client.core.results import TopicResult
from raftlog.client.trio_driver import Client
from raftlog.kafka.error_codes import ErrorCode, error_name
from raftlog.metadata.rules.topic_names import topic_name_problem

_CONTEXT: dict[str, Any] = {"max_content_width": 100}


@click.group(
    epilog="Example: raftlog topics create orders --partitions 6 --replication-factor 3",
    context_settings=_CONTEXT,
)
def topics() -> None:
    """Create, list, describe, alter, delete, export and import topics."""


topics.add_command(export_command)
topics.add_command(import_command)


@topics.command(
    epilog="""\b
Example:
  raftlog topics create orders --partitions 6 --replication-factor 3 \\
      --config min.insync.replicas=2""",
    context_settings=_CONTEXT,
)
@click.argument("names", nargs=-1, required=True, metavar="TOPIC...")
@click.option(
    "--partitions",
    type=click.IntRange(1),
    help="How many; the brokers' default (num.partitions) if left out.",
)
@click.option(
    "--replication-factor",
    type=click.IntRange(1),
    help="How many copies; the brokers' default if left out.",
)
@click.option(
    "--config", "configs", multiple=True, metavar="KEY=VALUE", help="A setting of the topic."
)
@click.option("--if-not-exists", is_flag=True, help="Leave topics alone that are there.")
@bootstrap_option()
@format_option()
def create(
    names: tuple[str, ...],
    partitions: int | None,
    replication_factor: int | None,
    configs: tuple[str, ...],
    if_not_exists: bool,
    bootstrap: str,
    form: str,
) -> int:
    """Create topics."""
    _refuse_bad_names(names)
    settings = parse_settings(configs, "--config")
    wanted = [
        new_topic(name, partitions or -1, replication_factor or -1, configs=settings)
        for name in names
    ]
    results: list[TopicResult] = with_client(
        bootstrap, lambda client: client.ask(create_topics(wanted))
    )
    made = [each for each in results if each.error_code == ErrorCode.NONE]
    refused = [
        each
        for each in results
        if each.error_code != ErrorCode.NONE
        and not (if_not_exists and each.error_code == ErrorCode.TOPIC_ALREADY_EXISTS)
    ]
    if form == "json":
        return _print_outcome({"created": [_created(each) for each in made]}, made, refused)
    for each in made:
        print(f"created topic {each.name}")
        if each.message:
            print(f"warning: {each.message}")
    for each in refused:
        each.check()
    return DONE_CODE


def _print_outcome(
    document: dict[str, Any], done: Sequence[object], refused: Sequence[TopicResult]
) -> int:
    """Print one document: what was done, and what was refused.

    Where nothing was done, that is the error of the first, on standard error like every other
    error.
    """
    if refused and not done:
        refused[0].check()
    if refused:
        document["refused"] = [
            {"name": each.name, "error": error_name(each.error_code), "message": each.message}
            for each in refused
        ]
    print_json(document)
    return FAILED_CODE if refused else DONE_CODE


def _created(each: TopicResult) -> dict[str, Any]:
    return {
        "name": each.name,
        "topic_id": id_text(each.topic_id),
        "partition_count": each.partitions,
        "replication_factor": each.replication_factor,
        "warning": each.message or None,
    }


@topics.command(
    "list", epilog="Example: raftlog topics list --exclude-internal", context_settings=_CONTEXT
)
@click.option("--exclude-internal", is_flag=True, help="Leave out topics like __consumer_offsets.")
@bootstrap_option()
@format_option()
def list_command(exclude_internal: bool, bootstrap: str, form: str) -> None:
    """List topics, one name per line, sorted."""
    answer = with_client(bootstrap, lambda client: client.ask(metadata()))
    found = sorted(
        topic.name or "" for topic in answer.topics if not (exclude_internal and topic.is_internal)
    )
    if form == "json":
        print_json({"topics": found})
    else:
        for name in found:
            print(name)


@topics.command(epilog="Example: raftlog topics describe orders", context_settings=_CONTEXT)
@click.argument("names", nargs=-1, metavar="[TOPIC...]")
@bootstrap_option()
@format_option("legacy")
def describe(names: tuple[str, ...], bootstrap: str, form: str) -> None:
    """Describe topics, or all: leader, replicas and in-sync replicas of each partition.

    The text is Kafka's, and behind it the offsets at which each partition starts and ends, and
    how many records lie between. `raftlog log-dirs` tells sizes in bytes. The offsets of a
    partition whose leader does not answer within 2 s are shown as `-` (`null` in JSON). `--format
    legacy` is the layout of older releases, without offsets.
    """
    wanted = list(names) or None
    described: list[TopicDescription] = with_client(
        bootstrap, partial(_describe, wanted, with_offsets=form != "legacy")
    )
    if form == "json":
        print_json({"topics": [each.as_json_with_ends() for each in described]})
        return
    for each in described:
        print(each.legacy_header() if form == "legacy" else each.header())
        for warning in each.warnings:
            # Programs read Kafka's layout on stdout, so the warning goes beside it.
            print(f"warning: topic {each.name}: {warning}", file=sys.stderr)
        for partition in each.partitions:
            print(partition.legacy_line() if form == "legacy" else partition.line_with_ends())


async def _describe(
    names: Sequence[str] | None, client: Client, *, with_offsets: bool
) -> list[TopicDescription]:
    described = await describe_topics(client, names)
    return await with_ends(client, described) if with_offsets else described


@topics.command(
    epilog="Example: raftlog topics alter orders --partitions 12", context_settings=_CONTEXT
)
@click.argument("name", metavar="TOPIC")
@click.option(
    "--partitions",
    type=click.IntRange(1),
    required=True,
    help="The new number, larger than the present one.",
)
@bootstrap_option()
@format_option()
def alter(name: str, partitions: int, bootstrap: str, form: str) -> None:
    """Give a topic more partitions. Keys may then map to other partitions than before."""
    results: list[TopicResult] = with_client(
        bootstrap, lambda client: client.ask(create_partitions({name: partitions}))
    )
    for each in results:
        each.check()
    if form == "json":
        print_json({"altered": {"name": name, "partition_count": partitions}})
    else:
        print(f"topic {name} has {amount(partitions, 'partition')} now")


@topics.command(epilog="Example: raftlog topics delete orders", context_settings=_CONTEXT)
@click.argument("names", nargs=-1, required=True, metavar="TOPIC...")
@click.option("--if-exists", is_flag=True, help="It is no error when a topic is not there.")
@bootstrap_option()
@format_option()
def delete(names: tuple[str, ...], if_exists: bool, bootstrap: str, form: str) -> int:
    """Delete topics with all their records."""
    results: list[TopicResult] = with_client(bootstrap, partial(_delete, names))
    gone = [each.name for each in results if each.error_code == ErrorCode.NONE]
    refused = [
        each
        for each in results
        if each.error_code != ErrorCode.NONE
        and not (if_exists and each.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    ]
    if form == "json":
        return _print_outcome({"deleted": gone}, gone, refused)
    for name in gone:
        print(f"deleted topic {name}")
    for each in refused:
        each.check()
    return DONE_CODE


async def _delete(names: Sequence[str], client: Client) -> list[TopicResult]:
    results: list[TopicResult] = await client.ask(delete_topics(names))
    return results


def _refuse_bad_names(names: Sequence[str]) -> None:
    for name in names:
        problem = topic_name_problem(name)
        if problem is not None:
            raise OperatingError(problem, on=f"topic {name}")
