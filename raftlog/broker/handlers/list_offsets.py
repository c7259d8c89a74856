"""ListOffsets: where a partition begins and ends, and the first record at or after a timestamp.

The end is the high watermark. A new leader that has not committed in its own term knows less than
the one before it: it answers 78 (5 before version 5) to everything but the beginning (KIP-207).
"""

from functools import partial
from typing import Final, final

import attrs

from raftlog.base.errors import CorruptData
from raftlog.base.units import Instant
from raftlog.broker.context import Context
from raftlog.broker.deadlines import Timer
from raftlog.broker.handlers.leader_hints import claims_to_be_a_replica
from raftlog.broker.requests import KafkaRequest
from raftlog.kafka.error_bodies import error_body
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from raftlog.partition.output import ReadAnswer
from raftlog.partition.replica import PartitionReplica
from raftlog.storage.cold import TimeHit

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6
_NEEDS_VERSION: Final = {
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
_NOT_AVAILABLE_FROM: Final = 5


def handle(context: Context, request: KafkaRequest) -> None:
    """One offset per partition, when the last one is known."""
    body: ListOffsetsRequest = request.body
    if claims_to_be_a_replica(context, request, body.replica_id):
        request.answer(error_body(body, ErrorCode.INVALID_REQUEST))
        return
    _Listing(context, request, body).begin()


@final
@attrs.define(eq=False)
class _Listing:
    """One request on its way; `answers` are in the order of its partitions."""

    context: Context
    request: KafkaRequest
    body: ListOffsetsRequest
    answers: list[ListOffsetsPartitionResponse | None] = attrs.Factory(list)
    open: int = 1
    timer: Timer | None = None

    def begin(self) -> None:
        """Ask for every partition; what must wait for a job or a confirmation is answered later."""
        for topic in self.body.topics:
            for asked in topic.partitions:
                place = len(self.answers)
                self.answers.append(None)
                self.open += 1
                self._ask(place, topic.name, asked)
        self._close_one()
        if self.open:
            patience = Instant(self.context.now + self.context.config.request_ns)
            self.timer = self.context.at(patience, self._timed_out)
            self.request.on_close(self.timer.cancel)

    def _ask(self, place: int, topic: str, asked: ListOffsetsPartition) -> None:
        found = self.context.router.replica(topic, asked.partition_index)
        if isinstance(found, ErrorCode):
            self._fail(place, asked, found)
            return
        error = self._refusal(found, asked)
        if error:
            self._fail(place, asked, error)
        elif asked.timestamp in (EARLIEST, EARLIEST_LOCAL):
            self._known(place, asked, found.log_start, -1)
        elif asked.timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
            self._known(place, asked, -1, -1)
        elif found.config.linearizable:
            then = partial(self._confirmed, place, asked, found)
            refused = found.read_index(then, self.context.now)
            self.context.touch(found.group)
            if refused is not None:
                self._fail(place, asked, refused.error)
        else:
            self._look_up(place, asked, found)

    def _refusal(self, replica: PartitionReplica, asked: ListOffsetsPartition) -> ErrorCode:
        """Why this partition is not answered here and now."""
        timestamp = asked.timestamp
        if timestamp < EARLIEST_PENDING_UPLOAD:
            return ErrorCode.INVALID_REQUEST
        if self.request.version < _NEEDS_VERSION.get(timestamp, 0):
            return ErrorCode.UNSUPPORTED_VERSION
        error = replica.leader_error(asked.current_leader_epoch)
        if error or timestamp in (EARLIEST, EARLIEST_LOCAL) or replica.publishing:
            return error
        if self.request.version >= _NOT_AVAILABLE_FROM:
            return ErrorCode.OFFSET_NOT_AVAILABLE
        return ErrorCode.LEADER_NOT_AVAILABLE

    def _confirmed(
        self,
        place: int,
        asked: ListOffsetsPartition,
        replica: PartitionReplica,
        answer: ReadAnswer,
    ) -> None:
        error = answer.error or self._refusal(replica, asked)
        if self._is_over(place):
            return
        if error:
            self._fail(place, asked, error)
        else:
            self._look_up(place, asked, replica)

    def _look_up(self, place: int, asked: ListOffsetsPartition, replica: PartitionReplica) -> None:
        """The end, or a record by its timestamp; the latter off the loop."""
        if asked.timestamp == LATEST:
            self._known(place, asked, replica.high_watermark, replica.term)
            return
        wanted = asked.timestamp
        if wanted == MAX_TIMESTAMP:
            wanted = _largest_timestamp(replica)
        if wanted < 0:
            self._known(place, asked, -1, -1)
            return
        job = replica.log.plan_time(wanted, replica.high_watermark)
        done = partial(self._found, place, asked, replica)
        self.context.job(replica.directory, job.function, job.args, done)

    def _found(
        self, place: int, asked: ListOffsetsPartition, replica: PartitionReplica, value: object
    ) -> None:
        """A look-up came back; it is true of the log that asked only while that still leads."""
        if isinstance(value, CorruptData):
            replica.damage_found(value, self.context.now)
            self.context.touch(replica.group)
        if self._is_over(place):
            return
        error = self._refusal(replica, asked)
        if error:
            self._fail(place, asked, error)
        elif isinstance(value, TimeHit):
            self._set(
                place,
                ListOffsetsPartitionResponse(
                    asked.partition_index, 0, value.timestamp_ms, value.offset, value.term
                ),
            )
        elif value is None and _may_be_uncommitted(replica, asked.timestamp):
            self._fail(place, asked, ErrorCode.OFFSET_NOT_AVAILABLE)
        elif value is None:
            self._known(place, asked, -1, -1)
        else:
            self._fail(place, asked, ErrorCode.KAFKA_STORAGE_ERROR)

    def _is_over(self, place: int) -> bool:
        return self.request.dead or self.answers[place] is not None

    def _fail(self, place: int, asked: ListOffsetsPartition, error: int) -> None:
        self._set(place, ListOffsetsPartitionResponse(asked.partition_index, error))

    def _known(self, place: int, asked: ListOffsetsPartition, offset: int, epoch: int) -> None:
        self._set(place, ListOffsetsPartitionResponse(asked.partition_index, 0, -1, offset, epoch))

    def _set(self, place: int, answer: ListOffsetsPartitionResponse) -> None:
        assert self.answers[place] is None, (place, self.answers[place])
        self.answers[place] = answer
        self._close_one()

    def _timed_out(self) -> None:
        """No majority confirmed, or the disk did not answer, in time."""
        place = 0
        for topic in self.body.topics:
            for asked in topic.partitions:
                if self.answers[place] is None:
                    self._fail(place, asked, ErrorCode.REQUEST_TIMED_OUT)
                place += 1

    def _close_one(self) -> None:
        self.open -= 1
        if self.open:
            return
        if self.timer is not None:
            self.timer.cancel()
        place, topics = 0, []
        for topic in self.body.topics:
            count = len(topic.partitions)
            answers = [one for one in self.answers[place : place + count] if one is not None]
            assert len(answers) == count, (topic.name, count)
            topics.append(ListOffsetsTopicResponse(topic.name, answers))
            place += count
        self.request.answer(ListOffsetsResponse(0, topics))


def _largest_timestamp(replica: PartitionReplica) -> int:
    """The latest timestamp that any batch of the log claims, committed or not."""
    return max(
        (
            max(
                segment.latest_timestamp,
                -1 if segment.index is None else segment.index.latest_timestamp,
            )
            for segment in replica.log.segments
        ),
        default=-1,
    )


def _may_be_uncommitted(replica: PartitionReplica, timestamp: int) -> bool:
    """Whether the batch with the largest timestamp may be one that is not committed yet: the client
    asks again, for it will be, or be gone."""
    return timestamp == MAX_TIMESTAMP and replica.high_watermark < replica.log.next_offset
