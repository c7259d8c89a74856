"""Bounds the memory that unfinished request frames may hold, over all clients of the process.

The problem: a client can announce a 32 MiB frame, send one byte (or all but the last one), and
keep the slab, on thousands of connections.

How it works:

1. A slab grows only with the bytes that have arrived (`FrameReceiver`).
2. The sum of all slabs is limited to `RECEIVING_BYTES_MAX`. At the limit every receiver stops
   reading, except the one whose frame began first. That one may exceed the limit, so that some
   frame always completes.
3. While any receiver waits for memory, each connection that holds memory runs three clocks.
   Sending: how long its client has taken. Paused: how long the broker has paused it. Waiting: how
   long it has waited for more memory. A connection that exhausts one of them is closed.

The sending clock ends early when nearly nothing arrives, or when the frame exceeds the limit. Web
servers require a least rate of requests for the same reason, against Slowloris. The waiting clock
is as long as clients wait for an answer. Time in which a receiver waits for a turn of the broker,
for example for a disk, counts on no clock.

A whole frame counts until the driver takes it, which a paused connection may delay.
"""

from typing import Final, Protocol, final

import attrs
import trio

from raftlog.base.units import KIB, MIB

RECEIVING_BYTES_MAX: Final = 16 * MIB
"""The most bytes in the slabs of unfinished frames; slabs of the smallest class do not count. It
has room for a few large requests of honest clients, and one frame of the largest size on top of it
stays under 64 MiB."""
ORDINARY_BYTES_MAX: Final = MIB + 64 * KIB
"""The size of a slab for the largest request that a client sends by default. Receivers that wait
for no more than this come before larger ones. A larger frame would take all free memory, exceed the
limit, and admit no other receiver until it is whole."""
FRAME_SECONDS_MAX: Final = 10.0
"""The longest time a client may take to send one frame while others wait for memory. Each 2 MiB
that arrive meanwhile add a second. A megabyte at 1 Mbit/s takes eight seconds."""
STILL_SECONDS_MAX: Final = 2.0
"""The longest time a client may send (almost) nothing while it holds memory that others
wait for."""
STILL_BEYOND_SECONDS_MAX: Final = 1.0
"""The longest time a client may send (almost) nothing of a frame that exceeds the limit. It is
shorter, because no other receiver gets memory meanwhile."""
BEYOND_SECONDS_MAX: Final = 12.0
"""The longest time a client may take for a frame that exceeds the limit, however much arrives.
Receivers that wait outlast two such frames. A frame of 100 MiB needs 7 MB/s, or a moment in which
no receiver waits. A slower client loses its own connection, and the others go on."""
PAUSE_SECONDS_MAX: Final = 10.0
"""The longest time an unfinished frame may hold memory while its connection is paused, over all
pauses of that frame."""
WAIT_SECONDS_MAX: Final = 30.0
"""The longest time a frame may wait for memory: as long as clients wait for an answer
(`request.timeout.ms`). Later the client has given up. This also bounds the queue of waiters."""
_LOOK_SECONDS: Final = 0.5
_STILL_BYTES: Final = 16 * KIB
"""A client that sends less between two looks stands still, if its frame exceeds the limit or its
slab is large."""
_STILL_SHARE: Final = 160
"""Within the limit, a client stands still if it sends less than this fraction (1/160) of its slab
between two looks. A client with a steady rate that finishes in ten seconds, or twenty looks, sends
more. A slab is at most eight times as large as the bytes in it, by the size classes, unless earlier
frames earned a larger one."""
_BYTES_A_SECOND: Final = 2 * MIB


class Receiver(Protocol):
    """Holds memory for the frames of one connection."""

    def arrived(self) -> int | None:
        """Bytes that have arrived of the unfinished frame; None unless it waits for its client."""

    def give_back(self) -> None:
        """Shrink to what the unfinished frame needs. Asked while the connection is paused."""

    def evict(self) -> None:
        """Report that the frame took too long and end the connection. May be called again."""


@final
@attrs.define
class _Share:
    """The bytes that one receiver holds for its present frame, and its clocks in seconds.

    The clocks run only while some receiver waits for memory. `sent`: it waited for its client.
    `still`: the latest stretch of that with (almost) no bytes. `beyond`: the part of `sent` in
    which the frame exceeded the limit. `paused`: its connection was paused. `waited`: it waited
    for memory itself.
    """

    size: int
    sent: float = 0.0
    still: float = 0.0
    beyond: float = 0.0
    paused: float = 0.0
    waited: float = 0.0
    before: int | None = None
    """Bytes that had arrived at the first look. They earn the client no extra time."""
    seen: int | None = None
    """Bytes that had arrived at the last look; None when it did not wait for its client then."""

    def look_at_sender(self, arrived: int, beyond: bool) -> bool:
        """Advance the sending clocks by one look; whether the client has used up its time."""
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
        """Advance the paused clock by one look; whether the pauses took too long."""
        self.seen = None
        self.paused += _LOOK_SECONDS
        return self.paused > PAUSE_SECONDS_MAX

    def look_at_waiting(self, free: bool) -> bool:
        """Advance the waiting clock by one look; whether it waited too long.

        `free`: memory becomes free at this look.
        """
        self.seen = None
        self.waited += _LOOK_SECONDS
        # Free memory earns one more look, and no second one: otherwise each late client would
        # lengthen the queue.
        return self.waited > WAIT_SECONDS_MAX + (_LOOK_SECONDS if free else 0.0)


@final
@attrs.define
class _Waiter:
    """The bytes that one receiver waits for, and the event that wakes it."""

    size: int
    woken: trio.Event = attrs.field(factory=trio.Event)


@final
@attrs.define(eq=False)
class Intake:
    """The shares of all receivers, in the order in which their frames began.

    Thousands may wait. When memory becomes free, only the first receiver that it suffices for is
    woken; that one wakes the next when it has taken its share.
    """

    bytes_max: int = RECEIVING_BYTES_MAX
    held: int = attrs.field(default=0, init=False)
    _shares: dict[Receiver, _Share] = attrs.field(factory=dict, init=False)
    _resting: dict[Receiver, None] = attrs.field(factory=dict, init=False)
    """Receivers whose connections are paused. Others need not let their frames finish first."""
    _waiting: dict[Receiver, _Waiter] = attrs.field(factory=dict, init=False)
    _looking: Receiver | None = attrs.field(default=None, init=False)
    """The waiting receiver that runs the periodic look at all clocks, for all that wait."""
    _look_at: float = attrs.field(default=0.0, init=False)

    @property
    def receivers(self) -> int:
        """The number of receivers that hold memory or wait for it."""
        return len(self._shares)

    @property
    def contended(self) -> bool:
        """Whether any receiver waits for memory; then all should hold no more than they need."""
        return bool(self._waiting)

    def has_room(self, who: Receiver, size: int) -> bool:
        """Whether `who` may hold `size` bytes within the limit."""
        return self._held_by_others(who) + size <= self.bytes_max

    def admits(self, who: Receiver, size: int) -> bool:
        """Whether `who` may now hold the `size` bytes that its frame needs.

        One receiver may exceed the limit, so that some frame always completes: the first, among
        those that are not paused, for which the others together stay within the limit. Such a
        receiver always exists. The one that exceeds the limit reads its frame and nothing more, so
        it holds nothing once the frame is handed in, and its others were within the limit. A pause
        may change its place in the order and does not change that.
        """
        share = self._shares.get(who)
        # A receiver never waits for less than it already holds.
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
        """Wait until `who` may hold `size` bytes; meanwhile evict frames that take too long."""
        if self.admits(who, size):
            return
        if not self._waiting:
            self._look_at = trio.current_time() + _LOOK_SECONDS
            for resting in list(self._resting):
                resting.give_back()
        self._shares.setdefault(who, _Share(0))  # a place in the order, without memory
        waiter = self._waiting[who] = _Waiter(size)
        try:
            while not self.admits(who, size):
                waiter.woken = trio.Event()
                await self._wait(who, waiter)
        finally:
            del self._waiting[who]
            if self._looking is who:
                self._looking = None
            if self._looking is None and self._waiting:
                next(iter(self._waiting.values())).woken.set()  # this one looks from now on

    async def _wait(self, who: Receiver, waiter: _Waiter) -> None:
        """Wait to be woken; the first receiver that waits also looks at the clocks of all."""
        if self._looking is None:
            self._looking = who
        if self._looking is not who:
            await waiter.woken.wait()
            return
        with trio.move_on_at(self._look_at):
            await waiter.woken.wait()
        self._look()

    def hold(self, who: Receiver, size: int) -> None:
        """Book `size` bytes for `who`. Its frame began with its share, or now if it had none."""
        share = self._shares.get(who)
        if share is None:
            share = self._shares[who] = _Share(0)
        self.held += size - share.size
        share.size = size
        self._wake()

    def progressed(self, who: Receiver) -> None:
        """A frame of `who` became whole. The memory it still holds belongs to its next frame."""
        share = self._shares.pop(who, None)
        if share is not None:
            self._shares[who] = _Share(share.size)
            self._wake()

    def rest(self, who: Receiver) -> None:
        """The connection of `who` is paused. It keeps its memory and loses its turn to go first."""
        # Its frame may stand still for as long as its requests wait, so the others do not wait
        # for it to finish.
        if who in self._shares:
            self._resting[who] = None
            self._wake()

    def resume(self, who: Receiver) -> None:
        """End the pause of `who`. Its frame goes behind those that began meanwhile."""
        if who in self._resting:
            del self._resting[who]
            self._shares[who] = self._shares.pop(who)

    def release(self, who: Receiver) -> None:
        """Free the share of `who`: it holds no memory from now on."""
        self._resting.pop(who, None)
        share = self._shares.pop(who, None)
        if share is not None:
            self.held -= share.size
            self._wake()

    def _wake(self) -> None:
        """Wake the waiting receiver that comes next, if there is one.

        1. The first ordinary frame that fits within the limit.
        2. The first large frame that fits. It comes later because it takes all free memory.
        3. The receiver that may exceed the limit, if it waits.
        """
        if not self._waiting:
            return
        large: Receiver | None = None
        beyond: Receiver | None = None
        for who, share in self._shares.items():
            waiter = self._waiting.get(who)
            if waiter is not None and self.held - share.size + waiter.size <= self.bytes_max:
                if waiter.size <= ORDINARY_BYTES_MAX:
                    waiter.woken.set()
                    return
                large = large or who
            within = self.held - share.size <= self.bytes_max
            if beyond is None and within and who not in self._resting:
                beyond = who
            if beyond is not None and self.held >= self.bytes_max:
                break  # a receiver waits only for more than it holds, so none fits now
        next_one = large or beyond
        if next_one in self._waiting:
            self._waiting[next_one].woken.set()

    def _look(self) -> None:
        """Advance all clocks by `_LOOK_SECONDS`, once that long has passed; evict the late."""
        now = trio.current_time()
        if now < self._look_at:
            return
        # A late look advances the clocks by no more than a punctual one: this process may have
        # stood still, which is no fault of a client.
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
        if arrived is None:  # it waits for a turn of the broker, which counts on no clock
            share.seen = None
            return False
        beyond = self.held > self.bytes_max and self._others_within(who)
        return share.look_at_sender(arrived, beyond)
