"""Runs of produce requests: the requests of a producer's stream in one turn, worked as one.

The requests of a run follow each other on one connection and differ in nothing but correlation id
and records (`raftlog.kafka.repeats`). They are judged one by one, as `produce` does. Then they are
appended, counted and waited for together, and answered in one go when all are decided. So a run is
short, and a request that might be decided in another way than the rest ends it. That request is
left to `produce`, which decides everything.
"""

from collections.abc import Sequence
from itertools import islice
from typing import Final, final

import attrs

from raftlog.base.binary import Buffer
from raftlog.base.ids import Offset
from raftlog.base.limits import BATCH_HEADER_BYTES, RECORD_COPY_BYTES_MAX
from raftlog.base.probes import probe
from raftlog.base.units import Instant
from raftlog.broker.context import Context
from raftlog.broker.events import Event, Request
from raftlog.broker.front.requests import Connection
from raftlog.broker.front.router import TopicKey
from raftlog.broker.handlers.leader_hints import LeaderHints, deadline_after
from raftlog.broker.handlers.produce import (
    TOPIC_IDS_FROM,
    partition_response,
    success_frames,
)
from raftlog.broker.handlers.record_checks import waits_for_checks
from raftlog.kafka.codec import encode_response
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.messages.produce import NodeEndpoint, ProduceResponse, TopicProduceResponse
from raftlog.kafka.repeats import ProduceRepeats, ProduceStream
from raftlog.kafka.shape import Part
from raftlog.kafka.versions import ApiKey
from raftlog.partition.output import ProduceAnswer
from raftlog.records.batch import is_numbered

RUN_REQUESTS_MIN: Final = 2
RUN_REQUESTS_MAX: Final = 32
"""The most requests that are answered together: no more than half of what one turn takes."""
_ANSWERED_ACKS: Final = (-1, 1)


def take_run(context: Context, connection: Connection, events: Sequence[Event], first: int) -> int:
    """Take a run of requests; returns how many events, from the `first` on, were taken.

    0 means that `produce` must look at the first one itself.
    """
    stream = connection.protocol.repeats.stream
    if stream is None or stream.acks not in _ANSWERED_ACKS or stream.transactional_id is not None:
        return 0
    key: TopicKey = stream.topic_id if stream.version >= TOPIC_IDS_FROM else stream.topic
    topic = context.router.topic(key)
    replica = context.router.replica(key, stream.partition)
    if topic is None or topic.internal or isinstance(replica, ErrorCode):
        return 0
    path = replica.produces(context.now)
    if isinstance(path, ErrorCode) or not path.takes_runs(stream.acks):
        return 0
    if context.ledger.full(replica.uncommitted_bytes) or waits_for_checks(context, replica):
        return 0
    correlations, fields, sizes = _matching(connection, events, first)
    if len(fields) < RUN_REQUESTS_MIN:
        return 0
    event = events[first]
    assert type(event) is Request, event
    run = ProduceRun(context, connection, event.request_no, stream, key, context.now)
    deadline = deadline_after(context, stream.timeout_ms)
    offsets = path.submit_run(fields, stream.acks, deadline, run.decided, context.now, context.wall)
    taken = len(offsets)
    if not taken:
        return 0
    probe("produce-run")
    run.offsets, run.correlations = offsets, correlations[:taken]
    run.weight = sum(sizes[:taken])
    connection.waiting[run.request_no] = run
    context.ledger.received(connection.id, run.weight, taken)
    context.touch(replica.group)
    context.ledger.produced(connection.id, replica.group, replica.uncommitted_bytes)
    return taken


def _matching(
    connection: Connection, events: Sequence[Event], first: int
) -> tuple[list[int], list[Buffer], list[int]]:
    """Correlation ids, records and frame sizes of the requests, from the `first` on, that repeat.

    A large one ends a run: it pins receive memory, which is counted for each. So does a numbered
    batch or no batch: else every request of a burst would look at all that follow it.
    """
    repeats: ProduceRepeats = connection.protocol.repeats
    correlations: list[int] = []
    fields: list[Buffer] = []
    sizes: list[int] = []
    for event in islice(events, first, first + RUN_REQUESTS_MAX):
        if type(event) is not Request or event.connection != connection.id:
            break
        size = len(event.frame)
        found = repeats.match(event.frame) if size < RECORD_COPY_BYTES_MAX else None
        if found is None or len(found[1]) < BATCH_HEADER_BYTES or is_numbered(found[1]):
            break
        correlations.append(found[0])
        fields.append(found[1])
        sizes.append(size)
    return correlations, fields, sizes


@final
@attrs.define(eq=False)
class ProduceRun:
    """Requests that wait for one answer of their partition.

    `offsets` are the base offsets of their batches, in the same order.
    """

    context: Context
    connection: Connection
    request_no: int
    """The number of the first request."""
    stream: ProduceStream
    key: TopicKey
    since: Instant
    correlations: Sequence[int] = ()
    offsets: Sequence[Offset] = ()
    weight: int = 0
    """The bytes of their frames; one topic and partition each count for nothing."""
    pinned_bytes: int = 0
    """The bytes that they pin: none, since no request of a run is large."""

    def closed(self) -> None:
        """Take note that the connection is gone; the appended batches stay."""

    def decided(self, answer: ProduceAnswer) -> None:
        """Answer all of them, since all are decided in the same way."""
        if self.connection.closed:
            return
        parts = None if answer.error else self._successes(answer)
        if parts is None:
            parts = self._one_by_one(answer)
        self.context.answers.reply(self, parts, len(self.offsets))

    def _successes(self, answer: ProduceAnswer) -> list[Part] | None:
        stream, frames = self.stream, success_frames(self.context)
        kept = frames.get(stream.version, stream.topic, stream.topic_id, stream.partition)
        if kept is None:
            return None
        return [
            b"".join(
                kept.frame(correlation_id, offset, answer.log_append_time_ms, answer.log_start)
                for correlation_id, offset in zip(self.correlations, self.offsets, strict=True)
            )
        ]

    def _one_by_one(self, answer: ProduceAnswer) -> list[Part]:
        """The answers as the codec makes each of them: errors, which are rare."""
        stream = self.stream
        hints = LeaderHints(self.context, self.connection.listener)
        parts: list[Part] = []
        for correlation_id, offset in zip(self.correlations, self.offsets, strict=True):
            own = answer if answer.error else answer._replace(base_offset=offset)
            partition = partition_response(own, self.key, stream.partition, hints)
            topic = TopicProduceResponse(stream.topic, stream.topic_id, [partition])
            body = ProduceResponse([topic], 0, hints.endpoints(NodeEndpoint))
            parts += encode_response(ApiKey.PRODUCE, stream.version, correlation_id, body)
        return parts
