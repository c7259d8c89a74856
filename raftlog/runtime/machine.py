"""The machine under a broker process: every port that the shell takes, in one value.

`this_machine` is the real one. `trio_world` makes others, and the shell cannot tell which it runs
on: nothing in it asks.
"""

import fcntl
import gc
import os
import resource
import sys
from contextlib import ExitStack
from typing import Final, final

import attrs
import trio

from raftlog.base.errors import ConfigError, OperatingError
from raftlog.base.ports import Clock, Disk, Entropy, Tracer
from raftlog.base.trace import TraceEvent
from raftlog.runtime import faulty_disk
from raftlog.runtime.config_file import ServerConfig
from raftlog.runtime.huge_pages import use_huge_pages
from raftlog.runtime.open_files import Descriptors, PosixDescriptors
from raftlog.runtime.real_ports import (
    PRIVATE_FILE,
    SYNCFS_TELLS,
    OsEntropy,
    PosixDisk,
    make_data_directory,
    refuse_irregular,
)
from raftlog.runtime.regular_files import open_regular
from raftlog.runtime.slabs import SlabPool
from raftlog.runtime.streams import Network, TcpNetwork
from raftlog.runtime.workers import ThreadWorkers, Workers
from raftlog.storage.write_round import SYNCFS_FROM

SWITCH_SECONDS: Final = 0.0005
"""How long the loop may keep the log thread from reporting: the default of 5 ms is a failover's
worth of waiting behind a busy turn."""
_LOCK_FILE: Final = ".lock"
OPEN_FILES_WANTED: Final = 65_536


@final
@attrs.frozen(kw_only=True)
class Machine:
    """What a broker process has of the world; nothing of it outlives the process but the disk."""

    clock: Clock
    entropy: Entropy
    disk: Disk
    """The data directory, for this process alone."""
    descriptors: Descriptors | None
    """How its files are sent without being read; None: they are read through `disk`."""
    syncfs_from: int
    """Dirty files from which one `sync_all` is cheaper than a sync of each."""
    network: Network
    workers: Workers
    pool: SlabPool
    process: int
    """The number by which the operating system knows this process."""


def this_machine(config: ServerConfig, clock: Clock, tracer: Tracer, stack: ExitStack) -> Machine:
    """The real one, with the data directory locked until `stack` is closed, and the test disk over
    it when that is asked. Belongs to the trio thread."""
    disk = _open_disk(config, stack, tracer)
    return Machine(
        clock=clock,
        entropy=OsEntropy(),
        disk=disk,
        descriptors=PosixDescriptors(config.data_dir) if isinstance(disk, PosixDisk) else None,
        syncfs_from=SYNCFS_FROM if SYNCFS_TELLS else sys.maxsize,
        network=TcpNetwork(),
        workers=ThreadWorkers(trio.lowlevel.current_trio_token()),
        pool=SlabPool(),
        process=os.getpid(),
    )


def _open_disk(config: ServerConfig, stack: ExitStack, tracer: Tracer) -> Disk:
    if not make_data_directory(config.data_dir):
        do = f"chmod 700 {config.data_dir}, or set log.dirs to a directory of its own"
        tracer.emit(TraceEvent("data-directory-open-to-others", config.data_dir, (("do", do),)))
    refuse_irregular(config.data_dir)
    lock = open_regular(
        os.path.join(config.data_dir, _LOCK_FILE), os.O_RDWR | os.O_CREAT, PRIVATE_FILE
    )
    stack.callback(os.close, lock)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise OperatingError(
            "the data directory is in use by another process",
            on=config.data_dir,
            do="stop that broker first, or set log.dirs",
        ) from None
    disk: Disk = PosixDisk(config.data_dir)
    wanted = os.environ.get(faulty_disk.VARIABLE)
    if wanted:
        if not config.loopback_only():
            raise ConfigError("test disks are refused beyond loopback", on=faulty_disk.VARIABLE)
        tracer.emit(TraceEvent("test-disk", config.data_dir, (("options", wanted),)))
        disk = faulty_disk.wrap(disk, faulty_disk.parse_options(wanted))
    return disk


def is_locked(data_dir: str) -> bool:
    """Whether a broker, of this process or another, has this data directory open."""
    try:
        lock = os.open(os.path.join(data_dir, _LOCK_FILE), os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def raise_file_limit() -> int:
    """Let this process open as many files as it may; how many that is."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES_WANTED if hard == resource.RLIM_INFINITY else min(OPEN_FILES_WANTED, hard)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return OPEN_FILES_WANTED if soft == resource.RLIM_INFINITY else soft
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted


def tune_process(clock: Clock) -> None:
    """Let the log thread in quickly, keep the collector off what lives for ever (everything made so
    far is never garbage, and cycles are rare on the data path), and put that on huge pages."""
    sys.setswitchinterval(SWITCH_SECONDS)
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
    use_huge_pages(clock)
