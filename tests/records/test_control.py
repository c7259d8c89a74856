"""Raft's own entries: round trips, golden bytes, refusals."""

import pytest

from raftlog.base.entries import EntryKind, Membership
from raftlog.base.errors import CorruptData, FutureFormat
from raftlog.base.ids import ReplicaId
from raftlog.records.batch import crc_matches, entry_of, read_header
from raftlog.records.control import (
    Marker,
    TermStart,
    build_control_entry,
    parse_control_entry,
    read_log_start,
    read_marker,
    read_membership_body,
    read_term_start,
    write_log_start,
    write_marker,
    write_membership_body,
    write_term_start,
)

ONE = ReplicaId(1, 11, 1)
TWO = ReplicaId(2, 22, 1)


def made(body=b"abc", kind=EntryKind.MARKER):
    return build_control_entry(
        kind, group=9, term=4, raft_index=77, base_offset=1234, timestamp_ms=5, body=body
    )


def test_it_takes_no_offset_and_says_who_it_is():
    entry = made()
    assert entry.base_offset == entry.next_offset == 1234
    assert entry == entry_of(77, entry.batch, CorruptData, "test")
    header = read_header(entry.batch)
    assert header.is_raft_entry
    assert crc_matches(entry.batch, header)
    parsed = parse_control_entry(entry.batch, CorruptData, "test")
    assert parsed == (EntryKind.MARKER, 9, 4, 77, b"abc")


def test_golden_bytes():
    """The layout on disk and wire; a change needs a new payload version."""
    assert made().batch.hex() == (
        "00000000000004d2" "0000004c" "00000004" "02" "7b7a16f6" "0020" "ffffffff"
        "0000000000000005" "0000000000000005" "ffffffffffffffff" "ffff" "ffffffff" "00000000"
        "04" "01" "0000" "0000000000000009" "00000004" "000000000000004d" "616263"
    )  # fmt: skip


@pytest.mark.parametrize(
    ("position", "value", "error"),
    [
        (61, 99, FutureFormat),
        (62, 2, FutureFormat),
        (62, 0, CorruptData),
        (63, 1, CorruptData),
        (64, 1, CorruptData),
    ],
)
def test_what_this_release_does_not_know_is_refused(position, value, error):
    batch = bytearray(made().batch)
    batch[position] = value
    with pytest.raises(error):
        parse_control_entry(batch, CorruptData, "test")


def test_truncated_payloads():
    batch = made(b"").batch
    for size in range(61, len(batch)):
        with pytest.raises(CorruptData):
            parse_control_entry(batch[:size], CorruptData, "test")


BODIES = [
    (write_term_start, read_term_start, TermStart(ONE, -1)),
    (write_term_start, read_term_start, TermStart(TWO, 1_700_000_000_000)),
    (write_membership_body, read_membership_body, Membership((ONE, TWO))),
    (
        write_membership_body,
        read_membership_body,
        Membership((TWO,), outgoing=(ONE,), learners_next=(ONE,)),
    ),
    (write_log_start, read_log_start, 0),
    (write_log_start, read_log_start, 2**40),
    (write_marker, read_marker, Marker(-1, b"")),
    (write_marker, read_marker, Marker(5, b"d" * 64)),
]


@pytest.mark.parametrize(("write", "read", "value"), BODIES)
def test_bodies_round_trip_and_refuse_other_lengths(write, read, value):
    body = write(value)
    assert read(body) == value
    with pytest.raises(CorruptData):
        read(body + b"x")
    with pytest.raises(CorruptData):
        read(body[:-1])


def test_a_membership_out_of_order_is_refused():
    good = write_membership_body(Membership((ONE, TWO)))
    swapped = good[:4] + good[24:44] + good[4:24] + good[44:]
    with pytest.raises(CorruptData, match="sorted"):
        read_membership_body(swapped)
