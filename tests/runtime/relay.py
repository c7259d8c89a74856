"""A relay between two brokers that knows everything but the secret."""

import struct

import trio

from raftlog.base.checksum import crc32c
from raftlog.broker.events import PeerAddress

HEAD = struct.Struct(">II")


class Relay:
    """Listens in the place of a broker. `change` gets each frame of both directions behind the
    handshake as (from the dialler, bytes), and gives what goes on: a list of bytes for either way,
    as (towards the acceptor, bytes). `refuse_seals` ends each connection with a sealed hello."""

    def __init__(self, target: PeerAddress, change=None, *, refuse_seals: bool = False) -> None:
        self.target = target
        self.change = change or (lambda forward, frame: [(forward, frame)])
        self.refuse_seals = refuse_seals
        self.connections = 0
        self.frames = 0
        self.seen = b""

    async def listen(self, nursery) -> PeerAddress:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, self._serve, [listener])
        return self.target._replace(port=listener.socket.getsockname()[1])

    async def _serve(self, dialler: trio.SocketStream) -> None:
        self.connections += 1
        acceptor = await trio.open_tcp_stream(self.target.host, self.target.port)
        async with dialler, acceptor, trio.open_nursery() as nursery:
            nursery.start_soon(self._pump, dialler, acceptor, True, nursery.cancel_scope)
            nursery.start_soon(self._pump, acceptor, dialler, False, nursery.cancel_scope)

    async def _pump(self, source, sink, forward, scope) -> None:
        """Handshakes have the same sizes whether they are sealed or not."""
        try:
            for size in (40, 32, None) if forward else (72, None):
                if size is None:
                    head = await exactly(source, 4)
                    rest = await exactly(source, int.from_bytes(head, "big") + 32)
                    await sink.send_all(head + rest)
                    continue
                block = await exactly(source, size)
                if self.refuse_seals and block.startswith(b"raftlogS"):
                    return
                await sink.send_all(block)
            while True:
                head = await exactly(source, 4)
                frame = head + await exactly(source, int.from_bytes(head, "big"))
                self.frames += 1
                self.seen += frame
                for onward, piece in self.change(forward, frame):
                    await (sink if onward == forward else source).send_all(piece)
        except (EOFError, trio.BrokenResourceError, trio.ClosedResourceError):
            return
        finally:
            scope.cancel()


async def exactly(stream, size: int) -> bytes:
    got = b""
    while len(got) < size:
        piece = await stream.receive_some(size - len(got))
        if not piece:
            raise EOFError
        got += piece
    return got


def framed(body: bytes) -> bytes:
    """A frame with a right CRC."""
    return HEAD.pack(len(body) + 4, crc32c(body)) + body
