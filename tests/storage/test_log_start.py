"""The remaining log says where it begins for clients, at every boot.

The story (seed 124): a marker said that the log begins at offset 3. It was the last entry of its
segment, and the next one began before the marker was committed, so its header said 0. Retention
then removed the segment with the marker. After a power failure the replica knew nothing of it: it
led, and told clients that the log begins at 0, where there is nothing.
"""

import copy

import pytest
from raftlog_sim.world.disk import Keep

from raftlog.base.entries import EntryKind
from raftlog.records.control import write_log_start
from raftlog.storage import segment_files
from raftlog.storage.boot.recovery import ReplicaState, recover_replica
from raftlog.storage.replica import AWAY_SUFFIX, HEAD_FILE, index_name, snapshot_name
from raftlog.storage.segments.snapshot import write_snapshot
from tests.storage.making import SPEC, Driver


def grow(driver):
    """Records until another segment has begun."""
    count = len(driver.log.segments)
    while len(driver.log.segments) == count:
        driver.append(1, 2, size=60)
    driver.settle()


def mark(driver, offset):
    """A committed log-start marker: where it lies."""
    driver.log.append([driver.control(EntryKind.LOG_START, write_log_start(offset))])
    driver.settle()
    return driver.log.last_index


def remove(driver):
    """Remove what retention removes now; returns the remaining segments."""
    driver.commit_all()
    plan = driver.log.plan_removal()
    if plan is not None:
        (order,) = plan.args
        write_snapshot(driver.disk, SPEC, order.heads[0].position, b"producers")
        driver.run(plan)
        driver.settle()
    return [segment.first_index for segment in driver.log.segments]


def booted_log_start(driver):
    """After a power failure: what the head says, or a marker that is there and committed."""
    found = driver.crash(Keep.NONE)
    told = [offset for index, offset in found.log_starts if index <= driver.log.last_index]
    return max([driver.log.log_start, *told])


def outrun_with(records):
    """The marker behind so many records of the second segment; None when another record fits."""
    driver = Driver()
    driver.lead(1)
    grow(driver)
    driver.append(records, 2, size=60)
    driver.settle()
    start = driver.log.next_offset
    marker = mark(driver, start)
    driver.append(1, 2, size=60)
    driver.settle()
    if len(driver.log.segments) != 3 or driver.log.segments[2].base_offset != start:
        return None
    driver.commit_all()
    driver.log.set_log_start(start, marker)
    return driver


@pytest.fixture
def outrun(monkeypatch):
    """Three segments; the marker ends the second one, and all headers were written before it. So an
    earlier release wrote: today a marker that empties the log begins a segment of its own."""
    monkeypatch.setattr(segment_files, "empties", lambda *_: False)
    driver = next(filter(None, map(outrun_with, range(1, 9))))
    assert driver.log.segments[2].first_index == driver.log.start_marker + 1
    assert driver.log.segments[2].header.log_start < driver.log.log_start
    return driver


def test_the_marker_stays_while_no_header_says_as_much(outrun):
    second, third = [segment.first_index for segment in outrun.log.segments[1:]]
    assert remove(outrun) == [second, third]
    grow(outrun)
    fourth = outrun.log.segments[-1]
    assert fourth.header.log_start == outrun.log.log_start
    assert remove(outrun) == [second, third, fourth.first_index], "the third is not below it"


def test_a_later_header_lets_it_go(outrun):
    grow(outrun)
    fourth = outrun.log.segments[-1]
    marker = mark(outrun, fourth.base_offset)
    outrun.commit_all()
    outrun.log.set_log_start(fourth.base_offset, marker)
    assert remove(outrun) == [fourth.first_index]
    assert booted_log_start(outrun) == fourth.base_offset


def test_a_boot_knows_where_the_log_begins_for_clients(outrun):
    start = outrun.log.log_start
    remove(outrun)
    assert booted_log_start(outrun) == start


def test_what_is_gone_is_below_the_log_start():
    """A header older than the marker that let retention remove what lay before it: a log of the
    release before this one."""
    driver = Driver()
    driver.lead(1)
    grow(driver)
    base = driver.log.segments[1].base_offset
    assert driver.log.segments[1].header.log_start == 0
    driver.commit_all()
    driver.log.set_log_start(base, driver.log.last_index)
    assert remove(driver) == [driver.log.segments[-1].first_index]
    driver.crash(Keep.NONE)
    assert driver.log.log_start == base > 0


def test_what_was_removed_was_committed_though_no_mark_says_so():
    driver = Driver()
    driver.lead(1)
    grow(driver)
    driver.commit_all()
    driver.log.set_log_start(driver.log.segments[1].base_offset, driver.log.last_index)
    remove(driver)
    first = driver.log.first_index
    assert first > 1
    driver.disk.crash(Keep.NONE)
    found = recover_replica(driver.disk, SPEC, None, driver.options)
    assert (found.state, found.commit_hint) == (ReplicaState.INTACT, first - 1)


def test_the_last_durable_segment_stays_until_the_next_one_is_durable():
    """Seed 420846: all that a slow disk held lay below the log start, and was removed while the
    next segment was on its way. After a power failure there was no log at all, and the replica was
    lost."""
    driver = Driver()
    driver.lead(1)
    grow(driver)
    while len(driver.log.segments) < 3:
        driver.settle()
        driver.append(1, 2, size=60)
    following = driver.log.segments[2]
    assert driver.log.durable_index == following.first_index - 1
    driver.commit_all()
    driver.log.set_log_start(following.base_offset, driver.log.last_index)
    (order,) = driver.log.plan_removal().args
    assert order.heads[0].position == driver.log.position_before(driver.log.segments[1].first_index)
    write_snapshot(driver.disk, SPEC, order.heads[0].position, b"producers")
    driver.run(driver.log.plan_removal())
    assert driver.log.plan_removal() is None
    assert copy.deepcopy(driver).crash(Keep.NONE).state is ReplicaState.INTACT
    assert len(driver.log.segments) == 2
    driver.settle()
    assert driver.log.plan_removal() is not None


def test_retention_makes_room_on_a_disk_that_has_none():
    """Regression: nothing is removed before the new beginning of the log is written down, and on a
    full disk there was no room for that: unneeded files stayed, and so did the full disk."""
    driver = Driver()
    driver.lead(1)
    grow(driver)
    grow(driver)
    driver.run_jobs()
    driver.commit_all()
    driver.log.set_log_start(driver.log.segments[2].base_offset, driver.log.last_index)
    plan = driver.log.plan_removal()
    (order,) = plan.args
    write_snapshot(driver.disk, SPEC, order.heads[0].position, b"producers")
    assert all(driver.disk.exists(index_name(path)) for path in order.paths)
    driver.disk.free = 0
    driver.run(plan)
    assert len(driver.log.segments) == 1
    assert copy.deepcopy(driver).crash(Keep.NONE).state is ReplicaState.INTACT


def test_the_name_of_the_state_is_durable_before_the_log_begins_behind_it(monkeypatch):
    """The sync of its own job may have failed, so that only the kernel's memory has the name."""
    driver = Driver()
    driver.lead(1)
    grow(driver)
    driver.commit_all()
    driver.log.set_log_start(driver.log.segments[1].base_offset, driver.log.last_index)
    calls, rename, sync_dir = [], driver.disk.rename, driver.disk.sync_dir

    def renamed(path, to):
        calls.append(to.rpartition("/")[2])
        rename(path, to)

    def synced(path):
        calls.append("sync")
        sync_dir(path)

    monkeypatch.setattr(driver.disk, "rename", renamed)
    monkeypatch.setattr(driver.disk, "sync_dir", synced)
    plan = driver.log.plan_removal()
    (order,) = plan.args
    write_snapshot(driver.disk, SPEC, order.heads[0].position, b"producers")
    calls.clear()
    driver.run(plan)
    name = snapshot_name(order.heads[0].position.raft_index + 1)
    assert calls[: calls.index(HEAD_FILE)] == [f"{name}{AWAY_SUFFIX}", name, "sync"]
    assert calls[calls.index(HEAD_FILE) + 1] == "sync"
