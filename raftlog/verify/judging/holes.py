"""Decides which appends may have filled the offsets that no operation claims, in a dense log.

A hole at offset o can be filled by an unresolved append whose invocation is not later than D[o],
the earliest return of everything that must come after o. D never falls along the log.

Single records are a convex bipartite matching: holes in the order of D, appends in the order of
their invocation, first with first. That is exact.

Batches must tile whole stretches of holes. A stretch is cut where something is known to lie, or
where an exact read ended. Within one size the earliest invoked serves first: an append that may
fill a hole may fill every later one, so any tiling can be changed into one of these. That leaves
the order of sizes to be searched, with a memo and a budget.

A read that found nothing in the middle of a batch precedes the whole batch, and so all that comes
after it. No batch lies there if any of that had returned before the read was called.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, final

import attrs

from raftlog.verify.histories.interval import OPEN


class HoleSegment(NamedTuple):
    """Holes [start, stop) with one deadline; `cut` where no batch may reach beyond `stop`."""

    start: int
    stop: int
    deadline: int
    holder: Any
    cut: bool


class Filler(NamedTuple):
    """An unresolved batch."""

    size: int
    invoked: int
    op: Any


class Hole(NamedTuple):
    """An offset that cannot be filled, with the operation whose return sets its deadline."""

    offset: int
    deadline: int
    holder: Any


@final
@attrs.frozen
class FillOutcome:
    """The result: one hole that cannot be filled, how many there are, or a budget that ran out."""

    unfilled: tuple[Hole, ...] = ()
    count: int = 0
    exhausted: bool = False


def segments_of(
    rows: Sequence[Any], first: int, behind: tuple[int, Any] = (OPEN, None)
) -> list[HoleSegment]:
    """The holes between the rows of a chain, ascending, from offset `first` on.

    `behind` is the earliest return of what follows these rows, and whose: of the blocks behind,
    where the chain was cut into blocks.
    """
    found: list[HoleSegment] = []
    deadline, holder = behind
    for at in range(len(rows) - 1, -1, -1):
        offset, _, exact_out, at_least, _, append = rows[at]
        if append is not None and append[1] < deadline:
            deadline, holder = append[1], append[2]
        for bound in (exact_out, at_least):
            if bound is not None and bound[0] < deadline:
                deadline, holder = bound
        start = first
        if at > 0:
            before, *_, filled = rows[at - 1]
            start = max(first, before + (filled is not None))
        if start < offset:
            cut = append is not None or exact_out is not None
            found.append(HoleSegment(start, offset, deadline, holder, cut))
    found.reverse()
    return found


def fill(
    segments: Sequence[HoleSegment],
    spare: Sequence[Filler],
    steps: int,
    empties: Mapping[int, int] | None = None,
) -> FillOutcome:
    """Decide whether every hole can be filled by a candidate of its own.

    `empties`: position -> the latest call of a read that found nothing there, also beyond the end.
    """
    if all(candidate.size == 1 for candidate in spare):
        return _match(segments, sorted(candidate.invoked for candidate in spare))
    holes = sum(segment.stop - segment.start for segment in segments)
    if holes > sum(candidate.size for candidate in spare):
        return _one(segments[-1].stop - 1, segments[-1])
    latest = dict(empties or {})
    return _Tiling(segments, spare, steps, sorted(latest), latest).run()


def _match(segments: Sequence[HoleSegment], invoked: Sequence[int]) -> FillOutcome:
    """Match single records: the k-th hole takes the k-th append, or stays empty."""
    used, count = 0, 0
    first: tuple[Hole, ...] = ()
    for start, stop, deadline, holder, _ in segments:
        offset = start
        while offset < stop and used < len(invoked) and invoked[used] <= deadline:
            used += 1
            offset += 1
        if offset < stop:
            count += stop - offset
            first = first or (Hole(offset, deadline, holder),)
    return FillOutcome(first, count)


def _one(offset: int, segment: HoleSegment) -> FillOutcome:
    return FillOutcome((Hole(offset, segment.deadline, segment.holder),), 1)


@final
@attrs.define(eq=False)
class _Tiling:
    """A depth-first search over (offset, how many of each size are used), from left to right."""

    _segments: Sequence[HoleSegment]
    _spare: Sequence[Filler]
    _steps: int
    _found_nothing_at: Sequence[int]
    """The positions at which reads found nothing, ascending."""
    _called: Mapping[int, int]
    """Position -> the latest call of such a read, in ns."""

    def run(self) -> FillOutcome:
        by_size: dict[int, list[int]] = {}
        for candidate in self._spare:
            by_size.setdefault(candidate.size, []).append(candidate.invoked)
        sizes = sorted(by_size, reverse=True)
        invoked = [sorted(by_size[size]) for size in sizes]
        limits = self._limits()
        start = (0, self._segments[0].start, (0,) * len(sizes))
        seen = {start}
        stack = [start]
        furthest = (0, self._segments[0].start)
        while stack:
            at, offset, used = stack.pop()
            furthest = max(furthest, (at, offset))
            for choice in range(len(sizes)):
                if self._steps <= 0:
                    return FillOutcome(exhausted=True)
                self._steps -= 1
                stop = offset + sizes[choice]
                count = used[choice]
                if stop > limits[at] or count >= len(invoked[choice]):
                    continue
                deadline = self._segments[at].deadline
                if invoked[choice][count] > deadline or self._denied(offset, stop, deadline):
                    continue
                place = self._next(at, stop)
                if place is None:
                    return FillOutcome()
                following = (*place, (*used[:choice], count + 1, *used[choice + 1 :]))
                if following not in seen:
                    seen.add(following)
                    stack.append(following)
        return _one(furthest[1], self._segments[furthest[0]])

    def _denied(self, offset: int, stop: int, deadline: int) -> bool:
        """Whether a read found nothing in the middle of a batch at `offset`, after `deadline`."""
        places = self._found_nothing_at
        inside = places[bisect_right(places, offset) : bisect_left(places, stop)]
        return any(self._called[place] > deadline for place in inside)

    def _limits(self) -> list[int]:
        """For each segment, the offset that a batch beginning in it must not pass."""
        limits: list[int] = []
        for segment in reversed(self._segments):
            if segment.cut:
                limits.append(segment.stop)
            else:  # the last stretch is open: a batch may reach beyond what is known of the log
                limits.append(limits[-1] if limits else OPEN)
        limits.reverse()
        return limits

    def _next(self, at: int, stop: int) -> tuple[int, int] | None:
        """The place of the next hole, as (segment, offset), once all before `stop` are filled."""
        while at < len(self._segments) and self._segments[at].stop <= stop:
            at += 1
        if at == len(self._segments):
            return None
        return at, max(stop, self._segments[at].start)
