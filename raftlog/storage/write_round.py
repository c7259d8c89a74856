"""Performs the write rounds of one data directory: all groups positionally, then one round of
syncs.

Rules:
1. What is reported persisted was synced by a call that returned; what a group wrote before a new
file
   of its own is synced before that file exists under its name.
2. A failed or short write fails its group alone, in this round and all later ones, until the group
was
   closed (and reopened through recovery): no hole is ever followed by an acknowledged entry.
3. A failed sync, or any failure of the store, poisons the directory for good: the kernel may have
   dropped the pages and call them clean, so a retry that succeeds proves nothing.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, final

from raftlog.base.errors import DiskError, RaftlogError
from raftlog.base.ids import GroupId, IoId
from raftlog.base.limits import OPEN_FILES_MAX
from raftlog.base.ports import Disk, DiskFile
from raftlog.base.probes import probe
from raftlog.storage.data_dir import read_identity
from raftlog.storage.files import parent_of, remove_if_there
from raftlog.storage.ops import AppendBytes, CloseGroup, CreateFile, StoreRecords, WriteOp
from raftlog.storage.replica import SEGMENT_SUFFIX, TEMPORARY_SUFFIX
from raftlog.storage.store_file import StoreFiles

SYNCFS_FROM: Final = 6
"""Dirty files from which one syncfs is cheaper than a sync of each (PERF.md; `scripts/bench`)."""


class RoundResult(NamedTuple):
    """How a round ended. `poisoned`: nothing of it, or of any later round, is durable for sure.
    `failed`: these groups' operations; everything else of the round is durable."""

    io_id: IoId
    poisoned: RaftlogError | None
    failed: dict[GroupId, RaftlogError]


class _OpenFile(NamedTuple):
    group: GroupId
    file: DiskFile


@final
class DirectoryWriter:
    """One per data directory, used by one thread. Opening it begins a new store generation."""

    def __init__(self, disk: Disk, *, syncfs_from: int = SYNCFS_FROM) -> None:
        self._disk = disk
        self._syncfs_from = syncfs_from
        self._store = StoreFiles(disk, read_identity(disk).owner)
        self._store_dirty = False
        self._open: OrderedDict[str, _OpenFile] = OrderedDict()
        self._dirty: dict[str, GroupId] = {}
        self._failed: dict[GroupId, RaftlogError] = {}
        self._poison: RaftlogError | None = None

    def perform(
        self, io_id: IoId, ops: Sequence[WriteOp], on_written: Callable[[], None] | None = None
    ) -> RoundResult:
        """Write everything, call `on_written`, then sync. Never raises a DiskError."""
        failed: dict[GroupId, RaftlogError] = {}
        records: list[bytes] = []
        try:
            self._check_poison()
            for op in ops:
                if isinstance(op, StoreRecords):
                    records += op.records
                else:
                    self._perform(op, failed)
            if records:
                self._write_store(records)
            if on_written is not None:
                on_written()
            self._sync_all()
        except _PoisonedError as poisoned:
            self._poison = poisoned.cause
            return RoundResult(io_id, poisoned.cause, {})
        return RoundResult(io_id, None, failed)

    def close(self) -> None:
        """Close all files; nothing is synced."""
        for held in self._open.values():
            held.file.close()
        self._open.clear()
        self._store.close()

    def _check_poison(self) -> None:
        if self._poison is not None:
            raise _PoisonedError(self._poison)

    def _perform(
        self, op: CreateFile | AppendBytes | CloseGroup, failed: dict[GroupId, RaftlogError]
    ) -> None:
        if isinstance(op, CloseGroup):
            self._close_group(op.group)
            return
        if op.group in self._failed:
            failed[op.group] = self._failed[op.group]
            return
        try:
            if isinstance(op, AppendBytes):
                self._append(op)
            else:
                self._create(op)
        except DiskError as error:
            probe("write-failed-for-one-group")
            self._failed[op.group] = failed[op.group] = error

    def _append(self, op: AppendBytes) -> None:
        held = self._open.get(op.path)
        if held is None:
            held = self._hold(op.group, op.path, self._disk.open(op.path))
        else:
            self._open.move_to_end(op.path)
        self._dirty[op.path] = op.group
        held.file.write_at(op.position, op.parts)

    def _create(self, op: CreateFile) -> None:
        """See `CreateFile`: sync what the group wrote, then make the file under another name, sync,
        rename, sync the directory."""
        self._sync_group(op.group)
        temporary = op.path + TEMPORARY_SUFFIX
        remove_if_there(self._disk, temporary)
        file = self._disk.open(temporary, create=True)
        try:
            file.write_at(0, [op.header])
            self._synced(file.sync)
            self._rename(temporary, op.path)
            self._synced(lambda: self._disk.sync_dir(parent_of(op.path)))
        except BaseException:
            file.close()
            raise
        if op.path.endswith(SEGMENT_SUFFIX):
            self._close_files(op.group)  # they take no more entries, and may soon be removed
            self._hold(op.group, op.path, file)
        else:
            file.close()

    def _rename(self, old: str, new: str) -> None:
        """One that fails may have been done all the same, and a replica that is reopened goes on
        in the file that it finds."""
        try:
            self._disk.rename(old, new)
        except DiskError:
            self._synced(lambda: self._disk.sync_dir(parent_of(new)))
            raise

    def _sync_group(self, group: GroupId) -> None:
        for path in [path for path, owner in self._dirty.items() if owner == group]:
            self._synced(self._open[path].file.sync)
            del self._dirty[path]

    def _write_store(self, records: list[bytes]) -> None:
        """One frame a round: only the last frame may ever be torn."""
        try:
            self._store.append(records)
        except DiskError as error:
            probe("store-write-failed")
            raise _PoisonedError(error) from error
        self._store_dirty = True

    def _sync_all(self) -> None:
        """Everything written and not synced."""
        count = len(self._dirty) + self._store_dirty
        if count >= self._syncfs_from:
            self._synced(self._disk.sync_all)
        else:
            for path in self._dirty:
                self._synced(self._open[path].file.sync)
            if self._store_dirty:
                self._synced(self._store.sync)
        self._dirty.clear()
        self._store_dirty = False

    def _synced(self, sync: Callable[[], None]) -> None:
        """Run a sync; its failure poisons the directory."""
        try:
            sync()
        except DiskError as error:
            probe("directory-poisoned-by-failed-sync")
            raise _PoisonedError(error) from error

    def _hold(self, group: GroupId, path: str, file: DiskFile) -> _OpenFile:
        """Keep the file open; the least recently used go when there are too many. What this round
        has written is behind all others: when such a file is the next to go, all that the round
        wrote so far is synced now, and not at its end."""
        known = self._open.pop(path, None)
        if known is not None:
            known.file.close()
        held = self._open[path] = _OpenFile(group, file)
        while len(self._open) > OPEN_FILES_MAX:
            oldest = next(iter(self._open))
            if oldest in self._dirty:
                probe("synced-within-a-round")
                self._sync_all()
            self._open.pop(oldest).file.close()
        return held

    def _close_group(self, group: GroupId) -> None:
        self._sync_group(group)
        self._close_files(group)
        self._failed.pop(group, None)

    def _close_files(self, group: GroupId) -> None:
        """The group's open files, all clean."""
        for path in [path for path, held in self._open.items() if held.group == group]:
            self._open.pop(path).file.close()


@final
class _PoisonedError(Exception):
    """Carries the first failure to the end of the round."""

    def __init__(self, cause: RaftlogError) -> None:
        super().__init__(str(cause))
        self.cause = cause
