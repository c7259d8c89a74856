"""A snapshot whose digest is right and whose body is no state is like one that fails its digest.

The story: only the digest of the file was looked at, and the replica was called intact. The broker
then read the body, found that it was none, and stopped, with all other groups, at each boot again.
Such a file came to the disk with an install, which was written before any check had judged it.
"""

import attrs
import pytest
from raftlog_sim.world.disk import Keep

from raftlog.base.entries import InstallPosition
from raftlog.base.errors import CorruptData, FutureFormat
from raftlog.storage.boot.recovery import ReplicaState, recover_replica, salvage_replica
from raftlog.storage.segments.snapshot import newest_snapshot, snapshots_of, write_snapshot
from tests.storage.making import FOUNDERS, SPEC, Driver


def check_state(group, before, body):
    if bytes(body) == b"later":
        raise FutureFormat("state of version 2, this release reads 1")
    if bytes(body) != b"%d before %d" % (group, before):
        raise CorruptData("no state")


JUDGED = attrs.evolve(SPEC, check_state=check_state)
BAD = b"this is no state"


def good(index):
    return b"%d before %d" % (SPEC.group, index + 1)


def long_log():
    driver = Driver()
    driver.lead(1)
    driver.append(5)
    driver.commit_all()
    driver.settle()
    return driver


def place(index):
    return InstallPosition(
        raft_index=index,
        term=1,
        chain=12345,
        next_offset=80,
        log_start=0,
        membership=FOUNDERS,
        membership_index=0,
    )


def snapshot(driver, index, body):
    write_snapshot(driver.disk, SPEC, place(index), body)


def boot(driver, recover=recover_replica):
    driver.disk.crash(Keep.NONE)
    driver._open()
    return recover(driver.disk, JUDGED, driver.image.marks[SPEC.group], driver.options)


@pytest.mark.parametrize("recover", [recover_replica, salvage_replica])
def test_a_bad_one_is_passed_over_when_the_log_says_the_same(recover):
    driver = long_log()
    snapshot(driver, 2, good(2))
    snapshot(driver, 4, BAD)
    found = boot(driver, recover)
    assert found.state is ReplicaState.INTACT
    assert (found.producers.before, found.producers.snapshot) == (3, good(2))


def test_without_any_good_one_the_whole_log_is_replayed():
    driver = long_log()
    snapshot(driver, 4, BAD)
    found = boot(driver)
    assert found.state is ReplicaState.INTACT
    assert (found.producers.before, found.producers.snapshot) == (1, None)


def test_without_the_state_that_it_begins_with_a_replica_is_lost():
    driver = long_log()
    driver.log.install(place(100), BAD)
    driver.round()
    found = boot(driver)
    assert found.state is ReplicaState.LOST
    assert "entry 101" in found.why


@pytest.mark.parametrize("recover", [recover_replica, salvage_replica])
def test_one_of_a_later_release_is_waited_for(recover):
    driver = long_log()
    snapshot(driver, 4, b"later")
    with pytest.raises(FutureFormat):
        boot(driver, recover)


@pytest.mark.parametrize("body", [BAD, b"later"])
def test_an_install_of_a_bad_one_changes_nothing(body):
    driver = long_log()
    driver.log = boot(driver).log
    last = driver.log.last_index
    with pytest.raises((CorruptData, FutureFormat)):
        driver.log.install(place(100), body)
    assert (driver.log.first_index, driver.log.last_index) == (1, last)
    driver.round()
    assert snapshots_of(driver.disk, SPEC.path) == []
    driver.log.install(place(100), good(100))
    driver.round()
    assert newest_snapshot(driver.disk, JUDGED, 100) == (place(100), good(100))


def test_a_log_is_not_made_to_begin_with_a_bad_one():
    """Retention would have made a bad snapshot, harmless so far, the one thing that the replica
    cannot do without."""
    driver = Driver()
    driver.log = boot_with_check(driver)
    driver.lead(1)
    driver.append(40, size=100)
    driver.commit_all()
    driver.settle()
    first = driver.log.segments[1].first_index
    snapshot(driver, first - 1, BAD)
    driver.log.set_log_start(driver.log.next_offset, driver.log.last_index)
    plan = driver.log.plan_removal()
    assert plan is not None
    with pytest.raises(CorruptData):
        driver.run(plan)
    assert boot(driver).state is ReplicaState.INTACT


def boot_with_check(driver):
    return recover_replica(driver.disk, JUDGED, None, driver.options).log
