"""The log as consensus sees it: the Protocol that storage conforms to by shape.

Everything here is memory. A mutator changes what the readers say at once, and adds to the write
that the replica takes for the io_id of this turn; what of it is durable, the node counts by
itself from `persisted`. Indexes run without a gap from `first_index` to `last_index`.
"""

from collections.abc import Sequence
from typing import Protocol

from raftlog.base.binary import Buffer
from raftlog.base.entries import Entry, InstallPosition
from raftlog.base.ids import Chain, Offset, RaftIndex, Term


class RaftLog(Protocol):
    """One group's log in memory terms; it never waits and never fails."""

    @property
    def first_index(self) -> RaftIndex:
        """The lowest entry still held, on disk or in memory; `last_index + 1` when there is
        none."""
        ...

    @property
    def last_index(self) -> RaftIndex:
        """The highest entry, written or not; `first_index - 1` when there is none."""
        ...

    @property
    def last_term(self) -> Term:
        """`term_at(last_index)`."""
        ...

    @property
    def next_offset(self) -> Offset:
        """The offset that the next record gets."""
        ...

    def term_at(self, index: RaftIndex) -> Term | None:
        """The term of the entry, also for `first_index - 1`; None outside. Never needs the disk."""
        ...

    def chain_at(self, index: RaftIndex) -> Chain | None:
        """The chain after that entry, also for `first_index - 1`; None when it is not in memory.
        It is in memory for `last_index` and for every `i` for which `entries(i + 1, ...)` is not
        None."""
        ...

    def first_index_of(self, term: Term) -> RaftIndex | None:
        """The first entry of a term that is held here."""
        ...

    def last_index_at_or_below(self, term: Term) -> RaftIndex:
        """The highest index from `first_index - 1` on whose term is at most `term`; `first_index
        - 1` when there is none."""
        ...

    def entries(self, first: RaftIndex, bytes_max: int) -> Sequence[Entry] | None:
        """Entries from `first` (at most `last_index`): at least one, then as long as the batches
        together stay within `bytes_max`. None when they are not in memory: a log read is needed."""
        ...

    def append(self, entries: Sequence[Entry]) -> None:
        """Add entries that continue the log in index and offset."""
        ...

    def truncate_from(self, index: RaftIndex) -> None:
        """Drop the entries from `index` (above commit, at most `last_index`) on."""
        ...

    def install(self, position: InstallPosition, snapshot: Buffer) -> None:
        """Forget all entries and begin after `position`. Raises `CorruptData` or `FutureFormat`,
        with nothing changed, when a boot could not go on from the snapshot: the exception to never
        failing, for nobody has looked at a leader's snapshot before."""
        ...
