"""Goal: published never goes back, never before it may, and no promise passes above it."""

import pytest

from raftlog.partition.high_watermark import HighWatermark


def test_it_begins_at_what_is_known_committed():
    mark = HighWatermark(7)
    assert (mark.committed, mark.published) == (7, 7)


def test_it_follows_the_commit_when_it_may():
    mark = HighWatermark(7)
    assert mark.advance(9, may_publish=True)
    assert mark.published == 9
    assert not mark.advance(9, may_publish=True)


def test_a_new_leader_holds_it_still_until_it_may_publish():
    mark = HighWatermark(7)
    assert not mark.advance(9, may_publish=False)
    assert (mark.committed, mark.published) == (9, 7)
    assert mark.advance(9, may_publish=True)
    assert mark.published == 9


def test_it_never_goes_back():
    mark = HighWatermark(7)
    with pytest.raises(AssertionError):
        mark.advance(6, may_publish=True)
    with pytest.raises(AssertionError):
        mark.advance(6, may_publish=False)


def test_a_promise_at_or_above_it_stops_the_broker():
    mark = HighWatermark(7)
    mark.promise(6)
    with pytest.raises(AssertionError):
        mark.promise(7)


def test_a_promise_about_committed_but_unpublished_stops_the_broker():
    mark = HighWatermark(7)
    mark.advance(9, may_publish=False)
    with pytest.raises(AssertionError):
        mark.promise(8)
