"""A log of three segments, for tests that damage it."""

import copy

import pytest

from raftlog.storage.segments.snapshot import write_snapshot
from tests.storage.making import SPEC, Driver, new_disk


@pytest.fixture(scope="module")
def prepared():
    """Three segments, everything committed, marked and durable."""
    driver = Driver(new_disk())
    driver.lead(1)
    driver.append(6, 2, size=60)
    driver.lead(2)
    driver.append(6, 2, size=60)
    driver.settle()
    for segment in driver.log.segments[1:]:
        position = driver.log.position_before(segment.first_index)
        write_snapshot(driver.disk, SPEC, position, b"at %d" % segment.first_index)
    driver.commit_all()
    driver.settle()
    assert len(driver.log.segments) == 3
    return driver


@pytest.fixture
def driver(prepared):
    return copy.deepcopy(prepared)
