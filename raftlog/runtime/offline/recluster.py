"""Copies a cluster whose metadata group has no terms left under a new cluster id, offline.

Group 0 cannot be copied beside itself, as a topic can: it names the topics, and it is known by the
cluster alone. So all data directories are copied into empty ones, under a new cluster id. The old
ones stay as they are, and a broker that still runs on one is refused by its cluster id.

In each new directory:
1. A note says that it is unfinished, and no broker starts on it. It is formatted with the node, the
   directory id, the boots and the incarnations of the old one, so that all replica ids stay.
2. Each partition's replica is written from the one that would win an election, entry by entry, with
   its terms: topic ids and leader epochs stay, and clients see neither change.
3. Group 0 begins with the image of the cluster, which all replicas have then, in its second term.
4. Once all directories are whole, the notes say so, and go.

It may be run again at any point: what an earlier attempt wrote is written once more.
"""

import hashlib
from collections.abc import Sequence
from typing import Final, final

import attrs

from raftlog.base.errors import OperatingError
from raftlog.base.ids import METADATA_GROUP, ClusterId, GroupId, NodeId, RaftIndex, Term
from raftlog.base.ports import Disk
from raftlog.base.units import WallMillis
from raftlog.metadata.command_codec import Proposal, encode_proposal
from raftlog.metadata.commands import SnapshotImage
from raftlog.metadata.image import ClusterImage, encode_snapshot
from raftlog.partition.producing.producer_snapshot import write_producers
from raftlog.partition.producing.producers import ProducerTable
from raftlog.records.builder import RecordBatchBuilder
from raftlog.records.chain import chain_start
from raftlog.runtime.offline.cluster import OfflineCluster, by_place, most_advanced
from raftlog.runtime.offline.directory import (
    Copied,
    OfflineDirectory,
    OfflineReplica,
    append_in_new_term,
    begin_log,
    copy_as_it_is,
)
from raftlog.storage.directories.data_dir import (
    DirectoryIdentity,
    format_directory,
    is_formatted,
    read_identity,
)
from raftlog.storage.directories.log_directories import directory_of
from raftlog.storage.directories.store_records import boot_record, promise_record
from raftlog.storage.directories.unfinished import (
    DONE,
    WORKING,
    note,
    noted,
    remove_notes,
)
from raftlog.storage.ops import StoreRecords
from raftlog.storage.replica import LogOptions, Registration

_FIRST_TERM: Final = Term(1)


@final
@attrs.frozen(kw_only=True)
class Reclustering:
    """The findings, or the actions: the cluster ids, the highest term of group 0, and how many
    replicas each node has. `unfinished`: an earlier attempt was cut short."""

    cluster: ClusterId
    new_cluster: ClusterId
    term: Term
    replicas: tuple[tuple[NodeId, int], ...]
    unfinished: bool
    carried_out: bool


def recluster(
    disks: Sequence[Disk], into: Sequence[Disk], wall_ms: WallMillis, *, carry_out: bool
) -> Reclustering:
    """Copy the data directories into the empty ones, in order, if `carry_out`.

    Raises `OperatingError` when the directories of some broker are missing, a group has no whole
    majority, or a directory to be written is not empty; and what `peek_directory` raises."""
    notes = [noted(disk) for disk in into]
    if carry_out:
        for disk in disks:
            disk.sync_all()
    cluster = OfflineCluster(by_place([OfflineDirectory.open(disk) for disk in disks]))
    image = cluster.image
    assert image.cluster_id is not None, image
    new = _new_id(image.cluster_id)
    if not any(each == DONE for each in notes):
        _check_empty(into, notes)
        winners = _winners(cluster)
        if carry_out:
            for disk in into:
                note(disk, WORKING)
            for old, disk in zip(cluster.directories.values(), into, strict=True):
                _write(cluster, winners, old, disk, new, wall_ms)
            for disk in into:
                note(disk, DONE)
    if carry_out:
        remove_notes(into)
    return Reclustering(
        cluster=image.cluster_id,
        new_cluster=new,
        term=cluster.term_of(METADATA_GROUP),
        replicas=tuple(
            (node, len(each.image.registrations)) for (node, _), each in cluster.directories.items()
        ),
        unfinished=any(notes),
        carried_out=carry_out,
    )


def _new_id(old: ClusterId) -> ClusterId:
    """An id that follows from the old one, so that each attempt makes the same."""
    return ClusterId(hashlib.blake2b(b"raftlog spent cluster 1" + old, digest_size=16).digest())


def _check_empty(into: Sequence[Disk], notes: Sequence[bytes]) -> None:
    for number, (disk, written) in enumerate(zip(into, notes, strict=True), 1):
        if not written and is_formatted(disk):
            raise OperatingError(
                "a directory to be written is not empty, or was written already",
                on=f"directory {number} of --into",
                do="name another one, or start the brokers on it",
            )


def _winners(cluster: OfflineCluster) -> dict[GroupId, OfflineReplica]:
    """For each partition the replica that would win an election."""
    image = cluster.image
    for node, broker in image.brokers.items():
        if (node, broker.directory) not in cluster.directories:
            raise OperatingError(
                f"the data directory of broker {node} is missing",
                on="--spent",
                do="name the data directories of all brokers; first remove those that are gone",
            )
    found: dict[GroupId, OfflineReplica] = {}
    for group, (topic, number) in sorted(image.places.items()):
        winner = most_advanced(cluster.sources(group))
        if winner is None:
            raise OperatingError(
                "no majority of its replicas is here and whole",
                on=f"{image.topics[topic].name}-{number}",
                do="recover or delete it first; move replicas out of further log.dirs",
            )
        found[group] = winner
    return found


def _write(
    cluster: OfflineCluster,
    winners: dict[GroupId, OfflineReplica],
    old: OfflineDirectory,
    disk: Disk,
    new: ClusterId,
    wall_ms: WallMillis,
) -> None:
    """Write one directory, or write it once more."""
    identity = attrs.evolve(old.image.identity, cluster=new)
    _format(disk, identity)
    target = OfflineDirectory.open(disk)
    image = old.image
    records = [boot_record(image.boot), *image.incarnations.records()]
    if image.promised_ns:
        records.append(promise_record(image.promised_ns))
    try:
        target.write(METADATA_GROUP, [StoreRecords(records)])
        for group, registration in sorted(image.registrations.items()):
            state = image.hard_states.get(group)
            if directory_of(registration.path):
                raise OperatingError(
                    "a replica lies in a further log directory",
                    on=registration.path,
                    do="move it to the data directory first",
                )
            if group == METADATA_GROUP:
                _write_metadata(cluster, target, registration, new, wall_ms)
            elif _is_wanted(cluster.image, group, registration):
                copy_as_it_is(winners[group], target, registration, state)
    finally:
        target.close()


def _format(disk: Disk, identity: DirectoryIdentity) -> None:
    if not is_formatted(disk):
        format_directory(disk, identity)
    elif read_identity(disk) != identity:
        raise OperatingError(
            "the directory to be written is another broker's",
            on=f"node {read_identity(disk).node}",
            do="name the directories in the same order as before",
        )


def _is_wanted(image: ClusterImage, group: GroupId, registration: Registration) -> bool:
    place = image.places.get(group)
    if place is None:
        return False
    return registration.replica in image.topics[place[0]].partitions[place[1]].replicas


def _write_metadata(
    cluster: OfflineCluster,
    target: OfflineDirectory,
    registration: Registration,
    new: ClusterId,
    wall_ms: WallMillis,
) -> None:
    """Begin group 0 where the old log ends, with the image as its first record."""
    leader = cluster.leader
    membership_index, membership = leader.replica.memberships[-1]
    copied = Copied(METADATA_GROUP, registration.replica, registration.path, membership)
    log = begin_log(target, copied, LogOptions())
    last, end = leader.log.last_index, leader.log.next_offset
    position = attrs.evolve(
        leader.log.snapshot_position,
        raft_index=last,
        term=_FIRST_TERM,
        chain=chain_start(new, METADATA_GROUP),
        next_offset=end,
        log_start=end,
        membership=membership,
        membership_index=membership_index,
    )
    before = RaftIndex(last + 1)
    log.install(position, write_producers(ProducerTable(), group=METADATA_GROUP, before=before))
    target.flush(log)
    snapshot = encode_snapshot(attrs.evolve(cluster.image, cluster_id=new))
    builder = RecordBatchBuilder()
    command = SnapshotImage(snapshot=snapshot)
    builder.append(encode_proposal(Proposal(Term(0), 0, command)), timestamp_ms=wall_ms)
    append_in_new_term(log, Term(_FIRST_TERM + 1), [builder.build()], wall_ms)
    target.flush(log)
    target.register(registration, log)
