"""One segment as memory knows it, and the reference by which jobs find it.

Entries `header.first_index` up to `end_index` (exclusive) of the file are the log's. Later entries
of the file are void: a truncation began a newer file there. An index that is None has not been
loaded since the boot, and nothing of such a segment is served before a job has walked it.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple, final

import attrs

from raftlog.base.entries import Entry, InstallPosition
from raftlog.base.errors import CorruptData
from raftlog.base.ids import Chain, DirectoryId, GroupId, Offset, RaftIndex, Term
from raftlog.records.control import parse_control_entry, read_log_start
from raftlog.records.timestamps import NO_TIMESTAMP
from raftlog.storage.replica import LogEnd
from raftlog.storage.segments.segment_header import SegmentHeader
from raftlog.storage.segments.sparse_index import SegmentIndex
from raftlog.storage.segments.walk import WalkPlace, segment_start


class SegmentRef(NamedTuple):
    """The facts by which a job walks a segment and checks that it arrived at the end."""

    directory: DirectoryId
    path: str
    group: GroupId
    file_sequence: int
    start: WalkPlace
    end_index: RaftIndex
    end_offset: Offset
    end_chain: Chain
    interval_bytes: int


class TimesSeen(NamedTuple):
    """The part of a segment that jobs have read for its timestamps, from its beginning on.

    These are the first `stretches` of its index wholly, and all records below the offset `until`.
    `largest` (ms) is the largest timestamp among them, computed from the records.
    """

    stretches: int
    until: Offset
    largest: int


class Damage(NamedTuple):
    """The fault of a segment that could not be repaired: it is whole up to `place`."""

    place: WalkPlace
    why: str


class Gap(NamedTuple):
    """Offsets from `first` up to `until` (exclusive) whose records this replica cannot read."""

    first: Offset
    until: Offset
    path: str
    why: str


NOTHING_SEEN: Final = TimesSeen(0, Offset(0), NO_TIMESTAMP)


@final
@attrs.define(eq=False)
class Segment:
    """A segment of the log. `end_*`: the place after its last entry.

    These ends move with appends, and back with a truncation.

    `end_position` is None when only the index of the end is known (a cut of a segment that was not
    loaded). `index` and `verified` change when a job has walked the file.

    `largest_timestamp` (ms) is that of all records of a segment that takes no more entries. This
    broker computed it from the records, since no header is believed; None while it is not known.
    `seen` is the part that was read for it, also while the segment still grows.

    `damage` stays while no other replica can repair the segment: behind its place nothing is read,
    and jobs take the segment as if it ended there.
    """

    path: str
    header: SegmentHeader
    end: LogEnd
    end_position: int | None
    index: SegmentIndex | None
    largest_timestamp: int | None
    verified: bool
    seen: TimesSeen = NOTHING_SEEN
    damage: Damage | None = None

    @property
    def first_index(self) -> RaftIndex:
        return self.header.first_index

    @property
    def base_offset(self) -> Offset:
        return self.header.base_offset

    @property
    def end_index(self) -> RaftIndex:
        """The index after the last entry."""
        return RaftIndex(self.end.raft_index + 1)

    @property
    def largest_now(self) -> int | None:
        """The largest timestamp (ms) of all records in the segment now, whether or not it grows.

        None while some of them were not read.
        """
        if self.largest_timestamp is not None:
            return self.largest_timestamp
        return self.seen.largest if self.seen.until == self.end.next_offset else None

    @property
    def size_hint(self) -> int:
        """The log bytes in the segment; 0 when their number is not known."""
        return self.end_position or 0

    def start(self) -> WalkPlace:
        """The place right after the header."""
        return segment_start(self.header)

    def reference(self, directory: DirectoryId, interval_bytes: int) -> SegmentRef:
        """The segment as it is now, for a job; of a damaged segment only the whole part."""
        index, offset, chain = self.end_index, self.end.next_offset, self.end.chain
        if self.damage is not None:
            place = self.damage.place
            index, offset, chain = place.raft_index, place.offset, place.chain
        return SegmentRef(
            directory,
            self.path,
            self.header.group,
            self.header.file_sequence,
            self.start(),
            index,
            offset,
            chain,
            interval_bytes,
        )

    def cut(self, end: LogEnd, end_position: int | None) -> None:
        """Make the entries after `end` void."""
        self.end = end
        self.end_position = end_position
        self.largest_timestamp = None
        self.seen = NOTHING_SEEN
        if self.damage is not None and self.damage.place.raft_index > end.raft_index:
            self.damage = None  # all of the damage is void now
        if self.index is not None:
            self.index.cut(RaftIndex(end.raft_index + 1))


def gaps_in(segments: Sequence[Segment]) -> tuple[Gap, ...]:
    """The gaps of all segments, ascending: offsets whose records cannot be read."""
    return tuple(
        Gap(each.damage.place.offset, each.end.next_offset, each.path, each.damage.why)
        for each in segments
        if each.damage is not None
    )


def gap_at(gaps: Sequence[Gap], offset: int) -> Gap | None:
    """The gap in which the offset lies."""
    return next((gap for gap in gaps if gap.first <= offset < gap.until), None)


def empties(entry: Entry, on: str) -> bool:
    """Whether a log-start marker lets all records before it go.

    Such a marker begins a new segment on every replica. So everything below it can be removed
    although no other entry may ever be appended.
    """
    control = parse_control_entry(entry.batch, CorruptData, on)
    return read_log_start(control.body) >= entry.base_offset


def before_header(header: SegmentHeader) -> LogEnd:
    """The place that a segment's first entry continues from."""
    return LogEnd(
        RaftIndex(header.first_index - 1),
        Term(header.term_before),
        header.chain_before,
        header.base_offset,
    )


def position_before(header: SegmentHeader) -> InstallPosition:
    """The same place as `before_header`, as an install or a snapshot names it."""
    return InstallPosition(
        raft_index=RaftIndex(header.first_index - 1),
        term=header.term_before,
        chain=header.chain_before,
        next_offset=header.base_offset,
        log_start=header.log_start,
        membership=header.membership,
        membership_index=header.membership_index,
    )
