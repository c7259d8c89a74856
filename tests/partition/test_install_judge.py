"""The state of an install is checked and restored in a job, not in a turn.

The story: a replica far behind took the state of 100,000 committed offsets in one turn, which
restored it twice, once to judge it. All partitions of its broker stood still for seconds.
"""

import pytest

from raftlog.base.errors import CorruptData
from raftlog.base.limits import REMOVAL_PAUSE_MS
from raftlog.base.units import millis
from raftlog.raft.messages import Install
from tests.partition.group import ELECTION, Place
from tests.partition.test_machine_snapshots import filled, small_group
from tests.partition.toy_machine import LastValues


@pytest.fixture
def restored(monkeypatch):
    """Where states are restored: "job", or "turn"."""
    seen, inside = [], []
    real, call = LastValues.restore, Place.call

    def restore(self, body):
        seen.append("job" if inside else "turn")
        real(self, body)

    def job(self, function, args):
        inside.append(function)
        try:
            return call(self, function, args)
        finally:
            inside.pop()

    monkeypatch.setattr(LastValues, "restore", restore)
    monkeypatch.setattr(Place, "call", job)
    return seen


def behind():
    """A group in which replica 3 has to be installed, and has just come back."""
    group = small_group(count=5)
    group.crash(3)
    filled(group, 200, start=5)
    group.advance(millis(2 * REMOVAL_PAUSE_MS))
    group.restart(3)
    return group


def installed(group):
    first = group[1].log.first_index
    return group[3].log.first_index >= first > 100


def test_no_turn_restores_the_state_of_an_install(restored):
    group = behind()
    restored.clear()  # of its boot
    group.advance(3 * ELECTION)
    assert installed(group)
    assert set(restored) == {"job"}
    assert group[3].machine.snapshot() == group[1].machine.snapshot()
    filled(group, 10, start=205)
    group.advance(ELECTION)
    assert group[3].machine.snapshot() == group[1].machine.snapshot()


def test_while_the_job_runs_the_log_stays_and_the_leader_is_heard(restored):
    group = behind()
    restored.clear()  # of its boot
    group.places[3].jobs_held = True
    before, term = group[3].log.last_index, group[1].term
    pieces = []
    group.blocked = lambda message: pieces.append(type(message)) if type(message) is Install else 0
    group.advance(10 * ELECTION)
    assert group[3].log.last_index == before
    assert group[3].leader == group.places[1].me
    assert (group[1].term, group[3].term) == (term, term)
    assert len(pieces) < 40, "the leader sends pieces as after any silence"
    group.places[3].jobs_held = False
    group.advance(2 * ELECTION)
    assert installed(group)
    assert set(restored) == {"job"}
    assert group[3].machine.snapshot() == group[1].machine.snapshot()


def test_another_leader_installs_while_a_state_is_judged():
    group = behind()
    group.places[3].jobs_held = True
    group.advance(2 * ELECTION)
    group.elect(2)
    filled(group, 60, start=205)
    group.places[3].jobs_held = False
    group.advance(5 * ELECTION)
    assert installed(group)
    assert group[3].commit == group[2].commit
    assert group[3].machine.snapshot() == group[2].machine.snapshot()


def test_a_replica_that_dies_while_its_state_is_judged_is_installed_at_the_next_boot():
    group = behind()
    group.places[3].jobs_held = True
    group.advance(2 * ELECTION)
    group.crash(3)
    group.places[3].jobs_held = False
    group.restart(3)
    group.advance(3 * ELECTION)
    assert installed(group)
    assert group[3].machine.snapshot() == group[1].machine.snapshot()


def test_a_state_that_cannot_be_restored_is_refused_and_changes_nothing(monkeypatch):
    group = behind()
    real, before = LastValues.restore, group[3].log.last_index

    def broken(self, body):
        raise CorruptData("not a toy", on="toy machine")

    monkeypatch.setattr(LastValues, "restore", broken)
    group.advance(5 * ELECTION)
    assert group[3].log.last_index == before
    monkeypatch.setattr(LastValues, "restore", real)
    group.advance(5 * ELECTION)
    assert installed(group)
    assert group[3].machine.snapshot() == group[1].machine.snapshot()
