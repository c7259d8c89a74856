"""Client connections: one reader and one writer each, answers in request order.

The reader frames and posts; the turn decides; `AcceptedConnection.reply` puts an answer in its
place and `Sender` takes it from there. A connection that breaks affects no other.
"""

from collections.abc import Sequence
from functools import partial
from typing import Final, final

import attrs
import trio

from raftlog.base.errors import ProtocolError, RaftlogError
from raftlog.base.ids import ConnectionId
from raftlog.base.ports import Tracer
from raftlog.base.trace import TraceEvent
from raftlog.broker.events import ConnectionClosed, ConnectionOpened, Drained, Part, Reply, Request
from raftlog.kafka.frames import FrameCutter
from raftlog.records.slices import FileSlice
from raftlog.runtime.disks.open_files import OpenFiles
from raftlog.runtime.driver import Driver
from raftlog.runtime.network.framing import FrameReceiver
from raftlog.runtime.network.intake import Intake
from raftlog.runtime.network.sender import Sender
from raftlog.runtime.network.slabs import NoMemory
from raftlog.runtime.network.streams import ByteStream

JOIN_BYTES_MAX: Final = 4096
"""Answers up to this size are joined into one buffer before they are sent."""
STREAMED_FROM: Final = 8
"""A client with more requests under way does not wait for each of them: it wants throughput."""
ACCEPT_PAUSE_SECONDS: Final = 0.05
"""After a failed accept (too many open files): the pause keeps the broker from spinning."""


@final
@attrs.define(eq=False)
class AcceptedConnection:
    """One client. `_answers` holds replies that are decided before an earlier one; it is bounded by
    the broker's ledger, which pauses a connection with too many unanswered requests."""

    id: ConnectionId
    stream: ByteStream
    sender: Sender
    files: OpenFiles
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)
    requests: int = attrs.field(default=0, init=False)
    _next_reply: int = attrs.field(default=0, init=False)
    _answers: dict[int, Reply] = attrs.field(factory=dict, init=False)
    _drained: int = attrs.field(default=0, init=False)
    _running: trio.Event = attrs.field(factory=trio.Event, init=False)
    paused: bool = attrs.field(default=False, init=False)
    ended: bool = attrs.field(default=False, init=False)
    """Nothing more is queued for it: behind a frame that broke off it would be read as its rest."""

    def reply(self, reply: Reply) -> None:
        """Put a reply in its place and queue what is next in order."""
        assert reply.request_no >= self._next_reply, (reply.request_no, self._next_reply)
        assert reply.request_no not in self._answers, reply.request_no
        self._answers[reply.request_no] = reply
        while (ready := self._answers.pop(self._next_reply, None)) is not None:
            self._next_reply += ready.answers
            if ready.parts is not None:
                self._put(ready.parts)

    def _put(self, parts: Sequence[Part]) -> None:
        if len(parts) > 1 and sum(map(len, parts)) <= JOIN_BYTES_MAX:
            bytes_only = [part for part in parts if not isinstance(part, FileSlice)]
            if len(bytes_only) == len(parts):
                self.sender.put(b"".join(bytes_only))
                return
        for part in parts:
            self.sender.put(self.files.pin(part) if isinstance(part, FileSlice) else part)

    def take_drained(self) -> int:
        """Answer bytes that left since the last call."""
        left, self._drained = self.sender.sent_bytes - self._drained, self.sender.sent_bytes
        return left

    @property
    def unanswered(self) -> int:
        """The number of requests without an answer."""
        return self.requests - self._next_reply

    def activity(self) -> tuple[int, int] | None:
        """Two counters that change when the client acts; None while it waits for an answer."""
        if self.unanswered:
            return None
        return self.requests, self.sender.sent_bytes

    def pause(self) -> None:
        if not self.paused:
            self.paused = True
            self._running = trio.Event()

    def resume(self) -> None:
        self.paused = False
        self._running.set()

    async def wait_running(self) -> None:
        """Wait while the broker has paused this connection."""
        while self.paused:
            await self._running.wait()


@final
@attrs.define(eq=False)
class AcceptedConnections:
    """All client connections of a broker; the driver's `ClientConnections`.

    `connections_max` bounds them in all; one more is closed at once.
    """

    driver: Driver
    files: OpenFiles
    tracer: Tracer
    frame_bytes_max: int
    connections_max: int
    intake: Intake = attrs.field(factory=Intake, init=False)
    _open: dict[ConnectionId, AcceptedConnection] = attrs.field(factory=dict, init=False)
    _to_flush: dict[ConnectionId, AcceptedConnection] = attrs.field(factory=dict, init=False)
    _ids: int = attrs.field(default=0, init=False)

    def reply(self, reply: Reply) -> None:
        """Give a reply to its connection; one whose file cannot be opened ends the connection, for
        its frame was promised a length that it cannot keep."""
        connection = self._open.get(reply.connection)
        if connection is None or connection.ended:
            return
        try:
            connection.reply(reply)
        except RaftlogError as error:  # a segment file could not be opened: the frame is lost
            self.hang_up(reply.connection, str(error))
            return
        self._to_flush[reply.connection] = connection

    def flush(self) -> None:
        """Send what this turn has answered."""
        waiting, self._to_flush = self._to_flush, {}
        for connection in waiting.values():
            try:
                connection.sender.flush()
            except trio.BrokenResourceError:
                connection.scope.cancel()
            self._report_drained(connection)

    def _report_drained(self, connection: AcceptedConnection) -> None:
        """Tell the broker what left: at once when it waits for it, else with the next turn."""
        left = connection.take_drained()
        if left and connection.id in self._open:
            self.driver.queue(Drained(connection.id, left), wake=connection.paused)

    def pause(self, connection: ConnectionId) -> None:
        if (found := self._open.get(connection)) is not None:
            found.pause()

    def resume(self, connection: ConnectionId) -> None:
        if (found := self._open.get(connection)) is not None:
            found.resume()

    def hang_up(self, connection: ConnectionId, why: str) -> None:
        """Close, and say why in the log."""
        found = self._open.get(connection)
        if found is not None and not found.ended:
            self.tracer.emit(TraceEvent("hang-up", f"connection {connection}", (("why", why),)))
            self.close(connection)

    def close(self, connection: ConnectionId) -> None:
        """End a connection. Queued answers are sent as far as they go without waiting; answers that
        come later, while its tasks end, are dropped."""
        found = self._open.get(connection)
        if found is None:
            return
        found.ended = True
        try:
            found.sender.flush()
        except trio.BrokenResourceError:
            self.tracer.emit(TraceEvent("connection-broken", f"connection {connection}"))
        found.scope.cancel()

    async def close_idle(self, seconds: float) -> None:
        """Close idle connections, until cancelled.

        A connection is idle when its client has sent no request and taken no answer byte for
        `seconds`. It is closed after at most twice that time.
        """
        # Half of the idle clients are gone without closing, and each counts against
        # `connections_max`.
        before: dict[ConnectionId, tuple[int, int] | None] = {}
        while True:
            await trio.sleep(seconds)
            now = {each.id: each.activity() for each in self._open.values()}
            for identity, activity in now.items():
                if activity is not None and before.get(identity) == activity:
                    self.hang_up(identity, f"idle for {seconds:g} seconds")
            before = now

    async def serve(self, stream: ByteStream, listener: str, address: str) -> None:
        """Serve one connection until either end closes it."""
        if len(self._open) >= self.connections_max:
            self.tracer.emit(TraceEvent("connection-refused", address, (("why", "too many"),)))
            stream.close()
            return
        self._ids += 1
        identity = ConnectionId(self._ids)
        connection = AcceptedConnection(identity, stream, Sender(stream), self.files)
        self._open[identity] = connection
        self.driver.post(ConnectionOpened(identity, listener, "User:ANONYMOUS", address))
        try:
            with connection.scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._write, connection, name=f"writer {identity}")
                    await self._read(connection)
                    nursery.cancel_scope.cancel()
        finally:
            del self._open[identity]
            self._to_flush.pop(identity, None)
            connection.sender.close()
            stream.close()
            self.driver.post(ConnectionClosed(identity))

    async def _write(self, connection: AcceptedConnection) -> None:
        try:
            await connection.sender.run(lambda: self._report_drained(connection))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            connection.scope.cancel()

    async def _read(self, connection: AcceptedConnection) -> None:
        cutter = FrameCutter.for_requests(frame_bytes_max=self.frame_bytes_max)
        too_slow = partial(self.hang_up, connection.id)
        receiver = FrameReceiver(connection.stream, cutter, self.intake, too_slow)
        try:
            while await receiver.receive():
                await self._post(connection, receiver, receiver.frames())
                receiver.handed_in()
                await _pass(connection, receiver)
        except (ProtocolError, NoMemory) as error:
            self.hang_up(connection.id, str(error))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            connection.scope.cancel()
        finally:
            receiver.close()

    async def _post(
        self, connection: AcceptedConnection, receiver: FrameReceiver, frames: list[memoryview]
    ) -> None:
        """Hand in requests, so many at a time: one receive may bring thousands of small ones, and
        neither the bound of unanswered requests nor other clients should wait behind them."""
        more = True
        while more:
            share = self.driver.share()
            first, posted = connection.requests, frames[:share]
            connection.requests += len(posted)
            self.driver.post_all(
                [Request(connection.id, first + at, frame) for at, frame in enumerate(posted)],
                streamed=connection.unanswered > STREAMED_FROM,
            )
            del posted, frames[:share]  # views of a slab that could be used again
            more = bool(frames)
            if more:  # the turn may have been run inside `post_all`: others must be heard too
                await trio.lowlevel.checkpoint()
            await self.driver.room()
            if more:
                await _pass(connection, receiver)


async def _pass(connection: AcceptedConnection, receiver: FrameReceiver) -> None:
    """Go on when the connection is not, or no longer, paused."""
    if connection.paused:
        receiver.rest()
        await connection.wait_running()
        receiver.resume()
