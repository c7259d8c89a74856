"""The fields in which one end of a handshake describes itself: a typed list (big-endian).

    count u8, then per field: type u16, size u16, that many bytes

Types ascend, so none stands twice. A reader passes over a type that it does not know, unless the
type is CRITICAL: then it refuses, because the writer says that a link would be wrong without it.

    1   identity: the broker's, as `runtime.handshake` writes it
    2   policy u8: 1 plain links are allowed, 2 seals are required
    3   incarnation u64: of this boot. Which one of the other's this end knows is said by the first
        message of the session, because a dialler does not know yet which directory will answer
    4   reserved
"""

import struct
from collections.abc import Mapping
from typing import Final

from raftlog.base.binary import Buffer, Reader
from raftlog.base.errors import ProtocolError

IDENTITY: Final = 1
POLICY: Final = 2
INCARNATION: Final = 3
CRITICAL: Final = 0x8000
FIELDS_BYTES_MAX: Final = 4096
FIELDS_MAX: Final = 64
KNOWN: Final = (IDENTITY, POLICY, INCARNATION)
_HEAD: Final = struct.Struct(">HH")
_ON: Final = "peer handshake"


def write_fields(fields: Mapping[int, bytes]) -> bytes:
    """The list as bytes, at most FIELDS_BYTES_MAX."""
    assert len(fields) <= FIELDS_MAX, len(fields)
    parts = [bytes([len(fields)])]
    for kind in sorted(fields):
        parts += (_HEAD.pack(kind, len(fields[kind])), fields[kind])
    written = b"".join(parts)
    assert len(written) <= FIELDS_BYTES_MAX, len(written)
    return written


def read_fields(data: Buffer) -> dict[int, bytes]:
    """The reverse of `write_fields`, without the types that are passed over; ProtocolError for
    anything else."""
    reader = Reader(data, ProtocolError, _ON)
    count = reader.u8()
    if count > FIELDS_MAX:
        raise reader.fail(f"{count} fields, at most {FIELDS_MAX} are allowed")
    found: dict[int, bytes] = {}
    last = -1
    for _ in range(count):
        kind, size = reader.unpack(_HEAD)
        if kind <= last:
            raise reader.fail(f"field {kind} behind field {last}")
        last = kind
        value = bytes(reader.take(size))
        if kind in KNOWN:
            found[kind] = value
        elif kind & CRITICAL:
            raise ProtocolError(
                f"field {kind} of a later release must be understood",
                on=_ON,
                do="upgrade this broker first",
            )
    reader.end()
    return found
