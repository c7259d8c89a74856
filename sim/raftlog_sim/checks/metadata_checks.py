"""Checks the metadata group's state after every turn: all nodes have the same, and no id that it
gave is ever given again."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, final

import attrs

from raftlog.base.ids import GroupId, NodeId, TopicId
from raftlog.broker.handlers import init_producer_id
from raftlog_sim.checks.topic_checks import TopicChecks

if TYPE_CHECKING:
    from raftlog.metadata.image import ClusterImage
    from raftlog_sim.world.node import Node

_Place = tuple[int, int, int]


@final
@attrs.define(eq=False)
class MetadataChecks:
    """`images`: the last one seen of each node. `topics`: the oldest version of the image with the
    topic, and the oldest later one without it, or 0. `blocks`: who gives the producer ids from that
    one on, a node and the count of its boots. `reports`: the newest version of the image with the
    group, and whose leader's report that version knows. `asked`: what administrators want.
    `given`: what `_given` said of a node when it was last looked at."""

    asked: TopicChecks
    images: dict[NodeId, object] = attrs.Factory(dict)
    digests: dict[int, bytes] = attrs.Factory(dict)
    topics: dict[TopicId, tuple[int, int]] = attrs.Factory(dict)
    blocks: dict[int, tuple[NodeId, int]] = attrs.Factory(dict)
    reports: dict[GroupId, tuple[int, _Place]] = attrs.Factory(dict)
    given: dict[NodeId, tuple[int, int]] = attrs.Factory(dict)

    def has_news(self, node: "Node") -> bool:
        """Whether `after_turn` would find anything to look at: most turns bring nothing."""
        context = node.broker.context
        return (
            self.images.get(node.number) is not context.image
            or self.given.get(node.number) != _given(node)
            or node.broker.loader.stopped is not None
        )

    def after_turn(self, node: "Node") -> Iterator[tuple[str, str]]:
        """The name of each invariant that was looked at, and what is wrong, or nothing."""
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

    def _digest(self, node: "Node", image: "ClusterImage") -> str:
        """Equal versions of the cluster's image are equal images, on all nodes."""
        digest = image.digest()
        if self.digests.setdefault(image.version, digest) == digest:
            return ""
        return f"node {node.number} has another image of version {image.version}"

    def _topic_again(self, image: "ClusterImage") -> str:
        """A topic is made once: no later image has the id of one that was deleted."""
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
        """What a leader reported gives way only to what is newer: by term, then membership, then
        the count of reports of that leader."""
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
        """A block of producer ids belongs to one boot of one broker."""
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
    """Only a directory that was put back as an old copy is out for ever."""
    for number, broker in image.brokers.items():
        other = node.world.nodes.get(number)
        if not broker.condemned or other is None or not other.up or other.rolled_back:
            continue
        if other.broker.context.directory == broker.directory:
            return f"the directory of node {number} was condemned and never rolled back"
    return ""


def _given(node: "Node") -> tuple[int, int]:
    """The boot of a node, and where its present block of producer ids ends; 0 when it has none."""
    return node.boots, node.broker.context.kept(init_producer_id.ProducerIds).end_id


def _followed(node: "Node") -> str:
    """No broker meets what it cannot read, or cannot agree with, in the metadata log."""
    stopped = node.broker.loader.stopped
    return "" if stopped is None else f"node {node.number} stopped: {stopped}"
