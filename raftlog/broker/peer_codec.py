"""The body of a peer frame: messages in sending order; big-endian.

    count u32, then per message: kind u8, size u32, that many bytes:

    1  a message of `raft.messages`, as `raft.message_codec` writes it, batches verbatim
    2  node heartbeat: round u64, acked round u64, offers, stopped
    3  its reply: round u64, disagreed
    4  controller request: number u64, kind u8, body
    5  controller reply: number u64, error u16, text, body

    offers                a u32 count, then each: group u64, term u32, the replica ids of leader
                          and follower (node u32, directory u64, epoch u64)
    stopped, disagreed    a u32 count, then each: group u64, term u32
    text, body            a u32 length and that many bytes; text is UTF-8

Kinds are a byte space of this file; an unknown one is refused, for the handshake fixed the protocol
range. Decoding raises ProtocolError and nothing else; every count is bounded by what is left.
"""

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from raftlog.base.binary import Buffer, Reader, Writer
from raftlog.base.entries import REPLICA_ID_BYTES, read_replica_id, write_replica_id
from raftlog.base.errors import ProtocolError
from raftlog.base.ids import TERM_MAX, GroupId, Term
from raftlog.base.limits import (
    BROKER_GROUPS_MAX,
    CONTROLLER_BODY_BYTES_MAX,
    CONTROLLER_TEXT_BYTES_MAX,
    PEER_FRAME_BYTES_AIM,
    PEER_FRAME_BYTES_MAX,
    PEER_MESSAGES_MAX,
)
from raftlog.broker.peer_messages import (
    ControllerReply,
    ControllerRequest,
    NodeHeartbeat,
    NodeHeartbeatReply,
    Offer,
    Place,
)
from raftlog.raft import message_codec

_ON: Final = "peer frame"
_U32: Final = struct.Struct(">I")
_HEAD: Final = struct.Struct(">BI")
_PLACE_BYTES: Final = 12
_OFFER_BYTES: Final = _PLACE_BYTES + 2 * REPLICA_ID_BYTES
_RAFT: Final = 1


def encode(messages: Sequence[Any]) -> list[Buffer]:
    """The parts of one frame body; what a message holds as a batch is a part of its own,
    uncopied."""
    assert len(messages) <= PEER_MESSAGES_MAX, len(messages)
    parts: list[Buffer] = [_U32.pack(len(messages))]
    for message in messages:
        parts += _encode_one(message)
    return parts


def encode_frames(messages: Sequence[Any]) -> Iterator[list[Buffer]]:
    """The same as several frame bodies of about PEER_FRAME_BYTES_AIM each: a turn may send a
    megabyte for each of a thousand groups, and a frame is bounded. A message is never cut."""
    parts: list[Buffer] = []
    count = size = 0
    for message in messages:
        encoded = _encode_one(message)
        grown = sum(map(len, encoded))
        if count and (size + grown > PEER_FRAME_BYTES_AIM or count == PEER_MESSAGES_MAX):
            yield [_U32.pack(count), *parts]
            parts, count, size = [], 0, 0
        parts += encoded
        count += 1
        size += grown
    if count:
        yield [_U32.pack(count), *parts]


def _encode_one(message: Any) -> list[Buffer]:
    written = _WRITERS.get(type(message))
    if written is None:
        body = message_codec.encode(message)
        return [_HEAD.pack(_RAFT, sum(map(len, body))), *body]
    kind, write = written
    writer = Writer()
    write(writer, message)
    return [_HEAD.pack(kind, len(writer)) + writer.bytes()]


def decode(body: Buffer) -> list[Any]:
    """The messages of a frame body. Raft messages keep views into `body` for their batches."""
    reader = Reader(body, ProtocolError, _ON)
    count = reader.count(_HEAD.size, PEER_MESSAGES_MAX)
    messages = [_decode_one(reader.u8(), reader.block(PEER_FRAME_BYTES_MAX)) for _ in range(count)]
    reader.end()
    return messages


def _decode_one(kind: int, view: memoryview) -> Any:
    if kind == _RAFT:
        return message_codec.decode(view)
    read = _READERS.get(kind)
    if read is None:
        raise ProtocolError(f"peer message of unknown kind {kind}", on=_ON)
    reader = Reader(view, ProtocolError, f"{_ON}, kind {kind}")
    message = read(reader)
    reader.end()
    return message


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


def _write_request(writer: Writer, message: ControllerRequest) -> None:
    writer.u64(message.request_no).u8(message.kind).block(message.body)


def _write_reply(writer: Writer, message: ControllerReply) -> None:
    writer.u64(message.request_no).u16(message.error).text(message.text).block(message.body)


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


def _read_request(reader: Reader) -> ControllerRequest:
    number, kind = reader.u64(), reader.u8()
    return ControllerRequest(number, kind, bytes(reader.block(CONTROLLER_BODY_BYTES_MAX)))


def _read_reply(reader: Reader) -> ControllerReply:
    number, error, text = reader.u64(), reader.u16(), reader.text(CONTROLLER_TEXT_BYTES_MAX)
    return ControllerReply(number, error, text, bytes(reader.block(CONTROLLER_BODY_BYTES_MAX)))


_WRITERS: Final[dict[type, tuple[int, Callable[[Writer, Any], None]]]] = {
    NodeHeartbeat: (2, _write_heartbeat),
    NodeHeartbeatReply: (3, _write_heartbeat_reply),
    ControllerRequest: (4, _write_request),
    ControllerReply: (5, _write_reply),
}

_READERS: Final[dict[int, Callable[[Reader], Any]]] = {
    2: _read_heartbeat,
    3: _read_heartbeat_reply,
    4: _read_request,
    5: _read_reply,
}
