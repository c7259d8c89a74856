"""AlterPartitionReassignments: partitions move to other brokers, or a move is taken back.

The answer leaves when this broker's image shows the new target. The move itself takes its time, and
ListPartitionReassignments tells how far it is. No replicas (null) is a cancel; an empty list is an
error, as in Kafka, and never taken for one.
"""

from collections.abc import Sequence
from typing import NamedTuple

from raftlog.base.amounts import amount
from raftlog.base.ids import NodeId
from raftlog.base.limits import REPLICATION_FACTOR_MAX
from raftlog.broker.context import Context
from raftlog.broker.control.controller_calls import CallOutcome, ControllerCalls
from raftlog.broker.handlers.attempts import gone_by_name
from raftlog.broker.handlers.each_named import EachNamed
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from raftlog.metadata.requests import ReassignRequest


class _Named(NamedTuple):
    topic: str
    asked: ReassignablePartition


def _all_named(body: AlterPartitionReassignmentsRequest) -> list[_Named]:
    return [_Named(topic.name, asked) for topic in body.topics for asked in topic.partitions]


def _partition(named: _Named) -> tuple[str, int]:
    return named.topic, named.asked.partition_index


def _is_known(context: Context, named: _Named) -> bool:
    return not isinstance(context.router.partition(*_partition(named)), ErrorCode)


def _move(
    context: Context,
    calls: ControllerCalls,
    body: AlterPartitionReassignmentsRequest,
    named: _Named,
) -> None:
    name, asked = named
    topic = context.router.topic(name)
    if topic is None or not _is_known(context, named):
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        calls.known(code, code.message)
        return
    nodes = asked.replicas
    problem = None if nodes is None else _problem_of(nodes)
    if problem is not None:
        calls.known(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)
        return
    calls.add(
        ReassignRequest(
            topic_id=topic.topic_id,
            partition=asked.partition_index,
            nodes=tuple(NodeId(node) for node in nodes or ()),
            same_factor=not body.allow_replication_factor_change,
        )
    )


def _problem_of(nodes: Sequence[int]) -> str | None:
    if not 1 <= len(nodes) <= REPLICATION_FACTOR_MAX:
        told = amount(len(nodes), "broker")
        return f"{told} for a partition, which needs 1 to {REPLICATION_FACTOR_MAX}"
    return f"no broker has the number {min(nodes)}" if min(nodes) < 0 else None


def _response(
    body: AlterPartitionReassignmentsRequest, outcomes: list[CallOutcome]
) -> AlterPartitionReassignmentsResponse:
    left = iter(outcomes)
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=body.allow_replication_factor_change,
        error_message=None,
        responses=[
            ReassignableTopicResponse(
                topic.name, [_told(asked, next(left)) for asked in topic.partitions]
            )
            for topic in body.topics
        ],
    )


def _told(asked: ReassignablePartition, outcome: CallOutcome) -> ReassignablePartitionResponse:
    return ReassignablePartitionResponse(
        asked.partition_index, gone_by_name(outcome.error), outcome.message or None
    )


handle = EachNamed(
    asked=_all_named,
    key=_partition,
    twice="the request names this partition twice",
    fits=_is_known,
    ask=_move,
    respond=_response,
).handle
"""See the module."""
