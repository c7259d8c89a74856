"""Exports written without a cluster, for tests of what reads them."""

import hashlib
import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

from raftlog.base.checksum import crc32c
from raftlog.embed.topic_files.folder import batches_name, sums_text
from raftlog.embed.topic_files.manifest import FORMAT, VERSION
from raftlog.embed.topic_files.plain import at_offset
from raftlog.records.batch import CRC_FROM, read_header
from raftlog.records.builder import RecordBatchBuilder


def batch_of(*values: bytes | None, at: int = 0, codec: int = 0, **more) -> bytes:
    """A batch at an offset."""
    builder = RecordBatchBuilder(codec=codec, **more)
    for number, value in enumerate(values):
        builder.append(
            value, key=b"k%d" % number, timestamp_ms=1_000 + number, headers=[("h", b"x")]
        )
    return at_offset(builder.build(), at)


def with_crc(batch: bytearray) -> bytes:
    """The batch with the right checksum for what it holds now."""
    struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[CRC_FROM:]))
    return bytes(batch)


def part_of(data: bytes) -> dict[str, int]:
    """Returns the manifest's row for a partition whose file holds these batches."""
    at, records, first, end = 0, 0, None, 0
    while at < len(data):
        header = read_header(data, at)
        first = header.base_offset if first is None else first
        at, records, end = at + header.size, records + header.records_count, header.next_offset
    return {
        "start_offset": first or 0,
        "end_offset": end,
        "records": records,
        "bytes": len(data),
    }


def topic_of(name: str, *files: bytes, **more) -> dict[str, object]:
    return {
        "name": name,
        "replication_factor": 3,
        "settings": {},
        "partitions": [part_of(each) for each in files],
        **more,
    }


def write_export(
    folder: Path, topics: Mapping[str, Sequence[bytes]], manifest: object = None
) -> Path:
    """A whole export with right checksums, whatever its manifest says."""
    folder.mkdir()
    names: dict[str, bytes] = {}
    for topic, files in topics.items():
        for number, data in enumerate(files):
            path = folder / batches_name(topic, number)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            names[batches_name(topic, number)] = data
    if manifest is None:
        told = [topic_of(name, *files) for name, files in topics.items()]
        manifest = {"format": FORMAT, "version": VERSION, "topics": told}
    text = manifest if isinstance(manifest, bytes) else json.dumps(manifest).encode()
    (folder / "manifest.json").write_bytes(text)
    names = {"manifest.json": text, **names}
    sum_again(folder, names)
    return folder


def sum_again(folder: Path, names: Mapping[str, bytes]) -> None:
    """Write SHA256SUMS for what these files are now."""
    sums = {name: hashlib.sha256(data).hexdigest() for name, data in names.items()}
    (folder / "SHA256SUMS").write_text(sums_text(sums))
