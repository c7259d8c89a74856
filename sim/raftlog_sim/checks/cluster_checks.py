"""What must hold of the cluster as a whole: it has one id, and was founded once.

Looked at when a directory boots and in the end, for nothing may change it in between. That the
group of the metadata began with the same voters everywhere, `membership_checks` sees.
"""

from typing import TYPE_CHECKING, final

import attrs

from raftlog.base.ids import ClusterId, DirectoryId, NodeId, ReplicaId
from raftlog_sim.facts import truth

if TYPE_CHECKING:
    from collections.abc import Iterator

    from raftlog_sim.world.node import Node


@final
@attrs.define(eq=False)
class ClusterChecks:
    """`cluster` and `founders` as the first directory said them that was looked at, the founders
    the first that was formatted as one of them; `boots`: in which boot each node was looked at."""

    cluster: ClusterId | None = None
    founders: tuple[ReplicaId, ...] = ()
    boots: dict[NodeId, int] = attrs.Factory(dict)
    numbers: dict[DirectoryId, int] = attrs.Factory(dict)
    """The last boot number of each directory."""

    def booted(self, node: "Node") -> "Iterator[tuple[str, str]]":
        """A replica of the node began: the node is looked at once in each boot."""
        if self.boots.get(node.number) != node.boots:
            self.boots[node.number] = node.boots
            yield "one-cluster", self.differs(node)
        if not node.rolled_back:
            yield "boot-numbers", self._went_back(node)

    def _went_back(self, node: "Node") -> str:
        """The boot numbers of a directory only rise, unless somebody put an old copy there."""
        directory, boot = node.broker.context.directory, node.broker.context.boot
        before = self.numbers.get(directory, 0)
        if boot < before:
            return f"directory {directory} had boot {before}, {boot}"
        self.numbers[directory] = boot
        return ""

    def differs(self, node: "Node") -> str:
        """What of the node is another cluster's, or founds a second time; or nothing. Of the image
        an id is asked only once it has one; a directory that cannot be read says nothing."""
        identity, context = truth.identity(node), node.broker.context
        if identity is None:
            return ""
        self.cluster = self.cluster or identity.cluster
        self.founders = self.founders or identity.controllers
        image = context.image.cluster_id or self.cluster
        held = {replica.log.spec.cluster for replica in context.replicas.values()}
        if {identity.cluster, context.cluster, image, *held} != {self.cluster}:
            return (
                f"node {node.number} has a directory of cluster {identity.cluster.hex()}, an image "
                f"of {image.hex()}; the first was {self.cluster.hex()}"
            )
        if identity.controllers not in ((), self.founders):
            return f"node {node.number} founds with {identity.controllers}, not {self.founders}"
        return ""
