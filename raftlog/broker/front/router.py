"""Finds the replica that serves a topic's partition here, or the broker that leads it.

The image says where partitions are. A running replica may know a newer leader than the image, which
hears of it through a report. So the published (leader, epoch) pair is the newer of the two.
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
    """A published (leader, epoch) pair; the pairs of one partition only rise."""

    node: NodeId
    epoch: Term


class Floor(NamedTuple):
    """The replica of a group here and its term, as this directory's store had them at boot.

    In an earlier boot this broker may have told clients of leaders up to that term, and of no later
    ones.
    """

    replica: ReplicaId
    term: Term


class Endpoint(NamedTuple):
    """The address at which clients of one listener reach a broker."""

    host: str
    port: int
    rack: str | None


@final
@attrs.define(eq=False)
class Router:
    """Looks things up in the present image.

    It keeps only the floors that this boot found, and pairs that a running replica told and that
    the image does not have yet.
    """

    turn: Turn
    floors: Mapping[GroupId, Floor]
    _told: dict[GroupId, KnownLeader] = attrs.Factory(dict)
    """Group that runs or ran here -> its leader, until the image has that one or a newer one."""

    def topic(self, key: TopicKey) -> TopicImage | None:
        """The topic of that name or id; the metadata group's own log is no topic."""
        if isinstance(key, str):
            return self.turn.image.topic(key)
        return self.turn.image.topics.get(TopicId(bytes(key)))

    def partition(self, key: TopicKey, number: int) -> PartitionImage | ErrorCode:
        """The partition, or why there is none.

        UNKNOWN_TOPIC_ID is for an id, UNKNOWN_TOPIC_OR_PARTITION for a name or a number that does
        not exist.
        """
        topic = self.topic(key)
        if topic is None:
            if isinstance(key, str):
                return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return ErrorCode.UNKNOWN_TOPIC_ID
        if not 0 <= number < len(topic.partitions):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return topic.partitions[number]

    def replica(self, key: TopicKey, number: int) -> PartitionReplica | ErrorCode:
        """The running replica of that partition on this node, leader or not; else the reason."""
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
        """The leader of that partition, as far as this node knows; a broker that is alive."""
        partition = self.partition(key, number)
        return None if isinstance(partition, ErrorCode) else self._leader(partition)

    def newest(self, partition: PartitionImage) -> KnownLeader | None:
        """The newest known (leader, epoch), whether that broker lives or not.

        A replica that looks for the next leader still names the last one: the image may have an
        older one.

        Clients remember pairs that an earlier boot told them. So no leader is named before the
        image is as new as this boot, nor with an epoch below the floor. A pair that our replica
        knows is told once its term is durable.
        """
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
        """The lowest term whose leader may be named.

        No leader of an earlier term may, unless our replica has left for good: the leaders after a
        committed configuration without it told it nothing (Raft, section 6). A replica that is not
        in the last reported configuration may be about to join.
        """
        floor = self.floors.get(partition.group)
        if floor is None or floor.replica not in partition.replicas:
            return Term(0)
        return floor.term

    def forget(self, group: GroupId) -> None:
        """Forget a group whose topic is deleted."""
        self._told.pop(group, None)

    def _leader(self, partition: PartitionImage) -> KnownLeader | None:
        found = self.newest(partition)
        return found if found is not None and self.is_alive(found.node) else None

    def is_alive(self, node: NodeId) -> bool:
        """Whether the cluster takes that broker for alive."""
        broker = self.turn.image.brokers.get(node)
        return broker is not None and not broker.fenced

    def endpoint(self, node: NodeId, listener: str) -> Endpoint | None:
        """The address at which clients of that listener reach a broker, if it is alive."""
        broker = self.turn.image.brokers.get(node)
        if broker is None or broker.fenced:
            return None
        found = broker.listener(listener)
        if found is None:
            return None
        return Endpoint(found.host, found.port, broker.rack or None)
