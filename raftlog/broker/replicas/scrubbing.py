"""Reads the closed segments of this broker's replicas again while it runs, to find rot at rest.

The problem: bytes that were verified once are served as slices of files, unread. A bit that flips
after that reaches clients, and a follower's rot is found only when the follower must lead.

How it works:
1. A pass walks every closed segment of every running replica, in stretches of about
   SCRUB_JOB_BYTES. One job runs at a time, as a search, so it holds up no other job.
2. A pass lasts half of `raftlog.scrub.interval.ms`, its jobs spread evenly over that time. All
   passes go in the same order, so each segment is read at least once in every interval.
3. After each job the scrubber pauses at least SCRUB_PAUSE_SHARE times as long as the job took. A
   pass that becomes late by that still runs to its end; `scrub_passes_late` counts it.
4. The scrubber reports damage to the replica as a failed read would. A replica that others can
   repair is closed and reopened through recovery; a leader hands over first.

A client that asks twice for one offset on one connection may have refused the records. The broker
then checks that stretch before it sends it again, at most once an interval.
"""

from functools import partial
from typing import Any, Final, final

import attrs

from raftlog.base.errors import CorruptData, DiskError
from raftlog.base.ids import ConnectionId, GroupId, Offset, RaftIndex
from raftlog.base.limits import (
    LOG_READ_FAILURES_MAX,
    RECHECKS_REMEMBERED_MAX,
    SCRUB_FIRST_MS_MAX,
    SCRUB_JOB_BYTES,
    SCRUB_PAUSE_SHARE,
)
from raftlog.base.ports import Entropy
from raftlog.base.probes import probe
from raftlog.base.units import Instant, Nanos, millis
from raftlog.broker.turn import Turn
from raftlog.partition.replica import PartitionReplica
from raftlog.storage.partition_log import PartitionLog
from raftlog.storage.segments.cold import ColdRead
from raftlog.storage.segments.jobs import distrust_index
from raftlog.storage.segments.scrub import StretchOrder, StretchSound, scrub_stretch
from raftlog.storage.segments.segment import Segment
from raftlog.storage.segments.walk import WalkPlace

_Place = tuple[GroupId, int, int]
"""A group, a file sequence, a position: where a stretch begins."""
_Rank = tuple[bool, GroupId, int]
"""A segment in the order of a pass: whether its group comes before the first one, the group, and
the file sequence."""
_BEFORE_ALL: Final[_Rank] = (False, GroupId(-1), 0)


@final
@attrs.define(eq=False)
class _Stretch:
    """The part of a segment that one job reads."""

    replica: PartitionReplica
    segment: Segment
    end_index: RaftIndex
    start: WalkPlace
    began: Instant

    @property
    def place(self) -> _Place:
        return self.replica.group, self.segment.header.file_sequence, self.start.position


@final
@attrs.define(eq=False)
class Scrubber:
    """One per broker. `interval_ns` is `raftlog.scrub.interval.ms`; 0 turns it off."""

    turn: Turn
    interval_ns: Nanos
    _first_group: GroupId | None = None
    """The group at which every pass begins. It is drawn once per start: a broker that often
    restarts before a pass is over then does not read the same segments each time."""
    _ends_at: Instant = Instant(0)
    _left_bytes: int = 0
    _seen: _Rank = _BEFORE_ALL
    """The last segment that this pass has read from."""
    _next: WalkPlace | None = None
    """Where its next stretch begins; None when it is done."""
    _failed: tuple[_Place | None, int] = (None, 0)
    _given: dict[tuple[ConnectionId, GroupId], Offset] = attrs.Factory(dict)
    _rechecked: dict[_Place, Instant] = attrs.Factory(dict)

    # --- passes -----------------------------------------------------------------------------------

    def start(self) -> None:
        """Set the timer of the first pass; called in the first turn.

        The pause gives replicas time to open, and differs between brokers. When every copy of a
        batch rotted, the copies are then found one after another, and the last one is kept.
        """
        if self.interval_ns:
            pause_max = min(self.interval_ns // 2, millis(SCRUB_FIRST_MS_MAX))
            pause = self._draws().below(pause_max) + 1
            self.turn.at(Instant(self.turn.now + pause), self._begin_pass)

    def _draws(self) -> Entropy:
        return self.turn.entropy.fork("scrub")

    def _begin_pass(self) -> None:
        turn = self.turn
        groups = sorted(turn.replicas)
        if self._first_group is None and groups:
            self._first_group = groups[self._draws().below(len(groups))]
        self._ends_at = Instant(turn.now + self.interval_ns // 2)
        self._seen, self._next = _BEFORE_ALL, None
        self._left_bytes = sum(
            segment.size_hint for group in groups for segment in _closed(turn.replicas[group].log)
        )
        self._step()

    def _pause_after(self, byte_count: int, took: Nanos) -> None:
        """Rest so that the bytes left spread evenly over the time left."""
        now, left = self.turn.now, max(self._left_bytes, byte_count, 1)
        self._left_bytes = left - byte_count
        paced = max(0, self._ends_at - now) * byte_count // left
        self.turn.at(Instant(now + max(paced, SCRUB_PAUSE_SHARE * took)), self._step)

    def _step(self) -> None:
        """Look at the next stretch, or end the pass."""
        stretch = self._next_stretch()
        if stretch is None:
            self._end_pass()
            return
        order = _order(stretch.replica.log, stretch.segment, stretch.start)
        done = partial(self._looked, stretch)
        self.turn.search(stretch.replica, scrub_stretch, (order,), done)

    def _next_stretch(self) -> _Stretch | None:
        """The next stretch of this pass. Reports a damaged segment again instead of reading it: by
        now another voter may be able to repair it."""
        first, replicas = self._first_group or GroupId(0), self.turn.replicas
        for group in sorted(replicas, key=partial(_rank, first=first)):
            replica = replicas[group]
            for segment in _closed(replica.log):
                place = (*_rank(group, first), segment.header.file_sequence)
                if place < self._seen or (place == self._seen and self._next is None):
                    continue
                goes_on = place == self._seen and self._next is not None
                start = self._next if goes_on else segment.start()
                self._seen, self._next = place, None
                if segment.damage is not None:
                    self._tell(replica, CorruptData(segment.damage.why, on=segment.path))
                elif start is not None and not replica.failed:
                    now = self.turn.now
                    return _Stretch(replica, segment, segment.end_index, start, now)
        return None

    def _looked(self, stretch: _Stretch, value: object) -> None:
        """Take in a job's result, which speaks only of the segment as it was then."""
        took = Nanos(self.turn.now - stretch.began)
        byte_count = SCRUB_JOB_BYTES
        if isinstance(value, StretchSound):
            byte_count, self._next, self._failed = value.byte_count, value.place, (None, 0)
            self.turn.count("scrub_bytes", byte_count)
            if value.place is None:
                self.turn.count("scrub_segments")
        elif self._is_there(stretch):
            self._judge(stretch, value)
        self._pause_after(byte_count, took)

    def _is_there(self, stretch: _Stretch) -> bool:
        """Whether the replica still runs and holds the segment as the job knew it."""
        replica, segment = stretch.replica, stretch.segment
        running = self.turn.replicas.get(replica.group) is replica
        return (
            running and segment in replica.log.segments and (segment.end_index == stretch.end_index)
        )

    def _judge(self, stretch: _Stretch, value: object) -> None:
        """Report damage, or retry a failed read a bounded number of times."""
        if isinstance(value, DiskError):
            # A disk may fail a read once. Bytes that were read and are wrong are damage at once.
            place, failed = self._failed
            failed = failed + 1 if place == stretch.place else 1
            self._failed = (stretch.place, failed)
            if failed < LOG_READ_FAILURES_MAX:
                self._next = stretch.start
                return
            path = stretch.segment.path
            on = f"{path}, entry {stretch.start.raft_index}"
            error = CorruptData(f"cannot be read again and again: {value}", on=on)
            # Otherwise the recovery would trust the index file, and not read the segment.
            done = partial(self._distrusted, stretch.replica, error)
            self.turn.job(stretch.replica.directory, distrust_index, (path,), done)
        elif isinstance(value, CorruptData):
            self._found(stretch.replica, value)
        elif isinstance(value, BaseException):
            raise value

    def _distrusted(self, replica: PartitionReplica, error: CorruptData, value: object) -> None:
        del value  # If even that job failed, the next pass finds the same damage.
        self._found(replica, error)

    def _found(self, replica: PartitionReplica, error: CorruptData) -> None:
        probe("scrub-found-damage")
        self.turn.count("scrub_damage_found")
        self.turn.trace("scrub-found-damage", replica.where, why=str(error))
        self._tell(replica, error)

    def _tell(self, replica: PartitionReplica, error: CorruptData) -> None:
        replica.damage_found(error, self.turn.now)
        self.turn.touch(replica.group)

    def _end_pass(self) -> None:
        turn = self.turn
        turn.count("scrub_passes")
        if turn.now > self._ends_at:
            turn.count("scrub_passes_late")
        turn.at(max(turn.now, self._ends_at), self._begin_pass)

    # --- what a client asks for again -------------------------------------------------------------

    def given(self, connection: ConnectionId, group: GroupId, offset: Offset) -> None:
        """Remember that a connection was sent records of this group from this offset on."""
        self._given.pop((connection, group), None)
        self._given[connection, group] = offset
        _forget_oldest(self._given)

    def recheck(
        self, connection: ConnectionId, replica: PartitionReplica, offset: Offset
    ) -> ColdRead | None:
        """A job that checks the records at an offset; None when no check is due.

        A check is due when this connection was last sent this very offset, and the place was not
        rechecked for an interval. The job's result is that of a read of the log.
        """
        if self._given.get((connection, replica.group)) != offset or not self.interval_ns:
            return None
        log = replica.log
        segment = next((each for each in _closed(log) if each.end.next_offset > offset), None)
        if segment is None or segment.damage is not None:
            return None
        point = None if segment.index is None else segment.index.at_or_below_offset(offset)
        start = segment.start()
        if point is not None:
            term = log.term_at(RaftIndex(point.raft_index - 1))
            assert term is not None, (point.raft_index, log.first_index)
            start = WalkPlace(point.raft_index, point.offset, point.position, point.chain, term)
        place = (replica.group, segment.header.file_sequence, start.position)
        now, last = self.turn.now, self._rechecked.get(place)
        if last is not None and now - last < self.interval_ns:
            return None
        probe("asked-again-and-checked")
        self.turn.count("scrub_rechecks")
        self._rechecked.pop(place, None)
        self._rechecked[place] = now
        _forget_oldest(self._rechecked)
        return ColdRead(scrub_stretch, (_order(log, segment, start),))


def _closed(log: PartitionLog) -> list[Segment]:
    """The segments that take no more entries, and whose files hold all of them.

    The next segment begins in memory before this one is written, so its existence is not enough.
    """
    durable = log.durable_index
    return [each for each in log.segments[:-1] if each.end.raft_index <= durable]


def _order(log: PartitionLog, segment: Segment, start: WalkPlace) -> StretchOrder:
    reference = segment.reference(log.spec.replica.directory, log.options.interval_bytes)
    index, reach = segment.index, start.position + SCRUB_JOB_BYTES
    checks = () if index is None else index.between(start.position, reach)
    return StretchOrder(reference, start, SCRUB_JOB_BYTES, checks)


def _rank(group: GroupId, first: GroupId) -> tuple[bool, GroupId]:
    return group < first, group


def _forget_oldest(remembered: dict[Any, Any]) -> None:
    if len(remembered) > RECHECKS_REMEMBERED_MAX:
        del remembered[next(iter(remembered))]
