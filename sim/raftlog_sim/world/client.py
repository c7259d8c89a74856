"""A plain Kafka client of a world: one connection to one node, with real frames."""

from collections.abc import Callable
from typing import Any, Final, final

import attrs

from raftlog.base.errors import RaftlogError
from raftlog.base.ids import ConnectionId
from raftlog.base.units import NANOS_PER_MICRO
from raftlog.broker.events import Request
from raftlog.kafka.codec import decode_response, encode_request
from raftlog.kafka.versions import SERVED
from raftlog_sim.world.faces import SimNode

_LENGTH_BYTES: Final = 4
CLIENT_NS: Final = 50 * NANOS_PER_MICRO
"""How long a frame travels to the broker."""
Then = Callable[[Any], None]


class ConnectionLostError(RaftlogError):
    """The broker hung up or died before it answered."""


@final
@attrs.define(eq=False)
class Pending:
    """A request in flight; `answer` is the body, None for acks=0, or ConnectionLostError."""

    api_key: int
    version: int
    done: bool = False
    answer: Any = None


@final
@attrs.define(eq=False)
class HeapClient:
    """One client connection. It numbers its requests from 0, as the runtime does."""

    node: SimNode
    client_id: str = "sim"
    connection: ConnectionId | None = None
    pending: dict[int, Pending] = attrs.Factory(dict)
    order: list[int] = attrs.Factory(list)
    """Request numbers in the order of their answers."""
    _next: int = 0

    def connect(self) -> "HeapClient":
        """Open the connection."""
        assert self.connection is None, self.connection
        self.connection = self.node.connect(self)
        return self

    def close(self) -> None:
        """Close the connection; every pending request ends with ConnectionLostError."""
        if self.connection is not None and self.node.up:
            self.node.disconnect(self.connection)
        self.lost()

    def request(self, api_key: int, body: Any, version: int | None = None) -> Pending:
        """Send one request; the answer appears in the Pending."""
        chosen = SERVED[api_key].max if version is None else version
        parts = encode_request(api_key, chosen, self._next, self.client_id, body)
        frame = b"".join(bytes(part) for part in parts)[_LENGTH_BYTES:]  # type: ignore[arg-type]
        return self.send_frame(frame, api_key, chosen)

    def send_frame(self, frame: bytes, api_key: int = -1, version: int = 0) -> Pending:
        """Send any bytes as one frame."""
        assert self.connection is not None, "not connected"
        pending = self.pending[self._next] = Pending(api_key, version)
        data = memoryview(bytearray(frame)) if self.node.world.views else frame
        event = Request(self.connection, self._next, data)
        self.node.arrive_later(CLIENT_NS, event)
        self._next += 1
        return pending

    def answered(self, request_no: int, frame: bytes | None) -> None:
        """Take the node's answer to one request, and check its length and correlation id."""
        pending = self.pending.pop(request_no)
        self.order.append(request_no)
        pending.done = True
        if frame is None:
            return
        size = int.from_bytes(frame[:_LENGTH_BYTES], "big")
        assert size == len(frame) - _LENGTH_BYTES, (size, len(frame))
        body = frame[_LENGTH_BYTES:]
        if pending.api_key < 0:
            pending.answer = body
            return
        response = decode_response(pending.api_key, pending.version, body)
        assert response.correlation_id == request_no, (response.correlation_id, request_no)
        assert response.trailing == 0, response
        pending.answer = response.body

    def lost(self) -> None:
        """End the connection: every pending request is done, with ConnectionLostError."""
        self.connection = None
        waiting, self.pending = self.pending, {}
        for pending in waiting.values():
            pending.done = True
            pending.answer = ConnectionLostError("the connection ended before the answer")


def cut_frames(data: bytes, count: int) -> list[bytes]:
    """Cut `data` into the `count` frames that it consists of; each keeps its length prefix."""
    frames = []
    for _ in range(count):
        size = _LENGTH_BYTES + int.from_bytes(data[:_LENGTH_BYTES], "big")
        frames.append(data[:size])
        data = data[size:]
    assert not data, (count, len(data))
    return frames
