"""Performs the write rounds of one data directory: all writes by position, then all syncs.

A round is a plain value that is taken step by step (`WriteRound`). The log thread of a process
takes one step after another. A simulated disk takes time for each, and power may fail between any
two of them.

Rules:
1. Only operations that a returned sync made durable are reported persisted. Writes of a group
   before a new file of its own are synced before that file exists under its name.
2. A failed or short write fails its group alone, in this round and all later ones, until the group
   was closed (and reopened through recovery). So no acknowledged entry ever follows a hole.
3. A failed sync, or any failure of the store, poisons the directory for good: the kernel may have
   dropped the pages and call them clean, so a retry that succeeds proves nothing.
4. A failed write or sync in a further log directory fails all groups that have files of this round
   there, and every later operation in it, until the next boot. The store, which holds the votes, is
   elsewhere, so the other directories go on. A full one fails groups one by one, as in rule 2.
"""

import enum
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, final

from raftlog.base.errors import DiskError, DiskFull, RaftlogError
from raftlog.base.ids import GroupId, IoId
from raftlog.base.limits import OPEN_FILES_MAX
from raftlog.base.ports import Disk, DiskFile
from raftlog.base.probes import probe
from raftlog.storage.directories.data_dir import read_identity
from raftlog.storage.directories.log_directories import DirectoryFailed, directory_of
from raftlog.storage.directories.store_file import StoreFiles
from raftlog.storage.files import parent_of, remove_if_there
from raftlog.storage.ops import AppendBytes, CloseGroup, CreateFile, StoreRecords, WriteOp
from raftlog.storage.replica import SEGMENT_SUFFIX, TEMPORARY_SUFFIX

SYNCFS_FROM: Final = 6
"""The number of dirty files from which one syncfs is cheaper than a sync of each (`scripts/bench`).
"""


class RoundResult(NamedTuple):
    """The end of a round.

    `poisoned`: nothing of it, or of any later round, is durable for sure. `failed`: the groups
    whose operations failed; everything else of the round is durable.
    """

    io_id: IoId
    poisoned: RaftlogError | None
    failed: dict[GroupId, RaftlogError]


@final
class StepKind(enum.Enum):
    """The kind of work that a step of a round asks of the disk."""

    WRITE = "write"
    SYNC_FILE = "sync of one file"
    SYNC_ALL = "sync of all files"
    RENAME = "rename"
    SYNC_DIRECTORY = "sync of a directory"


SYNCS: Final = (StepKind.SYNC_FILE, StepKind.SYNC_ALL, StepKind.SYNC_DIRECTORY)
"""Steps that wait for the disk."""


class _Step(NamedTuple):
    """One step of a round.

    `path` is None for the store, and for a sync of all files of the data directory; a further
    directory is named by its prefix. `op` is the operation that a write or a rename belongs to.
    """

    kind: StepKind
    path: str | None = None
    op: AppendBytes | CreateFile | None = None


_WRITE: Final = StepKind.WRITE
_SYNC_FILE: Final = StepKind.SYNC_FILE
_WRITE_STORE: Final = _Step(_WRITE)
_SYNC_STORE: Final = _Step(_SYNC_FILE)


class _OpenFile(NamedTuple):
    group: GroupId
    file: DiskFile


@final
class DirectoryWriter:
    """Writes one data directory, on one thread. Opening it begins a new store generation.

    `further`: prefix -> disk of the further log directories, which `disk` reaches as well.
    """

    def __init__(
        self,
        disk: Disk,
        *,
        syncfs_from: int = SYNCFS_FROM,
        further: Mapping[str, Disk] | None = None,
    ) -> None:
        self._disk = disk
        self._further = dict(further or {})
        self._lost: dict[str, DirectoryFailed] = {}
        """Further directories that failed in this boot."""
        self._syncfs_from = syncfs_from
        self._store = StoreFiles(disk, read_identity(disk).owner)
        self._store_dirty = False
        self._open: OrderedDict[str, _OpenFile] = OrderedDict()
        self._dirty: dict[str, GroupId] = {}
        self._failed: dict[GroupId, RaftlogError] = {}
        self._poison: RaftlogError | None = None

    def begin(self, io_id: IoId, ops: Sequence[WriteOp]) -> "WriteRound":
        """A new round, of which nothing is done yet. It must end before the next one begins."""
        return WriteRound(self, io_id, ops)

    def perform(
        self, io_id: IoId, ops: Sequence[WriteOp], on_written: Callable[[], None] | None = None
    ) -> RoundResult:
        """Write everything, call `on_written`, then sync. Never raises a DiskError."""
        steps = WriteRound(self, io_id, ops)
        while not steps.written and steps.result is None:
            steps.take()
        if steps.written and on_written is not None:
            on_written()
        while steps.result is None:
            steps.take()
        return steps.result

    def close(self) -> None:
        """Close all files; nothing is synced."""
        for held in self._open.values():
            held.file.close()
        self._open.clear()
        self._store.close()

    def _append(self, op: AppendBytes) -> None:
        held = self._open.get(op.path)
        if held is None:
            held = self._hold(op.group, op.path, self._disk.open(op.path))
        else:
            self._open.move_to_end(op.path)
        self._dirty[op.path] = op.group
        held.file.write_at(op.position, op.parts)

    def _dirty_of(self, group: GroupId) -> list[str]:
        """The group's files that were written and not synced."""
        return [path for path, owner in self._dirty.items() if owner == group]

    def _sync_file(self, path: str | None) -> None:
        if path is None:
            self._synced(self._store.sync)
            self._store_dirty = False
        else:
            self._synced(self._open[path].file.sync, directory_of(path))
            del self._dirty[path]

    def _sync_all(self, directory: str) -> None:
        disk = self._further[directory] if directory else self._disk
        self._synced(disk.sync_all, directory)
        for path in self._dirty_in(directory):
            del self._dirty[path]
        if not directory:
            self._store_dirty = False

    def _dirty_in(self, directory: str) -> list[str]:
        """Files of one log directory that were written and not synced."""
        return [path for path in self._dirty if directory_of(path) == directory]

    def _write_store(self, records: list[bytes]) -> None:
        """Append all records as one frame: only the last frame may ever be torn."""
        try:
            self._store.append(records)
        except DiskError as error:
            probe("store-write-failed")
            raise _PoisonedError(error, "") from error
        self._store_dirty = True

    def _syncs(self) -> list[_Step]:
        """The steps that sync everything written and not synced. Their order does not matter."""
        if not self._further:
            return self._syncs_of(None, list(self._dirty), self._store_dirty)
        steps = self._syncs_of(None, self._dirty_in(""), self._store_dirty)
        for directory in self._further:
            steps += self._syncs_of(directory, self._dirty_in(directory), False)
        return steps

    def _syncs_of(self, directory: str | None, paths: list[str], store: bool) -> list[_Step]:
        if len(paths) + store >= self._syncfs_from:
            return [_Step(StepKind.SYNC_ALL, directory)]
        steps = [_Step(_SYNC_FILE, path) for path in paths]
        if store:
            steps.append(_SYNC_STORE)
        return steps

    def _synced(self, sync: Callable[[], None], directory: str = "") -> None:
        """Run a sync; its failure poisons the directory."""
        try:
            sync()
        except DiskError as error:
            probe("directory-poisoned-by-failed-sync")
            raise _PoisonedError(error, directory) from error

    def _is_crowded(self, path: str) -> bool:
        """Whether one more open file would close one that is not synced.

        Files that this round has written are the last to be closed. So then all open files are of
        this round.
        """
        if path in self._open or len(self._open) < OPEN_FILES_MAX:
            return False
        return next(iter(self._open)) in self._dirty

    def _hold(self, group: GroupId, path: str, file: DiskFile) -> _OpenFile:
        """Keep the file open, and close the least recently used when there are too many.

        The closed ones are clean: see `_is_crowded`.
        """
        known = self._open.pop(path, None)
        if known is not None:
            known.file.close()
        held = self._open[path] = _OpenFile(group, file)
        while len(self._open) > OPEN_FILES_MAX:
            self._open.popitem(last=False)[1].file.close()
        return held

    def _close_files(self, group: GroupId) -> None:
        """Close the group's open files, which are all clean."""
        for path in [path for path, held in self._open.items() if held.group == group]:
            self._open.pop(path).file.close()


@final
class WriteRound:
    """One round on its way.

    `written`: everything is written, and only syncs are left. `result` is None until the round has
    ended. Where `choices` is more than one, the next step may be any of these syncs.
    """

    __slots__ = (
        "_creating", "_failed", "_io_id", "_op", "_ops", "_records", "_steps", "_writer",
        "result", "written",
    )  # fmt: skip

    def __init__(self, writer: DirectoryWriter, io_id: IoId, ops: Sequence[WriteOp]) -> None:
        self._writer = writer
        self._io_id = io_id
        self._ops = deque(ops)
        self._op: WriteOp | None = None
        """The operation that the next steps belong to, until they are all done."""
        self._steps: deque[_Step] = deque()
        self._records: list[bytes] = []
        self._creating: DiskFile | None = None
        """A new file that does not have its own name yet."""
        self._failed: dict[GroupId, RaftlogError] = {}
        self.written = False
        self.result: RoundResult | None = None
        if writer._poison is None:
            self._go_on()
        else:
            self.result = RoundResult(io_id, writer._poison, {})

    @property
    def next(self) -> StepKind | None:
        """The kind of the next step; None when the round has ended."""
        return self._steps[0].kind if self.result is None else None

    @property
    def choices(self) -> int:
        """The number of steps that may be the next one: all syncs at the end, in any order."""
        return len(self._steps) if self.written else 1

    def take(self, choice: int = 0) -> None:
        """Do the next step, or the chosen one of the `choices`. Never raises a DiskError."""
        if choice == 0:
            step = self._steps.popleft()
        else:
            step = self._steps[choice]
            del self._steps[choice]
        try:
            self._do(step)
        except _PoisonedError as poisoned:
            if poisoned.directory:
                self._lose(poisoned.directory, poisoned.cause)
            else:
                self._writer._poison = poisoned.cause
                self._forget_creation()
                self._steps.clear()
                self.result = RoundResult(self._io_id, poisoned.cause, {})
        if not self._steps:
            self._go_on()

    def _go_on(self) -> None:
        """Find the next step, or end the round."""
        while not self._steps and self.result is None:
            if self._op is not None:
                self._end_op(self._op)
                self._op = None
            elif self._ops:
                self._begin_op(self._ops.popleft())
            elif self._records:
                self._steps.append(_WRITE_STORE)
            elif not self.written:
                self.written = True
                self._steps.extend(self._writer._syncs())
            else:
                self.result = RoundResult(self._io_id, None, self._failed)

    def _begin_op(self, op: WriteOp) -> None:
        if isinstance(op, StoreRecords):
            self._records += op.records
            return
        writer = self._writer
        if isinstance(op, CloseGroup):
            self._sync_group(op.group)
            self._op = op
            return
        if op.group in writer._failed:
            self._failed[op.group] = writer._failed[op.group]
            return
        lost = writer._lost.get(directory_of(op.path)) if writer._lost else None
        if lost is not None:
            self._fail(op.group, lost)
            return
        if writer._is_crowded(op.path):
            # Each open file was written in this round and is dirty. One of them must be closed to
            # open another, so everything written so far is synced now, not at the round's end.
            probe("synced-within-a-round")
            self._steps.extend(writer._syncs())
        self._op = op
        if isinstance(op, AppendBytes):
            self._steps.append(_Step(_WRITE, op.path, op))
            return
        # See `CreateFile`: sync what the group wrote, then make the file under another name, sync,
        # rename, sync the directory.
        if not self._steps:
            self._sync_group(op.group)
        temporary = op.path + TEMPORARY_SUFFIX
        self._steps.append(_Step(StepKind.WRITE, temporary, op))
        self._steps.append(_Step(StepKind.SYNC_FILE, temporary, op))
        self._steps.append(_Step(StepKind.RENAME, temporary, op))
        self._steps.append(_Step(StepKind.SYNC_DIRECTORY, op.path))

    def _sync_group(self, group: GroupId) -> None:
        for path in self._writer._dirty_of(group):
            self._steps.append(_Step(StepKind.SYNC_FILE, path))

    def _do(self, step: _Step) -> None:
        kind, _, op = step
        try:
            if kind is _WRITE:
                self._write(op)
            elif kind is _SYNC_FILE:
                self._sync(step)
            elif kind is StepKind.RENAME:
                assert op is not None, step
                self._writer._disk.rename(op.path + TEMPORARY_SUFFIX, op.path)
            elif kind is StepKind.SYNC_DIRECTORY:
                assert step.path is not None, step
                self._sync_directory(parent_of(step.path))
            else:
                self._writer._sync_all(step.path or "")
        except DiskError as error:
            assert op is not None, step
            directory = directory_of(op.path)
            if directory and not isinstance(error, DiskFull):
                # Other replicas on this disk would each fail the same way, after an election. A
                # full disk is different: it takes writes again.
                raise _PoisonedError(error, directory) from error
            self._fail(op.group, error)
            if kind is StepKind.RENAME:
                # The rename may still have been done, and a reopened replica goes on in the
                # file that it finds. So the directory is synced before the round ends.
                self._steps.append(_Step(StepKind.SYNC_DIRECTORY, op.path))

    def _write(self, op: AppendBytes | CreateFile | None) -> None:
        writer = self._writer
        if op is None:
            records, self._records = self._records, []
            writer._write_store(records)
        elif isinstance(op, AppendBytes):
            writer._append(op)
        else:
            temporary = op.path + TEMPORARY_SUFFIX
            remove_if_there(writer._disk, temporary)
            self._creating = writer._disk.open(temporary, create=True)
            self._creating.write_at(0, [op.header])

    def _sync(self, step: _Step) -> None:
        if step.op is None:
            self._writer._sync_file(step.path)
        else:
            assert self._creating is not None, step
            assert step.path is not None, step
            self._writer._synced(self._creating.sync, directory_of(step.path))

    def _sync_directory(self, path: str) -> None:
        disk = self._writer._disk
        self._writer._synced(lambda: disk.sync_dir(path), directory_of(path))

    def _lose(self, directory: str, cause: RaftlogError) -> None:
        """Take note that a further directory failed.

        Its writes of this round count for nothing, and it takes no more. The rest of the round goes
        on.
        """
        probe("further-directory-lost")
        writer, op = self._writer, self._op
        error = writer._lost[directory] = DirectoryFailed(directory, cause)
        for path in writer._dirty_in(directory):
            group = writer._dirty.pop(path)
            writer._failed[group] = self._failed[group] = error
        if isinstance(op, AppendBytes | CreateFile) and directory_of(op.path) == directory:
            self._fail(op.group, error)
        else:
            elsewhere = (s for s in self._steps if directory_of(s.path or "") != directory)
            self._steps = deque(elsewhere)

    def _fail(self, group: GroupId, error: RaftlogError) -> None:
        """Fail a group: the rest of its operation is not done, nor any later one."""
        probe("write-failed-for-one-group")
        self._writer._failed[group] = self._failed[group] = error
        self._steps.clear()
        self._op = None
        self._forget_creation()

    def _forget_creation(self) -> None:
        if self._creating is not None:
            self._creating.close()
            self._creating = None

    def _end_op(self, op: WriteOp) -> None:
        """Finish an operation whose steps are all done."""
        writer = self._writer
        if isinstance(op, CloseGroup):
            writer._close_files(op.group)
            writer._failed.pop(op.group, None)
        elif isinstance(op, CreateFile) and op.path.endswith(SEGMENT_SUFFIX):
            assert self._creating is not None, op
            writer._close_files(op.group)  # they take no more entries, and may soon be removed
            writer._hold(op.group, op.path, self._creating)
            self._creating = None
        else:
            self._forget_creation()


@final
class _PoisonedError(Exception):
    """Carries the first failure to the end of the round."""

    def __init__(self, cause: RaftlogError, directory: str) -> None:
        super().__init__(str(cause))
        self.cause = cause
        self.directory = directory
