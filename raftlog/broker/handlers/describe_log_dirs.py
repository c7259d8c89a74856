"""DescribeLogDirs: the replicas in each log directory of this broker, and the room that is left.

A replica's size is that of its live segment files. Its lag is how far its log ends behind the part
that it knows to be committed. A replica on its way to another directory is shown in both, in the
new one as a future replica: its size is the bytes that are copied, and its lag the records that are
not. Once it is stopped for the end of the move, both are shown without sizes. A directory that
failed is shown with its error and without replicas. Requested partitions that are not here are left
out, as in Kafka.
"""

from collections.abc import Sequence
from functools import partial
from typing import final

import attrs

from raftlog.base.errors import RaftlogError
from raftlog.base.ids import METADATA_GROUP, GroupId
from raftlog.broker.context import Context
from raftlog.broker.front.requests import KafkaRequest
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
from raftlog.storage.directories.space import Space, look_at_spaces


@final
@attrs.define(eq=False)
class _Waiting:
    """Requests that wait for the file system; one look serves all that came meanwhile."""

    requests: list[KafkaRequest] = attrs.Factory(list)


def handle(context: Context, request: KafkaRequest) -> None:
    """See the module."""
    waiting = context.kept(_Waiting)
    waiting.requests.append(request)
    if len(waiting.requests) == 1:
        prefixes = tuple(each.prefix for each in context.log_directories.all if each.known)
        done = partial(_looked, context, waiting)
        context.job(context.directory, look_at_spaces, (prefixes,), done)


def _looked(context: Context, waiting: _Waiting, value: object) -> None:
    requests, waiting.requests = waiting.requests, []
    spaces = value if isinstance(value, dict) else {"": value}
    for prefix, space in spaces.items():
        if isinstance(space, RaftlogError):
            context.trace("disk-space-unknown", f"node {context.node} {prefix}", why=str(space))
    # With thousands of replicas the answer that names all of them costs milliseconds. All clients
    # that ask for everything get the same bytes, so a flood of requests does not stop the broker.
    shared: dict[int, EncodedAnswer] = {}
    for request in requests:
        if request.dead:
            continue
        body: DescribeLogDirsRequest = request.body
        if body.topics is not None:
            request.answer(_response(context, _wanted(context, body.topics), spaces))
            continue
        if request.version not in shared:
            everything = _response(context, _all(context), spaces)
            shared[request.version] = encode_answer(request.api_key, request.version, everything)
        request.answer_encoded(shared[request.version])


def _response(
    context: Context, topics: list[DescribeLogDirsTopic], spaces: dict[str, object]
) -> DescribeLogDirsResponse:
    results: list[DescribeLogDirsResult] = []
    for each in context.log_directories.all:
        space = spaces.get(each.prefix) if each.known else None
        if each.error is not None or not isinstance(space, Space):
            results.append(DescribeLogDirsResult(ErrorCode.KAFKA_STORAGE_ERROR, each.name))
            continue
        held = _held(context, topics, each.prefix)
        results.append(DescribeLogDirsResult(0, each.name, held, space.total, space.free))
    return DescribeLogDirsResponse(results=results)


def _held(
    context: Context, topics: list[DescribeLogDirsTopic], prefix: str
) -> list[DescribeLogDirsTopic]:
    """The replicas that lie in one directory."""
    directories = context.log_directories
    if not directories.further:
        return topics
    found: list[DescribeLogDirsTopic] = []
    for topic in topics:
        image = context.image.topic(topic.name)
        assert image is not None, topic.name
        here: list[DescribeLogDirsPartition] = []
        for each in topic.partitions:
            group = image.partitions[each.partition_index].group
            if directories.directory_of(group) == prefix:
                here.append(each)
            elif directories.moving.get(group) == prefix:
                here.append(_future(context, group, each.partition_index))
        if here:
            found.append(DescribeLogDirsTopic(topic.name, here))
    return found


def _all(context: Context) -> list[DescribeLogDirsTopic]:
    """All replicas that run, or stand still while they move, by topic and number."""
    found: dict[str, list[DescribeLogDirsPartition]] = {}
    moving = dict.fromkeys(context.log_directories.moving)
    for group, replica in (moving | context.replicas).items():
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
    """The rows of those replicas that a request names."""
    wanted: dict[str, dict[int, None]] = {}
    for topic in topics:
        wanted.setdefault(topic.topic, {}).update(dict.fromkeys(topic.partitions))
    found: list[DescribeLogDirsTopic] = []
    for name in sorted(wanted):
        here: list[DescribeLogDirsPartition] = []
        for number in sorted(wanted[name]):
            partition = context.router.partition(name, number)
            if isinstance(partition, ErrorCode):
                continue
            replica = context.replicas.get(partition.group)
            if replica is not None or partition.group in context.log_directories.moving:
                here.append(_partition(number, replica))
        if here:
            found.append(DescribeLogDirsTopic(name, here))
    return found


def _partition(number: int, replica: PartitionReplica | None) -> DescribeLogDirsPartition:
    """One row; `replica` is None when it is stopped because it moves."""
    if replica is None:
        return DescribeLogDirsPartition(number, 0, 0, False)
    size = sum(segment.size_hint for segment in replica.log.segments)
    lag = max(0, replica.high_watermark - replica.log.next_offset)
    return DescribeLogDirsPartition(number, size, lag, False)


def _future(context: Context, group: GroupId, number: int) -> DescribeLogDirsPartition:
    """The row of a copy. A move that waits for others has copied nothing yet."""
    replica = context.replicas.get(group)
    if replica is None:
        return DescribeLogDirsPartition(number, 0, 0, True)
    size, offset = context.moves.progress(group) or (0, 0)
    lag = max(0, replica.log.next_offset - max(offset, replica.log.log_start))
    return DescribeLogDirsPartition(number, size, lag, True)
