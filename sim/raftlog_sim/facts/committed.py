"""The committed entries of one group, read once, from the log of the replica that committed first.

They give the place of each batch, its producer, and what the markers and memberships say. A simple
twin of the product's table follows the producers, so that the two can be compared after any entry.

`whole` is False for a group of which some entry was in no memory any more when it was read. The
checks then believe nothing here but the membership, which the log itself remembers (seed 6303549).
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple, final

import attrs

from raftlog.base.entries import Entry, EntryKind, Membership
from raftlog.base.errors import CorruptData
from raftlog.base.ids import GroupId, RaftIndex
from raftlog.partition.replica import PartitionReplica
from raftlog.records.batch import BatchHeader, read_header
from raftlog.records.control import parse_control_entry, read_log_start, read_membership_body
from raftlog.storage.partition_log import PartitionLog
from raftlog.storage.segments.walk import TERM_BEGINNERS
from raftlog_sim.facts.producer_twin import NONE, SEQUENCES, ProducerTwin, ProducerTwins

if TYPE_CHECKING:
    from raftlog_sim.facts.group_log import GroupLog
    from raftlog_sim.world.node import Node

_ALL_BYTES: Final = 2**62
_RECORDS: Final = EntryKind.RECORDS
_ON: Final = "committed entry"
Logs = Iterable[PartitionLog]


class Stored(NamedTuple):
    """A committed batch of records. `identity` is producer id, epoch and first sequence of a
    numbered batch, else the CRC. `latest_ms` is its largest timestamp; the producers of a run do
    not lie."""

    raft_index: int
    term: int
    base_offset: int
    next_offset: int
    identity: tuple[int, ...]
    latest_ms: int


class After(NamedTuple):
    """The state of the log after an entry."""

    term: int
    producers: ProducerTwins


def identity_of(header: BatchHeader) -> tuple[int, ...]:
    """Returns the identity of a batch, as in `Stored`."""
    if header.producer_id < 0:
        return (header.crc,)
    return (header.producer_id, header.producer_epoch, header.base_sequence)


@final
@attrs.define(eq=False)
class CommittedFacts:
    """The committed entries. `starts` are the log-start markers: (raft index, highest log start so
    far). `membership` is the last committed one."""

    end: int = 0
    last_term: int = 0
    next_offset: int | None = 0
    """The offset after `end`; None when it is unknown, since the entries were in no memory."""
    whole: bool = True
    batches: list[Stored] = attrs.Factory(list)
    starts: list[tuple[int, int]] = attrs.Factory(list)
    membership: Membership | None = None
    epochs: list[tuple[int, int]] = attrs.Factory(lambda: [(0, 0)])
    """Each epoch that began, with its first offset; epoch 0 is before the first. The epochs of
    entries that were in no memory are missing."""
    after: list[After] = attrs.Factory(lambda: [After(0, NONE)])
    """The state after each entry, by raft index; complete while `whole`."""
    sizes: list[tuple[int, int, int]] = attrs.Factory(list)
    """Raft index, base offset and size in bytes of each entry; complete while `whole`."""
    groups: "GroupLog | None" = None
    """The records about groups, for a partition of the internal topic; else None."""

    def follow(
        self, log: PartitionLog, commit: RaftIndex, others: Callable[[], Logs]
    ) -> tuple[tuple[str, str], ...]:
        """Take the entries up to `commit`, which are committed; returns (invariant, error or "")
        pairs.

        Entries that this log no longer has in memory come from the `others`.
        """
        first, self.end = RaftIndex(self.end + 1), commit
        entries = _held(log, first) or _held_by_others(log, first, commit, others())
        if not entries:
            self.whole, self.next_offset = False, None
            told = [membership for index, membership in log.memberships if index <= commit]
            self.membership = told[-1] if told else self.membership
        problem = misplaced = ""
        said: list[tuple[str, str]] = []
        for entry in entries:
            if entry.raft_index > commit:
                break
            header = read_header(entry.batch)
            misplaced = misplaced or self._misplaced(entry, header)
            if entry.kind is _RECORDS:
                problem = self._records(entry, header) or problem
                if self.groups is not None and self.whole:
                    said += self.groups.take(entry)
            else:
                self._control(entry)
            if self.whole:
                self.sizes.append((entry.raft_index, entry.base_offset, len(entry.batch)))
                said_so_far = self.after[-1].producers
                self.after.append(After(entry.term, said_so_far.after(entry, header)))
            if entry.term != self.last_term:
                self.epochs.append((entry.term, entry.base_offset))
            self.last_term, self.next_offset = entry.term, entry.next_offset
        return ("producers-ascend", problem), ("offsets-dense", misplaced), *said

    @property
    def log_start(self) -> int:
        """Returns the log start according to all markers."""
        return self.starts[-1][1] if self.starts else 0

    def log_start_at(self, index: int) -> int:
        """Returns the log start for a replica that applied the entries up to `index`."""
        place = bisect_right(self.starts, index, key=lambda pair: pair[0])
        return self.starts[place - 1][1] if place else 0

    def batch_at(self, base_offset: int) -> Stored | None:
        """Returns the batch that begins at this offset."""
        place = bisect_right(self.batches, base_offset, key=attrgetter("base_offset"))
        found = self.batches[place - 1] if place else None
        return found if found is not None and found.base_offset == base_offset else None

    def table_differs(self, replica: PartitionReplica) -> str:
        """Returns how a replica's producers differ from those of its log; "" when they do not.

        The log consists of its committed entries and those that it holds beyond.
        """
        log = replica.log
        index = RaftIndex(min(log.last_index, len(self.after) - 1))
        while index > replica.commit and log.term_at(index) != self.after[index].term:
            index = RaftIndex(index - 1)
        rest = _held(log, RaftIndex(index + 1)) if index < log.last_index else []
        if not self.whole or (index < log.last_index and not rest):
            return ""
        expected = self.after[index].producers
        for entry in rest:
            expected = expected.after(entry, read_header(entry.batch))
        differs = expected.differs(replica._tracker.producers)
        return f"after entry {log.last_index} {replica.me} has {differs}" if differs else ""

    def _misplaced(self, entry: Entry, header: BatchHeader) -> str:
        """Returns an error when an entry breaks the dense order of offsets; "" when it does not.

        Each batch begins where the one before ended, and Raft's own entries take no offset. The
        epoch of a batch is the term of the last entry that began a term.
        """
        said = (header.base_offset, header.leader_epoch)
        records = header.last_offset_delta + 1 if entry.kind is _RECORDS else 0
        wrong = (
            said != (entry.base_offset, entry.term)
            or entry.next_offset != entry.base_offset + records
            or (records == 0 and entry.kind is _RECORDS)
        )
        if self.next_offset is not None and not wrong:
            begun = entry.term == self.last_term or entry.kind in TERM_BEGINNERS
            wrong = entry.base_offset != self.next_offset or not begun
        if not wrong:
            return ""
        return (
            f"{entry.kind.name} entry {entry.raft_index} of term {entry.term} has offsets "
            f"{entry.base_offset} to {entry.next_offset}, its batch says (offset, epoch) {said} "
            f"and {records} records; before it: {self.next_offset}, term {self.last_term}"
        )

    def _records(self, entry: Entry, header: BatchHeader) -> str:
        offset, identity = int(entry.base_offset), identity_of(header)
        self.batches.append(
            Stored(
                entry.raft_index,
                entry.term,
                offset,
                entry.next_offset,
                identity,
                header.max_timestamp,
            )
        )
        if header.producer_id < 0:
            return ""
        before = self.after[-1].producers.states.get(header.producer_id)
        return _gap(before, header) if before is not None and self.whole else ""

    def _control(self, entry: Entry) -> None:
        control = parse_control_entry(entry.batch, CorruptData, _ON)
        kind = entry.kind
        if kind is EntryKind.MEMBERSHIP:
            self.membership = read_membership_body(control.body)
        elif kind is EntryKind.LOG_START:
            start = max(self.log_start, read_log_start(control.body))
            self.starts.append((entry.raft_index, start))


def logs_of(node: "Node", group: GroupId) -> list[PartitionLog]:
    """Returns the logs of the group that are in the memory of the world's running nodes."""
    found = [each.broker.context.replicas.get(group) for each in node.world.running()]
    return [replica.log for replica in found if replica is not None]


def _held(log: PartitionLog, first: RaftIndex) -> list[Entry]:
    """Returns the entries of a log from `first` on; none when they are not in memory."""
    if not log.first_index <= first <= log.last_index:
        return []
    return log.entries(first, _ALL_BYTES) or []


def _held_by_others(
    log: PartitionLog, first: RaftIndex, commit: RaftIndex, others: Logs
) -> list[Entry]:
    """Returns the entries from another log with the same term at `commit`: equal up to there."""
    for other in others:
        if other.last_index >= commit and other.term_at(commit) == log.term_at(commit):
            entries = _held(other, first)
            if entries:
                return entries
    return []


def _gap(before: ProducerTwin, header: BatchHeader) -> str:
    """Returns what is wrong with a batch after the earlier batches of its producer; "" for
    nothing."""
    epoch, first = header.producer_epoch, header.base_sequence
    follows = (before.spans[-1][1] + 1) % SEQUENCES if epoch == before.epoch else 0
    if epoch >= before.epoch and first == follows:
        return ""
    return (
        f"at offset {header.base_offset} producer {header.producer_id} goes on with sequence "
        f"{first} of epoch {epoch}, after {before.spans[-1][1]} of epoch {before.epoch}"
    )
