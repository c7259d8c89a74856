"""How many groups of this node look for a leader at once.

A node follows thousands of groups. When it could not run for a second, or a peer is gone, they all
want to campaign in the same instant; a campaign costs a dozen messages and three syncs across the
group, and one that is answered too late costs all that again. Unbounded, a busy cluster does
nothing else: every attempt is made later by all the others, and none ends in time.

So there is a window, kept like that of TCP (Chiu and Jain 1989; RFC 5681): a campaign that ends in
a leader widens it by one, one that runs into its time-out halves it, once an election time at most.
Who finds no room waits in line, and is asked again whether it still wants to: mostly it has heard
from a leader by then. A time-out costs a group its place, so that groups which cannot elect anybody
do not keep out those which can.

The metadata group does not wait: everything else needs it.
"""

from typing import Final, final

import attrs

from raftlog.base.ids import GroupId
from raftlog.base.probes import probe
from raftlog.base.units import Instant, Nanos

WINDOW_MIN: Final = 4
WINDOW_START: Final = 32
WINDOW_MAX: Final = 512


@final
@attrs.define(eq=False)
class Campaigns:
    """Invariant: a group is running or waiting, never both."""

    election_ns: Nanos
    window: int = WINDOW_START
    _running: dict[GroupId, None] = attrs.Factory(dict)
    _waiting: dict[GroupId, None] = attrs.Factory(dict)
    _halved_at: Instant = Instant(0)

    def admit(self, group: GroupId, now: Instant) -> bool:
        """The group's time to campaign has come: whether it may, now. If not, it waits in line."""
        if group in self._waiting:
            return False
        if group in self._running:
            del self._running[group]
            self._timed_out(now)
        if self._waiting or len(self._running) >= self.window:
            probe("campaign-waits-for-its-turn")
            self._waiting[group] = None
            return False
        self._running[group] = None
        return True

    def next(self) -> GroupId | None:
        """The next in line, when there is room. It holds a place from now on: `ended` gives it
        back."""
        if not self._waiting or len(self._running) >= self.window:
            return None
        group = next(iter(self._waiting))
        del self._waiting[group]
        self._running[group] = None
        return group

    @property
    def has_next(self) -> bool:
        """Whether `next` would give one."""
        return bool(self._waiting) and len(self._running) < self.window

    def ended(self, group: GroupId, *, led: bool) -> None:
        """The group has a leader (`led`), or does not campaign any more. Harmless for others."""
        if group in self._running:
            del self._running[group]
            if led and self.window < WINDOW_MAX:
                self.window += 1

    def dropped(self, group: GroupId) -> None:
        """The group is gone."""
        self._running.pop(group, None)
        self._waiting.pop(group, None)

    def _timed_out(self, now: Instant) -> None:
        if now - self._halved_at >= self.election_ns:
            self._halved_at = now
            self.window = max(WINDOW_MIN, self.window // 2)
            probe("campaign-window-halved")
