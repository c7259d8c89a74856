"""The machine under a broker process: every port that the shell takes, in one value.

`this_machine` is the real one. `trio_world` makes others, and the shell cannot tell which it runs
on: nothing in it asks.
"""

import gc
import os
import resource
import sys
from contextlib import ExitStack
from functools import partial
from typing import Final, final

import attrs
import trio

from raftlog.base.ports import Clock, Disk, Entropy, Tracer
from raftlog.runtime.disks.locks import lock_directory
from raftlog.runtime.disks.log_dirs import FurtherDisk, take_further
from raftlog.runtime.disks.open_files import Descriptors, PosixDescriptors
from raftlog.runtime.disks.workers import ThreadWorkers, Workers
from raftlog.runtime.freed_memory import keep_freed_memory
from raftlog.runtime.huge_pages import use_huge_pages
from raftlog.runtime.network.streams import Network, TcpNetwork
from raftlog.runtime.real_ports import (
    SYNCFS_TELLS,
    OsEntropy,
    PosixDisk,
)
from raftlog.runtime.settings.config_file import ServerConfig
from raftlog.runtime.settings.fault_settings import TestDisk
from raftlog.storage.write_round import SYNCFS_FROM

SWITCH_SECONDS: Final = 0.0005
"""How long the loop may keep the log thread from reporting: the default of 5 ms is a failover's
worth of waiting behind a busy turn."""
OPEN_FILES_WANTED: Final = 65_536


@final
@attrs.frozen(kw_only=True)
class Machine:
    """The ports of a broker process to the world. Only the disk outlives the process."""

    clock: Clock
    entropy: Entropy
    disk: Disk
    """The data directory, for this process alone."""
    descriptors: Descriptors | None
    """How its files are sent without being read; None: they are read through `disk`."""
    further: tuple[FurtherDisk, ...] = ()
    """The other log directories, for this process alone."""
    syncfs_from: int
    """Dirty files from which one `sync_all` is cheaper than a sync of each."""
    network: Network
    workers: Workers
    process: int
    """The number by which the operating system knows this process."""


def this_machine(
    config: ServerConfig,
    clock: Clock,
    tracer: Tracer,
    stack: ExitStack,
    test_disk: TestDisk | None = None,
) -> Machine:
    """The real one, with the data directory locked until `stack` is closed. `test_disk` may put
    disks of its own in place of those of the log directories. Belongs to the trio thread."""
    lock_directory(config.data_dir, stack, tracer)
    over = partial(_disk_at, test_disk)
    disk, descriptors = over(config.data_dir)
    return Machine(
        clock=clock,
        entropy=OsEntropy(),
        disk=disk,
        descriptors=descriptors,
        further=take_further(config.further_dirs, stack, tracer, over),
        syncfs_from=SYNCFS_FROM if SYNCFS_TELLS else sys.maxsize,
        network=TcpNetwork(),
        workers=ThreadWorkers(trio.lowlevel.current_trio_token()),
        process=os.getpid(),
    )


def _disk_at(test_disk: TestDisk | None, path: str) -> tuple[Disk, PosixDescriptors | None]:
    """The disk of a log directory, and how its files are sent: by number only where no test disk
    stands over it, for that one may hold bytes that are not in the files yet."""
    disk = PosixDisk(path)
    over = None if test_disk is None else test_disk(path, disk)
    return (disk, PosixDescriptors(path)) if over is None else (over, None)


def raise_file_limit() -> int:
    """Let this process open as many files as it may; how many that is."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES_WANTED if hard == resource.RLIM_INFINITY else min(OPEN_FILES_WANTED, hard)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return OPEN_FILES_WANTED if soft == resource.RLIM_INFINITY else soft
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted


def tune_process(clock: Clock) -> None:
    """Let the log thread in quickly, keep the collector off what lives for ever, and put that on
    huge pages. Keep freed buffers for the next frames. Cycles are rare on the data path."""
    sys.setswitchinterval(SWITCH_SECONDS)
    # Without a collection before: it would free 0.4 MB, and take an eighth of a start's CPU time.
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
    use_huge_pages(clock)
    keep_freed_memory()
