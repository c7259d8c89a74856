"""Inspection: JSON-ready, read only, equal for equal logs, and it finds what a boot would find."""

import copy
import json

import attrs
import pytest

from raftlog.base.errors import CorruptData
from raftlog.storage.boot.recovery import create_replica
from raftlog.storage.directories.log_directories import further_prefix
from raftlog.storage.inspect import fingerprint_log, inspect_directory
from tests.storage.making import FOUNDERS, SPEC, TINY, Driver, new_disk
from tests.storage.test_foreign_batches import twin_of


@pytest.fixture
def driver():
    made = Driver(new_disk())
    made.lead(1)
    made.append(12, 2, size=60)
    made.settle()
    made.commit_all()
    made.settle()
    return made


def row(driver, **options):
    found = inspect_directory(driver.disk, **options)
    json.dumps(found)
    (only,) = found["groups"]
    return found, only


def test_it_shows_the_log_and_changes_nothing(driver):
    mutations = driver.disk.mutations
    found, only = row(driver)
    assert driver.disk.mutations == mutations
    assert (found["damaged"], found["node"], found["boot"]) == (False, 1, driver.image.boot)
    assert (only["last_index"], only["next_offset"]) == (13, 24)
    assert only["chain"] == f"{driver.log.last_chain:016x}"
    assert only["terms"] == [
        {
            "term": 1,
            "first_offset": 0,
            "last_index": 13,
            "end_offset": 24,
            "end_chain": only["chain"],
        }
    ]
    assert only["commit_offset"] == 24
    assert only["mark_index"] == only["commit_hint"] == 13
    assert [part["first_index"] for part in only["segments"]] == [
        segment.first_index for segment in driver.log.segments
    ]


def test_each_term_has_its_place(driver):
    before = driver.log.last_chain
    driver.lead(3)
    driver.append(2, 1, size=60)
    driver.settle()
    _, only = row(driver)
    first, second = only["terms"]
    assert (first["term"], first["end_offset"], first["end_chain"]) == (1, 24, f"{before:016x}")
    assert (second["term"], second["first_offset"], second["end_offset"]) == (3, 24, 26)
    assert second["end_chain"] == only["chain"]
    assert only["commit_offset"] == 24, "the new term is not committed yet"


def test_without_verification_headers_alone_are_read(driver):
    driver.disk.flip_bit(driver.log.segments[-1].path, 4096 + 70)
    found, only = row(driver, verify=False)
    assert found["damaged"] is False
    assert "chain" not in only


@pytest.mark.parametrize("ordinal", [0, 1, 2])
def test_damage_is_found_where_it_is(driver, ordinal):
    path = driver.log.segments[ordinal].path
    driver.disk.flip_bit(path, 4096 + 70)
    found, only = row(driver)
    assert found["damaged"] is True
    assert only["fault"]


def test_a_batch_of_another_partition_before_the_mark_is_damage(driver):
    segment = driver.log.segments[-1]
    index = segment.first_index
    position = driver.log._window.position_of(index)
    driver.disk.overwrite(segment.path, position, twin_of(driver.log.entries(index, 1)[0].batch))
    found, only = row(driver)
    assert found["damaged"] is True
    assert "the mark" in only["fault"]


def test_a_torn_tail_is_not_damage(driver):
    path = driver.log.segments[-1].path
    driver.disk.overwrite(path, len(driver.disk.content(path)), b"torn")
    found, only = row(driver)
    assert found["damaged"] is False
    assert only["fault"]


def test_lost_headers_and_strangers(driver):
    driver.disk.make_dir("groups/stranger")
    for segment in driver.log.segments:
        driver.disk.vanish(segment.path)
    found, only = row(driver)
    assert found["damaged"] is True
    assert "no segment" in only["fault"]
    assert found["unregistered"] == ["groups/stranger"]


def test_a_bad_header_copy_is_shown_before_the_other_goes_too(driver):
    driver.disk.flip_bit(driver.log.segments[1].path, 100)
    _, only = row(driver)
    assert [part["header_copy_bad"] for part in only["segments"]] == [False, True, False]


def test_fingerprints_up_to_an_offset_do_not_see_what_lies_behind(driver):
    other = copy.deepcopy(driver)
    other.append(3, size=9)
    other.settle()
    assert fingerprint_log(driver.disk, SPEC, 24)[1:] == fingerprint_log(other.disk, SPEC, 24)[1:]
    assert fingerprint_log(driver.disk, SPEC) != fingerprint_log(other.disk, SPEC)
    _, mine = row(driver, stop_offsets={SPEC.group: 24})
    _, theirs = row(other, stop_offsets={SPEC.group: 24})
    assert (mine["chain"], mine["sha256"]) == (theirs["chain"], theirs["sha256"])


def test_different_bytes_have_different_fingerprints():
    prints = []
    for fill in (b"a", b"b"):
        made = Driver(new_disk())
        made.lead(1)
        made.append(2, fill=fill)
        made.settle()
        prints.append(fingerprint_log(made.disk, SPEC))
    assert prints[0].sha256 != prints[1].sha256
    assert prints[0].chain != prints[1].chain


def test_a_log_that_does_not_reach_the_offset(driver):
    with pytest.raises(CorruptData, match="ends at offset 24"):
        fingerprint_log(driver.disk, SPEC, 25)
    driver.disk.flip_bit(driver.log.segments[0].path, 4096 + 200)
    with pytest.raises(CorruptData):
        fingerprint_log(driver.disk, SPEC, 24)


def test_an_empty_replica():
    disk = new_disk()
    disk.make_dir("groups")
    spec = attrs.evolve(SPEC, group=9)
    create_replica(disk, spec, FOUNDERS, TINY)
    found = fingerprint_log(disk, spec)
    assert (found.first_index, found.end_index, found.end_offset) == (1, 1, 0)


def test_a_replica_on_another_disk_is_not_called_damaged(driver):
    """Its files are not below the directory that was named, so nothing is known of them."""
    path = f"{further_prefix(0xABC)}/{SPEC.path}"
    driver.round(records=driver.store.relocate(SPEC.group, path))
    found, only = row(driver)
    assert (found["damaged"], only["damaged"], only["path"]) == (False, False, path)
    assert "not looked at" in only["fault"]
