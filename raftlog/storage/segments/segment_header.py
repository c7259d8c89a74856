"""The first 4 KiB of a segment file: everything that a boot needs before it reads a batch.

Two equal copies of 2,048 bytes, so that one bad sector of 512 bytes or 2 KiB cannot take both. A
copy is (big-endian):

      0  magic "raftlog\\0"            60  file sequence u64
      8  format version u16 = 1        68  first raft index u64
     10  minimum reader version u16    76  base offset u64
     12  flags u32                     84  term before u32
     16  cluster id, 16 bytes          88  term in force u32
     32  group u64                     92  chain before u64
     40  replica id, 20 bytes         100  log start u64
    108  repair index u64             116  repair term u32
    120  membership index u64         128  membership: a u32 length and that many bytes
    ...  zeros                       2044  CRC-32C of bytes 0 to 2043, u32

"Before" refers to the entry at first raft index - 1. The term in force is that of the entry for
which the file was begun. Unknown flags, a reserved byte that is not zero, or a higher minimum
reader version are refused, never skipped.
"""

from typing import Final, final

import attrs

from raftlog.base.binary import Buffer, Reader, Writer
from raftlog.base.checksum import crc32c
from raftlog.base.entries import (
    Membership,
    read_membership,
    read_replica_id,
    write_membership,
    write_replica_id,
)
from raftlog.base.errors import CorruptData, FutureFormat
from raftlog.base.ids import Chain, ClusterId, GroupId, Offset, RaftIndex, ReplicaId, Term
from raftlog.base.limits import SEGMENT_HEADER_BYTES

MAGIC: Final = b"raftlog\x00"
VERSION: Final = 1
FLAG_RESET: Final = 1
"""The file begins a new log (an install): all older files are void, not only above it."""
FLAG_REPAIR: Final = 2
"""The file follows damage: the replica once held more, up to (repair index, repair term). That ends
when its log passes that place."""

_COPY_BYTES: Final = SEGMENT_HEADER_BYTES // 2
_CRC_AT: Final = _COPY_BYTES - 4
_FLAGS_KNOWN: Final = FLAG_RESET | FLAG_REPAIR
_MEMBERSHIP_BYTES_MAX: Final = _CRC_AT - 132


@final
@attrs.frozen(kw_only=True)
class SegmentHeader:
    """The fields of the header; `term_before` and `chain_before` are those of `first_index - 1`."""

    cluster: ClusterId
    group: GroupId
    replica: ReplicaId
    file_sequence: int
    first_index: RaftIndex
    base_offset: Offset
    term_before: Term
    term: Term
    chain_before: Chain
    log_start: Offset
    membership: Membership
    membership_index: RaftIndex
    reset: bool = False
    repair: tuple[RaftIndex, Term] | None = None


def write_segment_header(header: SegmentHeader) -> bytes:
    """The 4 KiB of a header."""
    flags = (FLAG_RESET if header.reset else 0) | (FLAG_REPAIR if header.repair else 0)
    repair_index, repair_term = header.repair or (0, 0)
    membership = Writer()
    write_membership(membership, header.membership)
    assert len(membership) <= _MEMBERSHIP_BYTES_MAX, len(membership)
    writer = Writer().raw(MAGIC).u16(VERSION).u16(VERSION).u32(flags).raw(header.cluster)
    writer.u64(header.group)
    write_replica_id(writer, header.replica)
    writer.u64(header.file_sequence).u64(header.first_index).u64(header.base_offset)
    writer.u32(header.term_before).u32(header.term).u64(header.chain_before)
    writer.u64(header.log_start).u64(repair_index).u32(repair_term)
    writer.u64(header.membership_index).block(membership.bytes())
    writer.raw(bytes(_CRC_AT - len(writer)))
    copy = writer.u32(crc32c(writer.bytes())).bytes()
    assert len(copy) == _COPY_BYTES, len(copy)
    return copy + copy


def read_segment_header(data: Buffer, on: str) -> SegmentHeader:
    """The header from a file's first 4 KiB: the first copy that is whole.

    Raises `CorruptData` when no copy is whole (or when two whole copies differ), `FutureFormat`
    when the file asks for a newer reader.
    """
    if len(data) < SEGMENT_HEADER_BYTES:
        raise CorruptData(f"segment file has {len(data)} bytes, its header has 4096", on=on)
    view = memoryview(data)
    copies = [view[:_COPY_BYTES], view[_COPY_BYTES:SEGMENT_HEADER_BYTES]]
    whole = [copy for copy in copies if _is_whole(copy)]
    if not whole:
        raise CorruptData("both copies of the segment header are damaged", on=on)
    if len(whole) == len(copies) and whole[0] != whole[1]:
        raise CorruptData("the copies of the segment header differ", on=on)
    return _read_copy(whole[0], on)


def header_needs_repair(data: Buffer) -> bool:
    """Whether one of the two copies is damaged (the scrubber reports that before both are)."""
    view = memoryview(data)
    return not (_is_whole(view[:_COPY_BYTES]) and _is_whole(view[_COPY_BYTES:SEGMENT_HEADER_BYTES]))


def _is_whole(copy: memoryview) -> bool:
    stored = int.from_bytes(copy[_CRC_AT:], "big")
    return bytes(copy[: len(MAGIC)]) == MAGIC and crc32c(copy[:_CRC_AT]) == stored


def _read_copy(copy: memoryview, on: str) -> SegmentHeader:
    reader = Reader(copy[:_CRC_AT], CorruptData, on, position=len(MAGIC))
    version, reader_min = reader.u16(), reader.u16()
    if reader_min > VERSION:
        raise FutureFormat(
            f"segment of version {version} needs reader version {reader_min}, this is {VERSION}",
            on=on,
            do="use the release that wrote it, or a later one",
        )
    flags = reader.u32()
    if flags & ~_FLAGS_KNOWN:
        raise reader.fail(f"segment header has unknown flags {flags:#x}")
    cluster = ClusterId(bytes(reader.take(16)))
    group = GroupId(reader.u64())
    replica = read_replica_id(reader)
    file_sequence, first_index, base_offset = reader.u64(), reader.u64(), reader.u64()
    term_before, term, chain_before = reader.u32(), reader.u32(), reader.u64()
    log_start, repair_index, repair_term = reader.u64(), reader.u64(), reader.u32()
    membership_index = reader.u64()
    block = Reader(reader.block(_MEMBERSHIP_BYTES_MAX), CorruptData, on)
    membership = read_membership(block)
    block.end()
    if version <= VERSION and bytes(reader.take(reader.remaining())).strip(b"\0"):
        raise reader.fail("segment header has reserved bytes that are not zero")
    return SegmentHeader(
        cluster=cluster,
        group=group,
        replica=replica,
        file_sequence=file_sequence,
        first_index=RaftIndex(first_index),
        base_offset=Offset(base_offset),
        term_before=Term(term_before),
        term=Term(term),
        chain_before=Chain(chain_before),
        log_start=Offset(log_start),
        membership=membership,
        membership_index=RaftIndex(membership_index),
        reset=bool(flags & FLAG_RESET),
        repair=(RaftIndex(repair_index), Term(repair_term)) if flags & FLAG_REPAIR else None,
    )
