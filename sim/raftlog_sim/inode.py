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
    unreadable: dict[int, None] = attrs.Factory(dict)
    """Sectors that cannot be read until they are written: the file's, whatever name it has."""

    def sync(self) -> None:
        """Make what is pending durable."""
        if self.size_dirty:
            resize(self.durable, len(self.seen))
        for start, end in self.dirty:
            self.durable[start:end] = self.seen[start:end]
        self.forget_pending()

    def forget_pending(self) -> None:
        self.dirty.clear()
        self.size_dirty = False

    def lose_pending(self) -> None:
        """A sync failed: what was pending is clean, and gone at a crash."""
        self.forget_pending()
        self.sync_failed = True

    def unreadable_in(self, position: int, size: int) -> int | None:
        """The first sector of these bytes that cannot be read."""
        if not self.unreadable:
            return None
        first, last = position // SECTOR, (position + size - 1) // SECTOR
        return min((sector for sector in self.unreadable if first <= sector <= last), default=None)

    def make_readable(self, position: int, size: int) -> None:
        """These bytes are written."""
        if self.unreadable:
            for sector in range(position // SECTOR, (position + size - 1) // SECTOR + 1):
                self.unreadable.pop(sector, None)


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
