"""Looks up on a simulated disk what really lies there, and never asks the broker.

Durable is what a crash that keeps nothing pending would leave.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from raftlog.base.binary import Buffer
from raftlog.base.entries import HardState
from raftlog.base.errors import CorruptData, DiskError, RaftlogError
from raftlog.base.ids import (
    METADATA_GROUP,
    DirectoryId,
    GroupId,
    NodeId,
    RaftIndex,
    ReplicaId,
    Term,
)
from raftlog.base.limits import SEGMENT_HEADER_BYTES
from raftlog.metadata.image import EMPTY_IMAGE
from raftlog.metadata.rules.apply import apply
from raftlog.partition.replica import PartitionReplica
from raftlog.records.record import records_of
from raftlog.storage.directories.data_dir import FORMAT_FILE, peek_directory, read_identity
from raftlog.storage.directories.incarnations import Incarnation
from raftlog.storage.directories.store_file import STORE_FILES, StoreReader
from raftlog.storage.files import opened
from raftlog.storage.inspect import inspect_directory
from raftlog.storage.replica import Mark, ReplicaSpec
from raftlog.storage.segments.live_files import find_live_files
from raftlog.storage.segments.segment import Segment
from raftlog.storage.segments.walk import Walk, segment_start
from raftlog_sim.world.more_disks import as_one

if TYPE_CHECKING:
    from raftlog.metadata.image import ClusterImage
    from raftlog.storage.directories.data_dir import DirectoryIdentity
    from raftlog.storage.directories.store_records import StoreState
    from raftlog_sim.world.node import Node

_STORE: Final = (FORMAT_FILE, *STORE_FILES)
_ON: Final = "metadata log"
_NEVER_VOTED: Final = HardState(Term(0), None)


class Story(NamedTuple):
    """The content of a replica's files. The chain at the end covers everything before it."""

    first_index: int
    last_index: int
    next_offset: int
    chain: str
    damaged: str


def durable_index(node: "Node", replica: PartitionReplica) -> int:
    """Returns the log's own durable index when the disk has the file and the bytes up to it.

    Otherwise it returns the index before that segment, since no more can be said.
    """
    log = replica.log
    mark = log.mark(log.durable_index)
    if mark is None:  # an install is under way: the old log counts
        return after_a_crash(node, replica.me, replica.node.durable)
    if mark.raft_index == 0:
        return log.durable_index
    following: Segment | None = None
    for segment in reversed(log.segments):
        if segment.header.file_sequence == mark.file_sequence:
            if node.disk.durable_to(segment.path) >= mark.end_position:
                return log.durable_index
            if following is not None and _is_dropped(node, replica, segment, following):
                return log.durable_index
            return segment.first_index - 1
        following = segment
    return log.durable_index


def after_a_crash(node: "Node", replica: ReplicaId, said: int) -> int:
    """Returns the last entry of this replica that a boot would find.

    Where the boot would find damage, it returns `said`, since nothing contradicts the replica then.
    """
    groups: Any = inspect_directory(as_one(node, node.disk.durable_copy()))["groups"]
    rows = [row for row in groups if row["replica"] == str(replica)]
    return max((said if row["damaged"] else row["last_index"] for row in rows), default=0)


def _is_dropped(
    node: "Node", replica: PartitionReplica, segment: Segment, following: Segment
) -> bool:
    """Whether the file is gone because the log start has passed all of it.

    The durable header of the next file then stands for everything before.
    """
    return (
        not node.disk.exists(segment.path)
        and replica.log_start >= following.base_offset
        and node.disk.durable_to(following.path) >= SEGMENT_HEADER_BYTES
    )


def vote_is_durable(node: "Node", group: GroupId, term: int, to: ReplicaId) -> bool:
    """Whether the node's disk has a vote for `to` in that term, or a later term.

    It is True where the run damaged the store beyond reading. The next boot then gives up the
    directory, and with it every vote (seed 9904784).
    """
    if _store(node) is None and any(map(node.disk.is_hurt, STORE_FILES)):
        return True
    state = stored_state(node, group)
    return state.term > term or state == (term, to)


def stored_state(node: "Node", group: GroupId) -> HardState:
    """Returns term and vote of the group on the node's disk; no vote when the store cannot be
    read."""
    store = _store(node)
    return _NEVER_VOTED if store is None else store.hard_states.get(group, _NEVER_VOTED)


def stored_mark(node: "Node", group: GroupId) -> Mark | None:
    """Returns the durable mark of the group's log; None when the disk has none that can be read."""
    store = _store(node)
    return None if store is None else store.marks.get(group)


def stored_incarnation(node: "Node", directory: DirectoryId) -> Incarnation | None:
    """Returns the last life of another directory that the node's disk knows of; None for none."""
    store = _store(node)
    known = None if store is None else store.incarnations.known.get(directory)
    return None if known is None else known.incarnation


def identity(node: "Node") -> "DirectoryIdentity | None":
    """Returns the identity to which the node's disk was formatted; None if not durable or
    readable."""
    try:
        return read_identity(node.disk.durable_copy((FORMAT_FILE,)))
    except RaftlogError:
        return None


def is_registered(node: "Node", group: GroupId, replica: ReplicaId) -> bool:
    """Whether the node's disk has this replica's registration; True when it cannot be read."""
    store = _store(node)
    if store is None:
        return True
    registration = store.registrations.get(group)
    return registration is not None and registration.replica == replica


def registered_path(node: "Node", group: GroupId, replica: ReplicaId) -> str | None:
    """Returns the path of this replica on the node's disk; None when the disk does not tell."""
    store = _store(node)
    registration = None if store is None else store.registrations.get(group)
    if registration is None or registration.replica != replica:
        return None
    return registration.path


def _store(node: "Node") -> "StoreState | None":
    """Returns the durable store; reads it again only after some call changed the disk."""
    disk = node.disk
    known = node.looked_up
    if known is None or known[:2] != (disk, disk.mutations):
        found = disk.durable_copy(_STORE)
        reader = StoreReader() if known is None else known[2]
        store: StoreState | None
        try:
            store = reader.read(found, read_identity(found).owner)
        except RaftlogError:
            store = None
        node.looked_up = known = (disk, disk.mutations, reader, store)
    return known[3]


def durable_marks(node: "Node") -> "dict[GroupId, Mark]":
    """Returns the marks of the durable store; none when it cannot be read."""
    try:
        return dict(peek_directory(node.disk.durable_copy(_STORE)).marks)
    except RaftlogError:
        return {}


def image_at_boot(node: "Node") -> "ClusterImage":
    """Returns the image that the node would have after a power failure, before it hears from
    others.

    It comes from the commands on the disk up to the durable commit hint. A node that cannot read
    them has the empty image.
    """
    image, commands = EMPTY_IMAGE, node.config.release.commands
    try:
        for batch in _committed_metadata(node):
            for record in records_of(batch, CorruptData, _ON):
                proposal = commands.decode(record.value or b"", CorruptData, _ON)
                image = apply(image, proposal.command, proposal.once).image
    except RaftlogError:
        return EMPTY_IMAGE
    return image


def _committed_metadata(node: "Node") -> Iterator[Buffer]:
    """Yields the batches that a boot would hold to be committed."""
    disk = node.disk.durable_copy()
    directory = peek_directory(disk)
    registration = directory.registrations.get(METADATA_GROUP)
    mark = directory.marks.get(METADATA_GROUP)
    if registration is None or mark is None:
        return
    spec = ReplicaSpec(
        cluster=directory.identity.cluster,
        group=METADATA_GROUP,
        replica=registration.replica,
        path=registration.path,
    )
    behind = RaftIndex(mark.commit + 1)
    for file in find_live_files(disk, spec).live:
        start = segment_start(file.header)
        stop = behind if file.stop is None else min(file.stop, behind)
        with opened(disk, file.path) as opened_file:
            walk = Walk(opened_file, start, METADATA_GROUP, file.path)
            batches = [walked.entry.batch for walked in walk.batches(stop)]
        yield from batches


def stories(node: "Node") -> Iterator[tuple[int, Story]]:
    """Yields each group with the content of its files, read from the beginning.

    A sector that cannot be read counts as its last written bytes. Otherwise one bad sector would
    keep all other files from being read.
    """
    try:
        try:
            report = inspect_directory(as_one(node, node.disk))
        except DiskError:
            report = inspect_directory(as_one(node, node.disk.durable_copy()))
    except RaftlogError as error:
        yield -node.number, Story(0, 0, 0, "", str(error))
        return
    running = node.broker.context.replicas
    groups: Any = report["groups"]
    for row in groups:
        replica = running.get(row["group"])
        if replica is None or str(replica.me) != row["replica"]:
            continue
        if row["damaged"]:
            yield row["group"], Story(0, 0, 0, "", f"damaged on node {node.number}: {row['fault']}")
        else:
            yield (
                row["group"],
                Story(row["first_index"], row["last_index"], row["next_offset"], row["chain"], ""),
            )


def difference(one: Story, other: Story) -> str:
    """Returns how two replicas of a converged group differ; "" when in nothing that matters.

    They may reach back to different first entries.
    """
    for story in (one, other):
        if story.damaged:
            return story.damaged
    if one[1:] != other[1:]:
        return f"{one} and {other}"
    return ""


def is_heard(node: "Node", peer: NodeId) -> bool:
    """Whether a peer listens to this node at all.

    Words of an old copy of a disk to a peer that refuses it are no promise (seed 4100339).
    """
    other = node.world.nodes.get(peer)
    if other is None or not other.up:
        return False
    links = other.broker.links
    if node.number not in links.turn.sessions or node.number in links.refused:
        return False
    # Words to a peer that has not synced this node's life yet are none either: they do not count
    # there.
    met = links.incarnations.met(node.number)
    return met is None or (met.synced and met.heard)
