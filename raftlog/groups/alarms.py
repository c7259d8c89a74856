"""The deadlines of a coordinator, by key; each fires once, and moving one is cheap.

Heartbeats move the deadline of a session all the time, mostly to a later time. So an alarm that
moves to later keeps its place in the heap, and is put back when that place comes up. The earliest
place may therefore be too early, never too late.
"""

import heapq
from enum import IntEnum
from typing import Final, TypeAlias, final

from raftlog.base.units import NEVER, Instant

_STALE_MIN: Final = 64


@final
class Alarm(IntEnum):
    """The purpose of a deadline."""

    JOIN = 0
    """A group's join phase ends."""
    SYNC = 1
    """A group's sync phase ends: members that have not synced are removed."""
    SESSION = 2
    """The session of a member or a pending member ends, for it sent nothing in time."""
    WRITE = 3
    """A group's record that could not be written is tried again."""
    RETENTION = 4
    """The coordinator looks through the partition's offsets for expired ones."""
    REMOVAL = 5
    """The partition's tombstones that could not be written are tried again."""
    SWEEP = 6
    """The coordinator looks for offsets of topics that no longer exist."""


AlarmKey: TypeAlias = tuple[Alarm, str, str]
"""Kind, group id, member id; an id is empty where the kind has none."""


@final
class Alarms:
    """A set of deadlines by key."""

    __slots__ = ("_deadlines", "_heap", "_places", "_serial")

    def __init__(self) -> None:
        self._deadlines: dict[AlarmKey, Instant] = {}
        self._places: dict[AlarmKey, Instant] = {}
        """The earliest place of a key in the heap."""
        self._heap: list[tuple[Instant, int, AlarmKey]] = []
        self._serial = 0

    def __len__(self) -> int:
        return len(self._deadlines)

    def set(self, key: AlarmKey, deadline: Instant) -> None:
        """Let `key` fire at `deadline`, and no more at its former one."""
        self._deadlines[key] = deadline
        if deadline < self._places.get(key, NEVER):
            self._push(key, deadline)

    def clear(self, key: AlarmKey) -> None:
        """Let `key` not fire."""
        self._deadlines.pop(key, None)
        if len(self._heap) > 2 * len(self._deadlines) + _STALE_MIN:
            # Members that come and go leave stale places in the heap, due up to half an hour later.
            self._heap.clear()
            self._places.clear()
            for left, deadline in self._deadlines.items():
                self._push(left, deadline)

    def is_set(self, key: AlarmKey) -> bool:
        """Whether `key` will fire."""
        return key in self._deadlines

    def next_deadline(self) -> Instant:
        """An instant before which no alarm is due; NEVER without alarms."""
        return self._heap[0][0] if self._heap else NEVER

    def pop_due(self, now: Instant) -> AlarmKey | None:
        """Remove and return the next due alarm; None when there is none."""
        while self._heap and self._heap[0][0] <= now:
            place, _, key = heapq.heappop(self._heap)
            if self._places.get(key) != place:
                continue
            del self._places[key]
            deadline = self._deadlines.get(key)
            if deadline is None:
                continue
            if deadline <= now:
                del self._deadlines[key]
                return key
            self._push(key, deadline)
        return None

    def _push(self, key: AlarmKey, deadline: Instant) -> None:
        self._serial += 1
        self._places[key] = deadline
        heapq.heappush(self._heap, (deadline, self._serial, key))
