"""A sync that failed, then a restart of the process, then a power loss.

Scenario review-16-failed-sync: a follower's sync failed, so its pages were clean and gone, and the
broker stopped using the directory, as it should. Its process was started again. The machine had not
lost power, so the boot read the lost bytes back from the kernel's memory. One sync of everything
made nothing of them durable, since they were clean. The replica acknowledged them. So a boot now
writes the bytes behind the durable mark again before it believes that they are there.
"""

import copy
from contextlib import suppress

import pytest
from raftlog_sim.world.disk import Keep, SimulatedCrashError

from raftlog.base import probes
from raftlog.base.entries import EntryKind, HardState
from raftlog.base.errors import CorruptData, DiskError, DiskFull
from raftlog.records.control import write_log_start
from raftlog.storage.boot.recovery import ReplicaState, recover_replica
from raftlog.storage.directories.data_dir import (
    format_directory,
    is_formatted,
    open_directory,
    peek_directory,
)
from raftlog.storage.directories.store_file import SECTOR, STORE_FILES, StoreFiles
from raftlog.storage.directories.store_records import hard_state_record
from raftlog.storage.inspect import inspect_directory
from raftlog.storage.segments.jobs import remove_files
from raftlog.storage.segments.snapshot import write_snapshot
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
    """The files are those that the story above would have left in an earlier release. The older
    file must not count as the newest state of the store."""
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


# --- names ----------------------------------------------------------------------------------------
# The story is the same for names. A new segment was synced and renamed, and the sync of its
# directory failed: the name was seen, clean, and gone at a power failure. The process was started
# again and went on in that file. It acknowledged records that the disk had in a file without a
# name. So a boot gives a file that it finds by a doubtful name that name again.


def with_a_segment_that_has_no_durable_name(seed=0):
    driver = Driver(new_disk(seed))
    driver.lead(1)
    driver.append(5)
    driver.commit_all()
    driver.settle()
    driver.disk.fail("sync_dir", SPEC.path)
    files = len(driver.disk.paths())
    for _ in range(20):
        driver.append(1)
        io_id, ops = driver.begin_round()
        if driver.perform(io_id, ops).poisoned is not None:
            break
    assert len(driver.disk.paths()) == files + 1
    return driver


def test_a_boot_goes_on_in_no_file_whose_name_is_not_durable():
    driver = with_a_segment_that_has_no_durable_name()
    probes.reset()
    driver.reopen()
    assert probes.fired()["names-in-doubt-made-again"] == 1
    driver.append(2)
    driver.round()
    promised = driver.log.last_index
    found = driver.crash(Keep.NONE)
    assert (found.state, driver.log.last_index) == (ReplicaState.INTACT, promised)


@pytest.mark.parametrize("keep", Keep)
def test_power_may_fail_while_a_name_is_made_again(keep):
    put_back = 0
    for seed, crash_at in ((seed, crash_at) for seed in range(4) for crash_at in range(1, 30)):
        driver = with_a_segment_that_has_no_durable_name(seed)
        driver.log.persisted(driver.io_id - 1)
        promised = driver.image.marks.get(SPEC.group) or driver.log.mark(driver.commit)
        driver.disk.mutations, driver.disk.crash_at = 0, crash_at
        with suppress(SimulatedCrashError):
            driver.reopen()
        probes.reset()
        found = driver.crash(keep)
        put_back += probes.fired().get("name-put-back-at-boot", 0)
        assert found.state is ReplicaState.INTACT, (seed, crash_at)
        assert driver.log.last_index >= promised.raft_index, (seed, crash_at)
        driver.append(1)
        driver.round()
        promised = driver.log.last_index
        driver.crash(Keep.NONE)
        assert driver.log.last_index == promised, (seed, crash_at)
    assert put_back > 0 or keep is Keep.NONE


def test_a_process_may_be_killed_while_a_name_is_made_again():
    for crash_at in range(1, 30):
        driver = with_a_segment_that_has_no_durable_name()
        before = driver.disk.paths()
        driver.disk.mutations, driver.disk.crash_at = 0, crash_at
        with suppress(SimulatedCrashError):
            driver.reopen()
        driver.disk.crash_at = None
        driver.reopen()
        driver.append(1)
        driver.round()
        promised = driver.log.last_index
        driver.crash(Keep.NONE)
        assert driver.log.last_index == promised, crash_at
        assert {path for path in before if path.endswith(".log")} <= {*driver.disk.paths()}


def test_what_is_marked_has_its_name():
    driver = Driver(new_disk())
    driver.lead(1)
    driver.append(40)
    driver.commit_all()
    driver.settle()
    assert len(driver.log.segments) > 2
    probes.reset()
    driver.reopen()
    assert "names-in-doubt-made-again" not in probes.fired()


def with_a_log_to_shorten():
    """A log whose first segments may go."""
    driver = Driver(new_disk())
    driver.lead(1)
    driver.append(40)
    start = write_log_start(driver.log.next_offset)
    driver.log.append([driver.control(EntryKind.LOG_START, start)])
    driver.commit_all()
    driver.settle()
    return driver


def removal(driver):
    """The job, and the state that the log may then begin with."""
    driver.log.set_log_start(driver.log.next_offset, driver.log.last_index)
    plan = driver.log.plan_removal()
    (order,) = plan.args
    return plan, order.heads[0].position


@pytest.mark.parametrize("skipped", range(4))
def test_what_begins_a_shortened_log_outlives_a_failed_sync(skipped):
    """The state, the head file, then the removal: whichever sync of the directory fails, the next
    attempt, or the next boot, makes sure of what came before."""
    driver = with_a_log_to_shorten()
    plan, position = removal(driver)
    driver.disk.fail("sync_dir", SPEC.path, skip=skipped)
    with suppress(DiskError):
        write_snapshot(driver.disk, SPEC, position, b"")
        driver.run(plan)
        raise AssertionError("no sync failed")
    found = driver.reopen()
    remove_files(driver.disk, found.obsolete)
    if found.log.first_index == 1:
        driver.run(removal(driver)[0])
    driver.append(1)
    driver.round()
    promised = driver.log.last_index
    found = driver.crash(Keep.NONE)
    assert (found.state, found.why) == (ReplicaState.INTACT, "")
    assert (driver.log.first_index, driver.log.last_index) == (position.raft_index + 1, promised)


def test_the_first_boot_makes_sure_of_the_format_file():
    disk = new_disk()
    disk.fail("sync_dir", skip=1)
    with pytest.raises(DiskError):
        format_directory(disk, IDENTITY)
    disk.forget_faults()
    assert is_formatted(disk)
    open_directory(disk)
    disk.crash(Keep.NONE)
    assert peek_directory(disk).identity == IDENTITY


def test_formatting_once_more_makes_the_directory_of_replicas_anew():
    disk = new_disk()
    disk.fail("sync_dir")
    with pytest.raises(DiskError):
        format_directory(disk, IDENTITY)
    driver = Driver(disk)
    driver.lead(1)
    driver.append(5)
    driver.round()
    promised = driver.log.last_index
    found = driver.crash(Keep.NONE)
    assert (found.state, driver.log.last_index) == (ReplicaState.INTACT, promised)


@pytest.mark.parametrize(("skip", "error"), [(0, DiskError), (1, DiskError), (1, DiskFull)])
def test_a_rename_that_failed_once_stops_no_later_removal(skip, error):
    driver = with_a_log_to_shorten()
    plan, position = removal(driver)
    write_snapshot(driver.disk, SPEC, position, b"")
    driver.disk.fail("rename", ".snapshot", skip=skip, error=error)
    with suppress(DiskError):
        driver.run(plan)
        assert error is DiskFull
    if driver.log.first_index == 1:
        driver.run(driver.log.plan_removal())
    assert driver.log.first_index == position.raft_index + 1
    found = driver.crash(Keep.NONE)
    assert (found.state, found.why) == (ReplicaState.INTACT, "")


def test_a_full_disk_makes_room_for_a_longer_name():
    driver = with_a_log_to_shorten()
    plan, position = removal(driver)
    write_snapshot(driver.disk, SPEC, position, b"")
    driver.disk.fail("rename", ".away", error=DiskFull)
    driver.run(plan)
    assert driver.log.first_index == position.raft_index + 1


def test_inspection_shows_what_a_boot_that_was_cut_short_will_find():
    driver = with_a_segment_that_has_no_durable_name()
    last = max(path for path in driver.disk.paths() if path.endswith(".log"))
    driver.disk.rename(last, last + ".away")
    (row,) = inspect_directory(driver.disk)["groups"]
    driver.reopen()
    assert (row["damaged"], row["last_index"]) == (False, driver.log.last_index)
    assert row["chain"] == f"{driver.log.last_chain:016x}"


def test_inspection_finds_a_head_file_that_is_away():
    driver = with_a_log_to_shorten()
    plan, position = removal(driver)
    write_snapshot(driver.disk, SPEC, position, b"")
    driver.run(plan)
    (before,) = inspect_directory(driver.disk)["groups"]
    driver.disk.rename(f"{SPEC.path}/head", f"{SPEC.path}/head.away")
    assert inspect_directory(driver.disk)["groups"] == [before]
