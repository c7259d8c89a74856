"""`FaultyBroker`: a broker as its shell drives it, with the faults of a room around it."""

from collections.abc import Callable, Sequence
from typing import Any, final

from raftlog.base.units import Instant
from raftlog.broker.broker import Broker
from raftlog.broker.events import Effects, Event
from raftlog.runtime.driver import DrivenBroker
from raftlog.testing.peers import FROM_PEERS, PeerFaults
from raftlog.testing.requests import RequestFaults
from raftlog.testing.room import FaultRoom


@final
class FaultyBroker:
    """A `DrivenBroker` that applies faults. Each boot of a broker has one. It holds back the events
    and effects that a fault concerns; without a fault it passes everything on unchanged."""

    def __init__(self, broker: Broker, room: FaultRoom, driven: DrivenBroker | None = None) -> None:
        """`driven` stands for the broker where its turns are recorded."""
        self._driven: DrivenBroker = driven or broker
        self._room = room
        self._peers = PeerFaults(room)
        self._requests = RequestFaults(room, _topic_finder(broker))

    def handle(self, events: Sequence[Event], now_ns: Instant, wall_ms: int) -> Effects:
        """One turn (`Broker.handle`)."""
        self._room.refresh()
        peers, requests = self._peers, self._requests
        heard = events if peers.idle else self._hear(events, now_ns)
        effects = self._driven.handle(requests.before(heard, now_ns), now_ns, wall_ms)
        requests.after(effects, now_ns)
        if not peers.idle:
            peers.leave(effects)
        effects.wake_at = min(effects.wake_at, peers.wake_at(), requests.wake_at())
        return effects

    def _hear(self, events: Sequence[Event], now: Instant) -> list[Event]:
        peers = self._peers
        heard = [
            event
            for event in events
            if not (isinstance(event, FROM_PEERS) and peers.keep(event, now))
        ]
        return [*peers.released(now), *heard]


def _topic_finder(broker: Broker) -> Callable[[Any], str | None]:
    def find(identity: Any) -> str | None:
        topic = broker.context.image.topics.get(identity)
        return None if topic is None else topic.name

    return find
