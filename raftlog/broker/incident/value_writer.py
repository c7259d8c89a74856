"""Writes values as `values` describes them.

Every turn of a recorded broker passes here, so frequent values are quick. Small integers and heads
of classes are made once, and each named tuple of the table has a writer of its own.
"""

import enum
import hashlib
import struct
from array import array
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Final, final

import msgspec

from raftlog.base.binary import Buffer
from raftlog.base.checksum import crc32c
from raftlog.base.errors import RaftlogError
from raftlog.base.identity import Identities
from raftlog.base.limits import RECORDED_DEPTH_MAX, RECORDED_PAYLOAD_BYTES_MIN
from raftlog.broker.incident.classes import RecordedClass, classes
from raftlog.broker.incident.values import (
    DIGEST_BYTES,
    F64,
    UNSET,
    NotRecordable,
    Payloads,
    Tag,
    put_varint,
)


@final
class ValueWriter:
    """Writes values one behind the other into `buffer`.

    `known` names objects, by identity, that are not written. `payloads` is None to keep all bytes
    in place. With `folded` only the checksum of large values is written: such bytes are compared,
    and never read.
    """

    __slots__ = ("_depth", "_folded", "_known", "_names", "_payloads", "_seen", "buffer")

    def __init__(
        self,
        payloads: Payloads | None,
        known: Mapping[str, object] | None = None,
        *,
        folded: bool = False,
    ) -> None:
        self.buffer = bytearray()
        self._folded = folded
        self._payloads = payloads
        self._known: Identities | None = None
        self._names: list[str] = []
        if known:
            self._known = Identities()
            for name, each in known.items():
                self._known.add(each)
                self._names.append(name)
        self._seen: Identities | None = None
        self._depth = 0

    def value(self, value: Any) -> None:
        """Write one value; `NotRecordable` when it cannot be."""
        write = _writers().get(type(value))
        if write is not None:
            write(self, value)
        else:
            self._of_class(value)

    def _of_class(self, value: Any) -> None:
        number = None if self._known is None else self._known.number(value)
        if number is not None:
            self.buffer.append(Tag.KNOWN)
            self.text(self._names[number])
            return
        if self._was_seen(value):
            return
        known = classes().get(type(value))
        if known is not None:
            self._enter()
            self._instance(known, value)
            self._depth -= 1
        elif isinstance(value, BaseException):
            self.buffer.append(Tag.FOREIGN_ERROR)
            self.text(f"{type(value).__name__}: {value}")
        else:
            cls = type(value)
            raise NotRecordable(
                f"a recording holds no {cls.__module__}.{cls.__qualname__}",
                do="name its module in raftlog/broker/incident/classes.py",
            )

    def _instance(self, known: RecordedClass, value: Any) -> None:
        error = isinstance(value, RaftlogError)
        if not error:
            self._note(value)
        self._head(Tag.ERROR if error else Tag.OBJECT, known)
        for name in known.fields:
            each = getattr(value, name, UNSET)
            if each is UNSET:
                self.buffer.append(Tag.UNSET)
            else:
                self.value(each)

    def _head(self, tag: Tag, known: RecordedClass) -> None:
        self.buffer.append(tag)
        self.varint(known.number)

    def _was_seen(self, value: object) -> bool:
        number = None if self._seen is None else self._seen.number(value)
        if number is None:
            return False
        self.buffer.append(Tag.SEEN)
        self.varint(number)
        return True

    def _note(self, value: object) -> None:
        if self._seen is None:
            self._seen = Identities()
        self._seen.add(value)

    def _enter(self) -> None:
        self._depth += 1
        if self._depth > RECORDED_DEPTH_MAX:
            raise NotRecordable(f"a value is nested {self._depth} deep")

    def varint(self, value: int) -> None:
        put_varint(self.buffer, value)

    def text(self, value: str) -> None:
        raw = value.encode("utf-8", "surrogatepass")
        self.varint(len(raw))
        self.buffer += raw

    def none(self, _: None) -> None:
        self.buffer.append(Tag.NONE)

    def flag(self, value: bool) -> None:
        self.buffer.append(Tag.TRUE if value else Tag.FALSE)

    def integer(self, value: int) -> None:
        if 0 <= value < _SMALL:
            self.buffer += _SMALL_INTEGERS[value]
        elif -_LONG_FROM < value < _LONG_FROM or not -(1 << 63) <= value < 1 << 63:
            self.buffer.append(Tag.INT)
            put_varint(self.buffer, value << 1 if value >= 0 else (-value << 1) - 1)
        else:
            self.buffer += _LONG.pack(Tag.LONG, value)

    def real(self, value: float) -> None:
        self.buffer.append(Tag.FLOAT)
        self.buffer += F64.pack(value)

    def string(self, value: str) -> None:
        self.buffer.append(Tag.TEXT)
        self.text(value)

    def octets(self, value: Buffer) -> None:
        """Write bytes, in place or as a payload."""
        kind = _BUFFERS.index(type(value))
        size = len(value)
        if self._folded and size >= RECORDED_PAYLOAD_BYTES_MIN:
            self.buffer += crc32c(value).to_bytes(4, "big")
            self.varint(size)
            return
        if self._payloads is None or size < RECORDED_PAYLOAD_BYTES_MIN:
            self.buffer.append(Tag.BYTES + kind)
            self.varint(size)
            self.buffer += value
            return
        digest = hashlib.blake2b(value, digest_size=DIGEST_BYTES).digest()
        if not self._payloads.keep(digest, value):
            raise NotRecordable("the payloads beside the recording have no room left")
        self.buffer.append(Tag.PAYLOAD + kind)
        self.buffer += digest
        self.varint(size)

    def several(self, value: Sequence[Any]) -> None:
        """Write a list, tuple or deque. A tuple has no identity of its own."""
        tag = _SEQUENCES[type(value)]
        if tag != Tag.TUPLE:
            if self._was_seen(value):
                return
            self._note(value)
        self._enter()
        self.buffer.append(tag)
        self.varint(len(value))
        for each in value:
            self.value(each)
        self._depth -= 1

    def mapping(self, value: dict[Any, Any]) -> None:
        """Write a dict in its own order, which is part of it."""
        if self._was_seen(value):
            return
        self._note(value)
        self._enter()
        self.buffer.append(Tag.DICT)
        self.varint(len(value))
        for key, each in value.items():
            self.value(key)
            self.value(each)
        self._depth -= 1

    def numbers(self, value: "array[Any]") -> None:
        """Write an array of integers."""
        if self._was_seen(value):
            return
        self._note(value)
        self.buffer.append(Tag.ARRAY)
        self.buffer.append(ord(value.typecode))
        self.varint(len(value))
        for each in value:
            put_varint(self.buffer, each << 1 if each >= 0 else (-each << 1) - 1)


_BUFFERS: Final = (bytes, memoryview, bytearray)
_SEQUENCES: Final[dict[type, Tag]] = {list: Tag.LIST, tuple: Tag.TUPLE, deque: Tag.DEQUE}
_SMALL: Final = 1024
_LONG_FROM: Final = 1 << 28
"""From this number on eight bytes are written faster than groups of seven bits."""
_LONG: Final = struct.Struct(">Bq")


def _head_of(tag: Tag, *numbers: int) -> bytes:
    head = bytearray((tag,))
    for number in numbers:
        put_varint(head, number)
    return bytes(head)


_PLAIN: Final = frozenset((int, bool, type(None)))
"""The types of a named tuple that is packed in one call; most of Raft's messages are such."""
_pack: Final = msgspec.msgpack.Encoder().encode
_SMALL_INTEGERS: Final = [_head_of(Tag.INT, value << 1) for value in range(_SMALL)]
_Write = Callable[[ValueWriter, Any], None]


def _named_tuple(known: RecordedClass) -> _Write:
    head = _head_of(Tag.NAMED_TUPLE, known.number)
    packed_head = _head_of(Tag.PACKED, known.number)

    def write(writer: ValueWriter, value: tuple[Any, ...]) -> None:
        if _PLAIN.issuperset(map(type, value)):
            try:
                packed = _pack(value)
            except OverflowError:
                pass  # an integer of more than 64 bits: written field by field
            else:
                writer.buffer += packed_head
                put_varint(writer.buffer, len(packed))
                writer.buffer += packed
                return
        writer._enter()
        writer.buffer += head
        for each in value:
            if type(each) is int:
                writer.integer(each)
            else:
                writer.value(each)
        writer._depth -= 1

    return write


def _member(known: RecordedClass) -> _Write:
    cls: Any = known.cls
    heads = {
        cls[name]: _head_of(Tag.ENUM, known.number, number)
        for number, name in enumerate(known.fields)
    }

    def write(writer: ValueWriter, value: enum.Enum) -> None:
        writer.buffer += heads[value]

    return write


@cache
def _writers() -> dict[type, _Write]:
    """The writers of types that need no look at earlier values; `_of_class` writes all others."""
    found: dict[type, _Write] = {
        type(None): ValueWriter.none,
        bool: ValueWriter.flag,
        int: ValueWriter.integer,
        float: ValueWriter.real,
        str: ValueWriter.string,
        **dict.fromkeys(_BUFFERS, ValueWriter.octets),
        **dict.fromkeys(_SEQUENCES, ValueWriter.several),
        dict: ValueWriter.mapping,
        array: ValueWriter.numbers,
    }
    for cls, known in classes().items():
        if issubclass(cls, tuple):
            found[cls] = _named_tuple(known)
        elif issubclass(cls, enum.Enum):
            found[cls] = _member(known)
    return found
