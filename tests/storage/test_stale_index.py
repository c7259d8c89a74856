"""An index file may be of an earlier life of its segment: it proves nothing by disagreeing.

The story (seed 502): a segment was sealed and its index file written. Then power failed: the index
file was durable, the last entries and the next segment were not. The segment went on with other
entries. At the next boot its index file told another chain for its end, and that was called damage:
the only voter of the metadata group never led again.
"""

import copy

import pytest
from raftlog_sim.world.disk import Keep

from raftlog.storage.boot.recovery import ReplicaState
from raftlog.storage.files import write_whole
from raftlog.storage.replica import index_name
from tests.storage.making import Driver


@pytest.fixture
def stale():
    """A log whose last segment has an index file of a life in which it was sealed."""
    driver = Driver()
    driver.lead(1)
    driver.append(2, 2, size=60)
    driver.settle()
    path = driver.log.segments[0].path
    earlier = copy.deepcopy(driver)
    while len(earlier.log.segments) == 1:
        earlier.append(1, 2, size=60, fill=b"x")
        earlier.settle()
    told = earlier.disk.content(index_name(path))
    assert earlier.log.segments[0].end_index > driver.log.last_index + 1
    write_whole(driver.disk, index_name(path), told)
    while driver.log.last_index < earlier.log.segments[0].end_index - 1:
        driver.append(1, 2, size=60, fill=b"y")
        driver.settle()
    assert len(driver.log.segments) == 1, "it is the last one still"
    return driver


def test_a_stale_index_of_the_last_segment_is_no_damage(stale):
    last, truth = stale.log.last_index, stale.read_all()
    found = stale.crash(Keep.NONE)
    assert (found.state, found.why) == (ReplicaState.INTACT, "")
    assert (stale.log.last_index, stale.read_all()) == (last, truth)


def test_it_is_written_anew_when_the_segment_is_sealed(stale):
    while len(stale.log.segments) == 1:
        stale.append(1, 2, size=60)
        stale.settle()
    last, truth = stale.log.last_index, stale.read_all()
    for _ in range(2):
        assert stale.crash(Keep.NONE).state is ReplicaState.INTACT
        assert (stale.log.last_index, stale.read_all()) == (last, truth)
