"""A relay between brokers that damages sealed frames without knowing the brokers' secret.

Each direction of a connection between brokers goes through a `Tap`. It cuts the bytes into the
handshake's messages, which it lets pass, and frames. A frame in `one_in` is struck:

    flip       a bit of its body is flipped, and its CRC is made right
    damage     a bit of its body is flipped
    repeat     it comes twice
    drop       it does not come
    swap       it comes behind the next one
    cut        its end is missing; length and CRC are made right
    reflect    it comes back to its sender, and does not reach its receiver

`LinkChecks` judges the result: a broker hears on a link only messages that its peer sent on it, and
each once. It does not judge their order, since a driver may delay messages for which no client
waits. The tests of `raftlog.seal` prove the order of frames.
"""

from collections import deque
from collections.abc import Sequence
from struct import Struct
from typing import Any, Final, final

import attrs

from raftlog.base.checksum import crc32c
from raftlog.base.ids import NodeId, SessionId
from raftlog.broker.events import Effects, Event, PeerMessages
from raftlog.broker.peer_codec import PROTOCOL_MAX, PROTOCOLS
from raftlog_sim.base.streams import Stream
from raftlog_sim.base.violation import Violation
from raftlog_sim.world.faces import SimNode

HANDSHAKE: Final = {True: (40, 32, None), False: (72, None)}
"""Sizes in bytes of the handshake's messages, by whether they come from the dialler. None stands
for a message that consists of a size, as many bytes, and a proof."""
WAYS: Final = ("flip", "damage", "repeat", "drop", "swap", "cut", "reflect")
_PROOF_BYTES: Final = 32
_SIZE: Final = Struct(">I")
_HEAD: Final = Struct(">II")


@final
@attrs.define(eq=False)
class Strike:
    """The harm that a relay does to one direction between two brokers. `struck` counts frames."""

    way: str
    one_in: int
    draws: Stream
    struck: int = 0

    def next_way(self) -> str:
        """Draw the harm for a frame; "" for none."""
        if not self.draws.chance(1, self.one_in):
            return ""
        self.struck += 1
        return WAYS[self.draws.below(len(WAYS))] if self.way == "any" else self.way


@final
@attrs.define(eq=False)
class Tap:
    """One direction of a connection. `other` is its opposite direction."""

    from_dialler: bool
    other: "Tap | None" = None
    _bytes: bytearray = attrs.Factory(bytearray)
    _said: int = 0
    """How many messages of the handshake have passed."""
    _later: bytes = b""
    """A frame that comes behind the next one."""
    _reflected: bytes = b""
    """Frames of the opposite direction that come back here."""

    def take(self, data: bytes, strike: Strike | None) -> bytes:
        """Take the writer's bytes and return the bytes for the reader. Half a frame waits here."""
        self._bytes += data
        onward = []
        while (size := self._size()) and len(self._bytes) >= size:
            unit = bytes(self._bytes[:size])
            del self._bytes[:size]
            if self._said < len(HANDSHAKE[self.from_dialler]):
                self._said += 1
                onward.append(unit)
            else:
                onward.append(self._struck(unit, strike))
        back, self._reflected = self._reflected, b""
        return b"".join(onward) + back

    def _size(self) -> int:
        """Returns the bytes of the next message or frame; 0 until its length has come."""
        sizes = HANDSHAKE[self.from_dialler]
        fixed = sizes[self._said] if self._said < len(sizes) else None
        if fixed is not None:
            return fixed
        if len(self._bytes) < _SIZE.size:
            return 0
        size = int(_SIZE.unpack_from(self._bytes)[0]) + _SIZE.size
        return size + (_PROOF_BYTES if self._said < len(sizes) else 0)

    def _struck(self, frame: bytes, strike: Strike | None) -> bytes:
        """Returns the bytes that the reader gets in the place of a frame."""
        later, self._later = self._later, b""
        way = "" if strike is None else strike.next_way()
        if way == "flip":
            frame = _framed(frame[8:-1] + bytes([frame[-1] ^ 1]))
        elif way == "damage":
            frame = frame[:-1] + bytes([frame[-1] ^ 1])
        elif way == "cut":
            frame = _framed(frame[8:-1])
        elif way == "repeat":
            frame += frame
        elif way == "swap":
            self._later, frame = frame, b""
        elif way == "reflect" and self.other is not None:
            self.other._reflected += frame
            frame = b""
        elif way:
            frame = b""
        return frame + later


def _framed(sealed: bytes) -> bytes:
    return _HEAD.pack(len(sealed) + 4, crc32c(sealed)) + sealed


@final
@attrs.define(eq=False)
class LinkChecks:
    """Knows which messages were sent on each session and not heard yet.

    Ended sessions stay: a broker may handle a session's last messages in the turn after it heard of
    the end.
    """

    _sent: dict[tuple[SessionId, NodeId], deque[int]] = attrs.Factory(dict)
    heard: int = 0

    def after_turn(self, node: SimNode, events: Sequence[Event], effects: Effects) -> None:
        """Check the messages that a turn heard, and note those that it sent. Raises `Violation`."""
        for event in events:
            if type(event) is PeerMessages:
                waiting = self._sent.get((event.session, event.peer), deque())
                for message in event.messages:
                    self.heard += 1
                    digest = _digest(message)
                    if digest not in waiting:
                        raise Violation(
                            "peer-protocol",
                            f"node {node.config.node} heard {type(message).__name__} on its link "
                            f"to node {event.peer}, which did not send that there, or only once",
                        )
                    waiting.remove(digest)
        for send in effects.sends:
            key = (send.session, node.config.node)
            self._sent.setdefault(key, deque()).extend(map(_digest, send.messages))


def _digest(message: Any) -> int:
    return crc32c(b"".join(PROTOCOLS[PROTOCOL_MAX].encode([message])))
