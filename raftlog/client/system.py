"""The machine as the drivers need it: time, randomness and sockets.

The client may not import the runtime: neither floor may know the other (docs/architecture.md). So
the little that a client needs is written here. A `DriverPorts` holds it. `THIS_MACHINE` is the real
one; the simulator passes others.
"""

import os
import socket
import time
from collections.abc import Awaitable, Callable, Sequence
from difflib import get_close_matches
from typing import Final, Protocol, final

import attrs
import trio

from raftlog.base.arguments import check
from raftlog.base.binary import Buffer
from raftlog.base.errors import LocalMisuse, WrongType, WrongValue
from raftlog.base.ports import Entropy
from raftlog.base.units import NANOS_PER_MILLI, NANOS_PER_SECOND, Instant, WallMillis
from raftlog.client.core.values import ClientOptions

SEND_PARTS_MAX: Final = 512
DEFAULT_PORT: Final = 9092


def now() -> Instant:
    """The present on trio's clock, so that tests in virtual time work with the client too."""
    return Instant(int(trio.current_time() * NANOS_PER_SECOND))


def inside_trio() -> bool:
    """Whether the caller runs in a trio task, and not in another event loop or in no task at
    all."""
    try:
        trio.lowlevel.current_task()
    except RuntimeError:
        return False
    return True


def refuse_inside_trio(what: str, do: str) -> None:
    """Raise `LocalMisuse` when a blocking method is called in a trio task. Blocking there would
    stop all other tasks, so trio does not allow it."""
    if inside_trio():
        raise LocalMisuse(f"{what} blocks, and was called in a trio task", do=do)


def wall_ms() -> WallMillis:
    """Unix time in milliseconds, the timestamp of a record that was given none."""
    return WallMillis(time.time_ns() // NANOS_PER_MILLI)  # noqa: TID251 - the client's own clock


@final
class SystemEntropy:
    """Randomness from the operating system. The client uses it for jitter only."""

    __slots__ = ()

    def below(self, bound: int) -> int:
        """A random integer, at least 0 and below `bound`. Its bias is below 2**-64."""
        size = (bound.bit_length() + 7) // 8 + 8
        return int.from_bytes(self.bytes(size), "big") % bound

    def bytes(self, count: int) -> bytes:
        return os.urandom(count)  # noqa: TID251 - the client's own dice

    def fork(self, label: str) -> "SystemEntropy":
        del label
        return self


def parse_bootstrap(servers: str, argument: str = "bootstrap") -> tuple[tuple[str, int], ...]:
    """Parse `host:port,host:port`. A port that is left out is 9092. Raises `WrongValue` for
    anything else, by the name of the caller's `argument`."""
    check(argument, servers, str)
    found: list[tuple[str, int]] = []
    for each in servers.split(","):
        text = each.strip()
        host, colon, port = text.rpartition(":")
        if not colon or (text.count(":") > 1 and text.endswith("]")):
            host, port = text, str(DEFAULT_PORT)
        host = host.removeprefix("[").removesuffix("]")
        if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
            raise WrongValue(f"{argument} must be host:port,host:port; {text!r} is neither")
        try:
            known = "/" not in host and min(host.encode("idna")) > ord(" ")
        except UnicodeError:
            known = False
        if not known:
            raise WrongValue(f"{argument} names a host that cannot be: {text!r}")
        found.append((host, int(port)))
    return tuple(found)


def client_options(
    bootstrap: str, options: ClientOptions | None, more: dict[str, object]
) -> ClientOptions:
    """The options of a driver: the given `options`, or options made from keywords."""
    if options is not None:
        if more:
            raise LocalMisuse("options are given whole and in part")
        return options
    for name in more:
        if name not in _OPTIONS:
            near = get_close_matches(name, _OPTIONS, 1)
            raise WrongType(
                f"{name} is no option of a client", do=f"did you mean {near[0]}?" if near else ""
            )
    return ClientOptions(bootstrap=parse_bootstrap(bootstrap), **more)  # type: ignore[arg-type]


_OPTIONS: Final = [field.name for field in attrs.fields(ClientOptions)]


class ConnectedStream(Protocol):
    """A connected stream. Its methods raise OSError when the other end is gone."""

    async def receive_into(self, view: memoryview) -> int:
        """Bytes received; 0 at the end of the stream."""
        ...

    def send_nowait(self, parts: Sequence[Buffer]) -> int:
        """Bytes taken; 0 when there is no room."""
        ...

    async def wait_writable(self) -> None: ...

    def close(self) -> None: ...


@final
class ClientSocket:
    """A connected, non-blocking TCP socket. Its methods raise OSError when the other end is
    gone."""

    __slots__ = ("_socket",)

    def __init__(self, connected: socket.socket) -> None:
        connected.setblocking(False)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = connected

    async def receive_into(self, view: memoryview) -> int:
        """Bytes received; 0 at the end of the stream."""
        while True:
            try:
                received = self._socket.recv_into(view)
            except BlockingIOError:
                await trio.lowlevel.wait_readable(self._socket)
                continue
            await trio.lowlevel.checkpoint()
            return received

    def send_nowait(self, parts: Sequence[Buffer]) -> int:
        """Bytes taken by the kernel; 0 when its buffer is full."""
        try:
            return self._socket.sendmsg(parts[:SEND_PARTS_MAX])
        except BlockingIOError:
            return 0

    async def wait_writable(self) -> None:
        await trio.lowlevel.wait_writable(self._socket)

    def close(self) -> None:
        if self._socket.fileno() >= 0:
            trio.lowlevel.notify_closing(self._socket)
            self._socket.close()


async def connect(host: str, port: int) -> ClientSocket:
    """Connect to an address; OSError when nothing listens there."""
    try:
        stream = await trio.open_tcp_stream(host, port)
    except (ValueError, OverflowError) as error:
        # A broker may advertise a host name that the resolver rejects before any lookup. For the
        # caller this is an address that cannot be reached.
        raise OSError(f"{host!r} is no host: {error}") from error
    # No await stands between connecting and this: a cancellation there would leave the socket open.
    return ClientSocket(socket.socket(fileno=stream.socket.detach()))


@final
@attrs.frozen(kw_only=True)
class DriverPorts:
    """The functions that a driver calls on its machine. The clock is trio's and is not among
    them."""

    entropy: Entropy
    wall_ms: Callable[[], WallMillis]
    connect: Callable[[str, int], Awaitable[ConnectedStream]]
    """Opens a connection to (host, port); OSError when nothing listens there."""


THIS_MACHINE: Final = DriverPorts(entropy=SystemEntropy(), wall_ms=wall_ms, connect=connect)
