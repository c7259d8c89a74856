"""The connections of a trio client: they perform `Dial`, `Send` and `Disconnect` and report events.

A wire sends at once as much as the kernel takes; a writer task sends the rest. Answers are received
into memory that is then handed to the core with the frames in it. Only the start of a frame that
did not fit is copied.
"""

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, final

import attrs
import trio

from raftlog.base.binary import Buffer
from raftlog.base.errors import ProtocolError
from raftlog.base.units import KIB
from raftlog.client import system
from raftlog.client.core.values import (
    Connected,
    Dial,
    DialId,
    Disconnect,
    Disconnected,
    Event,
    Frame,
    Send,
)
from raftlog.kafka.frames import FrameCutter
from raftlog.kafka.shape import Part

RECEIVE_BYTES: Final = 64 * KIB


@final
@attrs.define(eq=False)
class _Wire:
    """One connection. `socket` is None while it is being dialled."""

    dial: DialId
    scope: trio.CancelScope
    socket: system.ConnectedStream | None = None
    unsent: deque[Buffer] = attrs.Factory(deque)
    writable: trio.Event = attrs.Factory(trio.Event)


@final
@attrs.define(eq=False)
class Wires:
    """All connections, each one a task in `nursery`. Every call of `report` hands over the events
    of one turn."""

    nursery: trio.Nursery
    report: Callable[[Sequence[Event]], None]
    connect: Callable[[str, int], Awaitable[system.ConnectedStream]]
    _wires: dict[DialId, _Wire] = attrs.field(factory=dict, init=False)

    def dial(self, dial: Dial) -> None:
        """Open a connection, in a task of its own."""
        wire = _Wire(dial.dial, trio.CancelScope())
        self._wires[dial.dial] = wire
        self.nursery.start_soon(
            self._live, wire, dial.host, dial.port, name=f"{dial.host}:{dial.port}"
        )

    def send(self, send: Send) -> None:
        """Send as much as the kernel takes now, and the rest later."""
        wire = self._wires.get(send.dial)
        if wire is None or wire.socket is None:
            return
        waiting = bool(wire.unsent)
        wire.unsent.extend(_as_buffer(part) for part in send.parts)
        if not waiting and not self._push(wire, wire.socket):
            wire.writable.set()

    def hang_up(self, hangup: Disconnect) -> None:
        """Close a connection. Nothing more is reported for it."""
        wire = self._wires.pop(hangup.dial, None)
        if wire is not None:
            wire.scope.cancel()

    def _push(self, wire: _Wire, socket: system.ConnectedStream) -> bool:
        """Send as much as the kernel takes; return whether everything is sent. An error is not
        handled here: the reader finds the broken connection too."""
        unsent = wire.unsent
        while unsent:
            try:
                taken = socket.send_nowait(list(unsent))
            except OSError:
                unsent.clear()
                return True
            if taken == 0:
                return False
            _drop(unsent, taken)
        return True

    async def _live(self, wire: _Wire, host: str, port: int) -> None:
        why = ""
        with wire.scope:
            try:
                wire.socket = await self.connect(host, port)
            except OSError as error:
                why = _text_of(error)
            else:
                why = await self._converse(wire, wire.socket)
        if self._wires.pop(wire.dial, None) is not None and not wire.scope.cancel_called:
            self.report((Disconnected(wire.dial, why),))

    async def _converse(self, wire: _Wire, socket: system.ConnectedStream) -> str:
        """Send and receive until the connection ends; return the reason."""
        try:
            self.report((Connected(wire.dial),))
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._write, wire, socket)
                why = await self._read(wire, socket)
                nursery.cancel_scope.cancel()
            return why
        finally:
            socket.close()

    async def _write(self, wire: _Wire, socket: system.ConnectedStream) -> None:
        """Send the bytes that the kernel did not take at once."""
        while True:
            await wire.writable.wait()
            wire.writable = trio.Event()
            while not self._push(wire, socket):
                await socket.wait_writable()

    async def _read(self, wire: _Wire, socket: system.ConnectedStream) -> str:
        """Receive until the stream ends or breaks; return the reason."""
        cutter = FrameCutter.for_responses()
        slab, filled, wanted = memoryview(bytearray(RECEIVE_BYTES)), 0, 0
        while True:
            if wanted > len(slab):
                slab = _moved(slab[:filled], wanted)
            try:
                received = await socket.receive_into(slab[filled:])
                filled += received
                cut = cutter.cut(slab[:filled])
            except (OSError, ProtocolError) as error:
                return _text_of(error)
            if received == 0:
                return "the connection was closed by the broker"
            wanted = cut.wanted
            if cut.frames:
                rest = slab[cut.consumed : filled]
                slab, filled = _moved(rest, max(wanted, RECEIVE_BYTES)), len(rest)
                self.report([Frame(wire.dial, frame) for frame in cut.frames])


def _moved(start: memoryview, size: int) -> memoryview:
    """A new slab of `size` bytes that begins with `start`."""
    slab = memoryview(bytearray(max(size, len(start))))
    slab[: len(start)] = start
    return slab


def _as_buffer(part: Part) -> Buffer:
    assert isinstance(part, bytes | bytearray | memoryview), type(part)
    return part


def _drop(unsent: deque[Buffer], taken: int) -> None:
    """Remove the first `taken` bytes from the queue."""
    while taken:
        head = unsent[0]
        if taken < len(head):
            unsent[0] = memoryview(head)[taken:]
            return
        taken -= len(head)
        unsent.popleft()


def _text_of(error: BaseException) -> str:
    return str(error) or type(error).__name__
