"""What the files say in the end, when they are read from the beginning: the same on all nodes, also
where disks were damaged and repaired, wiped, replaced or lost.

Excused is one thing: rot at rest that nobody has read. A segment that the run has damaged (`hurt`)
may be rotten to the end where the product has not walked it in this boot, for what an index file
vouches for is verified when it is first used, and nothing promises that it was. Whoever was damaged
has booted since; so what the product holds to be verified is whole, can be read, and is compared:
after a boot without index files all there is.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, cast, final

import attrs

from raftlog.base.ids import GroupId
from raftlog.base.limits import SEGMENT_HEADER_BYTES
from raftlog.storage.segments.segment import Segment
from raftlog.storage.segments.walk import Walk
from raftlog_sim.facts import truth

if TYPE_CHECKING:
    from raftlog.base.ids import NodeId
    from raftlog.base.ports import DiskFile
    from raftlog_sim.world.node import Node


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
            if segment.verified and _cannot_be_read(node, segment):
                return f"group {group} on node {node.number}: {segment.path} cannot be read"
    return ""


def _cannot_be_read(node: "Node", segment: Segment) -> bool:
    """Whether a read of the segment fails. A bad sector behind its end, in bytes that a repair has
    cut off, is nothing to it (swarm seed 180)."""
    size = (segment.end_position or 0) - SEGMENT_HEADER_BYTES
    return size > 0 and node.disk.is_unreadable(segment.path, SEGMENT_HEADER_BYTES, size)


def _is_excused(node: "Node", group: int) -> bool:
    """Whether a file of this replica may be rotten, and nobody has read it."""
    return any(
        node.disk.is_hurt(segment.path) and not segment.verified
        for number, replica in node.broker.context.replicas.items()
        if number == group
        for segment in replica.log.segments
    ) or bool(node.broker.context.replicas[GroupId(group)].log.gaps)


def rot_found(nodes: "Sequence[Node]") -> Iterator[tuple[str, str]]:
    """After an interval of the scrubber: of every closed segment that the run has damaged, whether
    it is rotten still and the product does not know."""
    for node in nodes:
        for replica in node.broker.context.replicas.values():
            for segment in replica.log.segments[:-1]:
                if node.disk.is_hurt(segment.path) and segment.damage is None:
                    yield "rot-found", _rotten(node, segment)


def _rotten(node: "Node", segment: Segment) -> str:
    where = f"{segment.path} of node {node.number}"
    content = node.disk.content(segment.path)
    if _cannot_be_read(node, segment):
        return f"{where} cannot be read, and nobody noticed"
    group, end = segment.header.group, segment.end
    walk = Walk(cast("DiskFile", _Content(content)), segment.start(), group, segment.path)
    for _ in walk.batches(segment.end_index):
        continue
    if walk.fault is None:
        walk.check(segment.end_index, end.chain, None, "the log")
    return f"{where} is rotten, and nobody noticed: {walk.fault}" if walk.fault else ""


@final
@attrs.frozen
class _Content:
    """The bytes of a file, to be walked without asking the disk, which may still fail."""

    content: bytes

    def size(self) -> int:
        return len(self.content)

    def read_at(self, position: int, size: int) -> bytes:
        return self.content[position : position + size]
