"""The rows of a recording, and their checksums; big-endian.

    magic "rlrecord", version u16
    row*: kind u8, size u32, body, CRC-32C u32 of kind, size and body, begun with that of the row
          before: a row that is missing, twice or out of place is as visible as a changed one

    1 begin      what the broker was made of; first, once
    2 turn       what `Broker.handle` was given
    3 outcome    what came of making the broker, or of the turn before: draws and digests
    4 end        why the recording is over; a recording without it was cut short, by a kill for one

A row is written before the turn, so that the turn that breaks a broker is in the recording.
"""

import enum
import re
import struct
from typing import Final, NamedTuple, final

from raftlog.base.amounts import amount
from raftlog.base.binary import Buffer, Reader
from raftlog.base.checksum import crc32c
from raftlog.base.errors import CorruptData, FutureFormat
from raftlog.base.limits import RECORDING_BYTES_MAX
from raftlog.base.units import MIB

MAGIC: Final = b"rlrecord"
VERSION: Final = 1
HEAD: Final = MAGIC + VERSION.to_bytes(2, "big")
_ROW_HEAD: Final = struct.Struct(">BI")
ROW_HEAD_BYTES: Final = _ROW_HEAD.size
CRC_BYTES: Final = 4
_ON: Final = "recording"
_SEARCHED_BYTES_MAX: Final = 1 * MIB
"""How far a whole row is looked for behind one whose size may be wrong. Most rows have some hundred
bytes."""
_SMALL_ROW: Final = re.compile(rb"(?=....[\x01-\x04]\x00\x00[\x00-\x0f])", re.DOTALL)
"""The checksum of a row and the head of the next, which has less than 4 KiB: a search through a
forged file then ends soon."""


@final
class RowKind(enum.IntEnum):
    """The kinds of rows; the module lists them."""

    BEGIN = 1
    TURN = 2
    OUTCOME = 3
    END = 4


class RecordingRow(NamedTuple):
    """One row, its checksum verified. `position` is where it begins."""

    kind: RowKind
    body: memoryview
    position: int


@final
class RowWriter:
    """Frames rows; keeps the checksum of the last one."""

    __slots__ = ("_crc",)

    def __init__(self) -> None:
        self._crc = crc32c(HEAD)

    def row(self, kind: RowKind, body: Buffer) -> bytes:
        """The bytes of the next row."""
        framed = _ROW_HEAD.pack(kind, len(body)) + body
        self._crc = crc32c(framed, self._crc)
        return framed + self._crc.to_bytes(CRC_BYTES, "big")


@final
class RowReader:
    """Reads rows from the bytes of a recording.

    A recording may end inside a row, where its process was killed: `torn` then says so, and there
    is no further row. A row whose checksum or size is wrong is `CorruptData`.
    """

    def __init__(self, content: Buffer, on: str = _ON) -> None:
        self._reader = Reader(content, CorruptData, on)
        self._on = on
        self._crc = crc32c(HEAD)
        self.torn = False
        if bytes(self._reader.take(len(MAGIC))) != MAGIC:
            raise self._reader.fail("not a recording of a broker")
        version = self._reader.u16()
        if version != VERSION:
            raise FutureFormat(
                f"a recording of version {version}; this release reads {VERSION}",
                on=on,
                do="replay it with the release that recorded it",
            )

    def next(self) -> RecordingRow | None:
        """The next row; None at the end."""
        reader = self._reader
        if reader.remaining() == 0:
            return None
        position = reader.position
        if reader.remaining() < ROW_HEAD_BYTES:
            self.torn = True
            return None
        head = reader.take(ROW_HEAD_BYTES)
        kind, size = head[0], int.from_bytes(head[1:], "big")
        if size > RECORDING_BYTES_MAX:
            raise reader.fail(f"a row of {amount(size, 'byte')}")
        if size + CRC_BYTES > reader.remaining():
            if self._goes_on(kind, reader.take(reader.remaining())):
                raise reader.fail(f"the size of the row at byte {position} is wrong")
            self.torn = True
            return None
        body = reader.take(size)
        self._crc = crc32c(body, crc32c(head, self._crc))
        if reader.u32() != self._crc:
            raise reader.fail(f"the checksum of the row at byte {position} is wrong")
        if kind not in RowKind.__members__.values():
            raise reader.fail(f"a row of unknown kind {kind}")
        return RecordingRow(RowKind(kind), body, position)

    def _goes_on(self, kind: int, rest: memoryview) -> bool:
        """Whether the row of this kind ends within the `rest` behind its head, so that its size is
        wrong. Then it is the last row, or a whole row lies behind it."""
        size = len(rest) - CRC_BYTES
        if size >= 0 and _is_sealed(_ROW_HEAD.pack(kind, size), rest, self._crc):
            return True
        for found in _SMALL_ROW.finditer(rest[:_SEARCHED_BYTES_MAX]):
            before, begin = found.start(), found.start() + CRC_BYTES
            head = rest[begin : begin + ROW_HEAD_BYTES]
            crc = int.from_bytes(rest[before:begin], "big")
            if len(head) == ROW_HEAD_BYTES and _is_sealed(
                head, rest[begin + ROW_HEAD_BYTES :], crc
            ):
                return True
        return False


def _is_sealed(head: Buffer, rest: memoryview, crc: int) -> bool:
    """Whether a whole row has this head and begins `rest` with its body; `crc` is that of the row
    before."""
    size = int.from_bytes(head[1:], "big")
    sealed = rest[size : size + CRC_BYTES]
    wanted = crc32c(rest[:size], crc32c(head, crc))
    return len(sealed) == CRC_BYTES and int.from_bytes(sealed, "big") == wanted
