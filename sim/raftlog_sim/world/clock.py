"""Clocks of simulated nodes: world time is exact, a node sees it shifted, drifting and skewed.

A node's monotonic clock starts at a large random instant, so that an instant that leaks from one
node to another, or into the real world, shows itself at once. It may run fast or slow, but never
goes back; wall clocks jump as they like.
"""

from typing import Final, final

import attrs

from raftlog.base.units import NANOS_PER_MILLI, NEVER, Instant, WallMillis
from raftlog_sim.base.streams import Stream

WALL_START_MS: Final = 1_700_000_000_000
_SHIFT_BITS: Final = 50
_MILLION: Final = 1_000_000


@final
@attrs.define(eq=False)
class MachineClock:
    """What stays with a machine over its boots: by how much its wall clock is off, how far and how
    often it swings, how many parts in a million its monotonic clock runs fast (below 0: slow), and
    by how much timers are late at the most. `worst_ms` is the most that its wall clock ever was
    off."""

    skew_ms: int = 0
    worst_ms: int = 0
    drift_ppm: int = 0
    wave_ms: int = 0
    period_ms: int = 1
    late_ns: int = 0

    def off_ms(self, world_ms: int) -> int:
        """By how much the wall clock is wrong at that world time."""
        if not self.wave_ms:
            return self.skew_ms
        turned = 4 * (world_ms % self.period_ms)  # 0 to 4 periods: up, down, down, up
        height = min(turned, 2 * self.period_ms - turned)
        height = max(height, turned - 4 * self.period_ms)
        return self.skew_ms + self.wave_ms * height // self.period_ms


@final
@attrs.define(eq=False)
class NodeClock:
    """The clocks of one boot. At world time `since` the monotonic one showed `shown`."""

    shown: int
    machine: MachineClock
    draws: Stream
    since: int = 0
    _ppm: int = 0

    @classmethod
    def drawn(cls, stream: Stream, machine: MachineClock) -> "NodeClock":
        """A clock of a boot."""
        shown = (1 << _SHIFT_BITS) + stream.below(1 << _SHIFT_BITS)
        return cls(shown, machine, stream.fork("late"))

    def now(self, world_ns: int) -> Instant:
        """What the node reads at that world time."""
        if self._ppm != self.machine.drift_ppm:
            self.shown, self.since = self._at(world_ns), world_ns
            self._ppm = self.machine.drift_ppm
        if self._ppm == 0:
            return Instant(self.shown + world_ns - self.since)
        return Instant(self._at(world_ns))

    def _at(self, world_ns: int) -> int:
        passed = world_ns - self.since
        return self.shown + passed + passed * self._ppm // _MILLION

    def wall(self, world_ns: int) -> WallMillis:
        """Unix time as the node sees it."""
        world_ms = world_ns // NANOS_PER_MILLI
        return WallMillis(WALL_START_MS + world_ms + self.machine.off_ms(world_ms))

    def world(self, instant: Instant) -> int | None:
        """The first world time at which the node's clock shows `instant`, as it runs now, or when
        a late timer rings for it; None for never."""
        if instant == NEVER:
            return None
        wanted, late = instant - self.shown, self.machine.late_ns
        if late:
            late = self.draws.below(late + 1)
        if self._ppm == 0:
            return self.since + wanted + late
        return self.since - (-wanted * _MILLION // (_MILLION + self._ppm)) + late
