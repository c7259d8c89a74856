"""Frames to messages and back, for both roles. Nothing but ProtocolError leaves a decoder.

A *frame* is everything behind the 4-byte length (see `frames`). Decoders give NamedTuples from
`raftlog.kafka.messages`; `bytes` and `records` fields are memoryviews into the frame. Encoders give
a list of parts to send in order, the 4-byte length included. Small pieces are joined; records over
1 KiB and slices of files stay as they were handed in.

Bounds: every length is checked against the bytes that are left before it is used. A request has at
most FRAME_ITEMS_MAX array elements and tagged fields in all, a response RESPONSE_ITEMS_MAX. Bytes
behind the body are ignored, as in Kafka, and counted in `trailing`.
"""

import struct
from typing import Any, Final, NamedTuple, TypeAlias, final

from raftlog.base.errors import LocalMisuse, ProtocolError
from raftlog.base.limits import FRAME_ITEMS_MAX, RESPONSE_ITEMS_MAX
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
    read_client_id,
    read_fixed,
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
"""Any of the generated classes, which are all NamedTuples."""


@final
class DecodedRequest(NamedTuple):
    """A decoded request.

    `served` is False when it must be answered UNSUPPORTED_VERSION. `items` is the number of
    elements of its arrays and of its tagged fields.
    """

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body: Any
    served: bool
    trailing: int
    items: int = 0


@final
class Response(NamedTuple):
    """A decoded response."""

    correlation_id: int
    body: Any
    trailing: int


@final
class _Reading(NamedTuple):
    """The way to read one message version. `tags`: the header ends with a tag section."""

    label: str
    decode: Decoder
    tags: bool
    views: bool
    served: bool


@final
class _Writing(NamedTuple):
    """The way to write one message version."""

    label: str
    encode: Encoder
    tags: bool
    message: type


_request_readings: Final[dict[tuple[int, int], _Reading]] = {}
_response_readings: Final[dict[tuple[int, int], _Reading]] = {}
_request_writings: Final[dict[tuple[int, int], _Writing]] = {}
_response_writings: Final[dict[tuple[int, int], _Writing]] = {}
_CORRELATION: Final = struct.Struct(">i")
_new: Final = tuple.__new__
"""Makes a NamedTuple at a third of the cost of calling its class."""


# --- the server's side ----------------------------------------------------------------------------


def decode_request(frame: Buffer) -> DecodedRequest:
    """Decode one whole request frame.

    Raises ProtocolError when the bytes do not parse or no schema exists: the connection must close.
    An ApiVersions request of a version that we do not know is read up to its first 8 bytes and has
    `served` False; `encode_response` answers it in version 0 (KIP-511).
    """
    key, version, correlation = read_fixed(frame)
    reading = _request_readings.get((key, version)) or _load_reading(key, version, "request")
    if reading is None:
        if key == API_VERSIONS:
            return DecodedRequest(key, version, correlation, None, ApiVersionsRequest(), False, 0)
        raise ProtocolError(f"no schema for API {key} version {version}", do="close")
    label, decode, tags, views, served = reading
    data = as_data(frame, views)
    try:
        client_id, pos, left = read_client_id(data, tags, FRAME_ITEMS_MAX)
        body, pos, left = decode(data, pos, left)
    except (struct.error, IndexError) as error:
        raise ProtocolError("the frame ends inside the message", on=label) from error
    except UnicodeDecodeError as error:
        raise ProtocolError("a string is not UTF-8", on=label) from error
    except ProtocolError as error:
        raise ProtocolError(error.what, on=label) from None
    trailing, items = len(data) - pos, FRAME_ITEMS_MAX - left
    return _new(
        DecodedRequest, (key, version, correlation, client_id, body, served, trailing, items)
    )


def encode_response(
    api_key: int, api_version: int, correlation_id: int, body: Message
) -> list[Part]:
    """Encode a response; returns the parts of its frame, the 4-byte length first.

    Raises LocalMisuse when the body does not fit the schema; nothing was sent then.
    """
    if api_key == API_VERSIONS and _table(api_key, "response", api_version) is None:
        api_version = 0
    writing = _response_writings.get((api_key, api_version))
    if writing is None:
        writing = _load_writing(api_key, api_version, "response")
    parts, large = _body_parts(writing, body)
    parts[0] = response_head(correlation_id, writing[2], sum(map(len, parts)))
    return _joined(parts, large)


@final
class EncodedAnswer(NamedTuple):
    """A response frame without its correlation id, for all clients that ask the same."""

    length: bytes
    rest: bytes

    def parts(self, correlation_id: int) -> list[Part]:
        """The frame, with this correlation id."""
        return [self.length + _CORRELATION.pack(correlation_id), self.rest]


def encode_answer(api_key: int, api_version: int, body: Message) -> EncodedAnswer:
    """Encode a response without records, to be sent more than once; errors as `encode_response`."""
    (frame,) = encode_response(api_key, api_version, 0, body)
    assert isinstance(frame, bytes), type(frame)
    return EncodedAnswer(frame[:4], frame[8:])


# --- the client's side ----------------------------------------------------------------------------


def encode_request(
    api_key: int, api_version: int, correlation_id: int, client_id: str | None, body: Message
) -> list[Part]:
    """Encode a request; returns parts and raises errors like `encode_response`."""
    writing = _request_writings.get((api_key, api_version))
    if writing is None:
        writing = _load_writing(api_key, api_version, "request")
    parts, large = _body_parts(writing, body)
    header = RequestHeader(api_key, api_version, correlation_id, client_id)
    parts[0] = request_head(header, writing[2], sum(map(len, parts)))
    return _joined(parts, large)


def decode_response(api_key: int, api_version: int, frame: Buffer) -> Response:
    """Decode one whole response frame to a request of this API and version.

    An ApiVersions answer with UNSUPPORTED_VERSION comes in version 0, whatever was asked (KIP-511).
    """
    if api_key == API_VERSIONS and bytes(frame[4:6]) == b"\x00\x23":
        api_version = 0
    reading = _response_readings.get((api_key, api_version))
    reading = reading or _load_reading(api_key, api_version, "response")
    if reading is None:
        raise LocalMisuse(f"no schema for API {api_key} version {api_version}")
    label, decode, tags, views, _ = reading
    data = as_data(frame, views)
    try:
        correlation, pos, left = read_response_head(data, tags, RESPONSE_ITEMS_MAX)
        body, pos, _ = decode(data, pos, left)
    except (struct.error, IndexError) as error:
        raise ProtocolError("the frame ends inside the message", on=label) from error
    except UnicodeDecodeError as error:
        raise ProtocolError("a string is not UTF-8", on=label) from error
    except ProtocolError as error:
        raise ProtocolError(error.what, on=label) from None
    return Response(correlation, body, len(data) - pos)


# --- shared ---------------------------------------------------------------------------------------


def as_data(frame: Buffer, views: bool) -> bytes | memoryview:
    """The frame as a view where fields are handed out as views, else as bytes, read faster."""
    if views:
        return frame if type(frame) is memoryview else memoryview(frame)
    return frame if type(frame) is bytes else bytes(frame)


def _load_reading(api_key: int, version: int, kind: str) -> _Reading | None:
    """Compile a decoder on its first use; None when there is no schema."""
    table = _table(api_key, kind, version)
    if table is None:
        return None
    flexible = holds(table[4], version)
    known = _request_readings if kind == "request" else _response_readings
    known[api_key, version] = reading = _Reading(
        label=f"{table[1]} v{version}",
        decode=compile_decoder(table, version),
        tags=flexible if kind == "request" else response_has_tags(api_key, flexible),
        views=has_views(table[5], version),
        served=is_served(api_key, version),
    )
    return reading


def _load_writing(api_key: int, version: int, kind: str) -> _Writing:
    """Compile an encoder on its first use."""
    table = _table(api_key, kind, version)
    if table is None:
        raise LocalMisuse(f"no schema for the {kind} of API {api_key} version {version}")
    flexible = holds(table[4], version)
    known = _request_writings if kind == "request" else _response_writings
    known[api_key, version] = writing = _Writing(
        label=f"{table[1]} v{version}",
        encode=compile_encoder(table, version),
        tags=flexible if kind == "request" else response_has_tags(api_key, flexible),
        message=class_finder(table)(table[1]),
    )
    return writing


def _table(api_key: int, kind: str, version: int) -> MessageTable | None:
    table = message_table(api_key, kind)
    return table if table is not None and holds(table[3], version) else None


def _body_parts(writing: _Writing, body: Message) -> tuple[list[Any], list[int]]:
    """The pieces of a body behind an empty place for the head, and which of them are large."""
    label, encode, _, message = writing
    if type(body) is not message:
        raise LocalMisuse(f"a {type(body).__name__} is not a {label}")
    parts: list[Any] = [b""]
    large: list[int] = []
    try:
        encode(body, parts, large)
    except (struct.error, TypeError, ValueError, AttributeError) as error:
        raise LocalMisuse(f"the body does not fit: {error}", on=label) from error
    return parts, large


def _joined(parts: list[Any], large: list[int]) -> list[Part]:
    """Join every run of small parts; the large ones stay as they are."""
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
