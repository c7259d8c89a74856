"""The small functions that generated codecs call: varints, tag sections, and the errors.

Generated text keeps the common case inline (a one-byte varint, a short array) and comes here for
the rest. A varint is at most 5 bytes and below 2**32; a string at most 32,767 bytes, as in Kafka.
"""

from collections.abc import Sequence
from struct import Struct, pack, unpack_from
from typing import Any, Final, NoReturn

from raftlog.base.errors import LocalMisuse, ProtocolError
from raftlog.kafka.shape import Buffer, Records

STRING_BYTES_MAX: Final = 32767
"""The most bytes of a string, as in Kafka; the classic form has 16 bits for the length."""
VARINT_BYTES_MAX: Final = 5
UINT32_MAX: Final = 2**32 - 1
JOIN_BYTES_MAX: Final = 1024
"""The most bytes of a part that is joined with its neighbours; larger ones are sent as they are."""

JOINABLE: Final = frozenset({bytes, bytearray, memoryview})
"""The types that `bytes.join` takes; anything else (a slice of a file) stays on its own."""

SHORT_ARRAY: Final = 16
"""The length below which an array of numbers uses a precompiled Struct."""
UVARINT_1: Final = tuple(bytes([value]) for value in range(128))

# --- errors, called by generated text -------------------------------------------------------------


def bad_length(name: str, length: int, left: int) -> NoReturn:
    """Refuse a length that is negative or leads past the end of the frame."""
    if length == -1:
        raise ProtocolError(f"{name} is null where null is not allowed")
    raise ProtocolError(f"{name} claims {length} bytes, {left} are left")


def bad_count(name: str, count: int, left: int) -> NoReturn:
    """Refuse an array that cannot fit into the rest of the frame."""
    if count == -1:
        raise ProtocolError(f"{name} is null where null is not allowed")
    raise ProtocolError(f"{name} claims {count} elements, {left} bytes are left")


def over_budget(name: str, count: int, budget: int) -> NoReturn:
    """Refuse more elements and tagged fields than one frame may have."""
    raise ProtocolError(f"{name} has {count} elements, {budget} more are allowed in this frame")


def bad_bool(name: str, value: int) -> NoReturn:
    """Refuse a bool that is neither 0 nor 1."""
    raise ProtocolError(f"{name} is a bool of value {value}")


def bad_marker(name: str, value: int) -> NoReturn:
    """Refuse a nullable struct that begins neither with -1 (null) nor with 1."""
    raise ProtocolError(f"{name} has null marker {value}")


def bad_tag(name: str, read: int, end: int) -> NoReturn:
    """Refuse a tagged field whose decoder did not stop at the end of its section."""
    raise ProtocolError(f"tagged field {name} ends at {read}, its section at {end}")


def bad_id(name: str, value: object) -> NoReturn:
    """Refuse a uuid that is not 16 bytes; that is our caller's fault."""
    raise LocalMisuse(f"{name} must be 16 bytes", on=repr(value))


# --- varints --------------------------------------------------------------------------------------


def uvarint(data: Buffer, pos: int) -> tuple[int, int]:
    """Read the varint at `pos`; returns it with the position after it.

    Raises ProtocolError when it is longer than 5 bytes or above 2**32 - 1; IndexError when the
    frame ends inside it (the codec's entry turns that into ProtocolError).
    """
    byte = data[pos]
    return (byte, pos + 1) if byte < 128 else more_uvarint(data, pos + 1, byte)


def more_uvarint(data: Buffer, pos: int, first: int) -> tuple[int, int]:
    """Read the rest of a varint whose first byte, above 127, was read already."""
    value = first & 127
    for shift in range(7, 7 * VARINT_BYTES_MAX, 7):
        byte = data[pos]
        pos += 1
        value |= (byte & 127) << shift
        if byte < 128:
            if value > UINT32_MAX:
                raise ProtocolError(f"varint {value} is above {UINT32_MAX}")
            return value, pos
    raise ProtocolError(f"varint of more than {VARINT_BYTES_MAX} bytes")


def encode_uvarint(value: int) -> bytes:
    """The varint of a value in 0 to 2**32 - 1."""
    if value < 128:
        return UVARINT_1[value]
    assert value <= UINT32_MAX, value
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def string_length(data: Buffer, pos: int, first: int) -> tuple[int, int]:
    """Read the rest of the length varint of a long compact string, bounded as in Kafka."""
    value, pos = more_uvarint(data, pos, first)
    if value - 1 > STRING_BYTES_MAX:
        raise ProtocolError(f"string of {value - 1} bytes, {STRING_BYTES_MAX} are allowed")
    return value, pos


def encode_string_length(value: int) -> bytes:
    """The length varint (length + 1) of a long compact string."""
    if value - 1 > STRING_BYTES_MAX:
        raise LocalMisuse(f"string of {value - 1} bytes", do=f"at most {STRING_BYTES_MAX} fit")
    return encode_uvarint(value)


# --- tag sections ---------------------------------------------------------------------------------


def skip_tags(data: Buffer, pos: int, end: int, first: int, budget: int) -> tuple[int, int]:
    """Skip a tag section of unknown fields; returns the position after it and the budget left.

    `first` is its first byte. A tagged field takes two bytes of a frame and as long to skip as an
    element of an array, so it counts as one.
    """
    count = first
    if first > 127:
        count, pos = more_uvarint(data, pos, first)
    if count > budget:
        over_budget("the tag section", count, budget)
    budget -= count
    while count:
        _, pos = uvarint(data, pos)
        size, pos = uvarint(data, pos)
        if size > end - pos:
            bad_length("tagged field", size, end - pos)
        pos += size
        count -= 1
    return pos, budget


def tag_section(fields: list[tuple[int, list[bytes]]]) -> bytes:
    """A tag section of (tag, pieces of its value), in the order given."""
    out = [encode_uvarint(len(fields))]
    for tag, pieces in fields:
        value = b"".join(pieces)
        out += [encode_uvarint(tag), encode_uvarint(len(value)), value]
    return b"".join(out)


# --- arrays of numbers ----------------------------------------------------------------------------

_UNPACK: Final = {
    letter: tuple(Struct(f">{count}{letter}").unpack_from for count in range(SHORT_ARRAY))
    for letter in "bhiq"
}
_PACK: Final = {
    letter: tuple(Struct(f">{count}{letter}").pack for count in range(SHORT_ARRAY))
    for letter in "bhiq"
}


def numbers(letter: str, count: int, data: Buffer, pos: int) -> tuple[int, ...]:
    """`count` integers of one struct letter at `pos`; the caller checked that they fit."""
    if count < SHORT_ARRAY:
        return _UNPACK[letter][count](data, pos)
    return unpack_from(f">{count}{letter}", data, pos)


def encode_numbers(letter: str, values: Sequence[int]) -> bytes:
    """Integers as big-endian bytes."""
    count = len(values)
    if count < SHORT_ARRAY:
        return _PACK[letter][count](*values)
    return pack(f">{count}{letter}", *values)


# --- bytes and records ----------------------------------------------------------------------------


def size_of(value: Records) -> int:
    """The number of bytes of a records field, whether one part or a list of parts."""
    return sum(map(len, value)) if type(value) is list else len(value)


def put(value: Records, parts: list[Any], large: list[int]) -> None:
    """Append a bytes or records field; `large` names the parts that must stay on their own."""
    if type(value) is list:
        for part in value:
            put(part, parts, large)
        return
    if len(value) > JOIN_BYTES_MAX or type(value) not in JOINABLE:
        large.append(len(parts))
    parts.append(value)
