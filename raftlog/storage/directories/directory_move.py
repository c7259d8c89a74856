"""Moves a replica between two log directories of its broker; a crash at any step loses nothing.

1. The broker stops the replica; its writer closes the files.
2. `copy_replica` makes the new directory, with a file named `moving` in it, and copies and syncs
   every file. Until the next step the old directory counts.
3. One frame of the store registers the replica under its new path, with its term, vote and mark
   (`StoreImage.relocate`). A frame is durable whole or not at all: this is the switch.
4. `end_move` deletes the old directory, then the file `moving`.

A crash leaves the replica in two directories. The registration says which counts. The file
`moving`, in either, says that the other is the remains of a move, which `settle_moves` deletes at
the next boot. Without that file nothing explains the second one, and the broker does not start.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from raftlog.base.errors import CorruptData, OperatingError
from raftlog.base.ports import Disk, DiskFile
from raftlog.base.probes import probe
from raftlog.base.units import MIB
from raftlog.storage.boot.recovery import delete_replica
from raftlog.storage.directories.log_directories import FurtherImage, directory_of, found_twice
from raftlog.storage.files import opened, parent_of, remove_if_there, write_whole
from raftlog.storage.replica import TEMPORARY_SUFFIX

MOVING_FILE: Final = "moving"
_COPY_BYTES: Final = 1 * MIB


def copy_replica(disk: Disk, old: str, new: str) -> int:
    """Job: copy a stopped replica, durably; returns the number of bytes.

    It first removes the remains of an earlier attempt at `new`. Raises `DiskError`. The old
    directory is never changed.
    """
    delete_replica(disk, new)
    disk.make_dir(new)
    # This comes before any other file: a copy without it could be taken for an operator's.
    write_whole(disk, f"{new}/{MOVING_FILE}", b"the rest of this directory is a copy in progress\n")
    groups = parent_of(new)
    disk.sync_dir(groups)
    disk.sync_dir(parent_of(groups))
    copied = 0
    for name in disk.list(old):
        if name != MOVING_FILE and not name.endswith(TEMPORARY_SUFFIX):
            copied += _copy_file(disk, f"{old}/{name}", f"{new}/{name}")
    disk.sync_dir(new)
    return copied


def _copy_file(disk: Disk, old: str, new: str) -> int:
    with opened(disk, old) as source, opened(disk, new, create=True, write=True) as target:
        size = source.size()
        _copy_bytes(source, target, size, old)
        target.sync()
    return size


def _copy_bytes(source: DiskFile, target: DiskFile, size: int, path: str) -> None:
    position = 0
    while position < size:
        piece = source.read_at(position, min(_COPY_BYTES, size - position))
        if not piece:
            raise CorruptData(f"the file ends at byte {position} of {size}", on=path)
        target.write_at(position, [piece])
        position += len(piece)


def end_move(disk: Disk, old: str, new: str) -> None:
    """Job: delete the directory `old`, once the replica is registered at `new`, durably."""
    delete_replica(disk, old)
    _unmark(disk, new)


def _unmark(disk: Disk, path: str) -> None:
    if remove_if_there(disk, f"{path}/{MOVING_FILE}"):
        disk.sync_dir(path)


def settle_moves(
    disk: Disk, registered: Sequence[str], directories: Sequence[FurtherImage]
) -> list[str]:
    """Finish or undo, at boot, the moves that a crash cut short; returns the deleted paths.

    `registered` are the paths of all registered replicas. Raises `OperatingError` for a replica
    that lies in two directories without a move; it names both.
    """
    deleted: list[str] = []
    broken = {each.prefix for each in directories if each.error is not None}
    for path, other in found_twice(_by_name(registered), directories):
        # A file under a temporary name was never synced under its own: a copy that just began.
        beside = [name for name in disk.list(other) if not name.endswith(TEMPORARY_SUFFIX)]
        registered_names = () if directory_of(path) in broken else disk.list(path)
        if beside and MOVING_FILE not in (*beside, *registered_names):
            raise OperatingError(
                "a replica lies in two log directories; it is registered in the first",
                on=f"{_shown(path, directories)} and {_shown(other, directories)}",
                do="move the second one away, and start the broker again",
            )
        probe("move-settled-at-boot")
        delete_replica(disk, other)
        deleted.append(other)
    held = {f"{each.prefix}/{name}" for each in directories for name in each.replicas}
    for path in registered:
        if f"{directory_of(path)}/{path.rpartition('/')[2]}" in held:
            _unmark(disk, path)
    return deleted


def _by_name(paths: Sequence[str]) -> Mapping[str, str]:
    return {path.rpartition("/")[2]: path for path in paths}


def _shown(path: str, directories: Sequence[FurtherImage]) -> str:
    prefix = directory_of(path)
    name = next((each.name for each in directories if each.prefix == prefix), prefix)
    return f"{name}/{path[len(prefix) + 1 :] if prefix else path}"
