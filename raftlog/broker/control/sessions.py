"""Which brokers are alive, as the active controller hears them, and how far their images are.

A session lasts `session_ns` from the last heartbeat that named the present registration. A new
controller gives every broker that is not fenced a whole session from the start: silence before it
could listen counts against nobody.
"""

from typing import Final, final

import attrs

from raftlog.base.ids import NodeId
from raftlog.base.units import Instant, Nanos
from raftlog.broker.control.registration import HEARTBEATS_PER_SESSION
from raftlog.metadata.image import ClusterImage

_HEARTBEATS_WAITED: Final = 2
"""No request waits for a broker that has missed so many heartbeats."""


@final
@attrs.define(eq=False)
class BrokerSessions:
    """`heard` is when each broker was last heard, in this leadership; `versions` are the newest
    image versions that the heartbeats of the present boots named."""

    session_ns: Nanos
    heard: dict[NodeId, Instant] = attrs.Factory(dict)
    versions: dict[NodeId, int] = attrs.Factory(dict)

    def begin(self, image: ClusterImage, now: Instant) -> None:
        """A leadership begins."""
        self.heard = {broker.node: now for broker in image.live_brokers()}
        self.versions = {}

    def registered(self, node: NodeId, now: Instant) -> None:
        """A registration came; its boot begins with an image that is not known yet."""
        self.heard[node] = now
        self.versions[node] = 0

    def touch(self, node: NodeId, version: int, now: Instant) -> None:
        """A heartbeat came. One that was asked again may come late, with an older version."""
        self.heard[node] = now
        self.versions[node] = max(version, self.versions.get(node, 0))

    def silent(self, image: ClusterImage, now: Instant) -> list[NodeId]:
        """Brokers to be fenced: not fenced yet, and not heard for a session."""
        return [
            broker.node
            for broker in image.live_brokers()
            if now - self.heard.setdefault(broker.node, now) >= self.session_ns
        ]

    def lagging(self, image: ClusterImage, version: int) -> list[NodeId]:
        """Brokers that are not fenced, and have not said that their image has this version."""
        return [
            broker.node
            for broker in image.live_brokers()
            if self.versions.get(broker.node, 0) < version
        ]

    def waited_for(self, node: NodeId, now: Instant) -> Instant:
        """Until when a request may wait for that broker, if no further heartbeat comes."""
        beats = self.session_ns // HEARTBEATS_PER_SESSION * _HEARTBEATS_WAITED
        return Instant(self.heard.setdefault(node, now) + beats)
