"""A sync that failed, then a restart of the process, then a power loss.

Scenario review-16-failed-sync: a follower's sync failed, so its pages were clean and gone, and the
broker stopped using the directory, as it should. Its process was started again. The machine had not
lost power, so the boot read the lost bytes back from the kernel's memory; one sync of everything
made nothing of them durable, for they were clean; and the replica acknowledged them. What lies
behind the durable mark is therefore written again before a boot believes that it is there.
"""

import copy

import pytest
from raftlog_sim.disk import Keep

from raftlog.base import probes
from raftlog.base.errors import DiskError
from raftlog.storage.recovery import ReplicaState, recover_replica
from tests.storage.making import SPEC, Driver, new_disk


def with_a_failed_sync(batches):
    """A log whose last batches lie in the kernel's memory only, and are called clean."""
    driver = Driver(new_disk())
    driver.lead(1)
    driver.append(5)
    driver.commit_all()
    driver.settle()
    path = driver.log.segments[-1].path
    driver.append(batches)
    driver.disk.fail("sync", path)
    io_id, ops = driver.begin_round()
    assert driver.writer.perform(io_id, ops).poisoned is not None
    driver.disk.forget_faults()
    return driver


@pytest.mark.parametrize("batches", [1, 3])
def test_what_a_boot_believes_survives_a_power_loss(batches):
    driver = with_a_failed_sync(batches)
    probes.reset()
    driver._open()
    mark = driver.image.marks[SPEC.group]
    found = recover_replica(driver.disk, SPEC, mark, driver.options)
    assert found.log.last_index == driver.log.last_index > mark.raft_index
    assert probes.fired()["unmarked-tail-written-again"] == 1
    driver.disk.crash(Keep.NONE)
    again = recover_replica(driver.disk, SPEC, mark, driver.options)
    assert again.state is ReplicaState.INTACT
    assert again.log.last_index == found.log.last_index
    assert again.log.last_chain == found.log.last_chain


def test_a_boot_that_cannot_make_sure_does_not_come_up():
    driver = with_a_failed_sync(2)
    path = driver.log.segments[-1].path
    driver._open()
    mark = driver.image.marks[SPEC.group]
    for call in ("write", "sync"):
        disk = copy.deepcopy(driver.disk)
        disk.fail(call, path)
        with pytest.raises(DiskError):
            recover_replica(disk, SPEC, mark, driver.options)


def test_what_is_marked_is_not_written_again():
    driver = Driver(new_disk())
    driver.lead(1)
    driver.append(5)
    driver.commit_all()
    driver.settle()
    driver._open()
    mark = driver.image.marks[SPEC.group]
    assert mark.raft_index == driver.log.last_index
    probes.reset()
    recover_replica(driver.disk, SPEC, mark, driver.options)
    assert "unmarked-tail-written-again" not in probes.fired()
