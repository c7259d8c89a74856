"""Walks a replica's live files at a boot, as far as they are whole, and gathers what memory needs.

A sealed segment below the commit hint whose index file agrees with the next header is not walked:
it is verified on first use. Everything else is walked, batch by batch, against every checkpoint
there is. Where a checkpoint disagrees with batches that each look right (a batch of another group,
a flipped epoch), the valid prefix ends at the last checkpoint that agreed.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from typing import NamedTuple, final

import attrs

from raftlog.base.buggify import buggify
from raftlog.base.entries import EntryKind, Membership
from raftlog.base.errors import CorruptData, DiskError
from raftlog.base.ids import Offset, RaftIndex, Term
from raftlog.base.limits import (
    BATCH_HEADER_BYTES,
    INDEX_FILE_BYTES_MAX,
    RECOVERED_WINDOW_BYTES,
    SEGMENT_HEADER_BYTES,
    WALK_CHUNK_BYTES,
)
from raftlog.base.ports import Disk, DiskFile
from raftlog.base.probes import probe
from raftlog.records.batch import BatchHeader, crc_matches, read_header
from raftlog.records.control import parse_control_entry, read_log_start, read_membership_body
from raftlog.storage.boot.salvage import SalvagingDisk
from raftlog.storage.files import opened, read_whole, write_again
from raftlog.storage.log_end import FileEnd
from raftlog.storage.recent_window import RecentWindow
from raftlog.storage.replica import LogEnd, LogOptions, Mark, ReplicaSpec, index_name
from raftlog.storage.segments.jobs import IndexOrder, note_batch, write_index
from raftlog.storage.segments.live_files import LiveFile, LiveFiles
from raftlog.storage.segments.segment import Segment, before_header
from raftlog.storage.segments.segment_end import Checkpoint, SegmentEnd, kept_gap
from raftlog.storage.segments.sparse_index import (
    ControlRow,
    IndexFile,
    SegmentIndex,
    TermRow,
    read_index_file,
)
from raftlog.storage.segments.term_table import TermTable
from raftlog.storage.segments.walk import Walk, WalkedBatch, WalkPlace, segment_start

_LISTED_KINDS = (EntryKind.MEMBERSHIP, EntryKind.LOG_START)


class Mended(NamedTuple):
    """A repair that a boot made in one file, without another replica; `what` names its event."""

    what: str
    file: str
    why: str


@final
@attrs.define(eq=False, kw_only=True)
class WalkedLog:
    """The valid prefix of a log.

    `fault` says what ended it, None when nothing is damaged. `seen` is the furthest whole entry
    found behind the fault. `hint_counts` is False when the files cannot show that the prefix was
    never replaced.
    """

    end: FileEnd
    segments: list[Segment]
    window: RecentWindow
    terms: TermTable
    memberships: list[tuple[RaftIndex, Membership]]
    log_starts: list[tuple[RaftIndex, Offset]]
    fault: str | None
    seen: LogEnd
    hint_counts: bool
    mended: tuple[Mended, ...]


def walk_log(
    disk: Disk,
    spec: ReplicaSpec,
    files: LiveFiles,
    mark: Mark | None,
    options: LogOptions,
    *,
    trust_indexes: bool = True,
    hint_counts: bool = True,
    past_gaps: bool = False,
) -> WalkedLog:
    """Walk all live files (at least one). Cuts a torn tail of the last one, durably.

    `hint_counts`: whether the entries below the mark's commit hint are those that were committed.
    `past_gaps`: damage in a file that another follows becomes a gap, and the walk goes on behind.
    """
    walker = _Walker(disk, spec, files, mark, options, trust_indexes, hint_counts, past_gaps)
    return walker.run()


@final
class _Walker:
    """Gathers segments, terms, memberships and places while it goes through the files."""

    def __init__(
        self,
        disk: Disk,
        spec: ReplicaSpec,
        files: LiveFiles,
        mark: Mark | None,
        options: LogOptions,
        trust_indexes: bool,
        hint_counts: bool,
        past_gaps: bool,
    ) -> None:
        self._disk = disk
        self._past_gaps = past_gaps
        self._trust_indexes = trust_indexes
        self._spec = spec
        self._files = files
        self._mark = mark
        self._options = options
        head = files.live[0].header
        self._hint_counts = hint_counts
        self._hint = RaftIndex(mark.commit if mark and hint_counts else 0)
        self._segments: list[Segment] = []
        self._term_rows: list[TermRow] = []
        self._memberships = [(head.membership_index, head.membership)]
        self._log_starts: list[tuple[RaftIndex, Offset]] = []
        self._torn: str | None = None
        self._mended: list[Mended] = []
        self._window: RecentWindow | None = None
        """The entries walked since the last segment whose index file was trusted without a walk."""
        self._window_bytes = 1 if buggify("small-window-at-boot") else RECOVERED_WINDOW_BYTES

    def run(self) -> WalkedLog:
        """Walk to the first fault or the end."""
        live = self._files.live
        fault: str | None = None
        for ordinal, file in enumerate(live):
            following = live[ordinal + 1] if ordinal + 1 < len(live) else None
            fault = self._take_file(file, following)
            if fault is not None:
                fault = fault if file.path in fault else f"{fault} ({file.path})"
                break
        seen = self._end()
        if fault is not None:
            probe("damage-found-at-boot")
            seen = max(seen, self._seen_in_last(), self._seen_behind_mark(), key=_progress)
        return self._result(fault, seen)

    # --- one file ---------------------------------------------------------------------------------

    def _take_file(self, file: LiveFile, following: LiveFile | None) -> str | None:
        """Add the file's segment. Returns the fault that it has, if any."""
        loaded = self._loaded(file, following) if following is not None else None
        if loaded is not None:
            self._add_loaded(file, loaded)
            return None
        index = SegmentIndex(self._options.interval_bytes)
        with opened(self._disk, file.path, write=True) as opened_file:
            end = self._walk_file(opened_file, file, following, index)
            if following is None and end.fault is None:
                end = self._judge_last(opened_file, file, end)
        if following is not None and end.fault is not None and self._past_gaps:
            self._add_gap(file, following, index, end)
            return None
        self._add_walked(file, index, end)
        if following is not None and end.fault is None:
            reference = self._segments[-1].reference(
                self._spec.replica.directory, self._options.interval_bytes
            )
            # The index file is a cache: a full disk, which cannot write it, must keep no replica
            # closed. The next boot walks the segment again.
            with suppress(DiskError):
                write_index(self._disk, IndexOrder(reference, index, end.place.position))
        return end.fault

    def _walk_file(
        self,
        opened_file: DiskFile,
        file: LiveFile,
        following: LiveFile | None,
        index: SegmentIndex,
    ) -> SegmentEnd:
        """Walk one file against its checkpoints.

        A fault behind the last checkpoint in the last file is not damage yet: it may be a torn
        tail.
        """
        header = file.header
        start = segment_start(
            header.first_index, header.base_offset, header.chain_before, header.term_before
        )
        checkpoints = self._checkpoints(file, following)
        walk = Walk(opened_file, start, self._spec.group, file.path, file.term_max)
        agreed = start
        stop = file.stop
        for batch in walk.batches(stop):
            note_batch(index, batch)
            self._note(batch)
            checkpoint = checkpoints.pop(walk.place.raft_index, None)
            if checkpoint is not None:
                place = walk.place
                if walk.check(
                    place.raft_index, checkpoint.chain, checkpoint.position, checkpoint.what
                ):
                    agreed = place
                elif checkpoint.binds:
                    return SegmentEnd(agreed, agreed, f"{walk.fault} ({file.path})")
                else:
                    walk.fault = None
        place = walk.place
        if stop is not None and place.raft_index < stop:
            why = walk.fault or "the file ends"
            return SegmentEnd(agreed, agreed, f"{why} before entry {stop} ({file.path})")
        if stop is not None and place.position < opened_file.size():
            probe("void-suffix-skipped-at-boot")
        self._torn = walk.fault
        return SegmentEnd(place, agreed, None)

    def _checkpoints(
        self, file: LiveFile, following: LiveFile | None
    ) -> dict[RaftIndex, Checkpoint]:
        """Places whose chain was written down elsewhere, by the index of the entry behind them."""
        found: dict[RaftIndex, Checkpoint] = {}
        stored = self._index_file(file)
        for point in (*stored.sparse.points(), stored.end) if stored else ():
            told = Checkpoint(point.chain, point.position, "its index", binds=False)
            found[point.raft_index] = told
        mark = self._mark
        if mark is not None and mark.file_sequence == file.header.file_sequence:
            at = RaftIndex(mark.raft_index + 1)
            found[at] = Checkpoint(mark.chain, mark.end_position, "the mark")
        if following is not None:
            header = following.header
            found[header.first_index] = Checkpoint(header.chain_before, None, "the next header")
        return found

    def _judge_last(self, opened_file: DiskFile, file: LiveFile, end: SegmentEnd) -> SegmentEnd:
        """The last live file: a fault before the mark is damage, behind it a torn tail."""
        if self._files.unreadable is not None:
            return end.damaged(self._files.unreadable)
        mark, sequence = self._mark, file.header.file_sequence
        if mark is not None and mark.file_sequence > self._files.sequence_max:
            return end.damaged(f"file {mark.file_sequence} has a mark and is lost")
        marked = mark.raft_index if mark and mark.file_sequence == sequence else RaftIndex(0)
        if end.place.raft_index <= marked:
            probe("invalid-bytes-before-the-mark")
            why = self._torn or "the file ends"
            return end.damaged(f"{why}, the mark says {marked}")
        if self._torn is not None:
            self._mended.append(Mended("torn-tail-cut", file.path, self._torn))
        self._cut_torn_tail(opened_file, end.place.position)
        known = mark.end_position if mark and mark.file_sequence == sequence else 0
        start, stop = max(known, SEGMENT_HEADER_BYTES), end.place.position
        if start < stop:
            probe("unmarked-tail-written-again")
            write_again(opened_file, start, _chunks(opened_file, start, stop))
        return end

    def _cut_torn_tail(self, opened_file: DiskFile, position: int) -> None:
        """Remove bytes that were never acknowledged; zeros of a prepared chunk may stay."""
        if self._torn is None:
            return
        probe("torn-tail-cut")
        opened_file.truncate(position)
        opened_file.sync()

    def _seen_in_last(self) -> LogEnd:
        """How far the last file goes by itself: entries are acknowledged before they are marked."""
        file = (self._files.live + self._files.beyond)[-1]
        header = file.header
        with opened(self._disk, file.path) as opened_file:
            start = segment_start(
                header.first_index, header.base_offset, header.chain_before, header.term_before
            )
            walk = Walk(opened_file, start, self._spec.group, file.path, file.term_max)
            for _ in walk.batches(file.stop):
                continue
        return _log_end(walk.place)

    def _seen_behind_mark(self) -> LogEnd:
        """How far the marked file goes from the mark on, whatever damage lies before it.

        Entries acknowledged after the last mark are promises too. A read error here is raised, as
        it may pass; once the disk has failed a few times the entries count as unknown.
        """
        mark = self._mark
        for file in self._files.live + self._files.beyond:
            if mark is None or file.header.file_sequence != mark.file_sequence:
                continue
            if file.stop is not None and mark.raft_index >= file.stop:
                break
            with opened(self._disk, file.path) as opened_file, self._lenient():
                first = opened_file.read_at(mark.end_position, BATCH_HEADER_BYTES)
                if len(first) == BATCH_HEADER_BYTES:
                    return self._walked_from(mark, read_header(first), opened_file, file)
        return self._end()

    def _walked_from(
        self, mark: Mark, header: BatchHeader, opened_file: DiskFile, file: LiveFile
    ) -> LogEnd:
        start = WalkPlace(
            RaftIndex(mark.raft_index + 1),
            Offset(header.base_offset),
            mark.end_position,
            mark.chain,
            mark.term,
        )
        walk = Walk(opened_file, start, self._spec.group, file.path, file.term_max)
        with self._lenient():
            for _ in walk.batches(file.stop):
                probe("promise-found-behind-the-mark")
        return _log_end(walk.place)

    def _lenient(self) -> AbstractContextManager[object]:
        return suppress(DiskError) if isinstance(self._disk, SalvagingDisk) else nullcontext()

    # --- gathering --------------------------------------------------------------------------------

    def _note(self, batch: WalkedBatch) -> None:
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
            self._note_control(entry.raft_index, entry.kind, batch.control.body)

    def _note_control(self, index: RaftIndex, kind: EntryKind, body: bytes) -> None:
        if kind is EntryKind.MEMBERSHIP:
            self._memberships.append((index, read_membership_body(body)))
        elif kind is EntryKind.LOG_START:
            self._log_starts.append((index, read_log_start(body)))

    def _add_walked(self, file: LiveFile, index: SegmentIndex, end: SegmentEnd) -> None:
        place = end.place
        if end.fault is not None and place.raft_index == file.header.first_index:
            return
        index.cut(place.raft_index)
        self._term_rows += index.terms
        self._segments.append(
            Segment(file.path, file.header, _log_end(place), place.position, index, None, True)
        )

    def _add_gap(
        self, file: LiveFile, following: LiveFile, index: SegmentIndex, end: SegmentEnd
    ) -> None:
        probe("gap-kept-at-boot")
        gap = kept_gap(file, following, index, end)
        lost_from = end.place.raft_index
        self._segments.append(gap.segment)
        self._term_rows += gap.terms
        self._memberships = [each for each in self._memberships if each[0] < lost_from]
        if gap.membership[0] > self._memberships[-1][0]:
            self._memberships.append(gap.membership)
        self._log_starts = [each for each in self._log_starts if each[0] < lost_from]
        self._log_starts.append(gap.log_start)
        self._window = None

    def _loaded(self, file: LiveFile, following: LiveFile | None) -> IndexFile | None:
        """The index file of a sealed segment, when it may stand for a walk until first use."""
        stored = self._index_file(file) if self._trust_indexes else None
        if stored is None or following is None or file.stop is None:
            return None
        header = following.header
        if file.stop - 1 > self._hint or stored.end[:2] != (file.stop, header.base_offset):
            return None
        joins = stored.joins(file.header.term_before, header.term_before)
        if not joins or stored.end.chain != header.chain_before:
            return None
        with opened(self._disk, file.path) as opened_file:
            if opened_file.size() < stored.end.position:
                return None
            listed = [row for row in stored.sparse.controls if row.kind in _LISTED_KINDS]
            before, term_at = file.header.term_before, stored.sparse.term_at
            terms = [term_at(row.raft_index, before) for row in listed]
            bodies = list(map(partial(self._control_body, opened_file), listed, terms))
        if None in bodies:
            return None
        for row, body in zip(listed, bodies, strict=True):
            assert body is not None, row
            self._note_control(row.raft_index, row.kind, body)
        return stored

    def _index_file(self, file: LiveFile) -> IndexFile | None:
        """The segment's index file; None when it is missing, damaged or another segment's."""
        path = index_name(file.path)
        if not self._disk.exists(path):
            return None
        interval = self._options.interval_bytes
        try:
            data = read_whole(self._disk, path, INDEX_FILE_BYTES_MAX)
            stored = read_index_file(data, interval, path)
        except CorruptData as damage:
            probe("index-file-rebuilt")
            self._mended.append(Mended("index-rebuilt", path, damage.what))
            return None
        header = file.header
        told = (stored.group, stored.file_sequence, stored.first_index)
        return stored if told == (header.group, header.file_sequence, header.first_index) else None

    def _control_body(self, opened_file: DiskFile, row: ControlRow, term: Term) -> bytes | None:
        """The payload of a raft entry that the index lists; None when it lies elsewhere."""
        batch = opened_file.read_at(row.position, row.size)
        if len(batch) < row.size or not crc_matches(batch, read_header(batch)):
            return None
        try:
            control = parse_control_entry(batch, CorruptData, self._spec.path)
        except CorruptData:
            return None
        header = read_header(batch)
        told = (control.group, control.raft_index, control.kind)
        place = (header.leader_epoch, header.base_offset)
        if told != (self._spec.group, row.raft_index, row.kind) or place != (term, row.offset):
            return None
        return control.body

    def _add_loaded(self, file: LiveFile, stored: IndexFile) -> None:
        """Take the segment as its index file tells it; its batches are not verified yet."""
        header = file.header
        terms = stored.sparse.terms
        term = terms[-1].term if terms else header.term_before
        self._term_rows += terms
        end = LogEnd(
            RaftIndex(stored.end.raft_index - 1), term, stored.end.chain, stored.end.offset
        )
        largest = stored.sparse.largest()
        self._segments.append(
            Segment(file.path, header, end, stored.end.position, None, largest, False)
        )
        self._window = None

    # --- the result -------------------------------------------------------------------------------

    def _end(self) -> LogEnd:
        return (
            self._segments[-1].end if self._segments else before_header(self._files.live[0].header)
        )

    def _result(self, fault: str | None, seen: LogEnd) -> WalkedLog:
        end = self._end()
        last = self._segments[-1] if self._segments else None
        position = last.end_position if last and last.end_position else SEGMENT_HEADER_BYTES
        sequence = last.header.file_sequence if last else 0
        after = RaftIndex(end.raft_index + 1)
        return WalkedLog(
            end=FileEnd(end, sequence, position),
            segments=self._segments,
            window=self._window_until(after, end.next_offset),
            terms=self._terms(after),
            memberships=[pair for pair in self._memberships if pair[0] < after],
            log_starts=[pair for pair in self._log_starts if pair[0] < after],
            fault=fault,
            seen=seen,
            hint_counts=self._hint_counts,
            mended=tuple(dict.fromkeys(self._mended)),
        )

    def _terms(self, after: RaftIndex) -> TermTable:
        before = before_header(self._files.live[0].header)
        terms = TermTable(before.term, before.raft_index, before.next_offset)
        for row in self._term_rows:
            if row.raft_index < after:
                terms.begin(row.term, row.raft_index, row.offset)
        return terms

    def _window_until(self, after: RaftIndex, next_offset: Offset) -> RecentWindow:
        window = self._window
        if window is None or window.first >= after:
            return RecentWindow(after, next_offset)
        window.cut(after)
        assert window.end == after, (window.end, after)
        return window


def _log_end(place: WalkPlace) -> LogEnd:
    return LogEnd(RaftIndex(place.raft_index - 1), place.term, place.chain, place.offset)


def _progress(end: LogEnd) -> tuple[Term, RaftIndex]:
    return end.term, end.raft_index


def _chunks(file: DiskFile, position: int, end: int) -> Iterator[bytes]:
    while position < end:
        chunk = file.read_at(position, min(WALK_CHUNK_BYTES, end - position))
        assert chunk, (position, end)
        yield chunk
        position += len(chunk)
