"""DescribeTopicPartitions: topics by name, in pages of so many partitions.

A request without topics means all. A page begins at the cursor and ends where the limit of
partitions is reached; the answer's cursor then says where the next one begins. Eligible leaders
beside the in-sync set do not exist here: an acknowledged record is on a majority.
"""

from typing import Final

from raftlog.broker.context import Context
from raftlog.broker.front.requests import KafkaRequest
from raftlog.broker.handlers.cluster_view import TOPIC_OPERATIONS
from raftlog.broker.handlers.metadata import partition_view
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.messages.describe_topic_partitions import (
    CursorResponse,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from raftlog.metadata.rules.topic_names import topic_name_problem
from raftlog.metadata.topic_image import PartitionImage, TopicImage

PAGE_PARTITIONS_MAX: Final = 2000
"""The most partitions in a page: Kafka's max.request.partition.size.limit."""


def handle(context: Context, request: KafkaRequest) -> None:
    """See the module."""
    body: DescribeTopicPartitionsRequest = request.body
    if body.cursor is not None and body.cursor.partition_index < 0:
        # As Kafka's broker: the answer has the topics that the request names, each refused.
        refused = [_refused(topic.name) for topic in body.topics]
        request.answer(DescribeTopicPartitionsResponse(topics=refused))
        return
    left = max(1, min(body.response_partition_limit, PAGE_PARTITIONS_MAX))
    found: list[DescribeTopicPartitionsResponseTopic] = []
    following: CursorResponse | None = None
    for name in _names(context, body):
        if left == 0:
            following = CursorResponse(name, 0)
            break
        topic = context.router.topic(name)
        if topic is None:
            found.append(_unknown(name))
            continue
        start = _start(body, name)
        stop = min(len(topic.partitions), start + left)
        found.append(_page(context, topic, start, stop))
        left -= max(0, stop - start)
        if stop < len(topic.partitions):
            following = CursorResponse(name, stop)
            break
    request.answer(DescribeTopicPartitionsResponse(topics=found, next_cursor=following))


def _names(context: Context, body: DescribeTopicPartitionsRequest) -> list[str]:
    """The topics' names in order, from the cursor's topic on."""
    asked = [topic.name for topic in body.topics] or context.image.names
    first = "" if body.cursor is None else body.cursor.topic_name
    return [name for name in sorted(dict.fromkeys(asked)) if name >= first]


def _start(body: DescribeTopicPartitionsRequest, name: str) -> int:
    if body.cursor is None or body.cursor.topic_name != name:
        return 0
    return body.cursor.partition_index


def _refused(name: str) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(ErrorCode.INVALID_REQUEST, name)


def _unknown(name: str) -> DescribeTopicPartitionsResponseTopic:
    wrong = topic_name_problem(name) is not None
    code = ErrorCode.INVALID_TOPIC_EXCEPTION if wrong else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return DescribeTopicPartitionsResponseTopic(code, name)


def _page(
    context: Context, topic: TopicImage, start: int, stop: int
) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        0,
        topic.name,
        topic.topic_id,
        topic.internal,
        [_partition(context, number, topic.partitions[number]) for number in range(start, stop)],
        TOPIC_OPERATIONS,
    )


def _partition(
    context: Context, number: int, partition: PartitionImage
) -> DescribeTopicPartitionsResponsePartition:
    seen = partition_view(context, number, partition)
    return DescribeTopicPartitionsResponsePartition(
        seen.error_code,
        number,
        seen.leader_id,
        seen.leader_epoch,
        seen.replica_nodes,
        seen.isr_nodes,
        (),
        (),
        seen.offline_replicas,
    )
