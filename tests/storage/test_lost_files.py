"""A segment file that is lost, with the mark in it, may have replaced what older files hold."""

import pytest
from raftlog_sim.world.disk import Keep

from raftlog.storage.boot.recovery import ReplicaState
from raftlog.storage.replica import LogOptions
from tests.storage.making import Driver

LARGE = LogOptions(segment_bytes=70_000, window_bytes=10**6, index_interval_bytes=3000)


def begun(held, replacing):
    """Entries from 10 on, which an index file vouches for when its job has run, are replaced by
    those of another file."""
    driver = Driver(options=LARGE)
    driver.lead(1)
    driver.append(4, size=2000)
    driver.commit_all()
    driver.settle()
    driver.append(held, size=2000)
    driver.settle()
    driver.log.truncate_from(10)
    driver.lead(2)
    driver.append(replacing, size=1000)
    driver.round()
    return driver


@pytest.fixture
def driver():
    """The mark is in the file that replaced what was there."""
    driver = begun(31, 30)
    driver.commit_all()
    driver.round()
    return driver


def without(driver, path):
    driver.round()
    driver.disk.crash(Keep.NONE)
    driver.disk.vanish(path)
    return driver.reopen()


@pytest.mark.parametrize("younger", [False, True])
def test_what_a_lost_file_replaced_is_not_committed(driver, younger):
    """The commit hint was of the entries of the lost file. It let a boot take a segment below it
    unwalked, whose places were not in memory when the leader truncated the log: an assert stopped
    the broker, at this boot and at every one after it. When a younger file was there, the replaced
    entries counted as committed."""
    lost, marked = driver.log.segments[-1].path, driver.log.mark(driver.commit)
    if younger:
        driver.append(60, size=1000)
        assert driver.log.segments[-1].path != lost
    found = without(driver, lost)
    assert driver.image.marks[marked.group] == marked
    assert found.state is ReplicaState.DAMAGED
    assert "the file ends before entry" in found.why
    assert found.claimed[0] >= marked.raft_index
    assert (found.commit_hint, driver.log.last_term) == (0, 1)
    assert driver.log.last_index > 10
    driver.log.truncate_from(10)
    driver.lead(2)
    driver.append(3)
    driver.round()
    driver.reopen()
    assert driver.log.last_index == 13


def test_the_sequence_of_a_lost_file_is_not_given_again(driver):
    """A mark that is still in the store would speak of the new file of that name."""
    marked = driver.log.mark(driver.commit)
    without(driver, driver.log.segments[-1].path)
    driver.log.truncate_from(10)
    driver.lead(2)
    driver.round()
    assert driver.log.segments[-1].header.file_sequence > marked.file_sequence
    driver.disk.crash(Keep.NONE)
    found = driver.reopen()
    assert (found.state, found.claimed) == (ReplicaState.DAMAGED, (marked.raft_index, marked.term))
    assert (found.commit_hint, driver.log.last_index) == (0, 10)


@pytest.mark.parametrize("failed", ["write_index", "remove_files", ""])
def test_what_a_lost_file_before_the_marked_one_replaced_is_not_committed(failed):
    """The mark is in a younger file. A job of the truncation had failed, so the evidence that the
    lost file had replaced entries was gone. They counted as committed, at every boot, and the
    replica could never be repaired."""
    driver = begun(45, 5)
    for job in driver.log.take_jobs():
        if job.function.__name__ != failed:
            driver.run(job)
    driver.append(100, size=1000)
    driver.commit_all()
    driver.round()
    driver.settle()
    _, lost, marked = [segment.path for segment in driver.log.segments]
    found = without(driver, lost)
    assert marked not in [segment.path for segment in driver.log.segments]
    assert found.state is ReplicaState.DAMAGED
    assert found.commit_hint == 0
    if failed:
        assert driver.log.term_at(10) == 1
        driver.log.truncate_from(10)
    driver.lead(2)
    driver.append(3)
    driver.round()
    assert driver.log.last_index == 13


def stepped_down(failed):
    """Entries of term 2, from 10 on, are replaced by those of term 1 that a later leader holds."""
    driver = Driver(options=LARGE)
    driver.lead(1)
    driver.append(8, size=2000)
    driver.commit_all()
    driver.settle()
    driver.lead(2)
    driver.append(45, size=2000)
    driver.settle()
    driver.log.truncate_from(10)
    driver.append(30, size=1000)
    driver.round()
    for job in driver.log.take_jobs():
        if job.function.__name__ != failed:
            driver.run(job)
    return driver


@pytest.mark.parametrize("failed", ["write_index", "remove_files", ""])
@pytest.mark.parametrize("younger", [False, True])
def test_void_entries_of_a_later_term_are_neither_held_nor_claimed(failed, younger):
    """An index file, or the header of a file that was to be removed, vouched for void entries of
    term 2. They outweighed the mark, which is of term 1: the replica called itself whole."""
    driver = stepped_down(failed)
    lost = driver.log.segments[-1].path
    if younger:
        driver.append(60, size=1000)
        assert driver.log.segments[-1].path != lost
        driver.settle()
    marked = driver.log.mark(driver.commit)
    found = without(driver, lost)
    assert (found.state, found.claimed) == (ReplicaState.DAMAGED, (marked.raft_index, 1))
    assert driver.log.last_term <= 1
    assert driver.log.last_index < 10


def test_older_entries_up_to_the_mark_do_not_stand_for_those_of_the_lost_file():
    """The older file holds as many entries as the mark tells of, but they were replaced."""
    driver = begun(31, 12)
    driver.commit_all()
    driver.round()
    marked, lost = driver.log.mark(driver.commit), driver.log.segments[-1].path
    found = without(driver, lost)
    assert found.state is ReplicaState.DAMAGED
    assert found.claimed == (marked.raft_index, marked.term)
    assert "has a mark and is lost" in found.why
    assert driver.log.last_index <= marked.raft_index


@pytest.mark.parametrize("behind", range(-2, 4))
def test_an_older_file_that_begins_behind_the_mark_is_void(behind):
    """Wherever the mark lies beside the first entry of that file."""
    driver = Driver(options=LARGE)
    driver.lead(1)
    driver.append(80, size=2000)
    driver.settle()
    younger = driver.log.segments[1].first_index
    driver.log.truncate_from(10)
    driver.lead(2)
    driver.append(younger + behind - driver.log.last_index, size=1000)
    driver.round()
    driver.commit_all()
    driver.round()
    marked, lost = driver.log.mark(driver.commit), driver.log.segments[-1].path
    assert marked.raft_index == younger + behind
    found = without(driver, lost)
    assert (found.state, found.claimed) == (
        ReplicaState.DAMAGED,
        (marked.raft_index, marked.term),
    )
    assert driver.log.last_index <= marked.raft_index
    assert driver.log.last_term == 1
