"""A sole voter boots over a damaged closed segment: what its log knows of the gap and around it."""

import attrs
import pytest

from raftlog.base.entries import EntryKind, Membership
from raftlog.base.errors import CorruptData
from raftlog.records.batch import read_header, split
from raftlog.records.control import write_membership_body
from raftlog.storage.boot.recovery import ReplicaState, recover_replica
from tests.storage.making import FOUNDERS, ME, SPEC, Driver

ALONE = Membership((ME,))
SERVING = attrs.evolve(SPEC, serves_gaps=True)
TERMS = 6


@pytest.fixture
def driver():
    """A log of some segments, in which a term begins every dozen entries."""
    driver = Driver(founders=ALONE)
    for term in range(1, TERMS + 1):
        driver.lead(term)
        for _ in range(11):
            driver.append(size=60)
            driver.round()
    driver.commit_all()
    driver.settle()
    assert len(driver.log.segments) > 4
    return driver


def booted(driver):
    driver._open()
    found = recover_replica(driver.disk, SERVING, driver.image.marks[SPEC.group], driver.options)
    assert found.state is ReplicaState.INTACT, found.why
    return found.log


@pytest.mark.parametrize("number", range(1, 5))
def test_terms_outside_the_gap_are_those_that_were_written(driver, number):
    terms = {at: driver.log.term_at(at) for at in range(driver.log.last_index + 1)}
    segment = driver.log.segments[number]
    driver.disk.flip_bit(segment.path, (segment.end_position + 4096) // 2)
    log = booted(driver)
    (gap,) = log.gaps
    assert gap.path == segment.path
    damaged = log.segments[number].damage.place.raft_index
    inside = range(damaged, segment.end.raft_index)
    assert 0 < len(inside) < segment.end.raft_index - segment.header.first_index
    assert {at: log.term_at(at) for at in terms if at not in inside} == {
        at: term for at, term in terms.items() if at not in inside
    }
    assert (log.last_index, log.last_chain) == (driver.log.last_index, driver.log.last_chain)
    assert log.memberships == [(0, ALONE)]


def rotten_segment(driver):
    """Some committed segments; returns the third, in whose middle a bit is flipped."""
    for _ in range(60):
        driver.append(size=60)
        driver.round()
    driver.commit_all()
    driver.settle()
    segment = driver.log.segments[2]
    driver.disk.flip_bit(segment.path, (segment.end_position + 4096) // 2)
    return segment


def test_records_right_behind_the_gap_are_read_and_those_right_before_it_too():
    driver = Driver(founders=ALONE)
    driver.lead(1)
    rotten_segment(driver)
    driver.log = booted(driver)
    (gap,) = driver.log.gaps
    for offset in (gap.first - 1, gap.until):
        (batch, *_) = split(driver.read(offset), CorruptData, "read")
        assert read_header(batch).base_offset == offset
    assert driver.read(gap.until - 1) == b""


def test_a_replica_that_became_the_sole_voter_keeps_its_gap_too():
    driver = Driver()
    driver.lead(1)
    driver.log.append([driver.control(EntryKind.MEMBERSHIP, write_membership_body(ALONE))])
    segment = rotten_segment(driver)
    log = booted(driver)
    assert [gap.path for gap in log.gaps] == [segment.path]
    assert [membership for _, membership in log.memberships] == [FOUNDERS, ALONE]
