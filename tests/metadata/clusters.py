"""Images and commands for tests: a founded cluster, registered brokers, topics, reports."""

import attrs

from raftlog.base.entries import Membership
from raftlog.base.ids import (
    BootNumber,
    ClusterId,
    DirectoryId,
    GroupId,
    NodeId,
    RaftIndex,
    ReplicaEpoch,
    ReplicaId,
    Term,
    TopicId,
)
from raftlog.metadata import commands as c
from raftlog.metadata.broker_image import BrokerListener
from raftlog.metadata.image import EMPTY_IMAGE, ClusterImage
from raftlog.metadata.rules.applied import Applied
from raftlog.metadata.rules.apply import apply
from raftlog.metadata.topic_image import PartitionImage

CLUSTER = ClusterId(b"a test's cluster")
ORDERS = TopicId(b"orders' topic id")
FLIGHTS = TopicId(b"flights topic id")


def directory(node: int, ordinal: int = 0) -> DirectoryId:
    """The `ordinal`-th data directory that a node ever had."""
    return DirectoryId(0xD000_0000 + 0x100 * node + ordinal)


def founder(node: int) -> ReplicaId:
    return ReplicaId(NodeId(node), directory(node), ReplicaEpoch(0))


def found(*nodes: int) -> c.FoundCluster:
    return c.FoundCluster(
        cluster_id=CLUSTER, controllers=tuple(founder(node) for node in nodes), feature_level=1
    )


def registration(node: int, boot: int = 1, *, at: int = 0, **changes) -> c.RegisterBroker:
    """A boot of a node on its `at`-th directory."""
    command = c.RegisterBroker(
        node=NodeId(node),
        directory=directory(node, at),
        boot=BootNumber(boot),
        incarnation=1000 * node + boot,
        listeners=(
            BrokerListener(name="PLAINTEXT", host="localhost", port=9000 + node, protocol="P"),
        ),
        peer_host="localhost",
        peer_port=9100 + node,
        rack="",
        level_min=1,
        level_max=1,
    )
    return attrs.evolve(command, **changes)


def do(image: ClusterImage, *commands: c.Command) -> ClusterImage:
    """The image after commands that must all be accepted."""
    for command in commands:
        applied = apply(image, command)
        assert applied.refusal is None, (applied.refusal, applied.message, command)
        image = applied.image
    return image


def refused(image: ClusterImage, command: c.Command) -> Applied:
    """The refusal of a command; the image must be left as it is."""
    applied = apply(image, command)
    assert applied.refusal is not None, command
    assert applied.image is image
    assert applied.message
    return applied


def cluster(*nodes: int, racks: dict[int, str] | None = None, live: bool = True) -> ClusterImage:
    """A founded cluster whose controllers are its first three nodes, all registered."""
    image = do(EMPTY_IMAGE, found(*nodes[:3]))
    for node in nodes:
        rack = (racks or {}).get(node, "")
        image = do(image, registration(node, rack=rack))
        if live:
            image = do(image, unfence(image, node))
    return image


def unfence(image: ClusterImage, node: int) -> c.UnfenceBroker:
    return c.UnfenceBroker(node=NodeId(node), epoch=image.brokers[NodeId(node)].epoch)


def fence(image: ClusterImage, node: int) -> c.FenceBroker:
    return c.FenceBroker(node=NodeId(node), epoch=image.brokers[NodeId(node)].epoch)


def places(image: ClusterImage, *nodes: int) -> c.Assignment:
    return tuple((NodeId(node), image.brokers[NodeId(node)].directory) for node in nodes)


def topic(
    image: ClusterImage, *partitions: tuple[int, ...], name: str = "orders", topic_id=ORDERS
) -> c.CreateTopic:
    """A topic with these nodes for each partition."""
    return c.CreateTopic(
        topic_id=topic_id,
        name=name,
        internal=False,
        configs=(),
        assignments=tuple(places(image, *nodes) for nodes in partitions),
    )


def part(image: ClusterImage, number: int = 0, topic_id: TopicId = ORDERS) -> PartitionImage:
    partition = image.partition(topic_id, number)
    assert partition is not None
    return partition


def report(
    image: ClusterImage,
    *,
    number: int = 0,
    term: int = 1,
    index: int = 1,
    serial: int = 1,
    voters: tuple[ReplicaId, ...] | None = None,
    outgoing: tuple[ReplicaId, ...] = (),
    learners: tuple[ReplicaId, ...] = (),
    leader: ReplicaId | None = None,
    target_version: int | None = None,
) -> c.ReportMembership:
    """A report of a partition of `orders`; what is not given is as the group was founded."""
    partition = part(image, number)
    chosen = partition.founding if voters is None else tuple(sorted(voters))
    return c.ReportMembership(
        group=GroupId(partition.group),
        term=Term(term),
        membership_index=RaftIndex(index),
        serial=serial,
        membership=Membership(chosen, tuple(sorted(outgoing)), tuple(sorted(learners))),
        leader=chosen[0] if leader is None else leader,
        in_sync=chosen,
        target_version=partition.target_version if target_version is None else target_version,
    )


def retarget(image: ClusterImage, *nodes: int, number: int = 0) -> c.SetTarget:
    """Want a partition of `orders` at these nodes."""
    return c.SetTarget(
        topic_id=ORDERS,
        partition=number,
        assignment=places(image, *nodes),
        if_target_version=part(image, number).target_version,
    )


def replica(partition: PartitionImage, node: int) -> ReplicaId:
    """The youngest replica id of a partition at a node."""
    return max(replica for replica in partition.replicas if replica.node == node)
