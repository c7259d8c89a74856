"""AlterReplicaLogDirs: a replica moves to another directory of its broker, and there is only one.

A broker has one data directory. A replica that is asked into it is there already; any other
directory is not found. Each partition has its own answer, as in Kafka.
"""

from raftlog.broker.context import Context
from raftlog.broker.handlers.describe_log_dirs import directory_name
from raftlog.broker.requests import KafkaRequest
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from raftlog.partition.replica import PartitionReplica


def handle(context: Context, request: KafkaRequest) -> None:
    """See the module. A partition that is named twice gets the answer of its last naming."""
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
    if path.rstrip("/") != directory_name(context).rstrip("/"):
        return ErrorCode.LOG_DIR_NOT_FOUND
    replica = context.router.replica(topic, number)
    return ErrorCode.NONE if isinstance(replica, PartitionReplica) else replica
