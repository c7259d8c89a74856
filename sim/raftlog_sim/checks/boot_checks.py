"""Checks that a boot recovers exactly the replica that its files hold.

On an undamaged disk a boot recovers a replica with the longest valid prefix of its files, and never
gives it up. Durable entries are part of that prefix, since a power failure takes nothing durable.

This module reads the prefix before the boot does, in two ways. The product's own walk reads it
without any index. Where the walk refuses a batch, a few lines of the simulator decide whether that
batch is really bad.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple, final

import attrs

from raftlog.base.checksum import crc32c
from raftlog.base.errors import RaftlogError
from raftlog.base.ids import GroupId, RaftIndex
from raftlog.broker.events import Event, Job, JobDone, Read
from raftlog.storage.boot.recovery import (
    RecoveredReplica,
    ReplicaState,
    recover_replica,
    salvage_replica,
)
from raftlog.storage.files import opened
from raftlog.storage.replica import AWAY_SUFFIX, ReplicaSpec
from raftlog.storage.segments.live_files import LiveFile, find_live_files
from raftlog.storage.segments.walk import Walk, segment_start
from raftlog_sim.checks import copy_checks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from raftlog_sim.world.disk import SimulatedDisk
    from raftlog_sim.world.faces import SimNode

_RECOVERIES: Final = (recover_replica, salvage_replica)
_HEADER_BYTES: Final = 61
_LENGTH_AT, _EPOCH_AT, _CRC_AT, _CRC_FROM, _ATTRIBUTES_AT, _LAST_DELTA_AT = 8, 12, 17, 21, 21, 23
_CONTROL_BIT: Final = 0x20


class Prefix(NamedTuple):
    """The valid prefix of a replica's files: its last good entry. `refused`, when it is not empty,
    says that the walk refused a good batch behind it."""

    last_index: RaftIndex
    refused: str


@final
@attrs.define(eq=False)
class BootChecks:
    """Compares recoveries with the files. `judge` takes the findings to the invariants.
    `is_excused` says whether the run may have damaged a node's disk."""

    judge: "Callable[[Iterable[tuple[str, str]]], None]"
    is_excused: "Callable[[SimNode], bool]"

    def before(self, node: "SimNode", job: Job | Read) -> Prefix | None:
        """Read the prefix before a job recovers a replica; None when the job does something else,
        the disk is excused, or the files cannot be read."""
        if isinstance(job, Read) or job.function not in _RECOVERIES or self.is_excused(node):
            return None
        spec: Any = job.args[0]
        disk = node.disk.for_reading()
        if any(name.endswith(AWAY_SUFFIX) for name in disk.list(spec.path)):
            return None  # the boot gives these files their names again first
        try:
            return read_prefix(disk, spec)
        except RaftlogError:
            return None

    def after(self, node: "SimNode", job: Job | Read, there: Prefix | None, done: Event) -> None:
        """Judge the replica that the job recovered against the prefix from `before`, or the copy
        that it finished."""
        if not self.is_excused(node):
            self.judge(copy_checks.after_job(node, job, done))
        if there is None or isinstance(job, Read) or not isinstance(done, JobDone):
            return
        value = done.value
        if not isinstance(value, RecoveredReplica):
            return
        spec: Any = job.args[0]
        wrong, log = there.refused, value.log
        if value.state is ReplicaState.INTACT and not wrong:
            end = 0 if log is None else log.last_index
            if end != there.last_index:
                wrong = f"its files hold {there.last_index}, it was recovered with {end}"
        who = f"{spec.replica} of group {spec.group}: " if wrong else ""
        self.judge((("recovered-exactly", f"{who}{wrong}"),))

    def heard(self, node: "SimNode", value: object) -> Iterator[tuple[str, str]]:
        """Check a job's result that a broker hears: no undamaged replica is given up."""
        if isinstance(value, RecoveredReplica):
            lost = value.state is ReplicaState.LOST and not self.is_excused(node)
            why = f"node {node.number} gives a replica up: {value.why}; nothing was damaged"
            yield "lost-rightly", why if lost else ""


def read_prefix(disk: "SimulatedDisk", spec: ReplicaSpec) -> Prefix | None:
    """Read the valid prefix of a replica; None when its files do not continue one another."""
    files = find_live_files(disk, spec)
    if not files.live or files.beyond or files.unreadable is not None:
        return None
    last, refused = files.live[0].header.first_index - 1, ""
    for file, following in zip(files.live, [*files.live[1:], None], strict=True):
        if file.header.first_index != last + 1:
            return None
        last, refused = _last_of(disk, file, spec.group)
        if following is not None and last + 1 != following.header.first_index:
            return None
    return Prefix(RaftIndex(last), refused)


def _last_of(disk: "SimulatedDisk", file: LiveFile, group: GroupId) -> tuple[int, str]:
    """Returns a file's last good entry, and an error text when the walk refuses a good batch."""
    start = segment_start(file.header)
    with opened(disk, file.path) as open_file:
        walk = Walk(open_file, start, group, file.path)
        for _ in walk.batches(file.stop):
            pass
        place = walk.place
        if walk.fault is None:
            return place.raft_index - 1, ""
        rest = open_file.read_at(place.position, max(0, open_file.size() - place.position))
    good = _is_good(rest, place.offset, place.term)
    why = f"entry {place.raft_index} is refused, and is whole: {walk.fault}" if good else ""
    return place.raft_index - 1, why


def _is_good(rest: bytes, offset: int, term: int) -> bool:
    """Whether these bytes begin with a whole batch of records of this offset and term.

    Raft's own entries, and terms that only they begin, are left to the walk.
    """
    if len(rest) < _HEADER_BYTES:
        return False
    size = _LENGTH_AT + 4 + _number(rest, _LENGTH_AT, 4)
    if not _HEADER_BYTES <= size <= len(rest):
        return False
    if _number(rest, 0, 8) != offset or _number(rest, _EPOCH_AT, 4) != term:
        return False
    if _number(rest, _ATTRIBUTES_AT, 2) & _CONTROL_BIT or _number(rest, _LAST_DELTA_AT, 4) < 0:
        return False
    return crc32c(rest[_CRC_FROM:size]) == _number(rest, _CRC_AT, 4) & 0xFFFF_FFFF


def _number(content: bytes, at: int, size: int) -> int:
    return int.from_bytes(content[at : at + size], "big", signed=True)
