"""Requests that wait at the controller until the brokers' images have reached a version.

The problem: a client hears that its topic is created, and asks another broker for the leaders. That
broker's image does not name them yet.

How it works:
1. Each broker sends a heartbeat with its image version as soon as its image has changed.
2. A request is answered when every broker that is not fenced has named the version.
3. No request waits for a broker that has missed two heartbeats, or beyond the request's own time.
   The answer names all brokers that lag.
"""

from collections.abc import Callable
from typing import Protocol, final

import attrs

from raftlog.base.ids import NodeId
from raftlog.base.limits import CONTROLLER_CALLS_MAX
from raftlog.base.probes import probe
from raftlog.base.units import Instant
from raftlog.broker.control.sessions import BrokerSessions
from raftlog.broker.deadlines import Timer
from raftlog.broker.turn import Turn
from raftlog.metadata.requests import ControllerAnswer, ShownEverywhere


class WaitingCall(Protocol):
    """One request. Call `reply` exactly once, now or later."""

    @property
    def sender(self) -> NodeId: ...

    @property
    def body(self) -> bytes: ...

    def reply(self, error: int, text: str = "", body: bytes = b"") -> None: ...


@final
@attrs.frozen(eq=False)
class _Wait:
    call: WaitingCall
    version: int
    deadline: Instant


@final
@attrs.define(eq=False)
class VersionWaits:
    """All such requests of one leadership, in order of arrival; `reply` answers one."""

    turn: Turn
    sessions: BrokerSessions
    reply: Callable[[WaitingCall, ControllerAnswer], None]
    _waiting: list[_Wait] = attrs.Factory(list)
    _due: bool = False
    _timer: Timer | None = None

    def wait(self, call: WaitingCall, request: ShownEverywhere) -> None:
        """Answer the call in this turn or later."""
        turn = self.turn
        wait_ns: int = min(request.wait_ns, turn.config.leaders_wait_ns)
        if len(self._waiting) >= CONTROLLER_CALLS_MAX:
            # The topic exists: an answer now helps its client more than another try later.
            probe("version-waits-full")
            wait_ns = 0
        self._waiting.append(_Wait(call, request.version, Instant(turn.now + wait_ns)))
        self.heard()

    def heard(self) -> None:
        """Take a broker's new version; all versions of one turn are worked together."""
        if self._waiting and not self._due:
            self._due = True
            self.turn.soon(self._look)

    def end(self) -> list[WaitingCall]:
        """End the leadership: the returned calls go to the next controller."""
        left, self._waiting = [wait.call for wait in self._waiting], []
        self._look_at(None)
        return left

    def _look(self) -> None:
        self._due = False
        turn, sessions, image = self.turn, self.sessions, self.turn.image
        newest = max((wait.version for wait in self._waiting), default=0)
        # For each lagging broker, the instant until which a request waits for it. Requests whose
        # version every other broker has reached are answered.
        ends = {
            node: end
            for node in sessions.lagging(image, newest)
            if (end := sessions.waited_for(node, turn.now)) > turn.now
        }
        reached = min((sessions.versions.get(node, 0) for node in ends), default=newest)
        left: list[_Wait] = []
        for wait in self._waiting:
            if wait.version > reached and wait.deadline > turn.now:
                left.append(wait)
                continue
            lagging = ", ".join(map(str, sessions.lagging(image, wait.version)))
            self.reply(
                wait.call, ControllerAnswer(refusal=None, message=lagging, version=image.version)
            )
        self._waiting = left
        moments = [*ends.values(), *(wait.deadline for wait in left)]
        self._look_at(min(moments) if left else None)

    def _look_at(self, moment: Instant | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if moment is None else self.turn.at(moment, self._look)
