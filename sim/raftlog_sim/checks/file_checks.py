"""Checks that the files of all nodes hold the same records at the end of a run.

That also holds where disks were damaged and repaired, wiped, replaced or lost.

The only excuse is rot at rest that no process has read. A segment that the run has damaged (`hurt`)
may stay rotten if the product has not walked it in this boot. The reason: records that an index
file vouches for are verified at their first use, and they may never be used. A damaged node has
booted since the damage. So every segment that the product counts as verified must be whole and
readable, and is compared. After a boot without index files these are all segments.
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
    """Compare the files of these nodes; yields an error or "" for each compared replica."""
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
    """Returns a verified segment that cannot be read; "" when there is none.

    The comparison itself reads through bad sectors, so it would miss such a segment.
    """
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
    """Whether a file of this replica may hold rot that the product has not read."""
    return any(
        node.disk.is_hurt(segment.path) and not segment.verified
        for number, replica in node.broker.context.replicas.items()
        if number == group
        for segment in replica.log.segments
    ) or bool(node.broker.context.replicas[GroupId(group)].log.gaps)


def rot_found(nodes: "Sequence[Node]") -> Iterator[tuple[str, str]]:
    """Check, after an interval of the scrubber, that the product knows of all rot.

    Yields an error or "" for each closed segment that the run damaged.
    """
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
