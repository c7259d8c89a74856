"""OffsetFetch: no group has committed an offset, until groups are served.

The answer is the one that Kafka gives of a group that it does not know. So a consumer that is
assigned a partition without an offset begins where its `auto.offset.reset` says.
"""

from typing import Final

from raftlog.broker.context import Context
from raftlog.broker.requests import KafkaRequest
from raftlog.kafka.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

_BATCHED_FROM: Final = 8
_NONE: Final = -1


def handle(context: Context, request: KafkaRequest) -> None:
    """Answer with offset -1 for each partition asked for; from version 8 on, for each group."""
    body: OffsetFetchRequest = request.body
    if request.version >= _BATCHED_FROM:
        groups = [
            OffsetFetchResponseGroup(
                group.group_id,
                [
                    OffsetFetchResponseTopics(
                        topic.name,
                        topic.topic_id,
                        [
                            OffsetFetchResponsePartitions(partition, _NONE)
                            for partition in topic.partition_indexes
                        ],
                    )
                    for topic in group.topics or ()
                ],
            )
            for group in body.groups
        ]
        request.answer(OffsetFetchResponse(groups=groups))
        return
    topics = [
        OffsetFetchResponseTopic(
            topic.name,
            [OffsetFetchResponsePartition(each, _NONE) for each in topic.partition_indexes],
        )
        for topic in body.topics or ()
    ]
    request.answer(OffsetFetchResponse(topics=topics))
