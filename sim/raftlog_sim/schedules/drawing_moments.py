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


def late_rounds(options: SimOptions) -> Iterator[Step]:
    """Let a leader that hands over hear late of a read round, in half of the wide seeds with
    linearizable reads.

    It asks its followers for a reader, and hands over at once. Their answers take up to an election
    timeout. Meanwhile the next leader stores records, and other readers still ask the old
    one, which must not take the late answers for theirs.
    """
    stream = Stream(options.seed, "schedule/late-rounds")
    on, at_ms, slot = stream.chance(1, 2), stream.between(200, 1_000), options.producers
    while on and options.linearizable and options.brokers > 1 and at_ms < options.safety_ms:
        partition, late_ms = stream.below(options.partitions), stream.below(options.election_ms)
        leader, follower = f"leader:{partition}", f"follower:{partition}"
        for before_ms in (90, 80, 70):  # readers that know the leader
            yield step(max(0, at_ms - before_ms), "read", partition=partition)
        yield step(max(0, at_ms - 40), "produce", slot=slot, partition=partition, count=2)
        yield step(
            at_ms, "slow-link", 2 * options.election_ms, sender="all", receiver=leader, ms=late_ms
        )
        yield step(at_ms + 1, "read", partition=partition)
        yield step(at_ms + 2, "transfer", partition=partition, node=follower)
        wait_ms = stream.between(5, 40)
        yield step(at_ms + wait_ms, "produce", slot=slot + 1, partition=partition, count=3)
        for part in (2, 3):
            soon_ms = at_ms + wait_ms + part * late_ms // 4
            yield step(soon_ms, "read", partition=partition)
        slot += 2
        at_ms += stream.between(4, 12) * options.election_ms
