"""Asks how much room the log directories have: a job, since a file system may take its time."""

from typing import NamedTuple, final

from raftlog.base.errors import DiskError
from raftlog.base.ports import Disk
from raftlog.storage.directories.log_directories import LogDirectories


@final
class Space(NamedTuple):
    """The bytes of the file system that holds a directory."""

    total: int
    free: int


def look_at_space(disk: Disk) -> Space:
    """Job: ask the file system of the data directory."""
    return Space(disk.total_bytes(), disk.free_bytes())


def look_at_spaces(disk: Disk, prefixes: tuple[str, ...]) -> dict[str, Space | DiskError]:
    """Job: ask the file systems of these log directories; "" is the data directory."""
    found: dict[str, Space | DiskError] = {}
    for prefix in prefixes:
        try:
            one = disk.disk_of(prefix) if isinstance(disk, LogDirectories) else disk
            found[prefix] = look_at_space(one)
        except DiskError as error:
            found[prefix] = error
    return found
