"""Byte streams and the network they come from: what a connection needs of a socket, without
blocking and without copying.

The sending half is non-blocking, so that a turn's answers can leave before the turn's task yields;
only when the socket is full does a writer task wait. `trio_world` puts a simulated network here.
"""

import errno
import os
import socket
from collections.abc import Sequence
from typing import Final, Protocol, final

import trio

from raftlog.base.binary import Buffer
from raftlog.base.errors import OperatingError
from raftlog.runtime.local.ports import whose

SEND_PARTS_MAX: Final = 512


class ByteStream(Protocol):
    """A connected stream. A closed or broken one raises `trio.BrokenResourceError` or
    `trio.ClosedResourceError`; `receive_into` returns 0 when the other end has finished."""

    async def wait_readable(self) -> None:
        """Wait until something can be received, or the stream has ended: no memory is needed for
        that."""
        ...

    async def receive_into(self, view: memoryview) -> int: ...

    def send_nowait(self, parts: Sequence[Buffer]) -> int:
        """Bytes taken by the transport; 0 when it is full."""
        ...

    def send_file_nowait(self, fd: int, position: int, size: int) -> int:
        """Bytes of the file taken; 0 when the transport is full. A file that ends before `position`
        is a broken stream, for the frame around it was already announced."""
        ...

    async def wait_writable(self) -> None: ...

    def close(self) -> None: ...


class Listening(Protocol):
    """A bound listener."""

    @property
    def port(self) -> int: ...

    async def accept(self) -> tuple[ByteStream, str]:
        """The next connection, and who it is, for people. OSError (such as too many open files) is
        for the caller to wait out."""
        ...

    def close(self) -> None: ...


class Network(Protocol):
    """Connects this process to others: dials and listens."""

    async def connect(self, host: str, port: int) -> ByteStream:
        """Connect; OSError when no process listens there."""
        ...

    async def listen(self, host: str, port: int) -> Sequence[Listening]:
        """A listener for each address of `host`, one at least. OSError when they are not to be
        had; OperatingError that names who has the port when it is taken."""
        ...


@final
class TcpStream:
    """A `ByteStream` over a non-blocking TCP socket."""

    __slots__ = ("_drained", "_socket", "_waited")

    def __init__(self, connected: socket.socket) -> None:
        connected.setblocking(False)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = connected
        self._drained = True
        """The last receive took less than it could: there is probably no more yet."""
        self._waited = False
        """`wait_readable` has let others run since the last receive."""

    async def wait_readable(self) -> None:
        while True:
            if self._drained:
                await trio.lowlevel.wait_readable(self._socket)
                self._drained, self._waited = False, True
                return
            try:
                self._socket.recv(1, socket.MSG_PEEK)
            except BlockingIOError:
                self._drained = True
            except OSError as error:
                raise trio.BrokenResourceError(str(error)) from error
            else:
                return

    async def receive_into(self, view: memoryview) -> int:
        """Bytes received, at least 1, or 0 at the end of the stream."""
        waited, self._waited = self._waited, False
        while True:
            if self._drained:  # trying first would cost a system call that finds nothing
                await trio.lowlevel.wait_readable(self._socket)
                waited = True
            try:
                received = self._socket.recv_into(view)
            except BlockingIOError:
                self._drained = True
                continue
            except OSError as error:
                raise trio.BrokenResourceError(str(error)) from error
            self._drained = received < len(view)
            if not waited:
                # A client that pipelines always has bytes ready; completions must get their turn.
                await trio.lowlevel.checkpoint()
            return received

    def send_nowait(self, parts: Sequence[Buffer]) -> int:
        try:
            return self._socket.sendmsg(parts[:SEND_PARTS_MAX])
        except BlockingIOError:
            return 0
        except OSError as error:
            raise trio.BrokenResourceError(str(error)) from error

    def send_file_nowait(self, fd: int, position: int, size: int) -> int:
        try:
            sent = os.sendfile(self._socket.fileno(), fd, position, size)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise trio.BrokenResourceError(str(error)) from error
        if sent == 0:
            raise trio.BrokenResourceError(f"file ends before byte {position}")
        return sent

    async def wait_writable(self) -> None:
        await trio.lowlevel.wait_writable(self._socket)

    def peer_address(self) -> str:
        """Host and port of the other end, for people."""
        try:
            host, port = self._socket.getpeername()[:2]
        except OSError:
            return "?"
        return f"{host}:{port}"

    def close(self) -> None:
        if self._socket.fileno() >= 0:
            trio.lowlevel.notify_closing(self._socket)
            self._socket.close()


@final
class TcpListening:
    """A `Listening` over a non-blocking listening socket."""

    __slots__ = ("_socket",)

    def __init__(self, listening: socket.socket) -> None:
        listening.setblocking(False)
        self._socket = listening

    @property
    def port(self) -> int:
        return int(self._socket.getsockname()[1])

    async def accept(self) -> tuple[TcpStream, str]:
        """See `Listening`."""
        while True:
            try:
                connected, _ = self._socket.accept()
            except (BlockingIOError, ConnectionAbortedError, InterruptedError):
                await trio.lowlevel.wait_readable(self._socket)
                continue
            stream = TcpStream(connected)
            return stream, stream.peer_address()

    def close(self) -> None:
        trio.lowlevel.notify_closing(self._socket)
        self._socket.close()


@final
class TcpNetwork:
    """The `Network` of this machine."""

    __slots__ = ()

    async def connect(self, host: str, port: int) -> TcpStream:
        """See `Network`."""
        stream = await trio.open_tcp_stream(host, port)
        # Taken over without an await: a driver that ends in one would leave the socket open.
        return TcpStream(socket.socket(fileno=stream.socket.detach()))

    async def listen(self, host: str, port: int) -> list[TcpListening]:
        """See `Network`."""
        try:
            listeners = await trio.open_tcp_listeners(port, host=host, backlog=512)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            holder, do = whose(port)
            raise OperatingError(
                f"cannot listen: the port is taken by {holder}", on=f"{host}:{port}", do=do
            ) from error
        return [
            TcpListening(socket.socket(fileno=listener.socket.detach())) for listener in listeners
        ]
