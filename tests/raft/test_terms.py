"""Terms that rise by much: taken, traced, counted, and never refused."""

import pytest

from raftlog.base.entries import HardState, Membership
from raftlog.base.probes import fired, reset
from raftlog.raft.node import Role
from raftlog.raft.roles import TERM_JUMP
from tests.paper.speaking import append, replica, say
from tests.raft.cluster import OPTIONS, WALL, Cluster, Peer, log_of_terms, rid, voters

OLD = 2**22


@pytest.mark.parametrize(("jump", "traced"), [(TERM_JUMP, 0), (TERM_JUMP + 1, 1)])
def test_a_jump_is_taken_and_traced_above_the_bound_only(jump, traced):
    reset()
    peer = replica(term=3)
    say(peer, append(3 + jump))
    assert (peer.node.term, peer.role) == (3 + jump, Role.FOLLOWER)
    assert fired().get("term-jumped", 0) == traced
    assert len([event for event in peer.tracer.events if event.name == "term-jump"]) == traced


def test_a_wiped_replica_joins_a_group_of_a_high_term():
    c = Cluster(3, hard_states={n: HardState(OLD, None) for n in (1, 2, 3)})
    c.elect(1)
    c.write(1, b"a", b"b")
    assert c.node(1).term > OLD
    new = rid(3, epoch=7)
    c.peers[3] = Peer(new, log_of_terms(membership=voters(1, 2, 3)), options=OPTIONS, now=c.now)
    target = Membership(tuple(sorted((rid(1), rid(2), new))))
    c.node(1).change_membership(target, c.now, WALL)
    c.settle()
    assert c.node(1).membership == target
    assert c.node(3).term == c.node(1).term
    c.isolate(2)
    c.write(1, b"c")
    assert c[3].payloads == [b"a", b"b", b"c"]


def test_a_replica_that_boots_far_behind_votes_in_the_term_of_the_others():
    states = {1: HardState(OLD, None), 2: HardState(OLD, None), 3: HardState(1, None)}
    c = Cluster(3, hard_states=states)
    c.isolate(2)
    c.elect(1)
    assert c.node(3).term == c.node(1).term > OLD
