"""CreatePartitions: a topic grows; it never shrinks.

What this broker's image refuses is refused only when the image is known to be up to date: one that
is behind does not know a topic that somebody has been told of.
"""

from collections import Counter
from typing import final

import attrs

from raftlog.base.ids import NodeId
from raftlog.base.limits import PARTITIONS_PER_TOPIC_MAX, REPLICATION_FACTOR_MAX
from raftlog.broker.context import Context
from raftlog.broker.handlers.controller_calls import (
    BEHIND,
    Attempt,
    ControllerCalls,
    Outcome,
    deadline_of,
    is_gone,
)
from raftlog.broker.handlers.delete_topics import gone_by_name
from raftlog.broker.requests import KafkaRequest
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from raftlog.metadata.requests import GrowTopicWish


@final
@attrs.define(eq=False)
class _Growth:
    """One request under way."""

    attempt: Attempt

    def answer(self, outcomes: list[Outcome]) -> None:
        """What became of each topic; names whose topic is gone are looked up once more."""
        attempt, request = self.attempt, self.attempt.request
        if request.dead:
            return
        if not attempt.before and any(map(is_gone, outcomes)):
            attempt.once_current(_perform, outcomes)
            return
        results = [
            CreatePartitionsTopicResult(
                topic.name, gone_by_name(outcome.error), outcome.message or None
            )
            for topic, outcome in zip(request.body.topics, outcomes, strict=True)
        ]
        request.answer(CreatePartitionsResponse(results=results))


def handle(context: Context, request: KafkaRequest) -> None:
    """See the module."""
    body: CreatePartitionsRequest = request.body
    attempt = Attempt(context, request, deadline_of(context, body.timeout_ms))
    if all(_may_grow(context, topic) for topic in body.topics):
        _perform(attempt)
    else:
        attempt.once_current(_perform)


def _may_grow(context: Context, topic: CreatePartitionsTopic) -> bool:
    known = context.router.topic(topic.name)
    return known is not None and topic.count > len(known.partitions)


def _perform(attempt: Attempt) -> None:
    context, before = attempt.context, attempt.before
    body: CreatePartitionsRequest = attempt.request.body
    names = Counter(topic.name for topic in body.topics)
    calls = ControllerCalls(context, attempt.deadline, _Growth(attempt).answer)
    for place, topic in enumerate(body.topics):
        if before and not is_gone(before[place]):
            calls.keep(before[place])
        elif names[topic.name] > 1:
            calls.known(ErrorCode.INVALID_REQUEST, "the request names this topic twice")
        elif not attempt.current and (before or not _may_grow(context, topic)):
            calls.known(ErrorCode.REQUEST_TIMED_OUT, BEHIND)
        else:
            _add(context, calls, topic, body.validate_only)
    calls.begin()


def _add(
    context: Context, calls: ControllerCalls, topic: CreatePartitionsTopic, validate_only: bool
) -> None:
    known = context.router.topic(topic.name)
    if known is None:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        calls.known(code, code.message)
        return
    before = len(known.partitions)
    if topic.count <= before:
        what = f"the topic has {before} partitions; {topic.count} would not be more"
        calls.known(ErrorCode.INVALID_PARTITIONS, what)
        return
    if topic.count > PARTITIONS_PER_TOPIC_MAX:
        what = f"{topic.count} partitions, at most {PARTITIONS_PER_TOPIC_MAX} are allowed"
        calls.known(ErrorCode.INVALID_PARTITIONS, what)
        return
    nodes = tuple(
        tuple(NodeId(broker) for broker in each.broker_ids) for each in topic.assignments or ()
    )
    if nodes and len(nodes) != topic.count - before:
        what = f"{topic.count - before} new partitions and {len(nodes)} assignments"
        calls.known(ErrorCode.INVALID_REPLICA_ASSIGNMENT, what)
        return
    if any(not each or min(each) < 0 or len(each) > REPLICATION_FACTOR_MAX for each in nodes):
        what = f"each partition needs brokers, at most {REPLICATION_FACTOR_MAX}"
        calls.known(ErrorCode.INVALID_REPLICA_ASSIGNMENT, what)
        return
    calls.wish(
        GrowTopicWish(
            topic_id=known.topic_id, count=topic.count, nodes=nodes, validate_only=validate_only
        )
    )
