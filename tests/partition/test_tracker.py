"""Goal: however the log moves between two looks, the tracker ends where a replay of the log
ends."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from raftlog.base.entries import Entry, EntryKind
from raftlog.base.ids import DirectoryId, NodeId, Offset, RaftIndex, ReplicaEpoch, ReplicaId, Term
from raftlog.base.units import WallMillis
from raftlog.partition.producing.producer_snapshot import load_producers, write_producers
from raftlog.partition.producing.producers import ProducerTable
from raftlog.partition.tracker import LogTracker, note_control
from raftlog.records.batch import patch, read_header
from raftlog.records.control import (
    Marker,
    TermStart,
    build_control_entry,
    parse_control_entry,
    write_log_start,
    write_marker,
    write_term_start,
)
from tests.partition.group import batch_of
from tests.raft.memory_log import MemoryLog

GROUP = 3
LEADER = ReplicaId(NodeId(1), DirectoryId(1), ReplicaEpoch(1))


class RollingLog:
    """A MemoryLog that also names segments begun, as storage does."""

    def __init__(self):
        self.log = MemoryLog()
        self.rolls = []

    def __getattr__(self, name):
        return getattr(self.log, name)

    def take_rolls(self):
        rolls, self.rolls = self.rolls, []
        return rolls


def add_records(log, term, pid, sequence, count=1):
    batch = bytearray(batch_of(*[b"x"] * count, pid=pid, epoch=0, first=sequence, timestamp_ms=9))
    patch(batch, log.next_offset, term)
    base = log.next_offset
    index = RaftIndex(log.last_index + 1)
    log.append([Entry(index, term, EntryKind.RECORDS, base, Offset(base + count), bytes(batch))])


def add_control(log, term, kind, body, timestamp_ms=0):
    entry = build_control_entry(
        kind,
        group=GROUP,
        term=term,
        raft_index=RaftIndex(log.last_index + 1),
        base_offset=log.next_offset,
        timestamp_ms=WallMillis(timestamp_ms),
        body=body,
    )
    log.append([entry])


def add_term_start(log, term, cut=-1, timestamp_ms=0):
    body = write_term_start(TermStart(LEADER, WallMillis(cut)))
    add_control(log, term, EntryKind.TERM_START, body, timestamp_ms)


def add_log_start(log, term, offset):
    add_control(log, term, EntryKind.LOG_START, write_log_start(Offset(offset)))


def replayed(entries):
    """The dumb twin: everything from the beginning."""
    table = ProducerTable()
    for entry in entries:
        header = read_header(entry.batch)
        if entry.kind is EntryKind.RECORDS:
            if header.producer_id >= 0:
                table.appended(header, entry.base_offset, entry.raft_index)
        else:
            control = parse_control_entry(entry.batch, ValueError, "test")
            note_control(table, control, header.max_timestamp)
    return table


def started():
    log = RollingLog()
    add_term_start(log, Term(1))
    return log, LogTracker(GROUP, log, RaftIndex(0))


class TrackerAgainstReplay(RuleBasedStateMachine):
    """Appends, truncations (each by a new term, as Raft has it), commits, rolls; looks at
    random."""

    def __init__(self):
        super().__init__()
        self.log = RollingLog()
        self.tracker = LogTracker(GROUP, self.log, RaftIndex(0))
        self.term = 0
        self.commit = 0
        self.starts = 0
        self.sequences = {}
        self.stored = []
        self.new_term(-1, 0)

    @rule(cut=st.integers(-1, 30), time=st.integers(0, 30))
    def new_term(self, cut, time):
        self.term += 1
        add_term_start(self.log, Term(self.term), cut, time)

    @rule(pid=st.integers(0, 3), count=st.integers(1, 3))
    def produce(self, pid, count):
        sequence = self.sequences.get(pid, 0)
        add_records(self.log, Term(self.term), pid, sequence, count)
        self.sequences[pid] = sequence + count

    @rule(cut=st.integers(-1, 30), time=st.integers(0, 30))
    def marker(self, cut, time):
        body = write_marker(Marker(WallMillis(cut), b""))
        add_control(self.log, Term(self.term), EntryKind.MARKER, body, time)

    @rule(offset=st.integers(0, 50))
    def log_start(self, offset):
        add_log_start(self.log, Term(self.term), offset)

    @rule()
    def roll(self):
        """The next entry begins a segment."""
        self.log.rolls.append(RaftIndex(self.log.last_index + 1))

    @precondition(lambda self: self.log.last_index > self.commit)
    @rule(keep=st.integers(0, 5), cut=st.integers(-1, 30), time=st.integers(0, 30))
    def another_leader(self, keep, cut, time):
        index = RaftIndex(min(self.log.last_index, self.commit + 1 + keep))
        self.log.rolls = [roll for roll in self.log.rolls if roll < index]
        self.log.truncate_from(index)
        self.new_term(cut, time)

    @rule()
    def look(self):
        self.tracker.look()

    @rule(steps=st.integers(1, 6))
    def move_commit(self, steps):
        self.tracker.look()
        self.commit = min(self.log.last_index, self.commit + steps)
        told = self.tracker.committed(RaftIndex(self.commit))
        starts = [e for e in self.log.all_entries if e.kind is EntryKind.LOG_START]
        ripe = [e for e in starts if self.starts < e.raft_index <= self.commit]
        said = [parse_control_entry(e.batch, ValueError, "test").body for e in ripe]
        assert told == max((int.from_bytes(body, "big") for body in said), default=None)
        self.starts = self.commit
        self.stored += self.tracker.take_snapshots(RaftIndex(self.commit))

    @invariant()
    def equals_a_replay(self):
        self.tracker.look()
        twin = replayed(self.log.all_entries)
        mine = self.tracker.producers
        assert (mine.clock_ms, mine.states()) == (twin.clock_ms, twin.states())

    @invariant()
    def stored_snapshots_are_true_for_ever(self):
        """They hold committed state only, so that no truncation makes one wrong."""
        for snapshot in self.stored:
            twin = replayed(self.log.all_entries[: snapshot.before - 1])
            assert snapshot.body == write_producers(twin, group=GROUP, before=snapshot.before)

    @invariant()
    def a_boot_now_ends_alike(self):
        """A new tracker over the same log, from the newest stored snapshot, with the present
        commit."""
        self.tracker.look()
        table = ProducerTable()
        before = 1
        if self.stored:
            newest = max(self.stored, key=lambda one: one.before)
            before = newest.before
            load_producers(table, newest.body, group=GROUP, before=before, error=ValueError)
        rest = self.log.all_entries[before - 1 :]
        for entry in rest:
            header = read_header(entry.batch)
            if entry.kind is EntryKind.RECORDS:
                table.appended(header, entry.base_offset, entry.raft_index)
            else:
                control = parse_control_entry(entry.batch, ValueError, "test")
                note_control(table, control, header.max_timestamp)
        assert table.states() == self.tracker.producers.states()


TestTrackerAgainstReplay = TrackerAgainstReplay.TestCase


def test_a_truncation_to_a_lower_term_is_noticed():
    """The new leader's entry may be of a term below what is cut off: [1 1 4 4] meets [1 1 3 5]."""
    log, tracker = started()
    add_records(log, Term(1), 1, 0)
    add_term_start(log, Term(4))
    add_records(log, Term(4), 2, 0)
    tracker.look()
    log.truncate_from(RaftIndex(3))
    add_term_start(log, Term(3))
    add_term_start(log, Term(5))
    add_records(log, Term(5), 3, 0)
    tracker.look()
    assert [pid for pid, _ in tracker.producers.states()] == [1, 3]


def test_cut_and_grown_to_the_same_length_is_noticed():
    log, tracker = started()
    add_records(log, Term(1), 1, 0)
    add_records(log, Term(1), 2, 0)
    tracker.look()
    log.truncate_from(RaftIndex(3))
    add_term_start(log, Term(2))
    tracker.look()
    assert [pid for pid, _ in tracker.producers.states()] == [1]


def test_everything_above_commit_may_be_cut():
    log, tracker = started()
    tracker.committed(RaftIndex(1))
    add_records(log, Term(1), 1, 0)
    add_term_start(log, Term(2))
    add_records(log, Term(2), 2, 0)
    tracker.look()
    log.truncate_from(RaftIndex(2))
    tracker.look()
    assert tracker.producers.states() == []
    add_term_start(log, Term(9))
    add_records(log, Term(9), 4, 0)
    tracker.look()
    assert [pid for pid, _ in tracker.producers.states()] == [4]


def test_a_truncated_log_start_marker_is_forgotten():
    log, tracker = started()
    add_log_start(log, Term(1), 5)
    tracker.look()
    log.truncate_from(RaftIndex(2))
    add_term_start(log, Term(2))
    tracker.look()
    assert tracker.committed(RaftIndex(2)) is None


def test_the_highest_of_several_markers_counts():
    """Not the last: a lower one was asked for while a higher one was under way."""
    log, tracker = started()
    for offset in (5, 9, 7):
        add_log_start(log, Term(1), offset)
    tracker.look()
    assert (tracker.committed(RaftIndex(2)), tracker.start_marker) == (5, 2)
    assert (tracker.committed(RaftIndex(4)), tracker.start_marker) == (9, 3)


def test_a_marker_found_at_boot_waits_for_its_commit():
    log = RollingLog()
    add_term_start(log, Term(1))
    add_log_start(log, Term(1), 4)
    tracker = LogTracker(GROUP, log, RaftIndex(1))
    tracker.note_log_start(RaftIndex(2), Offset(4))
    assert tracker.committed(RaftIndex(2)) == 4


def test_a_snapshot_is_given_only_when_all_in_it_is_committed():
    log, tracker = started()
    add_records(log, Term(1), 1, 0)
    log.rolls = [RaftIndex(3)]
    add_records(log, Term(1), 1, 1)
    tracker.look()
    assert tracker.take_snapshots(RaftIndex(1)) == []
    (snapshot,) = tracker.take_snapshots(RaftIndex(2))
    assert snapshot.before == 3
    assert tracker.take_snapshots(RaftIndex(9)) == []


def test_a_segment_that_was_cut_off_leaves_no_snapshot():
    log, tracker = started()
    add_records(log, Term(1), 1, 0)
    log.rolls = [RaftIndex(3)]
    add_records(log, Term(1), 1, 1)
    tracker.look()
    log.truncate_from(RaftIndex(2))
    add_term_start(log, Term(2))
    add_records(log, Term(2), 5, 0)
    tracker.look()
    assert tracker.take_snapshots(RaftIndex(9)) == []


def test_there_is_one_run_for_each_term_that_is_not_committed():
    log, tracker = started()
    for term in (2, 3):
        add_term_start(log, Term(term))
        for sequence in range(5):
            add_records(log, Term(term), 1, sequence)
    tracker.look()
    assert [(run.first, run.term) for run in tracker._runs] == [(1, 1), (2, 2), (8, 3)]
    tracker.committed(RaftIndex(8))
    assert [run.term for run in tracker._runs] == [3]
