"""The segment files of one log: which there are, when the next begins, and what must be written."""

from bisect import bisect_right
from operator import attrgetter
from typing import final

from raftlog.base.buggify import buggify
from raftlog.base.entries import Entry, EntryKind, InstallPosition, Membership
from raftlog.base.ids import Offset, RaftIndex, Term
from raftlog.base.limits import SEGMENT_HEADER_BYTES
from raftlog.storage.log_end import FileEnd, LogParts
from raftlog.storage.ops import WriteOp
from raftlog.storage.pending import PendingWrites
from raftlog.storage.replica import LogEnd, LogOptions, ReplicaSpec, segment_name
from raftlog.storage.segments.segment import Segment, empties, position_before
from raftlog.storage.segments.segment_header import SegmentHeader, write_segment_header
from raftlog.storage.segments.sparse_index import SegmentIndex


@final
class SegmentFiles:
    """The live segments, oldest first, and the writes since the last round.

    * `due`: the next entry begins a file, because a truncation, an install or a repair ended the
      present one. Such a file is begun in the next round, with or without an entry.
    * `pending`: what the next round writes; its position is where the next batch goes.
    * `rolls`: the first indexes of files that were begun because the file before was full.
    """

    __slots__ = (
        "_interval_bytes", "_needed", "_next_resets", "_segment_bytes", "_sequence", "_spec",
        "due", "pending", "rolls", "segments",
    )  # fmt: skip

    def __init__(self, spec: ReplicaSpec, options: LogOptions, parts: LogParts) -> None:
        """Take over the files of a log from recovery."""
        self._spec = spec
        self._interval_bytes = options.interval_bytes
        self._segment_bytes = options.segment_bytes
        self._sequence = parts.file_sequence
        self._next_resets = parts.new_file_resets
        self._needed = False
        self.segments = parts.segments
        self.due = parts.repair is not None and parts.repair_file_due
        path = parts.segments[-1].path if parts.segments else ""
        self.pending = PendingWrites(spec.group, path, parts.end.position, parts.obsolete)
        self.rolls: list[RaftIndex] = []

    @property
    def next_sequence(self) -> int:
        """The number of the file that is begun next."""
        return self._sequence + 1

    @property
    def holds_entries(self) -> bool:
        """Whether the present file takes the next entry and has at least one."""
        return not self.due and self.pending.position > SEGMENT_HEADER_BYTES

    def resize(self, segment_bytes: int) -> None:
        """Change the size at which files are full."""
        self._segment_bytes = segment_bytes

    def must_begin(self, entry: Entry) -> bool:
        """Whether the entry begins the next file: one is due, or the present one is full."""
        position = self.pending.position
        full = position + len(entry.batch) > self._segment_bytes or buggify("early-roll")
        full = full or (entry.kind is EntryKind.LOG_START and empties(entry, self._spec.path))
        return self.due or (full and position > SEGMENT_HEADER_BYTES)

    def begin(
        self,
        end: LogEnd,
        term: Term,
        membership: tuple[RaftIndex, Membership],
        log_start: Offset,
        repair: tuple[RaftIndex, Term] | None,
    ) -> None:
        """Begin the next file behind `end`, with an entry of `term`. Its header tells what is in
        force there."""
        if not self.due:
            self.rolls.append(RaftIndex(end.raft_index + 1))
        self._sequence += 1
        header = SegmentHeader(
            cluster=self._spec.cluster,
            group=self._spec.group,
            replica=self._spec.replica,
            file_sequence=self._sequence,
            first_index=RaftIndex(end.raft_index + 1),
            base_offset=end.next_offset,
            term_before=end.term,
            term=term,
            chain_before=end.chain,
            log_start=log_start,
            membership=membership[1],
            membership_index=membership[0],
            reset=self._next_resets,
            repair=repair,
        )
        path = f"{self._spec.path}/{segment_name(header.first_index, self._sequence)}"
        self.pending.begin_segment(path, write_segment_header(header))
        index = SegmentIndex(self._interval_bytes)
        self.segments.append(Segment(path, header, end, SEGMENT_HEADER_BYTES, index, None, True))
        self.due = self._needed = self._next_resets = False

    def settle(self, end: LogEnd) -> None:
        """Bring the present file's own end up to date with the log's."""
        if self.segments and not self.due:
            segment = self.segments[-1]
            if segment.end[:2] != end[:2]:
                segment.end = end
            segment.end_position = self.pending.position

    def place(self, end: LogEnd) -> FileEnd:
        """The log's end, with the file and position where the next entry would go."""
        return FileEnd(end, self.segments[-1].header.file_sequence, self.pending.position)

    def cut(self, end: LogEnd, position: int) -> tuple[FileEnd, Segment | None]:
        """End the files behind `end`, which lies at `position`; the next entry begins a file.

        Returns the place of the end, and the segment that lost entries, None when whole files went.
        """
        index = RaftIndex(end.raft_index + 1)
        sequence = self._drop_from(index)
        shortened = None
        if self.segments and self.segments[-1].end_index > index:
            shortened = self.segments[-1]
            shortened.cut(end, position)
            sequence = shortened.header.file_sequence
        self.rolls = [roll for roll in self.rolls if roll < index]
        self.due = self._needed = True
        return FileEnd(end, sequence, position), shortened

    def _drop_from(self, index: RaftIndex) -> int:
        """Give up the files that hold nothing below `index`; returns the sequence of the oldest."""
        sequence = self.segments[-1].header.file_sequence if self.segments else self._sequence
        while self.segments and self.segments[-1].first_index >= index:
            segment = self.segments.pop()
            sequence = segment.header.file_sequence
            self.pending.obsolete.append(segment.path)
            # A file that takes the place of one with the reset flag carries the flag too.
            self._next_resets = not self.segments and segment.header.reset
        return sequence

    def replace(self) -> None:
        """Give up all files, for an install: the next one voids them by its header."""
        self.pending.obsolete += [segment.path for segment in self.segments]
        self.segments.clear()
        self.rolls.clear()
        self.due = self._needed = self._next_resets = True

    @property
    def needs_file(self) -> bool:
        """Whether this round must begin a file although no entry came."""
        return self._needed

    def take(self) -> tuple[list[WriteOp], list[str]]:
        """The operations since the last round, and the files that are void once they are
        durable."""
        return self.pending.take()

    def take_rolls(self) -> list[RaftIndex]:
        """The rolls since the last call."""
        rolls, self.rolls = self.rolls, []
        return rolls

    def position_before(self, index: RaftIndex) -> InstallPosition:
        """The place before a segment's first entry."""
        ordinal = bisect_right(self.segments, index, key=attrgetter("first_index")) - 1
        position = position_before(self.segments[ordinal].header)
        assert position.raft_index == index - 1, (index, position.raft_index)
        return position

    def drop_before(self, first_index: RaftIndex) -> SegmentHeader:
        """Forget the segments below the one that begins at `first_index`: their files are gone.
        Returns the header of the oldest that is left."""
        while self.segments[0].first_index < first_index:
            del self.segments[0]
        return self.segments[0].header
