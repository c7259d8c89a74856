"""The test disk does what its variable and its control file ask for, and refuses what it does not
know."""

import time

import pytest

from raftlog.base.errors import ConfigError, DiskError, DiskFull
from raftlog.runtime.real_ports import PosixDisk
from raftlog.runtime.settings.config_file import judge, parse_properties
from raftlog.runtime.settings.fault_settings import TEST_DISK
from raftlog.testing.faulty_disk import (
    FaultsNow,
    TestDiskOptions,
    disk_from_environment,
    parse_control,
    parse_options,
    wrap,
)


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


def config_of(tmp_path, host):
    secret = tmp_path / "secret"
    secret.write_bytes(b"0123456789abcdef\n")
    secret.chmod(0o600)
    text = (
        "node.id = 1\n"
        f"log.dirs = {tmp_path / 'data'}\n"
        f"listeners = PLAINTEXT://{host}:9093\n"
        "advertised.listeners = PLAINTEXT://127.0.0.1:9093\n"
        f"raftlog.peer.listener = {host}:9193\n"
        "controller.quorum.voters = 1@127.0.0.1:9193\n"
        f"raftlog.cluster.secret.file = {secret}\n"
    )
    return judge(parse_properties(text, "server.properties"), "server.properties")


class Events:
    def __init__(self):
        self.names = []

    def emit(self, event):
        self.names.append(event.name)


def test_no_variable_no_test_disk(tmp_path, monkeypatch):
    monkeypatch.delenv(TEST_DISK, raising=False)
    assert disk_from_environment(Events(), loopback_only=True) is None


def test_a_broker_that_others_reach_has_no_test_disk(tmp_path, monkeypatch):
    monkeypatch.setenv(TEST_DISK, "writeback")
    with pytest.raises(ConfigError, match="beyond loopback"):
        disk_from_environment(Events(), loopback_only=False)


def test_one_of_two_directories_is_chosen_and_said(tmp_path, monkeypatch):
    monkeypatch.setenv(TEST_DISK, "writeback,only=second")
    tracer = Events()
    over = disk_from_environment(tracer, loopback_only=True)
    assert over is not None
    disk = PosixDisk(str(tmp_path))
    assert over("/x/first", disk) is None
    assert tracer.names == []
    assert over("/x/second", disk) is not None
    assert tracer.names == ["test-disk"]
