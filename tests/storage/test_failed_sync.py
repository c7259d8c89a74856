"""A sync that failed, then a restart of the process, then a power loss.

Scenario review-16-failed-sync: a follower's sync failed, so its pages were clean and gone, and the
broker stopped using the directory, as it should. Its process was started again. The machine had not
lost power, so the boot read the lost bytes back from the kernel's memory; one sync of everything
made nothing of them durable, for they were clean; and the replica acknowledged them. What lies
behind the durable mark is therefore written again before a boot believes that it is there.
"""

import copy

import pytest
from raftlog_sim.disk import Keep, SimulatedCrashError

from raftlog.base import probes
from raftlog.base.entries import HardState
from raftlog.base.errors import CorruptData, DiskError
from raftlog.storage.data_dir import format_directory, open_directory, peek_directory
from raftlog.storage.recovery import ReplicaState, recover_replica
from raftlog.storage.store_file import SECTOR, STORE_FILES, StoreFiles
from raftlog.storage.store_records import hard_state_record
from tests.storage.making import IDENTITY, ME, SPEC, Driver, new_disk

VOTE = HardState(5, ME)


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


# --- the store ------------------------------------------------------------------------------------
#
# The same of votes. A generation of the store is durable in one file; the image of the next one,
# in the other file, was not synced: on the disk that file is a generation older, in the kernel's
# memory one younger. The process was started again, believed what it read, and began a third
# generation over the file that was all that the disk had. Power failed in the middle of that, and
# the disk said, without any sign of damage, what it had said a generation earlier.


def with_a_vote(seed):
    disk = new_disk(seed)
    format_directory(disk, IDENTITY)
    open_directory(disk)
    store = StoreFiles(disk, IDENTITY.owner)
    store.append([hard_state_record(SPEC.group, VOTE)])
    store.sync()
    store.close()
    return disk


@pytest.mark.parametrize("syncs_before", range(3))
def test_a_vote_outlives_an_image_that_was_not_synced_and_a_power_loss(syncs_before):
    crashed = 0
    for seed, crash_at in ((seed, crash_at) for seed in range(8) for crash_at in range(1, 9)):
        disk = with_a_vote(seed)
        disk.fail("sync", "store-", skip=syncs_before)
        with pytest.raises(DiskError):
            open_directory(disk)
        disk.mutations, disk.crash_at, disk.crash_tears = 0, crash_at, True
        try:
            open_directory(disk)
        except SimulatedCrashError:
            crashed += 1
        disk.crash(Keep.SOME)
        assert peek_directory(disk).hard_states == {SPEC.group: VOTE}, (seed, crash_at)
    assert crashed >= 40


def test_an_image_that_follows_one_that_is_nowhere_is_damage():
    """What the story above left behind, had it happened to an earlier release: the older file must
    not count as the newest state of the store."""
    disk = with_a_vote(0)
    older = {name: disk.content(name) for name in STORE_FILES}
    open_directory(disk)  # a generation for the boot, and another one for the next
    open_directory(disk)
    open_directory(disk)
    generations = {name: disk.content(name)[40:48] for name in STORE_FILES}
    newest = max(STORE_FILES, key=generations.__getitem__)
    (other,) = {*STORE_FILES} - {newest}
    disk.overwrite(other, 0, older[other])
    disk.overwrite(newest, SECTOR, bytes(len(disk.content(newest)) - SECTOR))
    with pytest.raises(CorruptData, match="the last before is not there"):
        peek_directory(disk)
