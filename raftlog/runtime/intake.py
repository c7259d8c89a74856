"""What frames may cost that no turn has taken: a bound on receive memory over all clients of a
process.

A client may announce 32 MiB and send a byte, or all but the last one, on as many connections as it
likes. Slabs grow only with what has arrived (`FrameReceiver`), and what they hold in all is bounded
here: beyond it receivers wait with reading, but for the one whose frame began first, so that
somebody always finishes. Whole frames count until they are handed in, which a paused connection
may put off.

While somebody waits for memory, the time of those who hold it counts: that in which they wait for
their senders, or are paused, but not that in which they wait themselves, for memory or for a turn.
Whose frame takes too much of it, all pauses and all pieces together, is sent away; a sender that
stands still uses it up faster (as web servers' least rates of requests do, against Slowloris).
"""

from typing import Final, Protocol, final

import attrs
import trio

from raftlog.base.units import KIB, MIB

RECEIVING_BYTES_MAX: Final = 16 * MIB
"""Slabs of unfinished frames, beyond the smallest class: a few large requests of honest clients at
one time, and with one frame of the largest size still under 64 MiB."""
FRAME_SECONDS_MAX: Final = 10.0
"""For one frame, with the pauses in its midst, while others wait; a megabyte at 1 Mbit/s takes
eight."""
STILL_SECONDS_MAX: Final = 2.0
"""For a frame of which nothing comes, while others wait."""
_LOOK_SECONDS: Final = 0.5
_STILL_BYTES: Final = 16 * KIB
"""Who sends less between two looks stands still: 32 KiB a second, a quarter of 1 Mbit/s."""


class Receiver(Protocol):
    """Who holds memory for the frames of a connection."""

    def arrived(self) -> int | None:
        """Bytes of its unfinished frame; None while it does not wait for its sender."""

    def evict(self) -> None:
        """Say that it took too long, and end the connection. May be asked again."""


@final
@attrs.define
class _Share:
    """What one receiver holds for the frame under way."""

    size: int
    used: float = 0.0
    """Seconds of its sender, or paused, while others waited: a frame's worth is
    `FRAME_SECONDS_MAX`."""
    seen: int | None = None
    """Bytes that had arrived at the last look; None when it did not wait for its sender then."""


@final
@attrs.define(eq=False)
class Intake:
    """The shares of all receivers; the one whose frame began first stands first."""

    bytes_max: int = RECEIVING_BYTES_MAX
    held: int = attrs.field(default=0, init=False)
    _shares: dict[Receiver, _Share] = attrs.field(factory=dict, init=False)
    _resting: dict[Receiver, None] = attrs.field(factory=dict, init=False)
    """Their connections are paused: nobody waits for their frames."""
    _waiting: dict[Receiver, None] = attrs.field(factory=dict, init=False)
    """They may have sent everything long ago, and are not the ones that take long."""
    _look_at: float = attrs.field(default=0.0, init=False)
    """When who waits looks after the others next: there may be thousands of both."""
    _released: trio.Event = attrs.field(factory=trio.Event, init=False)

    @property
    def contended(self) -> bool:
        """Whether somebody waits for memory: nobody should hold more than it needs."""
        return bool(self._waiting)

    def has_room(self, who: Receiver, size: int) -> bool:
        """Whether `who` may hold `size` bytes within the bound."""
        return self._held_by_others(who) + size <= self.bytes_max

    def admits(self, who: Receiver, size: int) -> bool:
        """Whether `who` may hold `size` bytes, which its frame needs, now.

        Nobody waits for less than it holds. One frame may go beyond the bound, so that somebody
        always finishes: the first whose others are within it. Who went beyond receives that frame
        and no byte more, so that it holds nothing when the frame is handed in; and since its others
        were within the bound then, somebody's always are, wherever a pause may have put it.
        """
        share = self._shares.get(who)
        if self.has_room(who, size) or (share is not None and size <= share.size):
            return True
        if not self._others_within(who):
            return False
        fitting = (k for k in self._shares if k not in self._resting and self._others_within(k))
        return next(fitting, who) is who

    def _others_within(self, who: Receiver) -> bool:
        return self._held_by_others(who) <= self.bytes_max

    def _held_by_others(self, who: Receiver) -> int:
        share = self._shares.get(who)
        return self.held - (share.size if share else 0)

    async def admit(self, who: Receiver, size: int) -> None:
        """Wait until `who` may hold `size` bytes; meanwhile end frames that take too long."""
        if self.admits(who, size):
            return
        share = self._shares.setdefault(who, _Share(0))  # who holds nothing has its place, too
        self._waiting[who] = None
        try:
            while not self.admits(who, size):
                with trio.move_on_after(_LOOK_SECONDS):
                    await self._released.wait()
                self._look()
        finally:
            del self._waiting[who]
            share.seen = None

    def hold(self, who: Receiver, size: int) -> None:
        """`who` holds `size` bytes from now on; its frame began now, or when its share began."""
        share = self._shares.get(who)
        if share is None:
            share = self._shares[who] = _Share(0)
        more = size - share.size
        share.size = size
        self.held += more
        if more < 0:
            self._wake()

    def progressed(self, who: Receiver) -> None:
        """A frame of `who` became whole; what it still holds belongs to the next one."""
        share = self._shares.pop(who, None)
        if share is not None:
            self._shares[who] = _Share(share.size)
            self._wake()

    def rest(self, who: Receiver) -> None:
        """The connection of `who` is paused: what it holds it keeps, and its frame is not the one
        that others let pass first, for it may stand still for as long as its requests wait."""
        if who in self._shares:
            self._resting[who] = None
            self._wake()

    def resume(self, who: Receiver) -> None:
        """It is paused no more, and takes its place behind those who came meanwhile."""
        if who in self._resting:
            del self._resting[who]
            self._shares[who] = self._shares.pop(who)

    def release(self, who: Receiver) -> None:
        """`who` holds nothing any more."""
        self._resting.pop(who, None)
        share = self._shares.pop(who, None)
        if share is not None:
            self.held -= share.size
            self._wake()

    def _wake(self) -> None:
        if not self._waiting:
            return
        self._released.set()
        self._released = trio.Event()

    def _look(self) -> None:
        """One look for all who wait. It counts for `_LOOK_SECONDS` and no more: since the one
        before, nobody may have waited, or this process stood still."""
        now = trio.current_time()
        if now < self._look_at:
            return
        self._look_at = now + _LOOK_SECONDS
        for who, share in list(self._shares.items()):
            pace = self._pace(who, share)
            share.used += _LOOK_SECONDS * pace
            if pace and share.used > FRAME_SECONDS_MAX:
                who.evict()

    def _pace(self, who: Receiver, share: _Share) -> float:
        """How fast `who` uses up the time of its frame."""
        before, share.seen = share.seen, None
        if who in self._resting:
            return 1.0
        arrived = None if who in self._waiting else who.arrived()
        if arrived is None:
            return 0.0
        share.seen = arrived
        if before is None or arrived - before >= _STILL_BYTES:
            return 1.0
        return FRAME_SECONDS_MAX / STILL_SECONDS_MAX
