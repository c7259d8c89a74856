"""OffsetForLeaderEpoch: where an epoch ends, so that a consumer sees whether its log was cut.

The answer is the largest known epoch at or below the requested one, and its end offset. For the
present epoch that is the end of the log, not the high watermark: else consumers would see a
truncation that never was (KIP-320). An epoch above the newest is not known: the answer is (-1, -1),
as in Kafka. A leader that has not committed in its own term may still have less than consumers have
read, and answers OFFSET_NOT_AVAILABLE.

`replica_id` is ignored: every client gets what a consumer may know.
"""

from raftlog.base.ids import Term
from raftlog.broker.context import Context
from raftlog.broker.front.requests import KafkaRequest
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)


def handle(context: Context, request: KafkaRequest) -> None:
    """Answer every partition at once."""
    body: OffsetForLeaderEpochRequest = request.body
    topics = [
        OffsetForLeaderTopicResult(
            topic.topic, [_end_of(context, topic.topic, asked) for asked in topic.partitions]
        )
        for topic in body.topics
    ]
    request.answer(OffsetForLeaderEpochResponse(0, topics))


def _end_of(context: Context, topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    number = asked.partition
    replica = context.router.replica(topic, number)
    if isinstance(replica, ErrorCode):
        return EpochEndOffset(replica, number)
    error = replica.leader_error(asked.current_leader_epoch)
    if not error and not replica.publishing:
        error = ErrorCode.OFFSET_NOT_AVAILABLE
    if error:
        return EpochEndOffset(error, number)
    log = replica.log
    found = None
    if 0 <= asked.leader_epoch <= log.last_term:
        found = log.term_end_offset(Term(asked.leader_epoch), log.next_offset)
    if found is None:
        return EpochEndOffset(ErrorCode.NONE, number)
    return EpochEndOffset(ErrorCode.NONE, number, found[0], found[1])
