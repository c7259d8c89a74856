"""What the files say in the end, when they are read from the beginning: the same on all nodes, also
where disks were damaged and repaired, wiped, replaced or lost.

Excused is one thing: rot at rest that nobody has read. A segment that the run has damaged (`hurt`)
may be rotten to the end where the product has not walked it in this boot, for what an index file
vouches for is verified when it is first used, and nothing promises that it was. Whoever was damaged
has booted since; so what the product holds to be verified is whole, can be read, and is compared:
after a boot without index files all there is.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from raftlog.base.limits import SEGMENT_HEADER_BYTES
from raftlog_sim import truth

if TYPE_CHECKING:
    from raftlog.base.ids import NodeId
    from raftlog_sim.node import Node


def equal_files(nodes: "Sequence[Node]") -> Iterator[tuple[str, str]]:
    """See the module: for each replica of these nodes that was compared what is wrong, or
    nothing."""
    stories: dict[int, tuple[NodeId, truth.Story]] = {}
    for node in nodes:
        if wrong := _unreadable(node):
            yield "equal-files", wrong
        for group, story in truth.stories(node):
            if _is_excused(node, group):
                continue
            number, first = stories.setdefault(group, (node.number, story))
            what = truth.difference(first, story)
            where = f"group {group} on nodes {number} and {node.number}"
            yield "equal-files", f"{where}: {what}" if what else ""


def _unreadable(node: "Node") -> str:
    """A segment that the product has verified and nobody can read, or nothing. (What is compared
    counts a bad sector as what was written there.)"""
    for group, replica in node.broker.context.replicas.items():
        for segment in replica.log.segments:
            size = (segment.end_position or 0) - SEGMENT_HEADER_BYTES
            if (
                segment.verified
                and size > 0
                and node.disk.is_unreadable(segment.path, SEGMENT_HEADER_BYTES, size)
            ):
                return f"group {group} on node {node.number}: {segment.path} cannot be read"
    return ""


def _is_excused(node: "Node", group: int) -> bool:
    """Whether a file of this replica may be rotten, and nobody has read it."""
    return any(
        node.disk.is_hurt(segment.path) and not segment.verified
        for number, replica in node.broker.context.replicas.items()
        if number == group
        for segment in replica.log.segments
    )
