"""Header view, patch, walk: every lie about shape is the error that the caller named."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftlog.base.entries import EntryKind
from raftlog.base.errors import CorruptData, FutureFormat, ProtocolError
from raftlog.records.batch import (
    CONTROL,
    LOG_APPEND_TIME,
    crc_matches,
    entries_of,
    entry_of,
    patch,
    read_header,
    split,
    stamp_append_time,
)
from tests.records.making import changed, plain_batch


def test_patching_leaves_the_crc_right():
    batch = bytearray(plain_batch(4))
    patch(batch, 1000, 7)
    header = read_header(batch)
    assert (header.base_offset, header.leader_epoch, header.next_offset) == (1000, 7, 1004)
    assert crc_matches(batch, header)
    assert bytes(batch[21:]) == plain_batch(4)[21:]


def test_stamping_append_time_makes_the_crc_anew():
    batch = bytearray(plain_batch(2))
    stamp_append_time(batch, 12345)
    header = read_header(batch)
    assert header.attributes & LOG_APPEND_TIME
    assert header.max_timestamp == 12345
    assert crc_matches(batch, header)


def test_entries_follow_one_another():
    one, two = bytearray(plain_batch(2)), bytearray(plain_batch(3))
    patch(one, 10, 1)
    patch(two, 12, 2)
    entries = entries_of(5, bytes(one + two), CorruptData, "test")
    assert [(e.raft_index, e.term, e.base_offset, e.next_offset) for e in entries] == [
        (5, 1, 10, 12),
        (6, 2, 12, 15),
    ]
    assert all(e.kind is EntryKind.RECORDS for e in entries)


def ready(**fields):
    return changed(plain_batch(2), **{"leader_epoch": 1, **fields})


@pytest.mark.parametrize(
    "batch",
    [
        b"",
        ready()[:60],
        ready()[:-1],
        ready() + b"x",
        ready(magic=1),
        ready(leader_epoch=-1),
        ready(base_offset=-5),
        ready(last_offset_delta=-1),
        ready(last_offset_delta=-2, attributes=CONTROL),
    ],
)
def test_wrong_shapes(batch):
    with pytest.raises(ProtocolError):
        entry_of(1, batch, ProtocolError, "test")


@pytest.mark.parametrize(
    ("payload", "error"),
    [
        (b"\x00\x01", CorruptData),
        (b"\x04\x00", CorruptData),
        (b"\x06\x01", FutureFormat),
        (b"\xff\xff", FutureFormat),
        (b"\x04\x02", FutureFormat),
    ],
)
def test_raft_entries_that_no_release_or_only_a_later_one_writes(payload, error):
    batch = ready(attributes=CONTROL, last_offset_delta=-1, records_count=0)
    with pytest.raises(error, match="kind"):
        entry_of(1, batch[:61] + payload + batch[63:], CorruptData, "test")


def test_a_transaction_marker_is_records():
    """Kafka's own control batches are one offset wide and visible to clients."""
    batch = changed(plain_batch(1), leader_epoch=1, attributes=CONTROL)
    assert entry_of(1, batch, CorruptData, "test").kind is EntryKind.RECORDS


@given(st.binary(max_size=300))
def test_split_never_escapes(data):
    try:
        pieces = list(split(data, CorruptData, "test"))
    except CorruptData:
        return
    assert b"".join(pieces) == data


@given(st.lists(st.integers(1, 4), max_size=5))
def test_split_gives_back_what_was_joined(counts):
    batches = [plain_batch(count) for count in counts]
    assert [bytes(piece) for piece in split(b"".join(batches), CorruptData, "test")] == batches
