"""A leader that should not lead on looks for another, and leads until that one does."""

import attrs
import pytest

from raftlog.raft.node import Role
from tests.raft.cluster import ELECTION, OPTIONS, WALL, Cluster, make_batch, rid


def handed_over(c: Cluster, number: int) -> int | None:
    """The leader after this leader looked for another."""
    c.node(number).hand_over(c.now)
    c.settle()
    return c.leader()


def test_each_voter_is_asked_in_its_turn():
    """Regression: two leaders with gaps in their logs asked each other for ever, and never the
    third voter, which had everything."""
    c = Cluster(5)
    c.elect(1)
    c.write(1, b"a")
    c.isolate(4, 5)
    c.advance(2 * ELECTION)
    assert handed_over(c, 1) == 2
    assert handed_over(c, 2) == 1
    assert handed_over(c, 1) == 3
    assert handed_over(c, 3) == 1
    assert handed_over(c, 1) == 2


def test_the_furthest_is_asked_of_those_that_were_not_asked_yet():
    c = Cluster(5)
    c.elect(1)
    c.frozen_disks.add(2)
    c.propose(1, b"a")
    c.settle()
    assert c.node(1).successors == 3
    assert handed_over(c, 1) == 3


def test_a_leader_with_entries_that_were_not_sent_yet_brings_the_other_to_its_end():
    """Regression: it stepped down under load. The other could not win against its longer log, and
    nobody led for an election timeout, at each attempt."""
    options = attrs.evolve(
        OPTIONS, append_bytes_max=300, appends_in_flight_max=2, inflight_bytes_max=600
    )
    c = Cluster(3, options=options)
    c.elect(1)
    c.write(1, b"a")
    c.isolate(3)
    for _ in range(20):
        offset, term = c[1].log.next_offset, c[1].node.term
        c.node(1).propose([make_batch(offset, term, b"x" * 200)], c.now, WALL)
        c.flush(1)
    assert c.node(1).progress[rid(2)].next <= c[1].log.last_index, "the window is full"
    last = c[1].log.last_index
    assert handed_over(c, 1) == 2
    assert c.node(2).commit == last + 1


@pytest.mark.parametrize("away", [(2, 3), (3,)])
def test_a_voter_that_is_not_heard_is_not_asked(away):
    c = Cluster(3, options=attrs.evolve(OPTIONS, check_quorum=False))
    c.elect(1)
    c.write(1, b"a")
    for number in away:
        c.isolate(number)
    c.advance(2 * ELECTION)
    assert handed_over(c, 1) == (2 if away == (3,) else 1)
    assert c.node(1).transferring is None


def test_a_transfer_that_is_under_way_goes_on():
    c = Cluster(3)
    c.elect(1)
    c.isolate(3)
    c.write(1, b"a")
    c.node(1).transfer(rid(3), c.now)
    c.node(1).hand_over(c.now)
    assert c.node(1).transferring == rid(3)


def test_a_follower_has_nothing_to_hand_over():
    c = Cluster(3)
    c.elect(1)
    assert handed_over(c, 2) == 1
    assert c[2].role is Role.FOLLOWER
