"""The state of coordinators, seen from outside.

It tells which node coordinates a group, whether all groups have settled, and whether coordinators
stay within their bounds.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from raftlog.base.limits import GROUP_MEMBERS_MAX, GROUPS_LIVE_BYTES_MAX
from raftlog.broker.groups.offsets_topic import partition_of
from raftlog.client.core.group.consumer import GroupConsumer
from raftlog.client.core.group.membership import Phase
from raftlog.client.core.group.protocol import PROTOCOL_TYPE
from raftlog.groups.alarms import Alarm
from raftlog.groups.live import GroupState, LiveGroup

if TYPE_CHECKING:
    from raftlog.broker.groups.coordinators import Coordinated
    from raftlog.metadata.image import ClusterImage
    from raftlog_sim.world.node import Node
    from raftlog_sim.world.world import World

_ALARMS_A_GROUP: Final = 3
"""The alarms of a group: join, sync and write. A member or pending id has one session more, and the
coordinator itself has two alarms."""


class Grouped(Protocol):
    """A member of a group, with the client that polls for it."""

    slot: int
    group: str
    consumer: GroupConsumer


def coordinator_of(world: "World", group: str) -> "tuple[Node, Coordinated] | None":
    """Returns the node that coordinates the group in the newest term, and its coordinator."""
    found: list[tuple[int, Node, Coordinated]] = []
    for node in world.running():
        groups = node.broker.context.groups
        topic = groups.topic.image
        if topic is None:
            continue
        partition = topic.partitions[partition_of(group, len(topic.partitions))].group
        led = groups._led.get(partition)
        if led is not None and led.leads:
            found.append((led.term, node, led))
    if not found:
        return None
    _, node, led = max(found, key=lambda each: each[0])
    return node, led


def live_group(world: "World", group: str) -> LiveGroup | None:
    """Returns the group as its coordinator has it now."""
    found = coordinator_of(world, group)
    return None if found is None else found[1].coordinator._shared.find(group)


def unsettled(
    world: "World", groups: Iterable[str], alive: Sequence[Grouped], topic: str, partitions: int
) -> str:
    """Returns what keeps the groups from being settled; "" when they are.

    A group with members is Stable with exactly those that are left, all of one generation. Each
    partition belongs to one of them.
    """
    for group in groups:
        mine = [each for each in alive if each.group == group]
        if mine:
            problem = _unsettled(world, group, mine, topic, partitions)
            if problem:
                return f"group {group}: {problem}"
    return ""


def _unsettled(
    world: "World", group: str, mine: Sequence[Grouped], topic: str, partitions: int
) -> str:
    live = live_group(world, group)
    if live is None:
        return "nobody coordinates it"
    if live.state is not GroupState.STABLE:
        return f"it is {live.state.value}"
    if live.pending:
        return f"ids that nobody uses are {list(live.pending)}"
    mine = [each for each in mine if not _is_shut_out(each, live)]
    ids = sorted(each.consumer.membership.identity.member_id for each in mine)
    if ids != sorted(live.members):
        return f"its members are {sorted(live.members)}, there are {ids}"
    for each in mine:
        membership = each.consumer.membership
        if membership.phase is not Phase.STABLE or membership.rejoin_wanted:
            return f"member {each.slot} is {membership.phase.value}"
        if membership.identity.generation != live.generation:
            return f"member {each.slot} is of generation {membership.identity.generation}"
        if each.consumer.notice is not None or membership.assigned:
            return f"member {each.slot} is being told"
    owned = sorted(
        place.partition
        for each in mine
        for place in each.consumer.positions.places()
        if place.topic == topic
    )
    if owned != list(range(partitions)):
        return f"partitions {owned} have owners, there are {partitions}"
    return ""


def _is_shut_out(member: Grouped, live: LiveGroup) -> bool:
    """Whether the coordinator rightly refuses a member.

    A new coordinator knows of each member only the protocol that the group had chosen: Kafka's
    record of a group holds no more. It refuses a member without that protocol until the others have
    joined again (groups seed 110).
    """
    names = member.consumer.settings.partition_assignment_strategy
    unjoined = member.consumer.membership.phase is Phase.UNJOINED
    return unjoined and not live.supports(PROTOCOL_TYPE, names)


def left_of_gone_topics(world: "World") -> str:
    """Returns an offset that a coordinator keeps for a topic that is gone, or was created again; or
    ""."""
    newest = max((node.broker.context.image for node in world.running()), key=_version)
    for node in world.running():
        for led in node.broker.context.groups._led.values():
            machine = led.coordinator._shared.machine
            # The machine's own table of topics is not asked: what it lacks would stay for ever.
            for group in machine.group_ids():
                for topic, partition in machine.offset_keys(group):
                    stored = machine.offset(group, topic, partition)
                    if stored is not None and stored.topic_id != newest.names.get(topic):
                        return (
                            f"{node.number} keeps an offset of {group} for {topic}, which is gone"
                        )
    return ""


def _version(image: "ClusterImage") -> int:
    return image.version


def beyond_bounds(node: "Node") -> str:
    """Returns what is wrong with the amounts that a node's coordinators hold; "" for nothing.

    The members bound them, and the coordinators count them right.
    """
    for led in node.broker.context.groups._led.values():
        shared = led.coordinator._shared
        members = [member for group in shared.groups.values() for member in group.members.values()]
        pending = sum(len(group.pending) for group in shared.groups.values())
        alarms = len(members) + pending + _ALARMS_A_GROUP * (len(shared.groups) + 1)
        if len(shared.alarms) > alarms:
            return f"{len(shared.alarms)} alarms of {len(members)} members, {pending} pending"
        if shared.live_bytes.total > GROUPS_LIVE_BYTES_MAX:
            return f"members take {shared.live_bytes.total} bytes"
        for alarm, group_id, member_id in shared.alarms._deadlines:
            live = shared.groups.get(group_id)
            known = live is not None and (member_id in live.members or member_id in live.pending)
            if alarm is Alarm.SESSION and not known:
                return f"a session runs of {member_id}, which is not in {group_id}"
        for group in shared.groups.values():
            if len(group.members) > min(shared.group_size_max, GROUP_MEMBERS_MAX):
                return f"group {group.group_id} has {len(group.members)} members"
            joins = sum(member.join_answer is not None for member in group.members.values())
            if joins != group.joined:
                return f"{joins} joins of group {group.group_id} wait, {group.joined} are counted"
        if shared.undecided_offsets and not shared.proposals.undecided_units:
            return f"nothing is undecided, and {shared.undecided_offsets} are counted"
        for counts in shared.undecided_offsets.values():
            if any(count < 1 for count in counts.values()):
                return f"undecided commits are counted {counts}"
    return ""
