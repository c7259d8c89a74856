"""A repair takes no more room than the log: what it makes void goes when its first file is durable.

Until then what lies behind the fault is the evidence of what the replica once held, and stays.
"""

import copy

import pytest
from raftlog_sim.world.disk import Keep, SimulatedCrashError

from raftlog.base.entries import InstallPosition
from raftlog.base.errors import DiskError
from raftlog.records.chain import chain_next
from raftlog.storage.boot.recovery import ReplicaState
from tests.storage.making import FOUNDERS, SPEC, Driver, new_disk

CRASHES = [(Keep.ALL, False), (Keep.NONE, True), (Keep.SOME, True)]


def segments_of(driver):
    return [f"{SPEC.path}/{name}" for name in driver.disk.list(SPEC.path) if name[-4:] == ".log"]


def no_indexes(driver):
    for name in driver.disk.list(SPEC.path):
        if name.endswith(".index"):
            driver.disk.vanish(f"{SPEC.path}/{name}")


def early_batch(driver):
    no_indexes(driver)
    driver.disk.flip_bit(driver.log.segments[0].path, 4096 + 300)


def later_batch(driver):
    no_indexes(driver)
    driver.disk.flip_bit(driver.log.segments[3].path, 4096 + 300)


def whole_header(driver):
    for at in (40, 2048 + 40):
        driver.disk.flip_bit(driver.log.segments[2].path, at)


def first_header(driver):
    """Both headers of the second file, and a batch of the fourth."""
    no_indexes(driver)
    for at in (40, 2048 + 40):
        driver.disk.flip_bit(driver.log.segments[1].path, at)
    driver.disk.flip_bit(driver.log.segments[3].path, 4096 + 300)


def lost_file(driver):
    driver.disk.vanish(driver.log.segments[2].path)


def last_file(driver):
    driver.disk.vanish(driver.log.segments[-1].path)


DAMAGES = [early_batch, later_batch, whole_header, first_header, lost_file, last_file]


@pytest.fixture(scope="module")
def prepared():
    """A log in some files, and behind them one that a truncation made void and no job removed."""
    driver = Driver(new_disk())
    driver.lead(1)
    driver.append(20, 2, size=60)
    driver.round()
    driver.log.truncate_from(14)
    driver.lead(2)
    driver.append(20, 2, size=60)
    driver.round()
    driver.round()
    assert len(driver.log.segments) > 4
    assert len(segments_of(driver)) > len(driver.log.segments)
    driver.disk.crash(Keep.NONE)
    return driver


@pytest.fixture(params=DAMAGES)
def damaged(request, prepared):
    """A boot that found damage, and the files it found."""
    driver = copy.deepcopy(prepared)
    request.param(driver)
    driver.found = driver.reopen()
    assert driver.found.state is ReplicaState.DAMAGED
    assert driver.found.obsolete == ()
    return driver


def repair(driver):
    """As a leader of the next term sends it."""
    driver.lead(driver.found.claimed[1] + 1)
    driver.append(2, 2, size=60)
    driver.round()
    driver.run_jobs()
    driver.append(20, 2, size=60)
    driver.round()
    driver.run_jobs()


def cut_and_repair(driver):
    if driver.log.last_index > 1:
        driver.log.truncate_from(driver.log.last_index)
    repair(driver)


def install(driver):
    log = driver.log
    position = InstallPosition(
        raft_index=driver.found.claimed[0] + 10,
        term=driver.found.claimed[1],
        chain=chain_next(log.last_chain, bytes(61)),
        next_offset=log.next_offset + 500,
        log_start=log.next_offset + 400,
        membership=FOUNDERS,
        membership_index=driver.found.claimed[0],
    )
    log.install(position, b"producer state")
    driver.round()
    driver.run_jobs()


REPAIRS = [repair, cut_and_repair, install]


@pytest.mark.parametrize("by", REPAIRS)
def test_what_lies_behind_the_fault_goes_with_the_repair(damaged, by):
    """It stayed until the next boot: the repair of an early fault in a long log needed the room of
    the log once more, and could fill the disk."""
    by(damaged)
    assert segments_of(damaged) == sorted(segment.path for segment in damaged.log.segments)
    assert damaged.log.damaged_until is None
    last, chain = damaged.log.last_index, damaged.log.last_chain
    damaged.disk.crash(Keep.NONE)
    found = damaged.reopen()
    assert (found.state, found.obsolete) == (ReplicaState.INTACT, ())
    assert (damaged.log.last_index, damaged.log.last_chain) == (last, chain)


def test_nothing_goes_before_the_repair_is_durable(damaged):
    before = segments_of(damaged)
    damaged.run_jobs()
    damaged.round()
    damaged.lead(damaged.found.claimed[1])
    io_id, ops = damaged.begin_round()
    damaged.run_jobs()
    assert segments_of(damaged) == before
    damaged.disk.fail("sync_dir", SPEC.path)
    assert damaged.writer.perform(io_id, ops).poisoned is not None
    damaged.run_jobs()
    assert set(before) <= set(segments_of(damaged))


def test_a_failed_repair_leaves_everything(damaged):
    before = segments_of(damaged)
    damaged.lead(damaged.found.claimed[1])
    damaged.disk.fail("create", SPEC.path, error=DiskError)
    io_id, ops = damaged.begin_round()
    assert damaged.perform(io_id, ops).failed
    damaged.run_jobs()
    assert segments_of(damaged) == before
    found = damaged.reopen()
    assert (found.state, found.claimed) == (ReplicaState.DAMAGED, damaged.found.claimed)


@pytest.mark.slow
@pytest.mark.parametrize("by", REPAIRS)
@pytest.mark.parametrize(("keep", "tears"), CRASHES)
def test_a_crash_in_a_repair_forgets_no_promise(damaged, by, keep, tears):
    """At every changing call: what the replica once held is known, or it holds as much; and until
    the first file of the repair is there, so is everything else."""
    claim = damaged.found.claimed[::-1]
    before = set(segments_of(damaged))
    entries = damaged.log.last_index - 1
    for call in range(1, 500):
        driver = copy.deepcopy(damaged)
        driver.disk.crash_at = driver.disk.mutations + call
        driver.disk.crash_tears = tears
        try:
            by(driver)
        except SimulatedCrashError:
            driver.disk.crash(keep)
        else:
            return
        there = set(segments_of(driver))
        found = driver.reopen()
        assert found.state is not ReplicaState.LOST
        held = (driver.log.last_term, driver.log.last_index)
        assert max(held, (found.claimed or (0, 0))[::-1]) >= claim
        assert driver.log.first_index > 1 or driver.log.last_index >= entries
        if there <= before:
            assert there == before
            assert found.claimed[::-1] == claim
    raise AssertionError("never ends")
