"""Delta debugging: the fewest items of a list that still fail (Zeller and Hildebrandt, 2002).

This module knows nothing about the items. The caller says which candidate is the first that still
fails *in the same way*. A candidate that fails in another way counts as passing.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TypeVar, final

import attrs

T = TypeVar("T")

First = Callable[[Sequence[T]], int | None]
"""Returns the place of the first candidate that still fails; None when none does, or time is out.
"""


@final
@attrs.define(eq=False)
class Effort:
    """Counts the candidates that were tried. `out_of_time` is asked before each one."""

    out_of_time: Callable[[], bool]
    told: Callable[[int, int], None] = lambda tried, left: None
    """Called after each candidate with the numbers of candidates tried and of items left."""
    left: int = 0
    tried: int = 0
    stopped: str = ""
    """Why the search ended before it had tried everything; empty when it did not."""

    def may_go_on(self) -> bool:
        if not self.stopped and self.out_of_time():
            self.stopped = "time ran out"
        return not self.stopped

    def count(self) -> None:
        """Count one more candidate."""
        self.tried += 1
        self.told(self.tried, self.left)


def one_by_one(fails: Callable[[T], bool], effort: Effort) -> First[T]:
    """Returns a `First` that tries the candidates in this process, one after another."""

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
    """Returns a part of `items`, in their order, that still fails.

    No single item of the result can be left out, unless time ran out. The caller must know that
    `items` themselves fail.
    """
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
    """Returns the list without each of its `parts` parts in turn.

    Late parts are left out first: items behind the failure are never needed.
    """
    borders = [len(items) * part // parts for part in range(parts + 1)]
    return [
        items[:low] + items[high:] for low, high in reversed(list(pairwise(borders))) if high > low
    ]


def simplify(start: T, simpler: Callable[[T], Sequence[T]], first: First[T]) -> T:
    """Replace a value by simpler variants that still fail, until none does.

    `simpler` lists the variants of a value, boldest first, and must come to an end. After a variant
    was taken, the search goes on at its place in the new list. The variants before that place were
    just refused, and get another chance in the next pass.
    """
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
