"""The log of one replica in memory: what there is, what must be written, what is durable.

It never touches a file. A mutator changes memory at once and adds to the operations of this turn's
io_id. `written` and `persisted` move the ends up to which files may be read and promises made.
Reads are planned as memory views, file slices, or jobs that run off the loop.

Rules:
1. A file is never overwritten. Truncation to an index, and an install, begin a new file. Entries of
   older files at or above its first index are void from the moment its header is durable.
2. A segment takes entries in the round of its header and directory, after these are synced. The
   writer first syncs what the group wrote before, so a header vouches for all entries below it.
3. The ends of rounds in flight are clamped by a truncation: the completion of a round that wrote
   entries of an ended term makes no entry of the next term durable (etcd's append ABA).
4. Places of entries from min(commit, durable) on stay in memory, so that a truncation, which never
   goes below commit, finds the chain and offset to continue from.
"""

from collections.abc import Sequence
from typing import final

from raftlog.base.binary import Buffer
from raftlog.base.buggify import buggify
from raftlog.base.entries import Entry, EntryKind, InstallPosition, LogPosition
from raftlog.base.errors import CorruptData
from raftlog.base.ids import Chain, IoId, Offset, RaftIndex, Term
from raftlog.records.chain import chain_next
from raftlog.records.control import parse_control_entry, read_membership_body
from raftlog.records.slices import FileSlice
from raftlog.storage.log_end import FileEnd, LogParts
from raftlog.storage.ops import WriteOp
from raftlog.storage.read_plan import ReadPlanner
from raftlog.storage.recent_window import RecentWindow
from raftlog.storage.replica import (
    LogEnd,
    LogOptions,
    Mark,
    ReplicaSpec,
    snapshot_name,
)
from raftlog.storage.rounds import Rounds, index_of
from raftlog.storage.segment_files import SegmentFiles
from raftlog.storage.segments.cold import ColdRead, Learned, SegmentsRemoved
from raftlog.storage.segments.jobs import remove_files
from raftlog.storage.segments.segment import Gap, Segment
from raftlog.storage.segments.snapshot import snapshot_bytes
from raftlog.storage.segments.sparse_index import SegmentIndex, TermRow
from raftlog.storage.segments.term_table import TermTable
from raftlog.storage.segments.time_plan import TimePlanner
from raftlog.storage.segments.walk import TERM_BEGINNERS


@final
class PartitionLog:
    """Conforms to raftlog.raft.log_view.RaftLog by shape.

    * `first_index` to `last_index`: the entries held, on disk or in memory.
    * `last_term`, `last_chain`, `next_offset`: of the place after `last_index`.
    * `prev_term`, `prev_chain`: of the place before `first_index`.
    * `log_start`: the first offset that clients may read, says the committed `start_marker`, or 0.
    * `terms`: where each term begins. `memberships`: (index, membership), ascending; the first is
      in force at `first_index - 1`.
    """

    __slots__ = (
        "_commit", "_files", "_jobs", "_mark_from", "_planner", "_repair", "_rounds", "_window",
        "_window_slack", "first_index", "judged", "last_chain", "last_index", "last_term",
        "log_start", "memberships", "next_offset", "options", "prev_chain", "prev_term", "spec",
        "start_marker", "terms",
    )  # fmt: skip

    def __init__(self, spec: ReplicaSpec, options: LogOptions, parts: LogParts) -> None:
        """Take over a log from recovery: everything in `parts` is on disk and durable."""
        head = parts.before
        self.spec, self.options = spec, options
        self.first_index = RaftIndex(head.raft_index + 1)
        self.prev_term, self.prev_chain = head.term, head.chain
        self.log_start, self.start_marker = parts.log_start, RaftIndex(0)
        self.memberships = list(parts.memberships)
        self.last_index, self.last_term, self.last_chain, self.next_offset = parts.end.end
        self._files = SegmentFiles(spec, options, parts)
        self._window = parts.window
        self._window_slack = options.window_bytes + options.window_bytes // 4
        self.terms = parts.terms
        self._repair = parts.repair
        self.judged: bytes | None = None  # a state that `install` need not judge
        self._mark_from = self._files.next_sequence if self._files.due else 0
        self._commit, self._rounds = RaftIndex(0), Rounds(parts.end)
        self._jobs: list[ColdRead] = []
        self._planner = ReadPlanner(spec, options, parts.segments, parts.window, parts.terms)

    @property
    def segments(self) -> Sequence[Segment]:
        """The live segments, oldest first."""
        self._files.settle(self.end)
        return self._files.segments

    @property
    def end(self) -> LogEnd:
        """The place after the last entry."""
        return LogEnd(self.last_index, self.last_term, self.last_chain, self.next_offset)

    @property
    def gaps(self) -> Sequence[Gap]:
        """The offsets where closed segments are damaged, and no other replica can repair them."""
        return self._planner.gaps

    @property
    def damaged_until(self) -> tuple[RaftIndex, Term] | None:
        """The (index, term) that the replica once held and lost. None once the durable log is at
        least as up to date as that, last term before length."""
        if self._repair is None or self._rounds.durable is None:
            return self._repair
        end = self._rounds.durable.end
        if (end.raft_index, end.term)[::-1] >= self._repair[::-1]:
            self._repair = None
        return self._repair

    def term_at(self, index: RaftIndex) -> Term | None:
        """The term of the entry, also of `first_index - 1`; None outside."""
        if index == self.last_index:
            return self.last_term
        if not self.first_index - 1 <= index <= self.last_index:
            return None
        return self.terms.at(index)

    def chain_at(self, index: RaftIndex) -> Chain | None:
        """The chain after the entry, also of `first_index - 1`; None when it is not in memory."""
        if index == self.last_index:
            return self.last_chain
        if index < self.first_index:
            return self.prev_chain if index == self.first_index - 1 else None
        return self._window.chain_before(RaftIndex(index + 1))

    def first_index_of(self, term: Term) -> RaftIndex | None:
        found = self.terms.first_index_of(term)
        return found if found is not None and found <= self.last_index else None

    def last_index_at_or_below(self, term: Term) -> RaftIndex:
        return self.terms.last_index_at_or_below(term, self.last_index)

    def offset_at(self, index: RaftIndex) -> Offset | None:
        """The offset after the entry `index`; None when its place is no longer in memory."""
        if index == self.last_index:
            return self.next_offset
        if index == self._window.first - 1:
            return self._window.base_offset
        return self._window.next_offset_at(index)

    def entries(self, first: RaftIndex, bytes_max: int) -> list[Entry] | None:
        """At least one entry from `first`, then more within `bytes_max`; None when they are not in
        memory."""
        assert self.first_index <= first <= self.last_index, (first, self.last_index)
        return self._window.entries(first, bytes_max)

    def term_end_offset(self, epoch: Term, limit: Offset) -> tuple[Term, Offset] | None:
        """The answer to OffsetForLeaderEpoch: the largest known term at most `epoch`, and where it
        ends (at most `limit`). None when every known term is later."""
        return self.terms.end_offset_for(epoch, limit)

    # --- what changes it --------------------------------------------------------------------------

    def append(self, entries: Sequence[Entry]) -> None:
        """Add entries that continue the log; a higher term begins with its term-start entry."""
        window, files = self._window, self._files
        pending = files.pending
        for entry in entries:
            index = entry.raft_index
            assert index == self.last_index + 1, (index, self.last_index)
            assert entry.base_offset == self.next_offset, (entry.base_offset, self.next_offset)
            if files.must_begin(entry):
                self._begin_file(entry.term)
            position, before = pending.position, self.last_chain
            sparse = files.segments[-1].index
            assert sparse is not None, index
            if entry.kind or entry.term != self.last_term:
                self._note_raft_entry(entry, sparse)
            window.append(entry, position, before)
            sparse.note(entry, position, before)
            pending.append(entry.batch)
            self.last_chain = chain_next(before, entry.batch)
            self.last_index = index
            self.last_term = entry.term
            self.next_offset = entry.next_offset
        if buggify("window-shed"):
            self.trim_window(0)
        elif window.bytes > self._window_slack:
            self.trim_window(self.options.window_bytes)

    def _note_raft_entry(self, entry: Entry, segment_index: SegmentIndex) -> None:
        """Note an entry of Raft's own, or the first one of a term."""
        index, offset = entry.raft_index, entry.base_offset
        if entry.term != self.last_term:
            assert entry.term > self.last_term, (entry.term, self.last_term)
            assert entry.kind in TERM_BEGINNERS, (entry.kind, entry.term)
            self.terms.begin(entry.term, index, offset)
            segment_index.terms.append(TermRow(entry.term, index, offset))
        if entry.kind is EntryKind.MEMBERSHIP:
            control = parse_control_entry(entry.batch, CorruptData, self.spec.path)
            self.memberships.append((index, read_membership_body(control.body)))

    def truncate_from(self, index: RaftIndex) -> None:
        """Drop the entries from `index` on; they are above commit."""
        assert self.first_index <= index <= self.last_index, (index, self.last_index)
        assert index > self._commit, (index, self._commit)
        end = self._end_before(index)
        position = self._window.position_of(index)
        assert position is not None, (index, self._window.first)
        self._files.settle(self.end)
        place, shortened = self._files.cut(end, position)
        if shortened is not None:
            self._jobs.append(self._planner.index_job(shortened))
        self._window.cut(index)
        self.terms.cut(index)
        self._planner.forget()
        self.memberships = [pair for pair in self.memberships if pair[0] < index]
        self._set_end(end)
        self._rounds.clamp(place)

    def _end_before(self, index: RaftIndex) -> LogEnd:
        before = RaftIndex(index - 1)
        term, chain, offset = self.term_at(before), self.chain_at(before), self.offset_at(before)
        assert term is not None, (index, self.first_index)
        assert chain is not None, (index, self._window.first)
        assert offset is not None, (index, self._window.first)
        return LogEnd(before, term, chain, offset)

    def install(self, position: InstallPosition, snapshot: Buffer) -> None:
        """Forget all entries and begin after `position`, as one switch. The snapshot's file is
        synced before the header that makes all older files void. A bad one changes nothing."""
        path = f"{self.spec.path}/{snapshot_name(RaftIndex(position.raft_index + 1))}"
        judged, self.judged = self.judged == snapshot, None
        content = snapshot_bytes(self.spec, position, snapshot, judged=judged)
        self._files.pending.create(path, content)
        self._files.replace()
        self.first_index = RaftIndex(position.raft_index + 1)
        self.prev_term, self.prev_chain = position.term, position.chain
        self.log_start, self.start_marker = position.log_start, RaftIndex(0)
        self.memberships = [(position.membership_index, position.membership)]
        end = LogEnd(position.raft_index, position.term, position.chain, position.next_offset)
        self._set_end(end)
        self.terms = TermTable(position.term, position.raft_index, position.next_offset)
        self._window = RecentWindow(self.first_index, position.next_offset)
        self._planner.replace(self._window, self.terms)
        self._rounds.overtake()
        self._commit = RaftIndex(0)

    def _set_end(self, end: LogEnd) -> None:
        self.last_index, self.last_term, self.last_chain, self.next_offset = end

    def _begin_file(self, term: Term) -> None:
        """Begin the next file with the next entry, which is of `term`."""
        files, end = self._files, self.end
        files.settle(end)
        if not files.due:
            self._jobs.append(self._planner.index_job(files.segments[-1]))
        files.begin(end, term, self.memberships[-1], self.log_start, self.damaged_until)

    def resize(self, segment_bytes: int) -> None:
        """Change the size at which segments roll, from the next entry on."""
        self.options = self.options.resized(segment_bytes)
        self._files.resize(segment_bytes)

    def roll(self) -> None:
        """Close the active segment if it holds entries: the next one begins with this round."""
        if self._files.holds_entries:
            self._begin_file(self.last_term)

    # --- writing ----------------------------------------------------------------------------------

    def take_ops(self, io_id: IoId) -> list[WriteOp]:
        """The operations of the round `io_id`, in order; [] when there is nothing to write."""
        if self._files.needs_file:
            self._begin_file(self.last_term)
        ops, obsolete = self._files.take()
        if ops:
            self._rounds.begin(io_id, self._files.place(self.end), obsolete)
        return ops

    def written(self, io_id: IoId) -> None:
        """Note that the round's bytes can be read from files. An unknown io_id changes nothing."""
        self._rounds.note_written(io_id)

    def persisted(self, io_id: IoId) -> None:
        """Note that the round is durable. An unknown io_id changes nothing."""
        if obsolete := self._rounds.note_persisted(io_id):
            self._jobs.append(ColdRead(remove_files, (tuple(obsolete),)))

    @property
    def written_index(self) -> RaftIndex:
        """The last entry that can be read from files; 0 when an install is not written yet."""
        return index_of(self._rounds.written)

    @property
    def durable_index(self) -> RaftIndex:
        """The last entry that survives a crash; 0 when an install is not durable yet."""
        return index_of(self._rounds.durable)

    @property
    def durable_end(self) -> LogPosition | None:
        """The last durable entry; None while an install is not durable."""
        return LogPosition(*self._rounds.durable.end[:3]) if self._rounds.durable else None

    @property
    def durable_file(self) -> FileEnd | None:
        """Where that entry ends in the files: no byte before it is ever written again."""
        return self._rounds.durable

    def mark(self, commit: RaftIndex) -> Mark | None:
        """The mark that the store should hold for this log now. None while an install is not
        durable, and while no durable header records the damage: a mark that fell back would let
        the next boot take the damage for a torn tail."""
        if self._rounds.durable is None or self._rounds.durable.file_sequence < self._mark_from:
            return None
        end, sequence, position = self._rounds.durable
        hint = RaftIndex(min(commit, end.raft_index))
        return Mark(self.spec.group, sequence, position, end.raft_index, end.term, end.chain, hint)

    def set_commit(self, index: RaftIndex) -> None:
        """Commit the entries up to `index`: never truncated, and shed from memory in time."""
        assert index <= self.last_index, (index, self.last_index)
        self._commit = max(self._commit, index)

    def set_log_start(self, offset: Offset, marker: RaftIndex) -> None:
        """Set the committed log start, which the entry `marker` tells; it never falls."""
        if offset > self.log_start:
            self.log_start, self.start_marker = offset, marker

    def trim_window(self, bytes_max: int) -> None:
        """Shed entries that are committed and durable until those held fit into `bytes_max`."""
        keep_from = min(self._commit, self.durable_index)
        self._window.shed(RaftIndex(keep_from + 1), bytes_max)

    # --- reading ----------------------------------------------------------------------------------

    def plan_read(
        self, offset: Offset, bytes_max: int, limit: Offset
    ) -> list[Buffer | FileSlice] | ColdRead:
        """The batches from the one that holds `offset`, up to `limit` and about `bytes_max`: at
        least one whole batch, never one of Raft's own entries. [] when nothing is there.

        A ColdRead must be run first; after `cold_done(its result)` plan again.
        """
        return self._settled().plan(offset, bytes_max, limit, self.written_index)

    def available_bytes(self, offset: Offset, limit: Offset) -> int:
        """About how many log bytes lie between two offsets; exact near the end of the log."""
        if offset >= limit:
            return 0
        return self._settled().bytes_between(offset, limit)

    def plan_entries(self, first: RaftIndex, bytes_max: int) -> ColdRead:
        """A job that reads and verifies entries from `first` for a follower that is far behind."""
        assert self.first_index <= first <= self.written_index, (first, self.written_index)
        return self._settled().plan_entries(first, bytes_max, self.written_index)

    def plan_verify(self, first: RaftIndex, last: RaftIndex) -> ColdRead:
        """A job that verifies the segments of `first` to `last`, after a follower refused them."""
        return self._settled().plan_verify(first, last, self.written_index)

    def times(self) -> TimePlanner:
        """The planner of questions about timestamps, from the log start on. A job's result that is
        no answer goes to `cold_done`; then ask again, as with `plan_read`."""
        return self._settled().times(self.log_start, self.written_index)

    def plan_producer_replay(self) -> ColdRead:
        """A job that gives the nearest producer snapshot and what follows it, up to the last
        entry."""
        return self._settled().plan_replay(self.written_index, self.last_index)

    def cold_done(self, result: object) -> None:
        """Take the result of any ColdRead of this log; a result that comes too late is ignored."""
        if isinstance(result, SegmentsRemoved):
            self._head_moved(result.first_index)
        elif isinstance(result, Learned):
            self._jobs += self._planner.learn(result)

    def take_jobs(self) -> list[ColdRead]:
        """Jobs for the background (index files, void files); no request waits for them."""
        jobs, self._jobs = self._jobs, []
        return jobs

    def take_rolls(self) -> list[RaftIndex]:
        """First indexes of the segments begun since the last call. The state before each of them
        should be written with `write_snapshot` at `position_before(index)`."""
        return self._files.take_rolls()

    def position_before(self, index: RaftIndex) -> InstallPosition:
        """The place before a segment's first entry."""
        return self._files.position_before(index)

    @property
    def snapshot_position(self) -> InstallPosition:
        """The place before the first entry: what an install sends. A log start above it comes from
        a marker that the follower will find among the entries behind it."""
        index, membership = self.memberships[0]
        segments = self._files.segments
        next_offset = segments[0].base_offset if segments else self.next_offset
        return InstallPosition(
            raft_index=RaftIndex(self.first_index - 1),
            term=self.prev_term,
            chain=self.prev_chain,
            next_offset=next_offset,
            log_start=min(self.log_start, next_offset),
            membership=membership,
            membership_index=index,
        )

    def plan_removal(self) -> ColdRead | None:
        """A job that removes the whole segments below the log start; None when there is none. Its
        result goes to `cold_done`, which moves the log's beginning."""
        settled, durable = self._settled(), self.durable_index
        return settled.plan_removal(self.log_start, self.start_marker, self._commit, durable)

    def _head_moved(self, first_index: RaftIndex) -> None:
        """Drop the segments below the one that begins at `first_index`: their files are gone."""
        if first_index <= self.first_index or not self._files.segments:
            return
        header = self._files.drop_before(first_index)
        self.first_index = header.first_index
        self.prev_term, self.prev_chain = header.term_before, header.chain_before
        self.terms.drop_before(RaftIndex(header.first_index - 1), header.base_offset)
        later = [pair for pair in self.memberships if pair[0] >= header.first_index]
        self.memberships = [(header.membership_index, header.membership), *later]
        self._planner.look_for_gaps()

    def _settled(self) -> ReadPlanner:
        self._files.settle(self.end)
        return self._planner
