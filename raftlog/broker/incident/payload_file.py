"""The file of payloads beside the recordings of a cluster; big-endian.

    magic "rlpayload", version u8
    entry*: digest 16, size u32, the bytes, CRC-32C u32 of all of it

An entry is written before the first row that refers to it. A file that was cut short counts up to
its last whole entry.
"""

import hashlib
from typing import Final, final

from raftlog.base.amounts import amount
from raftlog.base.binary import Buffer, Reader
from raftlog.base.checksum import crc32c
from raftlog.base.errors import CorruptData, FutureFormat
from raftlog.base.limits import RECORDED_PAYLOADS_BYTES_MAX
from raftlog.broker.incident.values import DIGEST_BYTES

MAGIC: Final = b"rlpayload"
VERSION: Final = 1
HEAD: Final = MAGIC + bytes([VERSION])
NAME: Final = "payloads"
_SIZE_BYTES: Final = 4
_CRC_BYTES: Final = 4
_FIXED_BYTES: Final = DIGEST_BYTES + _SIZE_BYTES + _CRC_BYTES


def entry(digest: bytes, content: Buffer) -> bytes:
    """The bytes of one entry; copies the content."""
    framed = b"".join((digest, len(content).to_bytes(_SIZE_BYTES, "big"), content))
    return framed + crc32c(framed).to_bytes(_CRC_BYTES, "big")


@final
class PayloadFile:
    """`Payloads` out of the bytes of such a file, for a reader, which adds nothing.

    Raises `CorruptData` when it is no such file, or when an entry before the last one is damaged.
    """

    def __init__(self, content: Buffer, on: str = NAME) -> None:
        self._content = memoryview(content)
        self._on = on
        self._places: dict[bytes, tuple[int, int]] = {}
        reader = Reader(content, CorruptData, on)
        if bytes(reader.take(len(MAGIC))) != MAGIC:
            raise reader.fail("not a file of payloads")
        version = reader.u8()
        if version != VERSION:
            raise FutureFormat(
                f"payloads of version {version}; this release reads {VERSION}", on=on
            )
        while reader.remaining() >= _FIXED_BYTES:
            start = reader.position
            digest, size = bytes(reader.take(DIGEST_BYTES)), reader.u32()
            if size > RECORDED_PAYLOADS_BYTES_MAX:
                raise reader.fail(f"a payload of {amount(size, 'byte')}")
            if size + _CRC_BYTES > reader.remaining():
                return
            reader.take(size + _CRC_BYTES)
            self._places[digest] = (start, size)

    def __len__(self) -> int:
        return len(self._places)

    def keep(self, digest: bytes, content: Buffer) -> bool:
        """False: a reader keeps nothing."""
        del content
        return digest in self._places

    def content(self, digest: bytes, size: int) -> bytes:
        """See `Payloads`; checks the digest."""
        place = self._places.get(digest)
        if place is None:
            raise CorruptData(
                f"payload {digest.hex()} of {amount(size, 'byte')} is not there",
                on=self._on,
                do="take the recordings and the payloads of one folder",
            )
        start, found = place
        at = start + DIGEST_BYTES + _SIZE_BYTES
        content = bytes(self._content[at : at + found])
        if hashlib.blake2b(content, digest_size=DIGEST_BYTES).digest() != digest:
            raise CorruptData(f"payload {digest.hex()} is damaged", on=self._on)
        return content
