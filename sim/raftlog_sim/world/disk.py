"""A disk in memory that loses, tears and rots what a real one may: the Disk port of the simulator.

Written bytes are pending until `sync`. A name that was made, renamed or removed is pending until
its directory is synced. A crash keeps, drops or tears every pending sector, and keeps or drops
every pending name, each on its own. The methods in the second half inject faults.

Assumptions about a medium, each with a test. (1) A sector of 512 bytes, in some runs of 4 KiB, that
was synced stays as it is until it is written again or rots. (2) `sync` makes exactly this file's
bytes and size durable, not its name. (3) After a failed `sync`, `sync_dir` or `sync_all` pages and
names are clean and gone, so that a retry succeeds and proves nothing. (4) A rename is atomic, and
lost or kept as a whole. Short reads and writes end at the port, which goes on with the rest
(`raftlog.runtime.real_ports`).

Which fault each kind of file must survive (tests/storage has one scenario per row):

    segment            torn tail, lost tail; damage below the mark is told from it
    segment header     one bad copy; a lost creation leaves the old file
    sparse index       anything: it is rebuilt
    store              torn last frame, one bad sector anywhere, its first 4 KiB
    producer snapshot  anything, while an older one and the entries after it are there
    image snapshot     as a producer snapshot; the head's is data
    staged install     a crash at every call: the old state or the new one, whole
    format file        one bad copy; an unfinished format does not count
"""

import enum
from collections.abc import Callable, Sequence
from typing import final

from raftlog.base.binary import Buffer
from raftlog.base.errors import DiskError, DiskFull
from raftlog.base.ports import DiskFile, Entropy
from raftlog_sim.world.disk_errors import DiskErrors
from raftlog_sim.world.disk_names import Names, parent_of
from raftlog_sim.world.inode import SECTOR, Inode, resize, sectors_of


@final
class SimulatedCrashError(BaseException):
    """The machine stops at this call; only the code that asked for the stop may catch it."""


@final
class Keep(enum.Enum):
    """How a crash treats pending sectors and names."""

    ALL = "all"
    NONE = "none"
    SOME = "some"


@final
class SimulatedDisk:
    """The disk of one machine. `mutations` counts the calls that change something. The call with
    the number `crash_at` (from 1) raises `SimulatedCrashError` before it does anything, or in the
    middle of a write when `crash_tears` is set. A crash keeps or drops pending bytes in units of
    `tear_bytes`, a multiple of a sector. `removed` lists removed files until it is emptied."""

    def __init__(self, entropy: Entropy, tear_bytes: int = SECTOR) -> None:
        assert tear_bytes % SECTOR == 0, tear_bytes
        self._entropy = entropy
        self.tear_bytes = tear_bytes
        self._names = Names()
        self._errors = DiskErrors()
        self._misdirected: dict[str, tuple[str, int]] = {}
        self.mutations = 0
        self.removed: list[str] = []
        self.crash_at: int | None = None
        self.crash_tears = False
        self.on_write: Callable[[], None] | None = None
        """Called once, after the next write."""
        self._room: int | None = None
        self.lying_sync = False
        self.mounts: list[str] = []
        """Directories that act as separate disks (`more_disks`)."""

    # --- the port ---------------------------------------------------------------------------------

    def open(self, path: str, *, create: bool = False, write: bool = True) -> DiskFile:
        """See `raftlog.base.ports.Disk`."""
        self._errors.check("open", path)
        if create:
            self.mutate("create", path)
            self._make(path)
        inode = self._names.seen.get(path)
        if inode is None:
            raise DiskError("no such file", on=path)
        return SimulatedFile(self, path, inode, write)

    def _make(self, path: str) -> None:
        if path in self._names.seen:
            raise DiskError("the file exists", on=path)
        if parent_of(path) not in self._names.directories:
            raise DiskError("no such directory", on=path)
        inode = self._names.seen[path] = Inode()
        self._names.change(None, path, inode)
        self.check_late("create", path)

    def list(self, path: str) -> list[str]:
        """Returns the names in a directory, sorted."""
        self._errors.check("list", path)
        prefix = f"{path}/" if path else ""
        inside = [
            name.removeprefix(prefix)
            for name in (*self._names.seen, *self._names.directories)
            if name and name.startswith(prefix)
        ]
        return sorted([name for name in inside if "/" not in name])

    def exists(self, path: str) -> bool:
        self._errors.check("exists", path)
        return path in self._names.seen or path in self._names.directories

    def make_dir(self, path: str) -> None:
        """Create the directory and its missing parents."""
        parts = path.split("/")
        for depth in range(1, len(parts) + 1):
            name = "/".join(parts[:depth])
            if name not in self._names.directories:
                self.mutate("make_dir", name)
                self._names.make_directory(name)

    def rename(self, old: str, new: str) -> None:
        """Rename a file atomically; a file that has the new name is replaced."""
        self.mutate("rename", new)
        inode = self._names.seen.pop(old, None)
        if inode is None:
            raise DiskError("no such file", on=old)
        self._names.seen[new] = inode
        self._names.change(old, new, inode)
        self.check_late("rename", new)

    def remove(self, path: str) -> None:
        """Remove a file or an empty directory."""
        self.mutate("remove", path)
        if path in self._names.directories:
            if self.list(path):
                raise DiskError("the directory is not empty", on=path)
            self._names.remove_directory(path)
            return
        if self._names.seen.pop(path, None) is None:
            raise DiskError("no such file", on=path)
        self.removed.append(path)
        self._names.change(path, None, None)
        self.check_late("remove", path)

    def sync_dir(self, path: str) -> None:
        """Make the names of one directory durable; a failure leaves them clean and lost."""
        try:
            self.mutate("sync_dir", path)
        except DiskError:
            self._names.lose(path)
            raise
        if not self.lying_sync:
            self._names.sync(path)

    def mount(self, root: str) -> None:
        """Make a directory that acts as another disk, which `sync_all` syncs separately."""
        self.mounts = [*(each for each in self.mounts if each != root), root]
        self._names.mount(root)

    def sync_all(self, root: str = "") -> None:
        """Make everything durable that lies on the disk mounted at `root`; after a failure all of
        that is clean and lost."""
        inodes, here = self._names.on_disk(root, self.mounts)
        try:
            self.mutate("sync_all", f"{root}/" if root else "")
        except DiskError:
            for inode in inodes:
                inode.lose_pending()
            self._names.lose_all(here)
            raise
        if self.lying_sync:
            return
        for inode in inodes:
            inode.sync()
        self._names.sync_all(here)

    @property
    def free(self) -> int | None:
        """How many more bytes the files may take in all; None for no bound. Removed, cut, replaced
        and lost bytes give room at once, even while a process holds the file open."""
        return None if self._room is None else max(0, self._room - self._used())

    @free.setter
    def free(self, value: int | None) -> None:
        self._room = None if value is None else self._used() + value

    def _used(self) -> int:
        return sum([len(inode.seen) for inode in self._names.seen.values()])

    def free_bytes(self) -> int:
        return (1 << 40) if self.free is None else self.free

    def total_bytes(self) -> int:
        return self.free_bytes() + self._used()

    def has_pending(self) -> bool:
        """Whether a power failure may lose or tear bytes of a file that has a durable name."""
        return any(inode.dirty or inode.size_dirty for inode in self._names.durable.values())

    # --- crashes ----------------------------------------------------------------------------------

    def crash(self, keep: Keep = Keep.SOME, draws: Entropy | None = None) -> None:
        """Lose power: a boot finds the durable bytes and names, and the part of the pending ones
        that `keep` says, drawn from `draws` or the disk's own entropy. Files that were open before
        the crash must not be used after it."""
        own, self._entropy = self._entropy, draws or self._entropy
        self._crash(keep)
        self._entropy = own

    def _crash(self, keep: Keep) -> None:
        self._names.crash(lambda: self._keeps(keep))
        for inode in self._names.durable.values():
            self._settle(inode, keep)
        self.crash_at = None

    def _settle(self, inode: Inode, keep: Keep) -> None:
        """Decide about each pending sector of a file."""
        durable = inode.durable
        if inode.size_dirty and self._keeps(keep):
            inode.promote_size()
        unit = self.tear_bytes
        for sector in sectors_of(inode.dirty, unit):
            start, end = sector * unit, min((sector + 1) * unit, len(inode.seen))
            if start >= end or not self._keeps(keep):
                continue
            if keep is Keep.SOME and self._entropy.below(4) == 0:
                end = start + self._entropy.below(end - start + 1)
            if len(durable) < end:
                resize(durable, end)
            inode.promote(start, end)
        inode.crash()

    def _keeps(self, keep: Keep) -> bool:
        return keep is Keep.ALL or (keep is Keep.SOME and self._entropy.below(2) == 0)

    # --- faults -----------------------------------------------------------------------------------

    def fail(
        self,
        operation: str,
        path_part: str = "",
        *,
        error: type[DiskError] = DiskError,
        skip: int = 0,
        count: int = 1,
        late: bool = False,
    ) -> None:
        """Let calls of `operation` (open, create, read, write, truncate, sync, sync_dir, sync_all,
        rename, remove, list, exists) on paths that contain `path_part` fail: after `skip` good
        ones, `count` times. With `late` (create, write, truncate, rename, remove of a file) the
        disk does what the call says before it fails."""
        self._errors.ask(operation, path_part, error, skip, count, late)

    def forget_faults(self, path_part: str = "") -> None:
        """Withdraw the failures that `fail` asked for and that have not come yet: all of them, or
        those with this path part. Rot and bad sectors stay."""
        self._errors.forget(path_part)
        if not path_part:
            self._misdirected.clear()

    def flip_bit(self, path: str, position: int, bit: int = 0) -> None:
        """Flip a bit at rest, in the seen and in the durable bytes."""
        inode = self._names.seen[path]
        inode.hurt = True
        for content in (inode.seen, inode.durable):
            if position < len(content):
                content[position] ^= 1 << bit

    def overwrite(self, path: str, position: int, content: bytes) -> None:
        """Put foreign bytes into a file at rest, as a misdirected write or a restored chunk."""
        inode = self._names.seen[path]
        inode.hurt = True
        for target in (inode.seen, inode.durable):
            target[position : position + len(content)] = content

    def misdirect(self, path: str, start: int, end: int, to_path: str, position: int) -> None:
        """Play a write to `path` that the medium put elsewhere: the bytes from `start` to `end` are
        zeros again, and the written content lies in `to_path`, up to the end of that file."""
        content = self.content(path)[start:end]
        self.overwrite(path, start, bytes(end - start))
        room = len(self.content(to_path)) - position
        self.overwrite(to_path, position, content[:room])

    def shorten(self, path: str, size: int) -> None:
        """Cut a file short at rest."""
        self._names.seen[path].shorten(size)

    def vanish(self, path: str) -> None:
        """Lose a file, durably."""
        del self._names.seen[path]
        self._names.durable.pop(path, None)

    def make_unreadable(self, path: str, position: int) -> None:
        """Let reads of this sector fail until it is written again, or cut off, durably."""
        self._names.seen[path].rot(position)

    def misdirect_next_write(self, path: str, to_path: str, position: int) -> None:
        """Let the next write to `path` land in `to_path` and report success."""
        self._misdirected[path] = (to_path, position)

    def content(self, path: str) -> bytes:
        """Returns the bytes of a file as a process sees them now."""
        return bytes(self._names.seen[path].seen)

    def is_hurt(self, path: str) -> bool:
        """Whether the file was ever damaged at rest; False when there is no such file."""
        inode = self._names.seen.get(path)
        return inode is not None and inode.hurt

    def is_unreadable(self, path: str, position: int, size: int) -> bool:
        """Whether a read of these bytes fails because of damage at rest."""
        inode = self._names.seen.get(path)
        return inode is not None and inode.unreadable_in(position, size) is not None

    def durable_to(self, path: str) -> int:
        """Returns how many of a file's first bytes survive, as now seen, a crash that keeps nothing
        pending; 0 when the file's name would be lost too."""
        inode = self._names.seen.get(path)
        if inode is None or self._names.durable_inode(path) is not inode:
            return 0
        end = min(len(inode.seen), len(inode.durable))
        for start, _ in inode.dirty:
            end = min(end, start)
        if inode.sync_failed and inode.seen[:end] != inode.durable[:end]:
            pairs = zip(inode.seen, inode.durable, strict=False)
            return next(place for place, (one, other) in enumerate(pairs) if one != other)
        return end

    def durable_copy(self, paths: tuple[str, ...] | None = None) -> "SimulatedDisk":
        """Returns the disk that a boot would find after a crash that keeps nothing pending. This
        disk stays as it is. Without `paths` all files are copied. With `paths` the result has only
        these files and borrows their bytes: it is good for reading now."""
        found, names = SimulatedDisk(self._entropy, self.tear_bytes), self._names
        found.mounts = list(self.mounts)
        found._names.directories = dict(names.durable_directories)
        for name in names.durable if paths is None else paths:
            inode = names.durable_inode(name)
            if inode is not None:
                copy = inode.durable if paths else bytearray(inode.durable)
                seen = copy if paths else bytearray(copy)
                found._names.seen[name] = Inode(copy, seen, hurt=inode.hurt)
        found._names.durable_directories = dict(found._names.directories)
        found._names.durable = dict(found._names.seen)
        return found

    def for_reading(self) -> "SimulatedDisk":
        """Returns a disk with the same files, as a process sees them, where no call fails. It
        borrows their bytes: it is good for reading now."""
        found = SimulatedDisk(self._entropy, self.tear_bytes)
        found._names.seen, found._names.directories = self._names.seen, self._names.directories
        return found

    def durable_content(self, path: str) -> bytes | None:
        """Returns the bytes that a crash would leave of a file if it kept nothing pending; None
        when the name would be lost too."""
        inode = self._names.durable.get(path)
        return None if inode is None else bytes(inode.durable)

    def paths(self) -> tuple[str, ...]:
        """Returns the paths of all files, sorted."""
        return tuple(sorted(self._names.seen))

    # --- for files --------------------------------------------------------------------------------

    def mutate(self, operation: str, path: str) -> None:
        """Count a changing call; stop the machine or fail when a test asked for that."""
        self.mutations += 1
        if self.crash_at is not None and self.mutations >= self.crash_at and operation != "write":
            raise SimulatedCrashError(f"{operation} {path}")
        self._errors.check(operation, path)

    def crashes_in_write(self) -> bool:
        return self.crash_at is not None and self.mutations >= self.crash_at

    def check_late(self, operation: str, path: str) -> None:
        """Raise after a call that is done, when it was asked to fail late."""
        self._errors.check(operation, path, late=True)

    def check_read(self, path: str) -> None:
        """Raise when a read was asked to fail."""
        self._errors.check("read", path)

    def written(self) -> None:
        """Call `on_write`, once."""
        told, self.on_write = self.on_write, None
        if told is not None:
            told()

    def take_misdirection(self, path: str) -> tuple[str, int] | None:
        return self._misdirected.pop(path, None)

    def inode_of(self, path: str) -> "Inode":
        return self._names.seen[path]

    def entropy_below(self, bound: int) -> int:
        return self._entropy.below(bound)


@final
class SimulatedFile:
    """An open file, which stays usable when its name is removed or given to another file."""

    def __init__(self, disk: SimulatedDisk, path: str, inode: Inode, write: bool) -> None:
        self._disk = disk
        self._path = path
        self._inode = inode
        self._write = write
        self._closed = False

    def read_at(self, position: int, size: int) -> bytes:
        """Read up to `size` bytes; fewer only at the end of the file."""
        assert not self._closed, self._path
        self._disk.check_read(self._path)
        sector = self._inode.unreadable_in(position, size)
        if sector is not None:
            raise DiskError("sector cannot be read", on=f"{self._path} sector {sector}")
        with memoryview(self._inode.seen) as view:
            return view[position : position + size].tobytes()

    def write_at(self, position: int, parts: Sequence[Buffer]) -> None:
        """Write all parts, or raise an error with some of the bytes written."""
        assert self._write, self._path
        assert not self._closed, self._path
        content = b"".join(parts)
        misdirected = self._disk.take_misdirection(self._path)
        if misdirected is not None:
            self._disk.overwrite(misdirected[0], misdirected[1], content)
            return
        failure = self._failure(position, content)
        if failure is not None:
            content = content[: self._disk.entropy_below(len(content) + 1)]
            free = self._disk.free
            if free is not None:
                content = content[: max(0, len(self._inode.seen) + free - position)]
        self._put(position, content)
        if failure is not None:
            raise failure
        self._disk.check_late("write", self._path)

    def _failure(self, position: int, content: bytes) -> BaseException | None:
        """Returns the error for which only a part is written; None when all of it is."""
        disk = self._disk
        try:
            disk.mutate("write", self._path)
        except DiskError as error:
            return error
        if disk.crashes_in_write():
            crash = SimulatedCrashError(f"write {self._path}")
            if disk.crash_tears:
                return crash
            raise crash
        try:
            self._check_room(position + len(content))
        except DiskFull as error:
            return error
        return None

    def _check_room(self, size: int) -> None:
        """Raise DiskFull when the disk has no room for this file at that size."""
        free, grown = self._disk.free, size - len(self._inode.seen)
        if free is not None and grown > free:
            raise DiskFull("no space is left", on=self._path)

    def _put(self, position: int, content: bytes) -> None:
        if not content:
            return
        inode, end = self._inode, position + len(content)
        grown = end - len(inode.seen)
        if grown > 0:
            resize(inode.seen, max(position, len(inode.seen)))
            inode.size_dirty = True
        inode.seen[position:end] = content
        inode.dirty.append((position, end))
        inode.make_readable(position, len(content))
        self._disk.written()

    def truncate(self, size: int) -> None:
        """Cut the file, or extend it with zeros."""
        self._disk.mutate("truncate", self._path)
        self._check_room(size)
        self._inode.truncate(size)
        self._disk.check_late("truncate", self._path)

    def sync(self) -> None:
        """Make the bytes and the size durable; a failure leaves the pages clean and lost."""
        try:
            self._disk.mutate("sync", self._path)
        except DiskError:
            self._inode.lose_pending()
            raise
        if not self._disk.lying_sync:
            self._inode.sync()

    def size(self) -> int:
        return len(self._inode.seen)

    def close(self) -> None:
        self._closed = True
