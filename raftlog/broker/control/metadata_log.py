"""Reads and writes the log of the metadata group: a replica like any other, one command a record.

Committed entries come from the log's memory. Older ones (at boot, or after a long absence) come by
a cold read off the loop. A record's position is its offset.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, final

import attrs

from raftlog.base.entries import Entry, EntryKind
from raftlog.base.errors import CorruptData
from raftlog.base.ids import METADATA_GROUP, NodeId, RaftIndex, Term
from raftlog.base.limits import APPEND_BYTES_MAX
from raftlog.base.probes import probe
from raftlog.base.units import NEVER, Instant, WallMillis, millis
from raftlog.broker.turn import Turn
from raftlog.partition.replica import PartitionReplica
from raftlog.records.builder import RecordBatchBuilder
from raftlog.records.record import records_of
from raftlog.storage.segments.cold import EntriesRead

_ON: Final = "metadata log"
_AGAIN_NS: Final = millis(100)
_FAILURES_MAX: Final = 3
"""Failed reads in a row before the replica is recovered: a disk may have a bad moment."""


@final
class CommittedRecord(NamedTuple):
    """One committed record. `position` is its offset in `__cluster_metadata`-0.

    It rises by exactly one from record to record, from 0.
    """

    position: int
    value: bytes


@final
@attrs.define(eq=False)
class MetadataLog:
    """Hands over committed records in order.

    `next_index` is the first entry not handed over. `wake` is called when a cold read brought more.
    `_read_until` is the commit index when the read was asked for, and only entries up to it count:
    later ones may be cut, and others committed in their places, before the read returns.
    `_unreadable`: damage was reported, and nothing was read or handed over since.
    """

    turn: Turn
    wake: Callable[[], None] | None = None
    next_index: RaftIndex = RaftIndex(1)
    next_position: int = 0
    _reading: bool = False
    _read_until: RaftIndex = RaftIndex(0)
    _failures: int = 0
    _unreadable: bool = False
    _jumped: bool = False
    _read: list[Entry] = attrs.Factory(list)

    @property
    def leader(self) -> NodeId | None:
        """The node believed to lead group 0."""
        replica = self._replica()
        return None if replica is None or replica.leader is None else replica.leader.node

    @property
    def leading_term(self) -> Term | None:
        """The term in which this node leads and has committed; None also while it hands over."""
        replica = self._replica()
        if replica is None or not (replica.is_leader and replica.ready):
            return None
        return replica.term

    @property
    def caught_up(self) -> bool:
        """Whether everything in the log is committed and was handed over."""
        replica = self._replica()
        return replica is not None and self.next_index > replica.log.last_index

    @property
    def behind(self) -> bool:
        """Whether there are committed entries that the disk must bring, and can.

        Entries in memory do not count: they are handed over in the turn in which they are
        committed. Nor do those on a damaged disk: that replica may need a leader to be healed.
        """
        replica = self._replica()
        if replica is None or self._unreadable:
            return False
        first = max(self.next_index, replica.log.first_index)
        if first > min(replica.commit, replica.log.last_index):
            return False
        return self._reading or replica.log.entries(first, 1) is None

    def propose(self, values: Sequence[bytes], now: Instant, wall_ms: WallMillis) -> bool:
        """Append records, as batches of at most about a megabyte."""
        replica = self._replica()
        if replica is None or self.leading_term is None:
            return False
        for batch in _batches(values, wall_ms):
            replica.propose_batch(batch, now, wall_ms)
        self.turn.touch(METADATA_GROUP)
        return True

    def committed(self) -> Sequence[CommittedRecord]:
        """The committed records at hand that were not handed over."""
        replica = self._replica()
        if replica is None or self._reading:
            return ()
        if self.next_index < replica.log.first_index:
            self._jump(replica.log.first_index)
        found: list[CommittedRecord] = []
        self._take(self._read, replica.commit, found)
        self._read = []
        while self.next_index <= replica.commit:
            entries = replica.log.entries(self.next_index, APPEND_BYTES_MAX)
            if entries is None:
                self._read_cold(replica)
                break
            self._take(entries, replica.commit, found)
        return found

    def trim(self, position: int, now: Instant, wall_ms: WallMillis) -> None:
        """Move the log start; once that is committed, every replica removes segments below it.

        If it is refused, or lost with the leadership, the next snapshot asks again.
        """
        replica = self._replica()
        if replica is None or self.leading_term is None:
            return
        replica.delete_records(position, NEVER, _trimmed, now, wall_ms)
        self.turn.touch(METADATA_GROUP)

    def _jump(self, first: RaftIndex) -> None:
        """Continue at the first entry of a log that begins later than the last one handed over."""
        probe("metadata-log-begins-later")
        self.next_index = first
        self._read = []
        self._jumped = True
        self._unreadable = False

    def _replica(self) -> PartitionReplica | None:
        return self.turn.replicas.get(METADATA_GROUP)

    def _take(
        self, entries: Sequence[Entry], commit: RaftIndex, found: list[CommittedRecord]
    ) -> None:
        for entry in entries:
            if entry.raft_index != self.next_index or entry.raft_index > commit:
                continue
            if entry.kind is EntryKind.RECORDS:
                self._take_records(entry, found)
            self.next_index = RaftIndex(entry.raft_index + 1)
            self._unreadable = False

    def _take_records(self, entry: Entry, found: list[CommittedRecord]) -> None:
        if self._jumped:
            self._jumped = False
            assert entry.base_offset >= self.next_position, (entry, self.next_position)
            self.next_position = entry.base_offset
        for record in records_of(entry.batch, CorruptData, _ON):
            assert record.offset == self.next_position, (record.offset, self.next_position)
            found.append(CommittedRecord(self.next_position, record.value or b""))
            self.next_position += 1

    def _read_cold(self, replica: PartitionReplica) -> None:
        probe("metadata-read-cold")
        self._reading = True
        self._read_until = replica.commit
        plan = replica.log.plan_entries(self.next_index, APPEND_BYTES_MAX)
        self.turn.job(replica.directory, plan.function, plan.args, self._cold_done)

    def _cold_done(self, value: object) -> None:
        """Take the result of a cold read; a failed one is repeated.

        This replica has to read these entries some day. Damage is reported to the replica:
        otherwise, in a group at rest, the image would stay old.
        """
        self._reading = False
        replica = self._replica()
        if isinstance(value, EntriesRead):
            self._failures = 0
            self._unreadable = False
            if replica is not None:
                replica.log.cold_done(value)
            until = self._read_until
            self._read = [entry for entry in value.entries if entry.raft_index <= until]
            if self.wake is not None:
                self.turn.soon(self.wake)
            return
        probe("metadata-read-failed")
        self._failures += 1
        if replica is None:
            return
        if isinstance(value, CorruptData) or self._failures >= _FAILURES_MAX:
            self._failures = 0
            self._unreadable = True
            error = value if isinstance(value, CorruptData) else CorruptData(str(value), on=_ON)
            replica.damage_found(error, self.turn.now)
            self.turn.touch(METADATA_GROUP)
        elif self.wake is not None:
            self.turn.at(Instant(self.turn.now + _AGAIN_NS), self.wake)


def _trimmed(answer: object) -> None:
    """Ignore whether the log start moved: no request waits for it."""


def _batches(values: Sequence[bytes], wall_ms: WallMillis) -> list[bytes]:
    batches: list[bytes] = []
    builder = RecordBatchBuilder()
    for value in values:
        if builder.count and builder.size + len(value) > APPEND_BYTES_MAX:
            batches.append(builder.build())
            builder = RecordBatchBuilder()
        builder.append(value, timestamp_ms=wall_ms)
    batches.append(builder.build())
    return batches
