"""Follows a replica's log as it moves: producers, log-start markers, snapshots at rolls.

A leader tells the tracker of each batch that it appends. The raft node also changes the log by
itself: entries of another leader, truncation, Raft's own entries. The tracker finds those by
looking. Equal raft index and term mean an equal log up to there (Raft 5.3, log matching). So the
tracker remembers the runs of terms above the commit, and they show where the log was cut.
"""

from collections import deque
from typing import NamedTuple, Protocol, final

from raftlog.base.binary import Buffer
from raftlog.base.entries import Entry, EntryKind
from raftlog.base.errors import CorruptData
from raftlog.base.ids import GroupId, Offset, RaftIndex, Term
from raftlog.base.probes import probe
from raftlog.partition.producing.producer_snapshot import load_producers, write_producers
from raftlog.partition.producing.producers import ProducerTable
from raftlog.raft.log_view import RaftLog
from raftlog.records.batch import BatchHeader, is_numbered, read_header
from raftlog.records.control import (
    ControlEntry,
    parse_control_entry,
    read_log_start,
    read_marker,
    read_term_start,
)

_ALL_BYTES = 2**62


class TrackedLog(RaftLog, Protocol):
    """The part of `storage.PartitionLog` that the tracker needs."""

    def take_rolls(self) -> list[RaftIndex]:
        """The first indexes of the segments begun since the last call."""
        ...


class Snapshot(NamedTuple):
    """Producer state before the entry `before`, to be stored beside the segment that begins
    there."""

    before: RaftIndex
    body: bytes


class _Run(NamedTuple):
    """A run of entries of one term, from `first` up to the next run."""

    first: RaftIndex
    term: Term


@final
class LogTracker:
    """Follows one log.

    * `_tracked`: the last entry looked at.
    * `_runs`: the runs of terms of all entries above the commit, at least.
    * `_log_starts`: log-start markers that wait for their commit.
    """

    __slots__ = (
        "_commit",
        "_group",
        "_log",
        "_log_starts",
        "_rolls",
        "_runs",
        "_snapshots",
        "_tracked",
        "_tracked_term",
        "producers",
        "start_marker",
    )

    def __init__(self, group: GroupId, log: TrackedLog, commit: RaftIndex) -> None:
        """Begin at the log's end. The caller (boot) fills the producer table up to the last
        entry."""
        self._group = group
        self._log = log
        self._commit = commit
        self.producers = ProducerTable()
        self._log_starts: deque[tuple[RaftIndex, Offset]] = deque()
        self.start_marker = RaftIndex(0)
        self._snapshots: list[Snapshot] = []
        self._rolls: deque[RaftIndex] = deque()
        self._runs: deque[_Run] = deque()
        self._begin_at_end()

    def note_log_start(self, index: RaftIndex, log_start: Offset) -> None:
        """Take a log-start marker that a boot found above the commit hint."""
        self._log_starts.append((index, log_start))

    def appended(self, header: BatchHeader, base_offset: Offset, index: RaftIndex) -> None:
        """Follow a batch that the leader has just appended; the caller called `look` before it."""
        assert index == self._tracked + 1, (index, self._tracked)
        self._step(index, self._log.last_term)
        if header.producer_id >= 0:
            self.producers.appended(header, base_offset, index)

    def appended_unnumbered(self, first: RaftIndex, last: RaftIndex) -> None:
        """Follow appended batches without producer ids; the caller called `look` before them."""
        assert first == self._tracked + 1, (first, self._tracked)
        for index in range(first, last + 1):
            self._step(RaftIndex(index), self._log.last_term)

    def look(self) -> None:
        """Catch up with everything that happened to the log."""
        log = self._log
        if log.last_index == self._tracked and log.last_term == self._tracked_term:
            return
        if log.first_index > self._commit + 1:
            return  # an install replaced the log: the next take calls `installed`
        self._drop_truncated()
        while self._tracked < log.last_index:
            entries = log.entries(RaftIndex(self._tracked + 1), _ALL_BYTES)
            assert entries, (self._tracked, log.last_index)
            for entry in entries:
                self._take(entry)

    def committed(self, index: RaftIndex) -> Offset | None:
        """Follow the commit; returns the highest log start of the newly committed markers, or None.

        `start_marker` is the index of that marker. The last marker is not always the highest: a
        client may ask for a lower log start while a higher one is under way.
        """
        self._commit = index
        self.producers.committed(index)
        while len(self._runs) > 1 and self._runs[1].first <= index:
            self._runs.popleft()
        log_start = None
        while self._log_starts and self._log_starts[0][0] <= index:
            marker, offset = self._log_starts.popleft()
            if log_start is None or offset > log_start:
                self.start_marker, log_start = marker, offset
        return log_start

    def installed(self, index: RaftIndex, snapshot: Buffer) -> None:
        """Begin again after `index`, where an install replaced the log, from a producer snapshot.

        The log has judged the snapshot. Raises `CorruptData` when it is damaged all the same.
        """
        before = RaftIndex(index + 1)
        load_producers(
            self.producers, snapshot, group=self._group, before=before, error=CorruptData
        )
        self._commit = index
        self._log_starts.clear()
        self._snapshots.clear()
        self._rolls = deque(one for one in self._log.take_rolls() if one > before)
        self._begin_at(index)
        self.look()

    def take_snapshots(self, commit: RaftIndex) -> list[Snapshot]:
        """The producer snapshots to be stored now: those whose whole content is committed.

        So no file holds changes that a truncation takes back.
        """
        if not self._snapshots:
            return []
        ready = [one for one in self._snapshots if one.before - 1 <= commit]
        self._snapshots = [one for one in self._snapshots if one.before - 1 > commit]
        return ready

    def _begin_at_end(self) -> None:
        """At a boot, take the runs above the commit from the log's own term table."""
        log = self._log
        self._tracked, self._tracked_term = log.last_index, log.last_term
        index = log.last_index
        while index > self._commit:
            term = log.term_at(index)
            assert term is not None, index
            first = log.first_index_of(term)
            assert first is not None, term
            self._runs.appendleft(_Run(first, term))
            index = RaftIndex(first - 1)

    def _begin_at(self, index: RaftIndex) -> None:
        term = self._log.term_at(index)
        assert term is not None, index
        self._tracked, self._tracked_term = index, term
        self._runs.clear()

    def _drop_truncated(self) -> None:
        """Find the last tracked entry that the log still holds, and forget all above it."""
        log = self._log
        if log.last_index >= self._tracked and log.term_at(self._tracked) == self._tracked_term:
            return
        probe("tracked-log-truncated")
        kept = self._commit
        while self._runs:
            run = self._runs[-1]
            last = min(self._tracked, log.last_index, log.last_index_at_or_below(run.term))
            if last >= run.first and log.term_at(last) == run.term:
                kept = max(kept, last)
                break
            self._runs.pop()
            self._tracked = RaftIndex(run.first - 1)
        term = log.term_at(kept)
        assert term is not None, (kept, log.first_index)
        self._tracked, self._tracked_term = kept, term
        gone = RaftIndex(kept + 1)
        self.producers.truncated_from(gone)
        while self._log_starts and self._log_starts[-1][0] >= gone:
            probe("log-start-marker-truncated")
            self._log_starts.pop()
        self._snapshots = [one for one in self._snapshots if one.before <= gone]
        while self._rolls and self._rolls[-1] > gone:
            self._rolls.pop()

    def _take(self, entry: Entry) -> None:
        self._step(entry.raft_index, entry.term)
        if entry.kind is EntryKind.RECORDS:
            if is_numbered(entry.batch):
                header = read_header(entry.batch)
                self.producers.appended(header, entry.base_offset, entry.raft_index)
            return
        if entry.kind is EntryKind.MEMBERSHIP:
            return
        control = parse_control_entry(entry.batch, CorruptData, f"group {self._group}")
        if entry.kind is EntryKind.LOG_START:
            self._log_starts.append((entry.raft_index, read_log_start(control.body)))
        else:
            timestamp_ms = read_header(entry.batch).max_timestamp
            note_control(self.producers, control, timestamp_ms)

    def _step(self, index: RaftIndex, term: Term) -> None:
        """Move to the entry `index`: snapshot the producers if a segment begins with it, and note
        its term."""
        rolls = self._log.take_rolls()
        if rolls:
            self._rolls = deque(sorted((*self._rolls, *rolls)))
        while self._rolls and self._rolls[0] <= index:
            if self._rolls.popleft() == index:
                body = write_producers(self.producers, group=self._group, before=index)
                self._snapshots.append(Snapshot(index, body))
        if not self._runs or self._runs[-1].term != term:
            self._runs.append(_Run(index, term))
        self._tracked, self._tracked_term = index, term


def note_control(producers: ProducerTable, control: ControlEntry, timestamp_ms: int) -> None:
    """Let the producer table follow a term start or a marker: it moves the log's clock and carries
    a cut-off."""
    if control.kind is EntryKind.TERM_START:
        cut_off_ms = read_term_start(control.body).producers_expire_before_ms
    elif control.kind is EntryKind.MARKER:
        cut_off_ms = read_marker(control.body).producers_expire_before_ms
    else:
        return
    producers.control_appended(timestamp_ms, cut_off_ms, control.raft_index)
