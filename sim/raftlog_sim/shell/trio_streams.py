"""The byte streams of trio mode, in virtual time.

A connection is two pipes. A pipe takes as many bytes as its buffer has room for, sometimes fewer;
they arrive after a while, in order, and are received in pieces of odd sizes. A buffer has room
again when its reader has received, so that back-pressure is real. A stream that is reset breaks at
both ends at once and loses what was under way; one that is closed finishes what was sent before.

Streams have the face of `raftlog.runtime.network.streams.ByteStream`; a client's have OSErrors
instead, as `raftlog.client.system` wants it.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, final

import attrs
import trio

from raftlog.base.binary import Buffer
from raftlog.base.errors import DiskError
from raftlog_sim.base.streams import Stream
from raftlog_sim.world.relay import Strike, Tap

ReadFile = Callable[[int, int, int], bytes]
_ODD_ONE_IN: Final = 4
"""Sends and receives that take less than they could."""


class Times(Protocol):
    """The parts of a world that a network needs."""

    @property
    def now(self) -> int: ...

    def at(self, instant: int, action: Callable[..., None], *args: Any) -> None: ...

    def stream(self, name: str) -> Stream: ...


@final
@attrs.define(eq=False)
class Direction:
    """The state of one direction between two machines, which all its pipes share."""

    holds: int = 0
    extra_ns: int = 0
    strike: Strike | None = None
    """The harm that a relay does to frames; None without one."""
    pipes: "dict[TrioPipe, None]" = attrs.Factory(dict)


@final
@attrs.define(eq=False)
class Pace:
    """How long bytes travel at the least, and by how much that varies."""

    times: Times
    latency_ns: int
    jitter_ns: int


@final
@attrs.define(eq=False)
class TrioPipe:
    """One direction of a connection. `used` bytes were sent and not yet received."""

    pace: Pace
    direction: Direction
    draws: Stream
    size: int
    used: int = 0
    ended: bool = False
    """Nothing more will arrive."""
    unread: bool = False
    """Its reader is closed: a sender is told by a reset."""
    silent: bool = False
    """Its reader has lost power, and the sender is not told."""
    reset: Callable[[], None] | None = None
    tap: Tap | None = None
    """A relay between two brokers."""
    received: int = 0
    """Bytes that the reader has received."""
    _inbox: bytearray = attrs.Factory(bytearray)
    _held: deque[bytes] = attrs.Factory(deque)
    _last: int = 0
    _readable: trio.Event = attrs.Factory(trio.Event)
    _writable: trio.Event = attrs.Factory(trio.Event)

    def send(self, parts: Sequence[Buffer]) -> int:
        """Take what there is room for, or a part of that; bytes taken."""
        room = self.size - self.used
        if room <= 0:
            return 0
        data = b"".join(parts)[:room]
        if len(data) > 1 and self.draws.chance(1, _ODD_ONE_IN):
            data = data[: self.draws.between(1, len(data))]
        if data:
            self.used += len(data)
            self._travel(data)
        return len(data)

    def finish(self) -> None:
        """The end of the stream follows what was sent."""
        self._travel(b"")

    def _travel(self, data: bytes) -> None:
        pace = self.pace
        delay = pace.latency_ns + self.direction.extra_ns + self.draws.below(pace.jitter_ns + 1)
        self._last = max(pace.times.now + delay, self._last)
        pace.times.at(self._last, self._arrive, data)

    def _arrive(self, data: bytes) -> None:
        if self.direction.holds:
            self._held.append(data)
        else:
            self._take(data)

    def release(self) -> None:
        """Let held bytes arrive, unless something still holds them."""
        while self._held and not self.direction.holds:
            self._take(self._held.popleft())

    def _take(self, data: bytes) -> None:
        if self.silent or self.ended:
            return
        if not data:
            self.ended = True
            self.direction.pipes.pop(self, None)
        elif self.unread:
            if self.reset is not None:
                self.reset()
            return
        if self.tap is not None and data:
            arrived = len(data)
            data = self.tap.take(data, self.direction.strike)
            self.used += len(data) - arrived
            self._writable.set()  # the relay took it, whatever becomes of it
        self._inbox += data
        self._readable.set()

    def receive(self, view: memoryview) -> int:
        """Give what has arrived, or a part of it; 0 when nothing is there."""
        tap = self.tap
        if tap is not None and tap.fatal and self.received >= tap.fatal:
            tap.judge.reads_on(tap.ends)
        size = min(len(view), len(self._inbox))
        if size > 1 and self.draws.chance(1, _ODD_ONE_IN):
            size = self.draws.between(1, size)
        view[:size] = self._inbox[:size]
        del self._inbox[:size]
        self.used -= size
        self.received += size
        if size:
            self._writable.set()
        return size

    @property
    def has_something(self) -> bool:
        """Whether a reader need not wait."""
        return bool(self._inbox) or self.ended

    async def wait_readable(self) -> None:
        """Until something changes for the reader."""
        await self._readable.wait()
        self._readable = trio.Event()

    async def wait_writable(self) -> None:
        """Until something changes for the sender."""
        await self._writable.wait()
        self._writable = trio.Event()

    def break_off(self) -> None:
        """Nothing arrives any more."""
        self.ended = True
        self.direction.pipes.pop(self, None)
        self.wake()

    def wake(self) -> None:
        """Let both ends look again."""
        self._readable.set()
        self._writable.set()


@final
class SimStream:
    """One end of a connection; a `ByteStream`."""

    __slots__ = ("_broken", "_closed", "_incoming", "_outgoing", "_owned", "peer", "read_file")

    def __init__(self, incoming: TrioPipe, outgoing: TrioPipe) -> None:
        self._incoming = incoming
        self._outgoing = outgoing
        self._closed = False
        self._owned = True
        """The process at this end lives; a dead one's tasks wait until they are cancelled."""
        self._broken = ""
        self.peer: SimStream | None = None
        self.read_file: ReadFile | None = None
        """Reads files of the process at this end: descriptor, position, size."""

    @property
    def stands(self) -> bool:
        """Whether this end is neither closed nor broken."""
        return not (self._closed or self._broken)

    async def _alive(self) -> None:
        if not self._owned:
            await trio.sleep_forever()
        self._check()

    def _check(self) -> None:
        if self._closed:
            raise trio.ClosedResourceError("this end was closed")
        if self._broken:
            raise trio.BrokenResourceError(self._broken)

    async def wait_readable(self) -> None:
        """See `ByteStream`."""
        await self._alive()
        while not self._incoming.has_something:
            await self._incoming.wait_readable()
            await self._alive()

    async def receive_into(self, view: memoryview) -> int:
        """See `ByteStream`."""
        await trio.lowlevel.checkpoint()
        await self.wait_readable()
        return self._incoming.receive(view)

    def send_nowait(self, parts: Sequence[Buffer]) -> int:
        """See `ByteStream`."""
        if not self._owned:
            return 0
        self._check()
        return self._outgoing.send(parts)

    def send_file_nowait(self, fd: int, position: int, size: int) -> int:
        """See `ByteStream`. A sector that cannot be read breaks the stream, as `sendfile` does."""
        if not self._owned:
            return 0
        self._check()
        assert self.read_file is not None, "this process opens no files"
        try:
            data = self.read_file(fd, position, size)
        except DiskError as error:
            raise trio.BrokenResourceError(str(error)) from error
        if not data:
            raise trio.BrokenResourceError(f"file ends before byte {position}")
        return self._outgoing.send([data])

    async def wait_writable(self) -> None:
        """See `ByteStream`."""
        await self._alive()
        while self._outgoing.used >= self._outgoing.size:
            await self._outgoing.wait_writable()
            await self._alive()

    def close(self) -> None:
        """Finish: what was sent before arrives. Again: nothing."""
        if self._closed:
            return
        self._closed = True
        self._outgoing.finish()
        self._incoming.unread = True
        self._incoming.wake()
        self._outgoing.wake()

    def reset(self, why: str = "connection reset") -> None:
        """Both ends break, at once."""
        for end in (self, self.peer):
            if end is not None and not end._broken:
                end._broken = why
                end._incoming.break_off()
                end._outgoing.break_off()

    def abandon(self, how: str) -> None:
        """The process at this end is gone: the stream finishes, is reset, or falls silent."""
        self._owned = False
        if how == "finish":
            self.close()
        elif how == "reset":
            self.reset()
        else:
            self._closed = True
            self._incoming.silent = True


@final
class ClientEnd:
    """A stream as the product's client wants it: broken is an OSError."""

    __slots__ = ("_stream",)

    def __init__(self, stream: SimStream) -> None:
        self._stream = stream

    async def receive_into(self, view: memoryview) -> int:
        """Bytes received; 0 at the end of the stream."""
        try:
            return await self._stream.receive_into(view)
        except trio.BrokenResourceError as error:
            raise ConnectionResetError(str(error)) from error

    def send_nowait(self, parts: Sequence[Buffer]) -> int:
        """Bytes taken; 0 when there is no room."""
        try:
            return self._stream.send_nowait(parts)
        except trio.BrokenResourceError as error:
            raise ConnectionResetError(str(error)) from error

    async def wait_writable(self) -> None:
        """Wait for room. A broken stream has it: the next send tells."""
        try:
            await self._stream.wait_writable()
        except trio.BrokenResourceError:
            await trio.lowlevel.checkpoint()

    def close(self) -> None:
        self._stream.close()
