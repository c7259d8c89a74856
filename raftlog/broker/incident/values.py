"""The codec of everything a recording holds: a graph of values of known classes, as bytes.

    value      tag u8, then:
    int        zigzag varint of any size, or 8 bytes signed          float     8 bytes
    text       varint length, UTF-8                bytes     varint length, the bytes
    payload    16 bytes digest, varint length: the bytes lie in `Payloads`
    list, tuple, deque     varint count, values    dict      varint count, keys and values
    array      type code u8, bytes                 enum      varint class, varint member
    named tuple, object, error                     varint class, its fields
    packed     named tuple of integers, flags and None: varint class, varint length, msgpack
    seen       varint: the object that was read so many-th
    known      text: an object that the reader has, too (an argument of the job)

Lists, dicts and objects keep their identity: one object stays one object. A value of any other
class is `NotRecordable`, by name. Reading raises `CorruptData`. It makes values of the classes in
`classes` and runs no code that the file names.
"""

import enum
import struct
from typing import Final, Protocol, final

from raftlog.base.binary import Buffer, Reader
from raftlog.base.errors import LocalMisuse

DIGEST_BYTES: Final = 16
ON: Final = "recording"
F64: Final = struct.Struct(">d")
I64: Final = struct.Struct(">q")
_INT_BYTES_MAX: Final = 64
UNSET: Final = object()
"""Stands for a field that has no value yet."""


@final
class NotRecordable(LocalMisuse):
    """A value of a class that recordings do not know."""


class Payloads(Protocol):
    """The place of large byte strings, each once, under the digest of its content."""

    def keep(self, digest: bytes, content: Buffer) -> bool:
        """Keep these bytes, which are copied, unless they are there already. False: no room."""
        ...

    def content(self, digest: bytes, size: int) -> bytes:
        """The bytes with that digest; `CorruptData` when they are missing."""
        ...


@final
class Tag(enum.IntEnum):
    """The kind of the value that follows."""

    NONE = 0
    TRUE = 1
    FALSE = 2
    INT = 3
    FLOAT = 4
    TEXT = 5
    BYTES = 6
    VIEW = 7
    BYTEARRAY = 8
    PAYLOAD = 9
    PAYLOAD_VIEW = 10
    PAYLOAD_ARRAY = 11
    LIST = 12
    TUPLE = 13
    DICT = 14
    DEQUE = 15
    ARRAY = 16
    NAMED_TUPLE = 17
    OBJECT = 18
    ENUM = 19
    ERROR = 20
    SEEN = 21
    KNOWN = 22
    UNSET = 23
    FOREIGN_ERROR = 24
    LONG = 25
    PACKED = 26


@final
class ForeignError(Exception):
    """In a replay: an exception that was none of raftlog's own."""


def put_varint(buffer: bytearray, value: int) -> None:
    """Append an unsigned integer of any size, seven bits a byte, lowest first."""
    while value > 0x7F:
        buffer.append(value & 0x7F | 0x80)
        value >>= 7
    buffer.append(value)


def take_varint(reader: Reader) -> int:
    """Read an integer that `put_varint` wrote."""
    value = shift = 0
    while True:
        byte = reader.u8()
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value
        shift += 7
        if shift > 8 * _INT_BYTES_MAX:
            raise reader.fail("an integer is too large")
