"""Makes the answer to a whole request that failed, with the code in every place for one.

A request whose body parses is answered with an error, not by closing: clients that lose their
connection come back at once, again and again. The answer is of the newest shape; the encoder leaves
out what the version lacks. Handlers that fail for single partitions build their own answers.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

from raftlog.kafka.compile import class_finder
from raftlog.kafka.messages import (
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_configs,
    describe_groups,
    fetch,
    find_coordinator,
    list_offsets,
    metadata,
    offset_commit,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
)
from raftlog.kafka.messages.api_versions import ApiVersionsRequest
from raftlog.kafka.tables import named_table
from raftlog.kafka.versions import api_versions_response


def error_body(request: Any, code: int, message: str | None = None) -> Any:
    """The response body that answers `request` with `code` everywhere.

    None when the answer has no place for an error, because the request names no item that could
    carry it: then the connection must close.
    """
    special = _SPECIAL.get(type(request))
    if special is not None:
        return special(request, code, message)
    # It is imported when first needed: it names messages that most brokers never see.
    listed_errors: Any = import_module("raftlog.kafka.listed_errors")
    listed = listed_errors.listed_error(request, code, message)
    if listed is not None:
        return listed
    table = named_table(type(request).__name__.removesuffix("Request") + "Response")
    if table is None or "error_code" not in {field[0] for field in table[5]}:
        return None
    made = class_finder(table)(table[1])()
    assert isinstance(made, tuple), table[1]
    fields = {"error_code": code, "error_message": message}
    known = made._fields  # type: ignore[attr-defined]
    return made._replace(**{k: v for k, v in fields.items() if k in known})  # type: ignore[attr-defined]


def _api_versions(_: ApiVersionsRequest, code: int, message: str | None) -> Any:
    return api_versions_response(error_code=code)


def _metadata(request: metadata.MetadataRequest, code: int, message: str | None) -> object:
    topics = [
        metadata.MetadataResponseTopic(code, topic.name, topic.topic_id)
        for topic in request.topics or ()
    ]
    return metadata.MetadataResponse(topics=topics, error_code=code)


def _produce(request: produce.ProduceRequest, code: int, message: str | None) -> object:
    def partition(asked: produce.PartitionProduceData) -> produce.PartitionProduceResponse:
        return produce.PartitionProduceResponse(asked.index, code, -1, error_message=message)

    return produce.ProduceResponse(
        responses=[
            produce.TopicProduceResponse(
                topic.name, topic.topic_id, [partition(asked) for asked in topic.partition_data]
            )
            for topic in request.topic_data
        ]
    )


def _fetch(request: fetch.FetchRequest, code: int, message: str | None) -> object:
    def partition(asked: fetch.FetchPartition) -> fetch.PartitionData:
        # "No records" is written as empty bytes: librdkafka cannot parse null, and fetches again at
        # once.
        return fetch.PartitionData(asked.partition, code, high_watermark=-1, records=b"")

    return fetch.FetchResponse(
        error_code=code,
        responses=[
            fetch.FetchableTopicResponse(
                topic.topic, topic.topic_id, [partition(asked) for asked in topic.partitions]
            )
            for topic in request.topics
        ],
    )


def _list_offsets(
    request: list_offsets.ListOffsetsRequest, code: int, message: str | None
) -> object:
    return list_offsets.ListOffsetsResponse(
        topics=[
            list_offsets.ListOffsetsTopicResponse(
                topic.name,
                [
                    list_offsets.ListOffsetsPartitionResponse(asked.partition_index, code)
                    for asked in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _offset_commit(
    request: offset_commit.OffsetCommitRequest, code: int, message: str | None
) -> object:
    return offset_commit.OffsetCommitResponse(
        topics=[
            offset_commit.OffsetCommitResponseTopic(
                topic.name,
                topic.topic_id,
                [
                    offset_commit.OffsetCommitResponsePartition(asked.partition_index, code)
                    for asked in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _offset_fetch(
    request: offset_fetch.OffsetFetchRequest, code: int, message: str | None
) -> object:
    def partition(number: int) -> offset_fetch.OffsetFetchResponsePartition:
        return offset_fetch.OffsetFetchResponsePartition(number, -1, error_code=code)

    return offset_fetch.OffsetFetchResponse(
        topics=[
            offset_fetch.OffsetFetchResponseTopic(
                topic.name, [partition(number) for number in topic.partition_indexes]
            )
            for topic in request.topics or ()
        ],
        error_code=code,
        groups=[
            offset_fetch.OffsetFetchResponseGroup(
                group.group_id,
                [
                    offset_fetch.OffsetFetchResponseTopics(
                        topic.name,
                        topic.topic_id,
                        [
                            offset_fetch.OffsetFetchResponsePartitions(number, -1, error_code=code)
                            for number in topic.partition_indexes
                        ],
                    )
                    for topic in group.topics or ()
                ],
                code,
            )
            for group in request.groups
        ],
    )


def _find_coordinator(
    request: find_coordinator.FindCoordinatorRequest, code: int, message: str | None
) -> object:
    return find_coordinator.FindCoordinatorResponse(
        error_code=code,
        error_message=message,
        node_id=-1,
        port=-1,
        coordinators=[
            find_coordinator.Coordinator(key, -1, "", -1, code, message)
            for key in request.coordinator_keys
        ],
    )


def _describe_groups(
    request: describe_groups.DescribeGroupsRequest, code: int, message: str | None
) -> object:
    return describe_groups.DescribeGroupsResponse(
        groups=[describe_groups.DescribedGroup(code, message, name) for name in request.groups]
    )


def _delete_groups(
    request: delete_groups.DeleteGroupsRequest, code: int, message: str | None
) -> object:
    return delete_groups.DeleteGroupsResponse(
        results=[delete_groups.DeletableGroupResult(name, code) for name in request.groups_names]
    )


def _create_topics(
    request: create_topics.CreateTopicsRequest, code: int, message: str | None
) -> object:
    return create_topics.CreateTopicsResponse(
        topics=[
            create_topics.CreatableTopicResult(
                topic.name, error_code=code, error_message=message, configs=None
            )
            for topic in request.topics
        ]
    )


def _delete_topics(
    request: delete_topics.DeleteTopicsRequest, code: int, message: str | None
) -> object:
    named = [delete_topics.DeleteTopicState(name) for name in request.topic_names]
    return delete_topics.DeleteTopicsResponse(
        responses=[
            delete_topics.DeletableTopicResult(topic.name, topic.topic_id, code, message)
            for topic in [*request.topics, *named]
        ]
    )


def _offset_for_leader_epoch(
    request: offset_for_leader_epoch.OffsetForLeaderEpochRequest, code: int, message: str | None
) -> object:
    return offset_for_leader_epoch.OffsetForLeaderEpochResponse(
        topics=[
            offset_for_leader_epoch.OffsetForLeaderTopicResult(
                topic.topic,
                [
                    offset_for_leader_epoch.EpochEndOffset(code, asked.partition)
                    for asked in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _describe_configs(
    request: describe_configs.DescribeConfigsRequest, code: int, message: str | None
) -> object:
    return describe_configs.DescribeConfigsResponse(
        results=[
            describe_configs.DescribeConfigsResult(
                code, message, asked.resource_type, asked.resource_name
            )
            for asked in request.resources
        ]
    )


def _create_partitions(
    request: create_partitions.CreatePartitionsRequest, code: int, message: str | None
) -> object:
    return create_partitions.CreatePartitionsResponse(
        results=[
            create_partitions.CreatePartitionsTopicResult(topic.name, code, message)
            for topic in request.topics
        ]
    )


def _delete_records(
    request: delete_records.DeleteRecordsRequest, code: int, message: str | None
) -> object:
    return delete_records.DeleteRecordsResponse(
        topics=[
            delete_records.DeleteRecordsTopicResult(
                topic.name,
                [
                    delete_records.DeleteRecordsPartitionResult(asked.partition_index, -1, code)
                    for asked in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


_SPECIAL: Final[dict[type, Callable[[Any, int, str | None], Any]]] = {
    ApiVersionsRequest: _api_versions,
    metadata.MetadataRequest: _metadata,
    produce.ProduceRequest: _produce,
    fetch.FetchRequest: _fetch,
    list_offsets.ListOffsetsRequest: _list_offsets,
    find_coordinator.FindCoordinatorRequest: _find_coordinator,
    offset_commit.OffsetCommitRequest: _offset_commit,
    offset_fetch.OffsetFetchRequest: _offset_fetch,
    describe_groups.DescribeGroupsRequest: _describe_groups,
    delete_groups.DeleteGroupsRequest: _delete_groups,
    create_topics.CreateTopicsRequest: _create_topics,
    delete_topics.DeleteTopicsRequest: _delete_topics,
    offset_for_leader_epoch.OffsetForLeaderEpochRequest: _offset_for_leader_epoch,
    describe_configs.DescribeConfigsRequest: _describe_configs,
    create_partitions.CreatePartitionsRequest: _create_partitions,
    delete_records.DeleteRecordsRequest: _delete_records,
}
"""APIs whose errors stand beside each item that the request names."""
