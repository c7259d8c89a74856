"""Describes work off the loop: the job that a cold read needs, and the answers of such jobs."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Never

from raftlog.base.entries import Entry
from raftlog.base.ids import Chain, Offset, RaftIndex, Term
from raftlog.base.ports import Disk
from raftlog.records.batch import BatchHeader
from raftlog.records.control import ControlEntry
from raftlog.storage.segments.sparse_index import SegmentIndex
from raftlog.storage.segments.walk import WalkPlace


class ColdRead(NamedTuple):
    """A job: run `function(disk, *args)` off the loop.

    It raises `CorruptData` when it meets damage, `DiskError` when the disk fails.
    """

    function: Callable[[Disk, Never], object]
    args: tuple[object]

    def run(self, disk: Disk) -> object:
        """Run it here and now, where no loop waits."""
        return self.function(disk, *self.args)  # type: ignore[arg-type]


class SegmentWalked(NamedTuple):
    """A whole segment was walked; the fields are what the log now knows of it."""

    file_sequence: int
    end_index: RaftIndex
    end_position: int
    sparse: SegmentIndex


class SegmentDamaged(NamedTuple):
    """A segment is whole up to `place` and not behind it; `sparse` has the points below `place`."""

    file_sequence: int
    end_index: RaftIndex
    place: WalkPlace
    sparse: SegmentIndex
    why: str


class RangeScanned(NamedTuple):
    """Exact places from a point of the sparse index to the next one.

    They are the starts and offsets of the batches, and the end of the last one. Raft's own entries
    are included, each with the offset that it does not take.
    """

    file_sequence: int
    from_position: int
    indexes_from: RaftIndex
    positions: Sequence[int]
    offsets: Sequence[int]
    end_position: int
    end_offset: Offset


class SegmentsRemoved(NamedTuple):
    """The log now begins with this entry; None of the older segments' files is left."""

    first_index: RaftIndex


class EntriesRead(NamedTuple):
    """Verified entries, and the chain before the first of them."""

    first_index: RaftIndex
    prev_chain: Chain
    entries: Sequence[Entry]


class StretchTime(NamedTuple):
    """The largest timestamp of the stretch `number` of a segment, which ends before `end`."""

    number: int
    end: RaftIndex
    timestamp_ms: int


class TimesScanned(NamedTuple):
    """Stretches of a segment whose largest timestamps were computed from their records.

    There is at least one; the last of them ends before the offset `until`.
    """

    file_sequence: int
    stretches: Sequence[StretchTime]
    until: Offset


class TimeHit(NamedTuple):
    """The first record at or after a timestamp."""

    timestamp_ms: int
    offset: Offset
    term: Term


class TimeFound(NamedTuple):
    """A look-up by time has ended: the record, or None when no record is as late."""

    hit: TimeHit | None


class LargestFound(NamedTuple):
    """The largest timestamp of a range of offsets; NO_TIMESTAMP of an empty one."""

    timestamp_ms: int


Learned = SegmentWalked | SegmentDamaged | RangeScanned | TimesScanned
"""The facts that a question needed first. The log keeps them, and the question is planned again."""


class ReplayItem(NamedTuple):
    """A batch that the producer state depends on.

    It has a producer id, or is a term start or marker (then `control` is its payload).
    """

    raft_index: RaftIndex
    header: BatchHeader
    control: ControlEntry | None


class ProducerReplay(NamedTuple):
    """Producer state: a snapshot and the batches behind it.

    The nearest snapshot (None: empty) holds everything before entry `before`. The items follow it
    up to `end` (exclusive). The snapshot covers the records below `covered`.
    """

    snapshot: bytes | None
    before: RaftIndex
    items: list[ReplayItem]
    end: RaftIndex
    covered: Offset = Offset(0)
