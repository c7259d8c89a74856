"""The 4 KiB header: round trip, both copies, everything that must be refused."""

import struct

import attrs
import pytest

from raftlog.base.checksum import crc32c
from raftlog.base.entries import Membership
from raftlog.base.errors import CorruptData, FutureFormat
from raftlog.base.ids import ReplicaId
from raftlog.base.limits import LEARNERS_MAX, VOTERS_MAX
from raftlog.storage.segments.segment_header import (
    SegmentHeader,
    header_needs_repair,
    read_segment_header,
    write_segment_header,
)
from tests.storage.making import CLUSTER, FOUNDERS, ME

HEADER = SegmentHeader(
    cluster=CLUSTER,
    group=7,
    replica=ME,
    file_sequence=3,
    first_index=11,
    base_offset=400,
    term_before=2,
    term=5,
    chain_before=0x1122334455667788,
    log_start=12,
    membership=FOUNDERS,
    membership_index=9,
)


def test_round_trip():
    for header in (
        HEADER,
        attrs.evolve(HEADER, reset=True),
        attrs.evolve(HEADER, repair=(77, 6)),
        attrs.evolve(HEADER, reset=True, repair=(1, 1)),
    ):
        data = write_segment_header(header)
        assert len(data) == 4096
        assert read_segment_header(data, "test") == header
        assert not header_needs_repair(data)


def test_the_largest_membership_fits():
    def ids(count, node):
        return tuple(ReplicaId(node, number, 2**63) for number in range(count))

    membership = Membership(
        ids(VOTERS_MAX, 1), ids(VOTERS_MAX, 2), ids(LEARNERS_MAX, 3), ids(VOTERS_MAX, 4)
    )
    header = attrs.evolve(HEADER, membership=membership)
    assert read_segment_header(write_segment_header(header), "test") == header


def test_any_one_bad_sector_leaves_a_whole_copy():
    data = write_segment_header(HEADER)
    for sector in range(8):
        rotten = bytearray(data)
        rotten[sector * 512 : (sector + 1) * 512] = bytes(range(256)) * 2
        assert read_segment_header(rotten, "test") == HEADER
        assert header_needs_repair(rotten)


def test_every_flipped_bit_of_both_copies_is_noticed():
    data = write_segment_header(HEADER)
    for position in range(2048):
        rotten = bytearray(data)
        rotten[position] ^= 0x10
        rotten[position + 2048] ^= 0x10
        with pytest.raises(CorruptData):
            read_segment_header(rotten, "test")


def test_two_whole_copies_that_differ_are_damage():
    mixed = (
        write_segment_header(HEADER)[:2048]
        + write_segment_header(attrs.evolve(HEADER, term=6))[2048:]
    )
    with pytest.raises(CorruptData, match="differ"):
        read_segment_header(mixed, "test")


@pytest.mark.parametrize("size", [0, 1, 2048, 4095])
def test_short_files(size):
    with pytest.raises(CorruptData):
        read_segment_header(write_segment_header(HEADER)[:size], "test")


def altered(position, content):
    copy = bytearray(write_segment_header(HEADER)[:2048])
    copy[position : position + len(content)] = content
    struct.pack_into(">I", copy, 2044, crc32c(bytes(copy[:2044])))
    return bytes(copy) * 2


def test_a_newer_writer_that_old_readers_understand_is_read():
    assert read_segment_header(altered(8, b"\x00\x09"), "test") == HEADER


def test_what_a_newer_writer_added_behind_is_left_unread():
    """It said itself that a reader of version 1 is enough: its new fields are no damage."""
    copy = bytearray(altered(8, b"\x00\x09")[:2048])
    copy[2000:2004] = b"more"
    struct.pack_into(">I", copy, 2044, crc32c(bytes(copy[:2044])))
    assert read_segment_header(bytes(copy) * 2, "test") == HEADER


def test_a_newer_reader_is_asked_for():
    with pytest.raises(FutureFormat, match="version 9"):
        read_segment_header(altered(8, b"\x00\x09\x00\x09"), "test")


@pytest.mark.parametrize(("position", "content"), [(12, b"\x00\x00\x00\x04"), (2000, b"\x01")])
def test_unknown_flags_and_reserved_bytes_are_refused(position, content):
    with pytest.raises(CorruptData):
        read_segment_header(altered(position, content), "test")


def test_a_membership_with_an_impossible_length_is_refused():
    with pytest.raises(CorruptData):
        read_segment_header(altered(128, b"\xff\xff\xff\xff"), "test")
