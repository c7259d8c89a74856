"""Reads and writes request and response headers, by version.

Request v1 has key i16, version i16, correlation id i32, and the client id. The client id is a
nullable string with a 16-bit length, also in v2, which adds a tag section. v2 is used if and only
if the message version is flexible.

Response v0 has the correlation id. v1 adds a tag section, if and only if the message version is
flexible. ApiVersions is an exception and never has it. A client must be able to read that answer
before it knows the versions that the broker speaks (KIP-511). One byte too many there made a client
allocate 34 GB.
"""

import struct
from struct import Struct
from typing import Final, NamedTuple, final

from raftlog.base.errors import LocalMisuse, ProtocolError
from raftlog.kafka.shape import Buffer
from raftlog.kafka.wire import bad_length, skip_tags

API_VERSIONS: Final = 18
EMPTY_TAGS: Final = b"\x00"

_FIXED: Final = Struct(">hhi")
_CLIENT_ID: Final = Struct(">h")
_REQUEST: Final = Struct(">ihhih")
_RESPONSE: Final = Struct(">ii")
_CORRELATION: Final = Struct(">i")


@final
class RequestHeader(NamedTuple):
    """The fields with which every request begins."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None = None


def read_fixed(frame: Buffer) -> tuple[int, int, int]:
    """Key, version and correlation id: the first 8 bytes, all that an unknown version shows."""
    if len(frame) < _FIXED.size:
        raise ProtocolError(f"a request of {len(frame)} bytes", do="at least 8 are needed")
    key, version, correlation = _FIXED.unpack_from(frame)
    return key, version, correlation


def read_client_id(frame: Buffer, flexible: bool, budget: int) -> tuple[str | None, int, int]:
    """The rest of the request header: client id, position of the body, and the budget left.

    The header's tagged fields count against the budget.

    Raises ProtocolError, or struct.error and IndexError when the frame ends inside the header.
    """
    pos = _FIXED.size
    (size,) = _CLIENT_ID.unpack_from(frame, pos)
    pos += 2
    end = len(frame)
    client_id = None
    if size != -1:
        if not 0 <= size <= end - pos:
            bad_length("client_id", size, end - pos)
        client_id = str(frame[pos : pos + size], "utf-8")
        pos += size
    if flexible:
        first = frame[pos]
        pos += 1
        if first:
            pos, budget = skip_tags(frame, pos, end, first, budget)
    return client_id, pos, budget


def request_head(header: RequestHeader, flexible: bool, body_bytes: int) -> bytes:
    """The frame's length and the request header; LocalMisuse when a value does not fit."""
    client_id = None if header.client_id is None else header.client_id.encode()
    tail = (client_id or b"") + (EMPTY_TAGS if flexible else b"")
    length = -1 if client_id is None else len(client_id)
    frame_bytes = _REQUEST.size - 4 + len(tail) + body_bytes
    try:
        return _REQUEST.pack(frame_bytes, *header[:3], length) + tail
    except struct.error as error:
        raise LocalMisuse(f"the request header does not fit: {error}") from error


def response_has_tags(api_key: int, flexible: bool) -> bool:
    """Whether the response header ends with a tag section."""
    return flexible and api_key != API_VERSIONS


def response_head(correlation_id: int, has_tags: bool, body_bytes: int) -> bytes:
    """The frame's length and the response header."""
    if has_tags:
        return _RESPONSE.pack(body_bytes + 5, correlation_id) + EMPTY_TAGS
    return _RESPONSE.pack(body_bytes + 4, correlation_id)


def read_response_head(frame: Buffer, has_tags: bool, budget: int) -> tuple[int, int, int]:
    """Correlation id, the position of the body and the budget; errors as in `read_client_id`."""
    (correlation_id,) = _CORRELATION.unpack_from(frame)
    pos = _CORRELATION.size
    if has_tags:
        first = frame[pos]
        pos += 1
        if first:
            pos, budget = skip_tags(frame, pos, len(frame), first, budget)
    return correlation_id, pos, budget
