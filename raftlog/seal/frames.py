"""Seals and opens the frames of one direction of a link: AES-256-GCM with a counter as nonce.

    frame      size u32, then that many bytes: check u32, sealed body
    check      CRC-32C of the sealed body: wrong, the frame was damaged on its way
    sealed     the body encrypted, and a tag of 16 bytes: wrong, the frame is none of this session
    nonce      zero u32, number u64: 0 for the first frame of this direction, then one more each

The tag covers the body, the size and, through the nonce, the place in the order. So a frame that
was changed, repeated, moved, left out, taken from the other direction or from another session does
not open. After each REKEY_FRAMES frames both ends go on with a key that they derive from the old
one: no key seals more than that, and an old key does not come back.

A frame that does not open ends the link: the opener refuses everything after it.
"""

import struct
from collections.abc import Sequence
from typing import Final, final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from raftlog.base.binary import Buffer
from raftlog.base.checksum import crc32c
from raftlog.base.errors import LocalMisuse, ProtocolError
from raftlog.base.probes import probe
from raftlog.seal.keys import KEY_BYTES, derive

TAG_BYTES: Final = 16
CHECK_BYTES: Final = 4
OVERHEAD_BYTES: Final = CHECK_BYTES + TAG_BYTES
"""How much longer a sealed frame is than its body, without its size."""
REKEY_FRAMES: Final = 2**20
_HEAD: Final = struct.Struct(">II")
_SIZE: Final = struct.Struct(">I")
_CHECK: Final = struct.Struct(">I")
_NONCE: Final = struct.Struct(">IQ")
_NEXT_KEY: Final = b"raftlog seal 1 next key"


@final
class _Keys:
    """The present key of a direction, and the number of the next frame."""

    __slots__ = ("_key", "aead", "number")

    def __init__(self, key: bytes) -> None:
        assert len(key) == KEY_BYTES, len(key)
        self._key = key
        self.aead = AESGCM(key)
        self.number = 0

    def nonce(self) -> bytes:
        """The nonce of the next frame. A number is used once: it is counted here."""
        number = self.number
        if number and number % REKEY_FRAMES == 0:
            probe("peer-link-rekeyed")
            self._key = derive(self._key, b"", _NEXT_KEY)
            self.aead = AESGCM(self._key)
        self.number = number + 1
        return _NONCE.pack(0, number)


@final
class Sealer:
    """Seals the frames of one direction, in sending order."""

    __slots__ = ("_keys",)

    def __init__(self, key: bytes) -> None:
        self._keys = _Keys(key)

    def seal(self, parts: Sequence[Buffer]) -> bytearray:
        """The whole frame of the body that `parts` make."""
        body = parts[0] if len(parts) == 1 else b"".join(parts)
        size = len(body) + OVERHEAD_BYTES
        frame = bytearray(_HEAD.size + size - CHECK_BYTES)
        nonce = self._keys.nonce()
        with memoryview(frame) as whole, whole[_HEAD.size :] as sealed:
            self._keys.aead.encrypt_into(nonce, body, _SIZE.pack(size), sealed)
            _HEAD.pack_into(frame, 0, size, crc32c(sealed))
        return frame


@final
class Opener:
    """Opens the frames of one direction, in receiving order."""

    __slots__ = ("_failed", "_keys")

    def __init__(self, key: bytes) -> None:
        self._keys = _Keys(key)
        self._failed = False

    def open(self, frame: memoryview) -> bytes:
        """The body of a frame, which is given without its size. ProtocolError when it does not
        open; `LocalMisuse` for anything after that."""
        if self._failed:
            raise LocalMisuse("this link has failed", do="close it")
        if len(frame) < OVERHEAD_BYTES:
            raise self._fail(f"a sealed frame of {len(frame)} bytes")
        sealed = frame[CHECK_BYTES:]
        said, found = int(_CHECK.unpack_from(frame)[0]), crc32c(sealed)
        if said != found:
            probe("peer-frame-damaged")
            raise self._fail(
                f"frame {self._keys.number} was damaged on its way: its CRC is {found:#010x}, "
                f"it says {said:#010x}"
            )
        number, nonce = self._keys.number, self._keys.nonce()
        try:
            return self._keys.aead.decrypt(nonce, sealed, _SIZE.pack(len(frame)))
        except InvalidTag:
            probe("peer-frame-forged")
            raise self._fail(
                f"frame {number} does not open: it was changed, repeated, moved or left out "
                "between the brokers"
            ) from None

    def _fail(self, what: str) -> ProtocolError:
        self._failed = True
        return ProtocolError(what, do="look for what relays or rewrites the peer connections")
