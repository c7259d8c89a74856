"""DeleteRecords: a partition forgets its records below an offset.

The leader proposes a new log start, and answers for the partition when that is committed. -1 means
the high watermark. Two kinds of topics are refused: internal ones, and those that are only
compacted, whose records are the state of their keys.
"""

from collections import Counter
from functools import partial
from typing import Final, final

import attrs

from raftlog.base.units import Instant
from raftlog.broker.context import Context
from raftlog.broker.front.requests import KafkaRequest
from raftlog.broker.handlers.attempts import deadline_of
from raftlog.broker.topic_settings import topic_values
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from raftlog.metadata.settings.topic_configs import retention_deletes
from raftlog.partition.output import DeleteAnswer

_NO_WATERMARK: Final = -1


def handle(context: Context, request: KafkaRequest) -> None:
    """See the module."""
    _Deletion(context, request, request.body).begin()


@final
@attrs.define(eq=False)
class _Deletion:
    """One request on its way; `results` are in the order of its partitions."""

    context: Context
    request: KafkaRequest
    body: DeleteRecordsRequest
    results: list[DeleteRecordsPartitionResult | None] = attrs.Factory(list)
    open: int = 1

    def begin(self) -> None:
        """Ask for every partition; the replica keeps the time of those that must wait."""
        deadline = deadline_of(self.context, self.body.timeout_ms)
        times = Counter(
            (topic.name, asked.partition_index)
            for topic in self.body.topics
            for asked in topic.partitions
        )
        refusals = {name: _refusal(self.context, name) for name, _ in times}
        for topic in self.body.topics:
            for asked in topic.partitions:
                place = len(self.results)
                self.results.append(None)
                self.open += 1
                error = refusals[topic.name]
                if times[topic.name, asked.partition_index] > 1:
                    error = ErrorCode.INVALID_REQUEST
                if error is ErrorCode.NONE:
                    self._ask(place, topic.name, asked, deadline)
                else:
                    self._set(place, asked, DeleteAnswer(error))
        self._close_one()

    def _ask(
        self, place: int, topic: str, asked: DeleteRecordsPartition, deadline: Instant
    ) -> None:
        context = self.context
        replica = context.router.replica(topic, asked.partition_index)
        if isinstance(replica, ErrorCode):
            self._set(place, asked, DeleteAnswer(replica))
            return
        then = partial(self._decided, place, asked)
        answer = replica.delete_records(asked.offset, deadline, then, context.now, context.wall)
        context.touch(replica.group)
        if answer is not None:
            self._set(place, asked, answer)

    def _decided(self, place: int, asked: DeleteRecordsPartition, answer: DeleteAnswer) -> None:
        if not self.request.dead:
            self._set(place, asked, answer)

    def _set(self, place: int, asked: DeleteRecordsPartition, answer: DeleteAnswer) -> None:
        assert self.results[place] is None, (place, self.results[place])
        low = answer.log_start if answer.error is ErrorCode.NONE else _NO_WATERMARK
        code = _told(answer.error)
        self.results[place] = DeleteRecordsPartitionResult(asked.partition_index, low, code)
        self._close_one()

    def _close_one(self) -> None:
        self.open -= 1
        if self.open:
            return
        left = iter(self.results)
        topics = []
        for topic in self.body.topics:
            results = [result for _ in topic.partitions if (result := next(left)) is not None]
            assert len(results) == len(topic.partitions), topic.name
            topics.append(DeleteRecordsTopicResult(topic.name, results))
        self.request.answer(DeleteRecordsResponse(0, topics))


def _refusal(context: Context, name: str) -> ErrorCode:
    """The reason why records of this topic cannot be deleted.

    The router reports an unknown topic.
    """
    topic = context.router.topic(name)
    if topic is None:
        return ErrorCode.NONE
    policy = topic_values(topic.configs, context.defaults)["cleanup.policy"]
    if topic.internal or not retention_deletes(policy):
        return ErrorCode.POLICY_VIOLATION
    return ErrorCode.NONE


def _told(error: ErrorCode) -> ErrorCode:
    """The error as Kafka gives it: here NOT_LEADER_OR_FOLLOWER stands for a missing leader.

    kafka-python looks for a leader after that error only.
    """
    if error is ErrorCode.LEADER_NOT_AVAILABLE:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return error
