"""Deadlines come up in order, never late, never twice; idle groups are not even kept."""

from hypothesis import given
from hypothesis import strategies as st

from raftlog.base.units import NEVER
from raftlog.broker.deadlines import GroupDeadlines, Timers


def test_a_group_is_due_at_its_deadline_and_not_before():
    deadlines = GroupDeadlines()
    deadlines.set(1, 100)
    assert deadlines.next() == 100
    assert deadlines.due(99) == []
    assert deadlines.due(100) == [1]
    assert deadlines.due(100) == []


def test_groups_come_in_order_of_deadline_then_number():
    deadlines = GroupDeadlines()
    for group, deadline in ((3, 10), (1, 20), (2, 10)):
        deadlines.set(group, deadline)
    assert deadlines.due(50) == [2, 3, 1]


def test_a_deadline_that_moves_later_is_not_due_early():
    deadlines = GroupDeadlines()
    deadlines.set(1, 10)
    deadlines.set(1, 30)
    assert deadlines.due(20) == []
    assert deadlines.due(30) == [1]


def test_a_deadline_that_moves_earlier_is_due_early():
    deadlines = GroupDeadlines()
    deadlines.set(1, 30)
    deadlines.set(1, 10)
    assert deadlines.due(10) == [1]
    assert deadlines.due(99) == []


def test_never_and_forget_take_a_group_out():
    deadlines = GroupDeadlines()
    deadlines.set(1, 10)
    deadlines.set(2, 10)
    deadlines.set(1, NEVER)
    deadlines.forget(2)
    assert len(deadlines) == 0
    assert deadlines.due(10) == []
    assert deadlines.next() == NEVER


def test_a_thousand_idle_groups_leave_nothing_behind():
    deadlines = GroupDeadlines()
    for group in range(1000):
        deadlines.set(group, NEVER)
    assert deadlines.next() == NEVER
    assert len(deadlines) == 0


def test_moving_a_deadline_on_does_not_grow_the_heap():
    deadlines = GroupDeadlines()
    for instant in range(1, 1000):
        deadlines.set(1, instant * 10)
    assert len(deadlines._heap) == 1


@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.one_of(st.integers(0, 100), st.just(NEVER))), max_size=60
    ),
    st.lists(st.integers(0, 120), min_size=1, max_size=10),
)
def test_agrees_with_a_dictionary(changes, looks):
    deadlines, twin = GroupDeadlines(), {}
    per_look = max(1, len(changes) // len(looks))
    for number, now in enumerate(sorted(looks)):
        for group, deadline in changes[number * per_look : (number + 1) * per_look]:
            deadlines.set(group, deadline)
            twin[group] = deadline
        expected = sorted(g for g, d in twin.items() if d <= now)
        assert sorted(deadlines.due(now)) == expected
        for group in expected:
            del twin[group]
        assert deadlines.next() <= min((d for d in twin.values()), default=NEVER)


def test_timers_run_in_order_and_once():
    timers, calls = Timers(), []
    timers.at(20, calls.append, "b")
    timers.at(10, calls.append, "a")
    timers.at(20, calls.append, "c")
    timers.run_due(15)
    assert calls == ["a"]
    timers.run_due(20)
    timers.run_due(99)
    assert calls == ["a", "b", "c"]
    assert timers.next() == NEVER


def test_a_cancelled_timer_is_not_called_and_wakes_nobody():
    timers, calls = Timers(), []
    first = timers.at(10, calls.append, "a")
    timers.at(20, calls.append, "b")
    first.cancel()
    assert timers.next() == 20
    timers.run_due(99)
    assert calls == ["b"]


def test_a_timer_may_cancel_another_that_is_due():
    timers, calls = Timers(), []
    second = None

    def cancel() -> None:
        second.cancel()

    timers.at(10, cancel)
    second = timers.at(10, calls.append, "never")
    timers.run_due(10)
    assert calls == []


def test_what_a_timer_asks_for_now_waits_for_the_next_turn():
    timers, calls = Timers(), []

    def again() -> None:
        calls.append("again")
        timers.at(10, again)

    timers.at(10, again)
    timers.run_due(10)
    assert calls == ["again"]
    assert timers.next() == 10
    timers.run_due(10)
    assert calls == ["again", "again"]


def test_cancelled_timers_are_swept():
    """A produce's time-out lies 30 s ahead and is cancelled in a millisecond."""
    timers = Timers()
    for _ in range(10_000):
        timers.at(30_000, print).cancel()
    assert len(timers) < 200
