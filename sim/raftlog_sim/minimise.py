"""Delta debugging: the fewest items of a list that still fail (Zeller and Hildebrandt, 2002).

It knows nothing of what the items are. Whoever calls says whether a candidate still fails *in the
same way*; a candidate that fails otherwise counts as passing.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TypeVar, final

import attrs

T = TypeVar("T")


@final
@attrs.define(eq=False)
class Effort:
    """How much was tried, and when to stop. `out_of_time` is asked before each candidate."""

    out_of_time: Callable[[], bool]
    told: Callable[[int, int], None] = lambda tried, left: None
    """Hears of each candidate: how many were tried, how many items are left."""
    tried: int = 0
    stopped: bool = False

    def may_go_on(self) -> bool:
        self.stopped = self.stopped or self.out_of_time()
        return not self.stopped


def minimise(items: Sequence[T], fails: Callable[[list[T]], bool], effort: Effort) -> list[T]:
    """A part of `items`, in their order, that still fails; no single item of it can go unless time
    ran out. `items` themselves must fail: that is the caller's to know."""
    left = list(items)
    parts = 2
    while len(left) >= 2 and effort.may_go_on():
        shorter = _without_one_part(left, parts, fails, effort)
        if shorter is not None:
            left, parts = shorter, max(2, parts - 1)
        elif parts >= len(left):
            break
        else:
            parts = min(len(left), 2 * parts)
    if len(left) == 1 and effort.may_go_on() and _fails([], fails, effort):
        return []
    return left


def _without_one_part(
    items: list[T], parts: int, fails: Callable[[list[T]], bool], effort: Effort
) -> list[T] | None:
    """The first candidate that fails with one of `parts` parts left out; late parts go first, for
    what comes after the failure is never needed."""
    borders = [len(items) * part // parts for part in range(parts + 1)]
    for low, high in reversed(list(pairwise(borders))):
        if not effort.may_go_on():
            return None
        candidate = items[:low] + items[high:]
        if high > low and _fails(candidate, fails, effort):
            return candidate
    return None


def _fails(candidate: list[T], fails: Callable[[list[T]], bool], effort: Effort) -> bool:
    effort.tried += 1
    effort.told(effort.tried, len(candidate))
    return fails(candidate)


def simplify(
    start: T, simpler: Callable[[T], Sequence[T]], fails: Callable[[T], bool], effort: Effort
) -> T:
    """Take simpler variants that still fail, until none does; `simpler` lists variants of a value,
    boldest first, and must come to an end. After one that was taken its place in the new list is
    tried next: those before it have just been refused, and get another chance in the next pass."""
    found, before = start, None
    while found != before:
        before, place = found, 0
        while place < len(candidates := simpler(found)):
            if not effort.may_go_on():
                return found
            effort.tried += 1
            if fails(candidates[place]):
                found = candidates[place]
            else:
                place += 1
    return found
