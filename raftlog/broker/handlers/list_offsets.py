"""ListOffsets: where a partition begins and ends, and the first record at or after a timestamp.

The end is the high watermark. A new leader that has not committed in its own term knows less than
the one before it. It answers OFFSET_NOT_AVAILABLE (LEADER_NOT_AVAILABLE before version 5) to
everything but the beginning (KIP-207).

A look-up by time covers the records from the log start to the high watermark at its start, and no
others. It runs as a chain of short jobs off the loop. Each is planned from the result of the one
before (`raftlog.storage.segments.time_plan`); the chain ends with its request.
"""

from functools import partial
from typing import Final, final

import attrs

from raftlog.base.errors import CorruptData
from raftlog.base.ids import Offset
from raftlog.base.probes import probe
from raftlog.base.units import Instant
from raftlog.broker.context import Context
from raftlog.broker.deadlines import Timer
from raftlog.broker.front.requests import KafkaRequest
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
from raftlog.records.timestamps import NO_TIMESTAMP
from raftlog.storage.segments.cold import LargestFound, Learned, TimeFound, TimeHit

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
    """Answer with one offset per partition, when the last one is known.

    `replica_id` is ignored. Some clients leave it 0 (kafka-python 3.1), and every client gets what
    a consumer may know.
    """
    _Listing(context, request, request.body).begin()


@final
@attrs.define(eq=False)
class _Search:
    """A look-up by time in one partition.

    Where the client asks for the largest timestamp, `timestamp_ms` is None until that is known.
    """

    place: int
    asked: ListOffsetsPartition
    replica: PartitionReplica
    limit: Offset
    timestamp_ms: int | None = None
    log_start: Offset = Offset(0)

    def __attrs_post_init__(self) -> None:
        self.begin_again()

    def begin_again(self) -> None:
        """Begin at the present log start."""
        self.log_start = self.replica.log_start
        self.timestamp_ms = None if self.asked.timestamp == MAX_TIMESTAMP else self.asked.timestamp


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
        """Ask for every partition; some have to wait for a job or a confirmation."""
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
            self._known(place, asked, found.log_start, _epoch_of_the_start(found))
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
        """The reason why this partition is not answered here and now, or NONE."""
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
        """Look up the end, or a record by its timestamp; the latter off the loop."""
        limit = replica.high_watermark
        if asked.timestamp == LATEST:
            self._known(place, asked, limit, replica.term)
            return
        self._step(_Search(place, asked, replica, limit))

    def _step(self, search: "_Search") -> None:
        """Begin the next job of a look-up by time."""
        times, wanted = search.replica.log.times(), search.timestamp_ms
        job = (
            times.largest(search.limit) if wanted is None else times.first_at(wanted, search.limit)
        )
        done = partial(self._found, search)
        still_open = partial(self._is_open, search.place)
        self.context.search(search.replica, job.function, job.args, done, still_open)

    def _found(self, search: "_Search", value: object) -> None:
        """Take a job's result; it is true of the log only while this replica still leads."""
        replica, asked = search.replica, search.asked
        if isinstance(value, CorruptData):
            replica.damage_found(value, self.context.now)
            self.context.touch(replica.group)
        elif isinstance(value, Learned):
            # The result is kept even when the request is over: the next look-up continues from
            # there.
            replica.log.cold_done(value)
            self.context.touch(replica.group)
        if self._is_over(search.place):
            return
        error = self._refusal(replica, asked)
        if error:
            self._fail(search.place, asked, error)
        elif isinstance(value, Learned):
            self._step(search)
        elif isinstance(value, LargestFound):
            search.timestamp_ms = value.timestamp_ms
            if value.timestamp_ms == NO_TIMESTAMP:
                self._known(search.place, asked, -1, -1)
            else:
                self._step(search)
        elif isinstance(value, TimeFound):
            self._answer_found(search, value.hit)
        else:
            self._fail(search.place, asked, ErrorCode.KAFKA_STORAGE_ERROR)

    def _answer_found(self, search: "_Search", hit: TimeHit | None) -> None:
        """Answer a look-up, but nothing below the log start, which may have risen meanwhile."""
        moved = search.replica.log_start > search.log_start
        if moved and (hit is None or hit.offset < search.replica.log_start):
            probe("log-start-rose-under-a-look-up")
            search.begin_again()
            self._step(search)
        elif hit is None:
            self._known(search.place, search.asked, -1, -1)
        else:
            number = search.asked.partition_index
            answer = ListOffsetsPartitionResponse(number, 0, hit.timestamp_ms, hit.offset, hit.term)
            self._set(search.place, answer)

    def _is_over(self, place: int) -> bool:
        return self.request.dead or self.answers[place] is not None

    def _is_open(self, place: int) -> bool:
        return not self._is_over(place)

    def _fail(self, place: int, asked: ListOffsetsPartition, error: int) -> None:
        self._set(place, ListOffsetsPartitionResponse(asked.partition_index, error))

    def _known(self, place: int, asked: ListOffsetsPartition, offset: int, epoch: int) -> None:
        self._set(place, ListOffsetsPartitionResponse(asked.partition_index, 0, -1, offset, epoch))

    def _set(self, place: int, answer: ListOffsetsPartitionResponse) -> None:
        assert self.answers[place] is None, (place, self.answers[place])
        self.answers[place] = answer
        self._close_one()

    def _timed_out(self) -> None:
        """Give up: no majority confirmed, or the disk did not answer, in time."""
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


def _epoch_of_the_start(replica: PartitionReplica) -> int:
    """The leader epoch of the record at the log start; the leader's own when no record is left."""
    return replica.log.terms.at_offset(replica.log_start)
