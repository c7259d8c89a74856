"""The files of the store: how they grow, and what happens where they cannot."""

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from raftlog_sim.world.disk import Keep

from raftlog.base.entries import HardState
from raftlog.base.errors import DiskError, DiskFull, RaftlogError
from raftlog.base.units import KIB
from raftlog.runtime.real_ports import PosixDisk
from raftlog.storage.directories import store_file
from raftlog.storage.directories.data_dir import format_directory, open_directory
from raftlog.storage.directories.store_file import STORE_FILES, StoreFiles, StoreReader, read_store
from raftlog.storage.directories.store_records import hard_state_record, register_record
from raftlog.storage.files import grown
from raftlog.storage.replica import Registration
from tests.storage.making import IDENTITY, ME, SPEC, new_disk

STRIKES = ("power", "old", "bit", "lost", "tear")


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


def what_it_says(read, disk):
    """Everything that a reader says of a disk, or its error."""
    try:
        state = read(disk, IDENTITY.owner)
    except RaftlogError as error:
        return str(error)
    return state.boot, state.registrations, state.hard_states, state.marks, state.promised_ns


@settings(max_examples=60)
@given(
    st.lists(st.sampled_from([*["vote"] * 6, *STRIKES, "generation"]), max_size=40),
    st.randoms(use_true_random=False),
)
def test_reading_on_says_what_reading_all_of_it_says(steps, rng):
    disk = new_disk()
    format_directory(disk, IDENTITY, store_bytes=8 * KIB)
    store, reader, old, term = StoreFiles(disk, IDENTITY.owner), StoreReader(), {}, 0
    for step in steps:
        name = rng.choice(STORE_FILES)
        if step == "vote":
            term += 1
            try:
                store.append([hard_state_record(rng.randrange(4), HardState(term, ME))])
                store.sync()
            except RaftlogError:
                return
        elif step == "generation":
            store.begin_generation()
            store.sync()
        elif step == "power":
            store.append([hard_state_record(9, HardState(term, ME))])
            disk.crash(Keep.SOME)
        elif step == "old":
            old = old or {each: disk.content(each) for each in STORE_FILES}
            for each, content in old.items():
                disk.overwrite(each, 0, content)
        elif step == "bit":
            disk.flip_bit(name, rng.randrange(len(disk.content(name))))
        elif step == "lost":
            disk.vanish(name)
        elif step == "tear":
            disk.overwrite(name, 512 * rng.randrange(16), bytes(512))
        assert what_it_says(reader.read, disk) == what_it_says(read_store, disk)
        if step in STRIKES:
            try:
                store = StoreFiles(disk, IDENTITY.owner)
            except RaftlogError:
                return


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


@pytest.mark.parametrize(("needed", "fits"), [(4096, True), (4097, False)])
def test_a_file_that_cannot_grow_is_enough_if_the_bytes_just_fit(disk, needed, fits):
    file = disk.open("file", create=True)
    file.write_at(0, [bytes(4096)])
    disk.free = 0
    if fits:
        assert grown(file, 8192, needed) == 4096
    else:
        with pytest.raises(DiskFull):
            grown(file, 8192, needed)
    assert file.size() == 4096


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


def test_an_image_that_is_not_whole_tells_no_header(disk):
    """The header of its generation would take back the votes of an older image that is whole."""
    open_directory(disk)
    data = bytearray(disk.content(STORE_FILES[0]))
    places = list(store_file._frame_places(bytes(data), 0))
    _, (generation, number, _) = places[0]
    assert store_file._header_of_image(bytes(data), IDENTITY.owner, 0)[:2] == (generation, number)
    assert store_file._header_of_image(bytes(data), IDENTITY.owner, generation) is None
    for at, _ in places:
        size = int.from_bytes(data[at + 4 : at + 8], "big")
        data[at + store_file._FRAME_HEAD_BYTES + size] ^= 1  # in its checksum
    assert store_file._header_of_image(bytes(data), IDENTITY.owner, 0) is None


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
    assert not [target for target in open_files() if target.startswith(str(tmp_path))]


def open_files() -> list[str]:
    """Returns the files that this process has open; a thread of another library may close some
    meanwhile."""
    found = []
    for fd in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            found.append(str(fd.readlink()))
    return found


def test_what_only_looks_like_a_frame_is_none(disk):
    """The magic may stand anywhere in damaged bytes: between sectors, or in the last four."""
    magic, sector = store_file._FRAME_MAGIC, store_file.SECTOR
    whole = magic + bytes(sector - len(magic))
    data = whole + bytes(7) + magic + bytes(sector - 7 - len(magic)) + magic
    assert [at for at, _ in store_file._frame_places(data, 0)] == [0]
