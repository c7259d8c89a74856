"""Snapshot and head files: round trips, what is refused, what stands in for what."""

import hashlib

import attrs
import pytest
from raftlog_sim.world.disk import Keep

from raftlog.base.entries import InstallPosition
from raftlog.base.errors import CorruptData, FutureFormat
from raftlog.storage.boot.recovery import create_replica
from raftlog.storage.replica import HEAD_FILE
from raftlog.storage.segments.head import read_head, write_head
from raftlog.storage.segments.snapshot import (
    newest_snapshot,
    parse_snapshot,
    snapshot_bytes,
    snapshots_of,
    write_snapshot,
)
from tests.storage.making import FOUNDERS, SPEC, TINY, new_disk

OTHER = attrs.evolve(SPEC, group=8)


def position(index):
    return InstallPosition(
        raft_index=index,
        term=3,
        chain=2**64 - 5,
        next_offset=500,
        log_start=400,
        membership=FOUNDERS,
        membership_index=7,
    )


@pytest.fixture
def disk():
    made = new_disk()
    made.make_dir("groups")
    create_replica(made, SPEC, FOUNDERS, TINY)
    return made


@pytest.mark.parametrize("body", [b"", b"x", bytes(100_000)])
def test_round_trip(disk, body):
    write_snapshot(disk, SPEC, position(9), body)
    disk.crash(Keep.NONE)
    assert newest_snapshot(disk, SPEC, 9) == (position(9), body)
    assert newest_snapshot(disk, SPEC, 100) == (position(9), body)
    assert newest_snapshot(disk, SPEC, 8) is None
    assert snapshots_of(disk, SPEC.path) == [10]


def test_every_change_and_every_cut_is_refused():
    data = snapshot_bytes(SPEC, position(9), b"body")
    for at in range(len(data)):
        rotten = bytearray(data)
        rotten[at] ^= 4
        with pytest.raises(CorruptData):
            parse_snapshot(SPEC, rotten, "test")
        with pytest.raises(CorruptData):
            parse_snapshot(SPEC, data[:at], "test")


def test_another_replicas_snapshot_is_refused():
    with pytest.raises(CorruptData, match="group 8"):
        parse_snapshot(SPEC, snapshot_bytes(OTHER, position(9), b"x"), "test")


def test_a_newer_reader_is_asked_for():
    content = bytearray(snapshot_bytes(SPEC, position(9), b"x")[:-32])
    content[11] = 2
    digest = hashlib.blake2b(content, digest_size=32).digest()
    with pytest.raises(FutureFormat):
        parse_snapshot(SPEC, bytes(content) + digest, "test")


def test_the_head_file(disk):
    assert read_head(disk, SPEC) is None
    write_head(disk, SPEC, 77)
    write_head(disk, SPEC, 99)
    disk.crash(Keep.NONE)
    assert read_head(disk, SPEC) == 99
    path = f"{SPEC.path}/{HEAD_FILE}"
    disk.flip_bit(path, 60)
    assert read_head(disk, SPEC) == 99
    disk.flip_bit(path, 68 + 60)
    with pytest.raises(CorruptData, match="both copies"):
        read_head(disk, SPEC)


def test_another_replicas_head_file_is_refused(disk):
    write_head(disk, attrs.evolve(OTHER, path=SPEC.path), 77)
    with pytest.raises(CorruptData, match="group 8"):
        read_head(disk, SPEC)
