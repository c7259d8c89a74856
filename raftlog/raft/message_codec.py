"""Raft messages as bytes, for frames between peers; big-endian. Part of peer protocol 1
(`raftlog.broker.peer_codec`): another layout is another version of that. The promise in an
echo of a read round has no place here; protocol 2 writes it before the message.

     0  kind u8             1  group u64
     9  sender: node u32, directory u64, epoch u64
    29  to: the same       49  term u32
    53  body, by kind:

     1  PreVoteRequest   last index u64, last term u32
     2  PreVoteReply     granted u8
     3  VoteRequest      last index u64, last term u32, transfer u8
     4  VoteReply        granted u8
     5  Append           prev index u64, prev term u32, prev chain u64, commit u64, context u64,
                         batches to the end
     6  AppendReply      match u64, damaged u8
     7  AppendRefused    reason u8, prev index u64, hint index u64, hint term u32
     8  ReadEcho         context u64
     9  Install          position, total u64, start u64, the piece to the end
    10  InstallReply     index u64, received u64
    11  TimeoutNow       nothing

A position is index u64, term u32, chain u64, next offset u64, log start u64, membership index u64
and the membership (raftlog.base.entries). A message ends where its bytes end: the frame says how
long it is. Batches and snapshot pieces are passed on as they are, never copied. Whatever does not
parse is `ProtocolError`; an entry that only a later release can have made becomes `Unreadable`.
"""

import struct
from collections.abc import Callable
from typing import Final, Never

from raftlog.base.binary import Buffer, Reader, Writer
from raftlog.base.entries import (
    Entry,
    InstallPosition,
    read_membership,
    write_membership,
)
from raftlog.base.errors import FutureFormat, ProtocolError
from raftlog.base.ids import (
    TERM_MAX,
    Chain,
    DirectoryId,
    GroupId,
    NodeId,
    Offset,
    RaftIndex,
    ReplicaEpoch,
    ReplicaId,
    Term,
)
from raftlog.base.limits import INSTALL_BYTES_MAX
from raftlog.raft.messages import (
    Append,
    AppendRefused,
    AppendReply,
    Install,
    InstallReply,
    PreVoteReply,
    PreVoteRequest,
    RaftMessage,
    ReadEcho,
    RefusalReason,
    TimeoutNow,
    Unreadable,
    VoteReply,
    VoteRequest,
)
from raftlog.records.batch import entries_of

_ON: Final = "raft message"
_HEAD: Final = struct.Struct(">BQIQQIQQI")
_APPEND: Final = struct.Struct(">QIQQQ")
_REPLY: Final = struct.Struct(">QB")
_INDEX_MAX: Final = 2**63 - 1

_Encoder = Callable[[Never], list[Buffer]]
_Decoder = Callable[["_Head", Reader], RaftMessage]
_Head = tuple[GroupId, ReplicaId, ReplicaId, Term]


def encode(message: RaftMessage) -> list[Buffer]:
    """The parts of one message, to be sent one after another."""
    kind, encoder = _ENCODERS[type(message)]
    sender, to = message.sender, message.to
    head = _HEAD.pack(kind, message.group, *sender, *to, message.term)
    parts = encoder(message)  # type: ignore[arg-type]  # looked up by its own type
    parts[0] = head + parts[0]
    return parts


def decode(data: Buffer) -> RaftMessage:
    """The message that exactly these bytes are. Entries and pieces are views into `data`."""
    view = memoryview(data)
    if len(view) < _HEAD.size:
        raise ProtocolError(f"{len(view)} bytes, a raft message has {_HEAD.size}", on=_ON)
    kind, group, a, b, c, d, e, f, term = _HEAD.unpack_from(view)
    decoder = _DECODERS.get(kind)
    if decoder is None:
        raise ProtocolError(f"raft message of unknown kind {kind}", on=_ON)
    if term > TERM_MAX:
        raise ProtocolError(f"term {term} is above {TERM_MAX}", on=_ON)
    sender = ReplicaId(NodeId(a), DirectoryId(b), ReplicaEpoch(c))
    to = ReplicaId(NodeId(d), DirectoryId(e), ReplicaEpoch(f))
    reader = Reader(view, ProtocolError, _ON, position=_HEAD.size)
    message = decoder((GroupId(group), sender, to, Term(term)), reader)
    reader.end()
    return message


# --- parts of messages ----------------------------------------------------------------------------


def _index(reader: Reader) -> RaftIndex:
    value = reader.u64()
    if value > _INDEX_MAX:
        raise reader.fail(f"index {value} is above {_INDEX_MAX}")
    return RaftIndex(value)


def _term(reader: Reader) -> Term:
    value = reader.u32()
    if value > TERM_MAX:
        raise reader.fail(f"term {value} is above {TERM_MAX}")
    return Term(value)


def _rest(reader: Reader) -> memoryview:
    return reader.take(reader.remaining())


def _write_position(writer: Writer, position: InstallPosition) -> None:
    writer.u64(position.raft_index).u32(position.term).u64(position.chain)
    writer.u64(position.next_offset).u64(position.log_start).u64(position.membership_index)
    write_membership(writer, position.membership)


def _read_position(reader: Reader) -> InstallPosition:
    raft_index, term, chain = _index(reader), _term(reader), Chain(reader.u64())
    next_offset, log_start = Offset(_index(reader)), Offset(_index(reader))
    membership_index, membership = _index(reader), read_membership(reader)
    if not membership.voters or log_start > next_offset or membership_index > raft_index:
        raise reader.fail("install position contradicts itself")
    return InstallPosition(
        raft_index=raft_index,
        term=term,
        chain=chain,
        next_offset=next_offset,
        log_start=log_start,
        membership=membership,
        membership_index=membership_index,
    )


# --- message by message ---------------------------------------------------------------------------


def _put_pre_vote_request(message: PreVoteRequest) -> list[Buffer]:
    return [Writer().u64(message.last_index).u32(message.last_term).bytes()]


def _get_pre_vote_request(head: _Head, reader: Reader) -> PreVoteRequest:
    return PreVoteRequest(*head, _index(reader), _term(reader))


def _put_granted(message: PreVoteReply | VoteReply) -> list[Buffer]:
    return [Writer().flag(message.granted).bytes()]


def _get_pre_vote_reply(head: _Head, reader: Reader) -> PreVoteReply:
    return PreVoteReply(*head, reader.flag())


def _put_vote_request(message: VoteRequest) -> list[Buffer]:
    writer = Writer().u64(message.last_index).u32(message.last_term)
    return [writer.flag(message.transfer).bytes()]


def _get_vote_request(head: _Head, reader: Reader) -> VoteRequest:
    return VoteRequest(*head, _index(reader), _term(reader), reader.flag())


def _get_vote_reply(head: _Head, reader: Reader) -> VoteReply:
    return VoteReply(*head, reader.flag())


def _put_append(message: Append) -> list[Buffer]:
    fixed = _APPEND.pack(
        message.prev_index,
        message.prev_term,
        message.prev_chain,
        message.commit,
        message.read_context,
    )
    return [fixed, *[entry.batch for entry in message.entries]]


def _get_append(head: _Head, reader: Reader) -> Append | Unreadable:
    prev, prev_term, chain, commit, context = _APPEND.unpack(reader.take(_APPEND.size))
    batches = _rest(reader)
    if max(prev + len(batches), commit, context) > _INDEX_MAX or prev_term > TERM_MAX:
        raise reader.fail(f"append at {prev} of term {prev_term}, commit {commit}")
    try:
        entries: list[Entry] = entries_of(RaftIndex(prev + 1), batches, ProtocolError, _ON)
    except FutureFormat as newer:
        return Unreadable(*head, f"{newer.what}: upgrade this broker")
    return Append(
        *head, RaftIndex(prev), Term(prev_term), Chain(chain), RaftIndex(commit), context, entries
    )


def _put_append_reply(message: AppendReply) -> list[Buffer]:
    return [_REPLY.pack(message.match, message.damaged)]


def _get_append_reply(head: _Head, reader: Reader) -> AppendReply:
    return AppendReply(*head, _index(reader), reader.flag())


def _put_append_refused(message: AppendRefused) -> list[Buffer]:
    writer = Writer().u8(message.reason).u64(message.prev_index)
    return [writer.u64(message.hint_index).u32(message.hint_term).bytes()]


def _get_append_refused(head: _Head, reader: Reader) -> AppendRefused:
    reason = reader.u8()
    if reason > max(RefusalReason):
        raise reader.fail(f"unknown reason {reason} of a refusal")
    return AppendRefused(
        *head, RefusalReason(reason), _index(reader), _index(reader), _term(reader)
    )


def _put_read_echo(message: ReadEcho) -> list[Buffer]:
    return [Writer().u64(message.context).bytes()]


def _get_read_echo(head: _Head, reader: Reader) -> ReadEcho:
    return ReadEcho(*head, _index(reader))


def _put_install(message: Install) -> list[Buffer]:
    writer = Writer()
    _write_position(writer, message.position)
    return [writer.u64(message.total).u64(message.start).bytes(), message.chunk]


def _get_install(head: _Head, reader: Reader) -> Install:
    position, total, start = _read_position(reader), reader.u64(), reader.u64()
    chunk = _rest(reader)
    if total > INSTALL_BYTES_MAX or start + len(chunk) > total:
        raise reader.fail(f"piece of {len(chunk)} bytes at {start} of {total}")
    return Install(*head, position, total, start, chunk)


def _put_install_reply(message: InstallReply) -> list[Buffer]:
    return [Writer().u64(message.raft_index).u64(message.received).bytes()]


def _get_install_reply(head: _Head, reader: Reader) -> InstallReply:
    return InstallReply(*head, _index(reader), reader.u64())


def _put_timeout_now(message: TimeoutNow) -> list[Buffer]:
    return [b""]


def _get_timeout_now(head: _Head, reader: Reader) -> TimeoutNow:
    return TimeoutNow(*head)


_ENCODERS: Final[dict[type[RaftMessage], tuple[int, _Encoder]]] = {
    PreVoteRequest: (1, _put_pre_vote_request),
    PreVoteReply: (2, _put_granted),
    VoteRequest: (3, _put_vote_request),
    VoteReply: (4, _put_granted),
    Append: (5, _put_append),
    AppendReply: (6, _put_append_reply),
    AppendRefused: (7, _put_append_refused),
    ReadEcho: (8, _put_read_echo),
    Install: (9, _put_install),
    InstallReply: (10, _put_install_reply),
    TimeoutNow: (11, _put_timeout_now),
}

_DECODERS: Final[dict[int, _Decoder]] = {
    1: _get_pre_vote_request,
    2: _get_pre_vote_reply,
    3: _get_vote_request,
    4: _get_vote_reply,
    5: _get_append,
    6: _get_append_reply,
    7: _get_append_refused,
    8: _get_read_echo,
    9: _get_install,
    10: _get_install_reply,
    11: _get_timeout_now,
}

MESSAGES: Final = tuple(_ENCODERS)
"""The types of all messages."""
