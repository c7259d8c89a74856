"""How long producers have been silent, by a clock that nobody can turn: the leader's monotonic one.

Expiry is replicated: a marker carries a cut-off, and on every replica alike producers last seen
before it go. A cut-off taken from a wall clock would let one wrong clock forget producers that are
in the middle of a retry, and their records would be stored twice. So a leader remembers what the
log's own clock showed at instants of its monotonic clock; whoever was last seen before what it
showed a whole expiration ago has been silent for that long, whatever the wall clocks said. A new
leader has seen nothing yet and expires nobody: expiry begins one expiration after an election.
"""

from collections import deque
from typing import Final, final

from raftlog.base.units import Instant, millis

_STEPS: Final = 8
_NOBODY: Final = -1


@final
class SilenceWatch:
    """What one leader saw. Keeps at most nine sightings, an eighth of an expiration apart."""

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen: deque[tuple[Instant, int]] = deque()

    def reset(self) -> None:
        """Leads no more, or anew."""
        self._seen.clear()

    def look(self, now: Instant, clock_ms: int, expiration_ms: int) -> None:
        """The log's clock shows `clock_ms` now; every batch from here on is seen at that or
        later."""
        seen = self._seen
        if not seen or now - seen[-1][0] >= millis(expiration_ms) // _STEPS:
            seen.append((now, clock_ms))
        while len(seen) > 1 and now - seen[1][0] >= millis(expiration_ms):
            seen.popleft()

    def cut_off(self, now: Instant, expiration_ms: int) -> int:
        """Whoever was last seen before this has been silent for an expiration; -1 for nobody."""
        if not self._seen or now - self._seen[0][0] < millis(expiration_ms):
            return _NOBODY
        return self._seen[0][1]
