"""The bytes of a simulated file: what is seen, what a crash would leave, what is pending."""

from collections.abc import Iterator
from typing import Final, final

import attrs

SECTOR: Final = 512


@final
@attrs.define(eq=False)
class Inode:
    """A file's bytes: as seen now, and as a crash would find them at the least."""

    seen: bytearray = attrs.Factory(bytearray)
    durable: bytearray = attrs.Factory(bytearray)
    dirty: list[tuple[int, int]] = attrs.Factory(list)
    size_dirty: bool = False
    sync_failed: bool = False
    """What is seen may never have become durable, though nothing is pending."""
    cut_to: int | None = None
    """The shortest that it was since its size was durable: what lay behind that is gone, though it
    be longer again."""
    unreadable: dict[int, None] = attrs.Factory(dict)
    """Sectors that cannot be read until they are written, or cut off: the file's, whatever name it
    has. A write makes the sectors that it touches readable whole."""
    rotten: dict[int, None] = attrs.Factory(dict)
    """Those of them that cannot be read after a crash that drops what is pending."""
    hurt: bool = False
    """The run has damaged it at rest, whatever was written to it since."""

    def sync(self) -> None:
        """Make what is pending durable."""
        if self.size_dirty:
            self.promote_size()
        for start, end in self.dirty:
            self.promote(start, end)
        self.forget_pending()

    def promote_size(self) -> None:
        """Make the size durable, and that what was cut off is gone."""
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
        """What is seen from now on is what is durable."""
        self.seen, self.unreadable = bytearray(self.durable), dict(self.rotten)
        self.forget_pending()

    def truncate(self, size: int) -> None:
        """Cut or extend with zeros; pending."""
        if size < len(self.seen):
            self.cut_to = size if self.cut_to is None else min(size, self.cut_to)
            _drop_from(self.unreadable, size)
        resize(self.seen, size)
        self.size_dirty = True

    def shorten(self, size: int) -> None:
        """Cut at rest, seen and durable alike."""
        self.hurt = True
        del self.seen[size:], self.durable[size:]
        _drop_from(self.unreadable, size)
        _drop_from(self.rotten, size)

    def rot(self, position: int) -> None:
        """The sector there cannot be read any more."""
        self.hurt = True
        self.unreadable[position // SECTOR] = self.rotten[position // SECTOR] = None

    def lose_pending(self) -> None:
        """A sync failed: what was pending is clean, and gone at a crash."""
        self.forget_pending()
        self.sync_failed = True

    def unreadable_in(self, position: int, size: int) -> int | None:
        """The first sector of these bytes, as far as the file goes, that cannot be read."""
        end = min(position + size, len(self.seen))
        if not self.unreadable or end <= position:
            return None
        first, last = position // SECTOR, (end - 1) // SECTOR
        return min((sector for sector in self.unreadable if first <= sector <= last), default=None)

    def make_readable(self, position: int, size: int) -> None:
        """These bytes are written."""
        if self.unreadable:
            for sector in range(position // SECTOR, (position + size - 1) // SECTOR + 1):
                self.unreadable.pop(sector, None)


def _drop_from(sectors: dict[int, None], size: int) -> None:
    """Sectors that lie whole behind so many bytes are no more."""
    for sector in [one for one in sectors if one * SECTOR >= size]:
        del sectors[sector]


def resize(content: bytearray, size: int) -> None:
    """Cut, or extend with zeros."""
    if len(content) > size:
        del content[size:]
    else:
        content.extend(bytes(size - len(content)))


def sectors_of(ranges: list[tuple[int, int]], unit: int = SECTOR) -> Iterator[int]:
    """The sectors of so many bytes that some byte ranges touch, each once, ascending."""
    found: dict[int, None] = {}
    for start, end in ranges:
        for sector in range(start // unit, (end - 1) // unit + 1):
            found[sector] = None
    yield from sorted(found)
