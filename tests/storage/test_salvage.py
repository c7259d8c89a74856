"""Sectors that can never be read again: damage before the mark, an error behind it.

Seed 16 of the simulator, and 2, 22, 26 and 33 after it: one sector of a replica's segment, or of an
index file that is rebuilt anyway, could not be read. Recovery failed, was tried again, failed, for
ever: a replica that its peers could have repaired in a second stayed closed until the end of days.
"""

import copy

import pytest
from raftlog_sim.world.disk import Keep
from raftlog_sim.world.inode import SECTOR

from raftlog.base import probes
from raftlog.base.entries import InstallPosition
from raftlog.base.errors import CorruptData, DiskError, DiskFull, RaftlogError
from raftlog.base.limits import SEGMENT_HEADER_BYTES
from raftlog.storage.boot.recovery import ReplicaState, recover_replica, salvage_replica
from raftlog.storage.boot.salvage import SalvagingDisk
from raftlog.storage.directories.data_dir import open_directory
from raftlog.storage.directories.store_file import STORE_FILES
from raftlog.storage.files import write_whole
from raftlog.storage.replica import TEMPORARY_SUFFIX, index_name
from raftlog.storage.segments.snapshot import write_snapshot
from tests.storage.making import SPEC, Driver, new_disk


@pytest.fixture(scope="module")
def prepared():
    driver = Driver(new_disk())
    driver.lead(1)
    driver.append(12, 2, size=60)
    driver.commit_all()
    driver.settle()
    assert len(driver.log.segments) >= 2
    driver.disk.crash(Keep.NONE)
    driver._open()
    return driver


@pytest.fixture
def driver(prepared):
    probes.reset()
    return copy.deepcopy(prepared)


def open_with(driver, function):
    mark = driver.image.marks[SPEC.group]
    return function(driver.disk, SPEC, mark, driver.options)


def place_before(header):
    return InstallPosition(
        raft_index=header.first_index - 1,
        term=header.term_before,
        chain=header.chain_before,
        next_offset=header.base_offset,
        log_start=header.log_start,
        membership=header.membership,
        membership_index=header.membership_index,
    )


def fails_plainly(driver):
    with pytest.raises(RaftlogError, match="cannot be read"):
        open_with(driver, recover_replica)


def test_a_bad_sector_below_the_mark_is_damage(driver):
    path = driver.log.segments[0].path
    driver.disk.make_unreadable(path, SEGMENT_HEADER_BYTES + SECTOR)
    fails_plainly(driver)
    found = open_with(driver, salvage_replica)
    assert found.state is ReplicaState.DAMAGED
    assert found.log.last_index < driver.log.last_index
    assert found.claimed[0] == driver.image.marks[SPEC.group].raft_index
    assert probes.fired()["unreadable-sector-taken-as-damage"] >= 1


def test_a_bad_sector_that_an_index_file_hides_is_damage(driver):
    """Seed 21 in trio mode: a sector of the metadata log, in a segment that an index file vouched
    for, and behind which a snapshot lay. Recovery did not read it; the broker did, failed, called
    it damage and reopened the replica, whose recovery did not read it, without end."""
    driver.run_jobs()
    header = driver.log.segments[1].header
    write_snapshot(driver.disk, SPEC, place_before(header), b"")
    path = driver.log.segments[0].path
    assert driver.disk.exists(index_name(path)), driver.disk.paths()
    driver.disk.make_unreadable(path, SEGMENT_HEADER_BYTES + SECTOR)
    mark = driver.image.marks[SPEC.group]
    mark = mark._replace(commit=mark.raft_index)
    found = recover_replica(driver.disk, SPEC, mark, driver.options)
    assert found.state is ReplicaState.INTACT, "it is not looked at"
    found = salvage_replica(driver.disk, SPEC, mark, driver.options)
    assert found.state is ReplicaState.DAMAGED
    assert found.log.last_index < driver.log.last_index


def test_a_bad_sector_in_one_copy_of_a_header_costs_nothing(driver):
    driver.disk.make_unreadable(driver.log.segments[0].path, 0)
    fails_plainly(driver)
    found = open_with(driver, salvage_replica)
    assert found.state is ReplicaState.INTACT
    assert found.log.last_index == driver.log.last_index


def test_a_bad_sector_in_an_index_file_costs_nothing(driver):
    driver.run_jobs()
    path = index_name(driver.log.segments[0].path)
    assert driver.disk.exists(path), driver.disk.paths()
    driver.disk.make_unreadable(path, 0)
    found = open_with(driver, salvage_replica)
    assert found.state is ReplicaState.INTACT
    assert found.log.last_index == driver.log.last_index


def test_behind_the_mark_it_stays_an_error(driver):
    """Zeros there would look like a torn tail, and what was acknowledged might be cut."""
    mark = driver.image.marks[SPEC.group]
    shorter = mark._replace(end_position=SEGMENT_HEADER_BYTES)
    driver.disk.make_unreadable(driver.log.segments[-1].path, SEGMENT_HEADER_BYTES)
    with pytest.raises(DiskError, match="cannot be read"):
        salvage_replica(driver.disk, SPEC, shorter, driver.options)
    assert "unreadable-sector-taken-as-damage" not in probes.fired()


def test_a_bad_sector_across_the_mark_is_damage(driver):
    """Seed 41: the sector began before the mark and ended behind it. Its bytes before the mark are
    known to be missing, so nothing is taken for a torn tail."""
    path, mark = driver.log.segments[-1].path, driver.image.marks[SPEC.group]
    assert mark.end_position % SECTOR
    driver.disk.make_unreadable(path, mark.end_position - 1)
    found = open_with(driver, salvage_replica)
    assert (found.state, found.claimed[0]) == (ReplicaState.DAMAGED, mark.raft_index)


def test_without_a_mark_nothing_of_a_segment_may_be_guessed(driver):
    path = driver.log.segments[0].path
    driver.disk.make_unreadable(path, 0)
    file = SalvagingDisk(driver.disk, None).open(path, write=False)
    with pytest.raises(DiskError):
        file.read_at(0, SECTOR)
    assert file.read_at(SECTOR, 10) == driver.disk.content(path)[SECTOR : SECTOR + 10]


def test_only_the_bad_sector_is_lost(driver):
    path = driver.log.segments[0].path
    content = driver.disk.content(path)
    driver.disk.make_unreadable(path, 5 * SECTOR)
    file = SalvagingDisk(driver.disk, driver.image.marks[SPEC.group]).open(path, write=False)
    found = file.read_at(SECTOR + 100, len(content))
    wanted = bytearray(content)
    wanted[5 * SECTOR : 6 * SECTOR] = bytes(len(content[5 * SECTOR : 6 * SECTOR]))
    assert found == bytes(wanted[SECTOR + 100 :])


def test_everything_else_is_the_disk_below(driver):
    disk = SalvagingDisk(driver.disk, None)
    disk.make_dir("extra")
    file = disk.open("extra/a", create=True)
    file.write_at(0, [b"abc"])
    file.truncate(2)
    file.sync()
    assert (file.size(), file.read_at(0, 9)) == (2, b"ab")
    file.close()
    disk.rename("extra/a", "extra/b")
    disk.sync_dir("extra")
    disk.sync_all()
    assert disk.list("extra") == ["b"]
    disk.remove("extra/b")
    assert not disk.exists("extra/b")
    assert disk.free_bytes() == driver.disk.free_bytes()


@pytest.mark.parametrize("function", [recover_replica, salvage_replica])
def test_an_index_file_that_cannot_be_looked_up_keeps_no_replica_closed(driver, function):
    sealed = index_name(driver.log.segments[0].path)
    driver.disk.fail("exists", sealed, count=10**6)
    if function is recover_replica:
        with pytest.raises(DiskError):
            open_with(driver, function)
    else:
        assert open_with(driver, function).state is ReplicaState.INTACT


@pytest.mark.parametrize("function", [recover_replica, salvage_replica])
def test_a_head_that_cannot_be_looked_up_is_not_missing(driver, function):
    """It may pass; a replica without its head may count as lost for good."""
    driver.disk.fail("exists", "head", count=10**6)
    with pytest.raises(DiskError):
        open_with(driver, function)


@pytest.mark.parametrize("name", STORE_FILES)
def test_a_store_file_that_cannot_be_looked_up_is_not_missing(driver, name):
    """The other one may say what was true before."""
    driver.disk.fail("exists", name, count=10**6)
    with pytest.raises(DiskError):
        open_directory(driver.disk)


def test_a_full_disk_keeps_no_replica_closed(driver):
    """Index files can be rebuilt at any time: a walk that cannot write one is none the worse."""
    sealed = index_name(driver.log.segments[0].path)
    driver.disk.remove(sealed)
    driver.disk.free = 0
    found = open_with(driver, recover_replica)
    assert found.state is ReplicaState.INTACT
    assert found.log.last_index == driver.log.last_index
    assert not driver.disk.exists(sealed)


def test_a_fault_is_told_though_its_index_cannot_be_looked_up():
    """The error of the disk hid the damage, which a leader then never found."""
    driver = Driver()
    driver.lead(1)
    driver.append(12, 2, size=60)
    driver.commit_all()
    driver.settle()
    path = driver.log.segments[0].path
    driver.disk.flip_bit(path, 4096 + 300)
    driver.disk.fail("exists", index_name(path), count=10**6)
    with pytest.raises(CorruptData):
        driver.run(driver.log.plan_verify(1, 3))


def test_what_a_full_disk_has_no_room_for_leaves_nothing_behind():
    disk = new_disk()
    disk.make_dir("groups")
    disk.free = 100
    with pytest.raises(DiskFull):
        write_whole(disk, "groups/one", bytes(5000))
    assert not disk.exists("groups/one" + TEMPORARY_SUFFIX)
