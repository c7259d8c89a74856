"""The ports to the outside world: time, randomness, disk and trace. The simulator replaces all.

Constructors take ports by keyword, and no port has a default that reaches the operating system.
Code that `Broker.handle` calls sees `Entropy` and `Tracer` only. `Disk` is for the functions of
`raftlog.storage` that perform writes, reads and jobs, off the loop.
"""

from collections.abc import Sequence
from typing import Protocol

from raftlog.base.binary import Buffer
from raftlog.base.trace import TraceEvent
from raftlog.base.units import Instant, WallMillis


class Clock(Protocol):
    """Time. `now` never goes back and runs on during suspend where the platform can say so."""

    def now(self) -> Instant: ...

    def wall(self) -> WallMillis: ...


class Entropy(Protocol):
    """A named stream of random numbers. `fork` gives an independent stream under a label."""

    def below(self, bound: int) -> int:
        """An integer from 0 up to and without `bound` (at least 1)."""
        ...

    def bytes(self, count: int) -> bytes: ...

    def fork(self, label: str) -> "Entropy": ...


class DiskFile(Protocol):
    """An open file. Every method raises `DiskError` (or `DiskFull`) naming the file.

    A write is either whole or raises. Its bytes are durable only after `sync` has returned. After a
    failed `sync` the caller may assume nothing about earlier writes.
    """

    def read_at(self, position: int, size: int) -> bytes:
        """Up to `size` bytes; fewer only at the end of the file."""
        ...

    def write_at(self, position: int, parts: Sequence[Buffer]) -> None: ...

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None: ...

    def size(self) -> int: ...

    def close(self) -> None: ...


class Disk(Protocol):
    """One data directory. Paths are relative, with `/` between names; `""` is the directory itself.

    Creation, rename and removal of a name are durable only after `sync_dir` of its directory.
    """

    def open(self, path: str, *, create: bool = False, write: bool = True) -> DiskFile:
        """`create` makes an empty file and fails when the name exists."""
        ...

    def list(self, path: str) -> list[str]:
        """Names in a directory, sorted; empty when the directory does not exist."""
        ...

    def exists(self, path: str) -> bool:
        """Whether a file or directory of that name exists. Raises when the disk cannot tell: a
        caller that took this for a no would found a new state over one that may still exist."""
        ...

    def make_dir(self, path: str) -> None:
        """Create the directory and its missing parents; an existing one is left alone."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Rename atomically; replaces a file that has the new name."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file or an empty directory."""
        ...

    def sync_dir(self, path: str) -> None:
        """Make the names in a directory durable. Raises also when another thread's sync of these
        names failed after they were made."""
        ...

    def sync_all(self) -> None:
        """Make everything written to this directory's file system durable (syncfs)."""
        ...

    def free_bytes(self) -> int: ...

    def total_bytes(self) -> int:
        """The size of the file system; free and used."""
        ...


class Tracer(Protocol):
    """The receiver of typed trace events: JSON lines, a digest, or a list in tests."""

    def emit(self, event: TraceEvent) -> None: ...
