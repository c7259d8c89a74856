"""Every waiter is answered once, by the first of commit, time and loss."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftlog.base.units import NEVER
from raftlog.partition.waiters import FetchWaiter, FetchWaiters, ProduceWaiter, ProduceWaiters


def waiter(index, deadline=1_000):
    return ProduceWaiter(index, index * 10, index * 10 + 9, -1, deadline, print)


def indexes(waiters):
    return [one.raft_index for one in waiters]


def line_of(*plain, in_sync=()):
    line = ProduceWaiters()
    for index in plain:
        line.add(waiter(index), in_sync=False)
    for index in in_sync:
        line.add(waiter(index), in_sync=True)
    return line


def test_a_commit_takes_from_the_front():
    line = line_of(1, 2, 3)
    assert indexes(line.take_committed(2, 0)) == [1, 2]
    assert len(line) == 1


def test_acks_all_waits_for_the_in_sync_too():
    line = line_of(2, in_sync=(1, 3))
    assert indexes(line.take_committed(3, 2)) == [2, 1]
    assert indexes(line.take_committed(3, 3)) == [3]


def test_what_is_held_but_not_committed_is_not_decided():
    line = line_of(in_sync=(1, 2))
    assert indexes(line.take_committed(1, 2)) == [1]


def test_indexes_must_ascend():
    line = line_of(2)
    with pytest.raises(AssertionError):
        line.add(waiter(2), in_sync=False)


def test_a_duplicate_waits_for_the_entry_in_the_middle():
    line = line_of(in_sync=(4, 5))
    line.add_duplicate(waiter(3), in_sync=True)
    line.add_duplicate(waiter(5), in_sync=False)
    assert indexes(line.take_committed(3, 2)) == []
    assert indexes(line.take_committed(3, 3)) == [3]
    assert indexes(line.take_committed(5, 3)) == [5]
    assert len(line) == 2


def test_too_few_in_sync_fails_only_acks_all_at_or_below_the_commit():
    line = line_of(1, in_sync=(2, 3))
    line.add_duplicate(waiter(2), in_sync=True)
    line.add_duplicate(waiter(2), in_sync=False)
    line.add_duplicate(waiter(3), in_sync=True)
    assert indexes(line.take_short_of_replicas(2)) == [2, 2]
    assert len(line) == 4


def test_deadlines_need_not_ascend():
    line = ProduceWaiters()
    for index, deadline in ((1, 50), (2, 30), (3, 40)):
        line.add(waiter(index, deadline), in_sync=index == 2)
    line.add_duplicate(waiter(1, 35), in_sync=True)
    assert line.deadline == 30
    assert line.take_expired(29) == []
    assert indexes(line.take_expired(35)) == [2, 1]
    assert line.deadline == 40
    assert indexes(line.take_expired(50)) == [1, 3]
    assert line.deadline == NEVER


def test_no_deadline_when_nobody_waits():
    line = line_of(1)
    line.take_committed(1, 1)
    assert line.deadline == NEVER


def test_a_loss_takes_everybody():
    line = line_of(1, in_sync=(2,))
    line.add_duplicate(waiter(1), in_sync=True)
    assert sorted(indexes(line.take_all())) == [1, 1, 2]
    assert (len(line), line.deadline) == (0, NEVER)


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.booleans(), st.integers(1, 60)),
        st.tuples(st.just("duplicate"), st.booleans(), st.integers(1, 60)),
        st.tuples(st.just("commit"), st.integers(0, 5), st.integers(0, 5)),
        st.tuples(st.just("time"), st.integers(0, 20), st.just(0)),
    ),
    max_size=60,
)


@given(OPERATIONS)
def test_the_lines_agree_with_a_plain_list(operations):
    """The dumb twin: one list of (waiter, acks=all), filtered each time."""
    line, twin = ProduceWaiters(), []
    last = commit = held = now = 0
    for what, one, two in operations:
        if what == "add":
            last += 1
            entry = waiter(last, now + two)
            line.add(entry, in_sync=one)
            twin.append((entry, one))
        elif what == "duplicate" and last > commit:
            entry = waiter(commit + 1 + two % (last - commit), now + two)
            line.add_duplicate(entry, in_sync=one)
            twin.append((entry, one))
        elif what == "commit":
            commit, held = min(last, commit + one), min(last, held + two)
            decided = line.take_committed(commit, held)
            want = [w for w, s in twin if w.raft_index <= (min(commit, held) if s else commit)]
            assert sorted(decided) == sorted(want)
            twin = [(w, s) for w, s in twin if w not in want]
        elif what == "time":
            now += one
            expired = line.take_expired(now)
            assert sorted(expired) == sorted(w for w, _ in twin if w.deadline <= now)
            twin = [(w, s) for w, s in twin if w.deadline > now]
        assert len(line) == len(twin)
        assert line.deadline <= min((w.deadline for w, _ in twin), default=NEVER)


def bytes_between(old, new):
    return (new - old) * 100


def test_a_commit_subtracts_from_every_waiter_of_the_partition():
    line = FetchWaiters()
    small, large = FetchWaiter(200, print), FetchWaiter(300, print)
    small.join(line, 0)
    large.join(line, 0)
    assert line.published(0, 2, bytes_between) == [small]
    assert not small.waiting
    assert large.missing_bytes == 100
    assert line.published(2, 3, bytes_between) == [large]
    assert len(line) == 0


def test_one_request_counts_bytes_of_all_its_partitions_and_leaves_all():
    one, two, three = FetchWaiters(), FetchWaiters(), FetchWaiters()
    waiting = FetchWaiter(250, print)
    for line in (one, two, three):
        waiting.join(line, 0)
    assert one.published(0, 1, bytes_between) == []
    assert two.published(0, 2, bytes_between) == [waiting]
    assert (len(one), len(two), len(three)) == (0, 0, 0)


def test_bytes_below_the_asked_offset_do_not_count():
    """An offset between high watermark and log end: what is committed before it is not wanted."""
    line = FetchWaiters()
    waiting = FetchWaiter(100, print)
    waiting.join(line, 5)
    assert line.published(0, 5, bytes_between) == []
    assert waiting.missing_bytes == 100
    assert line.published(5, 6, bytes_between) == [waiting]


def test_an_offset_in_the_middle_of_a_step_counts_its_rest():
    line = FetchWaiters()
    waiting = FetchWaiter(1_000, print)
    waiting.join(line, 5)
    line.published(2, 8, bytes_between)
    assert waiting.missing_bytes == 700


def test_leaving_early_leaves_nothing_behind():
    one, two = FetchWaiters(), FetchWaiters()
    waiting = FetchWaiter(1, print)
    waiting.join(one, 0)
    waiting.join(two, 0)
    waiting.leave()
    waiting.leave()
    assert (len(one), len(two), waiting.waiting) == (0, 0, False)
    assert one.published(0, 9, bytes_between) == []


def test_a_lost_leader_wakes_everybody():
    one, two = FetchWaiters(), FetchWaiters()
    first, second = FetchWaiter(1, print), FetchWaiter(1, print)
    first.join(one, 0)
    second.join(one, 0)
    first.join(two, 0)
    assert one.wake_all() == [first, second]
    assert (len(one), len(two)) == (0, 0)


def test_a_partition_named_twice_is_waited_for_once_from_the_lower_offset():
    line = FetchWaiters()
    waiting = FetchWaiter(1_000, print)
    waiting.join(line, 7)
    waiting.join(line, 3)
    assert len(line) == 1
    line.published(3, 8, bytes_between)
    assert waiting.missing_bytes == 500
