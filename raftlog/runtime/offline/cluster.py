"""The data directories of a cluster whose brokers are down, seen together.

One replica alone cannot tell what its group has committed; a majority of them can. So offline work
on groups that live on takes the directories of all their brokers, and goes by the replica that
would win an election.
"""

from collections.abc import Mapping, Sequence
from typing import final

import attrs

from raftlog.base.entries import EntryKind
from raftlog.base.errors import CorruptData, OperatingError
from raftlog.base.ids import METADATA_GROUP, DirectoryId, GroupId, NodeId, ReplicaId, Term
from raftlog.metadata.command_codec import decode_proposal
from raftlog.metadata.commands import SnapshotImage
from raftlog.metadata.image import EMPTY_IMAGE, ClusterImage
from raftlog.metadata.rules.apply import apply
from raftlog.raft.quorum import majority
from raftlog.records.record import records_of
from raftlog.runtime.offline.directory import OfflineDirectory, OfflineReplica

DirectoryPlace = tuple[NodeId, DirectoryId]


@final
@attrs.define(eq=False)
class OfflineCluster:
    """The directories by place, and group 0 as all of them have it.

    `leader` is the replica of group 0 that would win an election, `image` the cluster at its end.
    Raises `OperatingError` unless all controllers' directories are there and whole."""

    directories: Mapping[DirectoryPlace, OfflineDirectory]
    metadata: dict[ReplicaId, OfflineReplica] = attrs.field(init=False)
    leader: OfflineReplica = attrs.field(init=False)
    image: ClusterImage = attrs.field(init=False)
    _sources: dict[GroupId, dict[ReplicaId, OfflineReplica]] = attrs.Factory(dict)

    def __attrs_post_init__(self) -> None:
        self.metadata = self.sources(METADATA_GROUP)
        leader = most_advanced(self.metadata)
        if leader is None:
            raise OperatingError(
                "these directories hold no majority of the controllers",
                on="__cluster_metadata-0",
                do="name the data directories of all controllers",
            )
        voters = leader.replica.memberships[-1][1].all_voters()
        missing = sorted({each.node for each in voters if each not in self.metadata})
        if missing:
            named = ", ".join(str(node) for node in missing)
            raise OperatingError(
                f"the data directory of controller {named} is missing",
                on="__cluster_metadata-0",
                do="name it as well; remove a controller that is lost for ever first",
            )
        self.leader = leader
        self.image = image_of(leader)

    def sources(self, group: GroupId) -> dict[ReplicaId, OfflineReplica]:
        """The whole replicas of a group, by id."""
        if group not in self._sources:
            looked = [each.look(group) for each in self.directories.values()]
            found = {each.log.spec.replica: each for each in looked if each is not None}
            self._sources[group] = found
        return self._sources[group]

    def term_of(self, group: GroupId) -> Term:
        """The highest term that a replica of the group has seen."""
        return Term(max(each.term_of(group) for each in self.directories.values()))


def by_place(directories: Sequence[OfflineDirectory]) -> dict[DirectoryPlace, OfflineDirectory]:
    """The directories by node and directory id; `OperatingError` when they do not go together."""
    first = directories[0].image.identity
    found: dict[DirectoryPlace, OfflineDirectory] = {}
    for each in directories:
        identity = each.image.identity
        place = (identity.node, identity.directory)
        if identity.cluster != first.cluster:
            do = "name the data directories of one cluster"
            raise OperatingError("another cluster's directory", on=f"node {identity.node}", do=do)
        if any(node == identity.node for node, _ in found):
            do = "name each data directory once"
            raise OperatingError("two directories of one node", on=f"node {identity.node}", do=do)
        found[place] = each
    return found


def most_advanced(sources: Mapping[ReplicaId, OfflineReplica]) -> OfflineReplica | None:
    """The replica that would win an election among these, which are whole; None when they hold no
    majority of its voters. It holds all that the group has committed."""
    if not sources:
        return None
    best = max(sources.values(), key=lambda each: each.progress)
    membership = best.replica.memberships[-1][1]
    for half in (membership.voters, membership.outgoing):
        if half and sum(each in sources for each in half) < majority(len(half)):
            return None
    return best


def image_of(source: OfflineReplica) -> ClusterImage:
    """The cluster as this log of group 0 has it, undecided commands too. Raises `CorruptData` for a
    log that ends before it names a whole image."""
    cluster, skipping = EMPTY_IMAGE, source.log.first_index > 1
    for entries in source.entries(source.log.first_index):
        for entry in entries:
            if entry.kind is not EntryKind.RECORDS:
                continue
            for record in records_of(entry.batch, CorruptData, "metadata log"):
                value = bytes(record.value or b"")
                proposal = decode_proposal(value, CorruptData, "metadata log")
                if isinstance(proposal.command, SnapshotImage):
                    cluster, skipping = EMPTY_IMAGE if skipping else cluster, False
                if not skipping:
                    cluster = apply(cluster, proposal.command, proposal.once).image
    if cluster.cluster_id is None:
        raise CorruptData("the metadata log names no cluster", on=source.log.spec.path)
    return cluster
