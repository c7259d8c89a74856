"""AlterPartitionReassignments: partitions move to other brokers, or a move is taken back.

Answered when this broker's image shows the new target: the move itself takes its time, and
ListPartitionReassignments tells how far it is. No replicas (null) is a cancel; an empty list is an
error, as in Kafka, and never taken for one. What this broker's image does not know is refused only
when the image is known to be up to date.
"""

from collections import Counter
from typing import final

import attrs

from raftlog.base.ids import NodeId
from raftlog.base.limits import REPLICATION_FACTOR_MAX
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
from raftlog.kafka.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from raftlog.metadata.requests import ReassignWish


@final
@attrs.define(eq=False)
class _Moves:
    """One request under way; outcomes are in the order of its partitions."""

    attempt: Attempt

    def answer(self, outcomes: list[Outcome]) -> None:
        """What became of each partition; names whose topic is gone are looked up once more."""
        attempt, request = self.attempt, self.attempt.request
        if request.dead:
            return
        if not attempt.before and any(map(is_gone, outcomes)):
            attempt.once_current(_perform, outcomes)
            return
        body: AlterPartitionReassignmentsRequest = request.body
        left = iter(outcomes)
        responses = [
            ReassignableTopicResponse(
                topic.name, [_told(asked, next(left)) for asked in topic.partitions]
            )
            for topic in body.topics
        ]
        request.answer(
            AlterPartitionReassignmentsResponse(
                allow_replication_factor_change=body.allow_replication_factor_change,
                error_message=None,
                responses=responses,
            )
        )


def _told(asked: ReassignablePartition, outcome: Outcome) -> ReassignablePartitionResponse:
    return ReassignablePartitionResponse(
        asked.partition_index, gone_by_name(outcome.error), outcome.message or None
    )


def handle(context: Context, request: KafkaRequest) -> None:
    """See the module."""
    body: AlterPartitionReassignmentsRequest = request.body
    attempt = Attempt(context, request, deadline_of(context, body.timeout_ms))
    if all(_is_known(context, name, asked) for name, asked in _asked(body)):
        _perform(attempt)
    else:
        attempt.once_current(_perform)


def _asked(body: AlterPartitionReassignmentsRequest) -> list[tuple[str, ReassignablePartition]]:
    return [(topic.name, asked) for topic in body.topics for asked in topic.partitions]


def _is_known(context: Context, name: str, asked: ReassignablePartition) -> bool:
    return not isinstance(context.router.partition(name, asked.partition_index), ErrorCode)


def _perform(attempt: Attempt) -> None:
    context, before = attempt.context, attempt.before
    body: AlterPartitionReassignmentsRequest = attempt.request.body
    asked_for = _asked(body)
    times = Counter((name, asked.partition_index) for name, asked in asked_for)
    calls = ControllerCalls(context, attempt.deadline, _Moves(attempt).answer)
    for place, (name, asked) in enumerate(asked_for):
        if before and not is_gone(before[place]):
            calls.keep(before[place])
        elif times[name, asked.partition_index] > 1:
            calls.known(ErrorCode.INVALID_REQUEST, "the request names this partition twice")
        elif not attempt.current and (before or not _is_known(context, name, asked)):
            calls.known(ErrorCode.REQUEST_TIMED_OUT, BEHIND)
        else:
            _move(context, calls, name, asked, body.allow_replication_factor_change)
    calls.begin()


def _move(
    context: Context,
    calls: ControllerCalls,
    name: str,
    asked: ReassignablePartition,
    factor_may_change: bool,
) -> None:
    topic = context.router.topic(name)
    if topic is None or not _is_known(context, name, asked):
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        calls.known(code, code.message)
        return
    nodes = asked.replicas
    if nodes is not None and (not 1 <= len(nodes) <= REPLICATION_FACTOR_MAX or min(nodes) < 0):
        what = f"a partition needs brokers, at most {REPLICATION_FACTOR_MAX}"
        calls.known(ErrorCode.INVALID_REPLICA_ASSIGNMENT, what)
        return
    calls.wish(
        ReassignWish(
            topic_id=topic.topic_id,
            partition=asked.partition_index,
            nodes=tuple(NodeId(node) for node in nodes or ()),
            same_factor=not factor_may_change,
        )
    )
