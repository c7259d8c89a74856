"""Files with the state before one raft index: producer state of a partition, or group 0's image.

The head's snapshot is data: without it an idempotent retry would be taken for a new batch. The
others shorten a replay. A file is written whole under another name, synced, renamed, and its
directory synced. So a file under the final name that fails its digest is damage. Layout
(big-endian):

      0  magic "rlstate\\0"        8  format version u16 = 1     10  minimum reader version u16
     12  cluster id, 16 bytes     28  group u64                 36  replica id, 20 bytes
     56  position: raft index u64, term u32, chain u64, next offset u64, log start u64,
         membership index u64, membership as a u32 length and that many bytes
     ..  body as a u64 length and that many bytes
     ..  BLAKE2b-256 of all before, 32 bytes
"""

import hashlib
from collections.abc import Callable
from typing import Final

from raftlog.base.binary import Buffer, Reader, Writer
from raftlog.base.entries import (
    InstallPosition,
    read_membership,
    read_replica_id,
    write_membership,
    write_replica_id,
)
from raftlog.base.errors import CorruptData, FutureFormat
from raftlog.base.ids import Chain, Offset, RaftIndex, Term
from raftlog.base.limits import CONTROL_BATCH_BYTES_MAX, SNAPSHOT_BYTES_MAX
from raftlog.base.ports import Disk
from raftlog.base.probes import probe
from raftlog.storage.files import read_whole, write_whole
from raftlog.storage.replica import ReplicaSpec, parse_snapshot_name, snapshot_name
from raftlog.storage.segments.term_table import TermTable

MAGIC: Final = b"rlstate\x00"
VERSION: Final = 1
_DIGEST_BYTES: Final = 32


def snapshot_bytes(
    spec: ReplicaSpec, position: InstallPosition, body: Buffer, *, judged: bool = False
) -> bytes:
    """The file's bytes.

    Raises what `ReplicaSpec.check_state` raises for the body, unless that was `judged` already.
    """
    if not judged:
        spec.check_state(spec.group, RaftIndex(position.raft_index + 1), body)
    assert len(body) <= SNAPSHOT_BYTES_MAX, len(body)
    membership = Writer()
    write_membership(membership, position.membership)
    writer = Writer().raw(MAGIC).u16(VERSION).u16(VERSION).raw(spec.cluster).u64(spec.group)
    write_replica_id(writer, spec.replica)
    writer.u64(position.raft_index).u32(position.term).u64(position.chain)
    writer.u64(position.next_offset).u64(position.log_start)
    writer.u64(position.membership_index).block(membership.bytes())
    content = writer.u64(len(body)).raw(body).bytes()
    return content + _digest(content)


def parse_snapshot(spec: ReplicaSpec, data: Buffer, on: str) -> tuple[InstallPosition, bytes]:
    """Position and body of a snapshot.

    Raises `CorruptData` when the bytes are not whole or not this replica's, or the body is no
    state, and `FutureFormat` when file or body need a newer reader.
    """
    view = memoryview(data)
    content = view[:-_DIGEST_BYTES]
    if len(view) < _DIGEST_BYTES or _digest(content) != view[-_DIGEST_BYTES:]:
        raise CorruptData("snapshot fails its digest", on=on)
    reader = Reader(content, CorruptData, on)
    if bytes(reader.take(len(MAGIC))) != MAGIC:
        raise reader.fail("not a snapshot")
    version, reader_min = reader.u16(), reader.u16()
    if reader_min > VERSION:
        raise FutureFormat(f"snapshot of version {version}, this release reads {VERSION}", on=on)
    told = (bytes(reader.take(16)), reader.u64(), read_replica_id(reader))
    if told != (spec.cluster, spec.group, spec.replica):
        raise reader.fail(f"snapshot of group {told[1]}, replica {told[2]}")
    index, term, chain = RaftIndex(reader.u64()), Term(reader.u32()), Chain(reader.u64())
    next_offset, log_start = Offset(reader.u64()), Offset(reader.u64())
    membership_index = RaftIndex(reader.u64())
    block = Reader(reader.block(CONTROL_BATCH_BYTES_MAX), CorruptData, on)
    membership = read_membership(block)
    block.end()
    body = bytes(reader.take(reader.u64()))
    reader.end()
    spec.check_state(spec.group, RaftIndex(index + 1), body)
    position = InstallPosition(
        raft_index=index,
        term=term,
        chain=chain,
        next_offset=next_offset,
        log_start=log_start,
        membership=membership,
        membership_index=membership_index,
    )
    return position, body


def write_snapshot(disk: Disk, spec: ReplicaSpec, position: InstallPosition, body: Buffer) -> None:
    """Job: put the state before entry `position.raft_index + 1` beside the segments, durably."""
    name = snapshot_name(RaftIndex(position.raft_index + 1))
    write_whole(disk, f"{spec.path}/{name}", snapshot_bytes(spec, position, body))


def write_made_snapshot(
    disk: Disk, spec: ReplicaSpec, position: InstallPosition, make: Callable[[], Buffer]
) -> None:
    """Job: write a snapshot whose body is made here, off the loop.

    `make` gives the same bytes whenever it is called.
    """
    write_snapshot(disk, spec, position, make())


def read_snapshot(
    disk: Disk, spec: ReplicaSpec, before: RaftIndex
) -> tuple[InstallPosition, bytes]:
    """The state before that entry, from its file.

    Raises as `parse_snapshot` does, and `CorruptData` when there is no file.
    """
    path = f"{spec.path}/{snapshot_name(before)}"
    if not disk.exists(path):
        raise CorruptData(f"the state before entry {before} is not there", on=path)
    position, body = parse_snapshot(spec, read_whole(disk, path, _FILE_BYTES_MAX), path)
    if position.raft_index != before - 1:
        raise CorruptData("a snapshot of another index under this name", on=path)
    return position, body


def newest_snapshot(
    disk: Disk, spec: ReplicaSpec, at_or_below: RaftIndex, terms: TermTable | None = None
) -> tuple[InstallPosition, bytes] | None:
    """Job: the whole snapshot with the highest raft index that is at most `at_or_below`.

    With `terms`, only snapshots whose entry is in that log count: equal index and term mean an
    equal log up to there (Raft 5.3). A snapshot holds committed entries, and the log on the disk
    may be newer: at a crash it may still end in entries that were never committed.

    A damaged snapshot is skipped: an older one and the entries after it give the same state. One of
    a later release is `FutureFormat`: it may hold more than these.
    """
    for before in sorted(snapshots_of(disk, spec.path), reverse=True):
        if before - 1 > at_or_below:
            continue
        try:
            found = read_snapshot(disk, spec, before)
        except CorruptData:
            probe("damaged-snapshot-passed-over")
            continue
        if terms is None or terms.holds(found[0].raft_index, found[0].term):
            return found
        probe("snapshot-of-another-log-passed-over")
    return None


def snapshots_of(disk: Disk, path: str) -> list[RaftIndex]:
    """The indexes that a replica has snapshot files before, ascending, whole or not."""
    found = (parse_snapshot_name(name) for name in disk.list(path))
    return sorted(before for before in found if before is not None)


_FILE_BYTES_MAX: Final = SNAPSHOT_BYTES_MAX + CONTROL_BATCH_BYTES_MAX


def _digest(content: Buffer) -> bytes:
    return hashlib.blake2b(content, digest_size=_DIGEST_BYTES).digest()
