"""The real world behind the ports: clock, randomness and disk of the operating system.

This is the only file that touches `time`, `os.urandom` and file descriptors of the log. Everything
that decides is given these objects, or the simulator's, and cannot tell which.
"""

import ctypes
import errno
import fcntl
import hashlib
import os
import re
import stat
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Final, final

from raftlog.base.binary import Buffer
from raftlog.base.errors import DiskError, DiskFull, LocalMisuse, OperatingError
from raftlog.base.units import NANOS_PER_MILLI, Instant, WallMillis
from raftlog.runtime.regular_files import NotRegular, irregular, open_regular

IOV_PARTS_MAX: Final = 512
"""Below IOV_MAX (1024 on Linux): one `pwritev` takes at most this many parts."""

PRIVATE_DIRECTORY: Final = 0o700
PRIVATE_FILE: Final = 0o600
"""Records, votes and names of topics are for the broker's user alone."""
_OWN_NAMES: Final = re.compile(r"raftlog\.(format|directory)|store-\d|groups|\.lock|lost\+found")

# Python has no os.syncfs; the C library of Linux does (glibc 2.14, musl).
_syncfs: Final = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)


def syncfs_tells(found: object, release: str) -> bool:
    """Whether one call makes a whole file system durable *and says when it could not*: `syncfs`
    hides failed write-back before Linux 5.8, and `sync` elsewhere may return before it is done."""
    numbers = re.match(r"(\d+)\.(\d+)", release)
    return found is not None and numbers is not None and tuple(map(int, numbers.groups())) >= (5, 8)


SYNCFS_TELLS: Final = syncfs_tells(_syncfs, os.uname().release)
_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


@final
class SystemClock:
    """Monotonic time that runs on during suspend where the platform can say so; never goes back."""

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last = 0

    def now(self) -> Instant:
        """Nanoseconds since an arbitrary point, the same for all processes of this boot."""
        reading = time.clock_gettime_ns(_CLOCK)
        if reading > self._last:  # not `max`: this is asked for four times a turn
            self._last = reading
        return Instant(self._last)

    def wall(self) -> WallMillis:
        """Unix time in milliseconds."""
        return WallMillis(time.time_ns() // NANOS_PER_MILLI)


@final
class OsEntropy:
    """A stream of randomness keyed by 32 bytes, which come from the operating system by default.

    Counter mode over BLAKE2b: the same key and label give the same stream, so a run can be traced
    by writing down its key.
    """

    __slots__ = ("_counter", "_key", "_pool")

    def __init__(self, key: bytes | None = None) -> None:
        self._key = os.urandom(32) if key is None else key
        self._counter = 0
        self._pool = b""

    def below(self, bound: int) -> int:
        """An integer from 0 up to and without `bound`; its bias is below 2**-64."""
        if bound < 1:
            raise LocalMisuse(f"below({bound}) has no answer")
        size = (bound.bit_length() + 7) // 8 + 8
        return int.from_bytes(self.bytes(size), "big") % bound

    def bytes(self, count: int) -> bytes:
        """The next `count` bytes of the stream."""
        while len(self._pool) < count:
            block = self._counter.to_bytes(8, "big")
            self._pool += hashlib.blake2b(block, key=self._key).digest()
            self._counter += 1
        taken, self._pool = self._pool[:count], self._pool[count:]
        return taken

    def fork(self, label: str) -> "OsEntropy":
        """An independent stream under a label."""
        return OsEntropy(hashlib.blake2b(label.encode(), key=self._key, digest_size=32).digest())


@contextmanager
def _blamed_on(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _blame(error, path) from error


def _blame(error: OSError, path: str) -> DiskError:
    """The error that callers know, naming the file. Writes and syncs use it without the context
    manager, which costs as much as a small write."""
    what = os.strerror(error.errno) if error.errno else str(error)
    if isinstance(error, NotRegular):
        return DiskError(what, on=path, do="a data directory holds files and directories only")
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFull(what, on=path, do="free some space; replicas reopen then")
    return DiskError(what, on=path, do="check the disk and its permissions")


@final
class PosixFile:
    """An open file of a `PosixDisk`, by positional reads and writes."""

    __slots__ = ("_fd", "_path")

    def __init__(self, fd: int, path: str) -> None:
        self._fd = fd
        self._path = path

    def fileno(self) -> int:
        return self._fd

    def read_at(self, position: int, size: int) -> bytes:
        """Up to `size` bytes; fewer only at the end of the file."""
        with _blamed_on(self._path):
            first = os.pread(self._fd, size, position)
            if len(first) == size or not first:
                return first
            pieces = [first]
            got = len(first)
            while got < size:
                piece = os.pread(self._fd, size - got, position + got)
                if not piece:
                    break
                pieces.append(piece)
                got += len(piece)
            return b"".join(pieces)

    def write_at(self, position: int, parts: Sequence[Buffer]) -> None:
        """Write all parts one after another; a short write is continued, an error raises."""
        try:
            for start in range(0, len(parts), IOV_PARTS_MAX):
                position += self._write_some(position, parts[start : start + IOV_PARTS_MAX])
        except OSError as error:
            raise _blame(error, self._path) from error

    def _write_some(self, position: int, parts: Sequence[Buffer]) -> int:
        total = sum(map(len, parts))
        done = os.pwritev(self._fd, parts, position)
        if done < total:
            rest = memoryview(b"".join(parts))
            while done < total:
                done += os.pwrite(self._fd, rest[done:], position + done)
        return total

    def truncate(self, size: int) -> None:
        with _blamed_on(self._path):
            os.ftruncate(self._fd, size)

    def sync(self) -> None:
        """fdatasync, or the platform's full sync."""
        try:
            _sync_data(self._fd)
        except OSError as error:
            raise _blame(error, self._path) from error

    def size(self) -> int:
        with _blamed_on(self._path):
            return os.fstat(self._fd).st_size

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _full_sync(fd: int) -> None:
    """macOS: fsync leaves the bytes in the drive's cache."""
    fcntl.fcntl(fd, fcntl.F_FULLFSYNC)  # type: ignore[attr-defined,unused-ignore]


_sync_data: Final[Callable[[int], None]] = (
    _full_sync if hasattr(fcntl, "F_FULLFSYNC") else getattr(os, "fdatasync", os.fsync)
)


def make_data_directory(path: str) -> bool:
    """Create a data directory for its owner alone, with its missing parents; close one that is
    there to everybody else. Returns whether others are kept out.

    A directory that holds anything but a broker's files (a home, /tmp), or that belongs to another
    user, is left as it is: it is not ours to close.
    """
    parent = os.path.dirname(os.path.abspath(path))
    with _blamed_on(path):
        os.makedirs(parent, exist_ok=True)
        with suppress(FileExistsError):
            os.mkdir(path, PRIVATE_DIRECTORY)
        mode = stat.S_IMODE(os.stat(path).st_mode)
        if mode & 0o077 == 0:
            return True
        if mode & stat.S_ISVTX or not all(map(_is_own_name, os.listdir(path))):
            return False
        with suppress(PermissionError):
            os.chmod(path, PRIVATE_DIRECTORY)
            return True
        return False


def refuse_irregular(path: str) -> None:
    """Raise `OperatingError` when a name that a broker would open in this data directory is a link,
    a FIFO or a device. Names that no broker uses are not looked at."""
    with _blamed_on(path):
        for name in sorted(filter(_is_own_name, os.listdir(path))):
            for found, what in irregular(os.path.join(path, name)):
                raise OperatingError(
                    f"it is {what}; a data directory holds files and directories only",
                    on=found,
                    do="put the file itself there, or move the name out of the data directory",
                )


def _is_own_name(name: str) -> bool:
    return _OWN_NAMES.match(name) is not None


@final
class PosixDisk:
    """A data directory on a real file system. `_all_fd` is what `syncfs` is called on, kept open:
    the kernel tells of a failed write-back through those descriptors that were open before it; one
    opened later may find that somebody else has heard of it already.

    For directories there is no such descriptor, and the threads of a directory make names side by
    side: what one of them hears of takes the names that another is about to sync. So names are
    synced one call at a time, and once that failed it fails for everybody, until a boot makes sure
    of what it finds (raftlog.storage.boot.recovery).
    """

    __slots__ = ("__weakref__", "_all_fd", "_names", "_names_lost", "root")

    def __init__(self, root: str) -> None:
        self.root = root
        self._all_fd = -1
        self._names = threading.Lock()
        self._names_lost = False

    def _at(self, path: str) -> str:
        names = path.split("/") if path else []
        if any(name in ("", ".", "..") for name in names):
            raise LocalMisuse(f"path {path!r} leaves the data directory")
        return os.path.join(self.root, *names)

    def open(self, path: str, *, create: bool = False, write: bool = True) -> PosixFile:
        """`create` makes an empty file and fails when the name exists."""
        flags = os.O_RDWR if write else os.O_RDONLY
        if create:
            flags |= os.O_CREAT | os.O_EXCL
        with _blamed_on(path):
            return PosixFile(open_regular(self._at(path), flags, PRIVATE_FILE), path)

    def list(self, path: str) -> list[str]:
        """Names in a directory, sorted; empty when it does not exist."""
        with _blamed_on(path):
            try:
                fd = self._open_directory(path)
            except FileNotFoundError:
                return []
            try:
                return sorted(os.listdir(fd))
            finally:
                os.close(fd)

    def exists(self, path: str) -> bool:
        with _blamed_on(path):
            try:
                os.lstat(self._at(path))
            except (FileNotFoundError, NotADirectoryError):
                return False
        return True

    def make_dir(self, path: str) -> None:
        with _blamed_on(path):
            made = self.root
            for name in path.split("/") if self._at(path) != self.root else ():
                made = os.path.join(made, name)
                with suppress(FileExistsError):
                    os.mkdir(made, PRIVATE_DIRECTORY)

    def rename(self, old: str, new: str) -> None:
        with _blamed_on(old):
            os.rename(self._at(old), self._at(new))

    def remove(self, path: str) -> None:
        """Remove a file or an empty directory."""
        with _blamed_on(path):
            target = self._at(path)
            if os.path.isdir(target):
                os.rmdir(target)
            else:
                os.unlink(target)

    def sync_dir(self, path: str) -> None:
        with _blamed_on(path):
            fd = self._open_directory(path)
            try:
                self._sync_names(partial(os.fsync, fd))
            finally:
                os.close(fd)

    def _open_directory(self, path: str) -> int:
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        # The data directory itself may be a link: its owner chose where it leads.
        return os.open(self._at(path), flags | (os.O_NOFOLLOW if path else 0))

    def sync_all(self) -> None:
        """Make everything written here durable: by one `syncfs` where that can be trusted, else
        file by file, which is only meant for a boot."""
        with _blamed_on(self.root):
            self._sync_names(self._sync_all)

    def _sync_names(self, sync: Callable[[], None]) -> None:
        with self._names:
            if self._names_lost:
                what = "an earlier sync of this data directory failed"
                raise DiskError(what, on=self.root, do="check the disk and restart the broker")
            try:
                sync()
            except OSError:
                self._names_lost = True
                raise

    def _sync_all(self) -> None:
        if _syncfs is None or not SYNCFS_TELLS:
            self._sync_each()
            return
        if self._all_fd < 0:
            self._all_fd = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            weakref.finalize(self, os.close, self._all_fd)
        if _syncfs(self._all_fd) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))

    def _sync_each(self) -> None:
        for directory, _, names in os.walk(self.root):
            for name in sorted(names):
                try:
                    fd = open_regular(os.path.join(directory, name), os.O_RDONLY)
                except NotRegular:
                    # The boot refused those among our own names; this one is not ours.
                    continue
                try:
                    _sync_data(fd)
                finally:
                    os.close(fd)
            fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)

    def free_bytes(self) -> int:
        with _blamed_on(self.root):
            usage = os.statvfs(self.root)
            return usage.f_bavail * usage.f_frsize

    def total_bytes(self) -> int:
        """The size of the file system."""
        with _blamed_on(self.root):
            usage = os.statvfs(self.root)
            return usage.f_blocks * usage.f_frsize
