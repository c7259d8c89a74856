"""Moves a replica between two log directories of its broker; a crash at any step loses nothing.

1. `begin_copy` makes the new directory, with a file named `moving` in it.
2. `copy_stretch` copies, and syncs, the next bytes of a segment while the replica serves. It may
   copy what is durable: a segment file grows, and no byte of it is ever written twice.
3. The broker stops the replica; its writer closes the files. `finish_copy` makes the new directory
   equal to the old one: it copies what is missing, and removes what went meanwhile. Then it puts a
   file `moving` into the old one, too. Until the next step the old directory counts.
4. One frame of the store registers the replica under its new path, with its term, vote and mark
   (`StoreImage.relocate`). A frame is durable whole or not at all: this is the switch.
5. `end_move` deletes the old directory, then the file `moving` in the new one.

Files may change while they are copied:

* Retention and truncation remove whole files, and `finish_copy` removes their copies. A name is
  never used twice, so a copy is never one of another file.
* A truncation into a segment leaves its bytes; a younger file's header says that they are void.
* A repair begins a new file. Only a boot of the replica shortens a file, behind what is durable.
* Index files, states before a segment and the `head` file may be written again. `finish_copy`
  compares them, byte for byte.

A crash leaves the replica in two directories. The registration says which counts. The file
`moving` in the other says that it is the remains of a move, which `settle_moves` deletes at the
next boot. So remains explain themselves, at whichever boot they are seen again: their disk may fail
for a while, or the replica may have moved on. Only a full disk may lack room for that file. Then
the one in the new directory explains the old one, and stays until a boot in which no directory
fails. Remains stay while the directory that counts has no segment: they are then the only copy.

A second directory may also be what a creation left that was cut short before the replica was
registered. Such a one has no record. Nothing explains any other, and the broker does not start.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeVar, final

import attrs

from raftlog.base.errors import CorruptData, DiskError, DiskFull, OperatingError
from raftlog.base.ids import RaftIndex
from raftlog.base.limits import SEGMENT_HEADER_BYTES
from raftlog.base.ports import Disk, DiskFile
from raftlog.base.probes import probe
from raftlog.base.units import MIB
from raftlog.storage.boot.recovery import delete_replica
from raftlog.storage.directories.log_directories import FurtherImage, directory_of, found_twice
from raftlog.storage.files import opened, parent_of, remove_if_there, write_whole
from raftlog.storage.replica import (
    AWAY_SUFFIX,
    MOVING_FILE,
    SEGMENT_SUFFIX,
    TEMPORARY_SUFFIX,
    segment_name,
)

ResultT = TypeVar("ResultT")
_COPY_BYTES: Final = 1 * MIB
_CREATED_FILE: Final = segment_name(RaftIndex(1), 1)
"""The only file of a replica that was just created."""


@final
class StretchToCopy(NamedTuple):
    """The next bytes of a segment, from `position` on, `bytes_max` at most. With `beside` the
    segment is closed: once it is copied whole, so are these files beside it, as far as they are
    there."""

    old: str
    new: str
    name: str
    position: int
    bytes_max: int
    beside: tuple[str, ...] = ()


@final
class StretchCopied(NamedTuple):
    """So many bytes were copied, durably. `whole`: to the end of the file, as it was then."""

    byte_count: int
    whole: bool


def begin_copy(disk: Disk, new: str) -> None:
    """Job: make the directory of the copy, durably; files of an earlier attempt go first. Raises
    `DiskError`."""
    delete_replica(disk, new)
    disk.make_dir(new)
    # This comes before any other file: a copy without it could be taken for an operator's.
    write_whole(disk, f"{new}/{MOVING_FILE}", b"the rest of this directory is a copy in progress\n")
    groups = parent_of(new)
    disk.sync_dir(groups)
    disk.sync_dir(parent_of(groups))


def copy_stretch(disk: Disk, order: StretchToCopy) -> StretchCopied | None:
    """Job: copy a stretch of a segment, durably; None when the segment was removed meanwhile.
    Raises `DiskError`, or `CorruptData` when the copy is not what was copied before."""
    old = f"{order.old}/{order.name}"
    if not disk.exists(old):
        return None
    with opened(disk, old) as source:
        size = source.size()
        end = min(size, order.position + order.bytes_max)
        _extend(disk, source, f"{order.new}/{order.name}", order.position, end)
    whole = end == size
    for name in order.beside if whole else ():
        if disk.exists(f"{order.old}/{name}"):
            _copy_file(disk, f"{order.old}/{name}", f"{order.new}/{name}")
    return StretchCopied(end - order.position, whole)


def finish_copy(disk: Disk, old: str, new: str, copied: tuple[tuple[str, int], ...]) -> int:
    """Job: make the copy of a replica that is stopped equal to it, durably; how many bytes it has.

    `copied` names the segments of which so many bytes were copied before. All other files are
    compared, and copied where they differ. The old directory gets its file `moving` last. Raises
    `DiskError`, or `CorruptData`; no other file of the old directory is ever changed.
    """
    known = dict(copied)
    wanted = [
        name
        for name in disk.list(old)
        if name != MOVING_FILE and not name.endswith(TEMPORARY_SUFFIX)
    ]
    _remove_others(disk, new, wanted)
    total = 0
    for name in wanted:
        copy = _copy_file if name not in known else partial(_copy_rest, position=known[name])
        total += copy(disk, f"{old}/{name}", f"{new}/{name}")
    disk.sync_dir(new)
    _mark_old(disk, old)
    return total


def _mark_old(disk: Disk, old: str) -> None:
    """Say in the old directory what it is once the store names the new one."""
    try:
        write_whole(disk, f"{old}/{MOVING_FILE}", b"these are the remains of a move\n")
    except DiskFull:  # a replica may well move because its disk is full
        probe("no-room-to-mark-the-old-directory")


def _remove_others(disk: Disk, new: str, wanted: Sequence[str]) -> None:
    """Remove the copies of files that the replica does not have any more."""
    for name in disk.list(new):
        if name != MOVING_FILE and name not in wanted:
            probe("copy-of-a-removed-file-goes")
            disk.remove(f"{new}/{name}")


def _copy_rest(disk: Disk, old: str, new: str, position: int) -> int:
    with opened(disk, old) as source:
        size = source.size()
        _extend(disk, source, new, position, size)
    return size


def _extend(disk: Disk, source: DiskFile, new: str, position: int, end: int) -> None:
    """Copy the bytes from `position` to `end` behind those that the copy has, and sync it."""
    if position == 0:
        remove_if_there(disk, new)
    with opened(disk, new, create=position == 0, write=True) as target:
        if target.size() != position or end < position:
            what = f"{target.size()} bytes lie in a copy of {position}, the segment has {end}"
            raise CorruptData(what, on=new)
        if position == 0 or position < end:
            _copy_bytes(source, target, position, end, new)
            target.sync()


def _copy_file(disk: Disk, old: str, new: str) -> int:
    """Copy a whole file, unless its copy has the same bytes."""
    with opened(disk, old) as source:
        size = source.size()
        if not _is_same(disk, source, size, new):
            _extend(disk, source, new, 0, size)
    return size


def _is_same(disk: Disk, source: DiskFile, size: int, new: str) -> bool:
    if not disk.exists(new):
        return False
    with opened(disk, new) as target:
        return target.size() == size and all(
            source.read_at(at, _COPY_BYTES) == target.read_at(at, _COPY_BYTES)
            for at in range(0, size, _COPY_BYTES)
        )


def _copy_bytes(source: DiskFile, target: DiskFile, position: int, end: int, path: str) -> None:
    while position < end:
        piece = source.read_at(position, min(_COPY_BYTES, end - position))
        if not piece:
            raise CorruptData(f"the file ends at byte {position} of {end}", on=path)
        target.write_at(position, [piece])
        position += len(piece)


def end_move(disk: Disk, old: str, new: str) -> None:
    """Job: delete the directory `old`, once the replica is registered at `new`, durably."""
    delete_replica(disk, old)
    _unmark(disk, new)


def _unmark(disk: Disk, path: str) -> None:
    if remove_if_there(disk, f"{path}/{MOVING_FILE}"):
        disk.sync_dir(path)


@final
class SettledMoves(NamedTuple):
    """The deleted paths, and the directories with the errors that they have now."""

    deleted: list[str]
    directories: list[FurtherImage]


def settle_moves(
    disk: Disk, registered: Sequence[str], directories: Sequence[FurtherImage]
) -> SettledMoves:
    """Finish or undo, at boot, the moves and creations that a crash cut short.

    `registered` are the paths of all registered replicas. Remains of a replica are left to a later
    boot while the directory that counts fails, or `log.dirs` does not name it. They also stay while
    no segment lies at the registered path: they may be all that is left of the replica. A further
    directory that fails meanwhile gets its error, and the broker starts without it.

    Raises `OperatingError` for a replica that lies in two directories without a reason; it names
    both. Raises `DiskError` when the data directory fails.
    """
    settling = _Settling(disk, directories)
    for path, other in found_twice(_by_name(registered), directories):
        settling.settle(path, other)
    settling.unmark(registered)
    failed = settling.failed
    images = [
        attrs.evolve(each, error=failed[each.prefix]) if each.prefix in failed else each
        for each in directories
    ]
    return SettledMoves(settling.deleted, images)


@final
@attrs.define(eq=False)
class _Settling:
    """One boot's work on remains. `failed`: further directories that fail while it is done."""

    disk: Disk
    directories: Sequence[FurtherImage]
    deleted: list[str] = attrs.Factory(list)
    failed: dict[str, DiskError] = attrs.Factory(dict)

    def settle(self, path: str, other: str) -> None:
        """Delete what lies at `other`, if something explains it; the replica counts at `path`."""
        if not self._is_usable(path) or not self._is_usable(other):
            probe("remains-wait-for-a-directory")
            return
        counted = self._tried(path, self.disk.list)
        names = self._tried(other, self.disk.list)
        if counted is None or names is None:
            return
        if MOVING_FILE not in names and MOVING_FILE not in counted:
            has_no_record = self._tried(other, partial(_has_no_record, self.disk, names=names))
            if has_no_record is None:
                return
            if not has_no_record:
                raise self._found_twice(path, other)
            probe("creation-settled-at-boot")
        elif not any(_is_segment(name) for name in counted):
            probe("remains-outlive-the-replica")
            return
        else:
            probe("move-settled-at-boot")
        self._tried(other, partial(delete_replica, self.disk))
        if directory_of(other) not in self.failed:
            self.deleted.append(other)

    def unmark(self, registered: Sequence[str]) -> None:
        """Remove `moving` from the directories that count, once no remains are left that it
        explains."""
        held = {f"{each.prefix}/{name}" for each in self.directories for name in each.replicas}
        for path in registered:
            if self.failed or any(each.error is not None for each in self.directories):
                return
            if f"{directory_of(path)}/{path.rpartition('/')[2]}" in held:
                self._tried(path, partial(_unmark, self.disk))

    def _is_usable(self, path: str) -> bool:
        prefix = directory_of(path)
        named = (each for each in self.directories if each.prefix == prefix)
        return prefix not in self.failed and any(each.error is None for each in named)

    def _tried(self, path: str, job: Callable[[str], ResultT]) -> ResultT | None:
        """The value of the job on that path; None when its further directory fails."""
        prefix = directory_of(path)
        try:
            return job(path)
        except DiskError as error:
            if not prefix:
                raise
            probe("directory-failed-while-it-was-settled")
            self.failed[prefix] = error
            return None

    def _found_twice(self, path: str, other: str) -> OperatingError:
        return OperatingError(
            "a replica lies in two log directories; it is registered in the first",
            on=f"{self._shown(path)} and {self._shown(other)}",
            do="move the second one away, and start the broker again",
        )

    def _shown(self, path: str) -> str:
        prefix = directory_of(path)
        name = next((each.name for each in self.directories if each.prefix == prefix), prefix)
        return f"{name}/{path[len(prefix) + 1 :] if prefix else path}"


def _is_segment(name: str) -> bool:
    return name.removesuffix(AWAY_SUFFIX).endswith(SEGMENT_SUFFIX)


def _has_no_record(disk: Disk, path: str, names: Sequence[str]) -> bool:
    """Whether nothing lies there but a log, or a copy, that just began.

    No replica ran on it. A file under a temporary name was never synced under its own.
    """
    files = [name for name in names if not name.endswith(TEMPORARY_SUFFIX)]
    if files != [_CREATED_FILE]:
        return not files
    with opened(disk, f"{path}/{_CREATED_FILE}") as file:
        return file.size() <= SEGMENT_HEADER_BYTES


def _by_name(paths: Sequence[str]) -> Mapping[str, str]:
    return {path.rpartition("/")[2]: path for path in paths}
