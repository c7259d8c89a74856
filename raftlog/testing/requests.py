"""Faults of single APIs, between the connections of clients and the broker.

* `error` answers and does not execute.
* `drop_response` and `delay` execute. After a dropped answer the connection stays open and silent,
  because the client would take a later answer for the lost one.
* `disconnect` closes the connection instead of executing; with `executed`, instead of answering.

A Produce with acks=0 has no answer: `drop_response` and `delay` do not match it, and `error` closes
its connection, as Kafka does.
"""

import heapq
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, final

import attrs

from raftlog.base.errors import ProtocolError
from raftlog.base.ids import ConnectionId
from raftlog.base.units import NEVER, Instant, millis
from raftlog.broker.events import (
    ConnectionClosed,
    ConnectionOpened,
    Drained,
    Effects,
    Event,
    Hangup,
    Reply,
    Request,
)
from raftlog.kafka.codec import DecodedRequest as Decoded
from raftlog.kafka.codec import decode_request, encode_response
from raftlog.kafka.error_bodies import error_body
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.messages.fetch import FetchResponse
from raftlog.kafka.versions import ApiKey
from raftlog.testing.room import FaultRoom
from raftlog.testing.rules import TOPIC_FIELDS, Action, ApiFault

_KEY_BYTES: Final = 2
_OF_FETCH_SESSIONS: Final = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    ErrorCode.UNSUPPORTED_VERSION,
)
_OF_ANSWERS: Final = (Action.DROP_RESPONSE, Action.DELAY)


@final
@attrs.define(eq=False)
class RequestFaults:
    """Applies faults to the requests and answers of one broker. `topic_of` returns the name of a
    topic id, which newer requests use; None for an unknown id."""

    room: FaultRoom
    topic_of: Callable[[Any], str | None]
    _addresses: dict[ConnectionId, str] = attrs.field(factory=dict, init=False)
    """The client's address of each open connection."""
    _marked: dict[tuple[ConnectionId, int], ApiFault] = attrs.field(factory=dict, init=False)
    """Requests that the broker executes and on whose answers a fault will act."""
    _silent: dict[ConnectionId, int] = attrs.field(factory=dict, init=False)
    """Connection -> the request from which on it gets no answers."""
    _ended: dict[ConnectionId, None] = attrs.field(factory=dict, init=False)
    """Connections that a fault closed. Requests that still come from them are not executed."""
    _answers: list[Reply] = attrs.field(factory=list, init=False)
    _hangups: list[Hangup] = attrs.field(factory=list, init=False)
    _dropped: list[Drained] = attrs.field(factory=list, init=False)
    """Answers that were dropped. The broker counts their bytes until it is told that they were
    sent."""
    _late: list[tuple[Instant, int, Reply]] = attrs.field(factory=list, init=False)
    """A heap of delayed answers, ordered by when they leave."""
    _numbers: int = attrs.field(default=0, init=False)

    def before(self, events: Sequence[Event], now: Instant) -> list[Event]:
        """Return the events that the broker gets: all of these but the requests that a fault
        answers."""
        passed: list[Event] = [*self._dropped]
        self._dropped.clear()
        for event in events:
            if type(event) is Request:
                if event.connection in self._ended or self._is_taken(event):
                    continue
                before = passed[-1] if passed else None
                if self.room.api and type(before) is Request:
                    # The broker answers consecutive requests of one producer together, so a fault
                    # could not act on one of them. An event between them separates them.
                    passed.append(Drained(event.connection, 0))
            elif type(event) is ConnectionOpened:
                self._addresses[event.connection] = event.address
            elif type(event) is ConnectionClosed:
                self._forget(event.connection)
            passed.append(event)
        return passed

    def after(self, effects: Effects, now: Instant) -> None:
        """Apply faults to the answers of a turn; add the answers that faults give themselves."""
        if self._marked or self._silent or self._late:
            judged = (self._judge(reply, now) for reply in effects.replies)
            effects.replies = [reply for reply in judged if reply is not None]
            while self._late and self._late[0][0] <= now:
                effects.replies.append(heapq.heappop(self._late)[2])
        effects.replies += self._answers
        effects.hangups += self._hangups
        self._answers.clear()
        self._hangups.clear()

    def wake_at(self) -> Instant:
        """When the next late answer leaves."""
        if self._dropped:
            return Instant(0)
        return self._late[0][0] if self._late else NEVER

    # --- requests ---------------------------------------------------------------------------------

    def _is_taken(self, event: Request) -> bool:
        """Whether a fault handles a request in place of the broker."""
        key = int.from_bytes(event.frame[:_KEY_BYTES], "big", signed=True)
        candidates = [fault for fault in self.room.api if fault.api == key]
        if not candidates or event.connection in self._silent:
            return False
        try:
            request = decode_request(event.frame)
        except ProtocolError:
            # the request cannot be decoded; the broker closes the connection and says why
            return False
        if not request.served:
            return False
        for fault in candidates:
            if not self._matches(fault, event, request):
                continue
            body = None
            if fault.action is Action.ERROR:
                body = _error_body(request, fault.error)
                if body is None:
                    continue  # the request names nothing that could have the error
            if self.room.acts(fault):
                return self._act(fault, event, request, body)
        return False

    def _matches(self, fault: ApiFault, event: Request, request: Decoded) -> bool:
        if fault.client_id and fault.client_id != request.client_id:
            return False
        if fault.connection and fault.connection != self._addresses.get(event.connection):
            return False
        if fault.action in _OF_ANSWERS and _has_no_answer(request):
            return False
        return not fault.topic or fault.topic in self._topics(request.body)

    def _topics(self, body: Any) -> Iterator[str | None]:
        """The topics that a request names, by name or by id."""
        for field in TOPIC_FIELDS:
            for topic in getattr(body, field, None) or ():
                if isinstance(topic, str):
                    yield topic
                    continue
                yield getattr(topic, "name", None) or getattr(topic, "topic", None)
                identity = getattr(topic, "topic_id", None)
                if identity is not None:
                    yield self.topic_of(identity)
        for group in getattr(body, "groups", None) or ():
            if not isinstance(group, str):
                yield from self._topics(group)

    def _act(self, fault: ApiFault, event: Request, request: Decoded, body: Any) -> bool:
        """Apply a fault to a request. Return whether the broker must not get it."""
        connection = event.connection
        if fault.action is Action.ERROR and not _has_no_answer(request):
            frame = encode_response(
                request.api_key, request.api_version, request.correlation_id, body
            )
            self._answers.append(Reply(connection, event.request_no, frame))  # type: ignore[arg-type]
            return True
        ends = fault.action is Action.DISCONNECT and not fault.executed
        if ends or fault.action is Action.ERROR:
            self._hang_up(connection)
            return True
        self._marked[connection, event.request_no] = fault
        return False

    def _hang_up(self, connection: ConnectionId) -> None:
        self._ended[connection] = None
        self._hangups.append(Hangup(connection))

    # --- answers ----------------------------------------------------------------------------------

    def _judge(self, reply: Reply, now: Instant) -> Reply | None:
        """The answer that leaves now; None when it is dropped or leaves later."""
        connection, number = reply.connection, reply.request_no
        fault = self._marked.pop((connection, number), None)
        silent_from = self._silent.get(connection)
        if silent_from is not None and number > silent_from:
            return self._drop(reply)
        if fault is None:
            return reply
        if fault.action is Action.DELAY:
            self._numbers += 1
            due = Instant(now + millis(fault.ms))
            heapq.heappush(self._late, (due, self._numbers, reply))
            return None
        if fault.action is Action.DISCONNECT:
            self._hang_up(connection)
            return None
        self._silent[connection] = min(number, self._silent.get(connection, number))
        return self._drop(reply)

    def _drop(self, reply: Reply) -> Reply:
        size = sum(map(len, reply.parts or ()))
        if size:
            self._dropped.append(Drained(reply.connection, size))
        return reply._replace(parts=None)

    def _forget(self, connection: ConnectionId) -> None:
        for table in (self._addresses, self._silent, self._ended):
            table.pop(connection, None)
        for key in [key for key in self._marked if key[0] == connection]:
            del self._marked[key]
        self._late = [each for each in self._late if each[2].connection != connection]
        heapq.heapify(self._late)


def _error_body(request: Decoded, code: int) -> Any:
    """The body of an error answer as a broker would give it. In a Fetch, only session errors stand
    at the top; all others stand at the partitions, where clients look for them."""
    body = error_body(request.body, code)
    if type(body) is FetchResponse and code not in _OF_FETCH_SESSIONS:
        return body._replace(error_code=ErrorCode.NONE)
    return body


def _has_no_answer(request: Decoded) -> bool:
    return request.api_key == ApiKey.PRODUCE and request.body.acks == 0
