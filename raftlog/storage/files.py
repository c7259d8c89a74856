"""Whole small files: read with a bound; written so that a crash leaves the old file or the new
one."""

from collections.abc import Iterable
from contextlib import suppress
from typing import final

from raftlog.base.binary import Buffer
from raftlog.base.errors import CorruptData, DiskError, DiskFull
from raftlog.base.ports import Disk, DiskFile
from raftlog.storage.replica import AWAY_SUFFIX, TEMPORARY_SUFFIX


@final
class _Opened:
    """What `opened` gives to `with`; by hand, for a boot opens hundreds."""

    __slots__ = ("_file",)

    def __init__(self, file: DiskFile) -> None:
        self._file = file

    def __enter__(self) -> DiskFile:
        return self._file

    def __exit__(self, *raised: object) -> None:
        self._file.close()


def opened(disk: Disk, path: str, *, create: bool = False, write: bool = False) -> _Opened:
    """For `with`: the open file, closed at the end whatever happens."""
    return _Opened(disk.open(path, create=create, write=write))


def read_whole(disk: Disk, path: str, bytes_max: int) -> bytes:
    """The bytes of a file; `CorruptData` when it is larger than anything we write there."""
    with opened(disk, path) as file:
        size = file.size()
        if size > bytes_max:
            raise CorruptData(f"file has {size} bytes, at most {bytes_max} are expected", on=path)
        return file.read_at(0, size)


def write_again(file: DiskFile, position: int, chunks: Iterable[Buffer]) -> None:
    """Write what was read from this position on once more, and sync it.

    A sync that failed before this boot may have left those bytes in the kernel's memory only: the
    kernel then calls them clean, and no later sync writes them. Written again they are dirty, and
    the sync that follows proves that they are on the disk.
    """
    for chunk in chunks:
        file.write_at(position, [chunk])
        position += len(chunk)
    file.sync()


def write_whole(disk: Disk, path: str, content: Buffer) -> None:
    """Write under another name, sync, rename, sync the directory: durable when this returns. What
    a full disk has no room for leaves nothing behind."""
    temporary = path + TEMPORARY_SUFFIX
    remove_if_there(disk, temporary)
    try:
        with opened(disk, temporary, create=True, write=True) as file:
            file.write_at(0, [content])
            file.sync()
    except DiskError:
        with suppress(DiskError):  # the first error is told
            remove_if_there(disk, temporary)
        raise
    named(disk, temporary, path)
    disk.sync_dir(parent_of(path))


def named(disk: Disk, old: str, new: str) -> None:
    """Rename. One that fails may have been done all the same: whoever reads the directory next must
    not build on a name that the next power failure takes away."""
    try:
        disk.rename(old, new)
    except DiskError:
        disk.sync_dir(parent_of(new))
        raise


def name_again(disk: Disk, path: str) -> None:
    """Give a file another name and then its own, so that the next `sync_dir` proves something. A
    name that is seen may be in the kernel's memory only, and be called clean: a sync that failed
    before dropped it from what is still to be written."""
    away = path + AWAY_SUFFIX
    disk.rename(path, away)
    named(disk, away, path)


def put_back(disk: Disk, path: str) -> None:
    """Undo a `name_again` that a crash, or a failing disk, cut short. Not synced: the file is
    durable under this name or its own, if it was before. Where both are there, a power failure has
    done half of a rename, and what has the name is what everything since was built on."""
    away = path + AWAY_SUFFIX
    if disk.exists(path):
        disk.remove(away)
    else:
        disk.rename(away, path)


def put_back_if_away(disk: Disk, path: str) -> None:
    """The same in the life that the disk failed in."""
    if disk.exists(path + AWAY_SUFFIX):
        put_back(disk, path)


def remove_if_there(disk: Disk, path: str) -> bool:
    """Remove a file that may be missing; whether it was there. Not synced."""
    if not disk.exists(path):
        return False
    disk.remove(path)
    return True


def parent_of(path: str) -> str:
    """The directory that holds a name; "" is the data directory itself."""
    return path.rpartition("/")[0]


def grown(file: DiskFile, wanted: int, needed: int) -> int:
    """The size of the file, which is grown when it is less than wanted. Where the disk has no room
    for that, it stays as it is, if what is needed fits: votes need no new space on a full disk, and
    the next generation tries again."""
    size = file.size()
    if size >= wanted:
        return size
    try:
        file.write_at(size, [bytes(wanted - size)])
    except DiskFull:
        file.truncate(size)
        if size < needed:
            raise
        return size
    return wanted
