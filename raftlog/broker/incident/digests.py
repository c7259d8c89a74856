"""Digests of a turn's effects: for each kind of effect how many, and a checksum of them all.

Two turns that do the same have the same digests; the first digest that differs tells the kind of
effect.

Some events, such as the drain of an answer, have no effect for long. So a little of the broker's
state is in the digests too. It is the debt of the connections of this turn's events, how far the
oldest round is written, and how many of everything exist. None of it costs more on a large broker.

Every turn of a recorded broker passes here. Effects are packed as msgpack in one call, and nothing
reads them again. That tells values apart, but not classes with equal fields: the classes of
messages and writes are written beside them.
"""

import struct
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final, NamedTuple

import msgspec

from raftlog.base.checksum import crc32c
from raftlog.broker.broker import Broker
from raftlog.broker.events import Drained, Effects, Event, Job, PeerSend, Request, Write
from raftlog.broker.incident.classes import classes
from raftlog.broker.incident.jobs import function_name
from raftlog.broker.incident.value_writer import ValueWriter

KINDS: Final = (
    "writes", "sends", "unlinks", "replies", "hangups", "pauses", "reads", "jobs", "admin_replies",
    "peers", "rest", "state",
)  # fmt: skip
_PEERS: Final = KINDS.index("peers")
_REST: Final = KINDS.index("rest")
_STATE: Final = KINDS.index("state")

DIGEST: Final = struct.Struct(">BII")
"""The layout of a digest in a row."""


class Digest(NamedTuple):
    """The digest of one kind of effect: its place in `KINDS`, their number, and their CRC-32C."""

    kind: int
    effect_count: int
    crc: int


def digests_of(broker: Broker, events: Sequence[Event], effects: Effects) -> list[Digest]:
    """The digests of a turn, after it, in the order of `KINDS`.

    "rest" and "state" are always among them.

    Raises `NotRecordable` when an effect holds a value that a recording cannot hold.
    """
    found = [
        Digest(kind, len(values), _checksum(how(values)))
        for kind, of_kind, how in _LISTS
        if (values := of_kind(effects))
    ]
    if effects.peers is not None:
        found.append(Digest(_PEERS, len(effects.peers), _checksum(effects.peers)))
    rest = (effects.stopped, effects.acks_may_wait, effects.wake_at)
    found.append(Digest(_REST, len(rest), _checksum(rest)))
    state = _state(broker, events)
    found.append(Digest(_STATE, len(state), _checksum(state)))
    return found


def described(digest: Digest) -> str:
    """A digest as people read it."""
    return f"{digest.effect_count} {KINDS[digest.kind]}, checksum {digest.crc:08x}"


def _checksum(values: Sequence[Any]) -> int:
    try:
        return crc32c(_pack(values))
    except (TypeError, ValueError, OverflowError, RecursionError):
        # The value may be an integer of more than 64 bits, a lone surrogate, or one without a
        # msgpack form. The codec of events takes everything that a recording can hold, and names
        # what it cannot.
        writer = ValueWriter(None, folded=True)
        writer.value(values)
        return crc32c(writer.buffer)


def _with_ops(writes: list[Write]) -> Sequence[Any]:
    return [writes, [type(op).__name__ for write in writes for op in write.ops]]


def _with_messages(sends: list[PeerSend]) -> Sequence[Any]:
    return [sends, [type(each).__name__ for send in sends for each in send.messages]]


def _without_arguments(jobs: list[Job]) -> Sequence[Any]:
    """Jobs without their arguments, which are objects of the broker itself."""
    return [(each.token, each.directory, function_name(each.function), each.search_of)
            for each in jobs]  # fmt: skip


def _as_they_are(values: list[Any]) -> Sequence[Any]:
    return values


_HOW: Final[Mapping[str, Callable[[list[Any]], Sequence[Any]]]] = {
    "writes": _with_ops,
    "sends": _with_messages,
    "jobs": _without_arguments,
}
_LISTS: Final = [
    (kind, attrgetter(name), _HOW.get(name, _as_they_are))
    for kind, name in enumerate(KINDS[:_PEERS])
]
"""The effects that are lists: their place in `KINDS`, how to get them, which fields are compared.
"""


def _state(broker: Broker, events: Sequence[Event]) -> list[Any]:
    context = broker.context
    ledger = context.ledger
    counts = (len(ledger), len(context.sessions), len(context.replicas), context.jobs_pending)
    named = [each.connection for each in events if type(each) is Drained or type(each) is Request]
    owed = [(each, ledger.owed(each)) for each in dict.fromkeys(named)]
    return [*counts, context.image.version, _oldest_round(broker), *owed]


def _oldest_round(broker: Broker) -> tuple[int, ...]:
    """The state of the oldest round.

    The end of its writing changes nothing else before its sync.
    """
    for io_id, found in broker.volume.rounds.items():
        return (io_id, *(replica.log.written_index for replica in found.replicas[:1]))
    return ()


def _plain(value: Any) -> Any:
    """The fields of an object that msgpack does not know."""
    if isinstance(value, deque):
        return list(value)
    known = classes().get(type(value))
    if known is None:
        raise TypeError(type(value))
    return [getattr(value, name, None) for name in known.fields]


_pack: Final = msgspec.msgpack.Encoder(enc_hook=_plain).encode
