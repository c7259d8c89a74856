"""Rounds in flight: what they make durable, and when a disk stands still."""

import pytest

from raftlog.base.ids import IoId, RaftIndex
from raftlog.base.units import NEVER, Instant
from raftlog.raft.rounds import RaftRounds
from tests.raft.cluster import Cluster

LIMIT = 500


@pytest.fixture
def rounds():
    return RaftRounds(RaftIndex(0))


def begin(rounds, *numbers, now=0):
    for number in numbers:
        rounds.begin(IoId(number), RaftIndex(number), hard_state=False, now=now)


def test_a_disk_that_brings_nothing_back_stands_still(rounds):
    assert not rounds.stalled(10_000, LIMIT), "nothing is asked of it"
    begin(rounds, 1, 2)
    assert not rounds.stalled(LIMIT - 1, LIMIT)
    assert rounds.stalled(LIMIT, LIMIT)


def test_a_slow_disk_that_brings_back_round_after_round_does_not(rounds):
    """Seen with syncs of 60 to 200 ms under load: a round had waited for the one before. It was
    taken for a stall in the moment in which the disk began with it, and all leaders stepped down
    again and again."""
    begin(rounds, 1, 2, 3)
    for number in (1, 2, 3):
        began = (number - 1) * 400
        assert not rounds.stalled(began + 399, LIMIT)
        assert rounds.complete(IoId(number), began + 400)
        assert rounds.durable == number
    assert not rounds.stalled(10_000, LIMIT)


def test_then_it_stands_still_a_limit_after_the_last_one_came_back(rounds):
    begin(rounds, 1, 2)
    rounds.complete(IoId(1), 400)
    assert not rounds.stalled(400 + LIMIT - 1, LIMIT)
    assert rounds.stalled(400 + LIMIT, LIMIT)


def test_a_later_round_that_comes_back_first_is_no_progress(rounds):
    begin(rounds, 1, 2)
    assert not rounds.complete(IoId(2), 400)
    assert rounds.durable == 0
    assert rounds.stalled(LIMIT, LIMIT)
    assert rounds.complete(IoId(1), 600)
    assert (rounds.durable, len(rounds.open)) == (2, 0)


def test_a_round_of_somebody_else_changes_nothing(rounds):
    begin(rounds, 2)
    assert not rounds.complete(IoId(1), 400)
    assert rounds.stalled(LIMIT, LIMIT)


def test_a_leader_that_gave_up_gives_its_disk_twice_the_time(rounds):
    """Seed 4200030: twelve groups on one disk, whose write of all their terms took longer than
    the limit: each stepped down before its first entry was durable, and campaigned again,
    without end."""
    assert rounds.leads_until(LIMIT) == NEVER
    begin(rounds, 1, now=100)
    for doublings in (0, 1, 2, 3, 4, 5, 6, 6, 6):
        assert rounds.leads_until(LIMIT) == 100 + (LIMIT << doublings)
        rounds.given_up += 1


def test_a_disk_that_is_quick_again_is_forgiven(rounds):
    begin(rounds, 1, 2)
    begin(rounds, 3, now=LIMIT)
    rounds.given_up = 3
    for number in (1, 2):  # in one sync: the second was not quick
        rounds.complete(IoId(number), LIMIT)
        rounds.forgive(LIMIT)
        assert rounds.given_up == 3
    rounds.complete(IoId(3), 2 * LIMIT - 1)
    rounds.forgive(LIMIT)
    assert rounds.given_up == 0


def test_a_sole_voter_forgives_its_disk_with_its_first_entry():
    """It follows no leader, and an idle one has no other write that could show it."""
    peer = Cluster(1)[1]
    node, now = peer.node, peer.deadline
    node._state.rounds.given_up = 3
    node.tick(now)
    for _ in range(10):
        peer.take()
        if peer.open:
            now = Instant(now + 1_000)
            peer.persist(now)
    assert node.ready
    assert node._state.rounds.given_up == 0
