"""Receive buffers. A slab is made for each burst of frames and never written again once it is full,
so views of it may be held by entries that wait for followers or the disk.

A slab larger than all classes is an anonymous mapping. The kernel moves its pages as it grows
(mremap(2)). A bytearray may be copied instead, and would then take twice the size of its frame.

Slabs are not kept for reuse: CPython's and the C library's allocators do that as well
(docs/decisions/0084).
"""

import mmap
import sys
from bisect import bisect_left
from typing import Final, TypeAlias

from raftlog.base.errors import OperatingError
from raftlog.base.units import KIB, MIB

SMALL_SLAB_BYTES: Final = 256 * KIB
"""The size of the slab into which a busy connection receives small frames."""
SIZE_CLASSES: Final = (4 * KIB, 32 * KIB, SMALL_SLAB_BYTES, MIB + 64 * KIB, 4 * MIB + 64 * KIB)
"""Slab sizes in bytes, ascending. The request of a quiet client fits the first; a request with a
1 MiB batch fits the fourth."""
_MAPPINGS_GROW: Final = sys.platform == "linux"
"""Whether a mapping can grow in place. Python has mremap on Linux only."""

Slab: TypeAlias = bytearray | mmap.mmap


class NoMemory(OperatingError):
    """The system has no memory for a slab. Only the connection that needs it is closed."""

    def __init__(self, size: int) -> None:
        super().__init__(
            "no memory for a frame",
            on=f"{size} bytes",
            do="give this process more, or its clients a smaller socket.request.max.bytes",
        )


def size_for(size: int) -> int:
    """The smallest class that holds `size` bytes, or above all classes `size` itself."""
    at = bisect_left(SIZE_CLASSES, size)
    return SIZE_CLASSES[at] if at < len(SIZE_CLASSES) else size


def class_below(size: int) -> int:
    """The class below that of a slab of `size` bytes, or the first."""
    return SIZE_CLASSES[max(0, bisect_left(SIZE_CLASSES, size) - 1)]


def class_above(size: int) -> int:
    """The class above a small slab that was full; a large slab keeps its size, at most the
    largest class."""
    if size < SMALL_SLAB_BYTES:
        return size_for(size + 1)
    return min(size, SIZE_CLASSES[-1])


def grow(slab: Slab, size: int) -> bool:
    """Enlarge `slab` to `size` bytes without copying its bytes; False when that is impossible.

    It is impossible for a bytearray, and while views of the mapping exist: take another slab then.
    Raises `NoMemory`; `slab` is then as it was.
    """
    if not (_MAPPINGS_GROW and isinstance(slab, mmap.mmap)):
        return False
    try:
        slab.resize(size)
    except BufferError:
        return False
    except OSError as error:
        raise NoMemory(size) from error
    return True


def make_slab(size: int) -> Slab:
    """A slab of the smallest class that holds `size` bytes; above all classes, of just that size.

    Raises `NoMemory`.
    """
    wanted = size_for(size)
    try:
        if wanted > SIZE_CLASSES[-1]:
            # Private, for shared anonymous memory cannot grow.
            return mmap.mmap(-1, wanted, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        return bytearray(wanted)
    except (OSError, MemoryError) as error:
        raise NoMemory(wanted) from error
