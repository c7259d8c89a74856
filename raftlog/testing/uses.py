"""Counts how often faults were used, over a whole cluster, so that "once" means once.

A fault may be in force on several brokers. Brokers of one process share a `MemoryUses`; processes
share a folder, in which each fault has a file with a byte for every match (`FileUses`). Those
counts outlive a broker that is killed.
"""

import fcntl
import os
import threading
from pathlib import Path
from typing import Final, Protocol, final

MATCHES_MAX: Final = 1_000_000
"""The largest count. More matches would change nothing that a test can ask for."""


class Uses(Protocol):
    """The counts of all faults, by id. Any thread may ask."""

    def match(self, fault: str) -> int:
        """Count one match and return its number, from 1."""
        ...

    def matches(self, fault: str) -> int:
        """How many matches of a fault were counted."""
        ...


def used(matches: int, nth: int, times: int | None) -> int:
    """On how many of these matches a fault acted."""
    since = max(0, matches - nth + 1)
    return since if times is None else min(since, times)


@final
class MemoryUses:
    """Counts in memory, for brokers of one process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._matches: dict[str, int] = {}

    def match(self, fault: str) -> int:
        """See `Uses`."""
        with self._lock:
            number = min(MATCHES_MAX, self._matches.get(fault, 0) + 1)
            self._matches[fault] = number
            return number

    def matches(self, fault: str) -> int:
        """See `Uses`."""
        with self._lock:
            return self._matches.get(fault, 0)


@final
class FileUses:
    """Counts in files, for processes of one machine that share a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def match(self, fault: str) -> int:
        """See `Uses`."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        descriptor = os.open(self._path(fault), flags, 0o600)
        try:
            # Two broker processes may match at the same time. Closing the descriptor releases the
            # lock.
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            matched = os.fstat(descriptor).st_size
            if matched < MATCHES_MAX:
                matched += os.write(descriptor, b".")
            return matched
        finally:
            os.close(descriptor)

    def matches(self, fault: str) -> int:
        """See `Uses`."""
        try:
            return self._path(fault).stat().st_size
        except FileNotFoundError:
            return 0

    def _path(self, fault: str) -> Path:
        return self._folder / f"{fault}.uses"
