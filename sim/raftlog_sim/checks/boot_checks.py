"""What a boot must make of the files of a replica, read here before it does.

Where nothing has damaged the disk, a replica is recovered with exactly the longest valid prefix of
what the disk holds, and never given up. What was durable is part of that prefix, for a power
failure takes nothing durable.

The prefix is read in two ways: by the walk that everything stored is read with, without any index,
and by a few lines of the simulator's own, which say of the first batch that the walk refuses
whether it is a bad one.
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
from raftlog.storage.segments.segment import before_header
from raftlog.storage.segments.walk import Walk, segment_start

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from raftlog_sim.world.disk import SimulatedDisk
    from raftlog_sim.world.faces import SimNode

_RECOVERIES: Final = (recover_replica, salvage_replica)
_HEADER_BYTES: Final = 61
_LENGTH_AT, _EPOCH_AT, _CRC_AT, _CRC_FROM, _ATTRIBUTES_AT, _LAST_DELTA_AT = 8, 12, 17, 21, 21, 23
_CONTROL_BIT: Final = 0x20


class Prefix(NamedTuple):
    """What the files of a replica hold: its last good entry; `refused`, when it is not empty, says
    that the batch behind it is good all the same."""

    last_index: RaftIndex
    refused: str


@final
@attrs.define(eq=False)
class BootChecks:
    """`judge` is what the invariants do with findings; `is_excused` says of which nodes the run may
    have damaged the disk."""

    judge: "Callable[[Iterable[tuple[str, str]]], None]"
    is_excused: "Callable[[SimNode], bool]"

    def before(self, node: "SimNode", job: Job | Read) -> Prefix | None:
        """What is there before a replica is recovered; None when that is not what the job does, or
        cannot be said."""
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

    def after(self, job: Job | Read, there: Prefix | None, done: Event) -> None:
        """What the boot made of it."""
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
        """A broker hears what came of a job."""
        if isinstance(value, RecoveredReplica):
            lost = value.state is ReplicaState.LOST and not self.is_excused(node)
            why = f"node {node.number} gives a replica up: {value.why}; nothing was damaged"
            yield "lost-rightly", why if lost else ""


def read_prefix(disk: "SimulatedDisk", spec: ReplicaSpec) -> Prefix | None:
    """See `Prefix`; None where files do not continue one another."""
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
    """The last good entry of a file, and what is wrong with the walk's opinion of the next one."""
    before = before_header(file.header)
    start = segment_start(
        file.header.first_index, before.next_offset, before.chain, file.header.term_before
    )
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
    """Whether these bytes begin with a whole batch of records of this offset and term. (Of Raft's
    own entries, and of terms that only they begin, the walk says more than this.)"""
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
