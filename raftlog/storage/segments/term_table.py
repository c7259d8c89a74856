"""Keeps where each term begins in a log: raft index and offset. It is rebuilt from the log.

It answers `term_at` for every index without the disk, and gives Raft its conflict hints. It answers
Kafka's OffsetForLeaderEpoch (KIP-101, KIP-279) with the largest known epoch that is at most the
asked one, and with the offset where that epoch ends.
"""

from bisect import bisect_right
from typing import final

from raftlog.base.ids import Offset, RaftIndex, Term


@final
class TermTable:
    """Ascending rows of (term, first index, first offset).

    The first row is the term before the log's first entry. Its own beginning is unknown and given
    as the place before that entry.
    """

    __slots__ = ("_indexes", "_offsets", "_terms")

    def __init__(self, term: Term, before_first: RaftIndex, base_offset: Offset) -> None:
        self._terms = [term]
        self._indexes = [before_first]
        self._offsets = [base_offset]

    def __len__(self) -> int:
        return len(self._terms)

    def copy(self) -> "TermTable":
        """A table of its own, for a job: the log goes on meanwhile."""
        found = TermTable(self._terms[0], self._indexes[0], self._offsets[0])
        found._terms, found._indexes = [*self._terms], [*self._indexes]
        found._offsets = [*self._offsets]
        return found

    def rows(self) -> list[tuple[Term, RaftIndex, Offset]]:
        """All rows, for inspection and tests."""
        return list(zip(self._terms, self._indexes, self._offsets, strict=True))

    @property
    def last_term(self) -> Term:
        return self._terms[-1]

    def begin(self, term: Term, index: RaftIndex, offset: Offset) -> None:
        """Add a term higher than all before; it begins with the entry at `index`."""
        assert term > self._terms[-1], (term, self._terms[-1])
        assert index > self._indexes[-1], (index, self._indexes[-1])
        self._terms.append(term)
        self._indexes.append(index)
        self._offsets.append(offset)

    def at(self, index: RaftIndex) -> Term:
        """The term of the entry at `index`, which is in the log or just before it."""
        return self._terms[bisect_right(self._indexes, index) - 1]

    def at_offset(self, offset: Offset) -> Term:
        """The term of the record at `offset`, which is in the log, or of the log's end."""
        # Raft's own entries take no offset: of several terms that begin here only the last has
        # records.
        return self._terms[max(0, bisect_right(self._offsets, offset) - 1)]

    def holds(self, index: RaftIndex, term: Term) -> bool:
        """Whether the log, or the place just before it, has an entry of this index and term.

        Only the terms are compared: the caller knows where the log ends.
        """
        return index >= self._indexes[0] and self.at(index) == term

    def first_index_of(self, term: Term) -> RaftIndex | None:
        """The first entry of `term` that the log holds."""
        row = bisect_right(self._terms, term) - 1
        if row < 0 or self._terms[row] != term:
            return None
        if row == 0:
            return self._first_held_of_first_row()
        return self._indexes[row]

    def _first_held_of_first_row(self) -> RaftIndex | None:
        """The first entry in the log that has the first row's term; None where it has none."""
        after = RaftIndex(self._indexes[0] + 1)
        if len(self._indexes) > 1 and self._indexes[1] == after:
            return None
        return after

    def last_index_at_or_below(self, term: Term, last_index: RaftIndex) -> RaftIndex:
        """The highest index whose term is at most `term`; the place before the log when none is."""
        row = bisect_right(self._terms, term)
        if row == len(self._terms):
            return last_index
        return self._indexes[0] if row == 0 else RaftIndex(self._indexes[row] - 1)

    def end_offset_for(self, term: Term, end: Offset) -> tuple[Term, Offset] | None:
        """The largest known term that is at most `term`, and the offset where it ends.

        It ends where the next one begins, the last one at `end`. None when all known terms are
        later.
        """
        row = bisect_right(self._terms, term) - 1
        if row < 0:
            return None
        after = self._offsets[row + 1] if row + 1 < len(self._offsets) else end
        return self._terms[row], Offset(min(after, end))

    def cut(self, index: RaftIndex) -> None:
        """Forget terms that begin at `index` or later."""
        while len(self._indexes) > 1 and self._indexes[-1] >= index:
            self._terms.pop()
            self._indexes.pop()
            self._offsets.pop()

    def drop_before(self, before_first: RaftIndex, base_offset: Offset) -> None:
        """Begin the log after `before_first`: the row in force there becomes the first."""
        row = bisect_right(self._indexes, before_first) - 1
        assert row >= 0, (before_first, self._indexes[0])
        del self._terms[:row], self._indexes[:row], self._offsets[:row]
        self._indexes[0] = before_first
        self._offsets[0] = base_offset
