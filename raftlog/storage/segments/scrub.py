"""Jobs that verify segments again that take no more entries, while the broker runs.

Bytes that were good when they were written, or when a boot walked them, may rot later. A scrub
walks a closed segment in stretches: each job reads about SCRUB_JOB_BYTES and hands on where it
stopped, with the chain so far. The chain must match the points of the sparse index on the way. At
the end of the segment it must be the value with which the next segment's header begins.

`measure_damage` says how far a damaged segment is whole, for a replica that no other can repair.
"""

from typing import NamedTuple

from raftlog.base.errors import CorruptData
from raftlog.base.limits import INDEX_FILE_BYTES_MAX
from raftlog.base.ports import Disk
from raftlog.storage.files import opened, read_whole
from raftlog.storage.replica import index_name
from raftlog.storage.segments.cold import SegmentDamaged, SegmentWalked
from raftlog.storage.segments.jobs import agrees, note_batch, report
from raftlog.storage.segments.segment import SegmentRef
from raftlog.storage.segments.sparse_index import Point, SegmentIndex, read_index_file
from raftlog.storage.segments.walk import Walk, WalkPlace


class StretchOrder(NamedTuple):
    """An order to walk about `bytes_max` from `start` on; `checks` are points with known chains."""

    segment: SegmentRef
    start: WalkPlace
    bytes_max: int
    checks: tuple[Point, ...]


class StretchSound(NamedTuple):
    """So many bytes are as they were written.

    `place` is where the next stretch begins; None at the end of the segment.
    """

    byte_count: int
    place: WalkPlace | None


def scrub_stretch(disk: Disk, order: StretchOrder) -> StretchSound:
    """Job: verify the next stretch of a closed segment; `CorruptData` when it is damaged."""
    segment, start = order.segment, order.start
    known = {point.raft_index: point for point in order.checks}
    with opened(disk, segment.path) as file:
        walk = Walk(file, start, segment.group, segment.path)
        for _ in walk.batches(segment.end_index):
            check = known.get(walk.place.raft_index)
            if check is not None and not agrees(walk, walk.place, check):
                break
            if walk.place.position >= start.position + order.bytes_max:
                break
        place = walk.place
        stopped = place.position >= start.position + order.bytes_max
        if walk.fault is None and (place.raft_index == segment.end_index or not stopped):
            walk.check(segment.end_index, segment.end_chain, None, "the log")
        report(disk, walk)
    at_end = place.raft_index >= segment.end_index
    return StretchSound(place.position - start.position, None if at_end else place)


def measure_damage(disk: Disk, segment: SegmentRef) -> SegmentDamaged | SegmentWalked:
    """Job: walk a segment in which damage was met; tells how far it is whole, or that it is.

    Only batches up to the last place whose chain is known from elsewhere count as whole.
    """
    known = {point.raft_index: point for point in _points(disk, segment)}
    index = SegmentIndex(segment.interval_bytes)
    agreed = segment.start
    with opened(disk, segment.path) as file:
        walk = Walk(file, segment.start, segment.group, segment.path)
        for batch in walk.batches(segment.end_index):
            note_batch(index, batch)
            check = known.get(walk.place.raft_index)
            if check is not None and agrees(walk, walk.place, check):
                agreed = walk.place
            # An index file may tell of an earlier life of the segment: that alone proves nothing.
            walk.fault = None
        if walk.fault is None:
            walk.check(segment.end_index, segment.end_chain, None, "the log")
    end = segment.end_index
    if walk.fault is None:
        return SegmentWalked(segment.file_sequence, end, walk.place.position, index)
    index.cut(agreed.raft_index)
    why = f"{walk.fault} (entry {walk.place.raft_index} at byte {walk.place.position})"
    return SegmentDamaged(segment.file_sequence, end, agreed, index, why)


def _points(disk: Disk, segment: SegmentRef) -> list[Point]:
    """The points that the segment's index file tells; none when the file is missing or damaged."""
    path = index_name(segment.path)
    if not disk.exists(path):
        return []
    try:
        stored = read_index_file(read_whole(disk, path, INDEX_FILE_BYTES_MAX), 1, path)
    except CorruptData:
        return []
    told = (stored.file_sequence, stored.first_index)
    if told != (segment.file_sequence, segment.start.raft_index):
        return []
    return [point for point in stored.sparse.points() if point.raft_index < segment.end_index]
