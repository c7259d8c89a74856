"""Reads the folder of an export and checks it: length, checksum, version, then content.

The reader refuses:

* a folder without a manifest, which is no export, or without checksums, which was interrupted;
* a later version;
* a file whose bytes are not those that were written;
* a link or a FIFO in the place of a file;
* batches that a broker would refuse.
"""

import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, final

import attrs

from raftlog.base.amounts import amount
from raftlog.base.errors import CorruptData, OperatingError
from raftlog.base.limits import BATCH_BYTES_MAX, BATCH_HEADER_BYTES, EXPORT_MANIFEST_BYTES_MAX
from raftlog.embed.topic_files.manifest import (
    Manifest,
    PartitionPart,
    TopicPart,
    decoded,
    refuse_foreign,
)
from raftlog.embed.topic_files.plain import fault_of
from raftlog.records.batch import read_header
from raftlog.runtime.regular_files import NotRegular, open_regular

MANIFEST_FILE: Final = "manifest.json"
SUMS_FILE: Final = "SHA256SUMS"
TOPICS_FOLDER: Final = "topics"
_SUM_CHARS: Final = 64
_BETWEEN: Final = "  "

Advance = Callable[[int], None]
"""A function for progress: it is called with the number of bytes done since the last call."""


def ignore_progress(size: int) -> None:
    """An `Advance` for callers that show no progress."""
    del size


def batches_name(topic: str, partition: int) -> str:
    """The path of a partition's file inside the folder. Both arguments come from a checked
    manifest."""
    return f"{TOPICS_FOLDER}/{topic}/{partition}.batches"


def sums_text(sums: dict[str, str]) -> str:
    """The text of `SHA256SUMS`, in the format of sha256sum."""
    return "".join(f"{each}{_BETWEEN}{name}\n" for name, each in sums.items())


@final
@attrs.frozen
class Export:
    """A checked export."""

    folder: Path
    manifest: Manifest
    _sums: dict[str, str] = attrs.field(repr=False)

    @classmethod
    def open(cls, folder: Path, advance: Advance = ignore_progress) -> "Export":
        """Read and check a whole folder. `OperatingError` when it is no export, `FutureFormat` for
        a later version, `CorruptData` for a damaged export."""
        if not folder.is_dir():
            raise OperatingError("there is no such folder", on=str(folder))
        place = str(folder / MANIFEST_FILE)
        text = _small_file(folder, MANIFEST_FILE, "no topics were exported to this folder")
        refuse_foreign(text, place)
        sums = _sums_of(
            _small_file(folder, SUMS_FILE, "the export is not complete"), str(folder / SUMS_FILE)
        )
        if hashlib.sha256(text).hexdigest() != sums.get(MANIFEST_FILE):
            raise _damaged("it is not what its checksum says", place)
        manifest = decoded(text, place)
        export = cls(folder, manifest, sums)
        export._check(advance)
        return export

    def _check(self, advance: Advance) -> None:
        files = [
            batches_name(topic.name, number)
            for topic in self.manifest.topics
            for number in range(len(topic.partitions))
        ]
        if list(self._sums) != [MANIFEST_FILE, *files]:
            raise _damaged("its files are not those of the manifest", str(self.folder / SUMS_FILE))
        for topic in self.manifest.topics:
            for number in range(len(topic.partitions)):
                for batch in self._batches(topic, number, deep=True):
                    advance(len(batch))

    def batches(self, topic: TopicPart, partition: int) -> Iterator[bytes]:
        """Yield the batches of a partition in order, checked a second time. One is in memory at a
        time."""
        return self._batches(topic, partition, deep=False)

    def _batches(self, topic: TopicPart, partition: int, *, deep: bool) -> Iterator[bytes]:
        name = batches_name(topic.name, partition)
        place, part = str(self.folder / name), topic.partitions[partition]
        for above in (TOPICS_FOLDER, f"{TOPICS_FOLDER}/{topic.name}"):
            _refuse_link(self.folder / above)
        digest, left, records, offset = hashlib.sha256(), part.bytes, 0, part.start_offset
        with os.fdopen(_opened(place, "the file is not there"), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size != part.bytes:
                raise _damaged(f"it has {amount(size, 'byte')}, not {part.bytes}", place)
            while left:
                batch = _next_batch(file.read, left, place)
                header = read_header(batch)
                fault = fault_of(batch, deep=deep) or _misplaced(
                    header.base_offset, header.next_offset, offset, part
                )
                if fault is not None:
                    raise _damaged(f"the batch at byte {part.bytes - left} is bad: {fault}", place)
                digest.update(batch)
                left -= len(batch)
                records, offset = records + header.records_count, header.next_offset
                yield batch
        if digest.hexdigest() != self._sums[name]:
            raise _damaged("it is not what its checksum says", place)
        if records != part.records:
            raise _damaged(f"it has {amount(records, 'record')}, not {part.records}", place)


def _next_batch(read: Callable[[int], bytes], left: int, place: str) -> bytes:
    if left < BATCH_HEADER_BYTES:
        raise _damaged(f"{amount(left, 'byte')} at its end are no batch", place)
    head = read(BATCH_HEADER_BYTES)
    size = read_header(head).size if len(head) == BATCH_HEADER_BYTES else 0
    if not BATCH_HEADER_BYTES <= size <= min(left, BATCH_BYTES_MAX):
        raise _damaged(f"a batch says {amount(size, 'byte')}, {left} are left", place)
    batch = head + read(size - BATCH_HEADER_BYTES)
    if len(batch) != size:
        raise _damaged("it became shorter while it was read", place)
    return batch


def _misplaced(base: int, following: int, offset: int, part: PartitionPart) -> str | None:
    if base < offset or following > part.end_offset:
        return f"offsets {base} to {following - 1} where {offset} to {part.end_offset - 1} are due"
    return None


def _small_file(folder: Path, name: str, missing: str) -> bytes:
    place = str(folder / name)
    with os.fdopen(_opened(place, missing), "rb") as file:
        text = file.read(EXPORT_MANIFEST_BYTES_MAX + 1)
    if len(text) > EXPORT_MANIFEST_BYTES_MAX:
        raise _damaged(f"it is larger than {EXPORT_MANIFEST_BYTES_MAX} bytes", place)
    return text


def _opened(place: str, missing: str) -> int:
    try:
        return open_regular(place, os.O_RDONLY)
    except FileNotFoundError as error:
        raise OperatingError(
            f"{missing}: there is no {Path(place).name}", on=str(Path(place).parent)
        ) from error
    except NotRegular as error:
        raise OperatingError(f"{error}, and no regular file", on=place) from error
    except OSError as error:
        raise OperatingError(f"it cannot be read: {error.strerror}", on=place) from error


def _refuse_link(path: Path) -> None:
    """Refuse a link in the place of a folder: it would lead out of the export."""
    try:
        mode = os.lstat(path).st_mode
    except OSError as error:
        raise OperatingError(f"it cannot be read: {error.strerror}", on=str(path)) from error
    if not stat.S_ISDIR(mode):
        raise OperatingError("it is no folder", on=str(path))


def _sums_of(text: bytes, place: str) -> dict[str, str]:
    """Parse SHA256SUMS: name -> checksum, in the order of the file."""
    sums: dict[str, str] = {}
    for line in text.decode("ascii", "replace").splitlines():
        each, between, name = line.partition(_BETWEEN)
        if len(each) != _SUM_CHARS or not between or name in sums:
            raise _damaged("a line of it is no checksum and name", place)
        sums[name] = each
    return sums


def _damaged(what: str, place: str) -> CorruptData:
    return CorruptData(f"the export is damaged: {what}", on=place, do="export the topics again")
