"""Checks that the cluster has one id and was founded once.

The check runs when a directory boots and at the end of a run, since nothing may change in between.
`membership_checks` checks that the metadata group began with the same voters everywhere.
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
    """Compares every node with the first. `cluster` comes from the first directory checked and
    `founders` from the first founder checked. `boots` holds the last checked boot of each node."""

    cluster: ClusterId | None = None
    founders: tuple[ReplicaId, ...] = ()
    boots: dict[NodeId, int] = attrs.Factory(dict)
    numbers: dict[DirectoryId, int] = attrs.Factory(dict)
    """The last boot number of each directory."""

    def booted(self, node: "Node") -> "Iterator[tuple[str, str]]":
        """Check a node, once in each boot, when one of its replicas begins."""
        if self.boots.get(node.number) != node.boots:
            self.boots[node.number] = node.boots
            yield "one-cluster", self.differs(node)
        if not node.rolled_back:
            yield "boot-numbers", self._went_back(node)

    def _went_back(self, node: "Node") -> str:
        """Returns an error when the boot number of a directory fell; "" when it did not.

        The caller leaves out disks that the run replaced by an older copy.
        """
        directory, boot = node.broker.context.directory, node.broker.context.boot
        before = self.numbers.get(directory, 0)
        if boot < before:
            return f"directory {directory} had boot {before}, {boot}"
        self.numbers[directory] = boot
        return ""

    def differs(self, node: "Node") -> str:
        """Returns how a node belongs to another cluster or founds a second time; "" when neither.

        An image counts only once it has an id. A directory that cannot be read is not checked.
        """
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
