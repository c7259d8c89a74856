"""The parts of a log that memory keeps, gathered while a boot walks its files."""

from typing import final

from raftlog.base.buggify import buggify
from raftlog.base.entries import EntryKind, Membership
from raftlog.base.ids import Offset, RaftIndex
from raftlog.base.limits import RECOVERED_WINDOW_BYTES, SEGMENT_HEADER_BYTES
from raftlog.base.probes import probe
from raftlog.records.control import read_log_start, read_membership_body
from raftlog.storage.log_end import FileEnd
from raftlog.storage.recent_window import RecentWindow
from raftlog.storage.replica import LogEnd
from raftlog.storage.segments.live_files import LiveFile
from raftlog.storage.segments.segment import Segment, before_header
from raftlog.storage.segments.segment_end import SegmentEnd, kept_gap
from raftlog.storage.segments.segment_header import SegmentHeader
from raftlog.storage.segments.sparse_index import IndexFile, SegmentIndex, TermRow
from raftlog.storage.segments.term_table import TermTable
from raftlog.storage.segments.walk import WalkedBatch, WalkPlace


@final
class WalkedParts:
    """Takes file after file, in the order of the log.

    * `memberships`, `log_starts`: of the entries so far. The first membership is that in force
      before the log's first entry.
    * `hint`: entries up to here are committed, so memory may shed them.
    """

    def __init__(self, head: SegmentHeader, hint: RaftIndex) -> None:
        """Begin before the first entry of the oldest file, whose header is `head`."""
        self.memberships: list[tuple[RaftIndex, Membership]] = [
            (head.membership_index, head.membership)
        ]
        self.log_starts: list[tuple[RaftIndex, Offset]] = []
        self.segments: list[Segment] = []
        self._before = before_header(head)
        self._hint = hint
        self._term_rows: list[TermRow] = []
        self._window: RecentWindow | None = None
        """The entries walked since the last segment whose index file was trusted without a walk."""
        self._window_bytes = 1 if buggify("small-window-at-boot") else RECOVERED_WINDOW_BYTES

    @property
    def end(self) -> LogEnd:
        """The place after the last segment so far."""
        return self.segments[-1].end if self.segments else self._before

    @property
    def file_end(self) -> FileEnd:
        """That place, with the file and position where the next entry would go."""
        last = self.segments[-1] if self.segments else None
        position = last.end_position if last and last.end_position else SEGMENT_HEADER_BYTES
        return FileEnd(self.end, last.header.file_sequence if last else 0, position)

    def note(self, batch: WalkedBatch) -> None:
        """Keep what memory needs of a walked batch."""
        before, entry = batch.before, batch.entry
        window = self._window
        if window is None:
            window = self._window = RecentWindow(before.raft_index, before.offset)
        assert window.end == before.raft_index, (window.end, before.raft_index)
        window.append(entry._replace(batch=bytes(entry.batch)), before.position, before.chain)
        window.shed_entries(self._window_bytes)
        window.shed(RaftIndex(self._hint + 1), self._window_bytes)
        if batch.control is not None:
            self.note_control(entry.raft_index, entry.kind, batch.control.body)

    def note_control(self, index: RaftIndex, kind: EntryKind, body: bytes) -> None:
        """Keep what a membership or a log start says; other entries of Raft say nothing here."""
        if kind is EntryKind.MEMBERSHIP:
            self.memberships.append((index, read_membership_body(body)))
        elif kind is EntryKind.LOG_START:
            self.log_starts.append((index, read_log_start(body)))

    def add_walked(self, file: LiveFile, index: SegmentIndex, end: SegmentEnd) -> None:
        """Add a file whose batches were noted, up to its end or its fault."""
        place = end.place
        if end.fault is not None and place.raft_index == file.header.first_index:
            return
        index.cut(place.raft_index)
        self._term_rows += index.terms
        self.segments.append(
            Segment(file.path, file.header, end_before(place), place.position, index, None, True)
        )

    def add_gap(
        self, file: LiveFile, following: LiveFile, index: SegmentIndex, end: SegmentEnd
    ) -> None:
        """Add a damaged file that another follows: of what it lost, the next header tells."""
        probe("gap-kept-at-boot")
        gap = kept_gap(file, following, index, end)
        lost_from = end.place.raft_index
        self.segments.append(gap.segment)
        self._term_rows += gap.terms
        self.memberships = [each for each in self.memberships if each[0] < lost_from]
        if gap.membership[0] > self.memberships[-1][0]:
            self.memberships.append(gap.membership)
        self.log_starts = [each for each in self.log_starts if each[0] < lost_from]
        self.log_starts.append(gap.log_start)
        self._window = None

    def add_indexed(self, file: LiveFile, stored: IndexFile) -> None:
        """Add a segment as its index file tells it; its batches are not verified yet."""
        header = file.header
        terms = stored.sparse.terms
        term = terms[-1].term if terms else header.term_before
        self._term_rows += terms
        end = LogEnd(
            RaftIndex(stored.end.raft_index - 1), term, stored.end.chain, stored.end.offset
        )
        largest = stored.sparse.largest()
        self.segments.append(
            Segment(file.path, header, end, stored.end.position, None, largest, False)
        )
        self._window = None

    def terms_until(self, after: RaftIndex) -> TermTable:
        """Where each term below the entry `after` begins."""
        before = self._before
        terms = TermTable(before.term, before.raft_index, before.next_offset)
        for row in self._term_rows:
            if row.raft_index < after:
                terms.begin(row.term, row.raft_index, row.offset)
        return terms

    def window_until(self, after: RaftIndex, next_offset: Offset) -> RecentWindow:
        """The entries held in memory, cut before the entry `after`."""
        window = self._window
        if window is None or window.first >= after:
            return RecentWindow(after, next_offset)
        window.cut(after)
        assert window.end == after, (window.end, after)
        return window


def end_before(place: WalkPlace) -> LogEnd:
    """The end of a log that goes up to the place of a walk."""
    return LogEnd(RaftIndex(place.raft_index - 1), place.term, place.chain, place.offset)
