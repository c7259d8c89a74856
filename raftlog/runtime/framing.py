"""Receiving length-prefixed frames into slabs: what client connections and peer links share.

`raftlog.kafka.frames` cuts and judges every length; `FrameReceiver` owns the slab that bytes arrive
in. Small frames share a slab; a frame that does not fit gets a slab of its own, and only as many
bytes as have arrived are ever touched.
"""

from typing import final

import attrs

from raftlog.base.errors import ProtocolError
from raftlog.kafka.frames import FrameCutter
from raftlog.runtime.slabs import SMALL_SLAB_BYTES, SlabPool
from raftlog.runtime.streams import ByteStream


@final
@attrs.define(eq=False)
class FrameReceiver:
    """Receives from `stream`; `frames()` gives what is whole. The slab is retired when it is empty,
    so that an idle connection holds no memory."""

    stream: ByteStream
    pool: SlabPool
    cutter: FrameCutter
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

    def frames(self) -> list[memoryview]:
        """The whole frames received so far, each a read-write view into a slab.

        Raises `ProtocolError` for a length out of bounds.
        """
        slab = self._slab
        if slab is None:
            return []
        cut = self.cutter.cut(memoryview(slab)[self._start : self._end])
        self._start += cut.consumed
        self._make_room(slab, cut.wanted)
        return cut.frames

    def _make_room(self, slab: bytearray, wanted: int) -> None:
        """After the cut: keep the rest where a frame of `wanted` bytes will fit."""
        rest = self._end - self._start
        if rest == 0:
            self.pool.retire(slab)
            self._slab = None
            return
        needed = max(wanted, rest + 1)
        if self._start + needed <= len(slab):
            return
        larger = self.pool.take(max(needed, SMALL_SLAB_BYTES))
        larger[:rest] = slab[self._start : self._end]
        self.pool.retire(slab)
        self._slab, self._start, self._end = larger, 0, rest

    def close(self) -> None:
        """Let go of the slab."""
        if self._slab is not None:
            self.pool.retire(self._slab)
            self._slab = None
