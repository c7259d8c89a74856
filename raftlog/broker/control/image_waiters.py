"""Lets requests wait for the metadata: for a topic that exists, or partitions with leaders."""

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
        """End the wait: the client is gone, or has its answer."""
        if self.waiters.forget(self.number) and self.timer is not None:
            self.timer.cancel()


@final
@attrs.define(eq=False)
class ImageWaiters:
    """All waits of a broker, in order of arrival.

    Each belongs to a request that the ledger counts.
    """

    turn: Turn
    _waiting: dict[int, ImageWaiter] = attrs.Factory(dict)
    _last: int = 0
    _due: bool = False

    def __len__(self) -> int:
        return len(self._waiting)

    def wait(
        self, ready: Callable[[], bool], deadline: Instant, then: Callable[[], None]
    ) -> ImageWaiter:
        """Call `then()` once: when `ready()` is true after a change, or at the deadline.

        It is never called before this returns.
        """
        self._last += 1
        waiter = ImageWaiter(self, self._last, ready, then)
        waiter.timer = self.turn.at(deadline, self._finish, waiter)
        self._waiting[self._last] = waiter
        return waiter

    def changed(self) -> None:
        """Take note that the image changed, or that a replica here learned of a leader.

        All changes of a turn lead to one check.
        """
        if self._waiting and not self._due:
            self._due = True
            self.turn.soon(self._look)

    def _look(self) -> None:
        self._due = False
        for waiter in list(self._waiting.values()):
            if waiter.number in self._waiting and waiter.ready():
                self._finish(waiter)

    def forget(self, number: int) -> bool:
        """Drop a wait; returns whether it was still open. Only the waiter calls this."""
        return self._waiting.pop(number, None) is not None

    def _finish(self, waiter: ImageWaiter) -> None:
        if waiter.number in self._waiting:
            waiter.leave()
            waiter.then()
