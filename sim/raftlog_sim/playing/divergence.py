"""Finds where two runs part that should be one: compares them turn by turn.

A line holds the instant, the node, the turn's input and its effects. It leaves out addresses of
objects; any other difference between two processes is a defect of ours.
"""

import re
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import Final

from raftlog_sim.checks.onlooker import WatchedTurn
from raftlog_sim.playing.cases import BrokerCase, Case
from raftlog_sim.playing.simulation import simulate

CONTEXT: Final = 3
SHOWN_CHARS: Final = 2_000
_ADDRESS: Final = re.compile(r" at 0x[0-9a-f]+")


def turn_lines(case: Case) -> list[str]:
    """Returns one line for each turn of a run of brokers; for guests, their trace."""
    if not isinstance(case, BrokerCase):
        return list(case.play().trace)
    lines: list[str] = []

    def watch(turn: WatchedTurn) -> None:
        text = f"{turn.node.world.now} n{turn.node.number} {list(turn.events)!r} -> "
        text += f"{turn.effects.sends!r} {turn.effects.writes!r} {turn.effects.wake_at!r}"
        lines.append(_ADDRESS.sub("", text).replace("\n", " ")[:SHOWN_CHARS])

    simulate(case.schedule, watch=watch)
    return lines


def first_divergence(one: Sequence[str], other: Sequence[str]) -> str:
    """Returns the first turn that differs, with both lines and a little of what went before.

    When all lines are equal, the difference lies in what they leave out.
    """
    for place, (left, right) in enumerate(zip_longest(one, other, fillvalue="(no such turn)")):
        if left != right:
            before = one[max(0, place - CONTEXT) : place]
            return "\n".join(_told(place, before, left, right))
    return "TRACES DIFFER in something that no line of a turn shows"


def _told(place: int, before: Iterable[str], left: str, right: str) -> list[str]:
    column = next((at for at, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), 0)
    low = max(0, column - 100)
    return [
        f"TRACES DIFFER first in turn {place + 1}, column {column + 1}",
        *(f"  both: {line[:160]}" for line in before),
        f"  one:   ...{left[low : low + 240]}",
        f"  other: ...{right[low : low + 240]}",
    ]
