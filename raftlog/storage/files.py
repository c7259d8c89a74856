"""Reads small files whole, within a bound, and writes them whole.

A crash in the middle of a write leaves the old file or the new one.
"""

from collections.abc import Iterable
from contextlib import suppress
from typing import final

from raftlog.base.binary import Buffer
from raftlog.base.errors import CorruptData, DiskError, DiskFull
from raftlog.base.ports import Disk, DiskFile
from raftlog.storage.replica import AWAY_SUFFIX, TEMPORARY_SUFFIX


@final
class _Opened:
    """The context manager of `opened`, written by hand for speed: a boot opens hundreds."""

    __slots__ = ("_file",)

    def __init__(self, file: DiskFile) -> None:
        self._file = file

    def __enter__(self) -> DiskFile:
        return self._file

    def __exit__(self, *raised: object) -> None:
        self._file.close()


def opened(disk: Disk, path: str, *, create: bool = False, write: bool = False) -> _Opened:
    """The open file, for `with`: it is closed at the end whatever happens."""
    return _Opened(disk.open(path, create=create, write=write))


def read_whole(disk: Disk, path: str, bytes_max: int) -> bytes:
    """The bytes of a file; `CorruptData` when it is larger than any file we write there."""
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
    """Write under another name, sync, rename, sync the directory: durable when this returns.

    A write that finds the disk full leaves no file behind.
    """
    temporary = path + TEMPORARY_SUFFIX
    remove_if_there(disk, temporary)
    try:
        with opened(disk, temporary, create=True, write=True) as file:
            file.write_at(0, [content])
            file.sync()
    except DiskError:
        with suppress(DiskError):  # the first error is the one that is raised
            remove_if_there(disk, temporary)
        raise
    named(disk, temporary, path)
    disk.sync_dir(parent_of(path))


def named(disk: Disk, old: str, new: str) -> None:
    """Rename a file.

    A rename that fails may still have been done. So the directory is synced: a later reader
    must not build on a name that the next power failure takes away.
    """
    try:
        disk.rename(old, new)
    except DiskError:
        disk.sync_dir(parent_of(new))
        raise


def name_again(disk: Disk, path: str) -> None:
    """Give a file another name and then its own, so that the next `sync_dir` proves something.

    A visible name may be in the kernel's memory only, called clean: a sync that failed before
    dropped it from what is still to be written.
    """
    away = path + AWAY_SUFFIX
    disk.rename(path, away)
    named(disk, away, path)


def put_back(disk: Disk, path: str) -> None:
    """Undo a `name_again` that a crash, or a failing disk, cut short.

    Nothing is synced: the file is durable under this name or its own, if it was before. Where both
    names exist, a power failure has done half of a rename. Then the file under its own name is the
    one that everything since was built on.
    """
    away = path + AWAY_SUFFIX
    if disk.exists(path):
        disk.remove(away)
    else:
        disk.rename(away, path)


def put_back_if_away(disk: Disk, path: str) -> None:
    """Undo a `name_again` if one was cut short, in the life in which the disk failed."""
    if disk.exists(path + AWAY_SUFFIX):
        put_back(disk, path)


def remove_if_there(disk: Disk, path: str) -> bool:
    """Remove a file that may be missing; returns whether it was there. Nothing is synced."""
    if not disk.exists(path):
        return False
    disk.remove(path)
    return True


def parent_of(path: str) -> str:
    """The directory that holds a name; "" is the data directory itself."""
    return path.rpartition("/")[0]


def grown(file: DiskFile, wanted: int, needed: int) -> int:
    """The size of the file, which is grown when it is less than wanted.

    Where the disk has no room for that, the file stays as it is, if `needed` bytes fit: votes need
    no new space on a full disk, and the next generation tries again.
    """
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
