"""Resolves the target of a step when the step strikes; `schedule` lists the names of targets."""

from typing import TYPE_CHECKING

from raftlog.base.ids import METADATA_GROUP, GroupId, NodeId
from raftlog_sim.facts.group_rest import coordinator_of

if TYPE_CHECKING:
    from raftlog_sim.world.world import World


def resolve(world: "World", text: str, topic: str) -> tuple[NodeId, ...]:
    """Returns the target's existing nodes, ascending, each once; empty when it means no node
    now."""
    found: dict[NodeId, None] = {}
    for part in text.split("+"):
        for number in _one(world, part, topic):
            if number in world.nodes:
                found[number] = None
    return tuple(sorted(found))


def _one(world: "World", part: str, topic: str) -> tuple[NodeId, ...]:
    word, _, number = part.partition(":")
    if word == "all":
        return tuple(world.nodes)
    if word == "controller":
        return tuple(leaders_of(world, METADATA_GROUP)[-1:])
    if word == "most-led":
        return _leads_most(world)
    if word == "coordinator":
        found = coordinator_of(world, f"g{number}")
        return () if found is None else (found[0].number,)
    if word in ("leader", "follower"):
        group = group_of(world, topic, int(number))
        if group is None:
            return ()
        leading = tuple(leaders_of(world, group)[-1:])
        return leading if word == "leader" else _followers(world, group, leading)[:1]
    return (NodeId(int(part[1:])),)


def group_of(world: "World", topic: str, partition: int) -> GroupId | None:
    """Returns the Raft group of a partition, by the newest image of a running node."""
    images = [node.broker.context.image for node in world.running()]
    newest = max(images, key=lambda image: image.version, default=None)
    found = None if newest is None else newest.topic(topic)
    if found is None or partition >= len(found.partitions):
        return None
    return found.partitions[partition].group


def log_start_of(world: "World", topic: str, partition: int) -> int:
    """Returns the highest log start of a running replica of the partition."""
    group = group_of(world, topic, partition)
    if group is None:
        return 0
    held = [node.broker.context.replicas.get(group) for node in world.running()]
    return max((replica.log_start for replica in held if replica is not None), default=0)


def leaders_of(world: "World", group: GroupId) -> list[NodeId]:
    """Returns the running nodes that lead the group, or think so, by term."""
    found = []
    for node in world.running():
        replica = node.broker.context.replicas.get(group)
        if replica is not None and replica.node.leading:
            found.append((replica.node.term, node.number))
    return [number for _, number in sorted(found)]


def _leads_most(world: "World") -> tuple[NodeId, ...]:
    """Returns the node that leads the most partitions of all topics; the lowest number of
    several."""
    newest: dict[GroupId, tuple[int, NodeId]] = {}
    for node in world.running():
        for group, replica in node.broker.context.replicas.items():
            if group != METADATA_GROUP and replica.node.leading:
                leading = (replica.node.term, node.number)
                newest[group] = max(leading, newest.get(group, leading))
    led = [number for _, number in newest.values()]
    return (max(sorted(led), key=led.count),) if led else ()


def _followers(world: "World", group: GroupId, leading: tuple[NodeId, ...]) -> tuple[NodeId, ...]:
    return tuple(
        node.number
        for node in world.running()
        if group in node.broker.context.replicas and node.number not in leading
    )
