"""Faulty TCP links without root: a proxy stands between two brokers, or between clients and one.

A `Flow` is one direction of bytes between two ends and says what happens to them now: pass, held
(as by a network that drops packets: TCP waits, nothing arrives), delayed, or throttled.
`ProxyLinks` keeps every proxy in one thread, and can cut connections with a reset. Changing a flow
takes effect on connections that exist.
"""

import socket
import struct
import threading
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from typing import Final, final

import attrs
import trio

from jepsen_style_tests.processes import HOST

CLIENTS: Final = 0
"""The end that stands for all clients; brokers are numbered from 1."""
_CHUNK_BYTES: Final = 64 * 1024
_CHUNKS_MAX: Final = 64
"""Chunks on their way through one direction; beyond that the sender feels the slow link."""
_HELD_POLL_SECONDS: Final = 0.01
_DIAL_SECONDS: Final = 5.0
_START_SECONDS: Final = 30.0
_RESET: Final = struct.pack("ii", 1, 0)  # SO_LINGER on, zero seconds: close sends RST


@final
@attrs.define(eq=False)
class Flow:
    """One direction. Plain attributes: another thread sets them, the pumps look."""

    held: bool = False
    delay_seconds: float = 0.0
    bytes_per_second: float = 0.0
    """0 is as fast as it goes."""

    def clear(self) -> None:
        """Back to a perfect link."""
        self.held, self.delay_seconds, self.bytes_per_second = False, 0.0, 0.0


@final
class ProxyLinks:
    """Proxies between pairs of ends, in a thread of their own."""

    def __init__(self) -> None:
        self.ports: dict[tuple[int, int], int] = {}
        """(who dials, who is dialled) -> port of the proxy."""
        self._targets: dict[tuple[int, int], int] = {}
        self._flows: dict[tuple[int, int], Flow] = {}
        self._open: dict[tuple[int, int], list[trio.SocketStream]] = {}
        self._token: trio.lowlevel.TrioToken | None = None
        self._scope: trio.CancelScope | None = None
        self._listening = threading.Event()
        self._thread: threading.Thread | None = None

    def flow(self, start: int, to: int) -> Flow:
        """Bytes from `start` to `to`, whoever dialled."""
        return self._flows.setdefault((start, to), Flow())

    def start(self, targets: dict[tuple[int, int], int]) -> None:
        """Listen for each (dialler, dialled) and forward to the port given; `ports` is then
        known."""
        self._targets = dict(targets)
        if not targets:
            return
        self._thread = threading.Thread(
            target=trio.run, args=(self._main,), name="links", daemon=True
        )
        self._thread.start()
        assert self._listening.wait(_START_SECONDS), "the proxies do not listen"

    def stop(self) -> None:
        """Close everything."""
        if self._thread is not None and self._token is not None and self._scope is not None:
            self._token.run_sync_soon(self._scope.cancel)
            self._thread.join(_START_SECONDS)

    def heal(self) -> None:
        """Every flow passes again. Bytes that were held are delivered now, as TCP would."""
        for flow in self._flows.values():
            flow.clear()

    def reset(self, pairs: Iterable[tuple[int, int]]) -> None:
        """End all connections between these ends, in both directions of dialling, by RST."""
        if self._token is not None:
            self._token.run_sync_soon(self._reset, list(pairs))

    def _reset(self, pairs: list[tuple[int, int]]) -> None:
        for start, to in pairs:
            for pair in ((start, to), (to, start)):
                for stream in self._open.pop(pair, []):
                    _abort(stream)

    # --- in the thread ----------------------------------------------------------------------------

    async def _main(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        async with trio.open_nursery() as nursery:
            self._scope = nursery.cancel_scope
            for pair in self._targets:
                listeners = await trio.open_tcp_listeners(0, host=HOST)
                self.ports[pair] = listeners[0].socket.getsockname()[1]
                serve = partial(trio.serve_listeners, partial(self._serve, pair), listeners)
                nursery.start_soon(serve)
            self._listening.set()

    async def _serve(self, pair: tuple[int, int], near: trio.SocketStream) -> None:
        start, to = pair
        try:
            with trio.fail_after(_DIAL_SECONDS):
                far = await trio.open_tcp_stream(HOST, self._targets[pair])
        except (OSError, trio.TooSlowError):
            _abort(near)
            return
        mine = self._open.setdefault(pair, [])
        mine += [near, far]
        try:
            async with trio.open_nursery() as nursery:
                end = nursery.cancel_scope
                nursery.start_soon(self._carry, near, far, self.flow(start, to), end)
                nursery.start_soon(self._carry, far, near, self.flow(to, start), end)
        finally:
            for stream in (near, far):
                if stream in self._open.get(pair, []):
                    self._open[pair].remove(stream)
                stream.socket.close()

    async def _carry(
        self, source: trio.SocketStream, sink: trio.SocketStream, flow: Flow, end: trio.CancelScope
    ) -> None:
        """One direction of one connection, until either end closes; then both are closed."""
        send, receive = trio.open_memory_channel[tuple[float, bytes]](_CHUNKS_MAX)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_deliver, receive, sink, flow)
                async with send:
                    while data := await source.receive_some(_CHUNK_BYTES):
                        await send.send((trio.current_time(), data))
        except* (OSError, trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # a connection that breaks is what this file is about
        finally:
            end.cancel()


async def _deliver(
    receive: "trio.MemoryReceiveChannel[tuple[float, bytes]]",
    sink: trio.SocketStream,
    flow: Flow,
) -> None:
    async for sent, data in receive:
        if flow.delay_seconds:
            await trio.sleep_until(sent + flow.delay_seconds)
        # Another thread lets go: there is no event of trio's to wait for.
        while flow.held:  # noqa: ASYNC110
            await trio.sleep(_HELD_POLL_SECONDS)
        if flow.bytes_per_second:
            await trio.sleep(len(data) / flow.bytes_per_second)
        await sink.send_all(data)


def _abort(stream: trio.SocketStream) -> None:
    """Close with a reset: what is on its way is lost, the other end learns it at once."""
    with suppress(OSError):  # it may be closed already
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    trio.lowlevel.notify_closing(stream.socket)
    stream.socket.close()
