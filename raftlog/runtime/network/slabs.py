"""Receive buffers, reused: zeroing and faulting fresh memory costs up to a fifth of a broker's CPU.

A slab is a bytearray. Views of it may be held by entries that wait for followers or the disk; it is
reusable only when no view is left. CPython itself is the judge of that: a bytearray whose buffer is
exported refuses to be resized, so the check cannot be fooled by our own bookkeeping.

A slab larger than all classes is an anonymous mapping. The kernel moves its pages as it grows
(mremap(2)). A bytearray may be copied instead, and would then take twice the size of its frame.
"""

import mmap
import sys
from bisect import bisect_left
from collections import deque
from typing import Final, TypeAlias, final

import attrs

from raftlog.base.errors import OperatingError
from raftlog.base.units import KIB, MIB

SMALL_SLAB_BYTES: Final = 256 * KIB
"""The size of the slab into which a busy connection receives small frames."""
RETIRED_MAX: Final = {
    4 * KIB: 64,
    32 * KIB: 64,
    SMALL_SLAB_BYTES: 32,
    MIB + 64 * KIB: 24,
    4 * MIB + 64 * KIB: 2,
}
"""The most slabs of each class that wait for reuse, 44 MiB in all. Beyond it the oldest is left to
the garbage collector."""
SIZE_CLASSES: Final = tuple(RETIRED_MAX)
"""Slab sizes in bytes, ascending. The request of a quiet client fits the first; a request with a
1 MiB batch fits the fourth."""
_LOOKS_PER_TAKE: Final = 4
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


def is_free(slab: bytearray) -> bool:
    """Whether no view of `slab` is left."""
    try:
        slab.append(0)
    except BufferError:
        return False
    slab.pop()
    return True


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


def _make(size: int) -> Slab:
    if size > SIZE_CLASSES[-1]:
        # Private, for shared anonymous memory cannot grow.
        return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    # One byte of slack, so that `is_free` never reallocates.
    slab = bytearray(size + 1)
    slab.pop()
    return slab


@final
@attrs.define(eq=False)
class SlabPool:
    """Hands out slabs of a wanted size (`take`) and takes them back (`retire`).

    `poison` fills a slab with 0xDB before it is given out again, so that a view kept by mistake
    shows up as garbage in a test rather than as another client's records.
    """

    poison: bool = False
    _retired: dict[int, deque[bytearray]] = attrs.field(factory=dict, init=False)

    def take(self, size: int) -> Slab:
        """A slab of the smallest class that holds `size` bytes; above all classes, a fresh one.

        Raises `NoMemory`.
        """
        wanted = size_for(size)
        waiting = self._retired.get(wanted)
        for _ in range(min(_LOOKS_PER_TAKE, len(waiting) if waiting else 0)):
            assert waiting is not None
            slab = waiting.popleft()
            if is_free(slab):
                if self.poison:
                    slab[:] = b"\xdb" * len(slab)
                return slab
            waiting.append(slab)
        try:
            return _make(wanted)
        except (OSError, MemoryError) as error:
            raise NoMemory(wanted) from error

    def retire(self, slab: Slab) -> None:
        """Give a slab back; it is used again once its last view is gone."""
        size = len(slab)
        keep = RETIRED_MAX.get(size)
        if keep is None or not isinstance(slab, bytearray):
            return
        waiting = self._retired.get(size)
        if waiting is None:
            waiting = self._retired[size] = deque()
        waiting.append(slab)
        if len(waiting) > keep:
            waiting.popleft()
