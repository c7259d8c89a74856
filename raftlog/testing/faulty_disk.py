"""Test disks behind the Disk port, for real processes that are to be killed.

`WriteBackDisk` keeps every write, creation, rename and removal in the memory of the process until
the matching sync: `kill -9` then loses exactly what was not synced, as a power failure would.
`FaultyDisk` makes syncs slow or failing and space scarce. The command `raftlog serve` loads this
file only when `RAFTLOG_TEST_DISK` is set. The broker says so at start, and refuses unless every
listener is on loopback.

The variable is a comma-separated list:

    writeback            keep unsynced state in memory
    skip-sync=SUFFIX     pretend to sync files whose path ends so (the control that must lose data)
    slow-sync=MS         each sync takes this much longer
    fail-sync-after=N    the N-th sync and all later ones fail
    full-after=BYTES     writes beyond so many bytes in all fail with "no space left"
    only=SUFFIX          of several log directories, the one whose path ends so
    control=FILE         what FILE says now is in force as well; it is looked at before each
                         operation, so that faults come and go while the broker runs:
                         slow-sync=MS, fail-sync, fail-write, full (files cannot grow)
"""

import os
import threading
import time
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Concatenate, NamedTuple, ParamSpec, Protocol, TypeVar, final

import attrs

from raftlog.base.binary import Buffer
from raftlog.base.errors import ConfigError, DiskError, DiskFull
from raftlog.base.ports import Disk, DiskFile, Tracer
from raftlog.base.trace import TraceEvent
from raftlog.runtime.settings.fault_settings import TEST_DISK, TestDisk

_L = TypeVar("_L", bound="_Lockable")
_P = ParamSpec("_P")
_R = TypeVar("_R")


@final
@attrs.frozen(kw_only=True)
class TestDiskOptions:
    """The options of `RAFTLOG_TEST_DISK`."""

    __test__ = False  # not a test class, whatever pytest thinks of its name

    writeback: bool = False
    skip_sync: str = ""
    slow_sync_ms: int = 0
    fail_sync_after: int = 0
    full_after: int = 0
    control: str = ""
    only: str = ""


class FaultsNow(NamedTuple):
    """The faults that a control file, or a test, asks for at the moment."""

    slow_sync_ms: int = 0
    fail_sync: bool = False
    fail_write: bool = False
    full: bool = False


class FaultSource(Protocol):
    """Says which faults a disk has, and is told of each that did something. Any thread calls it."""

    def disk_now(self) -> FaultsNow:
        """The faults that are in force."""
        ...

    def disk_used(self, what: str) -> None:
        """One of slow_disk, fail_sync, full_disk has slowed, failed or refused something."""
        ...


def disk_from_environment(tracer: Tracer, *, loopback_only: bool) -> TestDisk | None:
    """The test disk that the environment asks for; None where it asks for none. `ConfigError`
    unless all listeners of the broker are on loopback, and for options that are unknown."""
    wanted = os.environ.get(TEST_DISK)
    if not wanted:
        return None
    if not loopback_only:
        raise ConfigError("test disks are refused beyond loopback", on=TEST_DISK)
    options = parse_options(wanted)

    def over(path: str, disk: Disk) -> Disk | None:
        if not path.endswith(options.only):
            return None
        tracer.emit(TraceEvent("test-disk", path, (("options", wanted),)))
        return wrap(disk, options)

    return over


def parse_options(text: str) -> TestDiskOptions:
    """Read the variable; `ConfigError` for anything unknown."""
    found: dict[str, str | int | bool] = {}
    for item in text.split(","):
        name, _, value = item.strip().partition("=")
        if name == "writeback" and not value:
            found["writeback"] = True
        elif name in ("skip-sync", "control", "only") and value:
            found[name.replace("-", "_")] = value
        elif name in ("slow-sync", "fail-sync-after", "full-after") and value.isdigit():
            field = {"slow-sync": "slow_sync_ms"}.get(name, name.replace("-", "_"))
            found[field] = int(value)
        else:
            raise ConfigError(f"{item!r} is no test disk option", on=TEST_DISK)
    return TestDiskOptions(**found)  # type: ignore[arg-type]


def parse_control(text: str) -> FaultsNow:
    """The faults that a control file asks for; `ConfigError` for anything unknown."""
    found: dict[str, int | bool] = {}
    for item in filter(None, (each.strip() for each in text.split(","))):
        name, _, value = item.partition("=")
        if name in ("fail-sync", "fail-write", "full") and not value:
            found[name.replace("-", "_")] = True
        elif name == "slow-sync" and value.isdigit():
            found["slow_sync_ms"] = int(value)
        else:
            raise ConfigError(f"{item!r} is no test disk fault", on=TEST_DISK)
    return FaultsNow(**found)  # type: ignore[arg-type]


def wrap(disk: Disk, options: TestDiskOptions) -> Disk:
    """The test disk over a real one."""
    if options.writeback:
        disk = WriteBackDisk(disk, options.skip_sync)
    return FaultyDisk(disk, options)


# --- write-back -----------------------------------------------------------------------------------


class _Lockable(Protocol):
    lock: threading.RLock


def _locked(
    method: Callable[Concatenate[_L, _P], _R],
) -> Callable[Concatenate[_L, _P], _R]:
    """The method under its object's lock."""

    @wraps(method)
    def under_lock(self: _L, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        with self.lock:
            return method(self, *args, **kwargs)

    return under_lock


@final
@attrs.define(eq=False)
class _Shadow:
    """A file as this process sees it. `base` is None while its name is not durable; `writes` are
    pending; `synced` are synced but wait for the name."""

    base: DiskFile | None
    writes: list[tuple[int, bytes]] = attrs.Factory(list)
    synced: list[tuple[int, bytes]] = attrs.Factory(list)
    length: int = 0


@final
class WriteBackDisk:
    """Pending state in memory over `base`. A file has one user at a time, as the port demands; the
    names belong to all threads of a broker, so everything happens under one lock."""

    def __init__(self, base: Disk, skip_sync: str) -> None:
        self._base = base
        self._skip_sync = skip_sync
        self._files: dict[str, _Shadow] = {}
        self._gone: dict[str, bool] = {}
        self._names: list[tuple[str, str, str]] = []
        self.lock = threading.RLock()

    @_locked
    def open(self, path: str, *, create: bool = False, write: bool = True) -> DiskFile:
        if create:
            if self.exists(path):
                raise DiskError("File exists", on=path)
            self._files[path] = _Shadow(None)
            self._gone.pop(path, None)
            self._names.append(("create", path, ""))
        elif path not in self._files:
            if self._gone.get(path):
                raise DiskError("No such file or directory", on=path)
            base = self._base.open(path, write=True)
            self._files[path] = _Shadow(base, length=base.size())
        return _WriteBackFile(self, path, self._files[path])

    def skips(self, path: str) -> bool:
        """Whether syncs of this file are only pretended."""
        return bool(self._skip_sync) and path.endswith(self._skip_sync)

    @_locked
    def list(self, path: str) -> list[str]:
        prefix = f"{path}/" if path else ""
        names = {name for name in self._base.list(path) if not self._gone.get(prefix + name)}
        for each in self._files:
            if each.startswith(prefix):
                names.add(each[len(prefix) :].split("/")[0])
        return sorted(names)

    @_locked
    def exists(self, path: str) -> bool:
        if path in self._files:
            return True
        return not self._gone.get(path) and self._base.exists(path)

    def make_dir(self, path: str) -> None:
        """Directories are made at once: an empty one that survives a crash promises nothing."""
        self._base.make_dir(path)

    @_locked
    def rename(self, old: str, new: str) -> None:
        self.open(old).close()
        self._files[new] = self._files.pop(old)
        self._gone[old] = True
        self._gone.pop(new, None)
        self._names.append(("rename", old, new))

    @_locked
    def remove(self, path: str) -> None:
        if not self.exists(path):
            raise DiskError("No such file or directory", on=path)
        self._files.pop(path, None)
        self._gone[path] = True
        self._names.append(("remove", path, ""))

    @_locked
    def sync_dir(self, path: str) -> None:
        """Make names in `path` durable, in the order in which they came about."""
        later: list[tuple[str, str, str]] = []
        for change in self._names:
            kind, first, second = change
            if _parent(second or first) != path:
                later.append(change)
            elif kind == "create":
                self._create(first)
            elif kind == "rename":
                self._base.rename(first, second)
                self._gone.pop(first, None)
            elif self._base.exists(first):
                self._base.remove(first)
                self._gone.pop(first, None)
        self._names = later
        self._base.sync_dir(path)

    def _create(self, path: str) -> None:
        base = self._base.open(path, create=True)
        shadow = self._files.get(path) or self._renamed_later(path)
        if shadow is not None:
            shadow.base = base
            flush(shadow)

    def _renamed_later(self, path: str) -> _Shadow | None:
        for kind, first, second in self._names:
            if kind == "rename" and first == path:
                return self._files.get(second)
        return None

    @_locked
    def sync_all(self) -> None:
        for path in list(self._files):
            _WriteBackFile(self, path, self._files[path]).sync()
        for directory in sorted({_parent(second or first) for _, first, second in self._names}):
            self.sync_dir(directory)

    def free_bytes(self) -> int:
        return self._base.free_bytes()

    def total_bytes(self) -> int:
        return self._base.total_bytes()


def _parent(path: str) -> str:
    return path.rpartition("/")[0]


def flush(shadow: _Shadow) -> None:
    """Write what is synced to the real file, once it has a name."""
    if shadow.base is None:
        return
    for position, data in shadow.synced:
        if position < 0:
            shadow.base.truncate(-position - 1)
        else:
            shadow.base.write_at(position, [data])
    shadow.synced.clear()


@final
class _WriteBackFile:
    """An open file of a `WriteBackDisk`. A truncation is kept as a write at `-size - 1`."""

    def __init__(self, disk: WriteBackDisk, path: str, shadow: _Shadow) -> None:
        self._disk = disk
        self.lock = disk.lock
        self._path = path
        self._shadow = shadow

    @_locked
    def read_at(self, position: int, size: int) -> bytes:
        shadow = self._shadow
        wanted = max(0, min(size, shadow.length - position))
        image = bytearray(wanted)
        if shadow.base is not None:
            base = shadow.base.read_at(position, wanted)
            image[: len(base)] = base
        for at, data in [*shadow.synced, *shadow.writes]:
            if at < 0:
                cut = max(0, -at - 1 - position)
                image[cut:] = bytes(max(0, len(image) - cut))
                continue
            first, last = max(at, position), min(at + len(data), position + wanted)
            if first < last:
                image[first - position : last - position] = data[first - at : last - at]
        return bytes(image)

    @_locked
    def write_at(self, position: int, parts: Sequence[Buffer]) -> None:
        data = b"".join(parts)
        self._shadow.writes.append((position, data))
        self._shadow.length = max(self._shadow.length, position + len(data))

    @_locked
    def truncate(self, size: int) -> None:
        self._shadow.writes.append((-size - 1, b""))
        self._shadow.length = size

    @_locked
    def sync(self) -> None:
        if self._disk.skips(self._path):
            return
        shadow = self._shadow
        shadow.synced += shadow.writes
        shadow.writes.clear()
        flush(shadow)

    def size(self) -> int:
        return self._shadow.length

    def close(self) -> None:
        """The shadow stays: what is pending must still be readable by the next who opens it."""


# --- slow, failing, full --------------------------------------------------------------------------


@final
class FaultyDisk:
    """Delays and failures of syncs, and a budget of bytes, over another disk."""

    def __init__(
        self, base: Disk, options: TestDiskOptions, source: FaultSource | None = None
    ) -> None:
        self._base = base
        self._options = options
        self._source = source
        self._syncs = 0
        self._written = 0
        self._seen: tuple[int, int] | None = None
        self._faults = FaultsNow()

    def faults(self) -> FaultsNow:
        """The faults that the control file asks for now; none when there is none. It is replaced by
        a rename, so that a new file has another inode. A source is asked in its place."""
        if self._source is not None:
            return self._source.disk_now()
        if not self._options.control:
            return self._faults
        try:
            state = os.stat(self._options.control)
        except FileNotFoundError:
            self._seen, self._faults = None, FaultsNow()
            return self._faults
        version = (state.st_ino, state.st_mtime_ns)
        if version != self._seen:
            with open(self._options.control, encoding="utf-8") as file:
                self._faults = parse_control(file.read())
            self._seen = version
        return self._faults

    def _used(self, what: str) -> None:
        if self._source is not None:
            self._source.disk_used(what)

    def open(self, path: str, *, create: bool = False, write: bool = True) -> DiskFile:
        if create and self.faults().full:
            self._used("full_disk")
            raise DiskFull("No space left on device (test disk)", on=path)
        return _FaultyFile(self, path, self._base.open(path, create=create, write=write))

    def before_sync(self, path: str) -> None:
        """Count a sync; delay it or fail it as asked."""
        self._syncs += 1
        faults = self.faults()
        slow_ms = self._options.slow_sync_ms + faults.slow_sync_ms
        if slow_ms:
            self._used("slow_disk")
            time.sleep(slow_ms / 1000)
        if faults.fail_sync:
            self._used("fail_sync")
        if faults.fail_sync or 0 < self._options.fail_sync_after <= self._syncs:
            raise DiskError("sync failed (test disk)", on=path)

    def before_write(self, path: str, size: int, growth: int) -> None:
        """Count bytes; fail when the budget is spent or a full disk would have to grow."""
        self._written += size
        faults = self.faults()
        if faults.fail_write:
            raise DiskError("write failed (test disk)", on=path)
        if faults.full and growth > 0:
            self._used("full_disk")
            raise DiskFull("No space left on device (test disk)", on=path)
        if 0 < self._options.full_after < self._written:
            raise DiskFull("No space left on device (test disk)", on=path)

    def list(self, path: str) -> list[str]:
        return self._base.list(path)

    def exists(self, path: str) -> bool:
        return self._base.exists(path)

    def make_dir(self, path: str) -> None:
        self._base.make_dir(path)

    def rename(self, old: str, new: str) -> None:
        self._base.rename(old, new)

    def remove(self, path: str) -> None:
        self._base.remove(path)

    def sync_dir(self, path: str) -> None:
        self.before_sync(path)
        self._base.sync_dir(path)

    def sync_all(self) -> None:
        self.before_sync("")
        self._base.sync_all()

    def free_bytes(self) -> int:
        if self.faults().full:
            self._used("full_disk")
            return 0
        if not self._options.full_after:
            return self._base.free_bytes()
        return max(0, self._options.full_after - self._written)

    def total_bytes(self) -> int:
        return self._options.full_after or self._base.total_bytes()


@final
class _FaultyFile:
    """An open file of a `FaultyDisk`."""

    def __init__(self, disk: FaultyDisk, path: str, base: DiskFile) -> None:
        self._disk = disk
        self._path = path
        self._base = base

    def read_at(self, position: int, size: int) -> bytes:
        return self._base.read_at(position, size)

    def write_at(self, position: int, parts: Sequence[Buffer]) -> None:
        size = sum(len(part) for part in parts)
        self._disk.before_write(self._path, size, position + size - self._base.size())
        self._base.write_at(position, parts)

    def truncate(self, size: int) -> None:
        self._base.truncate(size)

    def sync(self) -> None:
        self._disk.before_sync(self._path)
        self._base.sync()

    def size(self) -> int:
        return self._base.size()

    def close(self) -> None:
        self._base.close()
