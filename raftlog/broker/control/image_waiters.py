"""Requests that wait until the metadata shows something: a topic that exists, partitions with
leaders."""

from collections.abc import Callable
from typing import final

import attrs

from raftlog.base.units import Instant
from raftlog.broker.deadlines import Timer
from raftlog.broker.turn import Turn


@final
@attrs.define(eq=False)
class ImageWaiter:
    """One wait. `leave` ends it without a call."""

    waiters: "ImageWaiters"
    number: int
    ready: Callable[[], bool]
    then: Callable[[], None]
    timer: Timer | None = None

    def leave(self) -> None:
        """The asker is gone, or has what it waited for."""
        if self.waiters.forget(self.number) and self.timer is not None:
            self.timer.cancel()


@final
@attrs.define(eq=False)
class ImageWaiters:
    """All waits of a broker, in order of arrival; each belongs to a request that the ledger
    counts."""

    turn: Turn
    _waiting: dict[int, ImageWaiter] = attrs.Factory(dict)
    _last: int = 0
    _due: bool = False

    def __len__(self) -> int:
        return len(self._waiting)

    def wait(
        self, ready: Callable[[], bool], deadline: Instant, then: Callable[[], None]
    ) -> ImageWaiter:
        """`then()` once: when `ready()` after a change, or at the deadline. Not before this
        returns."""
        self._last += 1
        waiter = ImageWaiter(self, self._last, ready, then)
        waiter.timer = self.turn.at(deadline, self._finish, waiter)
        self._waiting[self._last] = waiter
        return waiter

    def changed(self) -> None:
        """The image changed, or a replica here learned of a leader. Looked at once for all that
        changes in a turn."""
        if self._waiting and not self._due:
            self._due = True
            self.turn.soon(self._look)

    def _look(self) -> None:
        self._due = False
        for waiter in list(self._waiting.values()):
            if waiter.number in self._waiting and waiter.ready():
                self._finish(waiter)

    def forget(self, number: int) -> bool:
        """Whether that wait was still open; only the waiter calls this."""
        return self._waiting.pop(number, None) is not None

    def _finish(self, waiter: ImageWaiter) -> None:
        if waiter.number in self._waiting:
            waiter.leave()
            waiter.then()
