"""`manifest.json` of an export: its topics, their settings, and the content of each partition's
file.

    {"format": "raftlog-topics", "version": 1, "topics": [{
      "name": "orders", "replication_factor": 3, "settings": {"retention.ms": "-1"},
      "partitions": [{"start_offset": 0, "end_offset": 2, "records": 2, "bytes": 160}]}]}

`start_offset` and `end_offset` are those of the log when it was exported: the file's batches lie
between them. A reader accepts only this version, only known fields, and only numbers within the
limits of a cluster.
"""

from typing import Annotated, Final, final

import msgspec

from raftlog.base.amounts import amount
from raftlog.base.errors import CorruptData, FutureFormat, OperatingError
from raftlog.base.limits import (
    CONFIGS_PER_TOPIC_MAX,
    EXPORT_PARTITIONS_MAX,
    INT64_MAX,
    PARTITIONS_PER_TOPIC_MAX,
)
from raftlog.metadata.rules.topic_names import RESERVED_TOPICS, topic_name_problem

FORMAT: Final = "raftlog-topics"
VERSION: Final = 1

_Amount = Annotated[int, msgspec.Meta(ge=0, le=INT64_MAX)]
_Settings = Annotated[dict[str, str], msgspec.Meta(max_length=CONFIGS_PER_TOPIC_MAX)]


@final
class PartitionPart(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """The numbers that describe a partition's file."""

    start_offset: _Amount
    end_offset: _Amount
    records: _Amount
    bytes: _Amount

    @property
    def keeps_offsets(self) -> bool:
        """Whether records keep their offsets in a new cluster, which counts from 0."""
        return self.start_offset == 0 and self.records == self.end_offset


_Partitions = Annotated[
    list[PartitionPart], msgspec.Meta(min_length=1, max_length=PARTITIONS_PER_TOPIC_MAX)
]


@final
class TopicPart(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """A topic with its own settings, without defaults."""

    name: str
    replication_factor: Annotated[int, msgspec.Meta(ge=1, le=2**15 - 1)]
    settings: _Settings
    partitions: _Partitions

    @property
    def records(self) -> int:
        return sum(each.records for each in self.partitions)

    @property
    def bytes(self) -> int:
        return sum(each.bytes for each in self.partitions)


@final
class Manifest(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """The content of manifest.json."""

    format: str = FORMAT
    version: int = VERSION
    topics: list[TopicPart]

    @property
    def bytes(self) -> int:
        """The bytes of all batches together."""
        return sum(each.bytes for each in self.topics)


@final
class _Head(msgspec.Struct, frozen=True):
    """The fields that every version has."""

    format: str = ""
    version: int = 0


def encoded(manifest: Manifest) -> bytes:
    """Encode a manifest to the bytes of its file."""
    return msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n"


def refuse_foreign(text: bytes, on: str) -> None:
    """Raise `OperatingError` for the manifest of another format, and `FutureFormat` for that of a
    later release."""
    try:
        head = msgspec.json.decode(text, type=_Head)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise OperatingError(f"it is no manifest of exported topics: {error}", on=on) from error
    if head.format != FORMAT:
        raise OperatingError(
            f"it is no manifest of exported topics: its format is {head.format[:60]!r}", on=on
        )
    if head.version > VERSION:
        raise FutureFormat(
            f"the export is of version {head.version}; this release reads version {VERSION}",
            on=on,
            do="import it with the release that wrote it, or a later one",
        )


def decoded(text: bytes, on: str) -> Manifest:
    """Decode a manifest; `CorruptData` for one that no release with this version writes."""
    try:
        manifest = msgspec.json.decode(text, type=Manifest)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise CorruptData(f"the manifest is wrong: {error}", on=on) from error
    problem = _problem(manifest)
    if problem is not None:
        raise CorruptData(f"the manifest is wrong: {problem}", on=on)
    return manifest


def _problem(manifest: Manifest) -> str | None:
    if manifest.version != VERSION:
        return f"there is no version {manifest.version}"
    seen: dict[str, None] = {}
    for topic in manifest.topics:
        problem = topic_name_problem(topic.name)
        if problem is not None:
            return f"{topic.name[:60]!a}: {problem}"
        if topic.name in RESERVED_TOPICS:
            return f"{topic.name} is written by brokers only"
        if topic.name in seen:
            return f"topic {topic.name} stands twice"
        seen[topic.name] = None
        for number, each in enumerate(topic.partitions):
            if each.records > each.end_offset - each.start_offset:
                return f"{topic.name}-{number} has more records than offsets"
    count = sum(len(topic.partitions) for topic in manifest.topics)
    if count > EXPORT_PARTITIONS_MAX:
        return f"it has {amount(count, 'partition')}, at most {EXPORT_PARTITIONS_MAX} allowed"
    return None
