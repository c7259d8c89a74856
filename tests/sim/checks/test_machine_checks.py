"""The checks of state machines fail on a machine that was tampered with."""

from raftlog_sim.checks.replica_checks import ReplicaChecks

from tests.partition.group import ELECTION, Group
from tests.partition.test_applied_machine import propose, values
from tests.partition.toy_machine import LastValues


def checked(group, checks):
    return [checks.machine(group[number]) for number in (1, 2, 3)]


def test_machines_that_applied_as_much_hold_the_same():
    group = Group(1, 2, 3, machine=LastValues)
    group.elect(1)
    checks = ReplicaChecks(committed={})
    for number in range(3):
        propose(group, 1, (b"k", b"%d" % number))
        group.advance(ELECTION)
        assert checked(group, checks) == ["", "", ""]
    group.crash(2)
    group.restart(2)
    group.settle()
    assert checked(group, checks) == ["", "", ""], "a replay, too"
    values(group, 3)[b"k"] = b"wrong"
    first, second, third = checked(group, checks)
    assert (first, second) == ("", "")
    assert "p0@n3 holds" in third
