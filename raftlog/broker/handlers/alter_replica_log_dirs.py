"""AlterReplicaLogDirs: a replica moves to another log directory of its broker.

The answer says that the move is accepted; DescribeLogDirs shows how far it is. A partition without
a replica here gets REPLICA_NOT_AVAILABLE for now. If a replica is placed here in this boot, it
begins in that directory. Each partition has its own answer. All as in Kafka.
"""

from raftlog.broker.context import Context
from raftlog.broker.front.requests import KafkaRequest
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)


def handle(context: Context, request: KafkaRequest) -> None:
    """Answer for each partition; one that is named twice gets the answer of its last naming."""
    body: AlterReplicaLogDirsRequest = request.body
    found: dict[str, dict[int, int]] = {}
    for directory in body.dirs:
        for topic in directory.topics:
            for number in topic.partitions:
                code = _judged(context, directory.path, topic.name, number)
                found.setdefault(topic.name, {})[number] = code
    results = [
        AlterReplicaLogDirTopicResult(
            name, [AlterReplicaLogDirPartitionResult(*each) for each in codes.items()]
        )
        for name, codes in found.items()
    ]
    request.answer(AlterReplicaLogDirsResponse(results=results))


def _judged(context: Context, path: str, topic: str, number: int) -> int:
    directories = context.log_directories
    wanted = directories.named(path)
    if wanted is None:
        return ErrorCode.LOG_DIR_NOT_FOUND
    if wanted.error is not None:
        return ErrorCode.KAFKA_STORAGE_ERROR
    partition = context.router.partition(topic, number)
    if isinstance(partition, ErrorCode):
        return partition
    group = partition.group
    if group in directories.offline:
        return ErrorCode.KAFKA_STORAGE_ERROR
    if group not in context.replicas and group not in directories.moving:
        directories.prefer(group, wanted.prefix)
        return ErrorCode.REPLICA_NOT_AVAILABLE
    context.moves.ask(group, wanted.prefix)
    return ErrorCode.NONE
