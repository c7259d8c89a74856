"""The files of the store: how they grow, and what happens where they cannot."""

from pathlib import Path

import pytest
from raftlog_sim.disk import Keep

from raftlog.base.entries import HardState
from raftlog.base.errors import DiskError, DiskFull
from raftlog.runtime.real_ports import PosixDisk
from raftlog.storage.data_dir import format_directory, open_directory
from raftlog.storage.replica import Registration
from raftlog.storage.store_file import STORE_FILES, StoreFiles
from raftlog.storage.store_records import hard_state_record, register_record
from tests.storage.making import IDENTITY, ME, SPEC, new_disk


@pytest.fixture
def disk():
    disk = new_disk()
    format_directory(disk, IDENTITY)
    return disk


def test_a_store_that_cannot_grow_goes_on_in_the_room_it_has(disk):
    """Four images of 1,500 groups are larger than the file; on a full disk the next generation
    wanted it to grow, which poisoned the directory, and so did every boot."""
    open_directory(disk)
    sizes = [len(disk.content(name)) for name in STORE_FILES]
    disk.free = 5_000
    store = StoreFiles(disk, IDENTITY.owner)
    groups = range(10, 1510)
    store.append([register_record(group, Registration(ME, SPEC.path)) for group in groups])
    store.sync()
    for term in range(1, 4):
        for group in groups:
            store.append([hard_state_record(group, HardState(term, ME))])
            store.sync()
    store.close()
    disk.crash(Keep.NONE)
    assert disk.free == 5_000, "the last bytes of a disk are not taken to no use"
    assert [len(disk.content(name)) for name in STORE_FILES] == sizes
    states = open_directory(disk).hard_states
    assert [states[group] for group in groups] == [HardState(3, ME)] * 1500
    disk.free = None
    open_directory(disk)
    assert max(len(disk.content(name)) for name in STORE_FILES) > max(sizes)


def test_a_store_without_room_for_its_image_says_so(disk):
    open_directory(disk)
    disk.free = 0
    store = StoreFiles(disk, IDENTITY.owner)
    synced = fill(store)
    store.close()
    disk.crash(Keep.NONE)
    disk.free = None
    assert list(open_directory(disk).registrations) == synced
    assert len(synced) > 1000


def fill(store):
    """Register groups until there is no room; returns those that were synced."""
    synced = []
    with pytest.raises(DiskFull):
        register_some(store, synced)
    return synced


def register_some(store, synced):
    for group in range(10, 10_000):
        store.append([register_record(group, Registration(ME, "x" * 255))])
        store.sync()
        synced.append(group)


@pytest.mark.parametrize("operation", ["open", "write", "sync"])
def test_a_store_that_does_not_open_holds_no_files(tmp_path, operation):
    posix = PosixDisk(str(tmp_path))
    format_directory(posix, IDENTITY)

    class Failing:
        """The second file does not open, or nothing can be written."""

        def __init__(self, file):
            self.file = file

        def __getattr__(self, name):
            return refuse if name.startswith(operation) else getattr(self.file, name)

    def refuse(*args, **options):
        raise DiskError("no")

    class Disk:
        def __getattr__(self, name):
            return getattr(posix, name)

        def open(self, path, *, create=False, write=True):
            if operation == "open" and write and path == STORE_FILES[1]:
                refuse()
            return Failing(posix.open(path, create=create, write=write))

    with pytest.raises(DiskError, match="no"):
        StoreFiles(Disk(), IDENTITY.owner)
    links = [fd for fd in Path("/proc/self/fd").iterdir() if fd.is_symlink() and fd.exists()]
    assert not [fd for fd in links if str(fd.readlink()).startswith(str(tmp_path))]
