"""Writes topics of a cluster into a new folder, through the Kafka protocol.

A partition is written up to the end that it had when the export began; later records are left out.
In a cluster with transactions only committed records are read. When the export fails, its folder is
removed. SHA256SUMS is written last, so a reader refuses a folder that a crash left behind.
"""

import hashlib
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, Final

from raftlog.base.amounts import amount
from raftlog.base.errors import OperatingError
from raftlog.base.ids import Offset
from raftlog.base.limits import EXPORT_PARTITIONS_MAX
from raftlog.base.units import MIB
from raftlog.client.core.asks import EARLIEST, LATEST, describe_configs, fetch, list_offsets
from raftlog.client.core.errors import KafkaError
from raftlog.client.core.values import TopicPartition
from raftlog.client.trio_driver import Client
from raftlog.embed.topic_files.folder import (
    MANIFEST_FILE,
    SUMS_FILE,
    Advance,
    batches_name,
    ignore_progress,
    sums_text,
)
from raftlog.embed.topic_files.manifest import Manifest, PartitionPart, TopicPart, encoded
from raftlog.embed.topic_files.plain import committed, plain_batch
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.messages.metadata import MetadataResponseTopic
from raftlog.metadata.rules.topic_names import RESERVED_TOPICS
from raftlog.records.batch import read_header

_FETCH_BYTES: Final = 4 * MIB
_FETCH_WAIT_MS: Final = 500
_EMPTY_FETCHES_MAX: Final = 20
"""How many fetches in a row may bring nothing before the end is reached. A change of leader causes
one or two."""


async def export_topics(
    client: Client, folder: Path, names: Sequence[str] = (), advance: Advance = ignore_progress
) -> Manifest:
    """Write these topics into a new `folder`; without names all topics except the brokers' internal
    ones. Raises `OperatingError` and the client's errors, and then removes the folder."""
    topics = await _topics(client, names)
    count = sum(len(topic.partitions) for topic in topics)
    if count > EXPORT_PARTITIONS_MAX:
        raise OperatingError(
            f"they have {amount(count, 'partition')}, at most {EXPORT_PARTITIONS_MAX} fit into one"
            " export",
            do="name fewer topics",
        )
    _make(folder)
    try:
        return await _write(client, folder, topics, advance)
    except BaseException as error:
        shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, OSError):
            raise _cannot_write(folder, error) from error
        raise


def _make(folder: Path) -> None:
    try:
        folder.mkdir()
    except FileExistsError as error:
        raise OperatingError(
            "it exists already", on=str(folder), do="name a new folder, or remove this one"
        ) from error
    except OSError as error:
        raise _cannot_write(folder, error) from error


def _cannot_write(folder: Path, error: OSError) -> OperatingError:
    return OperatingError(f"the export cannot be written: {error.strerror}", on=str(folder))


async def _topics(client: Client, names: Sequence[str]) -> list[MetadataResponseTopic]:
    for name in names:
        if name in RESERVED_TOPICS:
            raise OperatingError("it is written by brokers only", on=f"topic {name}")
    wanted = dict.fromkeys(names or await client.topics())
    return [await client.describe(name) for name in wanted if name not in RESERVED_TOPICS]


async def _write(
    client: Client, folder: Path, topics: Sequence[MetadataResponseTopic], advance: Advance
) -> Manifest:
    parts: list[TopicPart] = []
    sums: dict[str, str] = {}
    for topic in topics:
        name = topic.name or ""
        settings = (await client.ask(describe_configs([name])))[name]
        (folder / batches_name(name, 0)).parent.mkdir(parents=True)
        partitions: list[PartitionPart] = []
        for number in range(len(topic.partitions)):
            place = TopicPartition(name, number)
            path = folder / batches_name(name, number)
            with path.open("xb") as file:
                part, digest = await _write_partition(client, place, file, advance)
            partitions.append(part)
            sums[batches_name(name, number)] = digest
        parts.append(
            TopicPart(
                name=name,
                replication_factor=max(1, len(topic.partitions[0].replica_nodes)),
                settings={
                    each.name: each.value
                    for each in settings.values()
                    if each.overridden and not each.read_only and each.value is not None
                },
                partitions=partitions,
            )
        )
    manifest = Manifest(topics=parts)
    text = encoded(manifest)
    (folder / MANIFEST_FILE).write_bytes(text)
    sums = {MANIFEST_FILE: hashlib.sha256(text).hexdigest(), **sums}
    with (folder / SUMS_FILE).open("x", encoding="ascii") as listed:
        listed.write(sums_text(sums))
        listed.flush()
        os.fsync(listed.fileno())
    return manifest


async def _write_partition(
    client: Client, place: TopicPartition, file: BinaryIO, advance: Advance
) -> tuple[PartitionPart, str]:
    start = (await client.offset(place, EARLIEST)).offset
    end = (await client.ask(list_offsets(place, LATEST, committed=True))).offset
    digest, size, records, offset, empty = hashlib.sha256(), 0, 0, start, 0
    while offset < end:
        try:
            found = await client.ask(
                fetch(
                    place,
                    offset,
                    max_wait_ms=_FETCH_WAIT_MS,
                    max_bytes=_FETCH_BYTES,
                    committed=True,
                )
            )
        except KafkaError as error:
            if error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            raise OperatingError(
                f"offset {offset} was deleted while it was exported", on=str(place), do="try again"
            ) from error
        empty = 0 if found.batches else empty + 1
        if empty > _EMPTY_FETCHES_MAX:
            raise OperatingError(f"nothing comes from offset {offset} on", on=str(place))
        for batch in committed(found.batches, found.aborted):
            kept = plain_batch(batch, max(start, offset), end, str(place))
            if kept is None:
                continue
            file.write(kept)
            digest.update(kept)
            size += len(kept)
            records += read_header(kept).records_count
            advance(len(kept))
        offset = Offset(max(offset, found.next_offset))
    part = PartitionPart(start_offset=start, end_offset=end, records=records, bytes=size)
    return part, digest.hexdigest()
