"""Receives length-prefixed frames into slabs, for client connections and for peer links.

`raftlog.kafka.frames` cuts frames and checks every length; `FrameReceiver` owns the slab in which
bytes arrive. A frame costs memory for the bytes that have arrived, not for those it announces:

* While nothing has arrived, the receiver holds no slab.
* The first slab is small, unless the connection was busy a moment ago.
* A larger slab is taken only when the present one is full.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Final, final

import attrs

from raftlog.base.errors import ProtocolError
from raftlog.kafka.frames import FrameCutter
from raftlog.runtime.network.intake import Intake
from raftlog.runtime.network.slabs import (
    SIZE_CLASSES,
    NoMemory,
    Slab,
    class_above,
    class_below,
    grow,
    make_slab,
    size_for,
)
from raftlog.runtime.network.streams import ByteStream

FIRST_SLAB_BYTES: Final = SIZE_CLASSES[0]


@final
@attrs.define(eq=False)
class FrameReceiver:
    """Receives bytes from `stream`; `frames()` returns the whole frames.

    The receiver lets go of its slab when it is empty, so that an idle connection holds no memory.
    Without an `intake` the receiver may hold any number of bytes: that is for peers, which have
    proved who they are.
    """

    stream: ByteStream
    cutter: FrameCutter
    intake: Intake | None = None
    too_slow: Callable[[str], None] | None = None
    """Called with the reason when a frame took too long while clients waited for memory. It ends
    the connection."""
    _slab: Slab | None = attrs.field(default=None, init=False)
    _start: int = attrs.field(default=0, init=False)
    _end: int = attrs.field(default=0, init=False)
    _wanted: int = attrs.field(default=0, init=False)
    """The size of the unfinished frame in bytes, counted from `_start`."""
    _appetite: int = attrs.field(default=FIRST_SLAB_BYTES, init=False)
    """The slab size in bytes that suits the traffic of this connection. A full slab makes the next
    one larger; a slab whose bytes fit the class below makes it smaller."""
    _beyond: bool = attrs.field(default=False, init=False)
    """The slab exceeds the limit of the intake, so it receives this frame only."""
    _receiving: bool = attrs.field(default=False, init=False)
    """The receiver waits for bytes of the client, and not the client for the broker."""
    _gave: bool = attrs.field(default=False, init=False)
    """`frames` returned frames that are not handed in yet."""
    _resting: bool = attrs.field(default=False, init=False)
    """The connection is paused."""

    async def receive(self) -> bool:
        """Wait for more bytes; False at the end of the stream.

        Raises `ProtocolError` when the stream ends inside a frame, and `NoMemory`.
        """
        received = await self._receive()
        if received == 0:
            unfinished = self._end - self._start
            self.close()
            if unfinished:
                raise ProtocolError(f"stream ended {unfinished} bytes into a frame")
            return False
        self._end += received
        return True

    async def _receive(self) -> int:
        slab = self._slab
        if slab is None:
            await self.stream.wait_readable()
            slab = self._first_slab()
        elif self._end == len(slab):
            slab = await self._grow(slab)
        end = self._start + self._wanted if self._beyond else len(slab)
        self._receiving = True
        try:
            with memoryview(slab) as whole, whole[self._end : end] as room:
                return await self.stream.receive_into(room)
        finally:
            self._receiving = False

    async def _wait_readable(self) -> None:
        self._receiving = True
        try:
            await self.stream.wait_readable()
        finally:
            self._receiving = False

    def frames(self) -> list[memoryview]:
        """The whole frames received so far, each a read-write view into a slab. Say when they are
        `handed_in`.

        Raises `ProtocolError` for a length out of bounds.
        """
        slab = self._slab
        if slab is None:
            return []
        cut = self.cutter.cut(memoryview(slab)[self._start : self._end])
        self._start += cut.consumed
        self._wanted = cut.wanted
        if cut.frames:
            self._gave = True
            self._learn(len(slab))
        if self._start == self._end:
            self._let_go()
        return cut.frames

    def handed_in(self) -> None:
        """The broker counts the frames that `frames` returned; the intake no longer does."""
        self._gave = False
        if self.intake is None:
            return
        if self._slab is None:
            self.intake.release(self)
        elif self.intake.contended:
            self._make_room(self._slab)

    def rest(self) -> None:
        """Nothing is received or handed in until `resume`: the connection is paused."""
        self._resting = True
        if self.intake is not None:
            self.intake.rest(self)

    def resume(self) -> None:
        """End the pause that `rest` began."""
        self._resting = False
        if self.intake is not None:
            self.intake.resume(self)

    def _learn(self, size: int) -> None:
        """Adapt the appetite to a slab of `size` bytes that had whole frames."""
        if self._end == size:
            self._appetite = class_above(size)
        elif self._end <= class_below(size):
            self._appetite = class_below(size)
        else:
            self._appetite = min(size, SIZE_CLASSES[-1])
        if self.intake is not None:
            self.intake.progressed(self)

    # --- slabs ------------------------------------------------------------------------------------

    def _first_slab(self) -> Slab:
        size = self._appetite if self._may_hold(self._appetite) else FIRST_SLAB_BYTES
        self._start = self._end = 0
        return self._use(make_slab(size))

    def _may_hold(self, size: int) -> bool:
        """Whether memory is free for `size` bytes that are useful and not necessary."""
        intake = self.intake
        return intake is None or (intake.has_room(self, size) and not intake.contended)

    def _needed(self) -> int:
        """The slab size for the unfinished frame: about twice the bytes that have arrived of it."""
        rest = self._end - self._start
        return size_for(max(rest + 1, min(self._wanted, 2 * rest)))

    async def _grow(self, slab: Slab) -> Slab:
        """A larger slab for a frame that fills its slab: as large as it needs, or as the appetite
        if memory is free."""
        size = self._needed()
        liked = max(size, self._appetite)
        self._beyond = False
        if self._may_hold(liked):
            size = liked
        elif size > FIRST_SLAB_BYTES:  # the smallest is not counted
            await self._admit(size)
        if self._start == 0 and grow(slab, size):
            return self._use(slab)
        return self._move(slab, size)

    async def _admit(self, size: int) -> None:
        """Wait until the intake admits `size` bytes."""
        assert self.intake is not None
        if not self.intake.admits(self, size):
            # Queue only when the client has more bytes, so that a client that stands still takes no
            # place in the queue. (The end of a stream counts as more bytes until it is received.)
            await self._wait_readable()
            await self.intake.admit(self, size)
        self._beyond = not self.intake.has_room(self, size)

    def _make_room(self, slab: Slab) -> None:
        """Move to a slab that just fits the unfinished frame, if a second slab can be had."""
        size = self._needed()
        if size < len(slab):
            with suppress(NoMemory):
                self._move(slab, size)

    def _move(self, slab: Slab, size: int) -> Slab:
        """Copy the unfinished frame from `slab` to a slab of `size` bytes."""
        rest = self._end - self._start
        other = make_slab(size)
        with memoryview(slab) as old, memoryview(other) as new:
            new[:rest] = old[self._start : self._end]
        self._start, self._end = 0, rest
        return self._use(other)

    def _use(self, slab: Slab) -> Slab:
        self._slab = slab
        if self.intake is not None:
            if len(slab) > FIRST_SLAB_BYTES:
                self.intake.hold(self, len(slab))
            else:
                self.intake.release(self)
        return slab

    def arrived(self) -> int | None:
        """Bytes that have arrived of the unfinished frame; None unless it waits for its client."""
        return self._end - self._start if self._receiving else None

    def give_back(self) -> None:
        """Shrink to what the unfinished frame needs. Asked while the connection is paused."""
        # Frames that wait to be handed in still hold the slab: then there is nothing to give.
        if self._slab is not None and not self._gave:
            self._make_room(self._slab)

    def evict(self) -> None:
        """Report to `too_slow` that the frame took too long, and which clock it exhausted."""
        if self.too_slow is None:
            return
        arrived = self._end - self._start
        if self._resting:
            self.too_slow("paused with memory for too long, while others wait for it")
        elif self._receiving:
            place = " beyond the memory of all" if self._beyond else ""
            self.too_slow(
                f"a frame of {self._wanted} bytes{place} takes too long, with {arrived} of them, "
                "while others wait for memory"
            )
        else:
            self.too_slow(
                f"waited too long for memory that other clients hold, with {arrived} of the "
                f"{self._wanted} bytes of a frame"
            )

    def _let_go(self) -> None:
        self._slab = None
        self._beyond = False

    def close(self) -> None:
        """Let go of the slab and release the share of the intake."""
        self._let_go()
        self.handed_in()
