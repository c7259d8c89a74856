"""What frames may cost that no turn has taken: a bound on receive memory over all clients of a
process.

A client may announce 32 MiB and send a byte, or all but the last one, on as many connections as it
likes. Slabs grow only with what has arrived (`FrameReceiver`), and what they hold in all is bounded
here: beyond it receivers wait with reading, but for the one whose frame began first, so that
somebody always finishes. Whole frames count until they are handed in, which a paused connection
may put off.

While somebody waits for memory, the time of those who hold some counts: that of its sender, which
is short when nothing comes (web servers ask for a least rate of requests likewise, against
Slowloris) and bounded for a frame beyond the bound, that in which its connection is paused, and
that in which it waits for more memory itself, which is as long as clients wait for an answer.
Whoever has used up one of them is sent away. Time in which a receiver waits for a turn, say for a
disk, is nobody's.
"""

from typing import Final, Protocol, final

import attrs
import trio

from raftlog.base.units import KIB, MIB

RECEIVING_BYTES_MAX: Final = 16 * MIB
"""Slabs of unfinished frames, beyond the smallest class: a few large requests of honest clients at
one time, and with one frame of the largest size still under 64 MiB."""
ORDINARY_BYTES_MAX: Final = MIB + 64 * KIB
"""A slab for what clients send at most unless told otherwise. Who waits for no more comes before
large frames: each of those would take all there is, go beyond it, and let nobody else in until it
is whole."""
FRAME_SECONDS_MAX: Final = 10.0
"""Of a sender, for one frame, and a second more for each 2 MiB of it that come meanwhile; a
megabyte at 1 Mbit/s takes eight."""
STILL_SECONDS_MAX: Final = 2.0
"""Of a sender from whom next to nothing comes for what it holds, at a stretch."""
STILL_BEYOND_SECONDS_MAX: Final = 1.0
"""The same for a frame beyond the bound, of which more is asked: nobody else gets any memory
meanwhile."""
BEYOND_SECONDS_MAX: Final = 12.0
"""Of a sender whose frame is beyond the bound, however much comes: after two such frames those who
wait are still there. 100 MiB need 7 MB/s, or a moment in which nobody waits; who is slower costs
itself, and not everybody else."""
PAUSE_SECONDS_MAX: Final = 10.0
"""Of a frame whose connection is paused in its midst, all pauses together."""
WAIT_SECONDS_MAX: Final = 30.0
"""Of a frame that waits for memory: what clients wait for an answer (`request.timeout.ms`); then
they have given up, and the line is not longer than that."""
_LOOK_SECONDS: Final = 0.5
_STILL_BYTES: Final = 16 * KIB
"""Who sends less between two looks stands still, beyond the bound or with a slab that is large."""
_STILL_SHARE: Final = 160
"""Within the bound, who sends less than one in so many bytes of its slab. Who keeps one rate and is
done in ten seconds, which are twenty looks, sends more: a slab is at most eight times what has come
(the classes), unless earlier frames earned a larger one."""
_BYTES_A_SECOND: Final = 2 * MIB


class Receiver(Protocol):
    """Who holds memory for the frames of a connection."""

    def arrived(self) -> int | None:
        """Bytes of its unfinished frame; None while it does not wait for its sender."""

    def give_back(self) -> None:
        """It is paused: hold no more than its unfinished frame needs."""

    def evict(self) -> None:
        """Say that it took too long, and end the connection. May be asked again."""


@final
@attrs.define
class _Share:
    """What one receiver holds for the frame under way, and the seconds that it took while others
    waited: `sent` waiting for its sender, `still` of them in a row without its bytes, `beyond` of
    them beyond the bound, `paused`, and `waited` for memory itself."""

    size: int
    sent: float = 0.0
    still: float = 0.0
    beyond: float = 0.0
    paused: float = 0.0
    waited: float = 0.0
    before: int | None = None
    """Bytes that had arrived at the first look: they need no more time."""
    seen: int | None = None
    """Bytes that had arrived at the last look; None when it did not wait for its sender then."""

    def look_at_sender(self, arrived: int, beyond: bool) -> bool:
        """Whether its sender has used up its time, at a look."""
        if self.before is None:
            self.before = arrived
        least = _STILL_BYTES if beyond else min(_STILL_BYTES, max(1, self.size // _STILL_SHARE))
        stood = self.seen is not None and arrived - self.seen < least
        self.still = self.still + _LOOK_SECONDS if stood else 0.0
        self.seen = arrived
        self.sent += _LOOK_SECONDS
        self.beyond += _LOOK_SECONDS if beyond else 0.0
        return (
            self.still >= (STILL_BEYOND_SECONDS_MAX if beyond else STILL_SECONDS_MAX)
            or self.beyond > BEYOND_SECONDS_MAX
            or self.sent > FRAME_SECONDS_MAX + (arrived - self.before) / _BYTES_A_SECOND
        )

    def look_at_paused(self) -> bool:
        """Whether it was paused for too long, at a look."""
        self.seen = None
        self.paused += _LOOK_SECONDS
        return self.paused > PAUSE_SECONDS_MAX

    def look_at_waiting(self, free: bool) -> bool:
        """Whether it waited for memory for too long, at a look. When some comes `free` now it has
        one look more, but no second one: the line would be as long as others are late."""
        self.seen = None
        self.waited += _LOOK_SECONDS
        return self.waited > WAIT_SECONDS_MAX + (_LOOK_SECONDS if free else 0.0)


@final
@attrs.define
class _Wish:
    """What somebody waits for, and what wakes it."""

    size: int
    woken: trio.Event = attrs.field(factory=trio.Event)


@final
@attrs.define(eq=False)
class Intake:
    """The shares of all receivers; the one whose frame began first stands first.

    Of those who wait for something that is there, the first is woken, and wakes the next when it
    has taken it: thousands may wait.
    """

    bytes_max: int = RECEIVING_BYTES_MAX
    held: int = attrs.field(default=0, init=False)
    _shares: dict[Receiver, _Share] = attrs.field(factory=dict, init=False)
    _resting: dict[Receiver, None] = attrs.field(factory=dict, init=False)
    """Their connections are paused: nobody waits for their frames."""
    _waiting: dict[Receiver, _Wish] = attrs.field(factory=dict, init=False)
    _looking: Receiver | None = attrs.field(default=None, init=False)
    """The one of those who wait that looks after the others, for all of them."""
    _look_at: float = attrs.field(default=0.0, init=False)

    @property
    def receivers(self) -> int:
        """How many hold memory, or wait for some."""
        return len(self._shares)

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
        if not self._waiting:
            self._look_at = trio.current_time() + _LOOK_SECONDS
            for resting in list(self._resting):
                resting.give_back()
        self._shares.setdefault(who, _Share(0))  # who holds nothing has its place, too
        wish = self._waiting[who] = _Wish(size)
        try:
            while not self.admits(who, size):
                wish.woken = trio.Event()
                await self._wait(who, wish)
        finally:
            del self._waiting[who]
            if self._looking is who:
                self._looking = None
            if self._looking is None and self._waiting:
                next(iter(self._waiting.values())).woken.set()  # it looks from now on

    async def _wait(self, who: Receiver, wish: _Wish) -> None:
        """Wait to be woken; the first who comes here looks after the others meanwhile."""
        if self._looking is None:
            self._looking = who
        if self._looking is not who:
            await wish.woken.wait()
            return
        with trio.move_on_at(self._look_at):
            await wish.woken.wait()
        self._look()

    def hold(self, who: Receiver, size: int) -> None:
        """`who` holds `size` bytes from now on; its frame began now, or when its share began."""
        share = self._shares.get(who)
        if share is None:
            share = self._shares[who] = _Share(0)
        self.held += size - share.size
        share.size = size
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
        """Wake the first for whom there is room within the bound, of ordinary frames before large
        ones, which take it all and then go beyond the bound; else the one who may go beyond it, if
        that one waits."""
        if not self._waiting:
            return
        large: Receiver | None = None
        beyond: Receiver | None = None
        for who, share in self._shares.items():
            wish = self._waiting.get(who)
            if wish is not None and self.held - share.size + wish.size <= self.bytes_max:
                if wish.size <= ORDINARY_BYTES_MAX:
                    wish.woken.set()
                    return
                large = large or who
            within = self.held - share.size <= self.bytes_max
            if beyond is None and within and who not in self._resting:
                beyond = who
            if beyond is not None and self.held >= self.bytes_max:
                break  # who waits wants more than it holds: there is no room for anybody
        next_one = large or beyond
        if next_one in self._waiting:
            self._waiting[next_one].woken.set()

    def _look(self) -> None:
        """One look, for all who wait, `_LOOK_SECONDS` after the one before or since somebody waits.
        It counts for no more, for this process may have stood still."""
        now = trio.current_time()
        if now < self._look_at:
            return
        self._look_at = now + _LOOK_SECONDS
        held = [each for each in self._shares.items() if each[0] not in self._waiting]
        late = [who for who, share in held if self._is_late(who, share)]
        free = bool(late)
        late += [who for who in self._waiting if self._shares[who].look_at_waiting(free)]
        for who in late:
            who.evict()
        self._wake()

    def _is_late(self, who: Receiver, share: _Share) -> bool:
        if who in self._resting:
            return share.look_at_paused()
        arrived = who.arrived()
        if arrived is None:  # it waits for a turn
            share.seen = None
            return False
        beyond = self.held > self.bytes_max and self._others_within(who)
        return share.look_at_sender(arrived, beyond)
