"""Faults that are aimed at a moment of a partition's life, drawn before the run like all others."""

from collections.abc import Iterator
from typing import Final

from raftlog_sim.base.streams import Stream
from raftlog_sim.schedules.options import SimOptions
from raftlog_sim.schedules.schedule import Step, step

_WHEN: Final = ("membership", "joint", "transfer", "marker", "install", "roll", "lease", "level")
_WHAT: Final = ("crash", "power", "pause", "stall", "cut", "deaf", "mute", "cut-old")


def at_moments(options: SimOptions) -> Iterator[Step]:
    """Aim faults at moments of a partition, in half of the wide seeds.

    They have a stream of their own, so all other steps stay as they were without them.
    """
    stream = Stream(options.seed, "schedule/at-moment")
    gap_ms = 200 << stream.below(4)
    at_ms = stream.below(gap_ms) if stream.chance(1, 2) else options.safety_ms
    while at_ms < options.safety_ms:
        partition, lasts_ms = stream.below(options.partitions), stream.between(20, 900)
        when, what = _WHEN[stream.below(len(_WHEN))], _WHAT[stream.below(len(_WHAT))]
        yield step(at_ms, "at-moment", lasts_ms, partition=partition, when=when, what=what)
        at_ms += stream.between(gap_ms // 2, gap_ms * 2)
