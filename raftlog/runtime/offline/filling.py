"""Writes the log of a damaged sole replica once more, with a filler where records are lost.

A batch that fails its CRC is lost. The ones behind it are not: the chain goes over the headers of
batches, so a walk that passes over a damaged body still arrives at the chain that the next file's
header names, and that proves all of them. Where a header is damaged, the places of the index file
serve: a walk from one of them that arrives there proves what it passed. The rest is lost.

A filler is an empty batch over the lost offsets, as compaction leaves them in Kafka: clients pass
over it, and the records behind it keep their offsets. It stands in the chain in place of what was
lost, so the chain behind it is another one, and the whole log is written again. That is sound for a
sole voter only, for no other replica holds the old chain.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

import attrs

from raftlog.base.checksum import crc32c
from raftlog.base.entries import Entry, EntryKind
from raftlog.base.errors import CorruptData
from raftlog.base.ids import Offset, RaftIndex, Term
from raftlog.base.limits import BATCH_BYTES_MAX, BATCH_HEADER_BYTES, INDEX_FILE_BYTES_MAX
from raftlog.base.ports import Disk, DiskFile
from raftlog.base.units import WallMillis
from raftlog.records.batch import (
    CRC_FROM,
    HEADER,
    LENGTH_OVERHEAD,
    MAGIC,
    crc_matches,
    entry_of,
    read_header,
)
from raftlog.records.chain import chain_next
from raftlog.records.control import (
    Marker,
    write_log_start,
    write_marker,
)
from raftlog.runtime.offline.directory import NONE_GIVEN_UP, control_entry
from raftlog.storage.boot.recovery import create_replica
from raftlog.storage.files import opened, read_whole
from raftlog.storage.partition_log import PartitionLog
from raftlog.storage.replica import LogOptions, index_name
from raftlog.storage.segments.segment import Segment
from raftlog.storage.segments.snapshot import read_snapshot
from raftlog.storage.segments.sparse_index import read_index_file
from raftlog.storage.segments.walk import TERM_BEGINNERS, Walk, WalkPlace

_NO_PRODUCER: Final = -1
_NO_TIME: Final = WallMillis(-1)
_DELTA_MAX: Final = 2**31 - 1
_FLUSH_BYTES: Final = 1 << 20
_NO_CUT_OFF: Final = write_marker(Marker(_NO_TIME, b""))


class LostStretch(NamedTuple):
    """A stretch that cannot be read: from the place `before` up to the place `after`."""

    before: WalkPlace
    after: WalkPlace


def lost_stretches(disk: Disk, log: PartitionLog) -> list[LostStretch]:
    """The stretches that a log lost which was opened with its gaps, ascending."""
    found: list[LostStretch] = []
    for segment in log.segments:
        if segment.damage is not None:
            found += _lost_of(disk, segment)
    return found


def rewrite(
    disk: Disk, old: PartitionLog, path: str, flush: Callable[[PartitionLog], None]
) -> PartitionLog:
    """The same log at another path, with fillers for what is lost. `flush` makes durable what was
    appended. Raises `CorruptData` when what was whole a moment ago no longer is."""
    spec = attrs.evolve(old.spec, path=path)
    position = old.snapshot_position
    log = create_replica(disk, spec, position.membership, LogOptions()).log
    assert log is not None, path
    if position.raft_index > 0:
        _, body = read_snapshot(disk, old.spec, old.first_index)
        log.install(position, body)
        flush(log)
    pending = 0
    for piece in _pieces(disk, old):
        entries = [piece] if isinstance(piece, Entry) else _fillers(log, piece)
        log.append(entries)
        pending += sum(len(entry.batch) for entry in entries)
        if pending >= _FLUSH_BYTES:
            flush(log)
            pending = 0
    start = max((segment.header.log_start for segment in old.segments), default=Offset(0))
    if old.gaps and start > 0:  # the marker that says so may be among what is lost
        log.append(
            [
                control_entry(
                    log, log.last_term, EntryKind.LOG_START, write_log_start(start), _NO_TIME
                )
            ]
        )
    flush(log)
    return log


def _pieces(disk: Disk, log: PartitionLog) -> Iterator[Entry | LostStretch]:
    for segment in log.segments:
        place = segment.start()
        stretches = [] if segment.damage is None else _lost_of(disk, segment)
        with opened(disk, segment.path) as file:
            for lost in stretches:
                yield from _entries(file, segment, place, lost.before.raft_index)
                yield lost
                place = lost.after
            yield from _entries(file, segment, place, segment.end_index)


def _entries(
    file: DiskFile, segment: Segment, start: WalkPlace, stop: RaftIndex
) -> Iterator[Entry]:
    walk = Walk(file, start, segment.header.group, segment.path)
    for batch in walk.batches(stop):
        yield batch.entry._replace(batch=bytes(batch.entry.batch))
    if walk.place.raft_index < stop:
        raise CorruptData(walk.fault or f"it ends before entry {stop}", on=segment.path)


# --- what is lost ---------------------------------------------------------------------------------


def _lost_of(disk: Disk, segment: Segment) -> list[LostStretch]:
    """The stretches that a damaged segment lost.

    These are the damaged bodies alone. Else the stretch goes from the damage to the first known
    place from which the rest is whole, or to the end of the segment.
    """
    assert segment.damage is not None, segment
    with opened(disk, segment.path) as file:
        bodies = _damaged_bodies(file, segment)
        if bodies is not None:
            return bodies
        before = segment.damage.place
        for point in _points(disk, segment):
            after = _place_of(file, point, before)
            if after is not None and _reaches_the_end(file, segment, after):
                return [LostStretch(before, after)]
    end = segment.end
    after = WalkPlace(segment.end_index, end.next_offset, before.position, end.chain, end.term)
    return [LostStretch(before, after)]


def _damaged_bodies(file: DiskFile, segment: Segment) -> list[LostStretch] | None:
    """The batches whose bodies are damaged; None when a header is, so that the walk by headers does
    not arrive at the segment's end."""
    place, found, end = segment.start(), list[LostStretch](), segment.end
    while place.raft_index <= end.raft_index:
        head = file.read_at(place.position, BATCH_HEADER_BYTES)
        if len(head) < BATCH_HEADER_BYTES:
            return None
        header = read_header(head)
        plausible = (
            header.magic == MAGIC
            and header.base_offset == place.offset
            and header.leader_epoch >= place.term
            and header.last_offset_delta >= -1
            and BATCH_HEADER_BYTES <= header.size <= BATCH_BYTES_MAX
        )
        if not plausible:
            return None
        after = WalkPlace(
            RaftIndex(place.raft_index + 1),
            Offset(header.next_offset),
            place.position + header.size,
            chain_next(place.chain, head),
            Term(header.leader_epoch),
        )
        batch = file.read_at(place.position, header.size)
        if len(batch) < header.size or not crc_matches(batch, header):
            found.append(LostStretch(place, after))
        place = after
    here = (place.raft_index - 1, place.term, place.chain, place.offset)
    return found if here == tuple(end) else None


def _points(disk: Disk, segment: Segment) -> Sequence[WalkPlace]:
    """Places of the index file behind the damage, ascending; () without an index file."""
    assert segment.damage is not None, segment
    path, header = index_name(segment.path), segment.header
    with suppress(CorruptData):
        if disk.exists(path):
            interval = LogOptions().interval_bytes
            stored = read_index_file(read_whole(disk, path, INDEX_FILE_BYTES_MAX), interval, path)
            told = (stored.group, stored.file_sequence, stored.first_index)
            if told == (header.group, header.file_sequence, header.first_index):
                return [
                    WalkPlace(each.raft_index, each.offset, each.position, each.chain, Term(0))
                    for each in stored.sparse.points()
                    if each.raft_index > segment.damage.place.raft_index
                ]
    return ()


def _place_of(file: DiskFile, point: WalkPlace, before: WalkPlace) -> WalkPlace | None:
    """The point with the term that is in force there, as the batch behind it says."""
    head = file.read_at(point.position, BATCH_HEADER_BYTES + 2)
    if len(head) < BATCH_HEADER_BYTES + 2 or point.offset < before.offset:
        return None
    header = read_header(head)
    begins = header.is_raft_entry and head[BATCH_HEADER_BYTES] in TERM_BEGINNERS
    term = before.term if begins else Term(max(header.leader_epoch, 0))
    return point._replace(term=term) if term >= before.term else None


def _reaches_the_end(file: DiskFile, segment: Segment, start: WalkPlace) -> bool:
    walk = Walk(file, start, segment.header.group, segment.path)
    for _ in walk.batches(segment.end_index):
        continue
    place = walk.place
    here = (place.raft_index - 1, place.term, place.chain, place.offset)
    return here == tuple(segment.end)


# --- what takes its place -------------------------------------------------------------------------


def _fillers(log: PartitionLog, lost: LostStretch) -> list[Entry]:
    """As many entries as are lost, over the same offsets. The first begins the term, when a later
    one began among what is lost; those that are not needed for offsets say nothing."""
    before, after = lost
    assert before.raft_index == log.last_index + 1, (before, log.last_index)
    assert before.offset == log.next_offset, (before, log.next_offset)
    entries: list[Entry] = []
    offset, width = before.offset, after.offset - before.offset
    for index in range(before.raft_index, after.raft_index):
        if not entries and after.term != log.last_term:
            kind, body = EntryKind.FORCED_RECOVERY, NONE_GIVEN_UP
        elif width > 0:
            step = min(width, _DELTA_MAX)
            batch = _empty_batch(offset, after.term, step)
            entries.append(entry_of(RaftIndex(index), batch, CorruptData, log.spec.path))
            offset, width = Offset(offset + step), width - step
            continue
        else:
            kind, body = EntryKind.MARKER, _NO_CUT_OFF
        entries.append(
            control_entry(log, after.term, kind, body, _NO_TIME, RaftIndex(index), offset)
        )
    if width > 0:
        raise CorruptData("the lost entries cannot have taken these offsets", on=log.spec.path)
    return entries


def _empty_batch(offset: Offset, term: Term, width: int) -> bytes:
    batch = bytearray(
        HEADER.pack(
            offset, BATCH_HEADER_BYTES - LENGTH_OVERHEAD, term, MAGIC, 0, 0, width - 1,
            _NO_TIME, _NO_TIME, _NO_PRODUCER, _NO_PRODUCER, _NO_PRODUCER, 0,
        )
    )  # fmt: skip
    batch[17:CRC_FROM] = crc32c(memoryview(batch)[CRC_FROM:]).to_bytes(4, "big")
    return bytes(batch)
