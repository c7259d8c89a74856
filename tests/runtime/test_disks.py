"""The real disk keeps the port's promises; the write-back disk forgets what was not synced."""

import errno
import os
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftlog.base.errors import ConfigError, DiskError, DiskFull, LocalMisuse
from raftlog.runtime import real_ports
from raftlog.runtime.real_ports import PosixDisk, syncfs_tells
from raftlog.testing import faulty_disk
from raftlog.testing.faulty_disk import FaultyDisk, TestDiskOptions, WriteBackDisk


@pytest.fixture(params=["posix", "writeback"])
def disk(request, tmp_path):
    base = PosixDisk(str(tmp_path))
    return base if request.param == "posix" else WriteBackDisk(base, "")


def put(disk, path: str, data: bytes) -> None:
    file = disk.open(path, create=True)
    file.write_at(0, [data])
    file.sync()
    file.close()


def whole(disk, path: str) -> bytes:
    file = disk.open(path, write=False)
    try:
        return file.read_at(0, file.size() + 10)
    finally:
        file.close()


def test_reads_see_writes(disk):
    file = disk.open("a", create=True)
    file.write_at(0, [b"hello ", bytearray(b"w"), memoryview(b"orld")])
    file.write_at(3, [b"LL"])
    assert file.read_at(2, 6) == b"lLL wo"
    assert file.read_at(9, 100) == b"ld"
    assert file.size() == 11
    file.truncate(4)
    assert file.read_at(0, 100) == b"helL"
    file.close()


def test_many_parts_are_one_write(disk):
    file = disk.open("a", create=True)
    file.write_at(5, [bytes([each % 256]) * 3 for each in range(1500)])
    assert file.size() == 5 + 4500
    assert file.read_at(5 + 3 * 1499, 3) == bytes([1499 % 256]) * 3


def test_names(disk):
    disk.make_dir("x/y")
    put(disk, "x/y/1", b"one")
    put(disk, "x/y/2", b"two")
    disk.sync_dir("x/y")
    assert disk.list("x/y") == ["1", "2"]
    disk.rename("x/y/1", "x/y/2")
    assert disk.list("x/y") == ["2"]
    assert whole(disk, "x/y/2") == b"one"
    disk.remove("x/y/2")
    assert disk.list("x/y") == []
    assert not disk.exists("x/y/2")
    assert disk.list("nowhere") == []
    with pytest.raises(DiskError, match="No such file"):
        disk.open("x/y/2")


def test_failed_write_back_is_not_missed_between_two_syncs_of_everything(tmp_path, monkeypatch):
    """Each round of many files opened the directory again for its `syncfs`. The kernel reports a
    write-back that failed in between to descriptors that were open at that time; to a new one only
    if no other process, another broker on the same disk, has asked meanwhile. A round whose bytes
    were lost was reported as durable."""
    used = []
    monkeypatch.setattr(real_ports, "SYNCFS_TELLS", True)
    monkeypatch.setattr(real_ports, "_syncfs", lambda fd: used.append(fd) or 0)
    disk = PosixDisk(str(tmp_path))
    disk.sync_all()
    with (tmp_path / "between").open("wb"):
        disk.sync_all()
    assert len(used) == 2
    assert used[0] == used[1]
    assert os.fstat(used[0]).st_ino == tmp_path.stat().st_ino


def test_without_a_syncfs_that_tells_each_file_is_synced(tmp_path, monkeypatch):
    """`sync` stood in for it: on macOS it returns before anything is on the disk."""
    disk = PosixDisk(str(tmp_path))
    disk.make_dir("x/y")
    put(disk, "x/y/1", b"one")
    put(disk, "2", b"two")
    synced = []
    monkeypatch.setattr(real_ports, "SYNCFS_TELLS", False)
    monkeypatch.setattr(real_ports, "_sync_data", lambda fd: synced.append(os.fstat(fd).st_ino))
    disk.sync_all()
    files = [tmp_path / "2", tmp_path / "x" / "y" / "1"]
    assert sorted(synced) == sorted(path.stat().st_ino for path in files)


@pytest.mark.parametrize(
    ("found", "release", "tells"),
    [
        (len, "6.18.44-fc", True),
        (len, "5.8.0", True),
        (len, "5.4.0-42-generic", False),
        (len, "4.19", False),
        (len, "odd", False),
        (None, "23.1.0", False),
    ],
)
def test_where_syncfs_can_be_trusted(found, release, tells):
    assert syncfs_tells(found, release) is tells


def test_creating_what_exists_fails(disk):
    put(disk, "a", b"1")
    with pytest.raises(DiskError, match="exists"):
        disk.open("a", create=True)


def test_a_name_that_cannot_be_looked_up_is_not_a_missing_one(tmp_path, monkeypatch):
    """A failing `stat` counted as "not there": a boot would have found a replica without its head,
    its snapshot, or the store without one of its files."""
    disk = PosixDisk(str(tmp_path))
    put(disk, "a", b"1")
    assert (disk.exists("a"), disk.exists("b"), disk.exists("a/b")) == (True, False, False)
    (tmp_path / "round").symlink_to("round")
    assert disk.exists("round"), "a link is a name, wherever it leads"
    with pytest.raises(DiskError, match="round"):
        disk.exists("round/a")

    def failing(path):
        raise OSError(errno.EIO, "no")

    monkeypatch.setattr(real_ports.os, "lstat", failing)
    with pytest.raises(DiskError, match=r"Input/output error \(a\)"):
        disk.exists("a")


@pytest.mark.parametrize("path", ["../x", "a/../../x", "a//b", "./a"])
def test_paths_stay_in_the_directory(tmp_path, path):
    with pytest.raises(LocalMisuse):
        PosixDisk(str(tmp_path)).open(path, create=True)


def test_what_was_not_synced_is_lost(tmp_path):
    disk = WriteBackDisk(PosixDisk(str(tmp_path)), "")
    file = disk.open("log", create=True)
    file.write_at(0, [b"synced"])
    file.sync()
    assert not (tmp_path / "log").exists(), "the name waits for its directory"
    disk.sync_dir("")
    assert (tmp_path / "log").read_bytes() == b"synced"
    file.write_at(6, [b" and not"])
    assert file.read_at(0, 100) == b"synced and not"
    assert (tmp_path / "log").read_bytes() == b"synced"
    file.sync()
    assert (tmp_path / "log").read_bytes() == b"synced and not"


def test_an_unsynced_rename_and_removal_are_lost(tmp_path):
    base = PosixDisk(str(tmp_path))
    put(base, "a", b"a")
    put(base, "b", b"b")
    disk = WriteBackDisk(base, "")
    disk.rename("a", "c")
    disk.remove("b")
    assert disk.list("") == ["c"]
    assert base.list("") == ["a", "b"]
    disk.sync_dir("")
    assert base.list("") == ["c"]


def test_a_created_then_renamed_file_arrives_whole(tmp_path):
    """The usual way to replace a file: write aside, sync, rename, sync the directory."""
    base = PosixDisk(str(tmp_path))
    disk = WriteBackDisk(base, "")
    put(disk, "new", b"content")
    disk.rename("new", "final")
    disk.sync_dir("")
    assert base.list("") == ["final"]
    assert whole(base, "final") == b"content"


def test_the_control_build_pretends_to_sync(tmp_path):
    disk = WriteBackDisk(PosixDisk(str(tmp_path)), ".log")
    for name in ("a.log", "a.store"):
        put(disk, name, b"x")
    disk.sync_dir("")
    assert (tmp_path / "a.log").read_bytes() == b""
    assert (tmp_path / "a.store").read_bytes() == b"x"


@given(
    st.lists(
        st.tuples(st.sampled_from("wts"), st.integers(0, 50), st.binary(max_size=20)), max_size=20
    )
)
def test_an_open_file_equals_a_plain_one(tmp_path_factory, steps):
    base = PosixDisk(str(tmp_path_factory.mktemp("disk")))
    file = WriteBackDisk(base, "").open("a", create=True)
    plain = base.open("plain", create=True)
    for kind, position, data in steps:
        if kind == "w" and data:
            file.write_at(position, [data])
            plain.write_at(position, [data])
        elif kind == "t":
            file.truncate(position)
            plain.truncate(position)
        elif kind == "s":
            file.sync()
        assert file.size() == plain.size()
        assert file.read_at(0, 200) == plain.read_at(0, 200)


def test_faults(tmp_path):
    options = TestDiskOptions(fail_sync_after=2, full_after=10)
    disk = FaultyDisk(PosixDisk(str(tmp_path)), options)
    file = disk.open("a", create=True)
    file.write_at(0, [b"12345"])
    file.sync()
    with pytest.raises(DiskError, match="sync failed"):
        file.sync()
    with pytest.raises(DiskFull, match="No space left"):
        file.write_at(5, [b"123456"])
    assert disk.free_bytes() == 0


def test_options_parse():
    options = faulty_disk.parse_options("writeback,skip-sync=.log,slow-sync=5")
    assert options == TestDiskOptions(writeback=True, skip_sync=".log", slow_sync_ms=5)
    with pytest.raises(ConfigError, match="'writeback=1'"):
        faulty_disk.parse_options("writeback=1")
    with pytest.raises(ConfigError, match="'lose-everything'"):
        faulty_disk.parse_options("lose-everything")


# --- names, and the threads that make them --------------------------------------------------------
#
# A segment rolls while the job thread writes the index file of the one before, in the same
# directory. The job's sync failed, which does not matter, for that file is a cache; but it took the
# name of the new segment too. The writer's sync, a moment later, found nothing to do, and entries
# were acknowledged in a file that the next power failure took away.


def failing_sync(monkeypatch, call):
    """The next such call of the system begins, waits for `go_on`, and fails."""
    begun, go_on, left = threading.Event(), threading.Event(), [1]
    real = getattr(real_ports.os, call)

    def sync(fd):
        if not left:
            return real(fd)
        left.pop()
        begun.set()
        assert go_on.wait(10)
        raise OSError(errno.EIO, "the medium is broken")

    monkeypatch.setattr(real_ports.os, call, sync)
    return begun, go_on


def test_a_failed_sync_of_names_has_failed_for_all_threads(tmp_path, monkeypatch):
    disk = PosixDisk(str(tmp_path))
    begun, go_on = failing_sync(monkeypatch, "fsync")
    put(disk, "a.tmp", b"a")
    told = {}

    def sync(name):
        try:
            disk.sync_dir("")
        except DiskError as error:
            told[name] = error

    job = threading.Thread(target=sync, args=("job",))
    job.start()
    assert begun.wait(10)
    disk.rename("a.tmp", "a")
    writer = threading.Thread(target=sync, args=("writer",))
    writer.start()
    go_on.set()
    job.join()
    writer.join()
    assert set(told) == {"job", "writer"}
    with pytest.raises(DiskError):
        disk.sync_all()
    PosixDisk(str(tmp_path)).sync_dir("")


def test_a_failed_sync_of_everything_is_one_of_names(tmp_path, monkeypatch):
    disk = PosixDisk(str(tmp_path))
    monkeypatch.setattr(real_ports, "_syncfs", lambda fd: -1)
    monkeypatch.setattr(real_ports, "SYNCFS_TELLS", True)
    with pytest.raises(DiskError):
        disk.sync_all()
    with pytest.raises(DiskError):
        disk.sync_dir("")


def test_a_directory_that_cannot_be_opened_is_no_failed_sync(tmp_path):
    disk = PosixDisk(str(tmp_path))
    with pytest.raises(DiskError):
        disk.sync_dir("missing")
    disk.sync_dir("")
