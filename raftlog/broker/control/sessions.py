"""Tracks which brokers are alive, as the active controller hears them, and their image versions.

A session lasts `session_ns` from the last heartbeat that named the present registration. A new
controller gives every broker that is not fenced a whole session from the start: it could not hear
them before, so earlier silence does not count.
"""

from typing import Final, final

import attrs

from raftlog.base.ids import NodeId
from raftlog.base.units import Instant, Nanos
from raftlog.broker.control.registration import HEARTBEATS_PER_SESSION
from raftlog.metadata.image import ClusterImage

_HEARTBEATS_WAITED: Final = 2
"""The missed heartbeats after which no request waits for a broker."""


@final
@attrs.define(eq=False)
class BrokerSessions:
    """The sessions of one leadership.

    `heard` is when each broker was last heard. `versions` are the newest image versions that the
    heartbeats of the present boots named.
    """

    session_ns: Nanos
    heard: dict[NodeId, Instant] = attrs.Factory(dict)
    versions: dict[NodeId, int] = attrs.Factory(dict)

    def begin(self, image: ClusterImage, now: Instant) -> None:
        """Begin a leadership."""
        self.heard = {broker.node: now for broker in image.live_brokers()}
        self.versions = {}

    def registered(self, node: NodeId, now: Instant) -> None:
        """Take a registration; its boot begins with an image of unknown version."""
        self.heard[node] = now
        self.versions[node] = 0

    def touch(self, node: NodeId, version: int, now: Instant) -> None:
        """Take a heartbeat. A repeated one may come late, with an older version."""
        self.heard[node] = now
        self.versions[node] = max(version, self.versions.get(node, 0))

    def silent(self, image: ClusterImage, now: Instant) -> list[NodeId]:
        """The brokers to be fenced: not fenced yet, and not heard for a session."""
        return [
            broker.node
            for broker in image.live_brokers()
            if now - self.heard.setdefault(broker.node, now) >= self.session_ns
        ]

    def lagging(self, image: ClusterImage, version: int) -> list[NodeId]:
        """The brokers that are not fenced and have not said that their image has this version."""
        return [
            broker.node
            for broker in image.live_brokers()
            if self.versions.get(broker.node, 0) < version
        ]

    def waited_for(self, node: NodeId, now: Instant) -> Instant:
        """The instant until which a request may wait for that broker, without a new heartbeat."""
        beats = self.session_ns // HEARTBEATS_PER_SESSION * _HEARTBEATS_WAITED
        return Instant(self.heard.setdefault(node, now) + beats)
