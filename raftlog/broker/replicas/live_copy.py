"""Copies a replica to another log directory of its broker while the replica serves.

How it works:

1. A pass copies what was durable when it began, oldest segment first, in stretches. Each stretch is
   a job of DIRECTORY_COPY_JOB_BYTES at most, and durable when it is done. Other jobs of the broker
   run between two of them.
2. A stretch waits until the throttle `replica.alter.log.dirs.io.max.bytes.per.second` gives it a
   slot. A wait is cut in pieces, so that a changed rate counts soon.
3. Passes follow one another until the copy lacks DIRECTORY_COPY_TAIL_BYTES at most. Where more is
   written than the throttle lets through, that never happens, as in Kafka.

No byte before the durable end of a log is ever written again, so what was copied stays right.
`raftlog.storage.directories.directory_move` says why, and copies the rest once the replica stopped.
A replica that was reopened meanwhile may have a shorter active file: that file is copied again.
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple, final

import attrs

from raftlog.base.errors import OperatingError, RaftlogError
from raftlog.base.ids import DirectoryId, Offset
from raftlog.base.limits import DIRECTORY_COPY_JOB_BYTES, DIRECTORY_COPY_TAIL_BYTES
from raftlog.base.probes import probe
from raftlog.base.units import MIB, Instant, Nanos, millis
from raftlog.broker.replicas.hosts import Host
from raftlog.broker.turn import Turn
from raftlog.partition.replica import PartitionReplica
from raftlog.raft.throttle import UNTHROTTLED, Throttle
from raftlog.storage.directories.directory_move import (
    StretchCopied,
    StretchToCopy,
    begin_copy,
    copy_stretch,
)
from raftlog.storage.partition_log import PartitionLog
from raftlog.storage.replica import index_name, snapshot_name
from raftlog.storage.segments.segment import Segment

_LOOK_NS: Final[Nanos] = millis(500)
"""How often a copy looks whether the rate changed, or whether its replica runs again."""
_ABSENT_LOOKS_MAX: Final = 120
"""So many looks in a row the replica may be closed; then the move fails, and others have a turn."""
_STRETCHES_PER_SECOND: Final = 4
_STRETCH_BYTES_MIN: Final = 256
_LOOK_BACK_BYTES: Final = 2 * MIB
"""So much of a segment's index is searched for how far a copy is. Its points lie closer."""


class _Target(NamedTuple):
    """A segment that a pass copies: to its end when it is closed, else up to `limit`. Records below
    the offset `end` are then in the copy."""

    segment: Segment
    name: str
    limit: int | None
    end: Offset


@final
@attrs.define(eq=False)
class LiveCopy:
    """One copy. `then` is called once: with None when only the tail is left, else with the error.
    `wanted` says whether anybody still wants the copy; `then` gets None as well when not."""

    turn: Turn
    directory: DirectoryId
    host: Host
    old: str
    new: str
    throttle: Throttle
    wanted: Callable[[], bool]
    then: Callable[[RaftlogError | None], None]
    replica: PartitionReplica | None = None
    """The running replica that the copy is of."""
    byte_count: int = 0
    _offset: Offset = Offset(0)
    """Records below it are in the copy, by the segments that are behind it."""
    _copied: dict[str, int] = attrs.Factory(dict)
    """Name of a segment -> bytes of its beginning that the copy has."""
    _whole: dict[str, None] = attrs.Factory(dict)
    """Segments that are closed, and copied to their end."""
    _targets: deque[_Target] = attrs.Factory(deque)
    _began: bool = False
    _absent: int = 0

    def begin(self) -> None:
        """Make the directory of the copy, and copy."""
        self.turn.job(self.directory, begin_copy, (self.new,), self._prepared)

    @property
    def offset(self) -> Offset:
        """Records below it are in the copy; a few more may be."""
        index = self._targets[0].segment.index if self._targets else None
        if index is None:
            return self._offset
        end = self._copied.get(self._targets[0].name, 0)
        points = index.between(max(0, end - _LOOK_BACK_BYTES), end)
        known = [point.offset for point in points if point.position <= end]
        return max(self._offset, known[-1]) if known else self._offset

    @property
    def copied(self) -> tuple[tuple[str, int], ...]:
        """The segments, each with the bytes that were copied, for `finish_copy`."""
        return tuple(self._copied.items())

    def _prepared(self, value: object) -> None:
        if isinstance(value, RaftlogError):
            self.then(value)
        else:
            self.go_on()

    def go_on(self) -> None:
        """Copy the next stretch, or end. Called again when the replica was reopened later."""
        replica = self.host.replica
        if not self.wanted():
            self.then(None)
        elif replica is None:
            self._wait_for_the_replica()
        elif replica is not self.replica:
            self._take_up(replica)
            self.go_on()
        elif self._targets:
            self._reserve()
        elif self._began and self._lacks(replica.log) <= DIRECTORY_COPY_TAIL_BYTES:
            self.then(None)
        else:
            self._begin_pass(replica.log)

    def _wait_for_the_replica(self) -> None:
        self._absent += 1
        if self._absent > _ABSENT_LOOKS_MAX:
            why = self.host.why or "the replica does not run"
            self.then(OperatingError(why, on=self.old, do="ask again once it runs"))
            return
        self.turn.at(Instant(self.turn.now + _LOOK_NS), self.go_on)

    def _take_up(self, replica: PartitionReplica) -> None:
        """Forget what may have become shorter: recovery cuts a torn tail, of the active file."""
        if self.replica is not None:
            probe("copied-replica-was-reopened")
        self.replica, self._absent, self._began = replica, 0, False
        self._targets.clear()
        self._copied = {name: size for name, size in self._copied.items() if name in self._whole}

    def _begin_pass(self, log: PartitionLog) -> None:
        durable = log.durable_file
        if durable is None:  # an install is on its way to the disk
            self.turn.at(Instant(self.turn.now + _LOOK_NS), self.go_on)
            return
        if self._began:
            probe("another-pass-of-a-copy")
        self._began = True
        for segment in log.segments:
            sequence, name = segment.header.file_sequence, _name_of(segment)
            if sequence < durable.file_sequence and name not in self._whole:
                # The younger file is durable, so no write to this one is on its way any more.
                self._targets.append(_Target(segment, name, None, segment.end.next_offset))
            elif sequence == durable.file_sequence and self._lacks_of(name, durable.position):
                end = durable.end.next_offset
                self._targets.append(_Target(segment, name, durable.position, end))
        if self._targets or self._lacks(log) <= DIRECTORY_COPY_TAIL_BYTES:
            self.go_on()
        else:  # what it lacks is not durable yet
            self.turn.at(Instant(self.turn.now + _LOOK_NS), self.go_on)

    def _lacks(self, log: PartitionLog) -> int:
        """About how many log bytes the copy does not have yet."""
        return sum(self._lacks_of(_name_of(each), each.size_hint) for each in log.segments)

    def _lacks_of(self, name: str, size: int) -> int:
        return max(0, size - self._copied.get(name, 0))

    # --- stretches --------------------------------------------------------------------------------

    def _reserve(self) -> None:
        """Wait until the throttle lets the next stretch through."""
        rate, now = self.throttle.rate, self.turn.now
        if rate == UNTHROTTLED:
            self._copy(DIRECTORY_COPY_JOB_BYTES, 0)
            return
        size = max(_STRETCH_BYTES_MIN, min(DIRECTORY_COPY_JOB_BYTES, rate // _STRETCHES_PER_SECOND))
        self._wait(self.throttle.reserve(now, size), size, self.throttle.changes)

    def _wait(self, due: Instant, size: int, changes: int) -> None:
        if self.throttle.changes != changes or not self.wanted():
            self.go_on()  # the slot is void, or of no use
        elif self.turn.now >= due:
            self._copy(size, size)
        else:
            probe("copy-waits-for-its-throttle")
            at = min(due, Instant(self.turn.now + _LOOK_NS))
            self.turn.at(at, self._wait, due, size, changes)

    def _copy(self, bytes_max: int, reserved: int) -> None:
        """Copy the next stretch. The replica may have been reopened while the copy waited."""
        if self.host.replica is not self.replica or not self.wanted():
            self.go_on()
            return
        target = self._targets[0]
        position = self._copied.get(target.name, 0)
        beside: tuple[str, ...] = ()
        if target.limit is None:
            beside = (index_name(target.name), snapshot_name(target.segment.first_index))
        else:
            assert position < target.limit, (target, position)
            bytes_max = min(bytes_max, target.limit - position)
        order = StretchToCopy(self.old, self.new, target.name, position, bytes_max, beside)
        done = partial(self._stretch_done, target, reserved)
        self.turn.job(self.directory, copy_stretch, (order,), done)

    def _stretch_done(self, target: _Target, reserved: int, value: object) -> None:
        if isinstance(value, RaftlogError):
            self.then(value)
            return
        assert value is None or isinstance(value, StretchCopied), value
        byte_count = 0 if value is None else value.byte_count
        self._settle(byte_count - reserved)
        self.turn.count("directory_copy_bytes", byte_count)
        if value is None:
            probe("copied-segment-was-removed")
            self._copied.pop(target.name, None)
            self._done_with(target)
        else:
            self.byte_count += byte_count
            size = self._copied.get(target.name, 0) + byte_count
            self._copied[target.name] = size
            if target.limit is None and value.whole:
                self._whole[target.name] = None
            if value.whole or size == target.limit:
                self._done_with(target)
        self.go_on()

    def _done_with(self, target: _Target) -> None:
        """The pass is behind that segment."""
        assert self._targets.popleft() is target, target
        self._offset = max(self._offset, target.end)

    def _settle(self, byte_count: int) -> None:
        if self.throttle.rate != UNTHROTTLED and byte_count:
            self.throttle.settle(byte_count)


def _name_of(segment: Segment) -> str:
    return segment.path.rpartition("/")[2]
