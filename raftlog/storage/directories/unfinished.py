"""A note in a data directory that work on several directories is unfinished: no broker starts.

Some work of `raftlog recover` changes the directories of several brokers, and a power failure may
end it between any two steps. A broker that started then would serve half of it. So the note lies in
every directory before the first change, says in every one that all is done, and only then goes.
"""

from collections.abc import Iterable
from typing import Final

from raftlog.base.errors import CorruptData, OperatingError
from raftlog.base.ports import Disk
from raftlog.storage.files import read_whole, remove_if_there, write_whole

UNFINISHED_FILE: Final = "raftlog.unfinished"
WORKING: Final = b"working\n"
DONE: Final = b"done\n"


def noted(disk: Disk) -> bytes:
    """The state in the note, WORKING or DONE; b"" without one."""
    if not disk.exists(UNFINISHED_FILE):
        return b""
    found = read_whole(disk, UNFINISHED_FILE, 64)
    if found not in (WORKING, DONE):
        raise CorruptData("the note of unfinished work says neither", on=UNFINISHED_FILE)
    return found


def note(disk: Disk, state: bytes) -> None:
    """Write the note, durably."""
    write_whole(disk, UNFINISHED_FILE, state)


def remove_notes(disks: Iterable[Disk]) -> None:
    """Remove the notes of all these directories, durably."""
    for disk in disks:
        if remove_if_there(disk, UNFINISHED_FILE):
            disk.sync_dir("")


def refuse_unfinished(disk: Disk) -> None:
    """Raise `OperatingError` when a note lies there."""
    if disk.exists(UNFINISHED_FILE):
        raise OperatingError(
            "work on this data directory was cut short",
            on=UNFINISHED_FILE,
            do="run the same raftlog recover --spent again, with the same directories",
        )
