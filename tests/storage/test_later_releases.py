"""A directory that a later release wrote is refused, and left exactly as it is.

The story: an old release booted on such a log. Behind the mark it took the first unknown entry for
a torn tail, and cut it off with all that followed, acknowledged or not. Before the mark it took the
entry for damage, and would have had it "repaired". The feature level should keep that from
happening at all, but an operator who starts the wrong binary does not ask.
"""

import struct

import pytest
from raftlog_sim.world.disk import Keep

from raftlog.base.checksum import crc32c
from raftlog.base.entries import EntryKind
from raftlog.base.errors import FutureFormat
from raftlog.records.batch import CRC_FROM
from raftlog.records.control import Marker, write_marker
from raftlog.storage.boot.recovery import recover_replica, salvage_replica
from raftlog.storage.files import write_whole
from raftlog.storage.replica import HEAD_FILE
from raftlog.storage.segments.head import write_head
from tests.storage.making import SPEC, Driver

KIND, VERSION = 61, 62


def of_a_later_release(driver, at, value):
    """A marker with another kind or payload version, whole in every other way."""
    entry = driver.control(EntryKind.MARKER, write_marker(Marker(-1, b"")))
    batch = bytearray(entry.batch)
    batch[at] = value
    struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[CRC_FROM:]))
    return entry._replace(batch=bytes(batch))


def written(at, value, *, marked):
    driver = Driver()
    driver.lead(1)
    driver.append(2)
    driver.settle()
    driver.log.append([of_a_later_release(driver, at, value)])
    driver.append(1)
    driver.round()
    if marked:
        driver.commit_all()
        driver.settle()
    driver.disk.crash(Keep.NONE)
    driver._open()
    return driver


def contents(disk):
    return {path: disk.content(path) for path in sorted(disk.paths())}


@pytest.mark.parametrize("recover", [recover_replica, salvage_replica])
@pytest.mark.parametrize("marked", [False, True], ids=["behind-the-mark", "before-the-mark"])
@pytest.mark.parametrize(("at", "value"), [(KIND, max(EntryKind) + 1), (VERSION, 2)])
def test_an_entry_of_a_later_release_is_neither_cut_nor_called_damage(at, value, marked, recover):
    driver = written(at, value, marked=marked)
    before = contents(driver.disk)
    mark = driver.image.marks[SPEC.group]
    with pytest.raises(FutureFormat, match="start the newer release"):
        recover(driver.disk, SPEC, mark, driver.options)
    assert contents(driver.disk) == before


def test_the_same_log_without_it_opens():
    driver = written(VERSION, 1, marked=False)
    found = driver.reopen()
    assert found.why == ""
    assert found.log.last_index == 5


@pytest.mark.parametrize("recover", [recover_replica, salvage_replica])
def test_a_head_file_of_a_later_release_is_not_damage(recover):
    """It was, and without a head file it is not known where a log begins: the replica was given up
    for lost, and replaced by an empty one."""
    driver = Driver()
    driver.lead(1)
    driver.append(2)
    driver.commit_all()
    driver.settle()
    write_head(driver.disk, SPEC, 1)
    path = f"{SPEC.path}/{HEAD_FILE}"
    copy = bytearray(driver.disk.content(path)[:64])
    copy[8:12] = b"\x00\x02\x00\x01"
    write_whole(driver.disk, path, 2 * (bytes(copy) + crc32c(copy).to_bytes(4, "big")))
    driver.disk.crash(Keep.NONE)
    driver._open()
    before = contents(driver.disk)
    with pytest.raises(FutureFormat, match="version 2"):
        recover(driver.disk, SPEC, driver.image.marks[SPEC.group], driver.options)
    assert contents(driver.disk) == before
