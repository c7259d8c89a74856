"""The rules for topics and partitions. Group ids and replica epochs are given here, from the
image."""

from collections.abc import Sequence

import attrs

from raftlog.base.amounts import amount
from raftlog.base.ids import METADATA_GROUP, GroupId, ReplicaEpoch, ReplicaId, TopicId
from raftlog.base.limits import (
    CONFIGS_PER_TOPIC_MAX,
    PARTITIONS_MAX,
    PARTITIONS_PER_TOPIC_MAX,
    REPLICATION_FACTOR_MAX,
    TOPICS_MAX,
)
from raftlog.metadata import commands as c
from raftlog.metadata.image import ClusterImage
from raftlog.metadata.refusals import Refusal
from raftlog.metadata.rules import partition_rules as rules
from raftlog.metadata.rules.applied import Applied
from raftlog.metadata.rules.topic_names import METADATA_TOPIC, topic_name_problem
from raftlog.metadata.topic_image import Configs, PartitionImage, Reported, TopicImage


def create(image: ClusterImage, command: c.CreateTopic) -> Applied:
    """A new topic; the same id and name again is no change."""
    refused = _creation_problem(image, command)
    if refused is not None:
        return refused
    if command.topic_id in image.topics:
        return Applied(image)
    version = image.version + 1
    partitions = _found(image, command.assignments, version)
    topic = TopicImage(
        topic_id=command.topic_id,
        name=command.name,
        internal=command.internal,
        configs=tuple(sorted(command.configs)),
        partitions=partitions,
    )
    grown = attrs.evolve(
        image,
        version=version,
        next_group=GroupId(image.next_group + len(partitions)),
        names={**image.names, command.name: command.topic_id},
    )
    return Applied(_with_topic(grown, topic, first_new=0))


def _creation_problem(image: ClusterImage, command: c.CreateTopic) -> Applied | None:
    problem = topic_name_problem(command.name)
    if problem is not None:
        return Applied(image, Refusal.INVALID_TOPIC_NAME, problem)
    # The other reserved names are refused before they become a command. A cluster of an earlier
    # release may hold such a command in its log, and every replica must apply it as it did then.
    if command.name == METADATA_TOPIC:
        return Applied(image, Refusal.RESERVED_TOPIC, f"{METADATA_TOPIC} belongs to the cluster")
    known = image.topics.get(command.topic_id)
    if known is not None:
        if known.name == command.name:
            return None
        return Applied(image, Refusal.MALFORMED, f"the topic id belongs to topic {known.name}")
    if command.name in image.names:
        return Applied(image, Refusal.TOPIC_EXISTS, f"topic {command.name} exists")
    if len(image.topics) >= TOPICS_MAX:
        return Applied(image, Refusal.MALFORMED, f"a cluster has at most {TOPICS_MAX} topics")
    if not _are_configs(command.configs):
        return Applied(image, Refusal.INVALID_CONFIG, "a setting is given twice")
    return _assignments_problem(image, command.assignments, 0)


def _assignments_problem(
    image: ClusterImage, assignments: Sequence[c.Assignment], count_before: int
) -> Applied | None:
    count = len(assignments)
    if not 1 <= count <= PARTITIONS_PER_TOPIC_MAX - count_before:
        return Applied(
            image,
            Refusal.INVALID_PARTITIONS,
            f"{amount(count_before + count, 'partition')}; a topic has 1 to "
            f"{PARTITIONS_PER_TOPIC_MAX}",
        )
    if len(image.places) + count > PARTITIONS_MAX:
        return Applied(
            image,
            Refusal.INVALID_PARTITIONS,
            f"the cluster has {amount(len(image.places), 'partition')}, at most "
            f"{PARTITIONS_MAX} allowed",
        )
    for assignment in assignments:
        refused = _assignment_problem(image, assignment)
        if refused is not None:
            return refused
    return None


def _assignment_problem(image: ClusterImage, assignment: c.Assignment) -> Applied | None:
    nodes = [node for node, _ in assignment]
    if not 1 <= len(nodes) <= REPLICATION_FACTOR_MAX:
        return Applied(
            image,
            Refusal.INVALID_REPLICATION_FACTOR,
            f"{amount(len(nodes), 'replica')}; 1 to {REPLICATION_FACTOR_MAX} are possible",
        )
    if len(nodes) != len(dict.fromkeys(nodes)):
        return Applied(image, Refusal.INVALID_ASSIGNMENT, f"a broker appears twice in {nodes}")
    for node, directory in assignment:
        if image.directory_of(node) != directory:
            return Applied(
                image,
                Refusal.INVALID_ASSIGNMENT,
                f"broker {node} is not registered with data directory {directory:016x}",
            )
    return None


def delete(image: ClusterImage, command: c.DeleteTopic) -> Applied:
    """The topic goes at once; its replicas become removals of their nodes."""
    topic = image.topics.get(command.topic_id)
    if topic is None:
        return _unknown_topic(image, command.topic_id)
    leaving = [
        (number, partition.group, replica)
        for number, partition in enumerate(topic.partitions)
        for replica in partition.replicas
    ]
    gone = dict.fromkeys(partition.group for partition in topic.partitions)
    return Applied(
        attrs.evolve(
            image,
            version=image.version + 1,
            topics={k: v for k, v in image.topics.items() if k != topic.topic_id},
            names={k: v for k, v in image.names.items() if k != topic.name},
            places={k: v for k, v in image.places.items() if k not in gone},
            removals=rules.with_removals(image, topic.topic_id, leaving),
        )
    )


def create_partitions(image: ClusterImage, command: c.CreatePartitions) -> Applied:
    """Grow a topic; only from the count that the command was made for."""
    topic = image.topics.get(command.topic_id)
    if topic is None:
        return _unknown_topic(image, command.topic_id)
    if len(topic.partitions) != command.count_before:
        return Applied(
            image,
            Refusal.INVALID_PARTITIONS,
            f"topic {topic.name} has {amount(len(topic.partitions), 'partition')},"
            f" not {command.count_before}",
        )
    refused = _assignments_problem(image, command.assignments, command.count_before)
    if refused is not None:
        return refused
    version = image.version + 1
    added = _found(image, command.assignments, version)
    grown = attrs.evolve(image, version=version, next_group=GroupId(image.next_group + len(added)))
    topic = attrs.evolve(topic, partitions=(*topic.partitions, *added))
    return Applied(_with_topic(grown, topic, first_new=command.count_before))


def set_target(image: ClusterImage, command: c.SetTarget) -> Applied:
    """Where a partition is wanted from now on."""
    topic = image.topics.get(command.topic_id)
    if topic is None:
        return _unknown_topic(image, command.topic_id)
    if command.partition >= len(topic.partitions):
        return Applied(
            image, Refusal.UNKNOWN_PARTITION, f"{topic.name} has no partition {command.partition}"
        )
    partition = topic.partitions[command.partition]
    if partition.target_version != command.if_target_version:
        return Applied(
            image,
            Refusal.STALE,
            f"the target was set at {partition.target_version}, not {command.if_target_version}",
        )
    refused = _assignment_problem(image, command.assignment)
    if refused is not None:
        return refused
    version = image.version + 1
    changed = rules.with_target(partition, command.assignment, version)
    if changed is None:
        return _too_many_ids(image, partition)
    return Applied(_with_partition(image, topic, command.partition, changed))


def replace_replica(image: ClusterImage, command: c.ReplaceReplica) -> Applied:
    """A node lost one replica's files; its place gets a new id."""
    directory = image.directory_of(command.lost.node)
    if directory is None or directory != command.lost.directory:
        return Applied(image, Refusal.STALE, f"{command.lost} is not on its node's directory")
    if command.group == METADATA_GROUP:
        return _replace_metadata_replica(image, command.lost)
    place = image.places.get(command.group)
    if place is None:
        return Applied(image, Refusal.UNKNOWN_REPLICA, f"group {command.group} is gone")
    topic = image.topics[place[0]]
    partition = topic.partitions[place[1]]
    if command.lost not in partition.replicas:
        return Applied(
            image, Refusal.UNKNOWN_REPLICA, f"{command.lost} is not of group {command.group}"
        )
    if command.lost not in partition.target:
        return Applied(image)
    changed = rules.with_successor(partition, command.lost, directory, image.version + 1)
    if changed is None:
        return _too_many_ids(image, partition)
    return Applied(_with_partition(image, topic, place[1], changed))


def _replace_metadata_replica(image: ClusterImage, lost: ReplicaId) -> Applied:
    broker = image.brokers[lost.node]
    if broker.metadata_replica != lost:
        return Applied(image, Refusal.STALE, f"broker {lost.node} has {broker.metadata_replica}")
    version = image.version + 1
    successor = ReplicaId(lost.node, lost.directory, ReplicaEpoch(version))
    changed = attrs.evolve(broker, metadata_replica=successor)
    return Applied(
        attrs.evolve(
            image,
            version=version,
            brokers={**image.brokers, lost.node: changed},
            controllers=tuple(sorted(successor if r == lost else r for r in image.controllers)),
        )
    )


def report_membership(image: ClusterImage, command: c.ReportMembership) -> Applied:
    """Take a leader's report after commit; only a newer report changes the image."""
    place = image.places.get(command.group)
    if place is None:
        return Applied(image, Refusal.UNKNOWN_REPLICA, f"group {command.group} is gone")
    topic = image.topics[place[0]]
    partition = topic.partitions[place[1]]
    reported = _reported(command)
    if reported.order <= partition.reported.order:
        return Applied(
            image,
            Refusal.STALE,
            f"report {reported.order} of group {command.group} is not newer than"
            f" {partition.reported.order}",
        )
    refused = _report_problem(image, partition, reported)
    if refused is not None:
        return refused
    changed, leaving = rules.with_report(partition, reported)
    removals = rules.with_removals(
        image, topic.topic_id, [(place[1], partition.group, replica) for replica in leaving]
    )
    updated = _with_partition(image, topic, place[1], changed)
    return Applied(attrs.evolve(updated, removals=removals))


def _reported(command: c.ReportMembership) -> Reported:
    return Reported(
        term=command.term,
        membership_index=command.membership_index,
        serial=command.serial,
        membership=command.membership,
        leader=command.leader,
        in_sync=command.in_sync,
        target_version=command.target_version,
    )


def _report_problem(
    image: ClusterImage, partition: PartitionImage, reported: Reported
) -> Applied | None:
    """A report that no leader of this group can have made."""
    before = partition.reported
    named = (*reported.membership.everyone(), *reported.in_sync)
    if reported.leader is not None:
        named = (*named, reported.leader)
    for replica in named:
        if replica not in partition.replicas:
            return Applied(
                image, Refusal.UNKNOWN_REPLICA, f"{replica} is not of group {partition.group}"
            )
    if not reported.membership.voters or reported.target_version > image.version:
        return Applied(image, Refusal.MALFORMED, "a report without voters, or from the future")
    if reported.term == before.term and reported.leader != before.leader:
        return Applied(
            image,
            Refusal.MALFORMED,
            f"term {reported.term} of group {partition.group} has leader {before.leader}",
        )
    return None


def alter_configs(image: ClusterImage, command: c.AlterTopicConfigs) -> Applied:
    """Set and remove overrides."""
    topic = image.topics.get(command.topic_id)
    if topic is None:
        return _unknown_topic(image, command.topic_id)
    if not _are_configs(command.changed):
        return Applied(image, Refusal.INVALID_CONFIG, "a setting is given twice")
    configs = dict(topic.configs)
    configs.update(command.changed)
    for name in command.removed:
        configs.pop(name, None)
    if len(configs) > CONFIGS_PER_TOPIC_MAX:
        return Applied(image, Refusal.INVALID_CONFIG, f"more than {CONFIGS_PER_TOPIC_MAX} settings")
    ordered = tuple(sorted(configs.items()))
    if ordered == topic.configs:
        return Applied(image)
    changed = attrs.evolve(topic, configs=ordered)
    return Applied(
        attrs.evolve(
            image,
            version=image.version + 1,
            topics={**image.topics, topic.topic_id: changed},
        )
    )


def _found(
    image: ClusterImage, assignments: Sequence[c.Assignment], version: int
) -> tuple[PartitionImage, ...]:
    return tuple(
        rules.found_partition(GroupId(image.next_group + ordinal), assignment, version)
        for ordinal, assignment in enumerate(assignments)
    )


def _with_topic(image: ClusterImage, topic: TopicImage, *, first_new: int) -> ClusterImage:
    places = dict(image.places)
    for number in range(first_new, len(topic.partitions)):
        places[topic.partitions[number].group] = (topic.topic_id, number)
    return attrs.evolve(image, topics={**image.topics, topic.topic_id: topic}, places=places)


def _with_partition(
    image: ClusterImage, topic: TopicImage, number: int, partition: PartitionImage
) -> ClusterImage:
    partitions = list(topic.partitions)
    partitions[number] = partition
    changed = attrs.evolve(topic, partitions=tuple(partitions))
    return attrs.evolve(
        image, version=image.version + 1, topics={**image.topics, topic.topic_id: changed}
    )


def _are_configs(configs: Configs) -> bool:
    return len(configs) == len(dict(configs)) <= CONFIGS_PER_TOPIC_MAX


def _unknown_topic(image: ClusterImage, topic_id: TopicId) -> Applied:
    return Applied(image, Refusal.UNKNOWN_TOPIC_ID, f"no topic has the id {topic_id.hex()}")


def _too_many_ids(image: ClusterImage, partition: PartitionImage) -> Applied:
    return Applied(
        image,
        Refusal.BUSY,
        f"group {partition.group} still has {len(partition.replicas)} replica ids to get rid of",
    )
