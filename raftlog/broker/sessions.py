"""Which brokers are alive, as the active controller hears them.

A session lasts `session_ns` from the last heartbeat that named the present registration. A new
controller gives every broker that is not fenced a whole session from the start: silence before it
could listen counts against nobody.
"""

from typing import final

import attrs

from raftlog.base.ids import NodeId
from raftlog.base.units import Instant, Nanos
from raftlog.metadata.image import ClusterImage


@final
@attrs.define(eq=False)
class BrokerSessions:
    """`heard` is when each broker was last heard, in this leadership."""

    session_ns: Nanos
    heard: dict[NodeId, Instant] = attrs.Factory(dict)

    def begin(self, image: ClusterImage, now: Instant) -> None:
        """A leadership begins."""
        self.heard = {broker.node: now for broker in image.live_brokers()}

    def touch(self, node: NodeId, now: Instant) -> None:
        """A heartbeat or a registration came."""
        self.heard[node] = now

    def silent(self, image: ClusterImage, now: Instant) -> list[NodeId]:
        """Brokers to be fenced: not fenced yet, and not heard for a session."""
        return [
            broker.node
            for broker in image.live_brokers()
            if now - self.heard.setdefault(broker.node, now) >= self.session_ns
        ]
