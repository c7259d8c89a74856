"""Checks the metadata group's state after every turn.

All nodes have the same state. No id that the group gave is ever given again. Everything that the
state refers to is there.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, final

import attrs

from raftlog.base.ids import GroupId, NodeId, TopicId
from raftlog.broker.handlers import init_producer_id
from raftlog.metadata.settings.broker_settings import EVERY_BROKER
from raftlog_sim.checks.topic_checks import TopicChecks

if TYPE_CHECKING:
    from raftlog.metadata.image import ClusterImage
    from raftlog_sim.world.node import Node

_Place = tuple[int, int, int]


@final
@attrs.define(eq=False)
class MetadataChecks:
    """Checks the images of all nodes.

    `images` holds the last image seen of each node. `topics` holds the oldest image version with a
    topic, and the oldest later one without it, or 0. `blocks` says who gives the producer ids from
    a first id on: a node and its boot count. `reports` holds the newest image version with a group,
    and the leader's report in it. `asked` is what administrators want. `given` is the last `_given`
    of each node.
    """

    asked: TopicChecks
    images: dict[NodeId, object] = attrs.Factory(dict)
    digests: dict[int, bytes] = attrs.Factory(dict)
    topics: dict[TopicId, tuple[int, int]] = attrs.Factory(dict)
    blocks: dict[int, tuple[NodeId, int]] = attrs.Factory(dict)
    reports: dict[GroupId, tuple[int, _Place]] = attrs.Factory(dict)
    given: dict[NodeId, tuple[int, int]] = attrs.Factory(dict)

    def has_news(self, node: "Node") -> bool:
        """Whether `after_turn` would find anything to check; most turns bring nothing."""
        context = node.broker.context
        return (
            self.images.get(node.number) is not context.image
            or self.given.get(node.number) != _given(node)
            or node.broker.loader.stopped is not None
        )

    def after_turn(self, node: "Node") -> Iterator[tuple[str, str]]:
        """Check a node's image; yields (invariant, error or "") for each check."""
        yield "metadata-followed", _followed(node)
        yield "producer-ids-unique", self._block_again(node)
        image = node.broker.context.image
        if self.images.get(node.number) is not image:
            self.images[node.number] = image
            yield "image-digest", self._digest(node, image)
            yield "deleted-stays-deleted", self._topic_again(image)
            yield "topics-as-asked", self.asked.show(image)
            yield "reports-ascend", self._older_report(image)
            yield "condemned-rightly", _condemned(node, image)
            yield "image-names-brokers", _stranger(image)

    def _digest(self, node: "Node", image: "ClusterImage") -> str:
        """Returns an error when two nodes have different images of one version."""
        digest = image.digest()
        if self.digests.setdefault(image.version, digest) == digest:
            return ""
        return f"node {node.number} has another image of version {image.version}"

    def _topic_again(self, image: "ClusterImage") -> str:
        """Returns an error when a later image has the id of a deleted topic."""
        version = image.version
        for topic_id in image.topics:
            made, gone = self.topics.get(topic_id, (version, 0))
            self.topics[topic_id] = (min(made, version), gone)
            if 0 < gone < version:
                return (
                    f"topic {image.topics[topic_id].name} of version {made} was deleted by version"
                    f" {gone} and is there in version {version}"
                )
        for topic_id, (made, gone) in self.topics.items():
            if topic_id not in image.topics and version > made and (not gone or version < gone):
                self.topics[topic_id] = (made, version)
        return ""

    def _older_report(self, image: "ClusterImage") -> str:
        """Returns an error when an older report of a leader replaces a newer one.

        The order is by term, then membership, then the leader's count of its reports.
        """
        for topic in image.topics.values():
            for partition in topic.partitions:
                told, group = partition.reported, partition.group
                place = (told.term, told.membership_index, told.serial)
                version, newest = self.reports.get(group, (image.version, place))
                if image.version >= version:
                    self.reports[group] = (image.version, place)
                    if place < newest:
                        return f"group {group} was reported at {newest}, then at {place}"
        return ""

    def _block_again(self, node: "Node") -> str:
        """Returns an error when a block of producer ids belongs to two boots of brokers."""
        boots, end_id = self.given[node.number] = _given(node)
        if not end_id:
            return ""
        first, mine = end_id - init_producer_id.BLOCK_IDS, (node.number, boots)
        owner = self.blocks.setdefault(first, mine)
        if owner == mine:
            return ""
        return (
            f"producer ids from {first} on are given by boot {mine[1]} of node {mine[0]} and were"
            f" given by boot {owner[1]} of node {owner[0]}"
        )


def _condemned(node: "Node", image: "ClusterImage") -> str:
    """Returns an error when a directory is condemned that was never put back as an old copy."""
    for number, broker in image.brokers.items():
        other = node.world.nodes.get(number)
        if not broker.condemned or other is None or not other.up or other.rolled_back:
            continue
        if other.broker.context.directory == broker.directory:
            return f"the directory of node {number} was condemned and never rolled back"
    return ""


def _stranger(image: "ClusterImage") -> str:
    """Returns an error when the image refers to a broker that it does not know.

    A replica without a broker has no address, so the others could never reach it.
    """
    for topic in image.topics.values():
        for number, partition in enumerate(topic.partitions):
            for replica in (*partition.replicas, *partition.target):
                if replica.node not in image.brokers:
                    return f"{topic.name}-{number} has replica {replica} on no broker"
    for owner in (*image.removals, *image.settings):
        if owner not in image.brokers and owner != EVERY_BROKER:
            return f"there is something for broker {owner}, which is unknown"
    return ""


def _given(node: "Node") -> tuple[int, int]:
    """Returns the boot of a node, and the end of its present block of producer ids, or 0."""
    return node.boots, node.broker.context.kept(init_producer_id.ProducerIds).end_id


def _followed(node: "Node") -> str:
    """Returns an error when a broker stopped at a metadata entry that it cannot follow."""
    stopped = node.broker.loader.stopped
    return "" if stopped is None else f"node {node.number} stopped: {stopped}"
