"""Jobs on segments, run off the loop: verify, find exact places, read for followers, remove.

Their results name places. They raise damage as `CorruptData`, naming file, position and reason. The
replica is then reopened through recovery, which tells damage from a torn tail.
"""

from array import array
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from raftlog.base.binary import Buffer
from raftlog.base.entries import Entry, EntryKind, InstallPosition
from raftlog.base.errors import CorruptData, DiskError, DiskFull
from raftlog.base.ids import Offset, RaftIndex
from raftlog.base.limits import INDEX_FILE_BYTES_MAX
from raftlog.base.ports import Disk
from raftlog.base.probes import probe
from raftlog.records.batch import read_header
from raftlog.records.control import parse_control_entry
from raftlog.records.slices import FileSlice
from raftlog.storage.files import (
    name_again,
    opened,
    parent_of,
    put_back_if_away,
    read_whole,
    remove_if_there,
    write_whole,
)
from raftlog.storage.replica import ReplicaSpec, index_name, snapshot_name
from raftlog.storage.segments.cold import (
    EntriesRead,
    ProducerReplay,
    RangeScanned,
    ReplayItem,
    SegmentsRemoved,
    SegmentWalked,
)
from raftlog.storage.segments.head import write_head
from raftlog.storage.segments.segment import SegmentRef
from raftlog.storage.segments.snapshot import newest_snapshot, read_snapshot, snapshots_of
from raftlog.storage.segments.sparse_index import (
    NOWHERE,
    IndexFile,
    Point,
    SegmentIndex,
    TermRow,
    read_index_file,
    write_index_file,
)
from raftlog.storage.segments.term_table import TermTable
from raftlog.storage.segments.walk import Walk, WalkedBatch, WalkPlace

REPLAYED_KINDS = (EntryKind.TERM_START, EntryKind.MARKER)


class ScanOrder(NamedTuple):
    """A walk from `start` to the point `after`, or to `stop` when there is none."""

    segment: SegmentRef
    start: WalkPlace
    after: Point | None
    stop: RaftIndex


class EntriesOrder(NamedTuple):
    """Entries from `first`, walked from `start`; `checks` are points with their chains."""

    segment: SegmentRef
    start: WalkPlace
    first: RaftIndex
    bytes_max: int
    stop: RaftIndex
    checks: tuple[Point, ...]


class IndexOrder(NamedTuple):
    """A segment that takes no more entries, and where they end."""

    segment: SegmentRef
    sparse: SegmentIndex
    end_position: int


class NewHead(NamedTuple):
    """The log may begin behind `position`, without its `segments` oldest segments."""

    position: InstallPosition
    segments: int


class RemovalOrder(NamedTuple):
    """The oldest segments, in order, and where the log may begin instead, the last place first."""

    spec: ReplicaSpec
    paths: tuple[str, ...]
    heads: tuple[NewHead, ...]


class ReplayOrder(NamedTuple):
    """All segments, the end of what is written, the batches after it, and the terms of the log."""

    spec: ReplicaSpec
    segments: tuple[SegmentRef, ...]
    stop: RaftIndex
    unwritten: tuple[Buffer, ...]
    terms: TermTable


def read_slice(disk: Disk, slice_: FileSlice) -> bytes:
    """Job: the bytes of a slice; `CorruptData` when the file is shorter."""
    with opened(disk, slice_.path) as file:
        content = file.read_at(slice_.position, slice_.size)
    if len(content) != slice_.size:
        raise CorruptData(f"file ends {slice_.size - len(content)} bytes early", on=slice_.path)
    return content


def verify_segment(disk: Disk, segment: SegmentRef) -> SegmentWalked:
    """Job: walk the whole segment against its header and the next one's; returns a new index."""
    with opened(disk, segment.path) as file:
        walk = Walk(file, segment.start, segment.group, segment.path)
        index = SegmentIndex(segment.interval_bytes)
        for batch in walk.batches(segment.end_index):
            note_batch(index, batch)
        if walk.fault is None:
            walk.check(segment.end_index, segment.end_chain, None, "the log")
        report(disk, walk)
    _adopt_times(disk, segment, index)
    return SegmentWalked(segment.file_sequence, walk.place.raft_index, walk.place.position, index)


def _adopt_times(disk: Disk, segment: SegmentRef, index: SegmentIndex) -> None:
    """Take the timestamps of the index file, which were computed before the boot.

    Computing them again costs far more than this walk. The file may be lost or damaged at any time.
    """
    path = index_name(segment.path)
    if not disk.exists(path):
        return
    try:
        stored = read_index_file(read_whole(disk, path, INDEX_FILE_BYTES_MAX), 1, path)
    except CorruptData:
        return
    if (stored.file_sequence, stored.end.raft_index) == (segment.file_sequence, segment.end_index):
        index.adopt_largest(stored.sparse)


def verify_segments(disk: Disk, walks: Sequence[tuple[SegmentRef, RaftIndex]]) -> None:
    """Job: walk these segments, each as far as it is written."""
    for segment, stop in walks:
        with opened(disk, segment.path) as file:
            walk = Walk(file, segment.start, segment.group, segment.path)
            for _ in walk.batches(stop):
                continue
            check_end(walk, segment, stop)
            report(disk, walk)


def note_batch(index: SegmentIndex, batch: WalkedBatch) -> None:
    """Put a walked batch into the index, as an append would have."""
    before, entry = batch.before, batch.entry
    index.note(entry, before.position, before.chain)
    if entry.term != before.term:
        index.terms.append(TermRow(entry.term, before.raft_index, before.offset))


def write_index(disk: Disk, order: IndexOrder) -> None:
    """Job: the index file of a segment that takes no more entries. It may be lost at any time."""
    segment, index, end_position = order
    end = Point(
        segment.end_index,
        segment.end_offset,
        end_position,
        segment.end_chain,
        index.tail,
    )
    first = segment.start.raft_index
    content = write_index_file(IndexFile(segment.group, segment.file_sequence, first, end, index))
    write_whole(disk, index_name(segment.path), content)


def scan_range(disk: Disk, order: ScanOrder) -> RangeScanned:
    """Job: the exact places of a stretch, its chain compared with the point after it."""
    segment, after = order.segment, order.after
    positions, offsets = array("Q"), array("Q")
    with opened(disk, segment.path) as file:
        walk = Walk(file, order.start, segment.group, segment.path)
        stop = after.raft_index if after else order.stop
        for batch in walk.batches(stop):
            positions.append(batch.before.position)
            offsets.append(batch.before.offset)
        if after is not None and walk.fault is None:
            walk.check(after.raft_index, after.chain, after.position, "the index")
        elif walk.fault is None and stop == segment.end_index:
            walk.check(segment.end_index, segment.end_chain, None, "the log")
        report(disk, walk)
    return RangeScanned(
        segment.file_sequence,
        order.start.position,
        order.start.raft_index,
        positions,
        offsets,
        walk.place.position,
        walk.place.offset,
    )


def read_entries(disk: Disk, order: EntriesOrder) -> EntriesRead:
    """Job: read entries for a follower.

    The walk goes on behind the last of them to a place whose chain was known before, so that all of
    them are vouched for.
    """
    segment = order.segment
    known = {point.raft_index: point for point in order.checks}
    entries: list[Entry] = []
    total = 0
    full = False
    prev_chain = order.start.chain
    with opened(disk, segment.path) as file:
        walk = Walk(file, order.start, segment.group, segment.path)
        for batch in walk.batches(order.stop):
            entry = batch.entry
            check = known.get(entry.raft_index)
            if check is not None and not agrees(walk, batch.before, check):
                break
            full = full or bool(entries and total + len(entry.batch) > order.bytes_max)
            if full and check is not None:
                break
            if full or entry.raft_index < order.first:
                continue
            if not entries:
                prev_chain = batch.before.chain
            total += len(entry.batch)
            entries.append(entry._replace(batch=bytes(entry.batch)))
        else:
            check_end(walk, segment, order.stop)
        report(disk, walk)
    if not entries:
        raise CorruptData(f"entry {order.first} is not in its segment", on=segment.path)
    return EntriesRead(order.first, prev_chain, entries)


def check_end(walk: Walk, segment: SegmentRef, stop: RaftIndex) -> None:
    """Check that a walk up to `stop` came there; at the segment's end also compare the chain.

    The file may have as many bytes and fewer batches.
    """
    if walk.fault is not None:
        return
    if stop == segment.end_index:
        walk.check(segment.end_index, segment.end_chain, None, "the log")
    elif walk.place.raft_index < stop:
        walk.fault = f"entries end before {walk.place.raft_index}, the log has {stop - 1}"


def agrees(walk: Walk, place: WalkPlace, check: Point) -> bool:
    """Whether a place of the walk is the known one; if not, the walk's fault says so."""
    if (place.chain, place.position) == (check.chain, check.position):
        return True
    walk.fault = f"chain before {check.raft_index} is not the one the index knows"
    return False


def replay_producers(disk: Disk, order: ReplayOrder) -> ProducerReplay:
    """Job: the nearest producer snapshot at or below the end, and the batches behind it in the log.

    The chain at the end of each segment vouches for the batches that were read: perhaps no earlier
    job has verified the segment since the boot.
    """
    head = order.segments[0].start.raft_index if order.segments else order.stop
    found = newest_snapshot(disk, order.spec, RaftIndex(order.stop - 1), order.terms)
    before, snapshot = (head, None) if found is None else (found[0].raft_index + 1, found[1])
    if before < head or (snapshot is None and head > 1):
        raise CorruptData(f"no whole snapshot from entry {head} on", on=order.spec.path)
    items: list[ReplayItem] = []
    for segment in order.segments:
        if segment.end_index <= before:
            continue
        with opened(disk, segment.path) as file:
            walk = Walk(file, segment.start, segment.group, segment.path)
            stop = RaftIndex(min(segment.end_index, order.stop))
            for batch in walk.batches(stop):
                if batch.entry.raft_index >= before:
                    items += replay_items(batch)
            check_end(walk, segment, stop)
            report(disk, walk)
    end = order.stop
    for unwritten in order.unwritten:
        items += _unwritten_items(end, unwritten, order.spec.path)
        end = RaftIndex(end + 1)
    covered = Offset(0) if found is None else found[0].next_offset
    return ProducerReplay(snapshot, RaftIndex(before), items, end, covered)


def replay_items(batch: WalkedBatch) -> list[ReplayItem]:
    """The items of a batch for the producer state: none or one."""
    if batch.control is not None:
        if batch.control.kind not in REPLAYED_KINDS:
            return []
        return [ReplayItem(batch.entry.raft_index, batch.header, batch.control)]
    if batch.header.producer_id < 0:
        return []
    return [ReplayItem(batch.entry.raft_index, batch.header, None)]


def _unwritten_items(index: RaftIndex, batch: Buffer, on: str) -> list[ReplayItem]:
    header = read_header(batch)
    if header.is_raft_entry:
        control = parse_control_entry(batch, CorruptData, on)
        return [ReplayItem(index, header, control)] if control.kind in REPLAYED_KINDS else []
    return [ReplayItem(index, header, None)] if header.producer_id >= 0 else []


def remove_files(disk: Disk, paths: Sequence[str]) -> None:
    """Job: remove files and the index files beside them; missing ones are fine."""
    directories: dict[str, None] = {}
    for path in paths:
        removed = remove_if_there(disk, path)
        removed |= path != index_name(path) and remove_if_there(disk, index_name(path))
        if removed:
            directories[parent_of(path)] = None
    for directory in directories:
        disk.sync_dir(directory)


def remove_segments(disk: Disk, order: RemovalOrder) -> SegmentsRemoved:
    """Job: begin the log behind a head of the order, and remove the segments before it.

    1. It takes the first head whose state can be read, whole and of this log: a boot goes on from
       there.
    2. The name of that state is made durable once more, since the sync that should have done it may
       have failed.
    3. The beginning of the log is written down: a boot could not tell a removed segment from a lost
       one. A full disk has no room even for that. Then the index files of the removed segments,
       which a boot can do without, make room.

    Raises what is wrong with the last head, and removes nothing, when no head will do.
    """
    spec = order.spec
    head = _readable_head(disk, order)
    first_index = RaftIndex(head.position.raft_index + 1)
    paths = order.paths[: head.segments]
    try:
        _begin_with(disk, spec, first_index)
    except DiskFull:
        remove_files(disk, [index_name(path) for path in paths])
        _begin_with(disk, spec, first_index)
    remove_files(disk, paths)
    for before in snapshots_of(disk, spec.path):
        if before < first_index:
            remove_if_there(disk, f"{spec.path}/{snapshot_name(before)}")
    disk.sync_dir(spec.path)
    return SegmentsRemoved(first_index)


def _begin_with(disk: Disk, spec: ReplicaSpec, first_index: RaftIndex) -> None:
    state = f"{spec.path}/{snapshot_name(first_index)}"
    put_back_if_away(disk, state)
    name_again(disk, state)
    disk.sync_dir(spec.path)
    write_head(disk, spec, first_index)


def _readable_head(disk: Disk, order: RemovalOrder) -> NewHead:
    *others, last = order.heads
    for head in others:
        try:
            _check_state(disk, order.spec, head.position)
        except (CorruptData, DiskError):
            probe("removal-stops-before-a-head")
        else:
            return head
    _check_state(disk, order.spec, last.position)
    return last


def _check_state(disk: Disk, spec: ReplicaSpec, position: InstallPosition) -> None:
    before = RaftIndex(position.raft_index + 1)
    path = f"{spec.path}/{snapshot_name(before)}"
    put_back_if_away(disk, path)
    found, _ = read_snapshot(disk, spec, before)
    if (found.term, found.chain) != (position.term, position.chain):
        raise CorruptData("a snapshot of another log", on=path)


def report(disk: Disk, walk: Walk) -> None:
    """Raise the fault of a walk as an error, if there is one.

    The index file vouches for that segment no longer, so that the next recovery walks it. Its
    points stay: they show how far the segment is whole.
    """
    if walk.fault is None:
        return
    # Whatever happens to the index file, which is a cache, the fault is raised.
    with suppress(DiskError):
        distrust_index(disk, walk.on)
    place = walk.place
    raise CorruptData(
        walk.fault,
        on=f"{walk.on}, entry {place.raft_index} at byte {place.position}",
        do="the replica is reopened and refetches what is damaged",
    )


def distrust_index(disk: Disk, segment_path: str) -> None:
    """Job: let the segment's index file no longer vouch for it: the next boot walks it."""
    path = index_name(segment_path)
    if not disk.exists(path):
        return
    probe("index-distrusted")
    try:
        stored = read_index_file(read_whole(disk, path, INDEX_FILE_BYTES_MAX), 1, path)
        write_whole(disk, path, write_index_file(stored._replace(end=NOWHERE)))
    except (CorruptData, DiskError):  # a full disk can remove, though it cannot write
        remove_if_there(disk, path)
