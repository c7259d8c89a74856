"""CreatePartitions: a topic grows; it never shrinks.

The answer leaves when this broker's image shows the partitions and, within the client's time, all
brokers name their leaders.
"""

from operator import attrgetter
from typing import Final

from raftlog.base.amounts import amount
from raftlog.base.ids import NodeId, TopicId
from raftlog.base.limits import PARTITIONS_PER_TOPIC_MAX, REPLICATION_FACTOR_MAX
from raftlog.broker.context import Context
from raftlog.broker.control.controller_calls import CallOutcome, ControllerCalls
from raftlog.broker.handlers.attempts import gone_by_name
from raftlog.broker.handlers.each_named import EachNamed, first_of_each
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from raftlog.metadata.requests import GrowTopicRequest

_NAME: Final = attrgetter("name")


def _may_grow(context: Context, topic: CreatePartitionsTopic) -> bool:
    known = context.router.topic(topic.name)
    return known is not None and topic.count > len(known.partitions)


def _add(
    context: Context,
    calls: ControllerCalls,
    body: CreatePartitionsRequest,
    topic: CreatePartitionsTopic,
) -> None:
    known = context.router.topic(topic.name)
    if known is None:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        calls.known(code, code.message)
        return
    if known.internal:
        # The number of partitions decides which one holds a group: groups would lose their state.
        what = f"{topic.name} belongs to the cluster, which fixed its partitions when it made it"
        calls.known(ErrorCode.INVALID_TOPIC_EXCEPTION, what)
        return
    before = len(known.partitions)
    if topic.count <= before:
        what = f"the topic has {amount(before, 'partition')}; {topic.count} would not be more"
        calls.known(ErrorCode.INVALID_PARTITIONS, what)
        return
    if topic.count > PARTITIONS_PER_TOPIC_MAX:
        what = f"{amount(topic.count, 'partition')}, at most {PARTITIONS_PER_TOPIC_MAX} are allowed"
        calls.known(ErrorCode.INVALID_PARTITIONS, what)
        return
    nodes = tuple(
        tuple(NodeId(broker) for broker in each.broker_ids) for each in topic.assignments or ()
    )
    if nodes and len(nodes) != topic.count - before:
        what = (
            f"{amount(topic.count - before, 'new partition')} and "
            f"{amount(len(nodes), 'assignment')}"
        )
        calls.known(ErrorCode.INVALID_REPLICA_ASSIGNMENT, what)
        return
    if any(not each or min(each) < 0 or len(each) > REPLICATION_FACTOR_MAX for each in nodes):
        what = f"each partition needs brokers, at most {REPLICATION_FACTOR_MAX}"
        calls.known(ErrorCode.INVALID_REPLICA_ASSIGNMENT, what)
        return
    calls.add(
        GrowTopicRequest(
            topic_id=known.topic_id,
            count=topic.count,
            nodes=nodes,
            validate_only=body.validate_only,
        )
    )


def _response(
    body: CreatePartitionsRequest, outcomes: list[CallOutcome]
) -> CreatePartitionsResponse:
    return CreatePartitionsResponse(
        results=[
            CreatePartitionsTopicResult(
                topic.name, gone_by_name(outcome.error), outcome.message or None
            )
            for topic, outcome in zip(first_of_each(body.topics, _NAME), outcomes, strict=True)
        ]
    )


def _made(
    context: Context, body: CreatePartitionsRequest, outcomes: list[CallOutcome]
) -> list[TopicId]:
    if body.validate_only:
        return []
    topics = zip(first_of_each(body.topics, _NAME), outcomes, strict=True)
    known = [context.router.topic(topic.name) for topic, outcome in topics if outcome.error == 0]
    return [topic.topic_id for topic in known if topic is not None]


handle = EachNamed(
    asked=attrgetter("topics"),
    key=_NAME,
    twice="the request names this topic twice",
    once=True,
    fits=_may_grow,
    ask=_add,
    respond=_response,
    made=_made,
).handle
"""See the module."""
