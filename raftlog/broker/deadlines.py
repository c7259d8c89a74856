"""Keeps deadlines: of replicas, of which there may be thousands, and of everything else that waits.

Both kinds are heaps with lazy deletion. A replica whose deadline moves later is not pushed again.
Its old place in the heap comes up, is compared with the present deadline, and is put back. So a
busy group costs one push per deadline that passes, and an idle group (deadline NEVER) costs
nothing.
"""

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Any, Final, final

import attrs

from raftlog.base.ids import GroupId
from raftlog.base.units import NEVER, Instant

_SWEEP_AT_MIN: Final = 64


@final
@attrs.define(eq=False)
class GroupDeadlines:
    """The instants at which groups want to be ticked."""

    _wanted: dict[GroupId, Instant] = attrs.Factory(dict)
    """The present deadline of each group; NEVER is not kept."""
    _queued: dict[GroupId, Instant] = attrs.Factory(dict)
    """The earliest place of each group in the heap; at most its wanted deadline."""
    _heap: list[tuple[Instant, GroupId]] = attrs.Factory(list)

    def __len__(self) -> int:
        return len(self._wanted)

    def set(self, group: GroupId, deadline: Instant) -> None:
        """Set the group's next tick to `deadline`, whatever it wanted before."""
        if deadline == NEVER:
            self._wanted.pop(group, None)
            return
        self._wanted[group] = deadline
        queued = self._queued.get(group)
        if queued is None or deadline < queued:
            self._queued[group] = deadline
            heappush(self._heap, (deadline, group))

    def forget(self, group: GroupId) -> None:
        """Forget a group; its places in the heap are dropped when they come up."""
        self._wanted.pop(group, None)

    def due(self, now: Instant) -> list[GroupId]:
        """The groups whose deadline has come, in order of deadline, then group; each once."""
        ripe: list[GroupId] = []
        while self._heap and self._heap[0][0] <= now:
            instant, group = heappop(self._heap)
            if self._queued.get(group) != instant:
                continue
            del self._queued[group]
            wanted = self._wanted.get(group)
            if wanted is None:
                continue
            if wanted <= now:
                del self._wanted[group]
                ripe.append(group)
            else:
                self._queued[group] = wanted
                heappush(self._heap, (wanted, group))
        return ripe

    def next(self) -> Instant:
        """The earliest deadline or a little before; an early wake-up costs an empty turn."""
        return self._heap[0][0] if self._heap else NEVER


@final
@attrs.define(eq=False)
class Timer:
    """A call that is due at an instant, unless it is cancelled before."""

    deadline: Instant
    call: Callable[..., None]
    args: tuple[Any, ...]
    alive: bool = True

    def cancel(self) -> None:
        """Make sure that the call is not made; harmless after the call."""
        self.alive = False
        self.args = ()


@final
@attrs.define(eq=False)
class Timers:
    """Calls in order of deadline; equal deadlines in the order in which they were asked for."""

    _heap: list[tuple[Instant, int, Timer]] = attrs.Factory(list)
    _made: int = 0
    _sweep_at: int = _SWEEP_AT_MIN

    def __len__(self) -> int:
        return len(self._heap)

    def at(self, deadline: Instant, call: Callable[..., None], *args: object) -> Timer:
        """Make `call(*args)` in the first turn at or after `deadline`."""
        timer = Timer(deadline, call, args)
        self._made += 1
        heappush(self._heap, (deadline, self._made, timer))
        if len(self._heap) >= self._sweep_at:
            self._sweep()
        return timer

    def run_due(self, now: Instant) -> None:
        """Make the calls that are due.

        A call asked for meanwhile waits for the next turn, even at `now`.
        """
        if not self._heap or self._heap[0][0] > now:
            return
        made_before = self._made
        later: list[tuple[Instant, int, Timer]] = []
        while self._heap and self._heap[0][0] <= now:
            item = heappop(self._heap)
            timer = item[2]
            if item[1] > made_before:
                later.append(item)
            elif timer.alive:
                timer.alive = False
                timer.call(*timer.args)
        for item in later:
            heappush(self._heap, item)

    def next(self) -> Instant:
        """The earliest deadline of a call that is alive."""
        while self._heap and not self._heap[0][2].alive:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else NEVER

    def _sweep(self) -> None:
        """Drop cancelled calls: most time-outs are cancelled long before they come up."""
        self._heap = [item for item in self._heap if item[2].alive]
        heapify(self._heap)
        self._sweep_at = max(_SWEEP_AT_MIN, 2 * len(self._heap))
