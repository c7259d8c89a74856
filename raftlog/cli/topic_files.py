"""`raftlog topics export` and `raftlog topics import`: topics as a folder of files."""

from pathlib import Path
from typing import Any

import click

from raftlog.base.amounts import amount
from raftlog.cli.connect import with_client
from raftlog.cli.output.render import bootstrap_option, format_option, print_json, progress
from raftlog.embed.topic_files.exporting import export_topics
from raftlog.embed.topic_files.folder import Export
from raftlog.embed.topic_files.importing import import_topics
from raftlog.embed.topic_files.manifest import TopicPart

_CONTEXT: dict[str, Any] = {"max_content_width": 100}


def _dir_argument() -> click.Argument:
    return click.Argument(["directory"], type=click.Path(path_type=Path), metavar="DIR")


@click.command(
    "export",
    epilog="Example: raftlog topics export tests/orders-topics orders payments",
    context_settings=_CONTEXT,
)
@click.argument("names", nargs=-1, metavar="[TOPIC...]")
@bootstrap_option()
@format_option()
def export_command(directory: Path, names: tuple[str, ...], bootstrap: str, form: str) -> None:
    """Write topics, or all of them, with settings and records, into the new folder DIR.

    DIR must not exist. Each partition is written up to its present end. Committed offsets of
    groups and the cluster's identity stay behind. `raftlog topics import` makes the topics in
    another cluster; `raftlog up --from DIR` and `Cluster(fixture=DIR)` begin with them.
    """
    with progress("exporting bytes", None) as advance:
        manifest = with_client(
            bootstrap, lambda client: export_topics(client, directory, names, advance)
        )
    if form == "json":
        topics = [_as_json(each) for each in manifest.topics]
        print_json({"directory": str(directory), "exported": topics})
        return
    for each in manifest.topics:
        print(f"exported {_told(each)}")
    if not manifest.topics:
        print("there is no topic to export")


@click.command(
    "import", epilog="Example: raftlog topics import tests/orders-topics", context_settings=_CONTEXT
)
@bootstrap_option()
@format_option()
def import_command(directory: Path, bootstrap: str, form: str) -> None:
    """Make the topics of DIR, which `raftlog topics export` wrote, with settings and records.

    A damaged folder, one of a later release, and a topic that exists already are refused before
    anything is made. When the import fails, the topics that it made are deleted. A topic gets at
    most as many replicas as there are brokers. Offsets stay what they were in a partition that
    began at 0 and had no gap; in others they are counted from 0, and the output says so.
    """
    with progress("checking bytes", None) as advance:
        export = Export.open(directory, advance)
    with progress("importing", export.manifest.bytes) as advance:
        topics = with_client(bootstrap, lambda client: import_topics(client, export, advance))
    if form == "json":
        print_json(
            {
                "directory": str(directory),
                "imported": [
                    {**_as_json(each), "renumbered": _renumbered(each)} for each in topics
                ],
            }
        )
        return
    for each in topics:
        print(f"imported {_told(each)}")
        for number in _renumbered(each):
            print(f"warning: offsets of {each.name}-{number} are counted from 0")


for _command in (export_command, import_command):
    _command.params.insert(0, _dir_argument())


def _as_json(topic: TopicPart) -> dict[str, Any]:
    return {
        "name": topic.name,
        "partition_count": len(topic.partitions),
        "records": topic.records,
        "bytes": topic.bytes,
    }


def _told(topic: TopicPart) -> str:
    partitions = amount(len(topic.partitions), "partition")
    return f"topic {topic.name}: {partitions}, {amount(topic.records, 'record')}"


def _renumbered(topic: TopicPart) -> list[int]:
    """The partitions whose records have other offsets than before."""
    return [
        number
        for number, each in enumerate(topic.partitions)
        if each.records and not each.keeps_offsets
    ]
