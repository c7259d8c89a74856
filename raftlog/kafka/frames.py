"""Cuts length-prefixed frames out of received bytes without copying them.

A frame is an i32 length and that many bytes. The caller owns the memory. It receives into a slab
and shows the unread part of it to `cut`. It gets views of the whole frames, the number of bytes
that are done with, and the number that the next frame wants. So it can move a started frame to a
larger slab.

The cap comes before everything: a TLS hello or an HTTP verb on a plain port reads as a length of
hundreds of MB, and no memory is reserved for it. The API key of a request is checked as soon as it
has arrived, since only Produce may be large.
"""

from struct import Struct
from typing import Final, NamedTuple, Self, final

import attrs

from raftlog.base.errors import LocalMisuse, ProtocolError
from raftlog.base.limits import (
    FRAME_BYTES_MAX,
    FRAME_BYTES_MIN,
    FRAME_BYTES_PREAUTH_MAX,
    FRAME_BYTES_SMALL_MAX,
    RESPONSE_BYTES_MAX,
)
from raftlog.kafka.shape import Buffer

PREFIX_BYTES: Final = 4
KEY_BYTES: Final = 2
RESPONSE_BYTES_MIN: Final = 4
"""The bytes of the shortest response: its correlation id."""

_PREFIX: Final = Struct(">i")
_PREFIX_AND_KEY: Final = Struct(">ih")
_PRODUCE: Final = 0


@final
class CutFrames(NamedTuple):
    """The result of `cut`."""

    frames: list[memoryview]
    """Whole frames in order, without their length; views of the bytes that were shown."""
    consumed: int
    """The number of bytes from the start that are done with."""
    wanted: int
    """The number of bytes that the next frame takes from `consumed` on, its length included.

    It is 4 while the length is unknown, and 6 while a large frame has not said that it is a
    Produce."""


@final
@attrs.define(eq=False, kw_only=True)
class FrameCutter:
    """Finds frames; its caps may be raised when the other end has proved its identity."""

    frame_bytes_min: int
    frame_bytes_max: int
    """The largest Produce request, or response, in bytes."""
    small_frame_bytes_max: int
    """The largest request of any other API, in bytes."""
    failed: bool = False

    @classmethod
    def for_requests(cls, *, frame_bytes_max: int = FRAME_BYTES_MAX) -> Self:
        """A cutter for a listener without authentication, or a client that has passed it."""
        return cls(
            frame_bytes_min=FRAME_BYTES_MIN,
            frame_bytes_max=frame_bytes_max,
            small_frame_bytes_max=min(frame_bytes_max, FRAME_BYTES_SMALL_MAX),
        )

    @classmethod
    def before_authentication(cls) -> Self:
        """A cutter for a client that has not proved its identity yet; see `authenticated`."""
        return cls(
            frame_bytes_min=FRAME_BYTES_MIN,
            frame_bytes_max=FRAME_BYTES_PREAUTH_MAX,
            small_frame_bytes_max=FRAME_BYTES_PREAUTH_MAX,
        )

    @classmethod
    def for_responses(cls, *, frame_bytes_max: int = RESPONSE_BYTES_MAX) -> Self:
        """A cutter for the client's side."""
        return cls(
            frame_bytes_min=RESPONSE_BYTES_MIN,
            frame_bytes_max=frame_bytes_max,
            small_frame_bytes_max=frame_bytes_max,
        )

    def authenticated(self, *, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        """Raise the caps to those of a client that has proved its identity."""
        self.frame_bytes_max = frame_bytes_max
        self.small_frame_bytes_max = min(frame_bytes_max, FRAME_BYTES_SMALL_MAX)

    def cut(self, view: memoryview) -> CutFrames:
        """Cut all whole frames at the start of `view`.

        Raises ProtocolError at the first length out of bounds; frames before it are lost with the
        connection, which must close. A cutter that has failed is not used again.
        """
        if self.failed:
            raise LocalMisuse("this connection has failed", do="close it")
        frames: list[memoryview] = []
        position, end = 0, len(view)
        while end - position >= PREFIX_BYTES:
            size = self._size(view, position, end)
            start = position + PREFIX_BYTES
            if end - start < size:
                hidden = end - start < KEY_BYTES and size > self.small_frame_bytes_max
                return CutFrames(frames, position, PREFIX_BYTES + (KEY_BYTES if hidden else size))
            position = start + size
            frames.append(view[start:position])
        return CutFrames(frames, position, PREFIX_BYTES)

    def _size(self, view: memoryview, position: int, end: int) -> int:
        """The length at `position`; raises ProtocolError when it is out of bounds."""
        cap = self.frame_bytes_max
        if end - position < _PREFIX_AND_KEY.size:
            (size,) = _PREFIX.unpack_from(view, position)
        else:
            size, key = _PREFIX_AND_KEY.unpack_from(view, position)
            if key != _PRODUCE:
                cap = self.small_frame_bytes_max
        if self.frame_bytes_min <= size <= cap:
            return int(size)
        self.failed = True
        raise ProtocolError(
            f"a frame of {size} bytes, {self.frame_bytes_min} to {cap} are allowed",
            do="close; is the other end speaking TLS or HTTP?",
        )


@final
@attrs.define(eq=False)
class FrameBuffer:
    """Collects bytes in any pieces and gives whole frames: for clients and tests, at one copy."""

    cutter: FrameCutter
    _pending: bytearray = attrs.field(factory=bytearray)
    _wanted: int = PREFIX_BYTES

    def feed(self, piece: Buffer) -> list[memoryview]:
        """Take a piece; returns the frames that it completes.

        ProtocolError as in `FrameCutter.cut`.
        """
        self._pending += piece
        if len(self._pending) < self._wanted:
            return []
        whole = bytes(self._pending)
        found = self.cutter.cut(memoryview(whole))
        del self._pending[: found.consumed]
        self._wanted = found.wanted
        return found.frames
