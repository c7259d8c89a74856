"""A disk in memory that loses, tears and rots what a real one may: the Disk port of the simulator.

What was written is pending until `sync`; a name that was made, renamed or removed is pending until
its directory is synced. A crash keeps, drops or tears every pending sector, and keeps or drops
every pending name, each on its own. Faults are injected by the methods in the second half.

Assumptions about a medium, each with a test: (1) a sector of 512 bytes, in some runs of 4 KiB, that
was synced stays as it is until it is written again or rots; (2) `sync` makes exactly this file's
bytes and size durable, not its name; (3) after a failed `sync`, `sync_dir` or `sync_all` pages and
names are clean and gone, so that a retry succeeds and proves nothing; (4) a rename is atomic, and
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
    """The machine stops at this call; nothing but the test that asked for it may catch it."""


@final
class Keep(enum.Enum):
    """What a crash does with pending sectors and names."""

    ALL = "all"
    NONE = "none"
    SOME = "some"


@final
class SimulatedDisk:
    """One data directory. `mutations` counts the calls that change something; `crash_at` names the
    one (from 1) at which `SimulatedCrashError` is raised, before it does anything, or in the middle
    of a write when `crash_tears` is set. A crash keeps or drops what is pending in units of
    `tear_bytes`, a multiple of a sector. `removed` are files that were removed since somebody
    emptied it."""

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
        """Called once, when something was written next."""
        self._room: int | None = None
        self.lying_sync = False
        self.mounts: list[str] = []
        """Directories that count as disks of their own (`more_disks`)."""

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
        """Names in a directory, sorted."""
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
        """Atomic; replaces."""
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
        """Make a directory that counts as another disk: `sync_all` of one is none of the other."""
        self.mounts = [*(each for each in self.mounts if each != root), root]
        self._names.mount(root)

    def sync_all(self, root: str = "") -> None:
        """Make everything durable that lies on the disk mounted there; a failure leaves all of it
        clean and lost."""
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
        """How many bytes more its files may have in all; None for no bound. What is removed, cut
        off, replaced or lost in a crash gives room, whoever still holds it open."""
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
        """The power goes: what a boot finds is what was durable, and of the pending what `keep`
        says, drawn from `draws` or the disk's own. Open files of before the crash must not be
        used."""
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
        ones, `count` times. With `late` (create, write, truncate, rename, remove of a file) they
        are done all the same."""
        self._errors.ask(operation, path_part, error, skip, count, late)

    def forget_faults(self, path_part: str = "") -> None:
        """No call fails any more that has not failed yet, or none that was asked for with this path
        part; rot and bad sectors stay."""
        self._errors.forget(path_part)
        if not path_part:
            self._misdirected.clear()

    def flip_bit(self, path: str, position: int, bit: int = 0) -> None:
        """Rot at rest: seen and durable bytes alike."""
        inode = self._names.seen[path]
        inode.hurt = True
        for content in (inode.seen, inode.durable):
            if position < len(content):
                content[position] ^= 1 << bit

    def overwrite(self, path: str, position: int, content: bytes) -> None:
        """Alien bytes at rest: a misdirected write's victim, an old chunk restored."""
        inode = self._names.seen[path]
        inode.hurt = True
        for target in (inode.seen, inode.durable):
            target[position : position + len(content)] = content

    def misdirect(self, path: str, start: int, end: int, to_path: str, position: int) -> None:
        """A write to `path` went astray on its way to the medium: these bytes are what they were
        before it, zeros, and what it wrote lies in `to_path`, as far as that goes."""
        content = self.content(path)[start:end]
        self.overwrite(path, start, bytes(end - start))
        room = len(self.content(to_path)) - position
        self.overwrite(to_path, position, content[:room])

    def shorten(self, path: str, size: int) -> None:
        """The file is cut short at rest."""
        self._names.seen[path].shorten(size)

    def vanish(self, path: str) -> None:
        """A file is gone."""
        del self._names.seen[path]
        self._names.durable.pop(path, None)

    def make_unreadable(self, path: str, position: int) -> None:
        """Reads that touch this sector fail until it is written again, or cut off, durably."""
        self._names.seen[path].rot(position)

    def misdirect_next_write(self, path: str, to_path: str, position: int) -> None:
        """The next write to `path` lands in `to_path`, and reports success."""
        self._misdirected[path] = (to_path, position)

    def content(self, path: str) -> bytes:
        """The bytes of a file as seen now."""
        return bytes(self._names.seen[path].seen)

    def is_hurt(self, path: str) -> bool:
        """Whether the file was ever damaged at rest; not so one that is not there."""
        inode = self._names.seen.get(path)
        return inode is not None and inode.hurt

    def is_unreadable(self, path: str, position: int, size: int) -> bool:
        """Whether a read of these bytes fails for what happened at rest."""
        inode = self._names.seen.get(path)
        return inode is not None and inode.unreadable_in(position, size) is not None

    def durable_to(self, path: str) -> int:
        """How many of a file's bytes, from its beginning, a crash that keeps nothing would leave as
        they are now seen; 0 when its name would go too."""
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
        """The disk as a boot would find it after a crash that keeps nothing, or only these files of
        it; this one stays as it is. Costs as much as the files are long; with `paths` it only
        borrows them, and is good for reading now."""
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
        """The same files, as a process sees them, without the failures that were asked for. It
        borrows them: good for reading, now."""
        found = SimulatedDisk(self._entropy, self.tear_bytes)
        found._names.seen, found._names.directories = self._names.seen, self._names.directories
        return found

    def durable_content(self, path: str) -> bytes | None:
        """The bytes that a crash that keeps nothing would leave; None when the name goes too."""
        inode = self._names.durable.get(path)
        return None if inode is None else bytes(inode.durable)

    def paths(self) -> tuple[str, ...]:
        """All files, sorted."""
        return tuple(sorted(self._names.seen))

    # --- for files --------------------------------------------------------------------------------

    def mutate(self, operation: str, path: str) -> None:
        """Count a changing call; crash or fail if it was asked for."""
        self.mutations += 1
        if self.crash_at is not None and self.mutations >= self.crash_at and operation != "write":
            raise SimulatedCrashError(f"{operation} {path}")
        self._errors.check(operation, path)

    def crashes_in_write(self) -> bool:
        return self.crash_at is not None and self.mutations >= self.crash_at

    def check_late(self, operation: str, path: str) -> None:
        """Raise after a call that is done and was asked to fail."""
        self._errors.check(operation, path, late=True)

    def check_read(self, path: str) -> None:
        """Raise when a read was asked to fail."""
        self._errors.check("read", path)

    def written(self) -> None:
        """Tell whoever waits for a write."""
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
    """An open file; it goes on to work when its name is removed or taken by another."""

    def __init__(self, disk: SimulatedDisk, path: str, inode: Inode, write: bool) -> None:
        self._disk = disk
        self._path = path
        self._inode = inode
        self._write = write
        self._closed = False

    def read_at(self, position: int, size: int) -> bytes:
        """Up to `size` bytes; fewer only at the end."""
        assert not self._closed, self._path
        self._disk.check_read(self._path)
        sector = self._inode.unreadable_in(position, size)
        if sector is not None:
            raise DiskError("sector cannot be read", on=f"{self._path} sector {sector}")
        with memoryview(self._inode.seen) as view:
            return view[position : position + size].tobytes()

    def write_at(self, position: int, parts: Sequence[Buffer]) -> None:
        """Whole, or an error with some of it written."""
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
        """Why only a part of the write is done; None when all of it is."""
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
        """Raise where there is no room for a file of that size."""
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
        """Cut or extend with zeros."""
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
