"""Draws the targets of steps, and when they strike."""

from collections.abc import Iterator
from typing import Final

from raftlog_sim.base.streams import Stream
from raftlog_sim.schedules.options import WIDE, SimOptions

KEEPS: Final = ("none", "some", "all")


def drawn_instants(stream: Stream, first_ms: int, gap_ms: int, end_ms: int) -> Iterator[int]:
    """Instants from the first one on, half a gap to two gaps apart, before `end_ms`.

    The draws of each step stand between those of its instant and of the next.
    """
    at_ms = first_ms
    while at_ms < end_ms:
        yield at_ms
        at_ms += stream.between(gap_ms // 2, gap_ms * 2)


def draw_node(stream: Stream, options: SimOptions) -> str:
    """Draw a node by number, or one time in three by its role when the step strikes.

    In wide seeds the role is now and then the node that leads the most.
    """
    number = 1 + stream.below(options.brokers)
    partition = stream.below(options.partitions)
    role = stream.below(9)
    if options.profile == WIDE and stream.chance(1, 12):
        return "most-led"
    return {0: f"leader:{partition}", 1: "controller", 2: f"follower:{partition}"}.get(
        role, f"n{number}"
    )


def draw_side(stream: Stream, options: SimOptions) -> str:
    """Draw some nodes, not all; one time in four the leader of a partition."""
    if stream.chance(1, 4):
        return f"leader:{stream.below(options.partitions)}"
    numbers = list(range(1, options.brokers + 1))
    size = stream.between(1, max(1, options.brokers - 1))
    side = [numbers.pop(stream.below(len(numbers))) for _ in range(size)]
    return "+".join(f"n{number}" for number in sorted(side))


def draw_pair(stream: Stream, options: SimOptions) -> tuple[str, str] | None:
    """Draw sender and receiver: two nodes, or one and all others in one direction."""
    one, other = draw_node(stream, options), draw_node(stream, options)
    wide = stream.below(4)
    if options.brokers == 1:
        return None
    return {0: (one, "all"), 1: ("all", one)}.get(wide, (one, other))


def draw_victim(stream: Stream, options: SimOptions) -> str:
    """Draw the node whose disk is damaged; three times in four it is the same in all of a seed.

    A second node of three may not be damaged, nor may the only controller.
    """
    first = 2 if options.controllers == 1 < options.brokers else 1
    node = first + Stream(options.seed, "schedule/victim").below(options.brokers - first + 1)
    return draw_node(stream, options) if stream.below(4) == 0 else f"n{node}"
