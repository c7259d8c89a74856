"""Client connections: frames in, requests dispatched, connections that end.

A request whose body parses is always answered, with an error body if need be; bytes that do not
parse end the connection (KAFKA.md 3.1). What a client sent never raises here: a typed error that
escapes from a handler ends the connection, anything else is a bug and ends the process.
"""

from collections.abc import Callable, Sequence
from typing import final

import attrs

from raftlog.base.errors import ProtocolError, RaftlogError
from raftlog.base.ids import ConnectionId
from raftlog.base.probes import probe
from raftlog.broker.context import Context
from raftlog.broker.events import ConnectionClosed, ConnectionOpened, Drained, Event, Request
from raftlog.broker.requests import Connection, KafkaRequest
from raftlog.kafka.codec import Request as Decoded
from raftlog.kafka.connection import ServerConnection
from raftlog.kafka.error_bodies import error_body
from raftlog.kafka.error_codes import ErrorCode

Handler = Callable[[Context, KafkaRequest], None]
RunTaker = Callable[[Context, Connection, Sequence[Event], int], int]


@final
@attrs.define(eq=False)
class Clients:
    """All connections of a broker. `handler_of` gives the handler of an API that is served;
    `take_run` takes requests of a producer's stream together, and says how many it took."""

    context: Context
    handler_of: Callable[[int], Handler]
    take_run: RunTaker
    connections: dict[ConnectionId, Connection] = attrs.Factory(dict)

    def opened(self, event: ConnectionOpened) -> None:
        """A client is there."""
        assert event.connection not in self.connections, event.connection
        self.connections[event.connection] = Connection(
            event.connection, event.listener, event.principal, event.address, ServerConnection()
        )
        self.context.ledger.opened(event.connection)
        self.context.count("connections_opened")

    def closed(self, event: ConnectionClosed) -> None:
        """The client is gone, whoever ended it."""
        self.connections.pop(event.connection).end()
        self.context.ledger.closed(event.connection)

    def drained(self, event: Drained) -> None:
        """Answer bytes have left."""
        self.context.ledger.drained(event.connection, event.byte_count)

    def give_up(self, connection: ConnectionId) -> None:
        """It takes no answers, and what it does not take fills the memory of the process."""
        why = "it has not read its answers for long, and the broker holds too many"
        self.context.hang_up(self.connections[connection], why)

    def requests(self, events: Sequence[Event], first: int) -> int:
        """The request that is the `first` of these events, and those behind it that are taken
        together with it; how many events that were."""
        event = events[first]
        assert type(event) is Request, event
        follows = events[first + 1] if first + 1 < len(events) else None
        if type(follows) is Request and follows.connection == event.connection:
            connection = self.connections.get(event.connection)
            if connection is not None and connection.streams:
                taken = self.take_run(self.context, connection, events, first)
                if taken:
                    return taken
        self.request(event)
        return 1

    def request(self, event: Request) -> None:
        """One whole frame."""
        connection = self.connections.get(event.connection)
        if connection is None or connection.closed:
            return
        try:
            decoded = connection.protocol.receive(event.frame)
        except ProtocolError as error:
            probe("malformed-request")
            self.context.hang_up(connection, str(error))
            return
        self.context.ledger.received(connection.id, len(event.frame), items=decoded.items)
        request = self._admit(connection, event, decoded)
        if not decoded.served:
            self._refuse_version(request)
            return
        self.context.requests[decoded.api_key] += 1
        try:
            self.handler_of(decoded.api_key)(self.context, request)
        except RaftlogError as error:
            probe("handler-refused-request")
            self.context.hang_up(connection, str(error))

    def _admit(self, connection: Connection, event: Request, decoded: Decoded) -> KafkaRequest:
        """The request object, counted as waiting until its answer."""
        request = KafkaRequest(
            connection,
            event.request_no,
            decoded.api_key,
            decoded.api_version,
            decoded.correlation_id,
            decoded.client_id,
            decoded.body,
            len(event.frame),
            self.context,
            decoded.items,
        )
        assert event.request_no not in connection.waiting, (connection.id, event.request_no)
        connection.waiting[event.request_no] = request
        return request

    def _refuse_version(self, request: KafkaRequest) -> None:
        """A version outside our range: error 35 in that version's own shape."""
        probe("unsupported-version")
        body = error_body(request.body, ErrorCode.UNSUPPORTED_VERSION)
        if body is None:
            self.context.hang_up(
                request.connection, f"API {request.api_key} has no place for an error"
            )
            return
        request.answer(body)
