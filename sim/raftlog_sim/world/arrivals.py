"""The queue in which the events of a simulated process wait for its turns."""

from collections import deque
from collections.abc import Sequence
from typing import final

import attrs

from raftlog.base.limits import TURN_EVENTS_MAX
from raftlog.broker import events as e
from raftlog.broker.turn_queue import TurnQueue


@final
@attrs.define(eq=False)
class ArrivalQueue:
    """Events in the order of their arrival, each of which wants a turn."""

    acks_may_wait: bool = False
    _events: deque[e.Event] = attrs.field(factory=deque, init=False)

    def __len__(self) -> int:
        return len(self._events)

    @property
    def wants_turn(self) -> bool:
        """Whether something waits."""
        return bool(self._events)

    def post(self, event: e.Event) -> None:
        """Queue an event."""
        self._events.append(event)

    def post_from_peer(self, messages: Sequence[e.PeerMessages], *, round_ends_soon: bool) -> bool:
        """Queue what a peer sent."""
        self._events.extend(messages)
        return True

    def collect(self, events: list[e.Event], most: int | None = None) -> list[e.Event]:
        """Take the events of one turn, at most so many."""
        room = (TURN_EVENTS_MAX if most is None else most) - len(events)
        events.extend(self._events.popleft() for _ in range(min(room, len(self._events))))
        return events


def queue_of(*, patient: bool) -> TurnQueue | ArrivalQueue:
    """The queue of a process that boots."""
    return TurnQueue() if patient else ArrivalQueue()
