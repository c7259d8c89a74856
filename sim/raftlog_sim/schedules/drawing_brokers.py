"""Brokers that leave the cluster and join it again, drawn before the run like all faults."""

from collections.abc import Iterator
from typing import Final

from raftlog_sim.base.streams import Stream
from raftlog_sim.schedules.options import SimOptions
from raftlog_sim.schedules.schedule import Step, step

_RATES: Final = (2_000, 20_000, 200_000)
"""The rates of throttled moves, in bytes a second."""
_HOW: Final = ("pause", "crash", "stop")
_SESSION_MS: Final = 1_000
_ELECTIONS_A_SESSION: Final = 4
"""A broker is fenced after this many election timeouts (`sizes`)."""
_TRIES: Final = 3
"""How often a broker's removal is asked for. The cluster forgets a broker only when it is fenced
and holds nothing, so an early request is repeated."""


def brokers_come_and_go(options: SimOptions) -> Iterator[Step]:
    """In half of the wide seeds with a broker to spare, one leaves now and then.

    1. Its partitions move to the others, in a third of the cases throttled.
    2. It sleeps or is down, and the cluster is told to forget it.
    3. It is back and takes a partition.

    Faults of all kinds meet it at every step.
    """
    stream = Stream(options.seed, "schedule/come-and-go")
    at_ms, on = stream.between(100, 1_500), stream.chance(1, 2)
    spare = options.brokers > max(options.replication, options.controllers)
    while on and spare and at_ms < options.safety_ms:
        gone = stream.between(options.controllers + 1, options.brokers)
        throttled = stream.chance(1, 3)
        rate = _RATES[stream.below(len(_RATES))]
        left_ms = at_ms
        for partition in range(options.partitions):
            nodes = _replicas(stream, options, without=gone)
            yield step(at_ms, "reassign", partition=partition, nodes=nodes)
        down_ms = at_ms + stream.between(50, 800)
        session_ms = max(_SESSION_MS, _ELECTIONS_A_SESSION * options.election_ms)
        away_ms = session_ms * stream.between(4, 12) // 4
        yield step(down_ms, _HOW[stream.below(len(_HOW))], away_ms, node=f"n{gone}")
        for _ in range(_TRIES):
            asked_ms = down_ms + stream.between(away_ms * 3 // 4, away_ms)
            yield step(asked_ms, "unregister", node=f"n{gone}")
        at_ms = down_ms + away_ms + stream.between(20, 600)
        partition = stream.below(options.partitions)
        nodes = _replicas(stream, options, first=gone)
        yield step(at_ms, "reassign", partition=partition, nodes=nodes)
        if throttled:
            throttled_ms = at_ms + stream.between(0, 600) - left_ms
            yield step(left_ms, "throttle", throttled_ms, rate=rate)
        at_ms += stream.between(200, 2_000)


def _replicas(stream: Stream, options: SimOptions, without: int = 0, first: int = 0) -> str:
    """Draw as many nodes as a partition has replicas; `first` is one of them, `without` is not."""
    left = [each for each in range(1, options.brokers + 1) if each not in (without, first)]
    chosen = [first] if first else []
    while len(chosen) < options.replication:
        chosen.append(left.pop(stream.below(len(left))))
    return "+".join(f"n{number}" for number in chosen)
