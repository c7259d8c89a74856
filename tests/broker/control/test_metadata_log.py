"""Group 0 as a replica: one command per record, read from memory or from the disk."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftlog.base.entries import EntryKind
from raftlog.base.errors import CorruptData, DiskError
from raftlog.base.ids import METADATA_GROUP, Offset, RaftIndex, Term
from raftlog.base.limits import APPEND_BYTES_MAX
from raftlog.base.units import WallMillis
from raftlog.broker.control.metadata_log import MetadataLog
from raftlog.records.batch import entry_of, patch
from raftlog.records.builder import RecordBatchBuilder
from raftlog.records.control import build_control_entry
from raftlog.storage.segments.cold import EntriesRead
from tests.broker.control.metadata_rig import FakeTurn

WALL = WallMillis(1_700_000_000_000)


class FakeLog:
    """Entries in memory from `window` on; earlier ones need a cold read."""

    def __init__(self):
        self.all = []
        self.next_offset = Offset(0)
        self.window = RaftIndex(1)
        self.trimmed = 0
        self.cold_reads = []

    @property
    def last_index(self):
        return RaftIndex(len(self.all))

    @property
    def first_index(self):
        return RaftIndex(self.trimmed + 1)

    def append_batch(self, batch):
        whole = bytearray(batch)
        patch(whole, self.next_offset, Term(1))
        index = RaftIndex(self.last_index + 1)
        entry = entry_of(index, bytes(whole), CorruptData, "a test")
        self.next_offset = entry.next_offset
        self.all.append(entry)

    def append_control(self):
        self.all.append(
            build_control_entry(
                EntryKind.TERM_START,
                group=METADATA_GROUP,
                term=Term(1),
                raft_index=RaftIndex(self.last_index + 1),
                base_offset=self.next_offset,
                timestamp_ms=WALL,
                body=b"",
            )
        )

    def entries(self, first, bytes_max):
        assert self.first_index <= first <= self.last_index
        return None if first < self.window else self.all[first - 1 : first + 1]

    def plan_entries(self, first, bytes_max):
        return SimpleNamespace(function="read", args=(first, bytes_max))

    def cold_done(self, value):
        self.cold_reads.append(value.first_index)


class FakeReplica:
    def __init__(self):
        self.log = FakeLog()
        self.directory = 7
        self.leader = None
        self.is_leader = self.ready = True
        self.term = Term(1)
        self.commit = RaftIndex(0)
        self.damage = None

    def propose_batch(self, batch, now, wall_ms):
        self.log.append_batch(batch)

    def damage_found(self, error, now):
        self.damage = error

    def delete_records(self, offset, deadline, then, now, wall_ms):
        self.deleted = offset
        then("done")


class Rig:
    def __init__(self):
        self.services = FakeTurn()
        self.replica = FakeReplica()
        self.services.replicas[METADATA_GROUP] = self.replica
        self.engine = MetadataLog(self.services)
        self.woken = 0
        self.engine.wake = self.wake

    def wake(self):
        self.woken += 1

    def propose(self, *values):
        return self.engine.propose(values, self.services.now, WALL)

    def commit(self, index=None):
        self.replica.commit = self.replica.log.last_index if index is None else RaftIndex(index)
        return [tuple(one) for one in self.engine.committed()]

    def answer_read(self, count):
        (job,) = self.services.jobs
        self.services.jobs.clear()
        first = job.args[0]
        entries = self.replica.log.all[first - 1 : first - 1 + count]
        job.then(EntriesRead(first, 0, entries))
        self.services.run_soon()


def test_commands_come_back_in_order_with_their_offsets():
    rig = Rig()
    assert rig.propose(b"a", b"b")
    assert rig.propose(b"c")
    assert rig.commit(1) == [(0, b"a"), (1, b"b")]
    assert rig.commit() == [(2, b"c")]
    assert rig.commit() == []
    assert METADATA_GROUP in rig.services.touched


def test_what_is_not_committed_is_not_handed_over():
    rig = Rig()
    rig.propose(b"a")
    assert rig.commit(0) == []
    assert not rig.engine.caught_up
    rig.commit()
    assert rig.engine.caught_up


def test_rafts_own_entries_are_no_commands():
    rig = Rig()
    rig.replica.log.append_control()
    rig.propose(b"a")
    rig.replica.log.append_control()
    assert rig.commit() == [(0, b"a")]
    assert rig.engine.caught_up
    assert rig.engine.next_index == 4


def test_only_a_ready_leader_proposes():
    rig = Rig()
    rig.replica.ready = False
    assert rig.engine.leading_term is None
    assert not rig.propose(b"a")
    rig.replica.ready, rig.replica.is_leader = True, False
    assert not rig.propose(b"a")
    assert rig.replica.log.all == []


def test_without_a_replica_there_is_nothing():
    engine = MetadataLog(FakeTurn())
    assert engine.leader is None
    assert engine.leading_term is None
    assert not engine.caught_up
    assert list(engine.committed()) == []
    assert not engine.propose([b"a"], 0, WALL)


def test_the_leader_is_a_node():
    rig = Rig()
    assert rig.engine.leader is None
    rig.replica.leader = SimpleNamespace(node=3)
    assert rig.engine.leader == 3


def test_what_is_not_in_memory_is_read_from_the_disk():
    rig = Rig()
    rig.propose(b"a")
    rig.propose(b"b")
    rig.propose(b"c")
    rig.replica.log.window = RaftIndex(3)
    assert rig.commit() == []
    assert len(rig.services.jobs) == 1
    assert rig.commit() == []
    assert len(rig.services.jobs) == 1
    rig.answer_read(2)
    assert rig.woken == 1
    assert rig.replica.log.cold_reads == [1]
    assert rig.commit() == [(0, b"a"), (1, b"b"), (2, b"c")]


def test_a_cold_read_past_the_commit_hands_over_no_more_than_is_committed():
    rig = Rig()
    for value in (b"a", b"b", b"c"):
        rig.propose(value)
    rig.replica.log.window = RaftIndex(4)
    assert rig.commit(1) == []
    rig.answer_read(3)
    assert rig.commit(1) == [(0, b"a")]
    assert rig.commit(2) == []
    rig.answer_read(3)
    assert rig.commit(2) == [(1, b"b")]


def test_what_a_cold_read_saw_beyond_the_commit_is_forgotten():
    """A follower that had just booted read its metadata log from the disk, with a tail that was not
    committed. While the read was on its way a new leader cut that tail, put other commands in its
    place and committed them. The read came back, its entries had indexes that were committed by
    now, and commands that never were were applied: this broker's image went its own way."""
    rig = Rig()
    for value in (b"a", b"never", b"was"):
        rig.propose(value)
    log = rig.replica.log
    log.window = RaftIndex(4)
    assert rig.commit(1) == []
    (job,) = rig.services.jobs
    rig.services.jobs.clear()
    seen = list(log.all)
    del log.all[1:]
    log.next_offset = Offset(1)
    rig.propose(b"b")
    rig.propose(b"c")
    rig.replica.commit = RaftIndex(3)
    job.then(EntriesRead(RaftIndex(1), 0, seen))
    rig.services.run_soon()
    assert rig.commit() == [(0, b"a")]
    rig.answer_read(2)
    assert rig.commit() == [(1, b"b"), (2, b"c")]


@pytest.mark.parametrize("value", [DiskError("gone"), CorruptData("rot")])
def test_a_failed_read_is_tried_again_when_the_group_moves(value):
    rig = Rig()
    rig.propose(b"a")
    rig.replica.log.window = RaftIndex(2)
    rig.commit()
    rig.services.jobs.pop().then(value)
    assert rig.commit() == []
    rig.answer_read(1)
    assert rig.commit() == [(0, b"a")]


def test_damage_in_the_metadata_log_is_told_to_the_replica():
    """Seed 1111 of the simulator: a segment of group 0 had rotted on a broker that only follows it.
    Only the engine read those entries. It waited for the group to move, but the group was at
    rest: the broker kept an old image, ran none of its new partitions, and repaired nothing."""
    rig = Rig()
    rig.propose(b"a")
    rig.replica.log.window = RaftIndex(2)
    rig.commit()
    damage = CorruptData("rot")
    rig.services.jobs.pop().then(damage)
    assert rig.replica.damage is damage
    assert METADATA_GROUP in rig.services.touched


def test_a_read_that_fails_is_tried_again_by_itself_and_in_the_end_is_damage():
    rig = Rig()
    rig.propose(b"a")
    rig.replica.log.window = RaftIndex(2)
    for _ in range(2):
        rig.commit()
        rig.services.jobs.pop().then(DiskError("bad sector"))
        assert rig.replica.damage is None
        woken = rig.woken
        rig.services.now += 100_000_000
        rig.services.timers.run_due(rig.services.now)
        assert rig.woken == woken + 1
    rig.commit()
    rig.services.jobs.pop().then(DiskError("bad sector"))
    assert "bad sector" in str(rig.replica.damage)


def test_it_is_behind_until_all_that_is_committed_was_read():
    rig = Rig()
    assert not rig.engine.behind
    for value in (b"a", b"b", b"c"):
        rig.propose(value)
    assert not rig.engine.behind
    rig.replica.log.window = RaftIndex(4)
    rig.commit(2)
    assert rig.engine.behind
    rig.answer_read(1)
    rig.commit(2)
    assert rig.engine.behind
    rig.answer_read(1)
    rig.commit(2)
    assert not rig.engine.behind


def test_a_bad_moment_of_the_disk_leaves_it_behind_and_damage_does_not():
    """Damaged entries are not waited for: a replica that waits elects no leader, and a leader must
    heal it."""
    rig = Rig()
    rig.propose(b"a")
    rig.replica.log.window = RaftIndex(2)
    rig.commit()
    rig.services.jobs.pop().then(DiskError("a bad moment"))
    assert rig.engine.behind
    rig.commit()
    rig.services.jobs.pop().then(CorruptData("rot"))
    assert not rig.engine.behind
    rig.commit()
    assert not rig.engine.behind
    rig.answer_read(1)
    assert rig.engine.behind
    assert rig.commit() == [(0, b"a")]
    assert not rig.engine.behind


def test_what_memory_holds_is_not_waited_for():
    """A vote that came in the turn in which the commit moved was dropped, though nothing was to be
    read for it."""
    rig = Rig()
    for value in (b"a", b"b", b"c"):
        rig.propose(value)
    rig.replica.commit = RaftIndex(2)
    assert not rig.engine.behind
    assert rig.commit(2) == [(0, b"a"), (1, b"b")]


def committed_of_three(window):
    """A rig with the first of three entries committed, of which memory holds those from `window`
    on, and its log."""
    rig = Rig()
    for value in (b"a", b"b", b"c"):
        rig.propose(value)
    log = rig.replica.log
    log.window = RaftIndex(window)
    rig.commit(1)
    return rig, log


def test_while_a_read_is_on_its_way_memory_does_not_count():
    """An installed snapshot brings a log that memory holds: it is handed over when the read of the
    log before it has come back."""
    rig, log = committed_of_three(window=2)
    (job,) = rig.services.jobs
    log.trimmed = 1
    rig.replica.commit = RaftIndex(3)
    assert rig.engine.behind
    job.then(EntriesRead(RaftIndex(1), 0, log.all[:1]))
    assert not rig.engine.behind
    assert rig.commit() == [(1, b"b"), (2, b"c")]


def test_after_damage_any_progress_ends_the_excuse():
    """The unreadable entries came from a leader again, and were handed over from memory. So no read
    succeeded that could say that the disk works again, and the replica heard votes before the next
    one."""
    rig, log = committed_of_three(window=2)
    rig.services.jobs.pop().then(CorruptData("rot"))
    assert not rig.engine.behind
    log.window = RaftIndex(1)
    assert rig.commit(1) == [(0, b"a")]
    log.window = RaftIndex(4)
    rig.replica.commit = RaftIndex(3)
    assert rig.engine.behind


def test_after_damage_a_log_that_begins_later_ends_the_excuse():
    rig, log = committed_of_three(window=4)
    rig.services.jobs.pop().then(CorruptData("rot"))
    log.trimmed = 1
    rig.commit(2)
    assert rig.engine.behind


def test_a_replica_that_was_reopened_goes_on_where_the_last_one_was():
    rig = Rig()
    rig.propose(b"a")
    rig.commit()
    reopened = FakeReplica()
    reopened.log = rig.replica.log
    rig.services.replicas[METADATA_GROUP] = rig.replica = reopened
    assert rig.commit(0) == []
    rig.propose(b"b")
    assert rig.commit() == [(1, b"b")]


def test_large_commands_do_not_share_a_batch():
    rig = Rig()
    large = bytes(APPEND_BYTES_MAX - 200)
    rig.propose(large, large, b"c")
    assert rig.replica.log.last_index == 2
    assert [len(value) for _, value in rig.commit()] == [len(large), len(large), 1]


@given(st.lists(st.lists(st.binary(max_size=40), min_size=1, max_size=4), max_size=8), st.data())
def test_any_mix_of_windows_and_commits_hands_over_each_once(rounds, data):
    rig = Rig()
    found, expected = [], []
    for values in rounds:
        if data.draw(st.booleans()):
            rig.replica.log.append_control()
        rig.propose(*values)
        expected += values
        last = rig.replica.log.last_index
        rig.replica.log.window = RaftIndex(data.draw(st.integers(1, last + 1)))
        found += rig.commit(data.draw(st.integers(rig.replica.commit, last)))
        if rig.services.jobs and data.draw(st.booleans()):
            rig.answer_read(data.draw(st.integers(1, 5)))
    for _ in range(4 * len(rig.replica.log.all) + 1):
        found += rig.commit()
        if rig.services.jobs:
            rig.answer_read(2)
    assert found == list(enumerate(expected))


def test_a_batch_that_lies_stops_the_loader():
    """records_of refuses what its header does not promise; the loader never sees a wrong record."""
    rig = Rig()
    builder = RecordBatchBuilder()
    builder.append(b"a", timestamp_ms=WALL)
    batch = bytearray(builder.build())
    batch[57:61] = (5).to_bytes(4, "big")
    rig.replica.log.append_batch(bytes(batch))
    with pytest.raises(CorruptData):
        rig.commit()


def test_a_trimmed_log_goes_on_with_a_gap_in_the_positions():
    rig = Rig()
    for value in (b"a", b"b", b"c", b"d"):
        rig.propose(value)
    rig.replica.log.append_control()
    rig.propose(b"e")
    assert rig.commit(1) == [(0, b"a")]
    rig.replica.log.trimmed = 2
    assert rig.commit() == [(2, b"c"), (3, b"d"), (4, b"e")]


def test_a_boot_from_a_trimmed_log_begins_at_its_first_record():
    rig = Rig()
    rig.propose(b"a", b"b")
    rig.replica.log.append_control()
    rig.propose(b"c")
    rig.replica.log.trimmed = 1
    assert rig.commit() == [(2, b"c")]


def test_only_the_leader_trims():
    rig = Rig()
    rig.engine.trim(5, rig.services.now, WALL)
    assert rig.replica.deleted == 5
    rig.replica.deleted = None
    rig.replica.is_leader = False
    rig.engine.trim(6, rig.services.now, WALL)
    assert rig.replica.deleted is None
    MetadataLog(FakeTurn()).trim(1, 0, WALL)
