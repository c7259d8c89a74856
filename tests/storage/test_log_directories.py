"""Replicas on several disks: each directory says whose it is, and fails without the others."""

import pytest
from raftlog_sim.world.disk import Keep

from raftlog.base.checksum import crc32c
from raftlog.base.entries import HardState
from raftlog.base.errors import CorruptData, DiskError, DiskFull, FutureFormat, OperatingError
from raftlog.storage.boot.recovery import (
    ReplicaState,
    create_replica,
    delete_replica,
    recover_replica,
)
from raftlog.storage.directories.data_dir import (
    DirectoryIdentity,
    format_directory,
    open_directory,
    peek_directory,
)
from raftlog.storage.directories.log_directories import (
    FURTHER_FILE,
    DirectoryFailed,
    FurtherImage,
    LogDirectories,
    directory_of,
    found_twice,
    further_prefix,
    open_further,
    refuse_further,
)
from raftlog.storage.directories.store_records import hard_state_record, register_record
from raftlog.storage.ops import AppendBytes, CloseGroup, CreateFile, StoreRecords
from raftlog.storage.replica import Registration, ReplicaSpec
from raftlog.storage.write_round import DirectoryWriter
from tests.storage.making import CLUSTER, FOUNDERS, IDENTITY, ME, SPEC, TINY, new_disk

NEW = 0xABC
PREFIX = further_prefix(NEW)
HERE, THERE, BESIDE = 11, 12, 13
"""Groups: one in the data directory, two in the further one."""


def path_of(group):
    plain = f"groups/{group:032x}-0-1/{1:020d}-{1:010d}.log"
    return plain if group == HERE else f"{PREFIX}/{plain}"


class Rig:
    """A data directory, a further one, and the writer over both."""

    def __init__(self):
        self.first, self.other = new_disk(1), new_disk(2)
        format_directory(self.first, IDENTITY)
        self.boot()
        for group in (HERE, THERE, BESIDE):
            place = path_of(group).rpartition("/")[0]
            self.disk.make_dir(place)
            self.disk.sync_dir(place.rpartition("/")[0])
            self.perform(CreateFile(group, path_of(group), b"header"))

    def boot(self):
        open_directory(self.first)
        self.image = open_further(self.other, IDENTITY, "/b", NEW)
        assert self.image.error is None, self.image.error
        self.disk = LogDirectories(self.first, {PREFIX: self.other})
        self.writer = DirectoryWriter(self.disk, syncfs_from=3, further=self.disk.further)
        self.io_id = 0

    def perform(self, *ops):
        self.io_id += 1
        result = self.writer.perform(self.io_id, ops)
        assert result.poisoned is None, result.poisoned
        return result.failed

    def append(self, group, content, position=6):
        return AppendBytes(group, path_of(group), position, [content])


@pytest.fixture
def rig():
    return Rig()


# --- identities -----------------------------------------------------------------------------------


def test_an_empty_directory_gets_an_identity_and_keeps_it():
    disk = new_disk()
    first = open_further(disk, IDENTITY, "/b", NEW)
    assert (first.prefix, first.replicas, first.error) == (PREFIX, (), None)
    disk.crash(Keep.NONE)
    assert open_further(disk, IDENTITY, "/b", 0xDEF).prefix == PREFIX


@pytest.mark.parametrize(
    "change",
    [{"cluster": bytes(16)}, {"node": 2}, {"directory": 0x2222}],
    ids=["cluster", "node", "data directory"],
)
def test_a_directory_of_another_broker_is_refused(change):
    disk = new_disk()
    open_further(disk, IDENTITY, "/b", NEW)
    fields = {"cluster": CLUSTER, "node": 1, "directory": ME.directory} | change
    with pytest.raises(OperatingError, match="belongs to data directory"):
        open_further(disk, DirectoryIdentity(**fields), "/b", NEW)


def test_a_data_directory_is_no_further_one_and_the_other_way_round(rig):
    with pytest.raises(OperatingError, match="data directory of a broker"):
        open_further(rig.first, IDENTITY, "/a", NEW)
    with pytest.raises(OperatingError, match="not its data directory"):
        refuse_further(rig.other, "/b")
    refuse_further(rig.first, "/a")


def test_replicas_without_an_identity_beside_them_are_no_empty_directory(rig):
    rig.other.remove(FURTHER_FILE)
    with pytest.raises(CorruptData, match="missing beside the replicas"):
        open_further(rig.other, IDENTITY, "/b", NEW)


@pytest.mark.parametrize("copies", [1, 2])
def test_one_damaged_copy_is_survived_and_two_are_told(rig, copies):
    with_damage = rig.other.open(FURTHER_FILE)
    for copy in range(copies):
        with_damage.write_at(512 * copy + 33, [b"\xff"])
    if copies == 1:
        assert open_further(rig.other, IDENTITY, "/b", NEW).prefix == PREFIX
    else:
        with pytest.raises(CorruptData, match="both copies"):
            open_further(rig.other, IDENTITY, "/b", NEW)


def test_a_later_version_is_refused(rig):
    content = bytearray(rig.other.content(FURTHER_FILE)[:508])
    content[10:12] = (2).to_bytes(2, "big")
    copy = bytes(content) + crc32c(bytes(content)).to_bytes(4, "big")
    rig.other.open(FURTHER_FILE).write_at(0, [copy + copy])
    with pytest.raises(FutureFormat, match="version 1"):
        open_further(rig.other, IDENTITY, "/b", NEW)


def test_a_disk_that_takes_no_writes_at_boot_is_told_and_known(rig):
    rig.other.fail("write", count=99)
    image = open_further(rig.other, IDENTITY, "/b", NEW)
    assert image.prefix == PREFIX
    assert image.replicas == ()
    assert isinstance(image.error, DiskError)


# --- paths ----------------------------------------------------------------------------------------


def test_a_path_says_its_directory():
    assert directory_of("groups/aa-0-1") == ""
    assert directory_of("") == ""
    assert directory_of(f"{PREFIX}/groups/aa-0-1") == PREFIX
    assert directory_of(PREFIX) == PREFIX


def test_a_directory_that_is_not_there_is_named(rig):
    with pytest.raises(DiskError, match=r"not there.*log\.dirs"):
        rig.disk.open(f"{further_prefix(0x999)}/groups/x")


def test_a_replica_in_two_directories_is_found():
    paths = {"r-1": "groups/r-1", "r-2": f"{PREFIX}/groups/r-2", "r-3": "groups/r-3"}
    here = FurtherImage(name="/a", replicas=("r-1", "r-2", "r-3", "r-9"))
    there = FurtherImage(name="/b", prefix=PREFIX, replicas=("r-1", "r-2", "r-9"))
    assert found_twice(paths, [here, there]) == [
        (f"{PREFIX}/groups/r-2", "groups/r-2"),
        ("groups/r-1", f"{PREFIX}/groups/r-1"),
    ]


def test_a_replica_begins_is_recovered_and_goes_in_a_further_directory(rig):
    spec = ReplicaSpec(
        cluster=CLUSTER,
        group=7,
        replica=ME,
        path=f"{PREFIX}/{SPEC.path}",
        check_state=SPEC.check_state,
    )
    create_replica(rig.disk, spec, FOUNDERS, TINY)
    rig.perform(StoreRecords([register_record(7, Registration(ME, spec.path))]))
    rig.first.crash(Keep.NONE)
    rig.other.crash(Keep.NONE)
    rig.boot()
    assert SPEC.path.rpartition("/")[2] in rig.image.replicas
    assert peek_directory(rig.disk).registrations[7].path == spec.path
    assert recover_replica(rig.disk, spec, None, TINY).state is ReplicaState.INTACT
    delete_replica(rig.disk, SPEC.path, spec.path)
    rig.other.crash(Keep.NONE)
    assert not rig.other.exists(SPEC.path)


# --- a disk that fails ----------------------------------------------------------------------------


@pytest.mark.parametrize("call", ["write", "sync"])
def test_a_failing_disk_takes_its_own_groups_and_no_other(rig, call):
    rig.other.fail(call, count=99)
    vote = hard_state_record(THERE, HardState(3, ME))
    failed = rig.perform(
        rig.append(HERE, b"a"),
        rig.append(THERE, b"b"),
        rig.append(BESIDE, b"c"),
        StoreRecords([register_record(THERE, Registration(ME, path_of(THERE))), vote]),
    )
    assert set(failed) == {THERE, BESIDE}
    for error in failed.values():
        assert isinstance(error, DirectoryFailed)
        assert error.directory == PREFIX
    rig.first.crash(Keep.NONE)
    assert rig.first.content(path_of(HERE)) == b"headera"
    assert peek_directory(rig.first).hard_states[THERE] == HardState(3, ME)


def test_a_failed_directory_takes_nothing_more_in_this_boot(rig):
    """A retry that succeeds proves nothing: the kernel may have dropped the pages."""
    rig.other.fail("sync", count=99)
    assert set(rig.perform(rig.append(THERE, b"b"))) == {THERE}
    rig.other.forget_faults()
    failed = rig.perform(
        CloseGroup(THERE),
        rig.append(THERE, b"b"),
        CreateFile(BESIDE, path_of(BESIDE).replace("0001.log", "0002.log"), b"h"),
        rig.append(HERE, b"a"),
    )
    assert set(failed) == {THERE, BESIDE}
    rig.boot()
    assert rig.perform(rig.append(THERE, b"b")) == {}


def test_a_full_disk_fails_groups_and_not_the_directory(rig):
    rig.other.fail("write", error=DiskFull, count=1)
    failed = rig.perform(rig.append(THERE, b"b"))
    assert [type(each) for each in failed.values()] == [DiskFull]
    rig.other.forget_faults()
    assert rig.perform(CloseGroup(THERE), rig.append(THERE, b"b"), rig.append(BESIDE, b"c")) == {}


def test_a_failing_store_poisons_all(rig):
    rig.first.fail("sync", count=99)
    rig.io_id += 1
    vote = hard_state_record(THERE, HardState(3, ME))
    result = rig.writer.perform(rig.io_id, [rig.append(THERE, b"b"), StoreRecords([vote])])
    assert result.poisoned is not None


@pytest.mark.parametrize("few", [True, False], ids=["one by one", "all at once"])
def test_what_is_reported_survives_on_both_disks(rig, few):
    ops = [rig.append(HERE, b"a"), rig.append(THERE, b"b"), rig.append(BESIDE, b"c")]
    if not few:
        for number in range(20, 24):
            path = f"{PREFIX}/groups/{BESIDE:032x}-0-1/{number:020d}-{1:010d}.snapshot"
            rig.perform(CreateFile(number, path, b"x"))
            ops.append(AppendBytes(number, path, 1, [b"y"]))
    assert rig.perform(*ops) == {}
    rig.first.crash(Keep.NONE)
    rig.other.crash(Keep.NONE)
    assert rig.first.content(path_of(HERE)) == b"headera"
    for group, content in ((THERE, b"headerb"), (BESIDE, b"headerc")):
        assert rig.other.content(path_of(group).removeprefix(f"{PREFIX}/")) == content
