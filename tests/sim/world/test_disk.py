"""The simulated disk keeps its own assumptions about a medium, each with a test."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from raftlog_sim.base.streams import Stream
from raftlog_sim.world.disk import Keep, SimulatedCrashError, SimulatedDisk
from raftlog_sim.world.inode import SECTOR

from raftlog.base.errors import DiskError, DiskFull


@pytest.fixture
def disk():
    return SimulatedDisk(Stream(1, "disk"))


def made(disk, path="a", content=b"old" * 400):
    file = disk.open(path, create=True)
    file.write_at(0, [content])
    file.sync()
    disk.sync_dir(path.rpartition("/")[0])
    return file


def test_pending_bytes_are_seen_and_lost(disk):
    file = made(disk)
    file.write_at(0, [b"new"])
    assert disk.content("a")[:3] == b"new"
    disk.crash(Keep.NONE)
    assert disk.content("a")[:3] == b"old"


def test_synced_bytes_stay(disk):
    file = made(disk)
    file.write_at(2000, [b"x", b"y"])
    file.sync()
    disk.crash(Keep.NONE)
    assert disk.content("a")[1998:] == b"\0\0xy"


def test_all_pending_may_be_kept(disk):
    file = made(disk)
    file.write_at(10, [b"new"])
    file.truncate(20)
    disk.crash(Keep.ALL)
    assert disk.content("a") == (b"old" * 400)[:10] + b"new" + (b"old" * 400)[13:20]


@given(st.integers(0, 2**32), st.integers(0, 4000), st.integers(1, 3000))
def test_a_crash_decides_sector_by_sector(seed, position, size):
    disk = SimulatedDisk(Stream(seed, "disk"))
    file = made(disk, content=b"o" * 4096)
    file.write_at(position, [b"n" * size])
    disk.crash(Keep.SOME)
    content = disk.content("a")
    for at in range(0, len(content), SECTOR):
        sector = content[at : at + SECTOR]
        inside = [byte for n, byte in enumerate(sector, at) if position <= n < position + size]
        outside = [byte for n, byte in enumerate(sector, at) if not position <= n < position + size]
        assert set(inside) <= {ord("n"), ord("o"), 0}
        assert set(outside) <= {ord("o"), 0}
        text = bytes(inside)
        assert text == b"n" * text.count(b"n") + text[text.count(b"n") :], (
            "torn once, from the left"
        )


def test_a_crash_tears_in_units_of_four_kib():
    """Each 4 KiB goes on its own: kept, dropped, or kept up to somewhere."""
    kept = []
    for seed in range(40):
        disk = SimulatedDisk(Stream(seed, "disk"), 8 * SECTOR)
        made(disk, "f", b"a" * 16_384)
        disk.open("f").write_at(0, [b"b" * 16_384])
        disk.crash(Keep.SOME)
        content = disk.content("f")
        for at in range(0, 16_384, 4_096):
            unit = content[at : at + 4_096]
            new = len(unit) - len(unit.lstrip(b"b"))
            assert unit == b"b" * new + b"a" * (4_096 - new)
            kept.append(new)
    assert {0, 4_096} < set(kept)
    assert len(set(kept)) > 10, "some are torn within"


@pytest.mark.parametrize("call", ["create", "write", "truncate", "rename", "remove"])
def test_a_late_error_finds_the_call_done(disk, call):
    made(disk, "f", b"one")
    disk.fail(call, late=True)
    calls = {
        "create": lambda: disk.open("new", create=True),
        "write": lambda: disk.open("f").write_at(3, [b"two"]),
        "truncate": lambda: disk.open("f").truncate(1),
        "rename": lambda: disk.rename("f", "new"),
        "remove": lambda: disk.remove("f"),
    }
    with pytest.raises(DiskError, match=f"injected failure of {call}"):
        calls[call]()
    found = {path: disk.content(path) for path in disk.paths()}
    assert (
        found
        == {
            "create": {"f": b"one", "new": b""},
            "write": {"f": b"onetwo"},
            "truncate": {"f": b"o"},
            "rename": {"new": b"one"},
            "remove": {},
        }[call]
    )


def test_a_synced_file_may_lose_its_name(disk):
    file = disk.open("a", create=True)
    file.write_at(0, [b"x"])
    file.sync()
    disk.crash(Keep.NONE)
    assert not disk.exists("a")


def test_renames_and_removals_are_pending_until_the_directory_is_synced(disk):
    made(disk, "a", b"a")
    made(disk, "b", b"b")
    disk.rename("a", "b")
    made_c = made(disk, "c", b"c")
    del made_c
    disk.crash(Keep.NONE)
    assert disk.content("b") == b"a", "the sync for c made the rename durable too"
    disk.remove("b")
    disk.crash(Keep.NONE)
    assert disk.content("b") == b"a"
    disk.remove("b")
    disk.sync_dir("")
    disk.crash(Keep.NONE)
    assert not disk.exists("b")


def test_a_directory_whose_parent_was_not_synced_goes_with_its_files(disk):
    disk.make_dir("d/e")
    made(disk, "d/e/f")
    disk.crash(Keep.NONE)
    assert not disk.exists("d/e/f")
    disk.make_dir("d/e")
    disk.sync_dir("")
    disk.sync_dir("d")
    made(disk, "d/e/f")
    disk.crash(Keep.NONE)
    assert disk.list("d/e") == ["f"]


def test_after_a_failed_sync_the_pages_are_clean_and_gone(disk):
    file = made(disk)
    file.write_at(0, [b"new"])
    disk.fail("sync", "a")
    with pytest.raises(DiskError):
        file.sync()
    file.sync()
    assert disk.content("a")[:3] == b"new"
    disk.crash(Keep.ALL)
    assert disk.content("a")[:3] == b"old"


def test_a_lying_sync_makes_nothing_durable(disk):
    file = made(disk)
    disk.lying_sync = True
    file.write_at(0, [b"new"])
    file.sync()
    disk.crash(Keep.NONE)
    assert disk.content("a")[:3] == b"old"


def test_sync_all(disk):
    file = disk.open("a", create=True)
    file.write_at(0, [b"x"])
    disk.sync_all()
    disk.crash(Keep.NONE)
    assert disk.content("a") == b"x"


def test_space_runs_out_in_the_middle_and_comes_back(disk):
    file = made(disk, content=b"")
    disk.free = 10
    with pytest.raises(DiskFull):
        file.write_at(0, [b"x" * 20])
    assert len(disk.content("a")) <= 20
    assert disk.free_bytes() >= 0
    disk.free = None
    file.write_at(0, [b"x" * 20])
    assert disk.content("a") == b"x" * 20


def test_what_is_removed_replaced_or_cut_off_gives_room(disk):
    file = made(disk, "a", bytes(100))
    made(disk, "b", bytes(50))
    made(disk, "c", bytes(7))
    disk.free = 0
    disk.remove("b")
    assert disk.free == 50
    disk.rename("c", "a")
    assert disk.free == 150
    disk.open("a").truncate(2)
    assert disk.free == 155
    file.write_at(0, [bytes(100)])
    assert disk.free == 155, "it has no name any more"
    disk.free = None
    assert disk.free_bytes() > 1 << 30


def test_a_longer_file_takes_room_however_it_became_longer(disk):
    file = made(disk, "a", bytes(100))
    disk.free = 10
    with pytest.raises(DiskFull):
        file.truncate(111)
    assert (file.size(), disk.free) == (100, 10)
    file.truncate(104)
    file.write_at(104, [bytes(6)])
    assert (file.size(), disk.free) == (110, 0)
    file.write_at(0, [b"over"])


def test_a_crash_takes_back_the_room_of_what_comes_back(disk):
    made(disk, "a", bytes(100))
    disk.free = 10
    disk.remove("a")
    disk.open("b", create=True).write_at(0, [bytes(60)])
    assert disk.free == 50
    disk.crash(Keep.NONE)
    assert (disk.paths(), disk.free) == (("a",), 10)


@pytest.mark.parametrize("tears", [False, True])
def test_the_nth_changing_call_crashes(disk, tears):
    file = made(disk)
    disk.crash_at, disk.crash_tears = disk.mutations + 2, tears
    file.sync()
    with pytest.raises(SimulatedCrashError):
        file.write_at(0, [b"new" * 100])
    disk.crash(Keep.ALL)
    assert (disk.content("a") == b"old" * 400) or tears


def test_faults_strike_after_so_many_good_calls(disk):
    disk.fail("read", "a", skip=1, count=2)
    file = made(disk)
    file.read_at(0, 1)
    for _ in range(2):
        with pytest.raises(DiskError, match="injected"):
            file.read_at(0, 1)
    assert file.read_at(0, 3) == b"old"


def test_rot_cut_alien_and_unreadable(disk):
    file = made(disk)
    disk.flip_bit("a", 0, 1)
    assert disk.content("a")[:1] == b"m"
    disk.overwrite("a", 5, b"alien")
    assert file.read_at(5, 5) == b"alien"
    disk.make_unreadable("a", 600)
    assert file.read_at(0, 512)
    with pytest.raises(DiskError, match="cannot be read"):
        file.read_at(0, 513)
    file.write_at(600, [b"again"])
    assert file.read_at(600, 5) == b"again"
    disk.shorten("a", 7)
    disk.crash(Keep.ALL)
    assert len(disk.content("a")) == 7


def test_what_cannot_be_read_is_a_file_and_not_a_name(disk):
    """A snapshot that replaced a rotten one could not be read either, though nothing of it was
    rotten (seed 8507413)."""
    for name in ("a", "b", "c"):
        made(disk, name)
    disk.make_unreadable("a", 0)
    disk.make_unreadable("c", 0)
    disk.rename("b", "a")
    disk.rename("c", "b")
    assert disk.open("a").read_at(0, 3) == b"old"
    with pytest.raises(DiskError, match="cannot be read"):
        disk.open("b").read_at(0, 3)
    disk.remove("b")
    assert made(disk, "b").read_at(0, 3) == b"old"


def test_a_write_makes_its_own_sectors_readable(disk):
    file = made(disk)
    disk.make_unreadable("a", 0)
    disk.make_unreadable("a", SECTOR)
    file.write_at(0, [bytes(SECTOR)])
    assert file.read_at(0, SECTOR) == bytes(SECTOR)
    with pytest.raises(DiskError, match="sector 1"):
        file.read_at(0, SECTOR + 1)


def unreadable(disk, path="a"):
    """Sectors of a file that cannot be read."""
    file, found = disk.open(path), []
    for sector in range(-(-file.size() // SECTOR)):
        try:
            file.read_at(sector * SECTOR, SECTOR)
        except DiskError:
            found.append(sector)
    return found


@pytest.mark.parametrize(("keep", "left"), [(Keep.NONE, [0, 1, 2]), (Keep.ALL, [2])])
def test_a_crash_that_drops_a_write_brings_the_bad_sector_back(disk, keep, left):
    """A part of a sector was written, which made it readable; the old bytes behind it are rotten
    all the same."""
    file = made(disk)
    for sector in range(3):
        disk.make_unreadable("a", sector * SECTOR)
    file.write_at(500, [b"over " * 4])
    assert unreadable(disk) == [2]
    disk.crash(keep)
    assert unreadable(disk) == left


def test_a_write_whose_sync_failed_leaves_the_sector_bad_on_the_medium(disk):
    file = made(disk)
    disk.make_unreadable("a", 0)
    file.write_at(0, [bytes(SECTOR)])
    disk.fail("sync")
    with pytest.raises(DiskError):
        file.sync()
    file.sync()
    assert unreadable(disk) == []
    disk.crash(Keep.ALL)
    assert unreadable(disk) == [0]


def test_a_bad_sector_that_was_written_and_synced_is_good(disk):
    file = made(disk)
    disk.make_unreadable("a", 0)
    file.write_at(0, [bytes(SECTOR)])
    file.sync()
    disk.crash(Keep.NONE)
    assert unreadable(disk) == []


def test_bad_sectors_that_were_cut_off_are_gone(disk):
    file = made(disk)
    disk.make_unreadable("a", SECTOR)
    disk.make_unreadable("a", 2 * SECTOR)
    file.truncate(SECTOR + 100)
    with pytest.raises(DiskError, match="sector 1"):
        file.read_at(0, 4096)
    file.truncate(SECTOR)
    assert len(file.read_at(0, 4096)) == SECTOR
    file.truncate(1_200)
    assert unreadable(disk) == []
    assert file.read_at(SECTOR, 4096) == bytes(1_200 - SECTOR)


@pytest.mark.parametrize(("keep", "left"), [(Keep.NONE, [2]), (Keep.ALL, [])])
def test_a_cut_that_is_dropped_brings_the_bad_sector_back(disk, keep, left):
    file = made(disk)
    disk.make_unreadable("a", 2 * SECTOR)
    file.truncate(100)
    file.truncate(1_200)
    disk.crash(keep)
    assert unreadable(disk) == left


def test_what_was_cut_off_does_not_come_back_with_a_longer_file(disk):
    file = made(disk)
    disk.make_unreadable("a", 2 * SECTOR)
    file.truncate(100)
    file.truncate(1_200)
    file.sync()
    disk.crash(Keep.NONE)
    assert disk.content("a") == (b"old" * 400)[:100] + bytes(1_100)
    assert unreadable(disk) == []


def test_a_file_that_is_cut_short_at_rest_has_no_bad_sectors_behind_its_end(disk):
    file = made(disk)
    disk.make_unreadable("a", 2 * SECTOR)
    disk.shorten("a", 100)
    assert len(file.read_at(0, 4096)) == 100
    file.write_at(1_100, [b"more"])
    disk.crash(Keep.ALL)
    assert unreadable(disk) == []


def test_a_misdirected_write_reports_success(disk):
    one, two = made(disk, "a"), made(disk, "b")
    disk.misdirect_next_write("a", "b", 3)
    one.write_at(0, [b"new"])
    assert one.read_at(0, 3) == b"old"
    assert two.read_at(3, 3) == b"new"


def test_what_a_disk_refuses(disk):
    made(disk)
    with pytest.raises(DiskError, match="exists"):
        disk.open("a", create=True)
    with pytest.raises(DiskError, match="no such file"):
        disk.open("b")
    with pytest.raises(DiskError, match="no such directory"):
        disk.open("d/b", create=True)
    for call in (lambda: disk.rename("b", "c"), lambda: disk.remove("b")):
        with pytest.raises(DiskError, match="no such file"):
            call()
    disk.make_dir("d")
    made(disk, "d/x")
    with pytest.raises(DiskError, match="not empty"):
        disk.remove("d")


def test_an_open_file_outlives_its_name(disk):
    """A slice that is being sent still yields the old bytes after a truncation removed the file."""
    file = made(disk)
    disk.remove("a")
    assert file.read_at(0, 3) == b"old"


def test_the_same_seed_decides_the_same():
    contents = []
    for _ in range(2):
        disk = SimulatedDisk(Stream(77, "disk"))
        file = made(disk, content=b"o" * 9000)
        file.write_at(100, [b"n" * 8000])
        disk.crash(Keep.SOME)
        contents.append(disk.content("a"))
    assert contents[0] == contents[1]


def test_after_a_failed_sync_of_a_directory_its_names_are_clean_and_gone(disk):
    made(disk, "old"), made(disk, "kept")
    made(disk, "moved").sync()
    disk.open("new", create=True).sync()
    disk.rename("moved", "there")
    disk.remove("old")
    disk.make_dir("d")
    disk.fail("sync_dir")
    with pytest.raises(DiskError):
        disk.sync_dir("")
    disk.sync_dir("")  # proves nothing
    disk.sync_all()
    assert disk.list("") == ["d", "kept", "new", "there"]
    assert (disk.durable_to("new"), disk.durable_to("there")) == (0, 0)
    disk.crash(Keep.ALL)
    assert disk.paths() == ("kept", "moved", "old")
    assert not disk.exists("d")


def test_a_failed_sync_of_a_directory_leaves_others_alone(disk):
    disk.make_dir("d")
    made(disk, "d/a")
    disk.fail("sync_dir", "d")
    with pytest.raises(DiskError):
        disk.sync_dir("d")
    disk.sync_dir("")
    made(disk, "d/b")
    disk.crash(Keep.NONE)
    assert disk.paths() == ("d/a", "d/b"), "what was durable stays, what came later is synced"


def test_a_directory_whose_removal_was_not_synced_is_back(disk):
    disk.make_dir("d")
    disk.sync_dir("")
    disk.remove("d")
    disk.fail("sync_dir")
    with pytest.raises(DiskError):
        disk.sync_dir("")
    disk.sync_dir("")
    assert not disk.exists("d")
    disk.crash(Keep.NONE)
    assert disk.exists("d")
    disk.remove("d")
    disk.sync_dir("")
    disk.crash(Keep.NONE)
    assert not disk.exists("d")


def test_after_a_failed_sync_of_everything_all_that_was_pending_is_gone(disk):
    file = made(disk)
    file.write_at(0, [b"new"])
    disk.open("b", create=True).write_at(0, [b"x"])
    disk.fail("sync_all")
    with pytest.raises(DiskError):
        disk.sync_all()
    file.sync()
    disk.sync_all()
    assert (disk.content("a")[:3], disk.paths()) == (b"new", ("a", "b"))
    assert disk.durable_to("a") == 0
    disk.crash(Keep.ALL)
    assert (disk.content("a")[:3], disk.paths()) == (b"old", ("a",))
