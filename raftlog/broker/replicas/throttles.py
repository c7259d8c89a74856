"""Throttles moves as group 0 wants it: what this broker sends to learners, and what it copies from
one of its log directories to another.

The names are Kafka's. A move between brokers is throttled twice: by the budget of the sending
broker and by that of the receiving broker. Each counts only for replicas that the topic's list
names.

Kafka's followers fetch, so each keeps its own budget. Here leaders send. The budget of a broker
that receives is therefore divided evenly between the brokers that lead a throttled move to it, as
the image shows them; each leader keeps its part. The parts together never exceed the budget.
"""

from collections.abc import Iterator
from typing import Final, final

import attrs

from raftlog.base.ids import GroupId, NodeId
from raftlog.base.probes import probe
from raftlog.broker.turn import Turn
from raftlog.metadata.delta import ClusterDelta
from raftlog.metadata.image import ClusterImage
from raftlog.metadata.settings.broker_settings import (
    DIRECTORY_RATE,
    EVERY_BROKER,
    FOLLOWER_RATE,
    LEADER_RATE,
    BrokerSettings,
)
from raftlog.metadata.settings.config_checks import LONG_MAX, names_replica
from raftlog.metadata.topic_image import PartitionImage, TopicImage
from raftlog.raft.throttle import UNTHROTTLED, Throttle, Throttling

_LEADERS: Final = "leader.replication.throttled.replicas"
_FOLLOWERS: Final = "follower.replication.throttled.replicas"


@final
@attrs.define(eq=False)
class Throttles:
    """The throttles of one broker. A group keeps the `Throttling` that it was given, which is
    changed in place."""

    turn: Turn
    own: Throttle = attrs.Factory(Throttle)
    copies: Throttle = attrs.Factory(Throttle)
    """The budget of copies between log directories."""
    _followers: dict[NodeId, Throttle] = attrs.Factory(dict)
    _groups: dict[GroupId, Throttling] = attrs.Factory(dict)
    _settings: BrokerSettings = attrs.Factory(dict)

    def of(self, group: GroupId) -> Throttling:
        """The `Throttling` that paces this group's learners while its replica leads here."""
        throttling = self._groups[group] = Throttling()
        receivers = len(self._followers)
        self._refill(self.turn.image, group)
        if len(self._followers) > receivers:
            self._share(self.turn.image)
        return throttling

    def dropped(self, group: GroupId) -> None:
        """Forget a group whose replica stopped running here."""
        self._groups.pop(group, None)

    def image_changed(self, image: ClusterImage, delta: ClusterDelta) -> None:
        """Take in rates, lists and moves that changed with the image."""
        for topic_id in delta.configured:
            topic = image.topics.get(topic_id)
            for partition in topic.partitions if topic is not None else ():
                self._refill(image, partition.group)
        for group in delta.moved:
            self._refill(image, group)
        resettled = image.settings is not self._settings
        self._settings = image.settings
        if resettled:
            self.own.limit(_rate(image.settings, self.turn.node, LEADER_RATE))
            self.copies.limit(_rate(image.settings, self.turn.node, DIRECTORY_RATE))
        if resettled or delta.moved or delta.configured:
            self._share(image)
        if resettled:
            # Slots of the old rate are void: the leaders reserve again, at the end of this turn.
            for group, throttling in self._groups.items():
                if throttling.bounds:
                    self.turn.touch(group)

    def _refill(self, image: ClusterImage, group: GroupId) -> None:
        throttling, place = self._groups.get(group), image.places.get(group)
        if throttling is not None and place is not None:
            self._fill(throttling, image.topics[place[0]], place[1])

    def _fill(self, throttling: Throttling, topic: TopicImage, number: int) -> None:
        leaders, followers = topic.config(_LEADERS) or "", topic.config(_FOLLOWERS) or ""
        own = self.own if names_replica(leaders, number, self.turn.node) else None
        named: dict[NodeId, Throttle] = {}
        if followers:
            for replica in topic.partitions[number].target:
                if names_replica(followers, number, replica.node):
                    named[replica.node] = self._followers.setdefault(replica.node, Throttle())
        if (own, named) != (throttling.leader, throttling.followers):
            if own or named:
                probe("move-throttled")
            else:
                probe("throttle-of-a-move-ended")
            throttling.leader, throttling.followers = own, named
            throttling.changes += 1
            self.turn.touch(topic.partitions[number].group)

    def _share(self, image: ClusterImage) -> None:
        """Divide each receiving broker's rate between the brokers that lead a move to it."""
        if not self._followers:
            return
        leaders: dict[NodeId, dict[NodeId, None]] = {}
        for topic, number, partition in _throttled(image):
            followers = topic.config(_FOLLOWERS) or ""
            if partition.leader is None:
                continue
            for replica in partition.target:
                node = replica.node
                is_moving = replica not in partition.reported.membership.voters
                if is_moving and names_replica(followers, number, node):
                    leaders.setdefault(node, {})[partition.leader.node] = None
        for node, throttle in self._followers.items():
            rate = _rate(image.settings, node, FOLLOWER_RATE)
            if rate != UNTHROTTLED:
                rate = max(1, rate // max(1, len(leaders.get(node, ()))))
            throttle.limit(rate)


def _throttled(image: ClusterImage) -> Iterator[tuple[TopicImage, int, PartitionImage]]:
    """The partitions of topics that throttle receiving brokers."""
    for _, topic in sorted(image.topics.items()):
        if topic.config(_FOLLOWERS):
            for number, partition in enumerate(topic.partitions):
                yield topic, number, partition


def _rate(settings: BrokerSettings, node: NodeId, name: str) -> int:
    """The rate of a broker in bytes a second: its own, else the default for every broker."""
    for owner in (node, EVERY_BROKER):
        value = dict(settings.get(owner, ())).get(name)
        if value is not None:
            rate = int(value)
            return UNTHROTTLED if rate == LONG_MAX else max(rate, 1)
    return UNTHROTTLED
