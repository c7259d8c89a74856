"""A walk reads files by chunks, and where a chunk ends changes nothing.

The story: the walk read a chunk where a batch begins, learned from the header that the batch is
longer than the chunk, and called it damaged without a second read. A batch of more than 1 MiB that
stood first in a read was so: a replica of the metadata never came back after 3,000 elections, for
its answer to them was one command of 1.2 MB.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftlog.base.limits import BATCH_HEADER_BYTES, WALK_CHUNK_BYTES
from raftlog.storage.boot.recovery import ReplicaState, recover_replica
from raftlog.storage.replica import LogOptions
from raftlog.storage.segments import walk
from raftlog.storage.segments.jobs import read_entries
from tests.storage.making import SPEC, Driver

SIZES = st.lists(st.integers(1, 700), min_size=1, max_size=12)


def driver_with(sizes, segment_bytes):
    driver = Driver(options=LogOptions(segment_bytes=segment_bytes, window_bytes=2000))
    driver.lead(1)
    for size in sizes:
        driver.append(1, size=size)
    driver.commit_all()
    driver.settle()
    return driver


def assert_all_is_read(driver):
    """A boot finds every entry, and a read may begin at any of them."""
    mark = driver.store.marks[SPEC.group]
    for hint in (mark, mark._replace(commit=0), None):
        found = recover_replica(driver.disk, SPEC, hint, driver.options)
        assert found.state is ReplicaState.INTACT, found.why
        assert found.log.last_index == driver.log.last_index
    for first in range(driver.log.first_index, driver.log.last_index + 1):
        (order,) = driver.log.plan_entries(first, 1).args
        result = read_entries(driver.disk, order)
        assert result.entries, result
        assert result.entries[0].raft_index == first


@given(sizes=SIZES, chunk=st.integers(1, 1500))
def test_the_size_of_a_chunk_changes_nothing(sizes, chunk):
    driver = driver_with(sizes, 1 << 16)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(walk, "WALK_CHUNK_BYTES", chunk)
        assert_all_is_read(driver)


@pytest.mark.parametrize("beyond", [-BATCH_HEADER_BYTES, 0, 1, WALK_CHUNK_BYTES])
def test_batches_longer_than_a_chunk_are_read(beyond):
    sizes = (10, WALK_CHUNK_BYTES + beyond, WALK_CHUNK_BYTES + beyond, 10)
    assert_all_is_read(driver_with(sizes, 64 << 20))
