"""From a topic and a partition number to the replica that serves it here, or to who serves it.

The image says where partitions are; a running replica may know a newer leader than the image, which
hears of it through a report. Published (leader, epoch) pairs therefore take the newer of the two.
"""

from collections.abc import Mapping
from typing import NamedTuple, final

import attrs

from raftlog.base.ids import GroupId, NodeId, ReplicaId, Term, TopicId
from raftlog.broker.turn import Turn
from raftlog.kafka.error_codes import ErrorCode
from raftlog.metadata.topic_image import PartitionImage, TopicImage
from raftlog.partition.replica import PartitionReplica

TopicKey = str | bytes
"""A topic's name, or its 16-byte id."""


class KnownLeader(NamedTuple):
    """A published pair; unlike the parts, pairs of one partition only rise."""

    node: NodeId
    epoch: Term


class Floor(NamedTuple):
    """What the store of this directory said at boot of a group: our replica, and its term. In an
    earlier boot it may have told of leaders of that term, and of no later ones."""

    replica: ReplicaId
    term: Term


class Endpoint(NamedTuple):
    """Where clients reach a broker on one listener."""

    host: str
    port: int
    rack: str | None


@final
@attrs.define(eq=False)
class Router:
    """Looks things up in the image of the moment; keeps nothing but the floors that this boot
    found, and the pairs that a running replica told and the image has not heard of yet."""

    turn: Turn
    floors: Mapping[GroupId, Floor]
    _told: dict[GroupId, KnownLeader] = attrs.Factory(dict)
    """Of groups that run or ran here, until the image says as much or more."""

    def topic(self, key: TopicKey) -> TopicImage | None:
        """The topic of that name or id; the metadata group's own log is no topic."""
        if isinstance(key, str):
            return self.turn.image.topic(key)
        return self.turn.image.topics.get(TopicId(bytes(key)))

    def partition(self, key: TopicKey, number: int) -> PartitionImage | ErrorCode:
        """The partition, or 3 (by name, or a number that the topic does not have) or 100 (by
        id)."""
        topic = self.topic(key)
        if topic is None:
            if isinstance(key, str):
                return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return ErrorCode.UNKNOWN_TOPIC_ID
        if not 0 <= number < len(topic.partitions):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return topic.partitions[number]

    def replica(self, key: TopicKey, number: int) -> PartitionReplica | ErrorCode:
        """The running replica of that partition on this node, leader or not; else why there is
        none."""
        partition = self.partition(key, number)
        if type(partition) is ErrorCode:
            return partition
        found = self.turn.replicas.get(partition.group)
        if found is not None:
            return found
        if partition.group in self.turn.log_directories.offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if self._leader(partition) is not None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.LEADER_NOT_AVAILABLE

    def leader_of(self, key: TopicKey, number: int) -> KnownLeader | None:
        """Who leads that partition, as far as this node knows; a broker that is alive."""
        partition = self.partition(key, number)
        return None if isinstance(partition, ErrorCode) else self._leader(partition)

    def newest(self, partition: PartitionImage) -> KnownLeader | None:
        """The newest known (leader, epoch), whether that broker lives or not. A replica that looks
        for the next leader still tells of the last one: the image may know an older one only.

        What was told in an earlier boot is not forgotten by clients. So nobody is named before the
        image is as new as this boot, nor in an epoch below the floor; and what our replica knows is
        told when its term is durable."""
        if not self.turn.caught_up:
            return None
        reported, group = partition.leader, partition.group
        known = None if reported is None else KnownLeader(reported.node, partition.leader_epoch)
        replica = self.turn.replicas.get(group)
        if replica is None or replica.leader is None or not replica.node.term_durable:
            told = self._told.get(group)
        else:
            told = KnownLeader(replica.leader.node, replica.term)
        if told is None or (known is not None and known.epoch >= told.epoch):
            self._told.pop(group, None)
            newest = known
        else:
            newest = self._told[group] = told
        below = newest is not None and newest.epoch < self._floor(partition)
        return None if below else newest

    def _floor(self, partition: PartitionImage) -> Term:
        """No leader of an earlier term may be named, but for a replica that has left for good: the
        leaders after a committed configuration without it told it nothing (Raft, section 6). One
        that is not in the last reported configuration may be about to join."""
        floor = self.floors.get(partition.group)
        if floor is None or floor.replica not in partition.replicas:
            return Term(0)
        return floor.term

    def forget(self, group: GroupId) -> None:
        """The group's topic is deleted."""
        self._told.pop(group, None)

    def _leader(self, partition: PartitionImage) -> KnownLeader | None:
        found = self.newest(partition)
        return found if found is not None and self.is_alive(found.node) else None

    def is_alive(self, node: NodeId) -> bool:
        """Whether the cluster holds that broker for alive."""
        broker = self.turn.image.brokers.get(node)
        return broker is not None and not broker.fenced

    def endpoint(self, node: NodeId, listener: str) -> Endpoint | None:
        """Where clients of that listener reach a broker that is alive."""
        broker = self.turn.image.brokers.get(node)
        if broker is None or broker.fenced:
            return None
        found = broker.listener(listener)
        if found is None:
            return None
        return Endpoint(found.host, found.port, broker.rack or None)
