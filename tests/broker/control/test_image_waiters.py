"""Waits end once: by a change that makes them ready, by their deadline, or with their client."""

from functools import partial

import pytest

from raftlog.broker.control.image_waiters import ImageWaiters
from raftlog.broker.deadlines import Timers


class FakeTurn:
    def __init__(self):
        self.timers = Timers()
        self.later = []

    def soon(self, call, *args):
        self.later.append((call, args))

    def flush(self):
        later, self.later = self.later, []
        for call, args in later:
            call(*args)

    def at(self, deadline, call, *args):
        return self.timers.at(deadline, call, *args)


@pytest.fixture
def services():
    return FakeTurn()


@pytest.fixture
def waiters(services):
    return ImageWaiters(services)


def test_a_wait_ends_when_a_change_makes_it_ready(waiters, services):
    shown, calls = [], []
    waiters.wait(lambda: bool(shown), 100, partial(calls.append, "done"))
    waiters.changed()
    waiters.turn.flush()
    assert calls == []
    shown.append(1)
    assert calls == [], "only a change is looked at"
    waiters.changed()
    waiters.turn.flush()
    waiters.changed()
    waiters.turn.flush()
    services.timers.run_due(1000)
    assert calls == ["done"]
    assert len(waiters) == 0


def test_a_wait_ends_at_its_deadline(waiters, services):
    calls = []
    waiters.wait(lambda: False, 100, partial(calls.append, "late"))
    services.timers.run_due(99)
    assert calls == []
    services.timers.run_due(100)
    waiters.changed()
    waiters.turn.flush()
    assert calls == ["late"]


def test_who_leaves_is_not_called(waiters, services):
    calls = []
    waiter = waiters.wait(lambda: True, 100, partial(calls.append, "never"))
    waiter.leave()
    waiter.leave()
    waiters.changed()
    waiters.turn.flush()
    services.timers.run_due(1000)
    assert calls == []


def test_a_call_may_end_another_wait(waiters):
    calls = []
    second = []

    def end_it():
        second[0].leave()

    waiters.wait(lambda: True, 100, end_it)
    second.append(waiters.wait(lambda: True, 100, partial(calls.append, "never")))
    waiters.changed()
    waiters.turn.flush()
    assert calls == []
    assert len(waiters) == 0


def test_waits_end_in_the_order_in_which_they_began(waiters):
    calls = []
    for name in "abc":
        waiters.wait(lambda: True, 100, partial(calls.append, name))
    waiters.changed()
    waiters.turn.flush()
    assert calls == ["a", "b", "c"]


def test_many_changes_of_a_turn_are_looked_at_once(waiters):
    looks = []
    waiters.wait(lambda: bool(looks.append(1)), 100, print)
    for _ in range(10):
        waiters.changed()
    waiters.turn.flush()
    assert len(looks) == 1
