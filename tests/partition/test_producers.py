"""Goal: the rules of KIP-98 at their edges, and one truth: the table is a function of the log."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from raftlog.base.ids import GroupId
from raftlog.kafka.error_codes import ErrorCode
from raftlog.partition.boot import replay_producers
from raftlog.partition.producing.producer_snapshot import load_producers, write_producers
from raftlog.partition.producing.producers import SEQUENCES, Duplicate, ProducerTable, Span
from raftlog.records.batch import BatchHeader
from raftlog.storage.segments.cold import ProducerReplay, ReplayItem

DAY_MS = 86_400_000
GROUP = GroupId(5)


def header(pid, epoch, first, count=1, timestamp_ms=1_000):
    return BatchHeader(
        0, 61, 0, 2, 0, 0, count - 1, timestamp_ms, timestamp_ms, pid, epoch, first, count
    )


def filled(*sizes, pid=7, epoch=0, first=0):
    """A table with batches of these record counts, at offsets from 0, raft indexes from 1."""
    table = ProducerTable()
    offset = 0
    for ordinal, count in enumerate(sizes):
        table.appended(header(pid, epoch, first, count), offset, ordinal + 1)
        first = (first + count) % SEQUENCES
        offset += count
    return table


def test_an_unknown_producer_may_begin_anywhere():
    assert ProducerTable().check(header(7, 3, 1_234)) is None


def test_the_next_sequence_is_accepted():
    assert filled(3, 2).check(header(7, 0, 5, 4)) is None


@pytest.mark.parametrize("first", [4, 6, 100, SEQUENCES - 1])
def test_a_gap_or_an_overlap_is_out_of_order(first):
    assert filled(3, 2).check(header(7, 0, first, 1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_exactly_the_same_sequences_are_a_duplicate_with_the_first_offset():
    assert filled(3, 2, 4).check(header(7, 0, 3, 2)) == Duplicate(3, 4)


def test_a_part_of_a_known_batch_is_no_duplicate():
    """Only the whole batch counts: another cut of the same records is a client's mistake."""
    assert filled(3, 2).check(header(7, 0, 3, 1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_the_fifth_last_batch_is_known_and_the_sixth_is_not():
    table = filled(1, 1, 1, 1, 1, 1)
    assert table.check(header(7, 0, 1)) == Duplicate(1, 1)
    assert table.check(header(7, 0, 0)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_an_older_epoch_is_fenced_even_for_a_duplicate():
    table = filled(1, epoch=4)
    assert table.check(header(7, 3, 0)) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_newer_epoch_begins_at_zero_and_forgets_the_window():
    table = filled(3, 2, epoch=4)
    assert table.check(header(7, 5, 1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert table.check(header(7, 5, 0, 3)) is None
    table.appended(header(7, 5, 0, 3), 5, 3)
    assert table.state_of(7).spans == (Span(0, 2, 5),)


def test_the_last_sequence_is_followed_by_zero():
    table = filled(1, first=SEQUENCES - 1)
    assert table.check(header(7, 0, 0)) is None
    assert table.check(header(7, 0, 1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_batch_may_straddle_the_wrap_and_is_known_by_both_ends():
    table = filled(5, first=SEQUENCES - 2)
    assert table.state_of(7).spans == (Span(SEQUENCES - 2, 2, 0),)
    assert table.check(header(7, 0, SEQUENCES - 2, 5)) == Duplicate(0, 4)
    assert table.check(header(7, 0, 3)) is None


def test_truncation_takes_back_the_newest_batch_only():
    table = filled(3, 2)
    before = table.states()
    table.appended(header(7, 0, 5, 1), 5, 3)
    table.truncated_from(3)
    assert table.states() == before


def test_what_is_committed_is_not_taken_back_by_a_later_truncation():
    table = filled(1, 1)
    table.committed(2)
    state = table.state_of(7)
    table.truncated_from(3)
    assert table.state_of(7) == state


def test_expiry_goes_by_the_cut_off_in_the_log():
    table = ProducerTable()
    table.appended(header(7, 0, 0, timestamp_ms=100), 0, 1)
    table.appended(header(8, 0, 0, timestamp_ms=101), 1, 2)
    table.control_appended(200, 101, 3)
    assert [pid for pid, _ in table.states()] == [8]


def test_a_producer_without_timestamps_is_as_old_as_the_log_around_it():
    """A client that sends -1 as its timestamp must not look silent since 1970."""
    table = ProducerTable()
    table.control_appended(5_000, -1, 1)
    table.appended(header(7, 0, 0, timestamp_ms=-1), 0, 2)
    table.control_appended(6_000, 4_999, 3)
    assert table.state_of(7).last_seen_ms == 5_000


def test_a_truncated_marker_brings_the_expired_back():
    table = filled(1)
    before = (table.clock_ms, table.states())
    table.control_appended(DAY_MS, DAY_MS, 2)
    assert len(table) == 0
    table.truncated_from(2)
    assert (table.clock_ms, table.states()) == before


def test_a_full_table_forgets_the_quarter_that_is_oldest_by_offset():
    table = ProducerTable(producers_max=8)
    for pid in range(8):
        table.appended(header(pid, 0, 0), pid, pid + 1)
    table.appended(header(0, 0, 1), 8, 9)
    table.appended(header(100, 0, 0), 9, 10)
    assert [pid for pid, _ in table.states()] == [0, 3, 4, 5, 6, 7, 100]
    table.truncated_from(10)
    assert [pid for pid, _ in table.states()] == [0, 1, 2, 3, 4, 5, 6, 7]


def test_a_marker_is_due_when_somebody_expired_or_the_clock_of_the_log_lags():
    table = ProducerTable()
    assert not table.marker_due(DAY_MS * 10, DAY_MS, DAY_MS)
    table.control_appended(1_000, -1, 1)
    table.appended(header(7, 0, 0, timestamp_ms=1_000), 0, 2)
    assert not table.marker_due(1_000, -1, DAY_MS)
    assert table.marker_due(1_000 + DAY_MS // 8 + 1, -1, DAY_MS)
    table.control_appended(DAY_MS + 1_001, -1, 3)
    assert not table.marker_due(DAY_MS + 1_001, 1_000, DAY_MS), "not before, but at the cut-off"
    assert table.marker_due(DAY_MS + 1_001, 1_001, DAY_MS)


SHORT = st.integers(min_value=0, max_value=6)


class TableAgainstReplay(RuleBasedStateMachine):
    """The dumb twin: a list of what the log holds, replayed from the start (and from a snapshot in
    the middle) after every step. Appends, refusals, expiry, commits, truncations, at random."""

    PRODUCERS_MAX = 4

    def __init__(self):
        super().__init__()
        self.table = ProducerTable(self.PRODUCERS_MAX)
        self.log = []  # (header, offset) or (timestamp, cut-off)
        self.commit = 0
        self.offset = 0

    @rule(pid=SHORT, epoch=st.integers(0, 2), shift=SHORT, count=st.integers(1, 3), time=SHORT)
    def produce(self, pid, epoch, shift, count, time):
        state = self.table.state_of(pid)
        first = shift if state is None else (state.spans[-1].last_sequence + 1 + shift // 3)
        asked = header(pid, epoch, first % SEQUENCES, count, time * 10)
        verdict = self.table.check(asked)
        if verdict is None:
            self.append(asked)
        elif isinstance(verdict, Duplicate):
            assert verdict.last_offset - verdict.base_offset == count - 1

    @rule(pid=SHORT, count=st.integers(1, 3))
    def straddle(self, pid, count):
        asked = header(pid, 0, SEQUENCES - 1, count)
        if self.table.check(asked) is None:
            self.append(asked)

    def append(self, asked):
        self.log.append((asked, self.offset))
        self.table.appended(asked, self.offset, len(self.log))
        self.offset += asked.last_offset_delta + 1

    @rule(time=SHORT, cut=st.integers(-1, 6))
    def control(self, time, cut):
        self.log.append((time * 10, cut * 10))
        self.table.control_appended(time * 10, cut * 10, len(self.log))

    @rule(steps=SHORT)
    def move_commit(self, steps):
        self.commit = min(len(self.log), self.commit + steps)
        self.table.committed(self.commit)

    @precondition(lambda self: self.commit < len(self.log))
    @rule(keep=SHORT)
    def truncate(self, keep):
        kept = min(len(self.log), self.commit + keep)
        self.log = self.log[:kept]
        self.table.truncated_from(kept + 1)

    @rule(pid=SHORT)
    def retry_the_last(self, pid):
        state = self.table.state_of(pid)
        if state is not None:
            span = state.spans[-1]
            count = (span.last_sequence - span.first_sequence) % SEQUENCES + 1
            asked = header(pid, state.epoch, span.first_sequence, count)
            assert self.table.check(asked) == Duplicate(span.base_offset, span.last_offset)

    @invariant()
    def equals_a_replay(self):
        twin = ProducerTable(self.PRODUCERS_MAX)
        self.replay(twin, 0)
        assert (twin.clock_ms, twin.states()) == (self.table.clock_ms, self.table.states())

    @invariant()
    def equals_snapshot_and_headers(self):
        middle = len(self.log) // 2
        half = ProducerTable(self.PRODUCERS_MAX)
        for index in range(middle):
            self.apply(half, index)
        snapshot = write_producers(half, group=3, before=middle + 1)
        twin = ProducerTable(self.PRODUCERS_MAX)
        load_producers(twin, snapshot, group=3, before=middle + 1, error=ValueError)
        self.replay(twin, middle)
        assert (twin.clock_ms, twin.states()) == (self.table.clock_ms, self.table.states())

    def replay(self, table, start):
        for index in range(start, len(self.log)):
            self.apply(table, index)

    def apply(self, table, index):
        item, where = self.log[index]
        if isinstance(item, BatchHeader):
            table.appended(item, where, index + 1)
        else:
            table.control_appended(item, where, index + 1)


TestTableAgainstReplay = TableAgainstReplay.TestCase


def test_a_boot_cannot_take_back_what_is_committed():
    """The replay of a boot keeps the way back of entries above the commit alone: else it held one
    change for each batch of the log."""
    items = [ReplayItem(index, header(7, 0, index - 1), None) for index in (1, 2, 3, 4)]
    table = ProducerTable()
    replay_producers(table, ProducerReplay(None, 1, items, 5), GROUP, commit=2)
    table.truncated_from(1)
    assert table.check(header(7, 0, 1)) == Duplicate(0, 0), "entries 1 and 2 stay"
    assert table.check(header(7, 0, 2)) is None, "3 and 4 are gone"
