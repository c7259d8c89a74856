"""Reads around sectors that cannot be read: a latent sector error is damage like any other.

A disk may answer every read of one sector with an error. That would keep a replica closed for good,
though its peers could repair it. Once reopening has failed a few times, recovery reads through a
`SalvagingDisk`: it gives an unreadable sector as zeros, which no checksum takes for content.

That is allowed only where invalid bytes are told from an unfinished write. These places are sectors
that begin before the durable mark of a segment file, and files that are rebuilt or kept twice.
Behind the mark zeros would look like a torn tail, so there the error stays an error.
"""

from collections.abc import Sequence
from typing import Final, final

from raftlog.base.binary import Buffer
from raftlog.base.errors import CorruptData, DiskError, DiskFull
from raftlog.base.ports import Disk, DiskFile
from raftlog.base.probes import probe
from raftlog.storage.replica import INDEX_SUFFIX, Mark, parse_segment_name

_SECTOR: Final = 512


@final
class SalvagingDisk:
    """A disk as the recovery of one replica should see it; `mark` is that replica's."""

    def __init__(self, disk: Disk, mark: Mark | None) -> None:
        self._disk = disk
        self._mark = mark

    def open(self, path: str, *, create: bool = False, write: bool = True) -> DiskFile:
        """See `Disk`."""
        file = self._disk.open(path, create=create, write=write)
        return _SalvagedFile(file, self._end_of(path, file), path)

    def _end_of(self, path: str, file: DiskFile) -> int:
        """The position before which unreadable bytes may be given as zeros."""
        name = parse_segment_name(path.rpartition("/")[2])
        if name is None:
            return file.size()
        sequence = name[1]
        if self._mark is None or sequence > self._mark.file_sequence:
            return 0
        return self._mark.end_position if sequence == self._mark.file_sequence else file.size()

    def list(self, path: str) -> list[str]:
        return self._disk.list(path)

    def exists(self, path: str) -> bool:
        """Whether the file exists; an index file counts as missing when the disk cannot tell."""
        try:
            return self._disk.exists(path)
        except DiskError:
            if not path.endswith(INDEX_SUFFIX):
                raise
            return False

    def make_dir(self, path: str) -> None:
        self._disk.make_dir(path)

    def rename(self, old: str, new: str) -> None:
        self._disk.rename(old, new)

    def remove(self, path: str) -> None:
        self._disk.remove(path)

    def sync_dir(self, path: str) -> None:
        self._disk.sync_dir(path)

    def sync_all(self) -> None:
        self._disk.sync_all()

    def free_bytes(self) -> int:
        return self._disk.free_bytes()

    def total_bytes(self) -> int:
        return self._disk.total_bytes()


@final
class _SalvagedFile:
    """A file of which some sectors may be unreadable, before `end`."""

    def __init__(self, file: DiskFile, end: int, on: str) -> None:
        self._file = file
        self._end = end
        self._on = on

    def read_at(self, position: int, size: int) -> bytes:
        """The bytes, with zeros for each sector before `end` that cannot be read."""
        try:
            return self._file.read_at(position, size)
        except (CorruptData, DiskFull):
            raise
        except DiskError:
            return self._pieces(position, min(position + size, self._file.size()))

    def _pieces(self, position: int, end: int) -> bytes:
        found = bytearray()
        while position < end:
            size = min(_SECTOR - position % _SECTOR, end - position)
            try:
                found += self._file.read_at(position, size)
            except DiskError:
                if position >= self._end:
                    raise
                probe("unreadable-sector-taken-as-damage")
                found += bytes(size)
            position += size
        return bytes(found)

    def write_at(self, position: int, parts: Sequence[Buffer]) -> None:
        self._file.write_at(position, parts)

    def truncate(self, size: int) -> None:
        self._file.truncate(size)

    def sync(self) -> None:
        self._file.sync()

    def size(self) -> int:
        return self._file.size()

    def close(self) -> None:
        self._file.close()
