"""Cutting a byte stream into length-prefixed frames, in slabs, with every length checked first.

`FrameReceiver` is the receiving half that client connections and peer links share: it owns the slab
into which bytes arrive and yields whole frames as views of it. Small frames share a slab; a frame
that does not fit gets a slab of its own, and only as many bytes as have arrived are ever touched.
"""

import struct
from collections.abc import Callable, Iterator
from typing import Final, final

import attrs

from raftlog.base.errors import ProtocolError
from raftlog.runtime.slabs import SMALL_SLAB_BYTES, SlabPool
from raftlog.runtime.streams import ByteStream

LENGTH_BYTES: Final = 4
_LENGTH: Final = struct.Struct(">i")

FrameLimit = Callable[[memoryview, int], None]
"""Called with the first bytes of a frame (the length excluded, perhaps few) and its length; raises
`ProtocolError` when the frame must not be received. Called again as more first bytes arrive."""

FIRST_BYTES: Final = 8
"""A limit is asked until it has seen this many bytes of the frame, or all of it."""


@final
@attrs.define(eq=False)
class FrameReceiver:
    """Receives from `stream`; `frames()` yields what is whole. The slab is retired when it is
    empty, so that an idle connection holds no memory."""

    stream: ByteStream
    pool: SlabPool
    limit: FrameLimit
    _slab: bytearray | None = attrs.field(default=None, init=False)
    _start: int = attrs.field(default=0, init=False)
    _end: int = attrs.field(default=0, init=False)

    async def receive(self) -> bool:
        """Wait for more bytes; False at the end of the stream.

        Raises `ProtocolError` when the stream ends inside a frame.
        """
        slab = self._slab
        if slab is None:
            slab = self._slab = self.pool.take(SMALL_SLAB_BYTES)
            self._start = self._end = 0
        with memoryview(slab) as whole, whole[self._end :] as room:
            assert len(room) > 0, (self._start, self._end, len(slab))
            received = await self.stream.receive_into(room)
        if received == 0:
            unfinished = self._end - self._start
            self.close()
            if unfinished:
                raise ProtocolError(f"stream ended {unfinished} bytes into a frame")
            return False
        self._end += received
        return True

    def frames(self) -> Iterator[memoryview]:
        """The whole frames received so far, each a read-write view into a slab."""
        slab = self._slab
        if slab is None:
            return
        whole = memoryview(slab)
        while self._end - self._start >= LENGTH_BYTES:
            size = int(_LENGTH.unpack_from(slab, self._start)[0])
            first = self._start + LENGTH_BYTES
            if size < 0:
                raise ProtocolError(f"frame says {size} bytes")
            self.limit(whole[first : min(first + FIRST_BYTES, self._end, first + size)], size)
            if self._end - first < size:
                break
            self._start = first + size
            yield whole[first : self._start]
        whole.release()
        self._make_room()

    def _make_room(self) -> None:
        """After the whole frames are cut: keep the rest where a whole frame will fit."""
        slab = self._slab
        assert slab is not None
        rest = self._end - self._start
        if rest == 0:
            self.pool.retire(slab)
            self._slab = None
            return
        needed = LENGTH_BYTES
        if rest >= LENGTH_BYTES:
            needed += int(_LENGTH.unpack_from(slab, self._start)[0])
        if self._start + max(needed, rest + 1) <= len(slab):
            return
        larger = self.pool.take(max(needed, rest + 1, SMALL_SLAB_BYTES))
        larger[:rest] = slab[self._start : self._end]
        self.pool.retire(slab)
        self._slab, self._start, self._end = larger, 0, rest

    def close(self) -> None:
        """Let go of the slab."""
        if self._slab is not None:
            self.pool.retire(self._slab)
            self._slab = None
