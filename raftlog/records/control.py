"""Raft's own entries as record batches: control bit, zero offsets wide, never sent to a client.

After the 61-byte header, under the batch CRC (big-endian):

    61 kind u8   62 payload version u8 = 1   63 reserved u16 = 0
    65 group u64   73 term u32   77 raft index u64   85 body

Group, term and index are repeated, so that an entry in the wrong file or place can be detected. The
functions below write and read the body of each kind. An entry that only a later release can have
written is `FutureFormat`.
"""

import struct
from typing import Final, NamedTuple

from raftlog.base.binary import Buffer, Reader, Writer
from raftlog.base.checksum import crc32c
from raftlog.base.entries import (
    Entry,
    EntryKind,
    Membership,
    read_membership,
    read_replica_id,
    write_membership,
    write_replica_id,
)
from raftlog.base.errors import CorruptData, RaftlogError
from raftlog.base.ids import GroupId, Offset, RaftIndex, ReplicaId, Term
from raftlog.base.limits import BATCH_HEADER_BYTES, CONTROL_BATCH_BYTES_MAX
from raftlog.base.units import WallMillis
from raftlog.records.batch import (
    CONTROL,
    CRC_FROM,
    HEADER,
    LENGTH_OVERHEAD,
    MAGIC,
    PAYLOAD_VERSION,
    kind_of,
)

_PREFIX: Final = struct.Struct(">BBHQIQ")


class ControlEntry(NamedTuple):
    """One of Raft's own entries, decoded."""

    kind: EntryKind
    group: GroupId
    term: Term
    raft_index: RaftIndex
    body: bytes


class TermStart(NamedTuple):
    """Body of TERM_START: the leader, and the producer expiry cut-off (wall ms, -1 for none)."""

    leader: ReplicaId
    producers_expire_before_ms: WallMillis


class ForcedRecovery(NamedTuple):
    """Body of FORCED_RECOVERY: an operator let the log go on without these voters.

    `lost` are the voters that never come back. `claimed_index` is the last entry that this replica
    is known to have held. It lies above this entry when the operator gave up damaged entries in
    between; it is 0 when there were none."""

    lost: tuple[ReplicaId, ...]
    claimed_index: RaftIndex


class Marker(NamedTuple):
    """Body of MARKER, which the leader writes periodically.

    `digest` is that of the state machine of an internal topic's partition
    (raftlog.partition.machine.machine_feed); b"" for a partition without one."""

    producers_expire_before_ms: WallMillis
    digest: bytes


def build_control_entry(
    kind: EntryKind,
    *,
    group: GroupId,
    term: Term,
    raft_index: RaftIndex,
    base_offset: Offset,
    timestamp_ms: WallMillis,
    body: bytes,
) -> Entry:
    """Make one of Raft's own entries with its batch. `base_offset` is the log's next offset; the
    entry takes no offset."""
    assert kind is not EntryKind.RECORDS
    payload = _PREFIX.pack(kind, PAYLOAD_VERSION, 0, group, term, raft_index) + body
    size = BATCH_HEADER_BYTES + len(payload)
    assert size <= CONTROL_BATCH_BYTES_MAX, size
    batch = bytearray(
        HEADER.pack(
            base_offset, size - LENGTH_OVERHEAD, term, MAGIC, 0, CONTROL, -1,
            timestamp_ms, timestamp_ms, -1, -1, -1, 0,
        )
    )  # fmt: skip
    batch += payload
    struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[CRC_FROM:]))
    return Entry(raft_index, term, kind, base_offset, base_offset, bytes(batch))


def parse_control_entry(batch: Buffer, error: type[RaftlogError], on: str) -> ControlEntry:
    """Decode a whole batch that is one of Raft's own entries (`batch.kind_of`). Does not check the
    CRC."""
    kind = kind_of(batch, error, on)
    reader = Reader(batch, error, on, position=BATCH_HEADER_BYTES + 2)
    reserved = reader.u16()
    if reserved != 0:
        raise reader.fail(f"raft entry has reserved {reserved}")
    group, term, index = reader.u64(), reader.u32(), reader.u64()
    body = bytes(reader.take(reader.remaining()))
    return ControlEntry(kind, GroupId(group), Term(term), RaftIndex(index), body)


def write_term_start(value: TermStart) -> bytes:
    """Body of TERM_START: replica id, cut-off i64."""
    writer = Writer()
    write_replica_id(writer, value.leader)
    return writer.i64(value.producers_expire_before_ms).bytes()


def read_term_start(body: bytes) -> TermStart:
    """The reverse of `write_term_start`."""
    reader = Reader(body, CorruptData, "term start")
    value = TermStart(read_replica_id(reader), WallMillis(reader.i64()))
    reader.end()
    return value


def write_forced_recovery(value: ForcedRecovery) -> bytes:
    """Body of FORCED_RECOVERY: claimed index u64, count u16, replica ids."""
    writer = Writer().u64(value.claimed_index).u16(len(value.lost))
    for replica in value.lost:
        write_replica_id(writer, replica)
    return writer.bytes()


def read_forced_recovery(body: bytes) -> ForcedRecovery:
    """The reverse of `write_forced_recovery`."""
    reader = Reader(body, CorruptData, "forced recovery")
    claimed = RaftIndex(reader.u64())
    lost = tuple(read_replica_id(reader) for _ in range(reader.u16()))
    reader.end()
    return ForcedRecovery(lost, claimed)


def write_membership_body(membership: Membership) -> bytes:
    """Body of MEMBERSHIP: the whole configuration that is in force from this entry on."""
    writer = Writer()
    write_membership(writer, membership)
    return writer.bytes()


def read_membership_body(body: bytes) -> Membership:
    """The reverse of `write_membership_body`."""
    reader = Reader(body, CorruptData, "membership entry")
    membership = read_membership(reader)
    reader.end()
    return membership


def write_log_start(log_start: Offset) -> bytes:
    """Body of LOG_START: the new first readable offset; at most the high watermark of its time."""
    return Writer().u64(log_start).bytes()


def read_log_start(body: bytes) -> Offset:
    """The reverse of `write_log_start`."""
    reader = Reader(body, CorruptData, "log start marker")
    log_start = Offset(reader.u64())
    reader.end()
    return log_start


def write_marker(value: Marker) -> bytes:
    """Body of MARKER: cut-off i64, digest as a block."""
    return Writer().i64(value.producers_expire_before_ms).block(value.digest).bytes()


def read_marker(body: bytes) -> Marker:
    """The reverse of `write_marker`."""
    reader = Reader(body, CorruptData, "periodic marker")
    value = Marker(WallMillis(reader.i64()), bytes(reader.block(64)))
    reader.end()
    return value
