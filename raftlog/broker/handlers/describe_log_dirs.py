"""DescribeLogDirs: what this broker's data directory holds, and how much room is left.

A replica's size is that of its live segment files. Its lag is how far its log ends behind what it
knows to be committed. No replica moves between directories, for a broker has one: none is a future
one. What was asked for and is not here is left out, as in Kafka.
"""

from functools import partial
from typing import Final, final

import attrs

from raftlog.base.errors import RaftlogError
from raftlog.base.ids import METADATA_GROUP
from raftlog.broker.context import Context
from raftlog.broker.requests import KafkaRequest
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from raftlog.partition.replica import PartitionReplica
from raftlog.storage.space import Space, look_at_space

_STATE: Final = "describe_log_dirs"


@final
@attrs.define(eq=False)
class _Waiting:
    """Requests that wait for the file system; one look serves all that came meanwhile."""

    requests: list[KafkaRequest] = attrs.Factory(list)


def handle(context: Context, request: KafkaRequest) -> None:
    """See the module."""
    waiting: _Waiting | None = context.handler_state.get(_STATE)
    if waiting is None:
        waiting = context.handler_state[_STATE] = _Waiting()
    waiting.requests.append(request)
    if len(waiting.requests) == 1:
        context.job(context.directory, look_at_space, (), partial(_looked, context, waiting))


def _looked(context: Context, waiting: _Waiting, value: object) -> None:
    requests, waiting.requests = waiting.requests, []
    for request in requests:
        if not request.dead:
            request.answer(DescribeLogDirsResponse(results=[_directory(context, request, value)]))


def _directory(context: Context, request: KafkaRequest, value: object) -> DescribeLogDirsResult:
    name = context.config.data_path or f"directory-{context.directory:016x}"
    if isinstance(value, RaftlogError):
        context.trace("disk-space-unknown", f"node {context.node}", why=str(value))
        return DescribeLogDirsResult(ErrorCode.KAFKA_STORAGE_ERROR, name)
    assert isinstance(value, Space), value
    topics = _topics(context, request.body)
    return DescribeLogDirsResult(0, name, topics, value.total, value.free)


def _topics(context: Context, body: DescribeLogDirsRequest) -> list[DescribeLogDirsTopic]:
    """The running replicas that were asked for, by topic and number."""
    wanted = _wanted(body)
    found: dict[str, list[DescribeLogDirsPartition]] = {}
    for group, replica in context.replicas.items():
        place = context.image.places.get(group)
        if group == METADATA_GROUP or place is None:
            continue
        topic_id, number = place
        name = context.image.topics[topic_id].name
        if wanted is None or number in wanted.get(name, ()):
            found.setdefault(name, []).append(_partition(number, replica))
    return [DescribeLogDirsTopic(name, sorted(found[name])) for name in sorted(found)]


def _wanted(body: DescribeLogDirsRequest) -> dict[str, dict[int, None]] | None:
    if body.topics is None:
        return None
    wanted: dict[str, dict[int, None]] = {}
    for topic in body.topics:
        wanted.setdefault(topic.topic, {}).update(dict.fromkeys(topic.partitions))
    return wanted


def _partition(number: int, replica: PartitionReplica) -> DescribeLogDirsPartition:
    size = sum(segment.size_hint for segment in replica.log.segments)
    lag = max(0, replica.high_watermark - replica.log.next_offset)
    return DescribeLogDirsPartition(number, size, lag, False)
