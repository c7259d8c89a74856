"""The peer frame: golden bytes, round trips, and nothing but ProtocolError for anything else."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftlog.base.errors import ProtocolError
from raftlog.base.ids import TERM_MAX, DirectoryId, NodeId, ReplicaEpoch, ReplicaId
from raftlog.base.limits import (
    BROKER_GROUPS_MAX,
    CONTROLLER_BODY_BYTES_MAX,
    PEER_FRAME_BYTES_AIM,
)
from raftlog.base.units import Nanos
from raftlog.broker.peer_codec import (
    PROTOCOL_1,
    PROTOCOL_2,
    PROTOCOL_3,
    PROTOCOL_4,
    PROTOCOL_5,
    PROTOCOLS,
    common_version,
)
from raftlog.broker.peer_messages import (
    NO_WALL,
    ControllerReply,
    ControllerRequest,
    IncarnationConfirmed,
    IncarnationQuestion,
    Naming,
    NodeHeartbeat,
    NodeHeartbeatReply,
    Offer,
    Place,
    VouchAnswer,
    VouchQuestion,
)
from raftlog.raft import message_codec
from raftlog.raft.messages import ReadEcho, TimeoutNow, VoteReply


def rid(node: int, epoch: int = 1) -> ReplicaId:
    return ReplicaId(NodeId(node), DirectoryId(0xA0 + node), ReplicaEpoch(epoch))


EXAMPLES = [
    [],
    [NodeHeartbeat(1, 0, (), ())],
    [NodeHeartbeat(9, 8, (Offer(7, 3, rid(1), rid(2)),), (Place(5, 2), Place(6, 4)))],
    [NodeHeartbeatReply(9, ())],
    [NodeHeartbeatReply(9, (Place(5, 2),))],
    [ControllerRequest(77, 1, b"body")],
    [ControllerReply(77, 41, "2", b"")],
    [TimeoutNow(7, rid(1), rid(2), 5), VoteReply(8, rid(1), rid(2), 6, True)],
    [NodeHeartbeatReply(1, ()), TimeoutNow(7, rid(1), rid(2), 5), ControllerRequest(1, 3, b"")],
]


WALL = 1_700_000_000_123
TIMED = [
    NodeHeartbeat(9, 8, (Offer(7, 3, rid(1), rid(2)),), (Place(5, 2),), WALL),
    NodeHeartbeatReply(9, (Place(5, 2),), WALL),
]
"""Heartbeats that carry the sender's wall clock."""
PROMISE = ReadEcho(7, rid(1), rid(2), 5, 3, Nanos(500_000_000))
LIVES = [
    IncarnationQuestion(2**64 - 1, Naming.REPLACED),
    IncarnationQuestion(0, Naming.KNOWN),
    IncarnationConfirmed(77, Naming.NAMED),
    VouchQuestion(DirectoryId(0xA1), 78),
    VouchAnswer(DirectoryId(0xA1), 78, 0),
]
"""Messages about incarnations."""


def wire(messages, codec=PROTOCOL_1) -> bytes:
    return b"".join(bytes(part) for part in codec.encode(messages))


@pytest.mark.parametrize("messages", EXAMPLES, ids=range(len(EXAMPLES)))
def test_round_trip(messages):
    assert PROTOCOL_1.decode(wire(messages)) == messages


@pytest.mark.parametrize("version", PROTOCOLS)
def test_golden_bytes(version):
    """One line per example: a change of these bytes needs a new version of the peer protocol, with
    a file of its own."""
    examples = [*EXAMPLES, [PROMISE], TIMED]
    examples = examples[:-1] if version < 3 else examples
    examples = [*examples, LIVES] if version >= 5 else examples
    lines = [b"".join(PROTOCOLS[version].encode(messages)).hex() for messages in examples]
    golden = Path(__file__).parent.parent / "golden" / f"peer_messages_{version}.txt"
    assert golden.read_text().splitlines() == lines


@pytest.mark.parametrize(
    ("mine", "theirs", "common"),
    [
        ((1, 1), (1, 1), 1),
        ((1, 1), (1, 2), 1),
        ((1, 3), (2, 4), 3),
        ((2, 3), (1, 2), 2),
        ((1, 1), (2, 3), None),
        ((3, 4), (1, 2), None),
    ],
)
def test_the_version_of_a_link_is_the_newest_that_both_know(mine, theirs, common):
    assert common_version(mine, theirs) == common
    assert common_version(theirs, mine) == common


@pytest.mark.parametrize("messages", [*EXAMPLES, [PROMISE]], ids=range(len(EXAMPLES) + 1))
def test_protocol_2_carries_what_echoes_promise(messages):
    assert PROTOCOL_2.decode(wire(messages, PROTOCOL_2)) == messages


def test_protocol_3_carries_wall_clocks():
    assert PROTOCOL_3.decode(wire(TIMED, PROTOCOL_3)) == TIMED
    assert PROTOCOL_3.decode(wire([PROMISE], PROTOCOL_3)) == [PROMISE]


def test_protocol_5_carries_incarnations():
    data = wire(LIVES, PROTOCOL_5)
    assert PROTOCOL_5.decode(data) == LIVES
    for size in range(len(data)):
        with pytest.raises(ProtocolError):
            PROTOCOL_5.decode(data[:size])
    with pytest.raises(ProtocolError, match="unknown kind 9 in protocol 4"):
        PROTOCOL_4.decode(data)
    with pytest.raises(ProtocolError, match="naming 3"):
        PROTOCOL_5.decode(wire([IncarnationQuestion(7, 3)], PROTOCOL_5))


@pytest.mark.parametrize("older", [PROTOCOL_1, PROTOCOL_2], ids=[1, 2])
def test_an_older_peer_is_told_no_clock_and_tells_none(older):
    """To the last release a heartbeat is what it was, byte for byte. Its own arrive without a
    clock, which no leader takes for one that agrees."""
    plain = [message._replace(wall_ms=NO_WALL) for message in TIMED]
    assert wire(TIMED, older) == wire(plain, older)
    assert older.decode(wire(TIMED, older)) == plain
    with pytest.raises(ProtocolError, match="unknown kind 7"):
        older.decode(wire(TIMED, PROTOCOL_3))
    with pytest.raises(ProtocolError, match="unknown kind 2 in protocol 3"):
        PROTOCOL_3.decode(wire(TIMED, older))


def test_a_clock_that_is_cut_is_refused():
    data = wire(TIMED, PROTOCOL_3)
    for size in range(len(data)):
        with pytest.raises(ProtocolError):
            PROTOCOL_3.decode(data[:size])


def test_protocol_1_knows_of_no_promises():
    """So a leader of this release counts on nothing that an older voter may do, and the other way
    round nothing is sent that could not be read."""
    assert PROTOCOL_1.decode(wire([PROMISE])) == [PROMISE._replace(promised_ns=0)]
    with pytest.raises(ProtocolError, match="unknown kind 6 in protocol 1"):
        PROTOCOL_1.decode(wire([PROMISE], PROTOCOL_2))


def test_a_promise_that_is_cut_or_of_another_message_is_refused():
    data = wire([PROMISE], PROTOCOL_2)
    for size in range(len(data)):
        with pytest.raises(ProtocolError):
            PROTOCOL_2.decode(data[:size])
    other = bytes(8) + b"".join(map(bytes, message_codec.encode(TimeoutNow(7, rid(1), rid(2), 5))))
    frame = b"\0\0\0\1\6" + len(other).to_bytes(4, "big") + other
    with pytest.raises(ProtocolError, match="a promise without an echo"):
        PROTOCOL_2.decode(frame)


def test_every_message_has_a_kind_that_is_read():
    for codec in PROTOCOLS.values():
        assert {kind for kind, _ in codec.writers.values()} == set(codec.readers)


@pytest.mark.parametrize("messages", EXAMPLES[1:], ids=range(1, len(EXAMPLES)))
def test_every_cut_is_refused(messages):
    data = wire(messages)
    for size in range(len(data)):
        with pytest.raises(ProtocolError):
            PROTOCOL_1.decode(data[:size])


def test_a_byte_too_many_is_refused():
    with pytest.raises(ProtocolError, match="1 bytes too many"):
        PROTOCOL_1.decode(wire(EXAMPLES[1]) + b"\0")


def test_an_unknown_kind_is_refused():
    with pytest.raises(ProtocolError, match="unknown kind 9"):
        PROTOCOL_1.decode(b"\0\0\0\1" + b"\x09" + b"\0\0\0\0")


def test_a_body_longer_than_its_fields_is_refused():
    body = wire([NodeHeartbeatReply(9, ())])
    longer = bytearray(body + b"\0")
    longer[8] += 1
    with pytest.raises(ProtocolError):
        PROTOCOL_1.decode(bytes(longer))


def test_a_count_that_cannot_be_is_refused_before_anything_is_made():
    with pytest.raises(ProtocolError, match="count of"):
        PROTOCOL_1.decode(b"\xff\xff\xff\xff" + bytes(64))
    lie = bytearray(wire([NodeHeartbeatReply(9, ())]))
    lie[-4:] = (BROKER_GROUPS_MAX + 1).to_bytes(4, "big")
    with pytest.raises(ProtocolError, match="count of"):
        PROTOCOL_1.decode(bytes(lie))


def test_a_term_above_the_bound_is_refused():
    fits = wire([NodeHeartbeatReply(9, (Place(5, TERM_MAX),))])
    assert PROTOCOL_1.decode(fits)
    above = bytearray(fits)
    above[-4:] = (TERM_MAX + 1).to_bytes(4, "big")
    with pytest.raises(ProtocolError, match="term"):
        PROTOCOL_1.decode(bytes(above))


def test_a_controller_body_over_its_bound_is_refused():
    fits = ControllerRequest(1, 1, bytes(CONTROLLER_BODY_BYTES_MAX))
    assert PROTOCOL_1.decode(wire([fits])) == [fits]
    over = ControllerRequest(1, 1, bytes(CONTROLLER_BODY_BYTES_MAX + 1))
    with pytest.raises(ProtocolError, match="block of"):
        PROTOCOL_1.decode(wire([over]))


def test_text_that_is_not_utf8_is_refused():
    data = bytearray(wire([ControllerReply(1, 0, "ab", b"")]))
    at = data.index(b"ab")
    data[at] = 0xFF
    with pytest.raises(ProtocolError, match="UTF-8"):
        PROTOCOL_1.decode(bytes(data))


@given(st.binary(max_size=400))
def test_random_bytes_give_messages_or_a_protocol_error(data):
    try:
        messages = PROTOCOL_1.decode(data)
    except ProtocolError:
        return
    assert isinstance(messages, list)


@given(st.sampled_from(EXAMPLES[1:]), st.data())
def test_a_changed_byte_gives_messages_or_a_protocol_error(messages, data):
    changed = bytearray(wire(messages))
    at = data.draw(st.integers(0, len(changed) - 1))
    changed[at] ^= data.draw(st.integers(1, 255))
    try:
        again = PROTOCOL_1.decode(bytes(changed))
    except ProtocolError:
        return
    assert isinstance(again, list)


PLACES = st.tuples(st.integers(0, 2**64 - 1), st.integers(0, TERM_MAX)).map(lambda p: Place(*p))
IDS = st.tuples(st.integers(0, 2**31 - 1), st.integers(1, 2**64 - 1), st.integers(0, 2**63)).map(
    lambda r: ReplicaId(*r)
)
OFFERS = st.tuples(st.integers(0, 2**64 - 1), st.integers(0, TERM_MAX), IDS, IDS).map(
    lambda o: Offer(*o)
)


@given(
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**64 - 1),
    st.lists(OFFERS, max_size=5),
    st.lists(PLACES, max_size=5),
)
def test_any_heartbeat_survives_the_wire(number, acked, offers, stopped):
    beat = NodeHeartbeat(number, acked, tuple(offers), tuple(stopped))
    reply = NodeHeartbeatReply(number, tuple(stopped))
    assert PROTOCOL_1.decode(wire([beat, reply])) == [beat, reply]


def test_a_turn_that_sends_much_makes_several_frames():
    """A link that came up again after a long outage: an append of a megabyte for every group."""
    messages = [ControllerRequest(n, 1, bytes(400_000)) for n in range(20)]
    bodies = [b"".join(parts) for parts in PROTOCOL_1.encode_frames(messages)]
    assert len(bodies) == 10
    assert max(map(len, bodies)) <= PEER_FRAME_BYTES_AIM + 4
    assert [m for body in bodies for m in PROTOCOL_1.decode(body)] == messages


def test_a_message_larger_than_the_aim_has_a_frame_of_its_own():
    large = ControllerRequest(1, 1, bytes(PEER_FRAME_BYTES_AIM + 1))
    small = ControllerRequest(2, 1, b"")
    bodies = [b"".join(parts) for parts in PROTOCOL_1.encode_frames([small, large, small])]
    assert [PROTOCOL_1.decode(body) for body in bodies] == [[small], [large], [small]]


def test_nothing_to_send_is_no_frame():
    assert list(PROTOCOL_1.encode_frames([])) == []


@given(st.lists(st.sampled_from([m for example in EXAMPLES for m in example]), max_size=20))
def test_one_frame_is_what_encode_gives(messages):
    frames = [b"".join(map(bytes, parts)) for parts in PROTOCOL_1.encode_frames(messages)]
    assert frames == ([wire(messages)] if messages else [])
