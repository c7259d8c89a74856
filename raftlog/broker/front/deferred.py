"""Meters a turn: how much its requests may name, and which requests wait for the next turn.

The problem: 64 requests may share a turn, and each may name thousands of topics, partitions,
members or tagged fields. While a turn works them, heartbeats and all other clients wait.

How it works:
1. The codec counts what a frame names and refuses it above FRAME_ITEMS_MAX.
2. A turn takes requests until they have named TURN_ITEMS_MAX. Then it takes only small frames, of
   clients that have nothing waiting here.
3. The others wait, in the order of their connection. Each later turn takes from them first, one
   request of each connection in turn, so that no connection stands behind all of another one's.
"""

from collections import deque
from typing import Final, final

import attrs

from raftlog.base.buggify import buggify
from raftlog.base.ids import ConnectionId
from raftlog.base.limits import TURN_ITEMS_MAX, TURN_SMALL_FRAME_BYTES
from raftlog.broker.events import ConnectionClosed, Request
from raftlog.kafka.versions import ApiKey

_COSTS: Final = {int(ApiKey.DESCRIBE_CONFIGS): 30}
"""The number of items that one item of this API counts for, because its answer is so much work."""

Deferrable = Request | ConnectionClosed
"""A request, or the end of a connection, which waits behind the requests that came over it."""


@final
@attrs.define(eq=False)
class TurnMeter:
    """The items that the requests of this turn may still name; below 0 when the last took more."""

    left: int = TURN_ITEMS_MAX

    def begin_turn(self) -> None:
        self.left = TURN_ITEMS_MAX

    def admits(self, frame_bytes: int) -> bool:
        """Whether this turn takes a frame of that size."""
        if frame_bytes <= TURN_SMALL_FRAME_BYTES:
            return True
        return self.left > 0 and not buggify("turn-used-up")

    def charge(self, api_key: int, items: int) -> None:
        """Count the items that a request of this turn has named."""
        self.left -= items * _COSTS.get(api_key, 1)


@final
@attrs.define(eq=False)
class Deferred:
    """Everything that waits for a later turn. The ledger bounds it by counting it as unanswered."""

    _queues: dict[ConnectionId, deque[Deferrable]] = attrs.Factory(dict)
    """Connection -> what it has waiting; the next connection comes first."""

    def __bool__(self) -> bool:
        return bool(self._queues)

    def holds(self, connection: ConnectionId) -> bool:
        """Whether that connection has something waiting: later requests must wait behind it."""
        return connection in self._queues

    def put(self, event: Deferrable) -> None:
        self._queues.setdefault(event.connection, deque()).append(event)

    def pop(self) -> Deferrable:
        """Take the next one; its connection goes to the end."""
        connection, queue = next(iter(self._queues.items()))
        event = queue.popleft()
        del self._queues[connection]
        if queue:
            self._queues[connection] = queue
        return event
