"""A data directory holds files and directories; what a broker opens there is never anything else.

The fault: a FIFO in place of a segment hung the boot, and a link led reads and writes out
of the directory that is locked and synced.
"""

import os
import socket
from pathlib import Path

import pytest

from raftlog.base.errors import DiskError, OperatingError
from raftlog.runtime.disks.open_files import PosixDescriptors
from raftlog.runtime.real_ports import PosixDisk, refuse_irregular
from raftlog.runtime.regular_files import NotRegular, open_regular

WHAT = {
    "link": "a symbolic link",
    "dangling": "a symbolic link",
    "fifo": "a FIFO",
    "socket": "a socket",
    "device": "a character device",
}


def make(kind: str, path: Path) -> None:
    match kind:
        case "link":
            target = path.parent / "elsewhere"
            target.write_bytes(b"other data")
            path.symlink_to(target)
        case "dangling":
            path.symlink_to(path.parent / "not there")
        case "fifo":
            os.mkfifo(path)
        case "socket":
            with socket.socket(socket.AF_UNIX) as bound:
                bound.bind(os.path.relpath(path))
        case "device":
            try:
                os.mknod(path, 0o600 | 0o020000, os.makedev(1, 3))
            except PermissionError:
                pytest.skip("only root makes devices")


@pytest.fixture(params=sorted(WHAT))
def kind(request):
    return request.param


@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_RDWR, os.O_RDWR | os.O_CREAT])
def test_only_a_regular_file_is_opened(tmp_path, monkeypatch, kind, flags):
    monkeypatch.chdir(tmp_path)
    make(kind, tmp_path / "x")
    with pytest.raises(NotRegular, match=WHAT[kind]):
        open_regular(str(tmp_path / "x"), flags)


def test_a_regular_file_is_opened_as_ever(tmp_path):
    descriptor = open_regular(str(tmp_path / "x"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        assert os.get_blocking(descriptor)
        assert not os.get_inheritable(descriptor)
        assert os.write(descriptor, b"abc") == 3
    finally:
        os.close(descriptor)
    with pytest.raises(FileNotFoundError):
        open_regular(str(tmp_path / "y"), os.O_RDONLY)


def test_no_door_of_a_disk_opens_anything_else(tmp_path, monkeypatch, kind):
    monkeypatch.chdir(tmp_path)
    make(kind, tmp_path / "x")
    disk = PosixDisk(str(tmp_path))
    for opened in (
        lambda: disk.open("x", write=False),
        lambda: disk.open("x"),
        lambda: PosixDescriptors(str(tmp_path)).open("x"),
    ):
        with pytest.raises(DiskError, match=WHAT[kind]):
            opened()
    assert disk.exists("x"), "a name is taken, wherever it leads"
    with pytest.raises(DiskError):
        disk.open("x", create=True)


def test_a_directory_that_is_a_link_is_not_entered(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "file").touch()
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "groups").symlink_to(tmp_path / "elsewhere")
    disk = PosixDisk(str(tmp_path / "data"))
    with pytest.raises(DiskError):
        disk.list("groups")
    with pytest.raises(DiskError):
        disk.sync_dir("groups")
    assert disk.list("") == ["groups"]


def test_the_data_directory_itself_may_be_a_link(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "data")
    disk = PosixDisk(str(tmp_path / "link"))
    disk.open("x", create=True).close()
    disk.sync_dir("")
    assert disk.list("") == ["x"]


@pytest.mark.parametrize("place", ["store-0", "groups/000001/segment", "groups"])
def test_a_boot_names_what_is_no_file(tmp_path, monkeypatch, kind, place):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / place
    path.parent.mkdir(parents=True, exist_ok=True)
    make(kind, path)
    with pytest.raises(OperatingError, match=WHAT[kind]) as raised:
        refuse_irregular(str(tmp_path))
    assert str(path) in str(raised.value)


def test_names_that_no_broker_uses_are_left_alone(tmp_path):
    """`log.dirs` may be a home directory, with whatever is in it."""
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "groups").mkdir()
    (tmp_path / "groups" / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "fifo")
    refuse_irregular(str(tmp_path))
    PosixDisk(str(tmp_path))._sync_each()
