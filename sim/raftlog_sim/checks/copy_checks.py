"""Checks of replicas that move between the log directories of their broker.

Before the store names the new place, the copy must hold exactly the files that the old one holds.
Recovery would forgive more than that: a file that should be gone is mostly void. So the bytes are
compared here, not what a boot makes of them.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from raftlog.broker.events import Event, Job, JobDone, Read
from raftlog.storage.directories.directory_move import finish_copy
from raftlog.storage.files import opened
from raftlog.storage.replica import MOVING_FILE, TEMPORARY_SUFFIX

if TYPE_CHECKING:
    from raftlog_sim.world.disk import SimulatedDisk
    from raftlog_sim.world.faces import SimNode

NAME: Final = "copied-exactly"


def after_job(node: "SimNode", job: Job | Read, done: Event) -> Iterator[tuple[str, str]]:
    """Compare a copy that was finished with what it was made from."""
    if isinstance(job, Read) or job.function is not finish_copy:
        return
    if isinstance(done, JobDone) and isinstance(done.value, int):
        old, new, _ = job.args
        disk = node.disk.for_reading()
        yield NAME, _difference(_files(disk, old), _files(disk, new), new)


def _files(disk: "SimulatedDisk", path: str) -> dict[str, bytes]:
    found = {}
    for name in disk.list(path):
        if name != MOVING_FILE and not name.endswith(TEMPORARY_SUFFIX):
            with opened(disk, f"{path}/{name}") as file:
                found[name] = file.read_at(0, file.size())
    return found


def _difference(old: dict[str, bytes], new: dict[str, bytes], where: str) -> str:
    for name in sorted({*old, *new}):
        if name not in new:
            return f"{where} lacks {name}"
        if name not in old:
            return f"{where} has {name}, which the replica has not"
        if old[name] != new[name]:
            return f"{where}/{name} has {len(new[name])} bytes and not those of the replica"
    return ""
