"""Damage of the store and the format file: one bad sector loses nothing, more is named."""

import copy

import attrs
import pytest

from raftlog.base.entries import HardState
from raftlog.base.errors import CorruptData
from raftlog.base.ids import DirectoryId
from raftlog.storage.data_dir import (
    FORMAT_FILE,
    format_directory,
    peek_directory,
    read_identity,
)
from raftlog.storage.store_file import SECTOR, STORE_FILES, _used
from tests.storage.making import IDENTITY, ME, SPEC, Driver, new_disk


@pytest.fixture(scope="module")
def prepared():
    driver = Driver(new_disk())
    driver.lead(1)
    driver.append(3)
    driver.settle()
    return driver


@pytest.fixture
def driver(prepared):
    return copy.deepcopy(prepared)


@pytest.mark.slow
def test_any_one_bad_sector_of_the_store_loses_nothing(prepared):
    """Either the same state is read, or the damage is named; an older vote is never taken."""
    driver = copy.deepcopy(prepared)
    for term in range(3, 6):
        driver.round([driver.store.set_hard_state(SPEC.group, HardState(term, ME))])
    truth = peek_directory(driver.disk)
    used = {name: len(driver.disk.content(name).rstrip(b"\x00")) for name in STORE_FILES}
    for name in STORE_FILES:
        for sector in range(used[name] // 512 + 1):
            disk = copy.deepcopy(driver.disk)
            disk.overwrite(name, sector * 512, bytes(range(256)) * 2)
            assert peek_directory(disk) == truth, (name, sector)


@pytest.mark.slow
def test_any_one_old_sector_of_the_store_loses_nothing(prepared):
    """Seed 830084: one copy of the header became what it was two generations ago, as on a disk that
    lost one write. It was the first copy, and was believed; the votes since then were forgotten."""
    driver = copy.deepcopy(prepared)
    old = {name: driver.disk.content(name) for name in STORE_FILES}
    for term in range(3, 6):
        driver.reopen()
        driver.round([driver.store.set_hard_state(SPEC.group, HardState(term, ME))])
    truth = peek_directory(driver.disk)
    changed = 0
    for name in STORE_FILES:
        now = driver.disk.content(name)
        for start in range(0, min(len(now), len(old[name])), SECTOR):
            sector = old[name][start : start + SECTOR]
            if sector != now[start : start + SECTOR]:
                changed += 1
                disk = copy.deepcopy(driver.disk)
                disk.overwrite(name, start, sector)
                assert peek_directory(disk) == truth, (name, start)
    assert changed > 4


def test_one_header_of_another_directory_loses_nothing(driver):
    """A write that went astray put it there."""
    truth = peek_directory(driver.disk)
    other = new_disk()
    format_directory(other, attrs.evolve(IDENTITY, directory=DirectoryId(77)))
    alien = other.content(STORE_FILES[0])[:SECTOR]
    for name in STORE_FILES:
        for copy_at in (0, SECTOR):
            disk = copy.deepcopy(driver.disk)
            disk.overwrite(name, copy_at, alien)
            assert peek_directory(disk) == truth, (name, copy_at)
    for name in STORE_FILES:
        driver.disk.overwrite(name, 0, alien * 2)
    with pytest.raises(CorruptData, match=f"directory {77:016x}"):
        peek_directory(driver.disk)


def test_two_bad_copies_with_a_frame_behind_them_are_damage(driver):
    for term in range(3, 6):
        driver.round([driver.store.set_hard_state(SPEC.group, HardState(term, ME))])
    newest = max(STORE_FILES, key=lambda name: len(driver.disk.content(name).rstrip(b"\x00")))
    content = driver.disk.content(newest)
    frames = [at for at in range(0, len(content), 512) if content[at : at + 4] == b"RLFR"]
    for at in frames[-4:-2]:
        driver.disk.flip_bit(newest, at + 40)
    with pytest.raises(CorruptData, match="follows it"):
        peek_directory(driver.disk)


def test_both_store_files_gone(driver):
    for name in STORE_FILES:
        driver.disk.shorten(name, 0)
    with pytest.raises(CorruptData, match="damaged"):
        peek_directory(driver.disk)


def test_the_format_file_survives_one_bad_copy(driver):
    identity = read_identity(driver.disk)
    driver.disk.flip_bit(FORMAT_FILE, 40)
    assert read_identity(driver.disk) == identity
    driver.disk.flip_bit(FORMAT_FILE, 2048 + 40)
    with pytest.raises(CorruptData, match="both copies"):
        read_identity(driver.disk)


@pytest.mark.parametrize("size", [0, 1, 511, 512, 65_535, 65_536, 65_537, 200_000])
@pytest.mark.parametrize("last", [None, 0, 1, 600, 65_535, 65_536, 131_071, 199_999])
def test_zeros_at_the_end_do_not_count(size, last):
    """As bytes.rstrip said it, up to whole sectors."""
    data = bytearray(size)
    if last is not None and last < size:
        data[last] = 7
    found, kept = _used(bytes(data)), len(data.rstrip(b"\x00"))
    assert found == bytes(data[: len(found)])
    assert kept <= len(found) < kept + SECTOR
