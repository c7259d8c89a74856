"""Measures how long producers have been silent, by the leader's monotonic clock.

Expiry is replicated: a marker carries a cut-off, and every replica forgets the producers that were
last seen before it. The cut-off must not come from a wall clock. One wrong clock would expire a
producer in the middle of a retry, and its records would be stored twice.

So the leader notes what the log's own clock (the newest timestamp of Raft's own entries) showed at
instants of its monotonic clock. The cut-off is what the log's clock showed one expiration ago. A
producer last seen before that has been silent for an expiration, whatever the wall clocks say. A
new leader has noted nothing yet, so expiry begins one expiration after an election.
"""

from collections import deque
from typing import Final, final

from raftlog.base.units import Instant, millis

_STEPS: Final = 8
_NOBODY: Final = -1


@final
class SilenceWatch:
    """One leader's notes of the log's clock: at most nine, an eighth of an expiration apart."""

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen: deque[tuple[Instant, int]] = deque()

    def reset(self) -> None:
        """Forget all notes: this replica no longer leads, or leads in a new term."""
        self._seen.clear()

    def look(self, now: Instant, clock_ms: int, expiration_ms: int) -> None:
        """Note that the log's clock shows `clock_ms` at `now`. Every later batch counts as seen at
        that time or later."""
        seen = self._seen
        if not seen or now - seen[-1][0] >= millis(expiration_ms) // _STEPS:
            seen.append((now, clock_ms))
        while len(seen) > 1 and now - seen[1][0] >= millis(expiration_ms):
            seen.popleft()

    def cut_off(self, now: Instant, expiration_ms: int) -> int:
        """The log time before which a producer must have been last seen to be expired now; -1 when
        none may be."""
        if not self._seen or now - self._seen[0][0] < millis(expiration_ms):
            return _NOBODY
        return self._seen[0][1]
