"""Frames to messages and back, for both roles. Nothing but ProtocolError leaves a decoder.

A *frame* is what lies behind the 4-byte length (see `frames`). Decoders give NamedTuples from
`raftlog.kafka.messages`; `bytes` and `records` fields are memoryviews into the frame. Encoders give
a list of parts to send in order, the 4-byte length included: small pieces are joined, records over
1 KiB and slices of files stay as they were handed in.

Bounds: every length is checked against what is left before anything is made of it, a frame has at
most FRAME_ITEMS_MAX array elements in all. Bytes behind the body are ignored, as Kafka does, and
counted in `trailing`.
"""

import struct
from typing import Any, Final, NamedTuple, TypeAlias, final

from raftlog.base.errors import LocalMisuse, ProtocolError
from raftlog.base.limits import FRAME_ITEMS_MAX
from raftlog.kafka.compile import (
    Decoder,
    Encoder,
    class_finder,
    compile_decoder,
    compile_encoder,
)
from raftlog.kafka.headers import (
    API_VERSIONS,
    RequestHeader,
    peek,
    read_client_id,
    read_response_head,
    request_head,
    response_has_tags,
    response_head,
)
from raftlog.kafka.messages.api_versions import ApiVersionsRequest
from raftlog.kafka.shape import Buffer, MessageTable, Part, holds
from raftlog.kafka.source import has_views
from raftlog.kafka.tables import message_table
from raftlog.kafka.versions import is_served

Message: TypeAlias = tuple[Any, ...]
"""Any of the generated classes: they are all NamedTuples."""


@final
class Request(NamedTuple):
    """A decoded request. `served` is False when it must be answered with error 35."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body: Any
    served: bool
    trailing: int


@final
class Response(NamedTuple):
    """A decoded response."""

    correlation_id: int
    body: Any
    trailing: int


@final
class _Reading(NamedTuple):
    label: str
    decode: Decoder
    flexible: bool
    views: bool
    served: bool


@final
class _Writing(NamedTuple):
    label: str
    encode: Encoder
    flexible: bool
    message: type


_readers: Final[dict[tuple[int, int, str], _Reading | None]] = {}
_writers: Final[dict[tuple[int, int, str], _Writing]] = {}


# --- the server's side ----------------------------------------------------------------------------


def decode_request(frame: Buffer) -> Request:
    """One whole request frame.

    Raises ProtocolError when the bytes do not parse or no schema exists: the connection must close.
    An ApiVersions request of a version that we do not know is read up to its first 8 bytes and has
    `served` False; `encode_response` answers it in version 0 (KIP-511).
    """
    key, version, correlation, _ = peek(frame)
    reading = _reading(key, version, "request")
    if reading is None:
        if key == API_VERSIONS:
            return Request(key, version, correlation, None, ApiVersionsRequest(), False, 0)
        raise ProtocolError(f"no schema for API {key} version {version}", do="close")
    label, decode, flexible, views, served = reading
    data = _as_data(frame, views)
    try:
        client_id, pos = read_client_id(data, flexible)
        body, pos = decode(data, pos, FRAME_ITEMS_MAX)
    except (struct.error, IndexError) as error:
        raise ProtocolError("the frame ends inside the message", on=label) from error
    except UnicodeDecodeError as error:
        raise ProtocolError("a string is not UTF-8", on=label) from error
    except ProtocolError as error:
        raise ProtocolError(error.what, on=label) from None
    return Request(key, version, correlation, client_id, body, served, len(data) - pos)


def encode_response(
    api_key: int, api_version: int, correlation_id: int, body: Message
) -> list[Part]:
    """The parts of a response frame, its 4-byte length first.

    Raises LocalMisuse when the body does not fit the schema; nothing was sent then.
    """
    if api_key == API_VERSIONS and _table(api_key, "response", api_version) is None:
        api_version = 0
    writing = _writing(api_key, api_version, "response")
    parts, large = _body_parts(writing, body)
    size = sum(map(len, parts))
    has_tags = response_has_tags(api_key, writing.flexible)
    return _joined(response_head(correlation_id, has_tags, size), parts, large)


# --- the client's side ----------------------------------------------------------------------------


def encode_request(
    api_key: int, api_version: int, correlation_id: int, client_id: str | None, body: Message
) -> list[Part]:
    """The parts of a request frame; length and errors as in `encode_response`."""
    writing = _writing(api_key, api_version, "request")
    parts, large = _body_parts(writing, body)
    header = RequestHeader(api_key, api_version, correlation_id, client_id)
    head = request_head(header, writing.flexible, sum(map(len, parts)))
    return _joined(head, parts, large)


def decode_response(api_key: int, api_version: int, frame: Buffer) -> Response:
    """One whole response frame to a request of this API and version.

    An ApiVersions answer with error 35 comes in version 0, whatever was asked (KIP-511).
    """
    if api_key == API_VERSIONS and bytes(frame[4:6]) == b"\x00\x23":
        api_version = 0
    reading = _reading(api_key, api_version, "response")
    if reading is None:
        raise LocalMisuse(f"no schema for API {api_key} version {api_version}")
    label, decode, flexible, views, _ = reading
    data = _as_data(frame, views)
    try:
        correlation, pos = read_response_head(data, response_has_tags(api_key, flexible))
        body, pos = decode(data, pos, FRAME_ITEMS_MAX)
    except (struct.error, IndexError) as error:
        raise ProtocolError("the frame ends inside the message", on=label) from error
    except UnicodeDecodeError as error:
        raise ProtocolError("a string is not UTF-8", on=label) from error
    except ProtocolError as error:
        raise ProtocolError(error.what, on=label) from None
    return Response(correlation, body, len(data) - pos)


# --- shared ---------------------------------------------------------------------------------------


def _as_data(frame: Buffer, views: bool) -> bytes | memoryview:
    """A view where fields are handed out as views, else bytes, which are quicker to read."""
    if views:
        return frame if type(frame) is memoryview else memoryview(frame)
    return frame if type(frame) is bytes else bytes(frame)


def _reading(api_key: int, version: int, kind: str) -> _Reading | None:
    found = _readers.get((api_key, version, kind))
    if found is not None:
        return found
    table = _table(api_key, kind, version)
    if table is None:
        return None
    reading = _readers[api_key, version, kind] = _Reading(
        label=f"{table[1]} v{version}",
        decode=compile_decoder(table, version),
        flexible=holds(table[4], version),
        views=has_views(table[5], version),
        served=is_served(api_key, version),
    )
    return reading


def _writing(api_key: int, version: int, kind: str) -> _Writing:
    found = _writers.get((api_key, version, kind))
    if found is not None:
        return found
    table = _table(api_key, kind, version)
    if table is None:
        raise LocalMisuse(f"no schema for the {kind} of API {api_key} version {version}")
    writing = _writers[api_key, version, kind] = _Writing(
        label=f"{table[1]} v{version}",
        encode=compile_encoder(table, version),
        flexible=holds(table[4], version),
        message=class_finder(table)(table[1]),
    )
    return writing


def _table(api_key: int, kind: str, version: int) -> MessageTable | None:
    table = message_table(api_key, kind)
    return table if table is not None and holds(table[3], version) else None


def _body_parts(writing: _Writing, body: Message) -> tuple[list[Any], list[int]]:
    """The pieces of a body behind an empty place for the head, and which of them are large."""
    if type(body) is not writing.message:
        raise LocalMisuse(f"a {type(body).__name__} is not a {writing.label}")
    parts: list[Any] = [b""]
    large: list[int] = []
    try:
        writing.encode(body, parts, large)
    except (struct.error, TypeError, ValueError, AttributeError) as error:
        raise LocalMisuse(f"the body does not fit: {error}", on=writing.label) from error
    return parts, large


def _joined(head: bytes, parts: list[Any], large: list[int]) -> list[Part]:
    """Put the head in its place; join every run of small parts."""
    parts[0] = head
    if not large:
        return [b"".join(parts)]
    out: list[Part] = []
    start = 0
    for index in large:
        if index > start:
            out.append(b"".join(parts[start:index]))
        out.append(parts[index])
        start = index + 1
    if start < len(parts):
        out.append(b"".join(parts[start:]))
    return out
