"""Formatting, booting, refusing: the directory's identity and its boot numbers."""

import struct

import attrs
import pytest
from raftlog_sim.world.disk import Keep

from raftlog.base.checksum import crc32c
from raftlog.base.entries import HardState
from raftlog.base.errors import CorruptData, FutureFormat, OperatingError
from raftlog.base.ids import ReplicaId
from raftlog.storage.directories import store_file
from raftlog.storage.directories.data_dir import (
    FORMAT_FILE,
    DirectoryIdentity,
    format_directory,
    is_formatted,
    open_directory,
    peek_directory,
    read_identity,
)
from raftlog.storage.directories.store_file import STORE_FILES, StoreFiles
from raftlog.storage.directories.store_records import promise_record
from tests.storage.making import CLUSTER, IDENTITY, ME, SPEC, Driver, new_disk

FOUNDER = DirectoryIdentity(
    cluster=CLUSTER,
    node=4,
    directory=0x44,
    controllers=(ReplicaId(4, 0x44, 0), ReplicaId(5, 0x55, 0), ReplicaId(6, 0x66, 0)),
)


def test_what_format_fixes_is_read_back():
    for identity in (IDENTITY, FOUNDER, attrs.evolve(FOUNDER, sealed=True)):
        disk = new_disk()
        assert not is_formatted(disk)
        format_directory(disk, identity)
        disk.crash(Keep.NONE)
        assert read_identity(disk) == identity
        image = open_directory(disk)
        assert (image.identity, image.boot) == (identity, 1)
        assert (image.registrations, image.hard_states, image.marks) == ({}, {}, {})


def test_every_boot_has_a_higher_number():
    disk = new_disk()
    format_directory(disk, IDENTITY)
    for boot in range(1, 6):
        assert open_directory(disk).boot == boot
        disk.crash(Keep.NONE)
        assert peek_directory(disk).boot == boot


def test_a_boot_finds_the_longest_promise_and_makes_its_own_durable():
    disk = new_disk()
    format_directory(disk, IDENTITY)
    for lease_ns, promised_ns in ((0, 0), (500, 500), (0, 500), (200, 500), (900, 900)):
        image = open_directory(disk, lease_ns)
        assert (image.lease_ns, image.promised_ns) == (lease_ns, promised_ns)
        disk.crash(Keep.NONE)
        assert peek_directory(disk).promised_ns == promised_ns


def test_promises_that_are_over_are_forgotten():
    disk = new_disk()
    format_directory(disk, IDENTITY)
    open_directory(disk, 500)
    store = StoreFiles(disk, IDENTITY.owner)
    store.append([promise_record(0)])
    store.sync()
    assert open_directory(disk).promised_ns == 0


def test_a_release_that_knows_no_promises_refuses_them_by_their_version(monkeypatch):
    """And not as damage: it would have told the operator to move the directory away. Before leases
    were on, and after their promises are over, it reads the store."""
    disk = new_disk()
    format_directory(disk, IDENTITY)
    open_directory(disk, 500)
    before = {path: disk.content(path) for path in disk.paths()}
    with monkeypatch.context() as older:
        older.setattr(store_file, "VERSION", 1)
        with pytest.raises(FutureFormat, match="store of version 2"):
            open_directory(disk)
    assert {path: disk.content(path) for path in disk.paths()} == before
    store = StoreFiles(disk, IDENTITY.owner)
    store.append([promise_record(0)])
    store.begin_generation()
    store.sync()
    open_directory(disk)
    open_directory(disk)
    monkeypatch.setattr(store_file, "VERSION", 1)
    assert open_directory(disk).promised_ns == 0


def test_an_old_image_of_the_disk_shows_by_its_boot_number():
    """Peers have seen a higher number than the restored image can give itself."""
    import copy

    driver = Driver(new_disk())
    old = copy.deepcopy(driver.disk)
    driver.round([driver.store.set_hard_state(SPEC.group, HardState(7, ME))])
    seen = open_directory(driver.disk).boot
    restored = open_directory(old)
    assert restored.boot <= seen
    assert SPEC.group not in restored.hard_states


def test_a_second_format_is_refused_and_changes_nothing():
    disk = new_disk()
    format_directory(disk, IDENTITY)
    with pytest.raises(OperatingError, match="already formatted"):
        format_directory(disk, FOUNDER)
    assert read_identity(disk) == IDENTITY


def test_a_lost_format_file_does_not_make_a_directory_empty():
    """An operator tidied up, or a file system check took the file away. The next start found "no
    format", removed votes, registrations and boot number, and gave the directory another identity;
    `up` would have founded a second cluster on top of the first one's data."""
    disk = Driver(new_disk()).disk
    before = [disk.content(name) for name in STORE_FILES]
    disk.vanish(FORMAT_FILE)
    for attempt in (is_formatted, open_directory, lambda disk: format_directory(disk, FOUNDER)):
        with pytest.raises(CorruptData, match="format file is missing"):
            attempt(disk)
    assert [disk.content(name) for name in STORE_FILES] == before


def test_an_empty_directory_says_what_to_do():
    with pytest.raises(OperatingError, match="raftlog format"):
        open_directory(new_disk())


@pytest.mark.parametrize("identity", [{"directory": 0}, {"controllers": (ME, ReplicaId(1, 1, 0))}])
def test_impossible_identities_are_our_bug(identity):
    import attrs

    with pytest.raises(AssertionError):
        format_directory(new_disk(), attrs.evolve(IDENTITY, **identity))


def altered(position, content):
    disk = new_disk()
    format_directory(disk, IDENTITY)
    copy = bytearray(disk.content(FORMAT_FILE)[:2048])
    copy[position : position + len(content)] = content
    struct.pack_into(">I", copy, 2044, crc32c(bytes(copy[:2044])))
    disk.overwrite(FORMAT_FILE, 0, bytes(copy) * 2)
    return disk


@pytest.mark.parametrize(
    ("position", "content", "error"),
    [
        (0, b"X", CorruptData),
        (10, b"\x00\x03", FutureFormat),
        (12, b"\x00\x02", FutureFormat),
        (14, b"\x00\x01", CorruptData),
        (44, b"\x00\x00\x00\x63", CorruptData),
        (48, b"\x01", CorruptData),
    ],
)
def test_what_this_release_does_not_know_is_refused(position, content, error):
    with pytest.raises(error):
        read_identity(altered(position, content))


def test_a_sealed_directory_is_of_a_later_version_and_any_other_flag_is_refused():
    """The last release would link its brokers plainly: it is told that it is too old. It still
    reads a directory without the flag."""
    sealed, plain = new_disk(), new_disk()
    format_directory(sealed, attrs.evolve(IDENTITY, sealed=True))
    format_directory(plain, IDENTITY)
    assert sealed.content(FORMAT_FILE)[8:16] == b"\0\2\0\2\0\1\0\1"
    assert plain.content(FORMAT_FILE)[8:16] == b"\0\1\0\1\0\1\0\0"
    with pytest.raises(CorruptData, match="0x0003"):
        read_identity(altered(8, b"\0\2\0\2\0\1\0\3"))


def test_what_a_newer_writer_added_behind_is_left_unread():
    """It said itself that a reader of version 1 is enough: its new fields are no damage."""
    disk = new_disk()
    format_directory(disk, IDENTITY)
    copy = bytearray(disk.content(FORMAT_FILE)[:2048])
    copy[8:10], copy[2000:2004] = b"\x00\x03", b"more"
    struct.pack_into(">I", copy, 2044, crc32c(bytes(copy[:2044])))
    disk.overwrite(FORMAT_FILE, 0, bytes(copy) * 2)
    assert read_identity(disk) == IDENTITY


def test_a_store_of_another_cluster_is_refused():
    """An operator copied the store files of another broker over ours."""
    ours, theirs = new_disk(1), new_disk(2)
    format_directory(ours, IDENTITY)
    format_directory(theirs, FOUNDER)
    for name in STORE_FILES:
        ours.overwrite(name, 0, theirs.content(name)[:4096])
    with pytest.raises(CorruptData, match="directory 0000000000000044"):
        open_directory(ours)


def test_one_missing_store_file_is_survived_when_it_is_the_older_one():
    disk = new_disk()
    format_directory(disk, IDENTITY)
    open_directory(disk)
    boots = {}
    for name in STORE_FILES:
        import copy

        other = copy.deepcopy(disk)
        other.vanish(name)
        try:
            boots[name] = peek_directory(other).boot
        except CorruptData:
            boots[name] = None
    assert 1 in boots.values()
