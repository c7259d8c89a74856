"""A relay between brokers that strikes sealed frames without knowing the brokers' secret.

Each direction of a connection between brokers goes through a `Tap`. It cuts the bytes into the
handshake's messages, which it lets pass, and frames. A frame in `one_in` is struck:

    flip       a bit of its body is flipped, and its CRC is made right
    damage     a bit of its body is flipped
    repeat     it comes twice
    drop       it does not come
    swap       it comes behind the next one
    cut        its end is missing; length and CRC are made right
    truncate   its end is missing, and the next bytes stand in the place of that
    reflect    it comes back to its sender, and does not reach its receiver
    old        a frame of an earlier session, of the same number, comes in its place

A session is struck once, for then it must end: `LinkChecks` judges that and all that is heard. A
session that is not sealed is never struck.
"""

from collections.abc import Sequence
from struct import Struct
from typing import Final, final

import attrs

from raftlog.base.checksum import crc32c
from raftlog.base.probes import probe
from raftlog.seal.handshake import MAGIC
from raftlog_sim.base.streams import Stream
from raftlog_sim.world.link_checks import Ends, LinkChecks

HANDSHAKE: Final = {True: (40, 32, None), False: (72, None)}
"""Sizes in bytes of the handshake's messages, by whether they come from the dialler. None stands
for a message that consists of a size, as many bytes, and a proof."""
WAYS: Final = ("flip", "damage", "repeat", "drop", "swap", "cut", "truncate", "reflect", "old")
KEPT_FRAMES_MAX: Final = 256
KEPT_BYTES_MAX: Final = 64 * 1024
"""How many bytes of the first frames of each session are kept, for `old`."""
_PROOF_BYTES: Final = 32
_SIZE: Final = Struct(">I")
_HEAD: Final = Struct(">II")


@final
@attrs.define(eq=False)
class Strike:
    """The harm that a relay does to one direction between two brokers."""

    way: str
    one_in: int
    draws: Stream

    def next_way(self) -> str:
        """Draw the harm for a frame; "" for none."""
        if not self.draws.chance(1, self.one_in):
            return ""
        return WAYS[self.draws.below(len(WAYS))] if self.way == "any" else self.way


@final
@attrs.define(eq=False)
class Tap:
    """One direction of a connection, `ends` are its sender and its receiver.

    `given` counts the bytes for the reader. A reader that has received `fatal` of them, if that is
    not 0, has met what does not open, and must not go on.
    """

    from_dialler: bool
    ends: Ends
    judge: LinkChecks
    old: Sequence[bytes] = ()
    """The first frames of an earlier session in this direction."""
    other: "Tap | None" = None
    """The opposite direction."""
    given: int = 0
    fatal: int = 0
    kept: list[bytes] = attrs.Factory(list)
    """The first frames of this session."""
    _handshake: list[bytes] = attrs.Factory(list)
    _bytes: bytearray = attrs.Factory(bytearray)
    _onward: list[bytes] = attrs.Factory(list)
    _frames: int = 0
    _kept_bytes: int = 0
    _awry: bool = False
    """The next frame that comes does not open."""
    _later: bytes = b""
    """A frame that comes behind the next one."""
    _reflected: bytes = b""
    """A frame of the opposite direction that comes back here."""

    def take(self, data: bytes, strike: Strike | None) -> bytes:
        """Take the writer's bytes and return the bytes for the reader. Half a frame waits here."""
        self._bytes += data
        while (size := self._size()) and len(self._bytes) >= size:
            unit = bytes(self._bytes[:size])
            del self._bytes[:size]
            if len(self._handshake) < len(HANDSHAKE[self.from_dialler]):
                self._pass_handshake(unit)
            else:
                self._pass_frame(unit, strike)
        if self._reflected:
            back, self._reflected, self._awry = self._reflected, b"", True
            self._give(back)
        onward, self._onward = self._onward, []
        return b"".join(onward)

    def _size(self) -> int:
        """Returns the bytes of the next message or frame; 0 until its length has come."""
        sizes, said = HANDSHAKE[self.from_dialler], len(self._handshake)
        fixed = sizes[said] if said < len(sizes) else None
        if fixed is not None:
            return fixed
        if len(self._bytes) < _SIZE.size:
            return 0
        size = int(_SIZE.unpack_from(self._bytes)[0]) + _SIZE.size
        return size + (_PROOF_BYTES if said < len(sizes) else 0)

    def _pass_handshake(self, unit: bytes) -> None:
        self._handshake.append(unit)
        self._give(unit)
        if len(self._handshake) == len(HANDSHAKE[self.from_dialler]) and self._sealed:
            self.judge.said(unit[_SIZE.size : -_PROOF_BYTES])
            if self.from_dialler:
                self.judge.openings[self.ends] = tuple(self._handshake)

    @property
    def _sealed(self) -> bool:
        return self._handshake[0].startswith(MAGIC)

    def _pass_frame(self, frame: bytes, strike: Strike | None) -> None:
        """Hand on what the reader gets in the place of a frame."""
        number, self._frames = self._frames, self._frames + 1
        if len(self.kept) < KEPT_FRAMES_MAX and self._kept_bytes < KEPT_BYTES_MAX:
            self.kept.append(frame)
            self._kept_bytes += len(frame)
        later, self._later = self._later, b""
        if strike is None or self.fatal or self._awry or not self._sealed:
            self._give(frame)
        else:
            self._strike(strike.next_way(), frame, number)
        if later:
            self._give(later)

    def _strike(self, way: str, frame: bytes, number: int) -> None:
        if not way or (way == "old" and not self.old):
            self._give(frame)
            return
        self._awry = True
        if way == "flip":
            probe("relay-flipped")
            self._give(_framed(frame[8:-1] + bytes([frame[-1] ^ 1])))
        elif way == "damage":
            probe("relay-damaged")
            self._give(frame[:-1] + bytes([frame[-1] ^ 1]))
        elif way == "cut":
            probe("relay-cut")
            self._give(_framed(frame[8:-1]))
        elif way == "truncate":
            probe("relay-truncated")
            self.fatal, self._awry = self.given + len(frame), False
            self._give(frame[: max(_HEAD.size, len(frame) // 2)])
        elif way == "repeat":
            probe("relay-repeated")
            self._awry = False
            self._give(frame)
            self._awry = True
            self._give(frame)
        elif way == "swap":
            probe("relay-reordered")
            self._later = frame
        elif way == "reflect":
            probe("relay-reflected")
            assert self.other is not None, "a connection has two directions"
            self.other._reflected = frame
            self.judge.struck += 1  # both directions get what does not open
        elif way == "old":
            probe("relay-replayed")
            self._give(self.old[min(number, len(self.old) - 1)])
        else:
            probe("relay-dropped")
        self.judge.struck += 1

    def _give(self, unit: bytes) -> None:
        self._onward.append(unit)
        self.given += len(unit)
        if self._awry:
            self.fatal, self._awry = self.fatal or self.given, False


def _framed(sealed: bytes) -> bytes:
    return _HEAD.pack(len(sealed) + 4, crc32c(sealed)) + sealed
