"""Receive buffers, reused: zeroing and faulting fresh memory costs up to a fifth of a broker's CPU.

A slab is a bytearray. Views of it may be held by entries that wait for followers or the disk; it is
reusable only when no view is left. CPython itself is the judge of that: a bytearray whose buffer is
exported refuses to be resized, so the check cannot be fooled by our own bookkeeping.
"""

from collections import deque
from typing import Final, final

import attrs

from raftlog.base.units import KIB, MIB

SMALL_SLAB_BYTES: Final = 256 * KIB
"""What an active connection receives into while its frames are small."""
SIZE_CLASSES: Final = (SMALL_SLAB_BYTES, MIB + 64 * KIB, 4 * MIB + 64 * KIB)
"""A 1 MiB batch with its request around it fits the middle class."""
RETIRED_PER_CLASS_MAX: Final = 32
"""Slabs waiting for reuse in each class; beyond it the oldest is left to the garbage collector."""
_LOOKS_PER_TAKE: Final = 4


def is_free(slab: bytearray) -> bool:
    """Whether no view of `slab` is left."""
    try:
        slab.append(0)
    except BufferError:
        return False
    slab.pop()
    return True


def _make(size: int) -> bytearray:
    # One byte of slack, so that `is_free` never reallocates.
    slab = bytearray(size + 1)
    slab.pop()
    return slab


@final
@attrs.define(eq=False)
class SlabPool:
    """`take` a slab of at least so many bytes, `retire` it while views may still be about.

    `poison` fills a slab with 0xDB before it is given out again, so that a view kept by mistake
    shows up as garbage in a test rather than as another client's records.
    """

    poison: bool = False
    _retired: dict[int, deque[bytearray]] = attrs.field(factory=dict, init=False)

    def take(self, size: int) -> bytearray:
        """A slab of the smallest class that holds `size` bytes; above all classes, a fresh one."""
        wanted = next((each for each in SIZE_CLASSES if each >= size), None)
        if wanted is None:
            return _make(size)
        waiting = self._retired.get(wanted)
        for _ in range(min(_LOOKS_PER_TAKE, len(waiting) if waiting else 0)):
            assert waiting is not None
            slab = waiting.popleft()
            if is_free(slab):
                if self.poison:
                    slab[:] = b"\xdb" * len(slab)
                return slab
            waiting.append(slab)
        return _make(wanted)

    def retire(self, slab: bytearray) -> None:
        """Give a slab back; it is used again once its last view is gone."""
        if len(slab) not in SIZE_CLASSES:
            return
        waiting = self._retired.setdefault(len(slab), deque())
        waiting.append(slab)
        if len(waiting) > RETIRED_PER_CLASS_MAX:
            waiting.popleft()
