"""The bytes of a simulated file: the seen ones, the durable ones and the pending ranges."""

from collections.abc import Iterator
from typing import Final, final

import attrs

SECTOR: Final = 512


@final
@attrs.define(eq=False)
class Inode:
    """A file's bytes as a process sees them now, and as a crash that keeps nothing leaves them."""

    seen: bytearray = attrs.Factory(bytearray)
    durable: bytearray = attrs.Factory(bytearray)
    dirty: list[tuple[int, int]] = attrs.Factory(list)
    size_dirty: bool = False
    sync_failed: bool = False
    """Whether seen bytes may differ from the durable ones though none is pending."""
    cut_to: int | None = None
    """The shortest size, in bytes, since the size was last durable. A sync drops the durable bytes
    behind it even when the file has grown again."""
    unreadable: dict[int, None] = attrs.Factory(dict)
    """Numbers of the sectors that cannot be read until they are written or cut off. They belong to
    the file under any name. A write makes every sector that it touches readable as a whole."""
    rotten: dict[int, None] = attrs.Factory(dict)
    """The unreadable sectors that a crash leaves when it drops all pending bytes."""
    hurt: bool = False
    """Whether the run ever damaged the file at rest; later writes do not reset it."""

    def sync(self) -> None:
        """Make the pending bytes and the size durable."""
        if self.size_dirty:
            self.promote_size()
        for start, end in self.dirty:
            self.promote(start, end)
        self.forget_pending()

    def promote_size(self) -> None:
        """Make the size durable, and drop the durable bytes that were cut off."""
        if self.cut_to is not None:
            del self.durable[self.cut_to :]
            _drop_from(self.rotten, self.cut_to)
        resize(self.durable, len(self.seen))

    def promote(self, start: int, end: int) -> None:
        """Make these bytes durable."""
        self.durable[start:end] = self.seen[start:end]
        if self.rotten and start < end:
            for sector in sectors_of([(start, end)]):
                if sector not in self.unreadable:
                    self.rotten.pop(sector, None)

    def forget_pending(self) -> None:
        self.dirty.clear()
        self.size_dirty, self.cut_to = False, None

    def crash(self) -> None:
        """Show only the durable bytes from now on."""
        self.seen, self.unreadable = bytearray(self.durable), dict(self.rotten)
        self.forget_pending()

    def truncate(self, size: int) -> None:
        """Cut the file or extend it with zeros; the change is pending."""
        if size < len(self.seen):
            self.cut_to = size if self.cut_to is None else min(size, self.cut_to)
            _drop_from(self.unreadable, size)
        resize(self.seen, size)
        self.size_dirty = True

    def shorten(self, size: int) -> None:
        """Cut the file at rest, its seen and its durable bytes."""
        self.hurt = True
        del self.seen[size:], self.durable[size:]
        _drop_from(self.unreadable, size)
        _drop_from(self.rotten, size)

    def rot(self, position: int) -> None:
        """Make the sector at this position unreadable."""
        self.hurt = True
        self.unreadable[position // SECTOR] = self.rotten[position // SECTOR] = None

    def lose_pending(self) -> None:
        """Play a failed sync: pending bytes count as clean, and a crash loses them."""
        self.forget_pending()
        self.sync_failed = True

    def unreadable_in(self, position: int, size: int) -> int | None:
        """Returns the first unreadable sector among these bytes of the file; None for none."""
        end = min(position + size, len(self.seen))
        if not self.unreadable or end <= position:
            return None
        first, last = position // SECTOR, (end - 1) // SECTOR
        return min((sector for sector in self.unreadable if first <= sector <= last), default=None)

    def make_readable(self, position: int, size: int) -> None:
        """Make the sectors that a write touches readable."""
        if self.unreadable:
            for sector in range(position // SECTOR, (position + size - 1) // SECTOR + 1):
                self.unreadable.pop(sector, None)


def _drop_from(sectors: dict[int, None], size: int) -> None:
    """Forget the sectors that begin at or behind byte `size`."""
    for sector in [one for one in sectors if one * SECTOR >= size]:
        del sectors[sector]


def resize(content: bytearray, size: int) -> None:
    """Cut the bytes to `size`, or extend them with zeros."""
    if len(content) > size:
        del content[size:]
    else:
        content.extend(bytes(size - len(content)))


def sectors_of(ranges: list[tuple[int, int]], unit: int = SECTOR) -> Iterator[int]:
    """Yields the numbers of the sectors that the ranges touch, each once, ascending.

    A sector has `unit` bytes.
    """
    found: dict[int, None] = {}
    for start, end in ranges:
        for sector in range(start // unit, (end - 1) // unit + 1):
            found[sector] = None
    yield from sorted(found)
