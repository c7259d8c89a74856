"""Handles client connections: frames in, requests dispatched, connections that end.

A request whose body parses is always answered, with an error body if need be. Bytes that do not
parse end the connection. No bytes of a client raise an error here. A typed error that escapes from
a handler ends the connection; any other error is a bug and ends the process.

Until the broker has opened, it could only tell the state of an earlier boot. So requests wait for
that, and count as all that wait (docs/decisions/0055-requests-wait-for-the-boot.md).
"""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from operator import itemgetter
from typing import Final, final

import attrs

from raftlog.base.errors import ProtocolError, RaftlogError
from raftlog.base.ids import ConnectionId
from raftlog.base.limits import (
    RECORD_COPY_BYTES_MAX,
    REQUEST_ITEM_BYTES,
    TURN_EVENTS_MAX,
    WAITING_BYTES_MIN,
)
from raftlog.base.probes import probe
from raftlog.base.units import millis
from raftlog.broker.events import ConnectionClosed, ConnectionOpened, Drained, Event, Request
from raftlog.broker.front.answers import TurnAnswers
from raftlog.broker.front.deferred import Deferred, TurnMeter
from raftlog.broker.front.ledger import Ledger
from raftlog.broker.front.requests import Connection, KafkaRequest
from raftlog.broker.turn import Turn
from raftlog.kafka.codec import DecodedRequest as Decoded
from raftlog.kafka.connection import ServerConnection
from raftlog.kafka.error_bodies import error_body
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.versions import ApiKey
from raftlog.records.codec_blocks import TALLY

WAITED_NS: Final = millis(100)
"""Added to the waiting time of each: many huge requests may come in one turn, and none has waited.
"""
_PRODUCE: Final = int(ApiKey.PRODUCE)
_API_VERSIONS: Final = int(ApiKey.API_VERSIONS)

NO_API: Final = -1
_MALFORMED_ITEM_BYTES: Final = 16
"""Bytes of a frame that did not parse for each item that it is taken to have named."""
_HELD_PER_TURN: Final = 2 * TURN_EVENTS_MAX
"""The most held requests that one turn works. More cannot come in a turn, so their number falls."""
_HELD_WEIGHT: Final = 2 * REQUEST_ITEM_BYTES
"""The bytes of the objects of a small request, for those that may all wait at once."""

RunTaker = Callable[[Connection, Sequence[Event], int], int]


@final
@attrs.define(eq=False)
class Clients:
    """All connections of a broker.

    `handle` works one request of an API that is served. `take_run` takes requests of a producer's
    stream together, and returns how many it took.
    """

    turn: Turn
    ledger: Ledger
    answers: TurnAnswers
    handle: Callable[[KafkaRequest], None]
    take_run: RunTaker
    requests_by_api: Counter[int] = attrs.Factory(Counter)
    connections: dict[ConnectionId, Connection] = attrs.Factory(dict)
    meter: TurnMeter = attrs.Factory(TurnMeter)
    deferred: Deferred = attrs.Factory(Deferred)
    serving: bool = False
    """Whether requests are worked: the image is as new as the boot and shows it alive, and the boot
    is not over."""
    _held: dict[KafkaRequest, None] = attrs.Factory(dict)
    """The requests that came before the broker had opened, in order."""

    def opened(self, event: ConnectionOpened) -> None:
        """Take a new client."""
        assert event.connection not in self.connections, event.connection
        self.connections[event.connection] = Connection(
            event.connection, event.listener, event.principal, event.address, ServerConnection()
        )
        self.ledger.opened(event.connection)
        self.turn.count("connections_opened")

    def closed(self, event: ConnectionClosed) -> None:
        """End a connection that the client or this broker closed.

        Its earlier requests come first: a producer with acks=0 closes when its last request has
        left.
        """
        if self.deferred.holds(event.connection):
            self.deferred.put(event)
            return
        self.connections.pop(event.connection).end()
        self.ledger.closed(event.connection)

    def drained(self, event: Drained) -> None:
        """Note that answer bytes have left."""
        self.ledger.drained(event.connection, event.byte_count)

    def turn_away(self) -> None:
        """Hang up on every client, after the answers of this turn."""
        for connection in self.connections.values():
            if not connection.closed:
                probe("client-turned-away")
                self.answers.hang_up(connection, None)

    def relieve(self) -> None:
        """Hang up on clients that fill the process's memory, and that pausing does not stop."""
        ledger = self.ledger
        for identity in ledger.overdue():
            why = "it has not read its answers for long, and the broker holds too many"
            self.answers.hang_up(self.connections[identity], why)
        if ledger.waits_too_much():
            for connection in self._those_who_wait():
                if not ledger.waits_too_much():
                    return
                probe("waiting-given-up")
                why = "its requests wait for long, and the broker holds too many"
                self.answers.hang_up(connection, why)

    def _those_who_wait(self) -> list[Connection]:
        """The connections whose requests weigh something, the most for longest first."""
        weight_of = self.ledger.waiting_of
        found = [
            (weight * (self.turn.now - each.waits_since + WAITED_NS), each)
            for each in self.connections.values()
            if each.waiting and (weight := weight_of(each.id)) >= WAITING_BYTES_MIN
        ]
        found.sort(key=itemgetter(0), reverse=True)
        return [each for _, each in found]

    def requests(self, events: Sequence[Event], first: int) -> int:
        """Work the request that is the `first` of these events, with later ones that fit to it.

        Returns how many events were taken together.
        """
        event = events[first]
        assert type(event) is Request, event
        if self.deferred.holds(event.connection) or not self.meter.admits(len(event.frame)):
            self._defer(event)
            return 1
        follows = events[first + 1] if first + 1 < len(events) else None
        if type(follows) is Request and follows.connection == event.connection:
            connection = self.connections.get(event.connection)
            if connection is not None and connection.streams and self._serves:
                taken = self.take_run(connection, events, first)
                if taken:
                    self.requests_by_api[_PRODUCE] += taken
                    return taken
        self.request(event)
        return 1

    def begin_turn(self) -> None:
        """Work requests that waited for this turn, as far as the turn takes them."""
        self.meter.begin_turn()
        while self.deferred and self.meter.left > 0:
            event = self.deferred.pop()
            if isinstance(event, ConnectionClosed):
                self.closed(event)
                continue
            connection = self.connections[event.connection]
            if not connection.closed:
                size = len(event.frame)
                self.ledger.answered(connection.id, size, 0, pinned=size if self._pins(size) else 0)
                self.request(event)

    def _defer(self, event: Request) -> None:
        """Keep a request for a later turn.

        It counts as unanswered meanwhile, so that its client is paused like any other.
        """
        connection = self.connections.get(event.connection)
        if connection is None or connection.closed:
            return
        probe("request-deferred-to-a-later-turn")
        size = len(event.frame)
        if size < RECORD_COPY_BYTES_MAX:  # a view would keep a whole receive slab
            event = Request(event.connection, event.request_no, bytes(event.frame))
        self.deferred.put(event)
        self.ledger.received(connection.id, size, pinned=size if self._pins(size) else 0)

    @staticmethod
    def _pins(frame_bytes: int) -> bool:
        return frame_bytes >= RECORD_COPY_BYTES_MAX

    def request(self, event: Request) -> None:
        """Work one whole frame, or hold it until the broker has opened."""
        connection = self.connections.get(event.connection)
        if connection is None or connection.closed:
            return
        serves, frame = self._serves, event.frame
        if not serves and len(frame) < RECORD_COPY_BYTES_MAX:
            frame = bytes(frame)  # a view would keep a whole receive slab, and is not counted
        try:
            decoded = connection.protocol.receive(frame)
        except ProtocolError as error:
            probe("malformed-request")
            self.meter.charge(NO_API, len(frame) // _MALFORMED_ITEM_BYTES)
            self.answers.hang_up(connection, str(error))
            return
        self.meter.charge(decoded.api_key, decoded.items)
        request = self._admit(connection, event, decoded)
        self.ledger.received(connection.id, request.weight, pinned=request.pinned_bytes)
        if not decoded.served:
            self._refuse_version(request)
            return
        self.requests_by_api[decoded.api_key] += 1
        if serves or decoded.api_key == _API_VERSIONS:
            self._work(request)
            return
        probe("request-held-until-opened")
        self._held[request] = None
        request.on_close(partial(self._let_go, request))

    @property
    def _serves(self) -> bool:
        """Whether requests are worked as they come; none overtakes one that was held."""
        return self.serving and not self._held

    def serve(self) -> None:
        """Work requests from now on."""
        if not self.serving:
            self.serving = True
            self.turn.soon(self._work_held)

    def _work_held(self) -> None:
        """Work some of the held requests in each turn.

        Peers wait for the turn to end, and answers leave between turns.
        """
        for request in tuple(islice(self._held, _HELD_PER_TURN)):
            if self.meter.left <= 0:
                break
            self._let_go(request)
            if not request.dead:
                self.meter.charge(request.api_key, _items_of(request))
                self._work(request)
        if self._held and self.serving:
            probe("held-requests-worked-in-turns")
            self.turn.at(self.turn.now, self._work_held)

    def _let_go(self, request: KafkaRequest) -> None:
        self._held.pop(request, None)

    def _work(self, request: KafkaRequest) -> None:
        judged_before = TALLY.items
        try:
            self.handle(request)
        except RaftlogError as error:
            probe("handler-refused-request")
            self.answers.hang_up(request.connection, str(error))
        if TALLY.items != judged_before:
            # The handler met a compressed field of many blocks, or decompressed one to judge it.
            self.meter.charge(NO_API, TALLY.items - judged_before)

    def _admit(self, connection: Connection, event: Request, decoded: Decoded) -> KafkaRequest:
        """The request object, counted as waiting until its answer."""
        size = len(event.frame)
        pins = decoded.api_key == _PRODUCE and size >= RECORD_COPY_BYTES_MAX
        request = KafkaRequest(
            connection,
            event.request_no,
            decoded.api_key,
            decoded.api_version,
            decoded.correlation_id,
            decoded.client_id,
            decoded.body,
            size,
            self.answers,
            self.turn.now,
            size + decoded.items * REQUEST_ITEM_BYTES + (0 if self._serves else _HELD_WEIGHT),
            size if pins else 0,
        )
        assert event.request_no not in connection.waiting, (connection.id, event.request_no)
        connection.waiting[event.request_no] = request
        return request

    def _refuse_version(self, request: KafkaRequest) -> None:
        """Refuse a version outside our range: UNSUPPORTED_VERSION in that version's own shape."""
        probe("unsupported-version")
        body = error_body(request.body, ErrorCode.UNSUPPORTED_VERSION)
        if body is None:
            self.answers.hang_up(
                request.connection, f"API {request.api_key} has no place for an error"
            )
            return
        request.answer(body)


def _items_of(held: KafkaRequest) -> int:
    """The items that a held request has named, estimated from its weight."""
    return (held.weight - held.frame_bytes - _HELD_WEIGHT) // REQUEST_ITEM_BYTES
