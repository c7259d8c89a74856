"""Clocks of simulated nodes: world time is exact, a node sees it shifted, drifting and skewed.

A node's monotonic clock starts at a large random instant. An instant that leaks from one node to
another, or into the real world, therefore shows at once. The monotonic clock may run fast or slow,
but never goes back. A wall clock may jump in both directions.
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
    """The errors of a machine's clocks, which stay with the machine over its boots."""

    skew_ms: int = 0
    """How far the wall clock is ahead of world time, apart from its swing."""
    worst_ms: int = 0
    """The largest error that the wall clock ever had."""
    drift_ppm: int = 0
    """How many parts in a million the monotonic clock runs fast; below 0 it runs slow."""
    wave_ms: int = 0
    """How far the wall clock swings to either side of its skew."""
    period_ms: int = 1
    """How long one swing takes."""
    late_ns: int = 0
    """How late a timer rings at the most."""

    def off_ms(self, world_ms: int) -> int:
        """Returns how far the wall clock is ahead of world time at `world_ms`."""
        if not self.wave_ms:
            return self.skew_ms
        turned = 4 * (world_ms % self.period_ms)  # 0 to 4 periods: up, down, down, up
        height = min(turned, 2 * self.period_ms - turned)
        height = max(height, turned - 4 * self.period_ms)
        return self.skew_ms + self.wave_ms * height // self.period_ms


@final
@attrs.define(eq=False)
class NodeClock:
    """The clocks of one boot. At world time `since` the monotonic clock showed `shown`."""

    shown: int
    machine: MachineClock
    draws: Stream
    since: int = 0
    _ppm: int = 0

    @classmethod
    def drawn(cls, stream: Stream, machine: MachineClock) -> "NodeClock":
        """Draw the clock of a boot, which starts at a random instant."""
        shown = (1 << _SHIFT_BITS) + stream.below(1 << _SHIFT_BITS)
        return cls(shown, machine, stream.fork("late"))

    def now(self, world_ns: int) -> Instant:
        """Returns what the monotonic clock shows at that world time."""
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
        """Returns what the wall clock shows at that world time: Unix time with its error."""
        world_ms = world_ns // NANOS_PER_MILLI
        return WallMillis(WALL_START_MS + world_ms + self.machine.off_ms(world_ms))

    def world(self, instant: Instant) -> int | None:
        """Returns the world time at which a timer for `instant` rings; None for NEVER.

        That is the first time at which the clock, as it runs now, shows `instant`. A late timer
        rings up to `late_ns` after it.
        """
        if instant == NEVER:
            return None
        wanted, late = instant - self.shown, self.machine.late_ns
        if late:
            late = self.draws.below(late + 1)
        if self._ppm == 0:
            return self.since + wanted + late
        return self.since - (-wanted * _MILLION // (_MILLION + self._ppm)) + late
