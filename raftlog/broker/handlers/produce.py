"""Produce: one record batch per partition, answered when the last partition is decided.

acks=0 has no answer at all. When any of its partitions failed the connection is closed, which is
the only signal to such a client.
"""

from functools import partial
from typing import Final, cast, final

import attrs

from raftlog.base.binary import Buffer
from raftlog.base.limits import BATCH_HEADER_BYTES, RECORD_COPY_BYTES_MAX
from raftlog.base.probes import probe
from raftlog.base.units import Instant
from raftlog.broker.context import Context
from raftlog.broker.front.requests import KafkaRequest
from raftlog.broker.front.router import TopicKey
from raftlog.broker.handlers.leader_hints import LeaderHints, deadline_after
from raftlog.broker.handlers.produce_frames import SuccessFrames
from raftlog.broker.handlers.record_checks import check, waits_for_checks
from raftlog.kafka.codec import EncodedAnswer
from raftlog.kafka.error_bodies import error_body
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.messages.produce import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from raftlog.partition.output import ProduceAnswer
from raftlog.partition.replica import PartitionReplica
from raftlog.records.batch import CODEC_MASK, read_header

_ACKS: Final = (-1, 0, 1)
TOPIC_IDS_FROM: Final = 13
"""The version from which topics are named by their ids."""
_ZSTD_FROM: Final = 7
_ZSTD: Final = 4
_NO_HINT: Final = LeaderIdAndEpoch()
_FOR_READING_ONLY: Final = (
    "closed segments of the only replica are damaged, so it takes no records; the status page of "
    "its broker names the gaps, and raftlog recover gives them up"
)
_FULL: Final = "too much waits to be committed; nothing was written"


def handle(context: Context, request: KafkaRequest) -> None:
    """Append to every partition named; the answer leaves when all are decided."""
    body: ProduceRequest = request.body
    refusal = _refusal(body)
    if refusal is not None:
        _refuse(request, *refusal)
        return
    by_id = request.version >= TOPIC_IDS_FROM
    pending = _Pending(context, request, body)
    for topic in body.topic_data:
        key: TopicKey = topic.topic_id if by_id else topic.name
        found = context.router.topic(key)
        ours = found is not None and found.internal
        for data in topic.partition_data:
            if ours:
                pending.refuse(key, data.index, ProduceAnswer(ErrorCode.INVALID_TOPIC_EXCEPTION))
                continue
            # A decoded records field is a view of the frame, never a slice of a file.
            pending.submit(key, data.index, cast("Buffer | None", data.records))
    pending.all_submitted()


def _refusal(body: ProduceRequest) -> tuple[ErrorCode, str] | None:
    if body.acks not in _ACKS:
        return ErrorCode.INVALID_REQUIRED_ACKS, f"acks is {body.acks}, not -1, 0 or 1"
    if body.transactional_id is not None:
        return ErrorCode.INVALID_REQUEST, "transactions are not served"
    return None


def _refuse(request: KafkaRequest, code: ErrorCode, message: str) -> None:
    if request.body.acks == 0:
        request.hang_up(message)
    else:
        request.answer(error_body(request.body, code, message))


@final
@attrs.define(eq=False)
class _Pending:
    """One request on its way. `keys` and `answers` are in the order of the request's partitions."""

    context: Context
    request: KafkaRequest
    body: ProduceRequest
    keys: list[tuple[TopicKey, int]] = attrs.Factory(list)
    answers: list[ProduceAnswer | None] = attrs.Factory(list)
    open: int = 1
    """The undecided partitions, and one more while partitions are still being submitted."""

    def submit(self, key: TopicKey, number: int, records: Buffer | None) -> None:
        """Submit the next partition's batch."""
        place = len(self.keys)
        self.keys.append((key, number))
        answer = self._produce(place, key, number, records)
        self.answers.append(answer)
        if answer is None:
            self.open += 1

    def refuse(self, key: TopicKey, number: int, answer: ProduceAnswer) -> None:
        """Answer for the next partition, which is not served."""
        self.keys.append((key, number))
        self.answers.append(answer)

    def all_submitted(self) -> None:
        """Take note that no more partitions come."""
        self._close_one()
        if self.open and self.request.frame_bytes < RECORD_COPY_BYTES_MAX:
            self._forget_records()

    def _forget_records(self) -> None:
        """Drop the views of the records, which are copied where they are still needed.

        The answer needs names and numbers only. A view would keep the whole receive slab, which is
        not counted for a small frame.
        """
        topics = [
            TopicProduceData(name, topic_id, [PartitionProduceData(number) for number, _ in data])
            for name, topic_id, data in self.body.topic_data
        ]
        transactional_id, acks, timeout_ms, _ = self.body
        self.body = ProduceRequest(transactional_id, acks, timeout_ms, topics)
        self.request.body = self.body

    def decided(self, place: int, answer: ProduceAnswer) -> None:
        """Take the decision on a partition that had to wait."""
        assert self.answers[place] is None, (place, self.answers[place])
        self.answers[place] = answer
        self._close_one()

    def _produce(
        self, place: int, key: TopicKey, number: int, records: Buffer | None
    ) -> ProduceAnswer | None:
        context, request = self.context, self.request
        replica = context.router.replica(key, number)
        if isinstance(replica, ErrorCode):
            return ProduceAnswer(replica)
        if records is None:
            return ProduceAnswer(ErrorCode.INVALID_RECORD, message="no record batch")
        if request.version < _ZSTD_FROM and _codec_of(records) == _ZSTD:
            return ProduceAnswer(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        if waits_for_checks(context, replica):
            return self._check(place, key, number, replica, records)
        deadline = deadline_after(context, self.body.timeout_ms)
        return self._append(place, replica, records, deadline)

    def _check(
        self, place: int, key: TopicKey, number: int, replica: PartitionReplica, records: Buffer
    ) -> ProduceAnswer | None:
        """Have the records walked first."""
        error = replica.produces(self.context.now)
        if isinstance(error, ErrorCode):
            return _refused(error, replica)
        if len(records) < RECORD_COPY_BYTES_MAX:
            records = bytes(records)  # a view would keep the whole receive slab
        deadline = deadline_after(self.context, self.body.timeout_ms)
        checked = partial(self._checked, place, key, number, records, deadline)
        return check(self.context, replica, records, deadline, checked)

    def _checked(
        self,
        place: int,
        key: TopicKey,
        number: int,
        records: Buffer,
        deadline: Instant,
        refusal: ProduceAnswer | None,
    ) -> None:
        """Append a batch whose records were walked, where its partition is led now."""
        answer: ProduceAnswer | None = refusal
        if refusal is None:
            replica = self.context.router.replica(key, number)
            if isinstance(replica, ErrorCode):
                answer = ProduceAnswer(replica)
            else:
                answer = self._append(place, replica, records, deadline)
        if answer is not None:
            self.decided(place, answer)

    def _append(
        self, place: int, replica: PartitionReplica, records: Buffer, deadline: Instant
    ) -> ProduceAnswer | None:
        context = self.context
        path = replica.produces(context.now)
        if isinstance(path, ErrorCode):
            return _refused(path, replica)
        if context.ledger.full(replica.uncommitted_bytes):
            probe("produce-refused-group-full")
            return ProduceAnswer(ErrorCode.NOT_ENOUGH_REPLICAS, message=_FULL)
        answer = path.submit(
            records,
            self.body.acks,
            deadline,
            partial(self.decided, place),
            context.now,
            context.wall,
        )
        context.touch(replica.group)
        if answer is None:
            uncommitted = replica.uncommitted_bytes
            context.ledger.produced(self.request.connection.id, replica.group, uncommitted)
        return answer

    def _close_one(self) -> None:
        self.open -= 1
        if self.open == 0:
            self._reply()

    def _reply(self) -> None:
        if self.body.acks != 0:
            encoded = self._success()
            if encoded is not None:
                self.request.answer_encoded(encoded)
            else:
                self.request.answer(self._response())
            return
        failed = [answer for answer in self.answers if answer is not None and answer.error]
        if failed:
            self.request.hang_up(f"produce with acks=0 failed: {failed[0].error.message}")
        else:
            self.request.answer_nothing()

    def _success(self) -> EncodedAnswer | None:
        """The usual answer: to a request with one partition that succeeded; else None."""
        topics, answer = self.body.topic_data, self.answers[0] if self.answers else None
        if answer is None or answer.error or len(topics) != 1 or len(self.answers) != 1:
            return None
        frames = success_frames(self.context)
        return frames.answer_to(self.request.version, topics[0], answer)

    def _response(self) -> ProduceResponse:
        hints = LeaderHints(self.context, self.request.connection.listener)
        place, topics = 0, []
        for topic in self.body.topic_data:
            partitions = []
            for _ in topic.partition_data:
                answer, (key, number) = self.answers[place], self.keys[place]
                assert answer is not None, (place, self.open)
                partitions.append(partition_response(answer, key, number, hints))
                place += 1
            topics.append(TopicProduceResponse(topic.name, topic.topic_id, partitions))
        return ProduceResponse(topics, 0, hints.endpoints(NodeEndpoint))


def success_frames(context: Context) -> SuccessFrames:
    """The kept frames of this broker."""
    return context.kept(SuccessFrames)


def partition_response(
    answer: ProduceAnswer, key: TopicKey, number: int, hints: LeaderHints
) -> PartitionProduceResponse:
    """The answer for one partition."""
    error, base_offset, log_append_time_ms, log_start, message, _ = answer
    if not error:
        return PartitionProduceResponse(number, 0, base_offset, log_append_time_ms, log_start)
    hint = hints.of(error, key, number, LeaderIdAndEpoch, _NO_HINT)
    return PartitionProduceResponse(
        number, error, base_offset, log_append_time_ms, log_start, (), message, hint
    )


def _codec_of(records: Buffer) -> int:
    if len(records) < BATCH_HEADER_BYTES:
        return 0
    return read_header(records).attributes & CODEC_MASK


def _refused(error: ErrorCode, replica: PartitionReplica) -> ProduceAnswer:
    reads_only = error == ErrorCode.KAFKA_STORAGE_ERROR and replica.log.gaps
    return ProduceAnswer(error, message=_FOR_READING_ONLY) if reads_only else ProduceAnswer(error)
