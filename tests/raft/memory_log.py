"""A RaftLog in memory, with a model of its disk: what a round wrote survives, the rest is lost.

It is also the dumb twin of storage's PartitionLog: lists, no windows, no files. `window` can be
set to make older entries "not in memory", so that the node has to ask for log reads.
"""

import copy
from collections.abc import Sequence

from raftlog.base.binary import Buffer
from raftlog.base.entries import Entry, EntryKind, InstallPosition, Membership
from raftlog.base.errors import CorruptData, RaftlogError
from raftlog.base.ids import Chain, ClusterId, GroupId, IoId, Offset, RaftIndex, Term
from raftlog.records.chain import chain_next, chain_start
from raftlog.records.control import parse_control_entry, read_membership_body

CLUSTER = ClusterId(b"c" * 16)


class MemoryLog:
    """Entries from `first_index` on; `_chains[i]` is the chain before entry `first_index + i`."""

    def __init__(self, group: GroupId = GroupId(1)) -> None:
        self._first = 1
        self._prev_term = Term(0)
        self._entries: list[Entry] = []
        self._chains: list[Chain] = [chain_start(CLUSTER, group)]
        self._next_offset = Offset(0)
        self.log_start = Offset(0)
        self.snapshot: Buffer = b""
        self.refusal: RaftlogError | None = None
        self.memberships: list[tuple[RaftIndex, Membership]] = []
        self.window: int | None = None
        self.truncations: list[RaftIndex] = []
        self.cut_off: list[tuple[RaftIndex, Term, Chain]] = []
        self._disk: dict | None = None
        self._rounds: list[tuple[IoId, dict]] = []

    @classmethod
    def founded(cls, membership: Membership, group: GroupId = GroupId(1)) -> "MemoryLog":
        """A log as a creation command makes it: empty, with its first membership, durable."""
        log = cls(group)
        log.memberships = [(RaftIndex(0), membership)]
        log._disk = log._image()
        return log

    # --- the RaftLog protocol ---------------------------------------------------------------------

    @property
    def first_index(self) -> RaftIndex:
        return RaftIndex(self._first)

    @property
    def last_index(self) -> RaftIndex:
        return RaftIndex(self._first + len(self._entries) - 1)

    @property
    def last_term(self) -> Term:
        return self._entries[-1].term if self._entries else self._prev_term

    @property
    def next_offset(self) -> Offset:
        return self._entries[-1].next_offset if self._entries else self._next_offset

    def term_at(self, index: RaftIndex) -> Term | None:
        if index == self._first - 1:
            return self._prev_term
        at = index - self._first
        return self._entries[at].term if 0 <= at < len(self._entries) else None

    def chain_at(self, index: RaftIndex) -> Chain | None:
        at = index - self._first + 1
        return self._chains[at] if 0 <= at < len(self._chains) else None

    def first_index_of(self, term: Term) -> RaftIndex | None:
        return next((entry.raft_index for entry in self._entries if entry.term == term), None)

    def last_index_at_or_below(self, term: Term) -> RaftIndex:
        below = [entry.raft_index for entry in self._entries if entry.term <= term]
        return below[-1] if below else RaftIndex(self._first - 1)

    def entries(self, first: RaftIndex, bytes_max: int) -> Sequence[Entry] | None:
        assert self._first <= first <= self.last_index, (first, self._first, self.last_index)
        if self.window is not None and first <= self.last_index - self.window:
            return None
        return self.read(first, bytes_max)

    def read(self, first: RaftIndex, bytes_max: int) -> list[Entry]:
        """As the disk would answer a LogRead."""
        found: list[Entry] = []
        size = 0
        for entry in self._entries[first - self._first :]:
            size += len(entry.batch)
            if found and size > bytes_max:
                break
            found.append(entry)
        return found

    def append(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            assert entry.raft_index == self.last_index + 1, (entry.raft_index, self.last_index)
            assert entry.base_offset == self.next_offset, (entry, self.next_offset)
            assert entry.term >= self.last_term, (entry, self.last_term)
            self._chains.append(chain_next(self._chains[-1], entry.batch))
            self._entries.append(entry)
            if entry.kind is EntryKind.MEMBERSHIP:
                body = parse_control_entry(entry.batch, CorruptData, "memory log").body
                self.memberships.append((entry.raft_index, read_membership_body(body)))

    def truncate_from(self, index: RaftIndex) -> None:
        assert self._first <= index <= self.last_index, (index, self._first, self.last_index)
        self.truncations.append(index)
        at = index - self._first
        for gone, chain in zip(self._entries[at:], self._chains[at + 1 :], strict=True):
            self.cut_off.append((gone.raft_index, gone.term, chain))
        if at == 0:
            self._next_offset = self._entries[0].base_offset
        del self._entries[at:]
        del self._chains[at + 1 :]
        self.memberships = [pair for pair in self.memberships if pair[0] < index]

    def install(self, position: InstallPosition, snapshot: Buffer) -> None:
        if self.refusal is not None:
            raise self.refusal
        self._first = position.raft_index + 1
        self._prev_term = position.term
        self._entries = []
        self._chains = [position.chain]
        self._next_offset = position.next_offset
        self.log_start = position.log_start
        self.snapshot = bytes(snapshot)
        self.memberships = [(position.membership_index, position.membership)]

    # --- what a driver and a test need ------------------------------------------------------------

    @property
    def all_entries(self) -> list[Entry]:
        return list(self._entries)

    def position_before_first(self) -> InstallPosition:
        """Returns the result of a SnapshotRead: the place before the first entry held."""
        index = RaftIndex(self._first - 1)
        held = [pair for pair in self.memberships if pair[0] <= index]
        return InstallPosition(
            raft_index=index,
            term=self._prev_term,
            chain=self._chains[0],
            next_offset=self._entries[0].base_offset if self._entries else self._next_offset,
            log_start=self.log_start,
            membership=held[-1][1],
            membership_index=held[-1][0],
        )

    def drop_before(self, index: RaftIndex) -> None:
        """Retention: forget the entries below `index` (at most last_index + 1), on disk too."""
        while self._first < index:
            entry = self._entries.pop(0)
            self._chains.pop(0)
            self._prev_term, self._next_offset = entry.term, entry.next_offset
            self._first += 1
        self.log_start = self._next_offset
        held = [pair for pair in self.memberships if pair[0] < index]
        self.memberships = held[-1:] + [pair for pair in self.memberships if pair[0] >= index]

    def take(self, io_id: IoId) -> None:
        """The round `io_id` carries everything that memory holds now."""
        self._rounds.append((io_id, self._image()))

    def persisted(self, io_id: IoId) -> None:
        while self._rounds and self._rounds[0][0] <= io_id:
            self._disk = self._rounds.pop(0)[1]

    def crashed(self) -> "MemoryLog":
        """The log that a boot finds: what the last completed round left."""
        assert self._disk is not None
        log = MemoryLog()
        for name, value in copy.copy(self._disk).items():
            setattr(log, name, copy.copy(value))
        log._disk = log._image()
        log.window = self.window
        return log

    def _image(self) -> dict:
        names = ("_first", "_prev_term", "_entries", "_chains", "_next_offset")
        image = {name: copy.copy(getattr(self, name)) for name in names}
        more = ("log_start", "snapshot", "memberships")
        return image | {name: copy.copy(getattr(self, name)) for name in more}
