"""The demo's findings about its group, from the lines that members print."""

import pytest
import trio

from raftlog.base.errors import OperatingError
from raftlog.cli.demo import group_reading
from raftlog.cli.demo.group_reading import GroupReading, read_by_group

ENDS = {0: 3, 1: 2}


def reading(*lines: tuple[int, list[int]]) -> GroupReading:
    found = GroupReading(ENDS, killed=1)
    for partition, offsets in lines:
        found.told(0, {"partition": partition, "offsets": offsets})
    return found


def test_all_processed_once_or_more_is_proved_and_counted():
    found = reading((0, [0, 1, 2]), (1, [0]), (1, [0, 1]))
    assert found.claim().holds
    assert (found.processed, found.twice) == (5, 1)
    assert "each of 5 records at least once, 1 of them more than once" in found.claim().says


def test_a_record_that_no_member_processed_is_named():
    claim = reading((0, [0, 2]), (1, [0, 1])).claim()
    assert not claim.holds
    assert "{0: 1}" in claim.evidence


def test_a_group_in_which_no_member_died_proves_nothing():
    found = reading((0, [0, 1, 2]), (1, [0, 1]))
    found.killed = None
    assert not found.claim().holds


def test_the_group_is_whole_when_all_members_share_all_partitions():
    found = GroupReading({0: 1, 1: 1, 2: 1})
    for member, partitions in enumerate(([0, 1], [2], [])):
        found.told(member, {"assigned": partitions})
    assert not found.whole
    found.told(0, {"assigned": [0]})
    found.told(2, {"assigned": [1]})
    assert found.whole


def test_a_member_that_ends_by_itself_is_reported(monkeypatch):
    monkeypatch.setattr(group_reading.sys, "executable", "/bin/true")
    with pytest.raises(OperatingError, match="a member of the group ended"):
        trio.run(read_by_group, "127.0.0.1:1", "flights", ENDS)
