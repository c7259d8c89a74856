"""Delta debugging: the fewest items of a list that still fail (Zeller and Hildebrandt, 2002).

It knows nothing of what the items are. Whoever calls says which of some candidates is the first
that still fails *in the same way*; one that fails otherwise counts as passing.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TypeVar, final

import attrs

T = TypeVar("T")

First = Callable[[Sequence[T]], int | None]
"""The place of the first candidate that still fails; None when none does, or time is out."""


@final
@attrs.define(eq=False)
class Effort:
    """How much was tried, and when to stop. `out_of_time` is asked before each candidate."""

    out_of_time: Callable[[], bool]
    told: Callable[[int, int], None] = lambda tried, left: None
    """Hears of each candidate: how many were tried, how many items are left."""
    left: int = 0
    tried: int = 0
    stopped: str = ""
    """Why it ended before everything was tried; empty when it did not."""

    def may_go_on(self) -> bool:
        if not self.stopped and self.out_of_time():
            self.stopped = "time ran out"
        return not self.stopped

    def count(self) -> None:
        """One more candidate is tried."""
        self.tried += 1
        self.told(self.tried, self.left)


def one_by_one(fails: Callable[[T], bool], effort: Effort) -> First[T]:
    """Candidates are tried here, each after the one before."""

    def first(candidates: Sequence[T]) -> int | None:
        for place, candidate in enumerate(candidates):
            if not effort.may_go_on():
                return None
            effort.count()
            if fails(candidate):
                return place
        return None

    return first


def minimise(items: Sequence[T], first: First[list[T]], effort: Effort) -> list[T]:
    """A part of `items`, in their order, that still fails; no single item of it can go unless time
    ran out. `items` themselves must fail: that is the caller's to know."""
    left = list(items)
    parts = 2
    while len(left) >= 2 and effort.may_go_on():
        effort.left = len(left)
        candidates = _without_one_part(left, parts)
        place = first(candidates)
        if place is not None:
            left, parts = candidates[place], max(2, parts - 1)
        elif parts >= len(left):
            break
        else:
            parts = min(len(left), 2 * parts)
    if len(left) == 1 and first([[]]) is not None:
        return []
    return left


def _without_one_part(items: list[T], parts: int) -> list[list[T]]:
    """With one of `parts` parts left out in each; late parts go first, for what comes after the
    failure is never needed."""
    borders = [len(items) * part // parts for part in range(parts + 1)]
    return [
        items[:low] + items[high:] for low, high in reversed(list(pairwise(borders))) if high > low
    ]


def simplify(start: T, simpler: Callable[[T], Sequence[T]], first: First[T]) -> T:
    """Take simpler variants that still fail, until none does; `simpler` lists variants of a value,
    boldest first, and must come to an end. After one that was taken its place in the new list is
    tried next: those before it have just been refused, and get another chance in the next pass."""
    found, before = start, None
    while found != before:
        before, place = found, 0
        while True:
            candidates = simpler(found)[place:]
            taken = first(candidates)
            if taken is None:
                break
            found, place = candidates[taken], place + taken
    return found
