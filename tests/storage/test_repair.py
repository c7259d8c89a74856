"""A damaged stretch comes back byte for byte, or nothing is written."""

import pytest
from raftlog_sim.disk import Keep, SimulatedCrashError

from raftlog.base.errors import CorruptData, ProtocolError
from raftlog.storage.jobs import verify_segment
from raftlog.storage.repair import RepairEnd, RepairOrder, damaged_stretch, repair_range
from tests.storage.making import Driver, batch_of, new_disk


@pytest.fixture
def driver():
    made = Driver(new_disk())
    made.lead(1)
    made.append(20, 2, size=60)
    made.settle()
    return made


def parts(driver):
    """The first segment's reference, its points, and the entries of its second stretch."""
    segment = driver.log.segments[0]
    reference = segment.reference(1, 300)
    points = [RepairEnd(p.raft_index, p.position, p.chain) for p in segment.index.points()]
    low, high = points[0].raft_index, points[1].raft_index
    entries = driver.log.entries(low, 1 << 20)[: high - low]
    return reference, points, entries


def order(driver):
    reference, points, entries = parts(driver)
    start, end = damaged_stretch(driver.disk, reference, points)
    assert start.raft_index == entries[0].raft_index
    return RepairOrder(reference, start, end, tuple(entry.batch for entry in entries))


def rot(driver):
    _, points, _ = parts(driver)
    driver.disk.flip_bit(driver.log.segments[0].path, points[0].position + 80)


def test_nothing_to_repair(driver):
    reference, points, _ = parts(driver)
    assert damaged_stretch(driver.disk, reference, points) is None


def test_repaired_bytes_are_the_old_ones(driver):
    path = driver.log.segments[0].path
    before = driver.disk.content(path)
    rot(driver)
    with pytest.raises(CorruptData):
        verify_segment(driver.disk, parts(driver)[0])
    repair_range(driver.disk, order(driver))
    driver.disk.crash(Keep.NONE)
    assert driver.disk.content(path) == before


def test_a_crash_in_the_middle_leaves_damage_or_the_truth(driver):
    rot(driver)
    wanted = order(driver)
    for call in (1, 2):
        driver.disk.crash_at = driver.disk.mutations + call
        driver.disk.crash_tears = True
        with pytest.raises(SimulatedCrashError):
            repair_range(driver.disk, wanted)
        driver.disk.crash(Keep.SOME)
    repair_range(driver.disk, wanted)
    verify_segment(driver.disk, wanted.segment)


@pytest.mark.parametrize("lie", ["other content", "too few", "too many", "broken", "shifted"])
def test_a_peer_that_sends_something_else_changes_nothing(driver, lie):
    rot(driver)
    wanted = order(driver)
    batches = list(wanted.batches)
    if lie == "other content":
        other = bytearray(batch_of(2, size=60, fill=b"x"))
        other[:8], other[12:16] = batches[0][:8], batches[0][12:16]
        batches[0] = bytes(other)
    elif lie == "too few":
        del batches[-1]
    elif lie == "too many":
        batches.append(driver.log.entries(wanted.end.raft_index, 1)[0].batch)
    elif lie == "broken":
        batches[0] = batches[0][:-1] + b"?"
    else:
        batches.reverse()
    content = driver.disk.content(wanted.segment.path)
    with pytest.raises(ProtocolError):
        repair_range(driver.disk, wanted._replace(batches=tuple(batches)))
    assert driver.disk.content(wanted.segment.path) == content


def test_damage_behind_the_last_point_is_the_logs_business(driver):
    reference, points, _ = parts(driver)
    driver.disk.flip_bit(reference.path, points[-1].position + 80)
    with pytest.raises(CorruptData, match="end of the segment"):
        damaged_stretch(driver.disk, reference, points)
