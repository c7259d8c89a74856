"""Whose wall clock counts: a majority of each half of the membership must share it."""

import pytest

from raftlog.base.entries import Membership
from raftlog.base.ids import DirectoryId, NodeId, ReplicaEpoch, ReplicaId
from raftlog.partition.maintenance.clocks import UNKNOWN_CLOCKS, most_share
from tests.partition.group import START, WALL, Clocks


def rid(node):
    return ReplicaId(NodeId(node), DirectoryId(0xA0 + node), ReplicaEpoch(1))


def of(*nodes):
    return tuple(rid(node) for node in nodes)


@pytest.mark.parametrize(
    ("voters", "apart", "enough"),
    [
        ((1,), (), True),
        ((1, 2), (2,), False),
        ((1, 2, 3), (), True),
        ((1, 2, 3), (3,), True),
        ((1, 2, 3), (2, 3), False),
        ((1, 2, 3, 4), (3, 4), False),
        ((1, 2, 3, 4, 5), (4, 5), True),
        ((2, 3, 4), (), True),
        ((2, 3, 4), (3,), True),
        ((2, 3, 4), (3, 4), False),
    ],
)
def test_a_majority_of_the_voters_must_share_the_clock(voters, apart, enough):
    """Node 1 asks; in the last rows it does not vote, so that its own clock does not count."""
    clocks = Clocks()
    clocks.apart = set(apart)
    assert most_share(clocks, Membership(of(*voters)), rid(1), START, WALL) is enough


@pytest.mark.parametrize(
    ("apart", "enough"),
    [((), True), ((3,), True), ((2, 3), False), ((4, 5), False), ((3, 5), True)],
)
def test_both_halves_of_a_joint_membership_must(apart, enough):
    clocks = Clocks()
    clocks.apart = set(apart)
    joint = Membership(of(1, 4, 5), of(1, 2, 3))
    assert most_share(clocks, joint, rid(1), START, WALL) is enough


def test_clocks_that_are_not_known_are_not_shared():
    assert most_share(UNKNOWN_CLOCKS, Membership(of(1)), rid(1), START, WALL)
    assert not most_share(UNKNOWN_CLOCKS, Membership(of(1, 2)), rid(1), START, WALL)
