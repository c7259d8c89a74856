"""Reads values as `values` describes them. Raises `CorruptData` and nothing else.

It makes values of the classes in the recording's own table, and runs no code that a file names.
"""

import enum
from array import array
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, final

import msgspec

from raftlog.base.amounts import amount
from raftlog.base.binary import Buffer, Reader
from raftlog.base.errors import CorruptData, RaftlogError
from raftlog.base.limits import RECORDED_DEPTH_MAX
from raftlog.broker.incident.classes import ERROR_FIELDS, RecordedClass
from raftlog.broker.incident.values import (
    DIGEST_BYTES,
    F64,
    I64,
    ON,
    UNSET,
    ForeignError,
    Payloads,
    Tag,
    take_varint,
)


@final
class ValueReader:
    """Reads values in the order in which a `ValueWriter` wrote them. `table` is the recording's own
    list of classes; `known` are the objects that it names."""

    def __init__(
        self,
        content: Buffer,
        table: Sequence[RecordedClass],
        payloads: Payloads | None,
        known: Mapping[str, object] | None = None,
    ) -> None:
        self.reader = Reader(content, CorruptData, ON)
        self._table = table
        self._payloads = payloads
        self._known = known or {}
        self._seen: list[Any] = []
        self._depth = 0

    def value(self) -> Any:
        """The next value; `CorruptData` when there is none."""
        reader = self.reader
        tag = reader.u8()
        if tag > Tag.PACKED:
            raise reader.fail(f"unknown tag {tag}")
        self._depth += 1
        if self._depth > 2 * RECORDED_DEPTH_MAX:
            raise reader.fail("values are nested too deep")
        found = _READERS[Tag(tag)](self)
        self._depth -= 1
        return found

    def varint(self) -> int:
        return take_varint(self.reader)

    def count(self) -> int:
        """The number of values that follow, each of a byte at least."""
        count = self.varint()
        if count > self.reader.remaining():
            raise self.reader.fail(
                f"{amount(count, 'value')}, {amount(self.reader.remaining(), 'byte')} left"
            )
        return count

    def text(self) -> str:
        try:
            return bytes(self.reader.take(self.varint())).decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            raise self.reader.fail("text is not UTF-8") from None

    def integer(self) -> int:
        value = self.varint()
        return -((value + 1) >> 1) if value & 1 else value >> 1

    def octets(self) -> bytes:
        return bytes(self.reader.take(self.varint()))

    def payload(self) -> bytes:
        """Read bytes that lie beside the recording."""
        digest = bytes(self.reader.take(DIGEST_BYTES))
        size = self.varint()
        if self._payloads is None:
            raise self.reader.fail("a payload, and none are there")
        content = self._payloads.content(digest, size)
        if len(content) != size:
            raise self.reader.fail(f"a payload of {amount(size, 'byte')} has {len(content)}")
        return content

    def several(self) -> list[Any]:
        found: list[Any] = []
        self._seen.append(found)
        found += [self.value() for _ in range(self.count())]
        return found

    def several_at_both_ends(self) -> deque[Any]:
        found: deque[Any] = deque()
        self._seen.append(found)
        found.extend([self.value() for _ in range(self.count())])
        return found

    def fixed(self) -> tuple[Any, ...]:
        return tuple([self.value() for _ in range(self.count())])

    def mapping(self) -> dict[Any, Any]:
        """Read a dict, in the order in which it was written."""
        found: dict[Any, Any] = {}
        self._seen.append(found)
        for _ in range(self.count()):
            key, value = self.value(), self.value()
            try:
                found[key] = value
            except TypeError:
                raise self.reader.fail(f"a {type(key).__name__} is no key") from None
        return found

    def numbers(self) -> "array[Any]":
        """Read an array of integers."""
        code = chr(self.reader.u8())
        if code not in "bBhHiIlLqQ":
            raise self.reader.fail(f"an array of {code!r}")
        found = array(code)
        self._seen.append(found)
        try:
            found.extend([self.integer() for _ in range(self.count())])
        except OverflowError:
            raise self.reader.fail("a number is too large for its array") from None
        return found

    def _class(self, kind: type) -> RecordedClass:
        number = self.varint()
        if number >= len(self._table) or not issubclass(self._table[number].cls, kind):
            raise self.reader.fail(f"class {number} is no {kind.__name__}")
        return self._table[number]

    def named_tuple(self) -> Any:
        known = self._class(tuple)
        fields = [self.value() for _ in known.fields]
        return known.cls.__new__(known.cls, *fields)

    def packed(self) -> Any:
        """Read a named tuple of integers, flags and None."""
        known = self._class(tuple)
        try:
            fields = _unpack(self.reader.take(self.varint()))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise self.reader.fail(f"a packed value cannot be read: {error}") from None
        if len(fields) != len(known.fields):
            raise self.reader.fail(f"{known.name} has {len(fields)} fields")
        return known.cls.__new__(known.cls, *fields)

    def object(self) -> Any:
        """Read an object of a known class, field by field: its constructor does not run."""
        known = self._class(object)
        cls = known.cls
        if issubclass(cls, tuple | enum.Enum | BaseException):
            raise self.reader.fail(f"{known.name} is no object with fields")
        found = cls.__new__(cls)
        self._seen.append(found)
        for name in known.fields:
            each = self.value()
            if each is not UNSET:
                object.__setattr__(found, name, each)
        return found

    def member(self) -> Any:
        known, number = self._class(enum.Enum), self.varint()
        if number >= len(known.fields):
            raise self.reader.fail(f"{known.name} has no member {number}")
        return known.cls[known.fields[number]]  # type: ignore[index]

    def error(self) -> RaftlogError:
        known = self._class(RaftlogError)
        what, on, do, *more = (self.value() for _ in known.fields)
        cls: Any = known.cls
        found: RaftlogError = cls.__new__(cls)
        RaftlogError.__init__(found, what, on=on, do=do)
        for name, each in zip(known.fields[len(ERROR_FIELDS) :], more, strict=True):
            setattr(found, name, each)
        return found

    def seen(self) -> Any:
        number = self.varint()
        if number >= len(self._seen):
            raise self.reader.fail(f"object {number} of {len(self._seen)}")
        return self._seen[number]

    def known(self) -> Any:
        name = self.text()
        if name not in self._known:
            raise self.reader.fail(f"no known object is called {name!r}")
        return self._known[name]


_unpack: Final = msgspec.msgpack.Decoder(list[int | bool | None]).decode
_READERS: Final[dict[Tag, Callable[[ValueReader], Any]]] = {
    Tag.NONE: lambda _: None,
    Tag.TRUE: lambda _: True,
    Tag.FALSE: lambda _: False,
    Tag.INT: ValueReader.integer,
    Tag.LONG: lambda reader: I64.unpack(reader.reader.take(I64.size))[0],
    Tag.FLOAT: lambda reader: F64.unpack(reader.reader.take(F64.size))[0],
    Tag.TEXT: ValueReader.text,
    Tag.BYTES: ValueReader.octets,
    Tag.VIEW: lambda reader: memoryview(reader.octets()),
    Tag.BYTEARRAY: lambda reader: bytearray(reader.octets()),
    Tag.PAYLOAD: ValueReader.payload,
    Tag.PAYLOAD_VIEW: lambda reader: memoryview(reader.payload()),
    Tag.PAYLOAD_ARRAY: lambda reader: bytearray(reader.payload()),
    Tag.LIST: ValueReader.several,
    Tag.TUPLE: ValueReader.fixed,
    Tag.DICT: ValueReader.mapping,
    Tag.DEQUE: ValueReader.several_at_both_ends,
    Tag.ARRAY: ValueReader.numbers,
    Tag.NAMED_TUPLE: ValueReader.named_tuple,
    Tag.OBJECT: ValueReader.object,
    Tag.ENUM: ValueReader.member,
    Tag.ERROR: ValueReader.error,
    Tag.SEEN: ValueReader.seen,
    Tag.KNOWN: ValueReader.known,
    Tag.UNSET: lambda _: UNSET,
    Tag.PACKED: ValueReader.packed,
    Tag.FOREIGN_ERROR: lambda reader: ForeignError(reader.text()),
}
