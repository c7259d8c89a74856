"""What frames may cost that no turn has taken: a bound on receive memory over all clients of a
process.

A client may announce 32 MiB and send a byte, or all but the last one, on as many connections as it
likes. Slabs grow only with what has arrived (`FrameReceiver`), and what they hold in all is bounded
here: beyond it receivers wait with reading, but for the one whose frame began first, so that
somebody always finishes. Whole frames count until they are handed in, which a paused connection
may put off. Who waits looks after the others: a frame that was begun long ago and is not whole, or
whose connection was paused long ago, while others wait for its memory, ends its connection.
"""

from collections.abc import Callable
from typing import Final, NamedTuple, final

import attrs
import trio

from raftlog.base.units import MIB

RECEIVING_BYTES_MAX: Final = 16 * MIB
"""Slabs of unfinished frames, beyond the smallest class: a few large requests of honest clients at
one time, and with one frame of the largest size still under 64 MiB."""
FRAME_SECONDS_MAX: Final = 10.0
"""For one frame, or a pause in its midst, while others wait; a megabyte at 1 Mbit/s takes
eight."""
_LOOK_SECONDS: Final = 0.5


class _Share(NamedTuple):
    """What one receiver holds, since when its frame is under way, or its connection paused, and how
    to end it."""

    size: int
    since: float
    evict: Callable[[], None]


@final
@attrs.define(eq=False)
class Intake:
    """The shares of all receivers, by key; the one whose frame began first stands first."""

    bytes_max: int = RECEIVING_BYTES_MAX
    held: int = attrs.field(default=0, init=False)
    _shares: dict[int, _Share] = attrs.field(factory=dict, init=False)
    _resting: dict[int, None] = attrs.field(factory=dict, init=False)
    """Their connections are paused: nobody waits for their frames."""
    _waiting: dict[int, None] = attrs.field(factory=dict, init=False)
    """They may have sent everything long ago, and are not the ones that take long."""
    _look_at: float = attrs.field(default=0.0, init=False)
    """When who waits looks after the others next: there may be thousands of both."""
    _released: trio.Event = attrs.field(factory=trio.Event, init=False)

    def has_room(self, key: int, size: int) -> bool:
        """Whether `key` may hold `size` bytes within the bound: what it would like but can do
        without."""
        return self._held_by_others(key) + size <= self.bytes_max

    def admits(self, key: int, size: int) -> bool:
        """Whether `key` may hold `size` bytes, which its frame needs, now.

        Nobody waits for less than it holds. One frame may go beyond the bound, so that somebody
        always finishes: the first whose others are within it. Who went beyond receives that frame
        and no byte more, so that it holds nothing when the frame is handed in; and since its others
        were within the bound then, somebody's always are, wherever a pause may have put it.
        """
        share = self._shares.get(key)
        if self.has_room(key, size) or (share is not None and size <= share.size):
            return True
        if not self._others_within(key):
            return False
        fitting = (k for k in self._shares if k not in self._resting and self._others_within(k))
        return next(fitting, key) == key

    def _others_within(self, key: int) -> bool:
        return self._held_by_others(key) <= self.bytes_max

    def _held_by_others(self, key: int) -> int:
        share = self._shares.get(key)
        return self.held - (share.size if share else 0)

    async def admit(self, key: int, size: int) -> None:
        """Wait until `key` may hold `size` bytes; meanwhile end frames that take too long."""
        while not self.admits(key, size):
            self._waiting[key] = None
            try:
                with trio.move_on_after(_LOOK_SECONDS):
                    await self._released.wait()
            finally:
                del self._waiting[key]
            self._evict_slow()

    def restart(self, key: int) -> None:
        """It waited for us: that is no time its sender took."""
        share = self._shares.get(key)
        if share is not None:
            self._shares[key] = share._replace(since=trio.current_time())

    def hold(self, key: int, size: int, evict: Callable[[], None]) -> None:
        """`key` holds `size` bytes from now on; its frame began now, or when its share began."""
        before = self._shares.get(key)
        since = before.since if before else trio.current_time()
        self._shares[key] = _Share(size, since, evict)
        more = size - (before.size if before else 0)
        self.held += more
        if more < 0:
            self._wake()

    def progressed(self, key: int) -> None:
        """A frame of `key` became whole; what it still holds belongs to the next one."""
        share = self._shares.pop(key, None)
        if share is not None:
            self._shares[key] = share._replace(since=trio.current_time())
            self._wake()

    def rest(self, key: int) -> None:
        """The connection of `key` is paused: what it holds it keeps, and its frame is not the one
        that others let pass first, for it may stand still for as long as its requests wait."""
        share = self._shares.get(key)
        if share is not None:
            self._shares[key] = share._replace(since=trio.current_time())
            self._resting[key] = None
            self._wake()

    def resume(self, key: int) -> None:
        """It is paused no more, and takes its place behind those who came meanwhile."""
        if key in self._resting:
            del self._resting[key]
            share = self._shares.pop(key)
            self._shares[key] = share._replace(since=trio.current_time())

    def release(self, key: int) -> None:
        """`key` holds nothing any more."""
        self._resting.pop(key, None)
        share = self._shares.pop(key, None)
        if share is not None:
            self.held -= share.size
            self._wake()

    def _wake(self) -> None:
        if not self._waiting:
            return
        self._released.set()
        self._released = trio.Event()

    def _evict_slow(self) -> None:
        """One look for all who wait."""
        now = trio.current_time()
        if now < self._look_at:
            return
        self._look_at = now + _LOOK_SECONDS
        begun_before = now - FRAME_SECONDS_MAX
        for key, share in list(self._shares.items()):
            if share.since <= begun_before and key not in self._waiting:
                share.evict()
