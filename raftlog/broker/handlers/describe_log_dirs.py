"""DescribeLogDirs: what this broker's data directory holds, and how much room is left.

A replica's size is that of its live segment files. Its lag is how far its log ends behind what it
knows to be committed. No replica moves between directories, for a broker has one: none is a future
one. What was asked for and is not here is left out, as in Kafka.
"""

from collections.abc import Sequence
from functools import partial
from typing import Final, final

import attrs

from raftlog.base.errors import RaftlogError
from raftlog.base.ids import METADATA_GROUP
from raftlog.broker.context import Context
from raftlog.broker.requests import KafkaRequest
from raftlog.kafka.codec import EncodedAnswer, encode_answer
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.messages.describe_log_dirs import (
    DescribableLogDirTopic,
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
    if isinstance(value, RaftlogError):
        context.trace("disk-space-unknown", f"node {context.node}", why=str(value))
    # With thousands of replicas the answer that names all of them costs milliseconds. Those who
    # ask for all get the same bytes, so that a flood of such requests does not stop the broker.
    shared: dict[int, EncodedAnswer] = {}
    for request in requests:
        if request.dead:
            continue
        body: DescribeLogDirsRequest = request.body
        if body.topics is not None:
            request.answer(_response(context, _wanted(context, body.topics), value))
            continue
        if request.version not in shared:
            everything = _response(context, _all(context), value)
            shared[request.version] = encode_answer(request.api_key, request.version, everything)
        request.answer_encoded(shared[request.version])


def directory_name(context: Context) -> str:
    """The one data directory of this broker, as clients name it."""
    return context.config.data_path or f"directory-{context.directory:016x}"


def _response(
    context: Context, topics: list[DescribeLogDirsTopic], value: object
) -> DescribeLogDirsResponse:
    name = directory_name(context)
    if isinstance(value, RaftlogError):
        result = DescribeLogDirsResult(ErrorCode.KAFKA_STORAGE_ERROR, name)
    else:
        assert isinstance(value, Space), value
        result = DescribeLogDirsResult(0, name, topics, value.total, value.free)
    return DescribeLogDirsResponse(results=[result])


def _all(context: Context) -> list[DescribeLogDirsTopic]:
    """All running replicas, by topic and number."""
    found: dict[str, list[DescribeLogDirsPartition]] = {}
    for group, replica in context.replicas.items():
        place = context.image.places.get(group)
        if group == METADATA_GROUP or place is None:
            continue
        topic_id, number = place
        name = context.image.topics[topic_id].name
        found.setdefault(name, []).append(_partition(number, replica))
    return [DescribeLogDirsTopic(name, sorted(found[name])) for name in sorted(found)]


def _wanted(
    context: Context, topics: Sequence[DescribableLogDirTopic]
) -> list[DescribeLogDirsTopic]:
    """Those of the running replicas that a request names."""
    wanted: dict[str, dict[int, None]] = {}
    for topic in topics:
        wanted.setdefault(topic.topic, {}).update(dict.fromkeys(topic.partitions))
    found: list[DescribeLogDirsTopic] = []
    for name in sorted(wanted):
        replicas = [
            (number, context.router.replica(name, number)) for number in sorted(wanted[name])
        ]
        here = [
            _partition(number, each)
            for number, each in replicas
            if isinstance(each, PartitionReplica)
        ]
        if here:
            found.append(DescribeLogDirsTopic(name, here))
    return found


def _partition(number: int, replica: PartitionReplica) -> DescribeLogDirsPartition:
    size = sum(segment.size_hint for segment in replica.log.segments)
    lag = max(0, replica.high_watermark - replica.log.next_offset)
    return DescribeLogDirsPartition(number, size, lag, False)
