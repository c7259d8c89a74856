"""Turns a request to the controller into one command, or the reason why not. Pure.

A request is judged against the image that will hold when every proposal so far is committed. If the
image already is as requested, that is no refusal: a broker whose answer was lost asks again.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from raftlog.base.amounts import amount
from raftlog.base.entries import Membership
from raftlog.base.ids import DirectoryId, NodeId, TopicId
from raftlog.base.limits import PARTITIONS_PER_TOPIC_MAX, REPLICATION_FACTOR_MAX
from raftlog.metadata import commands as c
from raftlog.metadata.image import ClusterImage
from raftlog.metadata.refusals import Refusal
from raftlog.metadata.requests import (
    AlterBrokerRequest,
    AlterTopicRequest,
    GrowTopicRequest,
    NewTopicRequest,
    Performable,
    PreferLeaderRequest,
    ReassignRequest,
)
from raftlog.metadata.rules.placement import place_partitions
from raftlog.metadata.rules.topic_names import RESERVED_TOPICS, collision_key, topic_name_problem
from raftlog.metadata.settings.broker_settings import altered_settings
from raftlog.metadata.settings.config_changes import altered_configs
from raftlog.metadata.settings.topic_configs import configs_problem
from raftlog.metadata.settings.topic_defaults import MADE_NOW
from raftlog.metadata.topic_image import PartitionImage, TopicImage


class Refused(NamedTuple):
    """The reason why a request is refused."""

    refusal: Refusal
    message: str


SUBMITTED: Final = (
    c.DeleteTopic,
    c.AlterTopicConfigs,
    c.AllocateProducerIds,
    c.ReplaceReplica,
    c.ConfirmRemoved,
    c.RaiseFeatureLevel,
    c.UnregisterBroker,
    c.ChangeController,
)
"""Commands that a broker may ask for as they are."""


def command_of(
    image: ClusterImage, sender: NodeId, request: Performable
) -> c.Command | Refused | None:
    """The command that fulfils the request; None when the image already fulfils it."""
    if isinstance(request, NewTopicRequest):
        return create_topic(image, request)
    if isinstance(request, GrowTopicRequest):
        return grow_topic(image, request)
    if isinstance(request, ReassignRequest):
        return reassign(image, request)
    if isinstance(request, AlterTopicRequest):
        return alter_topic(image, request)
    if isinstance(request, AlterBrokerRequest):
        return alter_broker(image, request)
    if isinstance(request, PreferLeaderRequest):
        return prefer(image, request)
    problem = submitted_problem(request.command, sender)
    return request.command if problem is None else problem


def submitted_problem(command: c.Command, sender: NodeId) -> Refused | None:
    """The reason why a broker may not ask for this command, or None.

    The sender is known from the link, never from the request. A broker speaks of its own replicas
    and files only.
    """
    if not isinstance(command, SUBMITTED):
        return Refused(Refusal.MALFORMED, f"{type(command).__name__} is not for brokers to ask")
    speaker = sender
    if isinstance(command, c.ReplaceReplica):
        speaker = command.lost.node
    elif isinstance(command, c.ConfirmRemoved | c.AllocateProducerIds):
        speaker = command.node
    if speaker != sender:
        return Refused(Refusal.MALFORMED, f"broker {sender} speaks for broker {speaker}")
    if isinstance(command, c.AlterTopicConfigs):
        problem = configs_problem(command.changed)
        if problem is not None:
            return Refused(Refusal.INVALID_CONFIG, problem)
    return None


def create_topic(image: ClusterImage, request: NewTopicRequest) -> c.CreateTopic | Refused:
    """The command that creates the topic."""
    problem = _name_problem(image, request)
    if problem is not None:
        return problem
    wrong = configs_problem(request.configs)
    if wrong is not None:
        return Refused(Refusal.INVALID_CONFIG, wrong)
    if request.topic_id in image.topics:
        assignments: tuple[c.Assignment, ...] | Refused = ()
    elif request.nodes:
        assignments = _given(image, request.nodes)
    else:
        assignments = _placed(image, request.count, request.factor, None)
    if isinstance(assignments, Refused):
        return assignments
    return c.CreateTopic(
        topic_id=request.topic_id,
        name=request.name,
        internal=request.internal,
        configs=tuple(sorted((*request.configs, MADE_NOW))),
        assignments=assignments,
    )


def _name_problem(image: ClusterImage, request: NewTopicRequest) -> Refused | None:
    wrong = topic_name_problem(request.name)
    if wrong is not None:
        return Refused(Refusal.INVALID_TOPIC_NAME, wrong)
    if request.name in RESERVED_TOPICS and not request.internal:
        return Refused(Refusal.RESERVED_TOPIC, f"{request.name} belongs to the cluster")
    known = image.names.get(request.name)
    if known is not None:
        if known == request.topic_id:
            return None
        return Refused(Refusal.TOPIC_EXISTS, f"Topic '{request.name}' already exists.")
    key = collision_key(request.name)
    if key != request.name or "_" in request.name:
        for name in sorted(image.names):
            if collision_key(name) == key:
                return Refused(
                    Refusal.INVALID_TOPIC_NAME,
                    f"Topic '{request.name}' collides with existing topic: {name}",
                )
    return None


def grow_topic(image: ClusterImage, request: GrowTopicRequest) -> c.CreatePartitions | Refused:
    """The command that adds partitions."""
    topic = image.topics.get(request.topic_id)
    if topic is None:
        return _unknown(request.topic_id)
    present = len(topic.partitions)
    added = request.count - present
    if added <= 0:
        return Refused(
            Refusal.INVALID_PARTITIONS,
            f"Topic '{topic.name}' has {amount(present, 'partition')}; they can only grow,"
            f" and {request.count} is not more.",
        )
    if request.nodes and len(request.nodes) != added:
        return Refused(
            Refusal.INVALID_ASSIGNMENT,
            f"{amount(added, 'new partition')}, but assignments for {len(request.nodes)}",
        )
    factor = len(topic.partitions[0].target)
    assignments = (
        _given(image, request.nodes) if request.nodes else _placed(image, added, factor, topic)
    )
    if isinstance(assignments, Refused):
        return assignments
    return c.CreatePartitions(
        topic_id=topic.topic_id, count_before=present, assignments=assignments
    )


def reassign(image: ClusterImage, request: ReassignRequest) -> c.SetTarget | Refused | None:
    """The command that sets a new target, or None when it is the target already."""
    topic = image.topics.get(request.topic_id)
    if topic is None:
        return _unknown(request.topic_id)
    partition = image.partition(request.topic_id, request.partition)
    if partition is None:
        return Refused(
            Refusal.UNKNOWN_PARTITION, f"{topic.name} has no partition {request.partition}"
        )
    nodes = request.nodes or _cancelled(partition)
    if not nodes:
        return Refused(
            Refusal.NO_REASSIGNMENT,
            f"{topic.name}-{request.partition} is not being reassigned",
        )
    if request.same_factor and len(nodes) != len(whence := partition.nodes_before):
        return Refused(
            Refusal.INVALID_REPLICATION_FACTOR,
            f"{topic.name}-{request.partition} has {amount(len(whence), 'replica')}, not "
            f"{len(nodes)}, and the"
            " request does not allow to change that",
        )
    assignments = _given(image, (nodes,))
    if isinstance(assignments, Refused):
        return assignments
    if assignments[0] == tuple((r.node, r.directory) for r in partition.target):
        return None
    return c.SetTarget(
        topic_id=request.topic_id,
        partition=request.partition,
        assignment=assignments[0],
        if_target_version=partition.target_version,
    )


def alter_topic(image: ClusterImage, request: AlterTopicRequest) -> c.AlterTopicConfigs | Refused:
    """The command that changes a topic's settings.

    The controller makes it, not the broker that a client asked: two brokers that append to one list
    at the same time would lose one of the words.
    """
    topic = image.topics.get(request.topic_id)
    if topic is None:
        return _unknown(request.topic_id)
    altered = altered_configs(topic.configs, request.changes, replace=request.replace)
    if isinstance(altered, str):
        return Refused(Refusal.INVALID_CONFIG, altered)
    return c.AlterTopicConfigs(
        topic_id=request.topic_id, changed=altered.changed, removed=altered.removed
    )


def alter_broker(
    image: ClusterImage, request: AlterBrokerRequest
) -> c.AlterBrokerConfigs | Refused:
    """The command that changes settings of one broker, or of all."""
    own = image.settings.get(request.owner, ())
    altered = altered_settings(own, request.changes, replace=request.replace)
    if isinstance(altered, str):
        return Refused(Refusal.INVALID_CONFIG, altered)
    return c.AlterBrokerConfigs(
        owner=request.owner, changed=altered.changed, removed=altered.removed
    )


def prefer(image: ClusterImage, request: PreferLeaderRequest) -> c.SetTarget | Refused:
    """The command that sets the target once more, in the same order."""
    topic = image.topics.get(request.topic_id)
    if topic is None:
        return _unknown(request.topic_id)
    partition = image.partition(request.topic_id, request.partition)
    if partition is None:
        return Refused(
            Refusal.UNKNOWN_PARTITION, f"{topic.name} has no partition {request.partition}"
        )
    return c.SetTarget(
        topic_id=request.topic_id,
        partition=request.partition,
        assignment=tuple((r.node, r.directory) for r in partition.target),
        if_target_version=partition.target_version,
    )


def _cancelled(partition: PartitionImage) -> tuple[NodeId, ...]:
    """The nodes to go back to, in the order of the target as far as possible; () when settled."""
    if partition.settled:
        return ()
    nodes = partition.nodes_before
    wanted = [replica.node for replica in partition.target]
    return tuple(dict.fromkeys((*(node for node in wanted if node in nodes), *nodes)))


def metadata_target(image: ClusterImage) -> Membership:
    """The membership that group 0 should have: the wanted controllers vote, all others learn."""
    learners = sorted(
        broker.metadata_replica
        for _, broker in sorted(image.brokers.items())
        if not broker.condemned and broker.metadata_replica not in image.controllers
    )
    return Membership(voters=image.controllers, learners=tuple(learners))


def _given(
    image: ClusterImage, nodes_of_each: Iterable[tuple[NodeId, ...]]
) -> tuple[c.Assignment, ...] | Refused:
    """Assignments from node ids; `apply` judges the rest."""
    assignments: list[c.Assignment] = []
    for nodes in nodes_of_each:
        places: list[tuple[NodeId, DirectoryId]] = []
        for node in nodes:
            directory = image.directory_of(node)
            if directory is None:
                return Refused(Refusal.INVALID_ASSIGNMENT, f"broker {node} is not registered")
            places.append((node, directory))
        assignments.append(tuple(places))
    return tuple(assignments)


def _placed(
    image: ClusterImage, count: int, factor: int, topic: TopicImage | None
) -> tuple[c.Assignment, ...] | Refused:
    if not 1 <= count <= PARTITIONS_PER_TOPIC_MAX:
        return Refused(
            Refusal.INVALID_PARTITIONS,
            f"{amount(count, 'partition')}; a topic has 1 to {PARTITIONS_PER_TOPIC_MAX}",
        )
    if not 1 <= factor <= REPLICATION_FACTOR_MAX:
        return Refused(
            Refusal.INVALID_REPLICATION_FACTOR,
            f"replication factor {factor}; 1 to {REPLICATION_FACTOR_MAX} are possible",
        )
    assignments = place_partitions(image, count=count, factor=factor, topic=topic)
    if assignments is None:
        live = len(image.live_brokers())
        return Refused(
            Refusal.INVALID_REPLICATION_FACTOR,
            f"replication factor {factor} is larger than the number of live brokers, {live}",
        )
    return assignments


def _unknown(topic_id: TopicId) -> Refused:
    return Refused(Refusal.UNKNOWN_TOPIC_ID, f"no topic has the id {topic_id.hex()}")
