"""Limits how many groups of this node campaign for a leader at once.

The problem: a node follows thousands of groups. After a pause of a second, or when a peer is gone,
they all want to campaign in the same instant. A campaign costs a dozen messages and three syncs
across the group, and one that is answered too late costs all that again. Without a limit, each
campaign delays all the others, and none ends in time.

How it works: a window limits the campaigns, and adapts as TCP's does (Chiu and Jain 1989; RFC
5681).

1. A campaign that ends in a leader widens the window by one.
2. A campaign that times out halves the window, at most once in an election time.
3. A group that finds no room waits in line. When its turn comes, it is asked whether it still wants
   to campaign: mostly it has heard from a leader by then.
4. A group whose campaign timed out loses its place, and waits behind all that wait already. So
   groups that cannot elect a leader do not keep out those that can.

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
    """The campaigns of one node. Invariant: a group is running or waiting, never both."""

    election_ns: Nanos
    window: int = WINDOW_START
    _running: dict[GroupId, None] = attrs.Factory(dict)
    _waiting: dict[GroupId, None] = attrs.Factory(dict)
    _halved_at: Instant = Instant(0)

    def admit(self, group: GroupId, now: Instant) -> bool:
        """Whether a group whose time to campaign has come may begin now; else it waits in line."""
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
        """The next group in line, when there is room. It holds its place in the window until
        `ended`."""
        if not self._waiting or len(self._running) >= self.window:
            return None
        group = next(iter(self._waiting))
        del self._waiting[group]
        self._running[group] = None
        return group

    @property
    def has_next(self) -> bool:
        """Whether `next` would return a group."""
        return bool(self._waiting) and len(self._running) < self.window

    def ended(self, group: GroupId, *, led: bool) -> None:
        """The group has a leader (`led`), or stopped campaigning. Does nothing for other groups."""
        if group in self._running:
            del self._running[group]
            if led and self.window < WINDOW_MAX:
                self.window += 1

    def dropped(self, group: GroupId) -> None:
        """Forget a group that stopped running here."""
        self._running.pop(group, None)
        self._waiting.pop(group, None)

    def _timed_out(self, now: Instant) -> None:
        if now - self._halved_at >= self.election_ns:
            self._halved_at = now
            self.window = max(WINDOW_MIN, self.window // 2)
            probe("campaign-window-halved")
