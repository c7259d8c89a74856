"""Puts a damaged stretch of a sealed segment back, byte for byte, from a peer that holds it
committed.

The one place where bytes of a log are written over, and only by the same bytes: the batches must
lead from a place whose chain is known to another one whose chain is known, at exactly its position,
so they are what was there. A crash in the middle leaves damage where there was damage. (A replica
that a boot finds damaged is repaired through its log instead: `raftlog.storage.recovery`.)
"""

from collections.abc import Sequence
from typing import NamedTuple

from raftlog.base.binary import Buffer
from raftlog.base.entries import Entry
from raftlog.base.errors import CorruptData, ProtocolError
from raftlog.base.ids import Chain, RaftIndex
from raftlog.base.ports import Disk
from raftlog.base.probes import probe
from raftlog.records.batch import crc_matches, entry_of, read_header
from raftlog.records.chain import chain_next
from raftlog.storage.files import opened
from raftlog.storage.jobs import raise_fault
from raftlog.storage.segment import SegmentRef
from raftlog.storage.walk import Walk, WalkPlace


class RepairEnd(NamedTuple):
    """The place behind the damage: a point of the index, or the segment's end."""

    raft_index: RaftIndex
    position: int
    chain: Chain


class RepairOrder(NamedTuple):
    """Write `batches` from `start` to `end` of the segment."""

    segment: SegmentRef
    start: WalkPlace
    end: RepairEnd
    batches: tuple[Buffer, ...]


def repair_range(disk: Disk, order: RepairOrder) -> None:
    """Job: check, write, sync, and read back through the walk.

    Raises `ProtocolError` when the peer's batches are not what was there (nothing is written then),
    `CorruptData` when the stretch does not read back.
    """
    _check(order)
    segment, start, end = order.segment, order.start, order.end
    with opened(disk, segment.path, write=True) as file:
        file.write_at(start.position, order.batches)
        file.sync()
        walk = Walk(file, start, segment.group, segment.path)
        for _ in walk.batches(end.raft_index):
            continue
        if walk.fault is None:
            walk.check(end.raft_index, end.chain, end.position, "the order")
        raise_fault(walk)
    probe("range-repaired-from-peer")


def _check(order: RepairOrder) -> None:
    """The batches lead exactly from the start to the end."""
    place, end = order.start, order.end
    for batch in order.batches:
        entry = _entry(place, batch, order.segment.path)
        place = WalkPlace(
            RaftIndex(place.raft_index + 1),
            entry.next_offset,
            place.position + len(batch),
            chain_next(place.chain, batch),
            entry.term,
        )
    if (place.raft_index, place.position, place.chain) != end:
        raise ProtocolError(
            f"repair leads to entry {place.raft_index} at byte {place.position}, chain "
            f"{place.chain:016x}, not to {end.raft_index} at {end.position}, {end.chain:016x}",
            on=order.segment.path,
        )


def _entry(place: WalkPlace, batch: Buffer, on: str) -> Entry:
    entry = entry_of(place.raft_index, batch, ProtocolError, on)
    if entry.base_offset != place.offset or not crc_matches(batch, read_header(batch)):
        raise ProtocolError(f"repair of entry {place.raft_index} has a wrong batch", on=on)
    return entry


def damaged_stretch(
    disk: Disk, segment: SegmentRef, checkpoints: Sequence[RepairEnd]
) -> tuple[WalkPlace, RepairEnd] | None:
    """Job helper: the first stretch between known places that does not read back; None when all do.

    `checkpoints` are ascending places inside the segment; its end is added.
    """
    place = segment.start
    with opened(disk, segment.path) as file:
        for end in checkpoints:
            walk = Walk(file, place, segment.group, segment.path)
            for _ in walk.batches(end.raft_index):
                continue
            if walk.fault or not walk.check(end.raft_index, end.chain, end.position, "the index"):
                return place, end
            place = walk.place
        walk = Walk(file, place, segment.group, segment.path)
        for _ in walk.batches(segment.end_index):
            continue
        if walk.fault or not walk.check(segment.end_index, segment.end_chain, None, "the log"):
            raise CorruptData(
                f"the end of the segment is damaged behind entry {place.raft_index}",
                on=segment.path,
                do="the replica is reopened and refetches it",
            )
    return None
