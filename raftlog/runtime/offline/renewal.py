"""Copies topics whose terms are spent under new ids, offline, with all their brokers down.

A term is Kafka's leader epoch, a number of 31 bits that never falls. A group in the last term holds
no election any more, and nothing is served. No lower term may follow under the same ids, for a
client or a broker that knows the old one refuses it. So the topic begins again under a new topic
id, with new groups and new replica ids, and with all its records at their offsets.

How it works, with the data directories of all brokers that hold the topic, and of all controllers:
1. In every directory a file says that the work is unfinished. No broker starts beside it.
2. For each partition the replica is taken that would win an election. It holds all that was
   committed. It is copied into each directory where the partition is wanted.
3. The offsets that consumer groups have committed for the topic are committed again for its new id.
4. Group 0 gets two commands, in a new term and on all its replicas: the old topic is deleted, and
   the new one created where the old one was. The brokers delete the old files once they run.
5. The files of step 1 say that the work is done, and go.

All of it may be run again at any point. The new ids follow from the old ones and from group 0's
log, so that each attempt makes the same ones. Until step 4 nothing of the old topic is touched, and
what an earlier attempt left is written once more. After it the topic is no longer spent, and what
is left is to bring all replicas of group 0 to the same end.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Final, final

import attrs

from raftlog.base.entries import HardState, Membership
from raftlog.base.errors import OperatingError
from raftlog.base.ids import (
    METADATA_GROUP,
    TERM_MAX,
    GroupId,
    NodeId,
    RaftIndex,
    ReplicaId,
    Term,
    TopicId,
)
from raftlog.base.ports import Disk
from raftlog.base.units import WallMillis
from raftlog.groups.machine import GroupsMachine
from raftlog.groups.records import offset_record
from raftlog.metadata.command_codec import Proposal, encode_proposal
from raftlog.metadata.commands import Command, CreateTopic, DeleteTopic
from raftlog.metadata.image import ClusterImage
from raftlog.metadata.rules.apply import apply
from raftlog.metadata.rules.topic_names import OFFSETS_TOPIC
from raftlog.metadata.topic_image import TopicImage
from raftlog.partition.machine.applied import read_state
from raftlog.records.builder import RecordBatchBuilder
from raftlog.runtime.offline.cluster import OfflineCluster, by_place, most_advanced
from raftlog.runtime.offline.directory import (
    Copied,
    OfflineDirectory,
    OfflineReplica,
    align,
    append_in_new_term,
    copy_replica,
)
from raftlog.storage.directories.unfinished import DONE, WORKING, note, noted, remove_notes
from raftlog.storage.replica import LogOptions, replica_path
from raftlog.storage.segments.snapshot import newest_snapshot

TERMS_LEFT: Final = 1 << 16
"""A group with fewer terms left counts as spent: one more lie, or a loop of elections, ends it."""
_RECORDS_A_BATCH: Final = 1000


@final
@attrs.frozen(kw_only=True)
class PartitionCopy:
    """One partition of a spent topic. `source`: the node whose replica is copied. `term`: the
    highest that any replica has seen. `records_from` up to `records_until` (exclusive) are the
    offsets that the copy has."""

    name: str
    group: GroupId
    new_group: GroupId
    term: Term
    source: NodeId
    nodes: tuple[NodeId, ...]
    records_from: int
    records_until: int


@final
@attrs.frozen(kw_only=True)
class Renewal:
    """The findings, or the actions. `stuck`: topics that are spent and cannot be copied, and why.
    `unfinished`: an earlier attempt was cut short, and this one ends it, or would."""

    copies: tuple[PartitionCopy, ...]
    offsets: int
    stuck: tuple[tuple[str, str], ...]
    unfinished: bool
    carried_out: bool


@final
@attrs.frozen(kw_only=True)
class _Partition:
    source: OfflineReplica
    term: Term
    old_group: GroupId
    number: int


@final
@attrs.frozen(kw_only=True)
class _Topic:
    """A spent topic with its sources by partition, and the same topic under its new ids."""

    old: TopicImage
    new: TopicImage
    partitions: tuple[_Partition, ...]


def renew_spent(disks: Sequence[Disk], wall_ms: WallMillis, *, carry_out: bool) -> Renewal:
    """Find the topics of these data directories whose terms are spent, and copy them under new ids
    if `carry_out`.

    Raises `OperatingError` when the directories are not those of one cluster, when one is missing
    that the work needs, or when group 0 itself is spent; and what `peek_directory` raises."""
    notes = [noted(disk) for disk in disks]
    if any(each == DONE for each in notes):
        # Every directory was done before the first note said so: what is left is to remove them.
        if carry_out:
            remove_notes(disks)
        return Renewal(copies=(), offsets=0, stuck=(), unfinished=True, carried_out=carry_out)
    if carry_out:
        for disk in disks:
            disk.sync_all()
    directories = [OfflineDirectory.open(disk) for disk in disks]
    work = _Work(OfflineCluster(by_place(directories)), wall_ms)
    if work.cluster.term_of(METADATA_GROUP) > TERM_MAX - TERMS_LEFT:
        raise OperatingError(
            "the term of the metadata group is spent as well",
            on="__cluster_metadata-0",
            do="copy the cluster under a new cluster id: --into DIRECTORY",
        )
    try:
        topics = work.spent_topics()
        if carry_out and (topics or any(notes)):
            for disk in disks:
                note(disk, WORKING)
            work.carry_out(topics)
            for disk in disks:
                note(disk, DONE)
            remove_notes(disks)
        return work.findings(topics, unfinished=any(notes), carried_out=carry_out)
    finally:
        for each in directories:
            each.close()


@final
@attrs.define(eq=False)
class _Work:
    cluster: OfflineCluster
    wall_ms: WallMillis
    commands: list[Command] = attrs.Factory(list)
    stuck: list[tuple[str, str]] = attrs.Factory(list)
    offsets: int = 0

    # --- looking ----------------------------------------------------------------------------------

    def spent_topics(self) -> list[_Topic]:
        """The topics to be copied, and the commands that do it; what cannot be copied is stuck."""
        topics: list[_Topic] = []
        image = self.cluster.image
        spent = [topic for topic in image.topics.values() if self._is_spent(topic)]
        # The offsets of the other topics are written into this one: it comes first, and alone.
        spent.sort(key=lambda topic: (topic.name != OFFSETS_TOPIC, topic.topic_id))
        for old in spent:
            if topics and topics[0].old.name == OFFSETS_TOPIC:
                self.stuck.append((old.name, f"{OFFSETS_TOPIC} comes first; run this again"))
                continue
            try:
                partitions = tuple(
                    self._partition(old, number) for number in range(len(old.partitions))
                )
                commands = _commands(old, image)
                for command in commands:
                    applied = apply(image, command)
                    if not applied.done:
                        raise OperatingError(applied.message, on=old.name)
                    image = applied.image
            except OperatingError as error:
                self.stuck.append((old.name, str(error)))
                continue
            self.commands += commands
            new = image.topics[image.names[old.name]]
            topics.append(_Topic(old=old, new=new, partitions=partitions))
        return topics

    def _is_spent(self, topic: TopicImage) -> bool:
        highest = max(self.cluster.term_of(each.group) for each in topic.partitions)
        return highest > TERM_MAX - TERMS_LEFT

    def _partition(self, topic: TopicImage, number: int) -> _Partition:
        partition = topic.partitions[number]
        name = f"{topic.name}-{number}"
        for each in partition.target:
            if (each.node, each.directory) not in self.cluster.directories:
                raise OperatingError(
                    f"the data directory of broker {each.node} is missing",
                    on=name,
                    do="name the data directories of all its brokers",
                )
        source = most_advanced(self.cluster.sources(partition.group))
        if source is None:
            raise OperatingError(
                "no majority of its replicas is whole",
                on=name,
                do="name the data directories of all its brokers, without further log.dirs",
            )
        term = self.cluster.term_of(partition.group)
        return _Partition(source=source, term=term, old_group=partition.group, number=number)

    # --- doing it ---------------------------------------------------------------------------------

    def carry_out(self, topics: Sequence[_Topic]) -> None:
        """All steps between the two notes."""
        for topic in topics:
            for partition in topic.partitions:
                self._copy(topic, partition)
        renewed = {topic.old.name: topic.new.topic_id for topic in topics}
        offsets = self.cluster.image.topic(OFFSETS_TOPIC)
        if offsets is not None and OFFSETS_TOPIC not in renewed and renewed:
            for number, each in enumerate(offsets.partitions):
                self._commit_offsets(f"{OFFSETS_TOPIC}-{number}", each.group, renewed)
        values = [encode_proposal(Proposal(Term(0), 0, each)) for each in self.commands]
        builder = RecordBatchBuilder()
        for value in values:
            builder.append(value, timestamp_ms=self.wall_ms)
        self._extend(
            self.cluster.metadata, self.cluster.leader, [builder.build()] if values else []
        )

    def _copy(self, topic: _Topic, partition: _Partition) -> None:
        new = topic.new.partitions[partition.number]
        segment_bytes = topic.old.config("segment.bytes")
        options = (
            LogOptions() if segment_bytes is None else LogOptions().resized(int(segment_bytes))
        )
        for replica in new.target:
            copied = Copied(
                new.group,
                replica,
                replica_path(topic.new.topic_id, partition.number, replica.epoch),
                Membership(new.founding),
            )
            target = self.cluster.directories[replica.node, replica.directory]
            copy_replica(partition.source, target, copied, options, self.wall_ms)

    def _commit_offsets(self, name: str, group: GroupId, renewed: Mapping[str, TopicId]) -> None:
        """Commit the offsets of renewed topics again, for their new ids: a coordinator takes those
        of another id for a deleted topic's. They name no leader epoch, for the old one is above all
        of the new topic's."""
        sources = self.cluster.sources(group)
        source = most_advanced(sources)
        voters = () if source is None else source.replica.memberships[-1][1].all_voters()
        if source is None or any(each not in sources for each in voters):
            raise OperatingError(
                "not all of its replicas are here and whole",
                on=name,
                do="name the data directories of all its brokers",
            )
        machine = _machine_of(source)
        builders = [RecordBatchBuilder()]
        for topic, topic_id in renewed.items():
            for group_id, number in sorted(machine.offsets_of_topic(topic)):
                stored = machine.offset(group_id, topic, number)
                assert stored is not None, (group_id, topic, number)
                again = stored._replace(topic_id=topic_id, leader_epoch=-1)
                if again == stored:
                    continue
                made = offset_record(group_id, topic, number, again)
                if builders[-1].count == _RECORDS_A_BATCH:
                    builders.append(RecordBatchBuilder())
                builders[-1].append(
                    made.value, key=made.key, timestamp_ms=self.wall_ms, headers=made.headers
                )
                self.offsets += 1
        batches = [each.build() for each in builders if each.count]
        if batches:
            self._extend(sources, source, batches)

    def _extend(
        self,
        sources: Mapping[ReplicaId, OfflineReplica],
        leader: OfflineReplica,
        batches: Sequence[bytes],
    ) -> None:
        """Append to a group in a term that none of its replicas has seen, and bring all of them to
        the same end. Every voter is among the `sources`, so that it is committed then."""
        log, group = leader.log, leader.log.spec.group
        term = Term(max(self.cluster.term_of(group), log.last_term) + 1)
        if batches:
            append_in_new_term(log, term, batches, self.wall_ms)
            leader.directory.flush(log)
        voters = leader.replica.memberships[-1][1].all_voters()
        for replica, source in sources.items():
            if source is not leader and not align(leader, source):
                if replica not in voters:
                    continue  # it learns only: a leader sends it the rest
                raise OperatingError(
                    f"broker {replica.node} is too far behind",
                    on=f"group {group}",
                    do="start the brokers until it has caught up",
                )
            state = HardState(log.last_term, log.spec.replica)
            if state.term > source.directory.term_of(group):
                source.directory.settle(source.log, state)
            else:
                source.directory.settle(source.log)

    # --- telling ----------------------------------------------------------------------------------

    def findings(self, topics: Sequence[_Topic], *, unfinished: bool, carried_out: bool) -> Renewal:
        """One line for each partition."""
        copies = [
            PartitionCopy(
                name=f"{topic.old.name}-{each.number}",
                group=each.old_group,
                new_group=topic.new.partitions[each.number].group,
                term=each.term,
                source=each.source.log.spec.replica.node,
                nodes=tuple(one.node for one in topic.new.partitions[each.number].target),
                records_from=each.source.log.snapshot_position.next_offset,
                records_until=each.source.log.next_offset,
            )
            for topic in topics
            for each in topic.partitions
        ]
        return Renewal(
            copies=tuple(copies),
            offsets=self.offsets,
            stuck=tuple(self.stuck),
            unfinished=unfinished,
            carried_out=carried_out,
        )


def _commands(topic: TopicImage, image: ClusterImage) -> list[Command]:
    """The old topic goes, and the same one comes where it is wanted, under an id that follows from
    the old one: each attempt makes the same."""
    seed = b"raftlog spent terms 1" + topic.topic_id + image.next_group.to_bytes(8, "big")
    new_id = TopicId(hashlib.blake2b(seed, digest_size=16).digest())
    created = CreateTopic(
        topic_id=new_id,
        name=topic.name,
        internal=topic.internal,
        configs=topic.configs,
        assignments=tuple(
            tuple((each.node, each.directory) for each in partition.target)
            for partition in topic.partitions
        ),
    )
    return [DeleteTopic(topic_id=topic.topic_id), created]


def _machine_of(source: OfflineReplica) -> GroupsMachine:
    """The state that an offsets partition has at its end."""
    machine, log = GroupsMachine(), source.log
    first = log.first_index
    found = newest_snapshot(source.directory.disk, log.spec, log.last_index, log.terms)
    if found is not None:
        machine.restore(read_state(log.spec.group, found[1]).machine)
        first = RaftIndex(max(first, found[0].raft_index + 1))
    for entries in source.entries(first):
        for entry in entries:
            if not entry.kind:
                machine.apply(entry.batch, entry.base_offset, entry.raft_index)
    return machine
