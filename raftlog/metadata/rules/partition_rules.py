"""The rules for one partition: founding, new targets, lost replicas, reports, and who may leave.

A replica id enters `replicas` when it is placed. It leaves only when a leader that had seen a
target without it reported a committed final membership without it: before that the group
may still count it, whatever group 0 wants. Leaving gives its node a Removal, which names the
replica epoch; a replica on a directory that its node no longer has is dropped without one, for
no broker could act on it.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import attrs

from raftlog.base.entries import Membership
from raftlog.base.ids import (
    DirectoryId,
    GroupId,
    NodeId,
    RaftIndex,
    ReplicaEpoch,
    ReplicaId,
    Term,
    TopicId,
)
from raftlog.base.limits import REPLICAS_PER_PARTITION_MAX
from raftlog.metadata import commands as c
from raftlog.metadata.broker_image import Removal
from raftlog.metadata.image import ClusterImage
from raftlog.metadata.topic_image import PartitionImage, Reported, TopicImage

NO_LEADER_TERM: Final = Term(0)


def found_partition(group: GroupId, assignment: c.Assignment, version: int) -> PartitionImage:
    """A new partition: all its replicas are voters from the start, none has led yet."""
    target = tuple(ReplicaId(node, at, ReplicaEpoch(version)) for node, at in assignment)
    voters = tuple(sorted(target))
    return PartitionImage(
        group=group,
        founding=voters,
        target=target,
        target_version=version,
        replicas=voters,
        reported=Reported(
            term=NO_LEADER_TERM,
            membership_index=RaftIndex(0),
            serial=0,
            membership=Membership(voters),
            leader=None,
            in_sync=voters,
            target_version=version,
        ),
    )


def with_target(
    partition: PartitionImage, assignment: c.Assignment, version: int
) -> PartitionImage | None:
    """The partition wanted at these places. A place that still holds a replica keeps its id, the
    youngest when it holds several. None when too many ids would be known at once."""
    target = tuple(
        _replica_at(partition, node, directory) or ReplicaId(node, directory, ReplicaEpoch(version))
        for node, directory in assignment
    )
    replicas = tuple(sorted(dict.fromkeys((*partition.replicas, *target))))
    if len(replicas) > REPLICAS_PER_PARTITION_MAX:
        return None
    return attrs.evolve(partition, target=target, target_version=version, replicas=replicas)


def with_successor(
    partition: PartitionImage, lost: ReplicaId, directory: DirectoryId, version: int
) -> PartitionImage | None:
    """The partition with a new id wanted in the place of a lost one, which stays known until the
    group reported to be without it. None when too many ids would be known at once."""
    successor = ReplicaId(lost.node, directory, ReplicaEpoch(version))
    replicas = tuple(sorted((*partition.replicas, successor)))
    if len(replicas) > REPLICAS_PER_PARTITION_MAX:
        return None
    return attrs.evolve(
        partition,
        target=tuple(successor if replica == lost else replica for replica in partition.target),
        target_version=version,
        replicas=replicas,
    )


def with_report(
    partition: PartitionImage, reported: Reported
) -> tuple[PartitionImage, list[ReplicaId]]:
    """The partition after a newer report, and the replica ids that leave by it."""
    leaving: list[ReplicaId] = []
    membership = reported.membership
    if not membership.joint and reported.target_version >= partition.target_version:
        needed = (*membership.everyone(), *partition.target)
        leaving = [replica for replica in partition.replicas if replica not in needed]
    replicas = tuple(replica for replica in partition.replicas if replica not in leaving)
    return attrs.evolve(partition, reported=reported, replicas=replicas), leaving


def replace_directory(
    image: ClusterImage, node: NodeId, old: DirectoryId, new: DirectoryId, version: int
) -> ClusterImage:
    """Every replica wanted on the old directory of the node gets a successor on the new one."""
    topics = dict(image.topics)
    for topic_id in sorted(topics):
        topics[topic_id] = _moved(topics[topic_id], node, old, new, version)
    return attrs.evolve(image, topics=topics)


def _moved(
    topic: TopicImage, node: NodeId, old: DirectoryId, new: DirectoryId, version: int
) -> TopicImage:
    partitions = list(topic.partitions)
    for number, partition in enumerate(partitions):
        for replica in partition.target:
            if replica.node == node and replica.directory == old:
                moved = with_successor(partition, replica, new, version)
                partitions[number] = moved if moved is not None else partition
    if partitions == list(topic.partitions):
        return topic
    return attrs.evolve(topic, partitions=tuple(partitions))


def with_removals(
    image: ClusterImage,
    topic_id: TopicId,
    leaving: Iterable[tuple[int, GroupId, ReplicaId]],
) -> Mapping[NodeId, tuple[Removal, ...]]:
    """The removals of the image and those of these replicas, (partition, group, replica)."""
    added: dict[NodeId, list[Removal]] = {}
    for number, group, replica in leaving:
        broker = image.brokers.get(replica.node)
        if broker is not None and broker.directory == replica.directory:
            removal = Removal(group=group, replica=replica, topic_id=topic_id, partition=number)
            added.setdefault(replica.node, []).append(removal)
    more = {node: (*image.removals.get(node, ()), *new) for node, new in added.items()}
    return {**image.removals, **more}


def _replica_at(
    partition: PartitionImage, node: NodeId, directory: DirectoryId
) -> ReplicaId | None:
    held = [r for r in partition.replicas if r.node == node and r.directory == directory]
    return max(held) if held else None
