"""The `head` file: the entry with which a log begins since retention removed the ones before.

A boot that finds segments missing at the beginning could not otherwise tell retention from loss.
The file is written, durably, before the first segment is removed. Layout (big-endian), two equal
copies:

      0  magic "rlhead\\0\\0"      8  format version u16 = 1     10  reserved u16 = 0
     12  cluster id, 16 bytes     28  group u64                 36  replica id, 20 bytes
     56  first raft index u64     64  CRC-32C of all before, u32

Every version has copies of this size with the checksum there, so that a later one is told from
damage.
"""

from typing import Final

from raftlog.base.binary import Buffer, Reader, Writer
from raftlog.base.checksum import crc32c
from raftlog.base.entries import read_replica_id, write_replica_id
from raftlog.base.errors import CorruptData, FutureFormat
from raftlog.base.ids import RaftIndex
from raftlog.base.ports import Disk
from raftlog.storage.files import read_whole, write_whole
from raftlog.storage.replica import AWAY_SUFFIX, HEAD_FILE, ReplicaSpec

MAGIC: Final = b"rlhead\x00\x00"
VERSION: Final = 1
_COPY_BYTES: Final = 68


def write_head(disk: Disk, spec: ReplicaSpec, first_index: RaftIndex) -> None:
    """Write the head file; it is durable when this returns."""
    writer = Writer().raw(MAGIC).u16(VERSION).u16(0).raw(spec.cluster).u64(spec.group)
    write_replica_id(writer, spec.replica)
    content = writer.u64(first_index).bytes()
    copy = content + crc32c(content).to_bytes(4, "big")
    write_whole(disk, f"{spec.path}/{HEAD_FILE}", copy + copy)


def read_head(disk: Disk, spec: ReplicaSpec) -> RaftIndex | None:
    """The entry with which the log begins; None when nothing was ever removed.

    `CorruptData` when both copies are damaged or the file is another replica's, `FutureFormat` when
    a later release wrote it.
    """
    path = f"{spec.path}/{HEAD_FILE}"
    if not disk.exists(path):
        path += AWAY_SUFFIX  # see `find_live_files`
        if not disk.exists(path):
            return None
    view = memoryview(read_whole(disk, path, 2 * _COPY_BYTES))
    for copy in (view[:_COPY_BYTES], view[_COPY_BYTES:]):
        if len(copy) == _COPY_BYTES and crc32c(copy[:-4]) == int.from_bytes(copy[-4:], "big"):
            return _parse(copy[:-4], spec, path)
    raise CorruptData("both copies of the head file are damaged", on=path)


def _parse(copy: Buffer, spec: ReplicaSpec, path: str) -> RaftIndex:
    reader = Reader(copy, CorruptData, path)
    if bytes(reader.take(len(MAGIC))) != MAGIC:
        raise reader.fail("not a head file")
    version, reserved = reader.u16(), reader.u16()
    if version > VERSION:
        raise FutureFormat(f"head file of version {version}, this release reads {VERSION}", on=path)
    if version != VERSION or reserved != 0:
        raise reader.fail(f"head file of version {version} with reserved {reserved}")
    told = (bytes(reader.take(16)), reader.u64(), read_replica_id(reader))
    if told != (spec.cluster, spec.group, spec.replica):
        raise reader.fail(f"head file of group {told[1]}, replica {told[2]}")
    first_index = RaftIndex(reader.u64())
    reader.end()
    return first_index
