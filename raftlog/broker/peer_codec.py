"""The body of a peer frame: messages in sending order; big-endian.

    count u32, then per message: kind u8, size u32, that many bytes:

    1  a message of `raft.messages`, as `raft.message_codec` writes it, batches verbatim
    2  node heartbeat: round u64, acked round u64, offers, stopped
    3  its reply: round u64, disagreed
    4  controller request: number u64, kind u8, body
    5  controller reply: number u64, error u16, text, body
    6  (protocol 2) an echo of a read round: promised ns u64, then the message as in 1
    7  (protocol 3) node heartbeat: the sender's wall clock i64 (Unix time in ms), then as in 2
    8  (protocol 3) its reply: the replier's wall clock i64, then as in 3
    9  (protocol 5) question about an incarnation u64, and why it is named u8 (`Naming`)
    10 (protocol 5) the same, confirmed
    11 (protocol 5) who vouches: directory u64, its incarnation u64
    12 (protocol 5) its answer: as in 11, then the incarnation that is known u64

    offers                a u32 count, then each: group u64, term u32, the replica ids of leader
                          and follower (node u32, directory u64, epoch u64)
    stopped, disagreed    a u32 count, then each: group u64, term u32
    text, body            a u32 length and that many bytes; text is UTF-8

A `PeerCodec` is one version of this; `PROTOCOLS` are those that this release speaks. Both ends of a
link use the newest that both know (`common_version`, from the handshake). So neither sends a
message that the other cannot read: an unknown kind is refused, never skipped. The layouts of a
version never change; a new kind, or another layout of an old one, is a new version beside it.

Decoding raises ProtocolError and nothing else; every count is bounded by what is left.
"""

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, final

import attrs

from raftlog.base.binary import Buffer, Reader, Writer
from raftlog.base.entries import REPLICA_ID_BYTES, read_replica_id, write_replica_id
from raftlog.base.errors import ProtocolError
from raftlog.base.ids import TERM_MAX, DirectoryId, GroupId, Term
from raftlog.base.limits import (
    BROKER_GROUPS_MAX,
    CONTROLLER_BODY_BYTES_MAX,
    CONTROLLER_TEXT_BYTES_MAX,
    PEER_FRAME_BYTES_AIM,
    PEER_FRAME_BYTES_MAX,
    PEER_MESSAGES_MAX,
)
from raftlog.base.probes import probe
from raftlog.base.units import Nanos, WallMillis
from raftlog.broker.peer_messages import (
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
from raftlog.raft.messages import ReadEcho
from raftlog.storage.directories.incarnations import Incarnation

_ON: Final = "peer frame"
_U32: Final = struct.Struct(">I")
_U64: Final = struct.Struct(">Q")
_HEAD: Final = struct.Struct(">BI")
_NAMINGS: Final = tuple(int(each) for each in Naming)
_PLACE_BYTES: Final = 12
_OFFER_BYTES: Final = _PLACE_BYTES + 2 * REPLICA_ID_BYTES

Write = Callable[[Any], list[Buffer]]
Read = Callable[[memoryview], Any]


@final
@attrs.frozen(kw_only=True)
class PeerCodec:
    """One version of the peer protocol.

    For each message it has the byte of its kind and the way to write it, for each kind the way to
    read it.
    """

    version: int
    writers: Mapping[type, tuple[int, Write]]
    readers: Mapping[int, Read]

    def encode(self, messages: Sequence[Any]) -> list[Buffer]:
        """The parts of one frame body; batches in a message are parts of their own, uncopied."""
        assert len(messages) <= PEER_MESSAGES_MAX, len(messages)
        parts: list[Buffer] = [_U32.pack(len(messages))]
        for message in messages:
            parts += self._encode_one(message)
        return parts

    def encode_frames(self, messages: Sequence[Any]) -> Iterator[list[Buffer]]:
        """The messages as several frame bodies of about PEER_FRAME_BYTES_AIM each.

        A turn may send a megabyte for each of a thousand groups, and a frame is bounded. A message
        is never cut.
        """
        parts: list[Buffer] = []
        count = size = 0
        for message in messages:
            encoded = self._encode_one(message)
            grown = sum(map(len, encoded))
            if count and (size + grown > PEER_FRAME_BYTES_AIM or count == PEER_MESSAGES_MAX):
                yield [_U32.pack(count), *parts]
                parts, count, size = [], 0, 0
            parts += encoded
            count += 1
            size += grown
        if count:
            yield [_U32.pack(count), *parts]

    def _encode_one(self, message: Any) -> list[Buffer]:
        kind, write = self.writers[type(message)]
        body = write(message)
        return [_HEAD.pack(kind, sum(map(len, body))), *body]

    def decode(self, body: Buffer) -> list[Any]:
        """The messages of a frame body. Raft messages keep views into `body` for their batches."""
        reader = Reader(body, ProtocolError, _ON)
        count = reader.count(_HEAD.size, PEER_MESSAGES_MAX)
        messages = [
            self._decode_one(reader.u8(), reader.block(PEER_FRAME_BYTES_MAX)) for _ in range(count)
        ]
        reader.end()
        return messages

    def _decode_one(self, kind: int, view: memoryview) -> Any:
        read = self.readers.get(kind)
        if read is None:
            raise ProtocolError(
                f"peer message of unknown kind {kind} in protocol {self.version}", on=_ON
            )
        return read(view)


def common_version(mine: tuple[int, int], theirs: tuple[int, int]) -> int | None:
    """The newest protocol that both ends of a link know, or None when there is none.

    Each end speaks a range, oldest and newest. Both ends compute the same result.
    """
    version = min(mine[1], theirs[1])
    if version < mine[1]:
        probe("older-protocol-spoken")
    return version if version >= max(mine[0], theirs[0]) else None


# --- writing --------------------------------------------------------------------------------------


def _write_places(writer: Writer, places: Iterable[Place]) -> None:
    places = tuple(places)
    writer.u32(len(places))
    for place in places:
        writer.u64(place.group).u32(place.term)


def _write_heartbeat(writer: Writer, message: NodeHeartbeat) -> None:
    writer.u64(message.round).u64(message.acked_round).u32(len(message.offers))
    for offer in message.offers:
        writer.u64(offer.group).u32(offer.term)
        write_replica_id(writer, offer.leader)
        write_replica_id(writer, offer.follower)
    _write_places(writer, message.stopped)


def _write_heartbeat_reply(writer: Writer, message: NodeHeartbeatReply) -> None:
    writer.u64(message.round)
    _write_places(writer, message.disagreed)


def _write_timed_heartbeat(writer: Writer, message: NodeHeartbeat) -> None:
    writer.i64(message.wall_ms)
    _write_heartbeat(writer, message)


def _write_timed_heartbeat_reply(writer: Writer, message: NodeHeartbeatReply) -> None:
    writer.i64(message.wall_ms)
    _write_heartbeat_reply(writer, message)


def _write_request(writer: Writer, message: ControllerRequest) -> None:
    writer.u64(message.request_no).u8(message.kind).block(message.body)


def _write_reply(writer: Writer, message: ControllerReply) -> None:
    writer.u64(message.request_no).u16(message.error).text(message.text).block(message.body)


def _write_life(writer: Writer, message: IncarnationQuestion | IncarnationConfirmed) -> None:
    writer.u64(message.incarnation).u8(message.naming)


def _write_vouch(writer: Writer, message: VouchQuestion | VouchAnswer) -> None:
    for value in message:
        writer.u64(value)


def _write_promise(echo: ReadEcho) -> list[Buffer]:
    return [_U64.pack(echo.promised_ns), *message_codec.encode(echo)]


# --- reading --------------------------------------------------------------------------------------


def _read_term(reader: Reader) -> Term:
    term = reader.u32()
    if term > TERM_MAX:
        raise reader.fail(f"term {term} is above 2**31 - 1")
    return Term(term)


def _read_places(reader: Reader) -> tuple[Place, ...]:
    count = reader.count(_PLACE_BYTES, BROKER_GROUPS_MAX)
    return tuple(Place(GroupId(reader.u64()), _read_term(reader)) for _ in range(count))


def _read_offer(reader: Reader) -> Offer:
    group, term = GroupId(reader.u64()), _read_term(reader)
    return Offer(group, term, read_replica_id(reader), read_replica_id(reader))


def _read_heartbeat(reader: Reader) -> NodeHeartbeat:
    round_no, acked = reader.u64(), reader.u64()
    count = reader.count(_OFFER_BYTES, BROKER_GROUPS_MAX)
    offers = tuple(_read_offer(reader) for _ in range(count))
    return NodeHeartbeat(round_no, acked, offers, _read_places(reader))


def _read_heartbeat_reply(reader: Reader) -> NodeHeartbeatReply:
    return NodeHeartbeatReply(reader.u64(), _read_places(reader))


def _read_timed_heartbeat(reader: Reader) -> NodeHeartbeat:
    wall_ms = WallMillis(reader.i64())
    return _read_heartbeat(reader)._replace(wall_ms=wall_ms)


def _read_timed_heartbeat_reply(reader: Reader) -> NodeHeartbeatReply:
    wall_ms = WallMillis(reader.i64())
    return _read_heartbeat_reply(reader)._replace(wall_ms=wall_ms)


def _read_request(reader: Reader) -> ControllerRequest:
    number, kind = reader.u64(), reader.u8()
    return ControllerRequest(number, kind, bytes(reader.block(CONTROLLER_BODY_BYTES_MAX)))


def _read_reply(reader: Reader) -> ControllerReply:
    number, error, text = reader.u64(), reader.u16(), reader.text(CONTROLLER_TEXT_BYTES_MAX)
    return ControllerReply(number, error, text, bytes(reader.block(CONTROLLER_BODY_BYTES_MAX)))


def _read_life(reader: Reader) -> tuple[Incarnation, Naming]:
    incarnation, naming = Incarnation(reader.u64()), reader.u8()
    if naming not in _NAMINGS:
        raise reader.fail(f"naming {naming} of an incarnation")
    return incarnation, Naming(naming)


def _read_question(reader: Reader) -> IncarnationQuestion:
    return IncarnationQuestion(*_read_life(reader))


def _read_confirmed(reader: Reader) -> IncarnationConfirmed:
    return IncarnationConfirmed(*_read_life(reader))


def _read_vouch_question(reader: Reader) -> VouchQuestion:
    return VouchQuestion(DirectoryId(reader.u64()), Incarnation(reader.u64()))


def _read_vouch_answer(reader: Reader) -> VouchAnswer:
    return VouchAnswer(*_read_vouch_question(reader), Incarnation(reader.u64()))


def _read_promise(view: memoryview) -> ReadEcho:
    reader = Reader(view, ProtocolError, f"{_ON}, kind 6")
    promised_ns = Nanos(reader.u64())
    echo = message_codec.decode(reader.take(reader.remaining()))
    if not isinstance(echo, ReadEcho):
        raise reader.fail("a promise without an echo")
    return echo._replace(promised_ns=promised_ns)


# --- versions -------------------------------------------------------------------------------------


def _fields(kind: int, write: Callable[[Writer, Any], None]) -> tuple[int, Write]:
    """The kind and the writer of a message that is written field by field."""

    def written(message: Any) -> list[Buffer]:
        writer = Writer()
        write(writer, message)
        return [writer.bytes()]

    return kind, written


def _whole(kind: int, read: Callable[[Reader], Any]) -> Read:
    """The reader of such a message; it must find nothing behind the last field."""

    def found(view: memoryview) -> Any:
        reader = Reader(view, ProtocolError, f"{_ON}, kind {kind}")
        message = read(reader)
        reader.end()
        return message

    return found


PROTOCOL_1: Final = PeerCodec(
    version=1,
    writers={
        **dict.fromkeys(message_codec.MESSAGES, (1, message_codec.encode)),
        NodeHeartbeat: _fields(2, _write_heartbeat),
        NodeHeartbeatReply: _fields(3, _write_heartbeat_reply),
        ControllerRequest: _fields(4, _write_request),
        ControllerReply: _fields(5, _write_reply),
    },
    readers={
        1: message_codec.decode,
        2: _whole(2, _read_heartbeat),
        3: _whole(3, _read_heartbeat_reply),
        4: _whole(4, _read_request),
        5: _whole(5, _read_reply),
    },
)

PROTOCOL_2: Final = PeerCodec(
    version=2,
    writers={**PROTOCOL_1.writers, ReadEcho: (6, _write_promise)},
    readers={**PROTOCOL_1.readers, 6: _read_promise},
)
"""Voters say in an echo what they promise. By protocol 1 an echo arrives without any promise."""

PROTOCOL_3: Final = PeerCodec(
    version=3,
    writers={
        **PROTOCOL_2.writers,
        NodeHeartbeat: _fields(7, _write_timed_heartbeat),
        NodeHeartbeatReply: _fields(8, _write_timed_heartbeat_reply),
    },
    readers={
        **{kind: read for kind, read in PROTOCOL_2.readers.items() if kind not in (2, 3)},
        7: _whole(7, _read_timed_heartbeat),
        8: _whole(8, _read_timed_heartbeat_reply),
    },
)
"""Nodes tell their wall clocks. By protocol 2 a clock arrives as not known (NO_WALL)."""

PROTOCOL_4: Final = PeerCodec(
    version=4, writers=dict(PROTOCOL_3.writers), readers=dict(PROTOCOL_3.readers)
)
"""The messages of protocol 3, over a sealed link only."""

SEALED_FROM: Final = 4
"""The first protocol with sealed links (`raftlog.seal`): an end that speaks it or a later one seals
them."""

PROTOCOL_5: Final = PeerCodec(
    version=5,
    writers={
        **PROTOCOL_4.writers,
        IncarnationQuestion: _fields(9, _write_life),
        IncarnationConfirmed: _fields(10, _write_life),
        VouchQuestion: _fields(11, _write_vouch),
        VouchAnswer: _fields(12, _write_vouch),
    },
    readers={
        **PROTOCOL_4.readers,
        9: _whole(9, _read_question),
        10: _whole(10, _read_confirmed),
        11: _whole(11, _read_vouch_question),
        12: _whole(12, _read_vouch_answer),
    },
)
"""Both ends tell which life of their data directory this is, in the handshake and by these."""

INCARNATIONS_FROM: Final = 5
"""The first protocol in which both ends of a link have told their incarnations."""

PROTOCOLS: Final[Mapping[int, PeerCodec]] = {
    1: PROTOCOL_1,
    2: PROTOCOL_2,
    3: PROTOCOL_3,
    4: PROTOCOL_4,
    5: PROTOCOL_5,
}
"""Version -> codec, without a gap: a link uses one of them from the oldest to the newest."""
PROTOCOL_MIN: Final = min(PROTOCOLS)
PROTOCOL_MAX: Final = max(PROTOCOLS)
assert sorted(PROTOCOLS) == list(range(PROTOCOL_MIN, PROTOCOL_MAX + 1)), sorted(PROTOCOLS)
