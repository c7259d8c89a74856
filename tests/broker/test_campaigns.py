"""Goal: a busy node elects leaders for thousands of groups one after another, and never the same
ones in vain for ever."""

from hypothesis import given
from hypothesis import strategies as st

from raftlog.base.ids import GroupId
from raftlog.base.units import Instant, Nanos
from raftlog.broker.campaigns import WINDOW_MAX, WINDOW_MIN, WINDOW_START, Campaigns

ELECTION = 1_000


def campaigns(window=WINDOW_START):
    return Campaigns(Nanos(ELECTION), window)


def admit(parts, group, now=0):
    return parts.admit(GroupId(group), Instant(now))


def test_as_many_campaign_at_once_as_the_window_allows():
    parts = campaigns(2)
    assert [admit(parts, group) for group in (1, 2, 3, 4)] == [True, True, False, False]
    assert parts.next() is None
    parts.ended(GroupId(1), led=False)
    assert parts.has_next
    assert parts.next() == 3
    assert parts.next() is None


def test_a_leader_widens_the_window_and_a_time_out_halves_it_once_an_election_time():
    parts = campaigns(16)
    for group in range(16):
        assert admit(parts, group, ELECTION)
    parts.ended(GroupId(0), led=True)
    assert parts.window == 17
    for group in (1, 2, 3):
        admit(parts, group, 2 * ELECTION)
    assert parts.window == 8
    admit(parts, 4, 3 * ELECTION)
    assert parts.window == WINDOW_MIN
    admit(parts, 5, 4 * ELECTION)
    assert parts.window == WINDOW_MIN


def test_the_window_is_bounded():
    parts = campaigns(WINDOW_MAX)
    admit(parts, 1)
    parts.ended(GroupId(1), led=True)
    assert parts.window == WINDOW_MAX


def test_who_timed_out_goes_to_the_end_of_the_line():
    """Groups that lost their quorum held every place, and a group that had one never got any."""
    parts = campaigns(4)
    for group in range(8):
        admit(parts, group)
    for group in range(4):
        assert not admit(parts, group, 10 * ELECTION)
    order = []
    while (group := parts.next()) is not None:
        order.append(group)
    assert order == [4, 5, 6, 7]


def test_asking_again_while_waiting_changes_nothing():
    parts = campaigns(1)
    admit(parts, 1)
    assert not admit(parts, 2)
    assert not admit(parts, 2, 5 * ELECTION)
    parts.ended(GroupId(1), led=False)
    assert parts.next() == 2
    assert parts.next() is None


def test_a_group_that_is_gone_gives_its_place_back():
    parts = campaigns(1)
    admit(parts, 1)
    admit(parts, 2)
    parts.dropped(GroupId(1))
    parts.dropped(GroupId(2))
    assert not parts.has_next
    assert admit(parts, 3)


def test_the_end_of_no_campaign_is_harmless():
    parts = campaigns()
    parts.ended(GroupId(9), led=True)
    assert parts.window == WINDOW_START


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 12)), max_size=200))
def test_no_place_is_lost_and_no_group_forgotten(steps):
    """Whoever waits gets a place once those who run have ended, whatever happened before."""
    parts, now = campaigns(4), 0
    asked = set()
    for kind, group in steps:
        now += 300
        if kind == 0:
            admit(parts, group, now)
            asked.add(group)
        elif kind == 1:
            parts.ended(GroupId(group), led=bool(group % 2))
        elif kind == 2:
            parts.dropped(GroupId(group))
        else:
            parts.next()
    for group in range(13):
        parts.ended(GroupId(group), led=False)
    while (group := parts.next()) is not None:
        parts.ended(group, led=False)
    assert not parts.has_next
    assert all(admit(parts, group, now) for group in range(WINDOW_MIN))
