"""Keeps the end of a log in memory: exact places, and the entries themselves as far as they fit.

Places (file position, chain before, next offset) are kept for every entry from min(commit, durable)
on, and usually for some more. Their entries are shed from the front once their bytes pass a bound.
After a boot there may be places without entries: an idle replica must stay small.
"""

from array import array
from bisect import bisect_right
from typing import final

from raftlog.base.entries import Entry
from raftlog.base.ids import Chain, Offset, RaftIndex


@final
class RecentWindow:
    """Places of the entries from `first` on, entries from `entries_first` on (at least `first`).
    `base_offset` is the offset at which the first place begins."""

    __slots__ = (
        "_bytes",
        "_chains",
        "_entries",
        "_offsets",
        "_positions",
        "base_offset",
        "entries_first",
        "first",
    )

    def __init__(self, first: RaftIndex, base_offset: Offset) -> None:
        self.first = first
        self.base_offset = base_offset
        self.entries_first = first
        self._positions = array("Q")
        self._chains = array("Q")
        self._offsets = array("Q")
        self._entries: list[Entry] = []
        self._bytes = 0

    @property
    def end(self) -> RaftIndex:
        """The index after the last place."""
        return RaftIndex(self.first + len(self._positions))

    @property
    def bytes(self) -> int:
        """The bytes of the entries held."""
        return self._bytes

    def append(self, entry: Entry, position: int, chain_before: Chain) -> None:
        """Add the entry after the last one."""
        self._positions.append(position)
        self._chains.append(chain_before)
        self._offsets.append(entry.next_offset)
        self._entries.append(entry)
        self._bytes += len(entry.batch)

    def chain_before(self, index: RaftIndex) -> Chain | None:
        """The chain before the entry `index`; None when its place is not held."""
        at = index - self.first
        return Chain(self._chains[at]) if 0 <= at < len(self._chains) else None

    def position_of(self, index: RaftIndex) -> int | None:
        """The position at which the entry begins in its file; None when its place is not held."""
        at = index - self.first
        return self._positions[at] if 0 <= at < len(self._positions) else None

    def next_offset_at(self, index: RaftIndex) -> Offset | None:
        """The offset after the entry; None when its place is not held."""
        at = index - self.first
        return Offset(self._offsets[at]) if 0 <= at < len(self._offsets) else None

    def entry(self, index: RaftIndex) -> Entry:
        """The entry, which must be held."""
        return self._entries[index - self.entries_first]

    def index_of_offset(self, offset: Offset) -> RaftIndex:
        """The entry that holds the record at `offset`, or `end`.

        The caller knows that the offset is not below the first place.
        """
        return RaftIndex(self.first + bisect_right(self._offsets, offset))

    def index_beyond(self, position: int, low: RaftIndex, high: RaftIndex) -> RaftIndex:
        """The first of the entries from `low` to below `high`, all in one file, that begins beyond
        `position`; `high` when none does."""
        found = bisect_right(self._positions, position, low - self.first, high - self.first)
        return RaftIndex(self.first + found)

    def entries(self, first: RaftIndex, bytes_max: int) -> list[Entry] | None:
        """At least one entry from `first`, then more within `bytes_max`; None if it is not held."""
        at = first - self.entries_first
        held = self._entries
        if not 0 <= at < len(held):
            return None
        total = len(held[at].batch)
        stop = at + 1
        while stop < len(held):
            total += len(held[stop].batch)
            if total > bytes_max:
                break
            stop += 1
        return held[at:stop]

    def cut(self, index: RaftIndex) -> None:
        """Forget the entries from `index` on."""
        keep = max(0, index - self.first)
        for column in (self._positions, self._chains, self._offsets):
            del column[keep:]
        keep = max(0, index - self.entries_first)
        self._bytes -= sum(len(entry.batch) for entry in self._entries[keep:])
        del self._entries[keep:]
        assert index >= self.first, (index, self.first)
        self.entries_first = min(self.entries_first, self.end)

    def shed(self, keep_from: RaftIndex, bytes_max: int) -> None:
        """Forget entries and places below `keep_from`, oldest first, until `bytes_max` holds."""
        self._shed_entries(min(len(self._entries), keep_from - self.entries_first), bytes_max)
        drop = min(self.entries_first, keep_from) - self.first
        if drop > 0:
            self.base_offset = Offset(self._offsets[drop - 1])
            for column in (self._positions, self._chains, self._offsets):
                del column[:drop]
            self.first = RaftIndex(self.first + drop)

    def shed_entries(self, bytes_max: int) -> None:
        """Forget entries from the front until `bytes_max` holds; their places stay (recovery)."""
        self._shed_entries(len(self._entries), bytes_max)

    def _shed_entries(self, limit: int, bytes_max: int) -> None:
        """Forget entries from the front, at most `limit` of them, until `bytes_max` holds."""
        count = 0
        while count < limit and self._bytes > bytes_max:
            self._bytes -= len(self._entries[count].batch)
            count += 1
        if count:
            del self._entries[:count]
            self.entries_first = RaftIndex(self.entries_first + count)
