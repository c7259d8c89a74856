"""Checks, after each turn of a coordinator, how it treats static members.

    group-static-stays      a coordinator forgets a static member only when its session is over, or
                            when it was given a generation and did not sync in time

A static member that is away comes back to its old partitions. A rebalance in which it is missing
must not cost it its place (KIP-345). No member of a run says goodbye for an instance id.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple, final

import attrs

from raftlog.base.units import NEVER, Instant
from raftlog.groups.alarms import Alarm
from raftlog.groups.live import LiveGroup

if TYPE_CHECKING:
    from raftlog.base.ids import GroupId, NodeId
    from raftlog.broker.groups.coordinators import Coordinated
    from raftlog.groups.shared import Shared
    from raftlog_sim.world.node import Node


class Held(NamedTuple):
    """A static member as it was after a turn. The coordinator may forget it from `until` on, by the
    clock of the coordinator's node."""

    member_id: str
    until: Instant


@final
@attrs.define(eq=False)
class StaticMembers:
    """Remembers the static members of each coordinator, and checks that it keeps them."""

    held: "dict[tuple[NodeId, GroupId], tuple[Coordinated, dict[tuple[str, str], Held]]]" = (
        attrs.Factory(dict)
    )
    """The last coordinator and its static members, by group and instance, for each partition that a
    node coordinates."""

    def after_turn(self, node: "Node") -> Iterator[tuple[str, str]]:
        """Check the coordinators of a node after a turn; yields (invariant, error or "")."""
        for partition, led in node.broker.context.groups._led.items():
            shared = led.coordinator._shared
            now_held = {
                (group.group_id, instance): _held(shared, group, member_id)
                for group in shared.groups.values()
                for instance, member_id in group.static.items()
            }
            place = (node.number, partition)
            known, before = self.held.get(place, (led, {}))
            if known is not led:
                before = {}  # another coordinator: it has what is on record
            self.held[place] = (led, now_held)
            for (group_id, instance), held in before.items():
                gone = (group_id, instance) not in now_held
                early = gone and shared.now < held.until
                yield "group-static-stays", _told(group_id, instance, held, shared) if early else ""


def _held(shared: "Shared", group: LiveGroup, member_id: str) -> Held:
    deadlines = shared.alarms._deadlines
    until = deadlines.get((Alarm.SESSION, group.group_id, member_id), NEVER)
    if member_id in group.unsynced:
        until = min(until, deadlines.get((Alarm.SYNC, group.group_id, ""), NEVER))
    return Held(member_id, until)


def _told(group_id: str, instance: str, held: Held, shared: "Shared") -> str:
    return (
        f"group {group_id} forgets {held.member_id}, which is {instance}, at {shared.now}; it might"
        f" from {held.until}"
    )
