"""A client's request from its frame to its one answer, and the connection that it came by."""

from collections.abc import Callable
from typing import Any, Final, Protocol, final

import attrs

from raftlog.base.ids import ConnectionId
from raftlog.base.units import Instant
from raftlog.kafka.codec import EncodedAnswer, encode_response
from raftlog.kafka.connection import ServerConnection, State
from raftlog.kafka.shape import Part

OPEN: Final = State.OPEN  # in CPython 3.11 an Enum member costs 16 times a global name


class Unanswered(Protocol):
    """A request, or a run of requests, that waits for its answer."""

    @property
    def connection(self) -> "Connection": ...

    @property
    def request_no(self) -> int: ...

    @property
    def since(self) -> Instant: ...

    @property
    def weight(self) -> int: ...

    @property
    def pinned_bytes(self) -> int: ...

    def closed(self) -> None:
        """Take note that the connection is gone."""


class Answers(Protocol):
    """The place where answers go: the effects of the turn in which they are given."""

    def reply(self, request: "KafkaRequest", parts: list[Part] | None) -> None: ...

    def hang_up(self, connection: "Connection", why: str) -> None: ...


@final
@attrs.define(eq=False)
class Connection:
    """A client, for as long as its connection lives."""

    id: ConnectionId
    listener: str
    principal: str
    address: str
    protocol: ServerConnection
    client_id: str = ""
    closed: bool = False
    waiting: dict[int, Unanswered] = attrs.Factory(dict)
    """Number of a (first) request -> the request or run without an answer; the ledger bounds it."""

    @property
    def streams(self) -> bool:
        """Whether it has produced, so that more produce requests are likely to follow."""
        protocol = self.protocol
        return not self.closed and protocol.state is OPEN and protocol.repeats.stream is not None

    @property
    def waits_since(self) -> Instant:
        """The arrival of the oldest request without an answer; there must be one."""
        return next(iter(self.waiting.values())).since

    def end(self) -> None:
        """End the connection: no answer leaves any more, and waiting requests leave their lists."""
        if self.closed:
            return
        self.closed = True
        waiting, self.waiting = self.waiting, {}
        for request in waiting.values():
            request.closed()


@final
@attrs.define(eq=False)
class KafkaRequest:
    """One decoded request.

    A handler that keeps the object parks the request: it may answer in any later turn. Exactly one
    of `answer`, `answer_nothing` and `hang_up` is called, exactly once.
    """

    connection: Connection
    request_no: int
    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    body: Any
    frame_bytes: int
    answers: Answers
    since: Instant = Instant(0)
    """The arrival of the request."""
    weight: int = 0
    """The bytes that it came in, and those of the objects made of them."""
    pinned_bytes: int = 0
    """The bytes of a large frame whose records stay where they were received; else 0."""
    answered: bool = False
    _close_calls: tuple[Callable[[], None], ...] = ()

    @property
    def dead(self) -> bool:
        """Whether the client is gone or has its answer: a handler need not wait on."""
        return self.answered or self.connection.closed

    def answer(self, body: Any) -> None:
        """Send this body, in the newest shape of its class; nothing if the client is gone."""
        self._once()
        if self.connection.closed:
            return
        parts = encode_response(self.api_key, self.version, self.correlation_id, body)
        self.answers.reply(self, parts)

    def answer_encoded(self, encoded: EncodedAnswer) -> None:
        """Send a body that was encoded once for all equal requests of this API and version."""
        self._once()
        if not self.connection.closed:
            self.answers.reply(self, encoded.parts(self.correlation_id))

    def answer_nothing(self) -> None:
        """End a request with acks=0: the client expects no bytes, but the ledger needs its end."""
        self._once()
        if not self.connection.closed:
            self.answers.reply(self, None)

    def hang_up(self, why: str) -> None:
        """Close the connection: acks=0 leaves no other way to report a failure."""
        self._once()
        if not self.connection.closed:
            self.answers.reply(self, None)
            self.answers.hang_up(self.connection, why)

    def on_close(self, call: Callable[[], None]) -> None:
        """Call `call()` when the client goes away before its answer: leave waiter lists there."""
        self._close_calls += (call,)

    def closed(self) -> None:
        """Take note that the connection is gone; only the connection calls this."""
        calls, self._close_calls = self._close_calls, ()
        for call in calls:
            call()

    def _once(self) -> None:
        assert not self.answered, (self.api_key, self.connection.id, self.request_no)
        self.answered = True
        self._close_calls = ()
