"""Files of a data directory are opened as what they are: regular files, never by way of a link.

A link would lead reads and writes out of the directory that is locked, checked and synced. Opening
a FIFO waits until another process writes into it, so one in a data directory would hang a boot.
"""

import os
import stat
from collections.abc import Iterator
from typing import Final

_KINDS: Final = {
    stat.S_IFBLK: "a block device",
    stat.S_IFCHR: "a character device",
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFSOCK: "a socket",
}


class NotRegular(OSError):
    """A name that is no regular file; its text says what the name is."""


def open_regular(path: str, flags: int, mode: int = 0o600) -> int:
    """As `os.open`, for a regular file: another raises `NotRegular` and is neither followed nor
    waited for. Directories above the file are not looked at."""
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, mode)
    except OSError as error:
        # A link, a socket, or a FIFO without a reader: the kernel's words name none of them.
        if (what := _kind_at(path)) is not None:
            raise NotRegular(f"it is {what}") from error
        raise
    try:
        found = _kind(os.fstat(descriptor).st_mode)
        if found is not None:
            raise NotRegular(f"it is {found}")
        os.set_blocking(descriptor, True)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def irregular(root: str) -> Iterator[tuple[str, str]]:
    """Each name at or below `root` that is neither a regular file nor a directory, and what it is,
    in the order of names. Directories that this user cannot read are passed over: the broker cannot
    read them either, and says so when it needs them."""
    if (found := _kind_at(root)) is not None and found != _KINDS[stat.S_IFDIR]:
        yield root, found
        return
    for directory, names, files in os.walk(root):
        names.sort()
        for name in sorted((*names, *files)):
            path = os.path.join(directory, name)
            found = _kind_at(path)
            if found is not None and found != _KINDS[stat.S_IFDIR]:
                yield path, found


def _kind_at(path: str) -> str | None:
    try:
        return _kind(os.lstat(path).st_mode)
    except OSError:
        # It is gone, or hidden from this user: the caller's own error says more.
        return None


def _kind(mode: int) -> str | None:
    """None for a regular file."""
    if stat.S_ISREG(mode):
        return None
    return _KINDS.get(stat.S_IFMT(mode), "no regular file")
