"""Plain producers that do not wait: many requests under way on one connection.

None of the requests is numbered, and none is ever repeated. The requests of one burst share turns
of the leader, which takes requests of one stream together (decision 0052). Each record under way is
a process of its own in the history. A process whose record has an unknown outcome is retired.

One batch in four is of another size than the rest: large among small ones, or small among large
ones. A turn that is used up takes small requests still and puts large ones off, and they must not
overtake each other.

A broker promises that only REQUEST_TIMED_OUT and NOT_ENOUGH_REPLICAS_AFTER_APPEND leave open
whether a batch was written (decision 0042). Every other refusal is written down as a failure.
"""

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from heapq import heappop, heappush
from typing import Any, Final, final

import attrs

from raftlog.base.errors import RaftlogError
from raftlog.base.limits import TURN_SMALL_FRAME_BYTES
from raftlog.base.units import WallMillis, millis
from raftlog.client.core.asks import Ask
from raftlog.client.core.errors import KafkaError, NotDone
from raftlog.client.core.values import TopicPartition
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from raftlog.kafka.versions import ApiKey
from raftlog.records.builder import RecordBatchBuilder
from raftlog_sim.workloads.callers import Caller, SharedHistory

PIPELINE: Final = 3_000_000
_PROCESSES: Final = 100_000
"""How many process numbers a slot has."""
UNDER_WAY_MAX: Final = 40
"""The most requests of one producer that are under way: more than the leader takes together."""
WAITING_MAX: Final = 200
_ODD_ONE_IN: Final = 4
"""One batch in so many is of another size."""
_TIMEOUT_NS: Final = millis(4_000)
_BROKER_MS: Final = 1_100
ACKS: Final = {"all": -1, "leader": 1}
_OPEN_ENDS: Final = (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)


@final
@attrs.define(eq=False)
class _Pipeline:
    """One slot. Each waiting request is a pair of partition and acks."""

    slot: int
    waiting: deque[tuple[int, int]] = attrs.Factory(deque)
    under_way: int = 0
    batches: int = 0
    numbered: int = 0
    processes: int = 0
    """How many processes the slot has had."""
    idle: list[int] = attrs.Factory(list)
    """Processes that may send; the lowest first."""
    client: Caller | None = None
    generation: int = 0

    def process(self) -> int:
        """Returns a process that sends nothing at present."""
        if self.idle:
            return heappop(self.idle)
        self.processes += 1
        return PIPELINE + self.slot * _PROCESSES + self.processes


@final
@attrs.define(eq=False)
class Pipelines:
    """All pipelines of a world. `workload` has the history and knows what was acknowledged."""

    workload: SharedHistory
    records_max: int
    """The most records of a batch; batches have one, two and so on in turn."""
    padded: Callable[[str, int], bytes]
    value_bytes: int
    """The size to which the records of most batches are padded."""
    timestamp: Callable[[], WallMillis]
    topic: str
    _pipelines: dict[int, _Pipeline] = attrs.Factory(dict)

    def send(self, slot: int, partition: int, count: int, acks: str) -> None:
        """Send some more requests."""
        pipeline = self._pipelines.setdefault(slot, _Pipeline(slot))
        room = WAITING_MAX - len(pipeline.waiting)
        pipeline.waiting.extend([(partition, ACKS[acks])] * min(count, room))
        self._go_on(pipeline)

    def _go_on(self, pipeline: _Pipeline) -> None:
        while pipeline.waiting and pipeline.under_way < UNDER_WAY_MAX and self.workload.running:
            self._request(pipeline, *pipeline.waiting.popleft())

    def _request(self, pipeline: _Pipeline, partition: int, acks: int) -> None:
        if pipeline.client is None:
            pipeline.generation += 1
            name = f"pipeline/{pipeline.slot}/{pipeline.generation}"
            pipeline.client = self.workload.client(name)
        sent = [
            self._begin(pipeline, partition) for _ in range(1 + pipeline.batches % self.records_max)
        ]
        odd = pipeline.batches % _ODD_ONE_IN == 1
        size = self._other_bytes // len(sent) if odd else self.value_bytes
        pipeline.batches += 1
        pipeline.under_way += 1
        self.workload.busy += 1
        place = TopicPartition(self.topic, partition)
        ask = _produce(place, self._batch([value for _, value in sent], size), acks)
        then = partial(self._answered, pipeline, pipeline.client, partition, sent)
        pipeline.client.call(ask, then)

    def _begin(self, pipeline: _Pipeline, partition: int) -> tuple[int, str]:
        """Begin a record in the history; returns its process and its value."""
        process, value = pipeline.process(), f"s{pipeline.slot}#{pipeline.numbered}"
        pipeline.numbered += 1
        self.workload.begin(process, partition, value)
        return process, value

    @property
    def _other_bytes(self) -> int:
        """The bytes of records in a batch that is unlike the rest: a request with so many is just
        too large for a turn that is used up."""
        return 0 if self.value_bytes else TURN_SMALL_FRAME_BYTES * 5 // 8

    def _batch(self, values: Sequence[str], size: int) -> bytes:
        builder = RecordBatchBuilder()
        for value in values:
            builder.append(self.padded(value, size), timestamp_ms=self.timestamp())
        return builder.build()

    def _answered(
        self,
        pipeline: _Pipeline,
        client: Caller,
        partition: int,
        sent: Sequence[tuple[int, str]],
        outcome: Any,
    ) -> None:
        self.workload.busy -= 1
        pipeline.under_way -= 1
        failed = isinstance(outcome, RaftlogError)
        for number, (process, value) in enumerate(sent):
            if not failed:
                self.workload.ok(process, partition, outcome + number, value)
            elif _is_certain(outcome):
                self.workload.failed(process, outcome)
            else:
                self.workload.unclear(process, outcome)
                continue
            heappush(pipeline.idle, process)
        if failed:
            pipeline.waiting.clear()
            if pipeline.client is client:  # it keeps the old leader; the next client asks again
                pipeline.client = None
        self._go_on(pipeline)


def _is_certain(error: RaftlogError) -> bool:
    """Whether the error proves that nothing was written."""
    if isinstance(error, KafkaError):
        return error.code not in _OPEN_ENDS
    return isinstance(error, NotDone)


def _produce(place: TopicPartition, batch: bytes, acks: int) -> Ask:
    """The base offset of the batch in the log. Sent again only when it certainly did not leave."""

    def make(epoch: int, topic_id: bytes) -> ProduceRequest:
        del epoch
        data = (PartitionProduceData(place.partition, batch),)
        topics = (TopicProduceData(place.topic, topic_id, data),)
        return ProduceRequest(None, acks, _BROKER_MS, topics)

    def read(body: ProduceResponse) -> int:
        (found,) = [each for topic in body.responses for each in topic.partition_responses]
        if found.error_code:
            raise KafkaError(found.error_code, on=str(place), message=found.error_message)
        return found.base_offset

    return Ask(ApiKey.PRODUCE, read, make=make, place=place, changes=True, timeout_ns=_TIMEOUT_NS)
