"""What a seed decides: the size of the cluster, the workload, and which faults are on and how
often.

Each kind of fault is off with probability one half, so that every seed is a different mixture: a
sweep with everything always on finds less (LESSONS 1.1, swarm). All options are printed with the
seed.
"""

from typing import Any, Final, final

import attrs

from raftlog_sim.streams import Stream

FAULTS: Final = ("crash", "power", "all", "partition", "reset", "pause", "stall")
PROFILES: Final = ("swarm", "calm")


@final
@attrs.frozen(kw_only=True)
class SimOptions:
    """The options of one run. Gaps are the mean time between two faults of a kind; 0 is never."""

    seed: int
    profile: str
    brokers: int
    controllers: int
    partitions: int
    replication: int
    min_in_sync: int
    producers: int
    encode: bool
    sync_us: int
    """How long a sync takes: the longer, the more is in flight when a machine dies."""
    segment_bytes: int
    fault_gaps_ms: tuple[tuple[str, int], ...]
    safety_ms: int
    events_max: int

    def document(self) -> dict[str, Any]:
        """For run.json and for people."""
        return {**attrs.asdict(self), "fault_gaps_ms": dict(self.fault_gaps_ms)}


def draw_options(seed: int, profile: str = "swarm") -> SimOptions:
    """The options of a seed. `calm` has no faults at all: a control that must always pass."""
    stream = Stream(seed, f"options/{profile}")
    brokers = 1 if stream.chance(1, 10) else 3
    if stream.chance(1, 6):
        brokers = 5
    gaps = []
    for fault in FAULTS:
        on = stream.chance(1, 2)
        gap = 150 << stream.below(5)
        gaps.append((fault, gap if on and profile != "calm" else 0))
    replication = min(3, brokers)
    return SimOptions(
        seed=seed,
        profile=profile,
        brokers=brokers,
        controllers=1 if brokers < 3 or stream.chance(1, 4) else 3,
        partitions=stream.between(1, 3),
        replication=replication,
        min_in_sync=stream.between(1, 2) if replication == 3 else 1,
        producers=stream.between(1, 4),
        encode=stream.chance(1, 10),
        sync_us=150 << stream.below(8),
        segment_bytes=65_536,
        fault_gaps_ms=tuple(gaps),
        safety_ms=stream.between(2, 6) * 1000,
        events_max=10_000,
    )
