"""Markers let the replicas compare their machines at an exact place of the log.

The story that these tests are against: a replica whose state went wrong is elected, and answers
from it. Nothing in its log shows that.
"""

import pytest

from raftlog.base.units import millis
from raftlog.kafka.error_codes import ErrorCode
from raftlog.partition.config import PartitionConfig
from tests.partition.group import ELECTION, Group
from tests.partition.test_applied_machine import propose, values
from tests.partition.toy_machine import LastValues

CHECKS = PartitionConfig(retention_check_ns=millis(5_000))


def checking_group():
    group = Group(1, 2, 3, machine=LastValues, config=CHECKS)
    group.elect(1)
    return group


def markers(group, number):
    """How many entries of this replica's log hold neither a record nor a term's begin."""
    log = group[number].log
    kinds = [entry.kind.name for entry in log.entries(log.first_index, 2**40)]
    return kinds.count("MARKER")


def differs(group, number):
    return [output.differs for output in group.places[number].outputs if output.differs]


def test_equal_machines_are_compared_and_go_on():
    group = checking_group()
    for number in range(5):
        propose(group, 1, (b"k", b"%d" % number))
        group.advance(millis(6_000))
    for number in (1, 2, 3):
        assert not group[number].stopped
        assert markers(group, number) >= 4
        assert group[number]._feed._named > 0


def test_a_group_at_rest_writes_two_markers_and_then_none():
    group = checking_group()
    propose(group, 1, (b"k", b"v"))
    group.advance(millis(60_000))
    assert markers(group, 1) == 2
    group.advance(millis(600_000))
    assert markers(group, 1) == 2
    propose(group, 1, (b"k", b"w"))
    group.advance(millis(60_000))
    # The last marker of before tells the place before this record.
    assert 3 <= markers(group, 1) <= 4


def test_a_group_that_was_never_written_to_writes_no_markers():
    group = checking_group()
    group.advance(millis(60_000))
    assert markers(group, 1) == 0


@pytest.mark.parametrize("wrong", [2, 3])
def test_a_follower_that_holds_something_else_stops_and_the_others_go_on(wrong):
    group = checking_group()
    propose(group, 1, (b"k", b"v"))
    group.advance(millis(1_000))
    values(group, wrong)[b"k"] = b"wrong"
    group.advance(millis(20_000))
    assert group[wrong].stopped
    (why,) = differs(group, wrong)
    assert "digest" in why
    told = [e for e in group.places[wrong].tracer.events if e.name == "machine-stopped"]
    assert len(told) == 1
    assert [group[n].stopped for n in (1, 2, 3)].count(True) == 1
    assert [one.error for one in _written(group)] == [ErrorCode.NONE]


def _written(group):
    answers = propose(group, group.leader().me.node, (b"more", b"v"))
    group.advance(ELECTION)
    return answers


def test_a_wrong_replica_that_was_elected_is_found_by_what_the_leader_before_it_said():
    group = checking_group()
    propose(group, 1, (b"k", b"v"))
    group.advance(millis(6_000))  # the first marker is in the log, and names nothing
    assert markers(group, 1) == 1
    values(group, 2)[b"k"] = b"wrong"
    propose(group, 1, (b"other", b"v"))
    group.advance(millis(6_000))
    assert markers(group, 1) == 2
    group.elect(2)
    propose(group, 2, (b"more", b"v"))
    group.advance(millis(12_000))
    stopped = [number for number in (1, 2, 3) if group[number].stopped]
    # By its own word the wrong leader convicts the others, or an earlier leader convicts it.
    assert stopped


def test_a_replay_compares_too():
    group = checking_group()
    propose(group, 1, (b"k", b"v"))
    group.advance(millis(20_000))
    propose(group, 1, (b"k", b"w"))
    group.advance(millis(20_000))
    group.crash(2)
    group.restart(2)
    group.settle()
    assert group[2].applied_index == group[2].commit
    assert group[2]._feed._compared is not None
    assert not group[2].stopped


def test_a_stopped_replica_that_boots_again_is_compared_again():
    """Its state was wrong in memory only: the log is right, and so is what a boot makes of it."""
    group = checking_group()
    propose(group, 1, (b"k", b"v"))
    group.advance(millis(1_000))
    values(group, 3)[b"k"] = b"wrong"
    group.advance(millis(20_000))
    assert group[3].stopped
    group.crash(3)
    group.restart(3)
    propose(group, 1, (b"k", b"w"))
    group.advance(millis(40_000))
    assert not group[3].stopped
    assert values(group, 3) == values(group, 1)
