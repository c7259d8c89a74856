"""From a seed to a schedule: every fault and every client operation, drawn before the run.

Each source draws from a stream of its own, so that switching one off leaves the others as they
are. A source may draw several steps at once: power that fails everywhere is one step a node.
"""

from collections.abc import Callable, Iterator
from typing import Final

from raftlog_sim.options import FAULTS, SimOptions
from raftlog_sim.schedule import Schedule, Step, step
from raftlog_sim.streams import Stream

Source = Callable[[Stream, SimOptions, int], Iterator[Step]]
KEEPS: Final = ("none", "some", "all")
_BURST_MAX: Final = 6
_READ_MS: Final = 40


def draw_schedule(options: SimOptions) -> Schedule:
    """The whole run of these options. The same options give the same schedule."""
    steps: list[Step] = []
    for slot in range(options.producers):
        steps += _produce(options, slot)
    steps += _read(options)
    for source, gap_ms in options.fault_gaps_ms:
        if gap_ms:
            steps += _faults(options, source, gap_ms)
    return Schedule(options, tuple(steps))


def _faults(options: SimOptions, source: str, gap_ms: int) -> Iterator[Step]:
    stream = Stream(options.seed, f"schedule/{source}")
    at_ms = stream.between(gap_ms // 2, gap_ms * 2)
    while at_ms < options.safety_ms:
        yield from _SOURCES[source](stream, options, at_ms)
        at_ms += stream.between(gap_ms // 2, gap_ms * 2)


def _produce(options: SimOptions, slot: int) -> Iterator[Step]:
    """Bursts of one to six records, with pauses between them that differ from seed to seed."""
    stream = Stream(options.seed, f"schedule/produce/{slot}")
    gap_ms = 8 << stream.below(4)
    at_ms = stream.below(gap_ms)
    while at_ms < options.safety_ms:
        partition = stream.below(options.partitions)
        count = stream.between(1, _BURST_MAX)
        yield step(at_ms, "produce", slot=slot, partition=partition, count=count)
        at_ms += stream.between(gap_ms // 2, gap_ms * 2)


def _read(options: SimOptions) -> Iterator[Step]:
    for number, at_ms in enumerate(range(_READ_MS, options.safety_ms, _READ_MS)):
        yield step(at_ms, "read", partition=number % options.partitions)


# --- targets --------------------------------------------------------------------------------------


def draw_node(stream: Stream, options: SimOptions) -> str:
    """A node by number, or one time in three by what it is when the step strikes."""
    number = 1 + stream.below(options.brokers)
    partition = stream.below(options.partitions)
    role = stream.below(9)
    return {0: f"leader:{partition}", 1: "controller", 2: f"follower:{partition}"}.get(
        role, f"n{number}"
    )


def draw_side(stream: Stream, options: SimOptions) -> str:
    """Some nodes, not all; one time in four whoever leads a partition."""
    if stream.chance(1, 4):
        return f"leader:{stream.below(options.partitions)}"
    numbers = list(range(1, options.brokers + 1))
    size = stream.between(1, max(1, options.brokers - 1))
    side = [numbers.pop(stream.below(len(numbers))) for _ in range(size)]
    return "+".join(f"n{number}" for number in sorted(side))


# --- sources --------------------------------------------------------------------------------------


def _crash(stream: Stream, options: SimOptions, at_ms: int) -> Iterator[Step]:
    node, down_ms = draw_node(stream, options), stream.between(10, 1200)
    yield step(at_ms, "crash", down_ms, node=node)


def _power(stream: Stream, options: SimOptions, at_ms: int) -> Iterator[Step]:
    node, keep = draw_node(stream, options), KEEPS[stream.below(3)]
    yield step(at_ms, "power", stream.between(10, 1200), node=node, keep=keep)


def _all(stream: Stream, options: SimOptions, at_ms: int) -> Iterator[Step]:
    """Power fails everywhere at once; some come back early, some late."""
    for number in range(1, options.brokers + 1):
        keep, down_ms = KEEPS[stream.below(3)], stream.between(10, 1200)
        yield step(at_ms, "power", down_ms, node=f"n{number}", keep=keep)


def _partition(stream: Stream, options: SimOptions, at_ms: int) -> Iterator[Step]:
    side, lasts_ms = draw_side(stream, options), stream.between(50, 1500)
    if options.brokers > 1:
        yield step(at_ms, "partition", lasts_ms, side=side)


def _reset(stream: Stream, options: SimOptions, at_ms: int) -> Iterator[Step]:
    one = 1 + stream.below(options.brokers)
    other = 1 + stream.below(options.brokers)
    if one != other:
        yield step(at_ms, "reset", one=f"n{one}", other=f"n{other}")


def _pause(stream: Stream, options: SimOptions, at_ms: int) -> Iterator[Step]:
    node = draw_node(stream, options)
    yield step(at_ms, "pause", stream.between(20, 900), node=node)


def _stall(stream: Stream, options: SimOptions, at_ms: int) -> Iterator[Step]:
    node = draw_node(stream, options)
    yield step(at_ms, "stall", stream.between(20, 700), node=node)


_SOURCES: Final[dict[str, Source]] = {
    "crash": _crash,
    "power": _power,
    "all": _all,
    "partition": _partition,
    "reset": _reset,
    "pause": _pause,
    "stall": _stall,
}
assert tuple(_SOURCES) == FAULTS, (tuple(_SOURCES), FAULTS)
