"""Each check of memberships in force fails on a broken product, or on a memory that was tampered
with."""

import attrs
import pytest
from raftlog_sim.base.violation import Violation
from raftlog_sim.checks.membership_checks import _begun
from raftlog_sim.facts.outline import NOTHING
from raftlog_sim.playing.simulation import Run, simulate

from raftlog.base.entries import Membership
from raftlog.base.ids import DirectoryId, NodeId, RaftIndex, ReplicaEpoch, ReplicaId
from raftlog.base.units import millis
from raftlog.raft import membership
from raftlog.raft.state import RaftState
from tests.sim.checks.test_invariants import middle, schedule, step

OTHER = ReplicaId(NodeId(9), DirectoryId(9), ReplicaEpoch(9))
MOVE = step(100, "reassign", partition=0, nodes="n2+n3+n4")


def moving():
    return schedule(MOVE, brokers=4, safety_ms=900)


def moved():
    """A run in which a partition has moved, its checks, and its leader."""
    run = Run(moving())
    while run.phase == "set-up":
        run.advance()
    end = run.world.now + millis(800)
    while run.world.now < end:
        run.advance()
    group = run.world.nodes[NodeId(2)].broker.context.image.topic("t").partitions[0].group
    held = [node.broker.context.replicas.get(group) for node in run.world.running()]
    leader = next(each for each in held if each is not None and each.is_leader)
    assert leader.membership_index > 0
    return run, run.onlooker.invariants, leader


def test_memberships_are_compared_where_partitions_move():
    result = simulate(moving())
    assert result.failure == ""
    assert result.invariants["membership-in-force"]["checked"] > 20
    assert result.invariants["one-change-at-a-time"]["checked"] >= 3


# --- what is in force -----------------------------------------------------------------------------


def test_a_follower_that_waits_for_the_commit(monkeypatch):
    monkeypatch.setattr(membership, "on_appended", lambda state, entry: None)
    assert simulate(moving()).failure_class == "membership-in-force"


def test_a_membership_entry_that_nobody_noticed():
    run, invariants, leader = moved()
    changes, state, log = invariants.changes, leader.node._state, leader.log
    assert changes.in_force(leader) == ""
    changes.scanned.clear()
    assert changes.in_force(leader) == ""
    log.memberships = log.memberships[:-1]
    assert "its log tells of" in changes.in_force(leader)
    state.memberships[:] = log.memberships[-1:]
    changes.scanned.clear()
    assert "is in its log" in changes.in_force(leader)
    changes.scanned.clear()
    with pytest.raises(Violation, match="membership-in-force"):
        invariants.whole([run.world.nodes[leader.me.node]])


@pytest.mark.parametrize(
    ("further", "why"), [(-1, "is in its log"), (0, "no such entry"), (10_000, "no such entry")]
)
def test_a_membership_that_is_not_that_of_its_entry(further, why):
    _, invariants, leader = moved()
    index = RaftIndex(leader.membership_index + further)
    wrong = (index, leader.membership if further else Membership(voters=(OTHER,)))
    leader.node._state.memberships[-1] = leader.log.memberships[-1] = wrong
    invariants.changes.scanned.clear()
    assert why in invariants.changes.in_force(leader)


def test_a_log_that_has_its_membership_from_the_header_of_its_first_segment():
    _, invariants, _, leader = middle()
    assert leader.membership_index == 0
    assert invariants.changes.in_force(leader) == ""
    segment = leader.log.segments[0]
    segment.header = attrs.evolve(segment.header, membership=Membership(voters=(OTHER,)))
    assert "head segment" in invariants.changes.in_force(leader)


def test_two_replicas_with_other_memberships_at_one_place():
    run, invariants, group, leader = middle()
    invariants.changes.entries[group, 0, None] = Membership(voters=(OTHER,))
    assert "others had" in invariants.changes.in_force(leader)
    invariants.lives.clear()
    invariants.drawn.clear()
    with pytest.raises(Violation, match="membership-in-force"):
        invariants._look(run.world.nodes[leader.me.node], {group: leader}, ())


def test_what_is_committed_is_compared_with_logs_that_begin_behind_it():
    _, invariants, leader = moved()
    changes, place = invariants.changes, (leader.group, leader.membership_index)
    assert changes.in_force(leader) == ""
    assert changes.entries[*place, None] == leader.membership, "committed: whatever its term"
    changes.entries[*place, None] = Membership(voters=(OTHER,))
    assert "others had" in changes.in_force(leader)


# --- one change at a time -------------------------------------------------------------------------


def test_a_leader_that_does_not_wait_for_the_change_before(monkeypatch):
    monkeypatch.setattr(RaftState, "membership_index", property(lambda self: RaftIndex(0)))
    assert simulate(moving()).failure_class == "one-change-at-a-time"


def test_a_change_that_began_too_early():
    _, invariants, group, leader = middle()
    log, last = leader.log, leader.log.last_index
    now = invariants.outlines[group, leader.me]._replace(commit=last, membership_index=last)
    one, two = leader.membership, Membership(voters=(OTHER,))
    log.memberships = [(RaftIndex(0), one), (RaftIndex(last - 1), two), (last, one)]
    assert _begun(leader, now) == ""
    assert "is not committed" in _begun(leader, now._replace(commit=last - 2))
    log.memberships = [(RaftIndex(0), one), (last, two)]
    assert "nothing of its term" in _begun(leader, now._replace(commit=0))
    assert _begun(leader, now._replace(commit=0, term=now.term + 1)) == "", "an earlier leader's"
    found = dict(invariants.changes.looked(leader, NOTHING, now._replace(commit=0)))
    assert found["one-change-at-a-time"]
