"""DescribeProducers: the idempotent producers that this broker's replica knows, as leader or not.

None has a transaction. A tool that looks for hanging transactions asks every replica.
"""

from typing import Final

from raftlog.broker.context import Context
from raftlog.broker.front.requests import KafkaRequest
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from raftlog.kafka.messages.describe_producers import TopicRequest as Asked
from raftlog.metadata.rules.topic_names import topic_name_problem

_NONE: Final = -1


def handle(context: Context, request: KafkaRequest) -> None:
    """See the module."""
    body: DescribeProducersRequest = request.body
    request.answer(
        DescribeProducersResponse(topics=[_topic(context, asked) for asked in body.topics])
    )


def _topic(context: Context, asked: Asked) -> TopicResponse:
    numbers = dict.fromkeys(asked.partition_indexes)
    problem = topic_name_problem(asked.name)
    if problem is not None:
        code = ErrorCode.INVALID_TOPIC_EXCEPTION
        return TopicResponse(
            asked.name, [PartitionResponse(each, code, problem) for each in numbers]
        )
    return TopicResponse(asked.name, [_partition(context, asked.name, each) for each in numbers])


def _partition(context: Context, name: str, number: int) -> PartitionResponse:
    replica = context.router.replica(name, number)
    if isinstance(replica, ErrorCode):
        return PartitionResponse(number, replica, replica.message)
    producers = [
        ProducerState(
            producer_id,
            state.epoch,
            state.spans[-1].last_sequence if state.spans else _NONE,
            state.last_seen_ms,
            _NONE,
            _NONE,
        )
        for producer_id, state in replica.producers.states()
    ]
    return PartitionResponse(number, 0, None, producers)
