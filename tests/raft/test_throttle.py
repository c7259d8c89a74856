"""Throttles: a learner is sent entries at a rate, and no other replica ever waits for one."""

import attrs
import pytest

from raftlog.base.ids import NodeId
from raftlog.base.limits import THROTTLE_RATE_MIN
from raftlog.base.units import Instant, millis
from raftlog.raft.throttle import UNTHROTTLED, Throttle, Throttling
from tests.raft.cluster import OPTIONS, WALL, Cluster, rid, voters

SECOND = 1_000_000_000
NOW = Instant(5 * SECOND)
PAYLOAD = b"x" * 1000


def moving(rate, names_leader=True, **options):
    """Two voters with 100 kB, and a third node that is to join at `rate`."""
    budget = Throttle()
    budget.limit(rate)
    throttling = Throttling(leader=budget if names_leader else None)
    options = attrs.evolve(OPTIONS, promote_lag_max=8, throttling=throttling, **options)
    c = Cluster(3, options=options, membership=voters(1, 2))
    c.elect(1)
    c.settle()
    for _ in range(10):
        c.write(1, *[PAYLOAD] * 10)
    c.node(1).change_membership(voters(1, 2, 3), c.now, WALL)
    return c, budget


def run(c, until, limit):
    """Step by 20 ms until `until` holds; how long that took, in seconds."""
    began = c.now
    while not until():
        assert c.now - began < limit * SECOND, "not reached"
        c.advance(millis(20))
        c.settle()
    return (c.now - began) / SECOND


def bytes_held(c, number):
    return sum(len(payload) for payload in c[number].payloads)


def test_slots_follow_each_other_at_the_rate():
    throttle = Throttle()
    assert throttle.limit(10_000)
    assert [throttle.reserve(NOW, 1_000) - NOW for _ in range(3)] == [0, SECOND // 10, SECOND // 5]
    throttle.settle(9_000)
    throttle.settle(-1_000)
    assert throttle.reserve(NOW, 1) - NOW == SECOND * 11 // 10
    idle = Instant(NOW + 60 * SECOND)
    assert throttle.reserve(idle, 1_000) == idle, "what was not used is not saved up"
    assert throttle.reserve(idle, 1) - idle == SECOND // 10


def test_a_rate_is_never_so_low_that_a_move_does_not_end():
    throttle = Throttle()
    for rate in (1, THROTTLE_RATE_MIN - 1):
        throttle.limit(rate)
        assert throttle.rate == THROTTLE_RATE_MIN
    assert not throttle.limit(THROTTLE_RATE_MIN)
    assert throttle.limit(UNTHROTTLED)


def test_the_tighter_of_two_budgets_counts():
    sends, takes = Throttle(), Throttle()
    throttling = Throttling(sends, {NodeId(4): takes})
    assert throttling.limits(NodeId(4)) == ()
    sends.limit(100_000)
    takes.limit(10_000)
    assert throttling.limits(NodeId(3)) == (sends,)
    limits = throttling.limits(NodeId(4))
    first, second = (throttling.reserve(limits, NOW, 1 << 20) for _ in range(2))
    assert (first.due, first.byte_count) == (NOW, 1_000)
    assert second.due - NOW == SECOND // 10
    before = throttling.stamp(limits)
    takes.limit(20_000)
    assert throttling.stamp(limits) != before


def test_a_learner_is_sent_entries_at_the_rate_and_becomes_a_voter():
    c, _ = moving(20_000)
    held = []
    while not c.node(1).membership.is_voter(rid(3)):
        assert len(held) < 20, "the move does not end"
        c.advance(SECOND, step=millis(20))
        c.settle()
        held.append(bytes_held(c, 3))
    assert 4 <= len(held) <= 7, held
    steps = [after - before for before, after in zip([0, *held], held, strict=False)]
    assert max(steps) <= 2 * 20_000, steps
    c.settle()
    assert c[3].payloads == c[1].payloads


def test_without_a_rate_nothing_waits():
    for rate, names_leader in ((UNTHROTTLED, True), (20_000, False)):
        c, _ = moving(rate, names_leader)
        assert run(c, lambda c=c: c.node(1).membership.is_voter(rid(3)), 1) < 0.5


def test_voters_and_commits_do_not_wait_for_the_budget():
    c, budget = moving(THROTTLE_RATE_MIN)
    c.settle()
    budget.settle(1_000_000)  # the budget is exhausted for a thousand seconds
    first = c.node(1).commit
    c.write(1, PAYLOAD, PAYLOAD)
    assert c.node(1).commit == first + 2
    assert c.node(2).durable == c.node(1).durable
    terms = c[1].terms
    c.advance(3 * SECOND)
    c.settle()
    assert c.leader() == 1
    assert (c[1].terms, c.node(3).leader) == (terms, rid(1)), "heartbeats reach the learner"


def test_a_changed_rate_counts_at_once():
    c, budget = moving(THROTTLE_RATE_MIN)
    c.settle()
    budget.settle(1_000_000)
    c.advance(SECOND)
    assert not c.node(1).membership.is_voter(rid(3))
    budget.limit(10_000_000)
    assert run(c, lambda: c.node(1).membership.is_voter(rid(3)), 2) <= 1


def test_a_learner_is_not_promoted_before_its_slots_brought_it_to_the_end():
    """A voter is not throttled: with 64 batches to go, all of them would go out at once."""
    c, _ = moving(20_000)
    sizes = []
    while not c.node(1).membership.is_voter(rid(3)):
        c.advance(millis(20))
        c.settle()
        sizes.append(bytes_held(c, 3))
    assert sizes[-1] >= 99_000, sizes[-1]


@pytest.mark.parametrize("busy", [3, 10])
def test_a_busy_partition_moves_as_long_as_it_writes_less_than_the_rate(busy):
    c, _ = moving(40_000)

    def joined():
        c.write(1, PAYLOAD) if c.now % (SECOND // busy) < millis(20) else None
        return c.node(1).membership.is_voter(rid(3))

    assert 2 <= run(c, joined, 12) <= 8
