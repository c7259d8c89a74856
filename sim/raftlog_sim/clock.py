"""Clocks of simulated nodes: world time is exact, a node sees it shifted (and later, skewed).

A node's monotonic clock starts at a large random instant, so that an instant that leaks from one
node to another, or into the real world, shows itself at once.
"""

from typing import Final, final

import attrs

from raftlog.base.units import NANOS_PER_MILLI, NEVER, Instant, WallMillis
from raftlog_sim.streams import Stream

WALL_START_MS: Final = 1_700_000_000_000
_SHIFT_BITS: Final = 50


@final
@attrs.define(eq=False)
class NodeClock:
    """`shift` is drawn per boot; `wall_skew_ms` stays with the machine."""

    shift: int
    wall_skew_ms: int = 0

    @classmethod
    def drawn(cls, stream: Stream) -> "NodeClock":
        """A clock of a boot."""
        return cls((1 << _SHIFT_BITS) + stream.below(1 << _SHIFT_BITS))

    def now(self, world_ns: int) -> Instant:
        """What the node reads at that world time."""
        return Instant(world_ns + self.shift)

    def wall(self, world_ns: int) -> WallMillis:
        """Unix time as the node sees it."""
        return WallMillis(WALL_START_MS + world_ns // NANOS_PER_MILLI + self.wall_skew_ms)

    def world(self, instant: Instant) -> int | None:
        """The world time at which the node's clock shows `instant`; None for never."""
        return None if instant == NEVER else instant - self.shift
