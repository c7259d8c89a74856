"""Walks a replica's live files at a boot, as far as they are whole, and gathers what memory needs.

A sealed segment below the commit hint whose index file agrees with the next header is not walked:
it is verified on first use. Everything else is walked, batch by batch, against every checkpoint
there is. Where a checkpoint disagrees with batches that each look right (a batch of another group,
a flipped epoch), the valid prefix ends at the last checkpoint that agreed.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import final

import attrs

from raftlog.base.entries import Membership
from raftlog.base.errors import DiskError
from raftlog.base.ids import Offset, RaftIndex, Term
from raftlog.base.limits import (
    SEGMENT_HEADER_BYTES,
    WALK_CHUNK_BYTES,
)
from raftlog.base.ports import Disk, DiskFile
from raftlog.base.probes import probe
from raftlog.storage.boot.behind_fault import seen_behind_mark, seen_in_last
from raftlog.storage.boot.trusted_index import IndexFiles
from raftlog.storage.boot.walked_parts import WalkedParts
from raftlog.storage.files import opened, write_again
from raftlog.storage.log_end import FileEnd, Mended
from raftlog.storage.recent_window import RecentWindow
from raftlog.storage.replica import LogEnd, LogOptions, Mark, ReplicaSpec
from raftlog.storage.segments.jobs import IndexOrder, note_batch, write_index
from raftlog.storage.segments.live_files import LiveFile, LiveFiles
from raftlog.storage.segments.segment import Segment
from raftlog.storage.segments.segment_end import Checkpoint, SegmentEnd
from raftlog.storage.segments.sparse_index import (
    SegmentIndex,
)
from raftlog.storage.segments.term_table import TermTable
from raftlog.storage.segments.walk import Walk, segment_start


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
    """Goes through the files and judges where each of them ends."""

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
        self._hint_counts = hint_counts
        self._hint = RaftIndex(mark.commit if mark and hint_counts else 0)
        self._parts = WalkedParts(files.live[0].header, self._hint)
        self._torn: str | None = None
        self._mended: list[Mended] = []
        self._indexes = IndexFiles(disk, spec, options.interval_bytes, self._mended)

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
        return self._result(fault, self._parts.end if fault is None else self._seen())

    def _seen(self) -> LogEnd:
        """The furthest whole entry of a damaged log, before or behind its fault."""
        probe("damage-found-at-boot")
        disk, group, files = self._disk, self._spec.group, self._files
        seen = [self._parts.end, seen_in_last(disk, group, files)]
        behind = seen_behind_mark(disk, group, files, self._mark) if self._mark else None
        return max(seen if behind is None else [*seen, behind], key=_progress)

    def _result(self, fault: str | None, seen: LogEnd) -> WalkedLog:
        parts = self._parts
        end = parts.end
        after = RaftIndex(end.raft_index + 1)
        return WalkedLog(
            end=parts.file_end,
            segments=parts.segments,
            window=parts.window_until(after, end.next_offset),
            terms=parts.terms_until(after),
            memberships=[pair for pair in parts.memberships if pair[0] < after],
            log_starts=[pair for pair in parts.log_starts if pair[0] < after],
            fault=fault,
            seen=seen,
            hint_counts=self._hint_counts,
            mended=tuple(dict.fromkeys(self._mended)),
        )

    def _take_file(self, file: LiveFile, following: LiveFile | None) -> str | None:
        """Add the file's segment. Returns the fault that it has, if any."""
        if self._trust_indexes and following is not None:
            trusted = self._indexes.trusted(file, following, self._hint)
            if trusted is not None:
                for listed in trusted.controls:
                    self._parts.note_control(listed.raft_index, listed.kind, listed.body)
                self._parts.add_indexed(file, trusted.stored)
                return None
        index = SegmentIndex(self._options.interval_bytes)
        with opened(self._disk, file.path, write=True) as opened_file:
            end = self._walk_file(opened_file, file, following, index)
            if following is None and end.fault is None:
                end = self._judge_last(opened_file, file, end)
        if following is not None and end.fault is not None and self._past_gaps:
            self._parts.add_gap(file, following, index, end)
            return None
        self._parts.add_walked(file, index, end)
        if following is not None and end.fault is None:
            reference = self._parts.segments[-1].reference(
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
        start = segment_start(file.header)
        checkpoints = self._checkpoints(file, following)
        walk = Walk(opened_file, start, self._spec.group, file.path, file.term_max)
        agreed = start
        stop = file.stop
        for batch in walk.batches(stop):
            note_batch(index, batch)
            self._parts.note(batch)
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
        stored = self._indexes.read(file)
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


def _progress(end: LogEnd) -> tuple[Term, RaftIndex]:
    return end.term, end.raft_index


def _chunks(file: DiskFile, position: int, end: int) -> Iterator[bytes]:
    while position < end:
        chunk = file.read_at(position, min(WALK_CHUNK_BYTES, end - position))
        assert chunk, (position, end)
        yield chunk
        position += len(chunk)
