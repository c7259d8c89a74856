"""How much room a data directory has: a job, for a file system may take its time to say."""

from typing import NamedTuple, final

from raftlog.base.ports import Disk


@final
class Space(NamedTuple):
    """Bytes of the file system that holds the directory."""

    total: int
    free: int


def look_at_space(disk: Disk) -> Space:
    """Ask the file system."""
    return Space(disk.total_bytes(), disk.free_bytes())
