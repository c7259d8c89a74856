"""The protocol state of one connection, for either end. After a protocol error it stays ERROR.

`ServerConnection` decodes requests in order and knows whether the client has authenticated.
`ClientConnection` negotiates versions (KIP-35, KIP-511), numbers requests, and matches answers,
which Kafka gives in the order of the requests.
"""

from collections import deque
from enum import Enum, unique
from typing import Any, Final, NamedTuple, final

import attrs

from raftlog.base.errors import LocalMisuse, ProtocolError, RemoteError
from raftlog.base.limits import CLIENT_REQUESTS_IN_FLIGHT_MAX
from raftlog.kafka.codec import (
    DecodedRequest,
    Message,
    decode_request,
    decode_response,
    encode_request,
)
from raftlog.kafka.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from raftlog.kafka.repeats import ProduceRepeats
from raftlog.kafka.shape import Buffer, Part
from raftlog.kafka.tables import message_table
from raftlog.kafka.versions import ApiKey, api_name

UNSUPPORTED_VERSION: Final = 35
CORRELATION_ID_MAX: Final = 2**31 - 1
BEFORE_AUTHENTICATION: Final = frozenset(
    {int(ApiKey.API_VERSIONS), int(ApiKey.SASL_HANDSHAKE), int(ApiKey.SASL_AUTHENTICATE)}
)
LABEL_CHARACTERS_MAX: Final = 64


@final
@unique
class State(Enum):
    """The life of a connection, as the protocol sees it."""

    UNAUTHENTICATED = "unauthenticated"
    OPEN = "open"
    ERROR = "error"


@final
@attrs.define(eq=False, kw_only=True)
class ServerConnection:
    """The broker's end."""

    state: State = State.OPEN
    """It starts as UNAUTHENTICATED on a listener with SASL; ERROR is final."""
    client_software: str = ""
    """Name and version as ApiVersions v3+ told them: a label, never trusted."""
    trailing_bytes: int = 0
    """The number of bytes behind bodies, which are ignored as in Kafka; for a metric."""
    repeats: ProduceRepeats = attrs.field(factory=ProduceRepeats, init=False)
    """Recognises repeated produce requests; used only while the state is OPEN."""

    def receive(self, frame: Buffer) -> DecodedRequest:
        """Decode one frame; ProtocolError means that the connection must close."""
        if self.state is State.OPEN:
            repeated = self.repeats.read(frame)
            if repeated is not None:
                return repeated
        if self.state is State.ERROR:
            raise LocalMisuse("this connection has failed", do="close it")
        try:
            request = decode_request(frame)
            if self.state is State.UNAUTHENTICATED and request.api_key not in BEFORE_AUTHENTICATION:
                raise ProtocolError(f"{api_name(request.api_key)} before authentication")
        except ProtocolError:
            self.state = State.ERROR
            raise
        self.trailing_bytes += request.trailing
        if type(request.body) is ApiVersionsRequest:
            software = f"{request.body.client_software_name} {request.body.client_software_version}"
            self.client_software = software.strip()[:LABEL_CHARACTERS_MAX]
        else:
            self.repeats.learn(frame, request)
        return request

    def authenticated(self) -> None:
        """Take note that the client has proved its identity."""
        if self.state is not State.UNAUTHENTICATED:
            raise LocalMisuse("authentication at the wrong moment", on=self.state.value)
        self.state = State.OPEN


@final
class NumberedRequest(NamedTuple):
    """A numbered request, ready to go."""

    correlation_id: int
    parts: list[Part]


@final
class Answer(NamedTuple):
    """A decoded response and the request that it belongs to."""

    correlation_id: int
    api_key: int
    api_version: int
    body: Any


@final
@attrs.define(eq=False, kw_only=True)
class ClientConnection:
    """The client's end: `hello`, then `send` and `receive`."""

    client_id: str
    software_name: str = "raftlog"
    software_version: str = "0"
    failed: bool = False
    agreed: dict[int, int] = attrs.field(factory=dict)
    """API key -> highest version that both ends speak; empty until the answer to `hello`."""
    _next: int = 0
    _waiting: deque[tuple[int, int, int]] = attrs.field(factory=deque)
    """(correlation id, API key, version) of requests without an answer, in order."""

    def hello(self) -> NumberedRequest:
        """The ApiVersions request that opens the conversation."""
        version = _own_range(ApiKey.API_VERSIONS)[1]
        body = ApiVersionsRequest(self.software_name, self.software_version)
        return self.send(ApiKey.API_VERSIONS, body, version=version)

    def version_of(self, api_key: int) -> int:
        """The agreed version; RemoteError when the two ends have none in common."""
        if api_key not in self.agreed:
            raise RemoteError(f"the broker does not serve {api_name(api_key)} as we know it")
        return self.agreed[api_key]

    def send(self, api_key: int, body: Message, *, version: int | None = None) -> NumberedRequest:
        """Number and encode a request in the agreed version, or in the one given.

        A Produce with acks=0 has no answer: say so with `forget`.
        """
        if self.failed:
            raise LocalMisuse("this connection has failed", do="open a new one")
        if len(self._waiting) >= CLIENT_REQUESTS_IN_FLIGHT_MAX:
            raise LocalMisuse(f"{len(self._waiting)} requests without an answer")
        chosen = self.version_of(api_key) if version is None else version
        correlation = self._next
        parts = encode_request(api_key, chosen, correlation, self.client_id, body)
        self._next = 0 if correlation == CORRELATION_ID_MAX else correlation + 1
        self._waiting.append((correlation, int(api_key), chosen))
        return NumberedRequest(correlation, parts)

    def forget(self, correlation_id: int) -> None:
        """Take note that the request just sent will have no answer (acks=0)."""
        assert self._waiting[-1][0] == correlation_id, (self._waiting[-1], correlation_id)
        self._waiting.pop()

    def in_flight(self) -> int:
        """The number of requests without an answer."""
        return len(self._waiting)

    def receive(self, frame: Buffer) -> Answer:
        """Decode the next answer; ProtocolError means that the connection must close."""
        if self.failed:
            raise LocalMisuse("this connection has failed", do="open a new one")
        try:
            answer = self._match(frame)
        except ProtocolError:
            self.failed = True
            raise
        if type(answer.body) is ApiVersionsResponse:
            self._agree(answer.body)
        return answer

    def _match(self, frame: Buffer) -> Answer:
        if not self._waiting:
            raise ProtocolError("an answer to no request")
        expected, api_key, version = self._waiting.popleft()
        response = decode_response(api_key, version, frame)
        if response.correlation_id != expected:
            raise ProtocolError(f"answer {response.correlation_id} where {expected} was due")
        return Answer(expected, api_key, version, response.body)

    def _agree(self, offered: ApiVersionsResponse) -> None:
        """Take the highest common version of each API; an error answer still carries the list."""
        self.agreed.clear()
        for api in offered.api_keys:
            if message_table(api.api_key, "request") is None:
                continue
            low, high = _own_range(api.api_key)
            best = min(high, api.max_version)
            if best >= max(low, api.min_version):
                self.agreed[api.api_key] = best


def _own_range(api_key: int) -> tuple[int, int]:
    """The versions that our tables know."""
    table = message_table(api_key, "request")
    assert table is not None, api_key
    return table[3]
