"""The promises that a damaged replica still knows: its mark, and the whole batches behind it."""

import pytest
from raftlog_sim.world.disk import Keep

from raftlog.base.limits import BATCH_HEADER_BYTES, SEGMENT_HEADER_BYTES
from raftlog.storage.boot.recovery import ReplicaState
from tests.storage.making import SPEC, Driver, new_disk


@pytest.fixture
def driver():
    """Three segments, everything committed, marked and durable."""
    driver = Driver(new_disk())
    for term in (1, 2):
        driver.lead(term)
        driver.append(6, 2, size=60)
    driver.settle()
    driver.commit_all()
    driver.settle()
    assert len(driver.log.segments) == 3
    return driver


def test_what_was_acknowledged_behind_the_mark_stays_promised(driver):
    """Seed 302801: a bad sector at the beginning of the file made the replica forget what it had
    acknowledged since the last mark, and vote for who lacked it."""
    segment = driver.log.segments[-1]
    driver.append(1, size=60)
    driver.round()
    last = driver.log.last_index
    assert driver.log.segments[-1].path == segment.path
    driver.disk.overwrite(segment.path, SEGMENT_HEADER_BYTES, bytes(BATCH_HEADER_BYTES))
    found = driver.crash(Keep.NONE)
    assert driver.image.marks[SPEC.group].raft_index == last - 1
    assert (found.state, found.claimed) == (ReplicaState.DAMAGED, (last, 2))
    assert driver.log.last_index == segment.first_index - 1


def test_behind_a_mark_that_nothing_follows_the_mark_is_the_promise(driver):
    segment, last = driver.log.segments[-1], driver.log.last_index
    driver.disk.overwrite(segment.path, SEGMENT_HEADER_BYTES, bytes(BATCH_HEADER_BYTES))
    found = driver.crash(Keep.NONE)
    assert driver.image.marks[SPEC.group].raft_index == last
    assert (found.state, found.claimed) == (ReplicaState.DAMAGED, (last, 2))
