"""Keeps the wall clocks of other nodes, as their heartbeats last told them.

A leader deletes by age only while most voters of the partition share its wall clock: one clock that
jumped a month ahead must not delete a month of records. Node heartbeats and their replies carry the
sender's clock from peer protocol 3 on. A peer of an older protocol tells none, so it shares none.
"""

from typing import NamedTuple, final

import attrs

from raftlog.base.ids import NodeId
from raftlog.base.limits import CLOCK_HEARD_MS_MAX, CLOCKS_APART_MS_MAX
from raftlog.base.units import NANOS_PER_MILLI, Instant, WallMillis
from raftlog.broker.peer_messages import NO_WALL


class _Told(NamedTuple):
    """A node's wall clock, and when it was heard by this node's monotonic clock."""

    wall_ms: WallMillis
    heard_at: Instant


@final
@attrs.define(eq=False)
class NodeClocks:
    """Conforms to raftlog.partition.maintenance.clocks.PeerClocks. One entry for each linked
    node."""

    _told: dict[NodeId, _Told] = attrs.Factory(dict)

    def heard(self, node: NodeId, wall_ms: WallMillis, now: Instant) -> None:
        """Note the clock of that node, which its heartbeat or its reply to one carried."""
        if wall_ms == NO_WALL:
            self._told.pop(node, None)
        else:
            self._told[node] = _Told(wall_ms, now)

    def forget(self, node: NodeId) -> None:
        """Forget the clock of a node whose link session ended."""
        self._told.pop(node, None)

    def shares(self, node: NodeId, now: Instant, wall_ms: WallMillis) -> bool:
        """Whether that node's clock was heard lately and agrees with ours (`wall_ms` at `now`)."""
        told = self._told.get(node)
        if told is None:
            return False
        passed_ms = (now - told.heard_at) // NANOS_PER_MILLI
        if passed_ms > CLOCK_HEARD_MS_MAX:
            return False
        return abs(told.wall_ms + passed_ms - wall_ms) <= CLOCKS_APART_MS_MAX
