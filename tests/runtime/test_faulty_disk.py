"""The test disk does what its variable and its control file ask for, and refuses what it does not
know."""

import time

import pytest

from raftlog.base.errors import ConfigError, DiskError, DiskFull
from raftlog.runtime.faulty_disk import (
    FaultsNow,
    TestDiskOptions,
    parse_control,
    parse_options,
    wrap,
)
from raftlog.runtime.real_ports import PosixDisk


@pytest.fixture
def control(tmp_path):
    """Writes the control file as a nemesis does: whole, by rename."""
    path = tmp_path / "control"

    def say(text):
        aside = tmp_path / "aside"
        aside.write_text(text)
        aside.replace(path)

    say.path = path
    return say


@pytest.fixture
def disk(tmp_path, control):
    (tmp_path / "data").mkdir()
    return wrap(
        PosixDisk(str(tmp_path / "data")), parse_options(f"writeback,control={control.path}")
    )


def test_the_variable_is_read_whole():
    found = parse_options("writeback,slow-sync=5, fail-sync-after=2,full-after=10,control=/x")
    assert found == TestDiskOptions(
        writeback=True, slow_sync_ms=5, fail_sync_after=2, full_after=10, control="/x"
    )


@pytest.mark.parametrize("text", ["", "nonsense", "slow-sync", "slow-sync=x", "control", "full"])
def test_an_unknown_option_is_refused(text):
    with pytest.raises(ConfigError, match="no test disk option"):
        parse_options(text)


@pytest.mark.parametrize("text", ["nonsense", "full=1", "slow-sync", "fail-sync=x"])
def test_an_unknown_fault_is_refused(text):
    with pytest.raises(ConfigError, match="no test disk fault"):
        parse_control(text)


def test_a_control_file_may_ask_for_everything_or_nothing():
    assert parse_control("") == FaultsNow()
    assert parse_control("slow-sync=7,fail-sync, fail-write,full\n") == FaultsNow(
        7, fail_sync=True, fail_write=True, full=True
    )


def test_a_full_disk_overwrites_but_does_not_grow(disk, control):
    file = disk.open("a", create=True)
    file.write_at(0, [b"12345678"])
    control("full")
    file.write_at(0, [b"abcdefgh"])
    for grows in (lambda: file.write_at(4, [b"12345"]), lambda: disk.open("b", create=True)):
        with pytest.raises(DiskFull):
            grows()
    assert disk.free_bytes() == 0
    control("")
    file.write_at(4, [b"12345"])
    assert file.read_at(0, 9) == b"abcd12345"
    assert disk.free_bytes() > 0


def test_a_sync_fails_and_works_again(disk, control):
    file = disk.open("a", create=True)
    control("fail-sync")
    for sync in (file.sync, lambda: disk.sync_dir(""), disk.sync_all):
        with pytest.raises(DiskError, match="sync failed"):
            sync()
    control.path.unlink()
    file.sync()


def test_a_write_fails_while_it_is_told_to(disk, control):
    file = disk.open("a", create=True)
    control("fail-write")
    with pytest.raises(DiskError, match="write failed"):
        file.write_at(0, [b"x"])
    control("")
    file.write_at(0, [b"x"])


def test_a_slow_sync_takes_at_least_as_long_as_told(disk, control):
    file = disk.open("a", create=True)
    control("slow-sync=30")
    began = time.monotonic()
    file.sync()
    assert time.monotonic() - began >= 0.03
