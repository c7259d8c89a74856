"""The client's knowledge of the cluster: brokers, topics, leaders. An older answer never replaces a
newer one.

* A leader is taken over only if its epoch is at least the one known for the same topic id, because
  two brokers may answer in the wrong order.
* A topic of one id never shrinks: a broker that lists fewer partitions has not heard of the others
  yet.
* A new topic id replaces everything known of the topic. Old brokers send no id (`ZERO_ID`); their
  last answer counts.
"""

from collections.abc import Sequence
from typing import NamedTuple, final

import attrs

from raftlog.base.ids import NodeId
from raftlog.client.core.values import TopicPartition
from raftlog.kafka.messages.metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from raftlog.kafka.shape import ZERO_ID

NO_LEADER = NodeId(-1)


class PartitionLeader(NamedTuple):
    """The leader of a partition and its leader epoch."""

    node: NodeId
    epoch: int


@final
@attrs.define(eq=False)
class TopicView:
    """A topic as the cache knows it. `error` is Kafka's code; with an error the other fields may be
    old."""

    name: str
    topic_id: bytes
    error: int
    leaders: dict[int, PartitionLeader]
    partitions: tuple[MetadataResponsePartition, ...]

    @property
    def count(self) -> int:
        return len(self.partitions)


@final
@attrs.define(eq=False)
class MetadataCache:
    """The merged answers to metadata requests. `addresses` are those of live brokers."""

    cluster_id: str | None = None
    controller: NodeId = NO_LEADER
    addresses: dict[NodeId, tuple[str, int]] = attrs.Factory(dict)
    topics: dict[str, TopicView] = attrs.Factory(dict)
    names: dict[bytes, str] = attrs.Factory(dict)

    def learn(self, answer: MetadataResponse) -> None:
        """Merge an answer into the cache."""
        self.learn_brokers(answer)
        for topic in answer.topics or ():
            self._learn_topic(topic)

    def learn_brokers(self, answer: MetadataResponse) -> None:
        """Merge the brokers of an answer, without its topics."""
        if answer.brokers:
            self.addresses = {
                NodeId(each.node_id): (each.host, each.port) for each in answer.brokers
            }
        self.cluster_id = answer.cluster_id or self.cluster_id
        self.controller = NodeId(answer.controller_id)

    def _learn_topic(self, topic: MetadataResponseTopic) -> None:
        name = topic.name or ""
        known = self.topics.get(name)
        if topic.error_code != 0 and not topic.partitions:
            if known is not None:
                known.error = topic.error_code
            else:
                self.topics[name] = TopicView(name, ZERO_ID, topic.error_code, {}, ())
            return
        same = known is not None and known.topic_id == topic.topic_id
        leaders = dict(known.leaders) if known is not None and same else {}
        lasting = known is not None and same and topic.topic_id != ZERO_ID
        told_before = known.partitions if known is not None and lasting else ()
        merged = {each.partition_index: each for each in (*told_before, *topic.partitions)}
        for each in topic.partitions:
            told = PartitionLeader(NodeId(each.leader_id), each.leader_epoch)
            before = leaders.get(each.partition_index)
            if before is None or told.epoch >= before.epoch:
                leaders[each.partition_index] = told
        partitions = tuple(merged[index] for index in sorted(merged))
        self.topics[name] = TopicView(name, topic.topic_id, topic.error_code, leaders, partitions)
        self.names[topic.topic_id] = name

    def told_leader(self, place: TopicPartition, node: int, epoch: int) -> None:
        """Take over the new leader that a NOT_LEADER_OR_FOLLOWER answer named (KIP-951)."""
        view = self.topics.get(place.topic)
        if view is None or node < 0:
            return
        before = view.leaders.get(place.partition)
        if before is None or epoch > before.epoch:
            view.leaders[place.partition] = PartitionLeader(NodeId(node), epoch)

    def told_endpoints(self, endpoints: Sequence[tuple[int, str, int]]) -> None:
        """Take over the broker addresses that came with such an answer."""
        for node, host, port in endpoints:
            self.addresses.setdefault(NodeId(node), (host, port))

    def forget_leader(self, place: TopicPartition) -> None:
        """Forget a leader that turned out not to lead. Its epoch is kept, so that older answers are
        still recognised."""
        view = self.topics.get(place.topic)
        if view is not None and place.partition in view.leaders:
            before = view.leaders[place.partition]
            view.leaders[place.partition] = PartitionLeader(NO_LEADER, before.epoch)

    def leader_of(self, place: TopicPartition) -> NodeId | None:
        """The leader of a partition if its address is known; else None."""
        view = self.topics.get(place.topic)
        leader = view.leaders.get(place.partition) if view is not None else None
        if leader is None or leader.node not in self.addresses:
            return None
        return leader.node

    def topic(self, name: str, partition: int | None = None) -> TopicView | None:
        """The topic, if it and this partition are known to exist; else None."""
        view = self.topics.get(name)
        if view is None or not view.partitions:
            return None
        return view if partition is None or partition < view.count else None
