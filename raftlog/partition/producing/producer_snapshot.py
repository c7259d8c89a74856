"""Writes and reads the producer table before one raft index as canonical bytes with a digest.

Equal tables give equal bytes, on every replica. Layout (big-endian):

    0  magic "RLPS"      4  version u16 = 1     6  group u64
    14 raft index u64 (the first entry that is not in it)
    22 clock i64 (wall ms, -1 for none)
    30 count u32, then per producer, by ascending id:
           id u64, epoch u16, last seen i64, spans u8 (1 to 5),
           per span: first sequence u32, last sequence u32, base offset u64
    .. digest: BLAKE2b-128 over all before it

Group and index are part of it, so that a reader refuses a snapshot that lies in the wrong place.
"""

import hashlib
from typing import Final

from raftlog.base.binary import Buffer, Reader, Writer
from raftlog.base.errors import CorruptData, FutureFormat, RaftlogError
from raftlog.base.ids import GroupId, RaftIndex
from raftlog.base.limits import (
    PRODUCER_SNAPSHOT_BYTES_MAX,
    PRODUCER_SPANS_MAX,
    PRODUCERS_MAX,
)
from raftlog.partition.producing.producers import SEQUENCES, ProducerState, ProducerTable, Span

MAGIC: Final = b"RLPS"
VERSION: Final = 1
_DIGEST_BYTES: Final = 16
_PRODUCER_BYTES_MIN: Final = 19


def write_producers(table: ProducerTable, *, group: GroupId, before: RaftIndex) -> bytes:
    """The snapshot of a table that has followed the log up to the entry before `before`."""
    writer = Writer().raw(MAGIC).u16(VERSION).u64(group).u64(before).i64(table.clock_ms)
    states = table.states()
    writer.u32(len(states))
    for producer_id, state in states:
        writer.u64(producer_id).u16(state.epoch).i64(state.last_seen_ms).u8(len(state.spans))
        for span in state.spans:
            writer.u32(span.first_sequence).u32(span.last_sequence).u64(span.base_offset)
    body = writer.bytes()
    return body + _digest(body)


def digest_of(snapshot: Buffer) -> bytes:
    """The digest at the end of a snapshot that `write_producers` made."""
    return bytes(memoryview(snapshot)[-_DIGEST_BYTES:])


def load_producers(
    table: ProducerTable,
    snapshot: Buffer,
    *,
    group: GroupId,
    before: RaftIndex,
    error: type[RaftlogError],
) -> None:
    """Replace the table's state by a snapshot's.

    Raises `error` when the snapshot is damaged or is not of this group and place, and
    `FutureFormat` for an unknown version. The table is unchanged then.
    """
    reader = Reader(snapshot, error, f"producer snapshot of group {group}")
    view = memoryview(snapshot)
    if not _DIGEST_BYTES < len(view) <= PRODUCER_SNAPSHOT_BYTES_MAX:
        raise reader.fail(f"producer snapshot has {len(view)} bytes")
    body = view[:-_DIGEST_BYTES]
    if _digest(body) != view[-_DIGEST_BYTES:]:
        raise reader.fail("producer snapshot fails its digest")
    reader = Reader(body, error, f"producer snapshot of group {group}")
    _read_head(reader, group, before)
    clock_ms = reader.i64()
    states: dict[int, ProducerState] = {}
    last_id = -1
    for _ in range(reader.count(_PRODUCER_BYTES_MIN, PRODUCERS_MAX)):
        producer_id = reader.u64()
        if producer_id <= last_id:
            raise reader.fail(f"producer {producer_id} after {last_id}")
        last_id = producer_id
        states[producer_id] = _read_state(reader)
    reader.end()
    table.load(clock_ms, states)


def check_producers(group: GroupId, before: RaftIndex, body: Buffer) -> None:
    """Check a producer snapshot: raises as `load_producers` does, with `CorruptData`. It is the
    `StateCheck` of a replica without a machine."""
    load_producers(ProducerTable(), body, group=group, before=before, error=CorruptData)


def _digest(body: Buffer) -> bytes:
    return hashlib.blake2b(body, digest_size=_DIGEST_BYTES).digest()


def _read_head(reader: Reader, group: GroupId, before: RaftIndex) -> None:
    if bytes(reader.take(len(MAGIC))) != MAGIC:
        raise reader.fail("not a producer snapshot")
    version = reader.u16()
    if version != VERSION:
        raise FutureFormat(f"producer snapshot of version {version}, this release reads {VERSION}")
    told_group, told_before = reader.u64(), reader.u64()
    if (told_group, told_before) != (group, before):
        raise reader.fail(
            f"producer snapshot of group {told_group} before {told_before}, "
            f"wanted {group} before {before}"
        )


def _read_state(reader: Reader) -> ProducerState:
    epoch, last_seen_ms, count = reader.u16(), reader.i64(), reader.u8()
    if not 1 <= count <= PRODUCER_SPANS_MAX:
        raise reader.fail(f"{count} spans of a producer")
    spans = []
    for _ in range(count):
        span = Span(reader.u32(), reader.u32(), reader.u64())
        if span.first_sequence >= SEQUENCES or span.last_sequence >= SEQUENCES:
            raise reader.fail(f"span {span} has no such sequence")
        spans.append(span)
    return ProducerState(epoch, tuple(spans), last_seen_ms)
