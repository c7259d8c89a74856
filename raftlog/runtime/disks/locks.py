"""The lock of a log directory, by which it belongs to one process at a time."""

import fcntl
import os
from contextlib import ExitStack
from typing import Final

from raftlog.base.errors import OperatingError
from raftlog.base.ports import Tracer
from raftlog.base.trace import TraceEvent
from raftlog.runtime.real_ports import PRIVATE_FILE, make_data_directory, refuse_irregular
from raftlog.runtime.regular_files import open_regular

LOCK_FILE: Final = ".lock"


def lock_directory(path: str, stack: ExitStack, tracer: Tracer) -> None:
    """Make a log directory, if it is not there, and hold it for this process until `stack` is
    closed. `OperatingError` when another process has it."""
    if not make_data_directory(path):
        do = f"chmod 700 {path}, or set log.dirs to a directory of its own"
        tracer.emit(TraceEvent("data-directory-open-to-others", path, (("do", do),)))
    refuse_irregular(path)
    hold_lock(path, stack, "stop that broker first, or set log.dirs")


def hold_lock(path: str, stack: ExitStack, do: str) -> None:
    """Keep other processes off a log directory until `stack` is closed; `OperatingError`, with the
    advice `do`, when one has it."""
    lock = open_regular(os.path.join(path, LOCK_FILE), os.O_RDWR | os.O_CREAT, PRIVATE_FILE)
    stack.callback(os.close, lock)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        what = "the data directory is in use by another process"
        raise OperatingError(what, on=path, do=do) from None


def is_locked(data_dir: str) -> bool:
    """Whether a broker, of this process or another, has this data directory open."""
    try:
        lock = os.open(os.path.join(data_dir, LOCK_FILE), os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False
