"""Which wall clocks agree: both ways, at the bound and one beyond it, and only while fresh."""

import pytest

from raftlog.base.limits import CLOCK_HEARD_MS_MAX, CLOCKS_APART_MS_MAX
from raftlog.base.units import millis
from raftlog.broker.peer_messages import NO_WALL
from raftlog.broker.replicas.node_clocks import NodeClocks

NODE, NOW, WALL = 2, 5_000_000_000, 1_700_000_000_000


@pytest.mark.parametrize(
    ("apart_ms", "shares"),
    [
        (0, True),
        (CLOCKS_APART_MS_MAX, True),
        (-CLOCKS_APART_MS_MAX, True),
        (CLOCKS_APART_MS_MAX + 1, False),
        (-CLOCKS_APART_MS_MAX - 1, False),
    ],
)
def test_clocks_agree_within_the_bound(apart_ms, shares):
    clocks = NodeClocks()
    clocks.heard(NODE, WALL + apart_ms, NOW)
    assert clocks.shares(NODE, NOW, WALL) is shares


@pytest.mark.parametrize(("passed_ms", "shares"), [(0, 1), (CLOCK_HEARD_MS_MAX, 1), (10_001, 0)])
def test_a_clock_runs_on_after_it_was_heard_and_is_forgotten_in_time(passed_ms, shares):
    clocks = NodeClocks()
    clocks.heard(NODE, WALL, NOW)
    later = NOW + millis(passed_ms)
    assert clocks.shares(NODE, later, WALL + passed_ms) == bool(shares)
    assert not clocks.shares(NODE, later, WALL + passed_ms + CLOCKS_APART_MS_MAX + 1)


def test_an_unknown_clock_is_not_shared():
    clocks = NodeClocks()
    assert not clocks.shares(NODE, NOW, WALL)
    clocks.heard(NODE, WALL, NOW)
    clocks.heard(NODE, NO_WALL, NOW)
    assert not clocks.shares(NODE, NOW, WALL), "the peer went back to a release that tells none"
    clocks.heard(NODE, WALL, NOW)
    clocks.forget(NODE)
    assert not clocks.shares(NODE, NOW, WALL)
