"""The peer format: golden bytes, round trips, and nothing but ProtocolError for anything else."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftlog.base.entries import EntryKind, InstallPosition, Membership
from raftlog.base.errors import ProtocolError
from raftlog.base.ids import TERM_MAX
from raftlog.raft.message_codec import decode, encode
from raftlog.raft.messages import (
    Append,
    AppendRefused,
    AppendReply,
    Install,
    InstallReply,
    PreVoteReply,
    PreVoteRequest,
    ReadEcho,
    RefusalReason,
    TimeoutNow,
    Unreadable,
    VoteReply,
    VoteRequest,
)
from raftlog.records.control import build_control_entry
from tests.raft.cluster import WALL, entry, rid

GOLDEN = Path(__file__).parent.parent / "golden" / "raft_messages.txt"
HEAD = (7, rid(1), rid(2, epoch=3), 5)
POSITION = InstallPosition(
    raft_index=40,
    term=4,
    chain=0xFEEDFACECAFEBEEF,
    next_offset=100,
    log_start=60,
    membership=Membership((rid(1), rid(2)), (rid(3),), (rid(4),), (rid(3),)),
    membership_index=12,
)
MARKER = build_control_entry(
    EntryKind.MARKER,
    group=7,
    term=5,
    raft_index=11,
    base_offset=9,
    timestamp_ms=WALL,
    body=b"\xff" * 8 + b"\0\0\0\0",
)
EXAMPLES = [
    PreVoteRequest(*HEAD, 10, 4),
    PreVoteReply(*HEAD, True),
    VoteRequest(*HEAD, 10, 4, True),
    VoteReply(*HEAD, False),
    Append(*HEAD, 9, 4, 0x0123456789ABCDEF, 8, 2, [entry(10, 5, 8), MARKER]),
    Append(*HEAD, 9, 4, 0, 8, 0, []),
    AppendReply(*HEAD, 9, True),
    AppendRefused(*HEAD, RefusalReason.MISMATCH, 9, 7, 3),
    ReadEcho(*HEAD, 2),
    Install(*HEAD, POSITION, 10, 4, b"abcdef"),
    InstallReply(*HEAD, 40, 10),
    TimeoutNow(*HEAD),
]


def wire(message) -> bytes:
    return b"".join(bytes(part) for part in encode(message))


def plain(message):
    """Comparable whatever kind of buffer carries the bytes."""
    if isinstance(message, Append):
        return message._replace(entries=[e._replace(batch=bytes(e.batch)) for e in message.entries])
    if isinstance(message, Install):
        return message._replace(chunk=bytes(message.chunk))
    return message


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda m: type(m).__name__)
def test_round_trip(message):
    assert plain(decode(wire(message))) == plain(message)


def test_golden_bytes():
    """One line per example: a change of these bytes needs a new version of the peer protocol
    (raftlog.broker.peer_codec)."""
    lines = [f"{type(m).__name__} {wire(m).hex()}" for m in EXAMPLES]
    assert GOLDEN.read_text().splitlines() == lines


def test_batches_are_not_copied():
    batch = entry(10, 5, 8).batch
    parts = encode(Append(*HEAD, 9, 4, 0, 8, 0, [entry(10, 5, 8)._replace(batch=batch)]))
    assert any(part is batch for part in parts)


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda m: type(m).__name__)
def test_every_cut_is_refused_or_is_a_shorter_message(message):
    data = wire(message)
    for size in range(len(data)):
        try:
            again = decode(data[:size])
        except ProtocolError:
            continue
        assert wire(again) == data[:size]
        assert type(again) in (Append, Install)


@pytest.mark.parametrize(
    "message", [m for m in EXAMPLES if not isinstance(m, Install)], ids=lambda m: type(m).__name__
)
def test_trailing_bytes_are_refused(message):
    with pytest.raises(ProtocolError):
        decode(wire(message) + b"\0")


def test_terms_above_the_highest_are_refused():
    data = bytearray(wire(TimeoutNow(*HEAD)))
    data[49:53] = (2**31).to_bytes(4, "big")
    with pytest.raises(ProtocolError):
        decode(data)
    highest = TimeoutNow(*HEAD[:3], TERM_MAX), PreVoteRequest(*HEAD, 10, TERM_MAX)
    assert [decode(wire(message)) for message in highest] == list(highest)
    above = bytearray(wire(highest[1]))
    above[-4:] = (TERM_MAX + 1).to_bytes(4, "big")
    with pytest.raises(ProtocolError, match="above"):
        decode(above)


@pytest.mark.parametrize(("at", "value"), [(61, max(EntryKind) + 1), (62, 2)])
def test_an_entry_of_a_later_release_is_unreadable_not_skipped(at, value):
    """A payload version that was not known was a protocol error: the link broke, and was dialled
    again to hear the same, without end."""
    batch = bytearray(MARKER.batch)
    batch[at] = value
    message = Append(*HEAD, 9, 4, 0, 8, 0, [entry(10, 5, 8), MARKER._replace(batch=bytes(batch))])
    again = decode(wire(message))
    assert isinstance(again, Unreadable)
    assert again[:4] == HEAD
    assert f"kind {batch[61]}, payload version {batch[62]}" in again.why
    assert "upgrade this broker" in again.why


@pytest.mark.parametrize("reason", [3, 255])
def test_unknown_reasons_are_refused(reason):
    data = bytearray(wire(EXAMPLES[7]))
    data[53] = reason
    with pytest.raises(ProtocolError):
        decode(data)


@given(st.binary(max_size=300))
def test_random_bytes(data):
    _only_protocol_errors(data)


@given(st.sampled_from(EXAMPLES), st.data())
def test_damaged_messages(message, data):
    raw = bytearray(wire(message))
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    _only_protocol_errors(bytes(raw))


@given(st.integers(1, 12), st.binary(min_size=52, max_size=200))
def test_random_bodies_behind_a_good_head(kind, body):
    data = bytes([kind]) + body
    _only_protocol_errors(data)


def _only_protocol_errors(data: bytes) -> None:
    try:
        message = decode(data)
    except ProtocolError:
        return
    if not isinstance(message, Unreadable):
        assert wire(message) == data
