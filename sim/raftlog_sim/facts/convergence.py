"""Tells when a healed cluster, or a core of it, has come to rest, as the liveness phase waits
for."""

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any

from raftlog.base.ids import METADATA_GROUP, GroupId, NodeId, ReplicaId
from raftlog.broker.control.controller_requests import metadata_target
from raftlog_sim.facts.asked_leaders import newest_leader
from raftlog_sim.facts.targets import group_of
from raftlog_sim.facts.truth import image_at_boot

if TYPE_CHECKING:
    from raftlog.metadata.topic_image import PartitionImage
    from raftlog_sim.world.node import Node
    from raftlog_sim.world.world import World


def is_led(world: "World", topic: str, partitions: int) -> bool:
    """Whether every partition of the topic has a leader that takes proposals."""
    for number in range(partitions):
        group = group_of(world, topic, number)
        replicas = [] if group is None else _replicas(world.running(), group)
        if not any(_leads(replica) for replica in replicas):
            return False
    return True


def is_converged(world: "World") -> bool:
    """Whether the whole cluster is at rest.

    All nodes are up, hold one image, serve clients and name the leaders. Every replica is where the
    image wants it, and no other place has one. All replicas of a group are equal, whole and
    durable.
    """
    nodes = world.running()
    if len(nodes) < len(world.nodes):
        return False
    # A node that booted alone agrees with all others before it has applied anything (seed 3000879).
    # It holds requests until the others know that it is alive (seed 6201660). A replica that is
    # opened again after an error agrees with no other (seed 9508106).
    if not all(METADATA_GROUP in node.broker.context.replicas for node in nodes):
        return False
    if not all(node.broker.clients.serving for node in nodes):
        return False
    images = [node.broker.context.image for node in nodes]
    if len({image.version for image in images}) != 1 or not _equal(nodes, METADATA_GROUP):
        return False
    if not _controllers_are_those_wanted(nodes):
        return False
    made = [each for topic in images[0].topics.values() for each in topic.partitions]
    partitions = [each for each in made if not _is_stillborn(nodes, each)]
    wanted = {each.group: tuple(replica.node for replica in each.target) for each in partitions}
    stillborn = {each.group for each in made} - wanted.keys()
    for node in nodes:
        for group in node.broker.context.replicas.keys() - stillborn:
            if group != METADATA_GROUP and node.number not in wanted.get(group, ()):
                return False
    placed = all(_placed(nodes, group, places) for group, places in wanted.items())
    return placed and all(_is_named(nodes, partition) for partition in partitions)


def _controllers_are_those_wanted(nodes: "list[Node]") -> bool:
    """Whether the metadata group works with the membership that its image asks for."""
    wanted = metadata_target(nodes[0].broker.context.image)
    leading = [each for each in _replicas(nodes, METADATA_GROUP) if _leads(each)]
    return all(each.membership == wanted for each in leading)


def _is_stillborn(nodes: "list[Node]", partition: "PartitionImage") -> bool:
    """Whether a partition never had a leader and never can: half of its founding directories are
    gone.

    A topic that is created while a broker is away is placed on the disk that the broker had. The
    broker may come back without that disk (wide seed 9302134: two replicas). No promise was made
    there.
    """
    there = {node.number: node.broker.context.directory for node in nodes}
    alive = sum(there.get(each.node) == each.directory for each in partition.founding)
    return partition.reported.term == 0 and 2 * alive <= len(partition.founding)


def _placed(nodes: "list[Node]", group: int, places: Collection[NodeId]) -> bool:
    there = [node.number for node in nodes if group in node.broker.context.replicas]
    return sorted(there) == sorted(places) and _equal(nodes, group)


def _is_named(nodes: "list[Node]", partition: "PartitionImage") -> bool:
    """Whether every broker names the leader to clients; one did not until its next boot (seed
    6203439)."""
    group = partition.group
    leader = next(node.number for node in nodes if _leads(node.broker.context.replicas.get(group)))
    told = [newest_leader(node.broker.context.router, partition, {}) for node in nodes]
    return all(each is not None and each.node == leader for each in told)


def is_told(world: "World") -> bool:
    """Whether the metadata know each partition's membership."""
    return not any(misreported(world.running()))


def misreported(nodes: "list[Node]") -> list[str]:
    """Returns, for a cluster at rest, each partition whose membership the metadata have wrong, or
    ""."""
    return [
        _misreported(nodes, f"{topic.name}-{number}", partition)
        for topic in nodes[0].broker.context.image.topics.values()
        for number, partition in enumerate(topic.partitions)
        if not _is_stillborn(nodes, partition)
    ]


def _misreported(nodes: "list[Node]", name: str, partition: "PartitionImage") -> str:
    leader = next(each for each in _replicas(nodes, partition.group) if _leads(each))
    told, now = partition.reported, leader.membership
    if (told.membership_index, told.membership) == (leader.membership_index, now):
        return ""
    return f"{name} is reported as {told}, its leader works with {now}"


def is_core_alive(world: "World", core: Collection[NodeId]) -> bool:
    """Whether the core works alone.

    All its nodes are up, hold one image and serve clients. Every group in which they are a majority
    has a leader among them, and its replicas there agree with the leader's log. The metadata group
    is one of them: a node that has just booted opened no replica and knows of none (swarm seed 6).
    """
    nodes = [node for node in world.running() if node.number in core]
    if len(nodes) < len(core) or not all(node.broker.clients.serving for node in nodes):
        return False
    if len({node.broker.context.image.version for node in nodes}) != 1:
        return False
    able = able_groups(world, core)
    return METADATA_GROUP in able and all(_equal(nodes, group) for group in able)


def do_lead(world: "World", core: Collection[NodeId], topic: str, partitions: list[int]) -> bool:
    """Whether nodes of the core lead these partitions of the topic, and take proposals."""
    nodes = [node for node in world.running() if node.number in core]
    groups = [group_of(world, topic, number) for number in partitions]
    return all(group is not None and any(map(_leads, _replicas(nodes, group))) for group in groups)


def able_groups(world: "World", core: Collection[NodeId]) -> dict[GroupId, int]:
    """Returns the groups in which these nodes are a majority, each with the number of voters there.

    The number is that of the configuration in which it is lowest. A core must be a majority of all
    configurations that its replicas hold, since a move that was asked for before may begin now
    (seed 5100282).
    """
    nodes = [node for node in world.running() if node.number in core]
    directories = {node.number: node.broker.context.directory for node in nodes}
    able: dict[GroupId, int] = {}
    for group, configurations in _configurations(nodes).items():
        there = [
            # A topic that was being created when the rest froze may lie with the frozen nodes, and
            # in a directory that was wiped meanwhile. So a voter counts only in the directory where
            # it was placed.
            sum(directories.get(each.node) == each.directory for each in voters)
            for voters in configurations
        ]
        enough = zip(there, configurations, strict=True)
        if all(count > len(voters) // 2 for count, voters in enough):
            able[group] = min(there)
    return able


def known_groups(world: "World", core: Collection[NodeId]) -> list[GroupId]:
    """Returns the groups that some of these nodes know of by now."""
    return list(_configurations([node for node in world.running() if node.number in core]))


def _configurations(nodes: "list[Node]") -> dict[GroupId, list[tuple[ReplicaId, ...]]]:
    """Returns the voters of each group that these nodes know of.

    They come from the replicas or, for a group that no node opened yet, from the newest image's
    target.
    """
    held: dict[GroupId, list[tuple[ReplicaId, ...]]] = {}
    for node in nodes:
        for group, replica in node.broker.context.replicas.items():
            for voters in (replica.membership.voters, replica.membership.outgoing):
                if voters:
                    held.setdefault(group, []).append(voters)
    images = [node.broker.context.image for node in nodes]
    newest = max(images, key=lambda image: image.version, default=None)
    topics = newest.topics if newest is not None else {}
    for partition in [each for topic in topics.values() for each in topic.partitions]:
        if partition.group not in held:
            held[partition.group] = [partition.target]
    return held


def is_core(world: "World", core: Collection[NodeId], damaged: Collection[NodeId]) -> bool:
    """Whether these nodes may be all that is left.

    In every configuration that some node holds to be in force, and in every placement, the
    undamaged nodes of the core must be a majority. A node that is down holds what is on its disk.
    When all nodes are down, only the disks tell where the voters are (seed 420683).
    """
    whole = {number for number in core if number not in damaged}
    if not whole <= set(world.nodes):
        return False
    return all(
        len(whole & set(voters)) > len(voters) // 2
        for voters in (*voter_sets(world), *_voter_sets_on_disks(world))
    )


def _voter_sets_on_disks(world: "World") -> Iterator[tuple[NodeId, ...]]:
    """Yields the voters of every placement and reported membership on the disks of nodes that are
    down."""
    for node in world.nodes.values():
        topics = {} if node.up else image_at_boot(node).topics
        for partition in [each for topic in topics.values() for each in topic.partitions]:
            told = partition.reported.membership
            for voters in (partition.target, told.voters, told.outgoing):
                if voters:
                    yield tuple(voter.node for voter in voters)


def voter_sets(world: "World") -> list[tuple[NodeId, ...]]:
    """Returns the nodes of every voter set that some running node knows of.

    These are the configurations of replicas, the placements and reports of images, and the
    controllers. A replica that is being opened holds no configuration yet. Its group may not know
    of a move either (wide seed 137).
    """
    found: dict[tuple[NodeId, ...], None] = {}
    for node in world.nodes.values():
        found[tuple(sorted(address.node for address in node.config.controllers))] = None
    for node in world.running():
        context = node.broker.context
        found[tuple(sorted(replica.node for replica in context.image.controllers))] = None
        partitions = [each for topic in context.image.topics.values() for each in topic.partitions]
        held = [replica.membership for replica in context.replicas.values()]
        held += [partition.reported.membership for partition in partitions]
        sets = [partition.target for partition in partitions]
        for membership in held:
            sets += [membership.voters, membership.outgoing]
        for voters in filter(None, sets):
            found[tuple(sorted(voter.node for voter in voters))] = None
    found.pop((), None)
    return list(found)


def _replicas(nodes: "list[Node]", group: int) -> list[Any]:
    found = [node.broker.context.replicas.get(group) for node in nodes]  # type: ignore[call-overload]
    return [replica for replica in found if replica is not None]


def _leads(replica: Any) -> bool:
    return bool(replica is not None and replica.is_leader and replica.node.ready)


def _equal(nodes: "list[Node]", group: int) -> bool:
    """Whether a group is at rest: one leader, equal ends, all durable, no replica damaged.

    A complete quorum repairs every damage that a replica knows of.
    """
    replicas = _replicas(nodes, group)
    if sum(_leads(replica) for replica in replicas) != 1:
        return False
    if any(replica.node.damaged for replica in replicas):
        return False
    ends = {(each.log.last_index, each.log.last_term, each.commit) for each in replicas}
    return len(ends) == 1 and all(
        each.log.durable_index == each.log.last_index for each in replicas
    )
