"""A bounds-checked reader and a writer for our own formats (files and peer frames); big-endian.

Every length is compared with what is left before anything is allocated. The reader raises the error
class that its maker names, so that a bad file is `CorruptData` and a bad frame is `ProtocolError`.
"""

import struct
from typing import Final, final

from raftlog.base.errors import RaftlogError

Buffer = bytes | bytearray | memoryview

_U16: Final = struct.Struct(">H")
_U32: Final = struct.Struct(">I")
_U64: Final = struct.Struct(">Q")
_I64: Final = struct.Struct(">q")


@final
class Reader:
    """Reads fields in order from `data`; each method raises `error` when too few bytes are left."""

    __slots__ = ("_data", "_end", "_error", "_on", "position")

    def __init__(self, data: Buffer, error: type[RaftlogError], on: str, position: int = 0) -> None:
        self._data = memoryview(data)
        self._end = len(self._data)
        self._error = error
        self._on = on
        self.position = position

    def remaining(self) -> int:
        """Bytes not read yet."""
        return self._end - self.position

    def fail(self, what: str) -> RaftlogError:
        """The error to raise for bad content at the present position."""
        return self._error(what, on=f"{self._on} at byte {self.position}")

    def take(self, size: int) -> memoryview:
        """The next `size` bytes, as a view."""
        if size < 0 or size > self._end - self.position:
            raise self.fail(f"{size} bytes wanted, {self.remaining()} left")
        start = self.position
        self.position = start + size
        return self._data[start : self.position]

    def unpack(self, layout: struct.Struct) -> tuple[int, ...]:
        """Read the next fields of a struct layout in one step."""
        start = self.position
        end = start + layout.size
        if end > self._end:
            raise self.fail(f"{layout.size} bytes wanted, {self.remaining()} left")
        self.position = end
        return layout.unpack_from(self._data, start)

    def u8(self) -> int:
        start = self.position
        if start >= self._end:
            raise self.fail("1 bytes wanted, 0 left")
        self.position = start + 1
        return self._data[start]

    def flag(self) -> bool:
        """One byte that must be 0 or 1."""
        value = self.u8()
        if value > 1:
            raise self.fail(f"flag byte is {value}")
        return value == 1

    def u16(self) -> int:
        return self.unpack(_U16)[0]

    def u32(self) -> int:
        return self.unpack(_U32)[0]

    def u64(self) -> int:
        return self.unpack(_U64)[0]

    def i64(self) -> int:
        return self.unpack(_I64)[0]

    def block(self, size_max: int) -> memoryview:
        """A u32 length and that many bytes, at most `size_max`."""
        size = self.u32()
        if size > size_max:
            raise self.fail(f"block of {size} bytes, at most {size_max} allowed")
        return self.take(size)

    def text(self, size_max: int) -> str:
        """A block that must be UTF-8."""
        view = self.block(size_max)
        try:
            return bytes(view).decode("utf-8")
        except UnicodeDecodeError:
            raise self.fail("text is not UTF-8") from None

    def count(self, size_of_one: int, count_max: int) -> int:
        """A u32 count of items of at least `size_of_one` bytes each, at most `count_max`."""
        count = self.u32()
        if count > count_max or count * size_of_one > self.remaining():
            raise self.fail(f"count of {count} items, {self.remaining()} bytes left")
        return count

    def end(self) -> None:
        """Raise the reader's error when bytes are left."""
        if self.position != self._end:
            raise self.fail(f"{self.remaining()} bytes too many")


@final
class Writer:
    """Appends fields to a growing buffer; `bytes()` gives what was written."""

    __slots__ = ("_buffer",)

    def __init__(self) -> None:
        self._buffer = bytearray()

    def __len__(self) -> int:
        return len(self._buffer)

    def u8(self, value: int) -> "Writer":
        assert 0 <= value <= 0xFF, value
        self._buffer.append(value)
        return self

    def flag(self, value: bool) -> "Writer":
        return self.u8(1 if value else 0)

    def u16(self, value: int) -> "Writer":
        self._buffer += _U16.pack(value)
        return self

    def u32(self, value: int) -> "Writer":
        self._buffer += _U32.pack(value)
        return self

    def u64(self, value: int) -> "Writer":
        self._buffer += _U64.pack(value)
        return self

    def i64(self, value: int) -> "Writer":
        self._buffer += _I64.pack(value)
        return self

    def pack(self, layout: struct.Struct, *values: int) -> "Writer":
        """Append the fields of a struct layout in one step."""
        self._buffer += layout.pack(*values)
        return self

    def raw(self, data: Buffer) -> "Writer":
        self._buffer += data
        return self

    def block(self, data: Buffer) -> "Writer":
        self.u32(len(data))
        return self.raw(data)

    def text(self, value: str) -> "Writer":
        return self.block(value.encode("utf-8"))

    def bytes(self) -> bytes:
        return bytes(self._buffer)
