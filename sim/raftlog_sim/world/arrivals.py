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
    """Holds events in the order of their arrival; every event asks for a turn."""

    acks_may_wait: bool = False
    _events: deque[e.Event] = attrs.field(factory=deque, init=False)

    def __len__(self) -> int:
        return len(self._events)

    @property
    def wants_turn(self) -> bool:
        """Whether an event waits."""
        return bool(self._events)

    def post(self, event: e.Event) -> None:
        """Queue an event."""
        self._events.append(event)

    def post_from_peer(self, messages: Sequence[e.PeerMessages], *, round_ends_soon: bool) -> bool:
        """Queue a peer's messages; True, since they always ask for a turn."""
        self._events.extend(messages)
        return True

    def collect(self, events: list[e.Event], most: int | None = None) -> list[e.Event]:
        """Move the events of one turn to `events`, which then holds at most `most`."""
        room = (TURN_EVENTS_MAX if most is None else most) - len(events)
        events.extend(self._events.popleft() for _ in range(min(room, len(self._events))))
        return events


def queue_of(*, patient: bool) -> TurnQueue | ArrivalQueue:
    """Make the queue of a booting process: the product's own when the world is `patient`."""
    return TurnQueue() if patient else ArrivalQueue()
