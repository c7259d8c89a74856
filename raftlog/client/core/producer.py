"""The producer: sends batches to the leaders of their partitions, and handles the answers.

`partition_queue` does order within a partition, retries and sequences. Here the batches of several
partitions with the same leader share a request. Each partition has at most one batch in it, because
a broker takes one batch per partition.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final, final

import attrs

from raftlog.base.amounts import amount
from raftlog.base.errors import RaftlogError, WrongValue
from raftlog.base.ids import NodeId
from raftlog.base.limits import BATCH_HEADER_BYTES
from raftlog.base.ports import Entropy
from raftlog.base.units import NANOS_PER_MILLI, NEVER, Instant, WallMillis
from raftlog.client.core.batches import Headers, PendingBatch, ProducerIdentity, SentRecord
from raftlog.client.core.connections import Connections, backoff
from raftlog.client.core.errors import BufferFull, ConnectionLost, KafkaError, NotSent
from raftlog.client.core.metadata_cache import MetadataCache, TopicView
from raftlog.client.core.metadata_keeper import MetadataKeeper
from raftlog.client.core.partition_queue import PartitionQueue
from raftlog.client.core.partitioner import RoundRobin, partition_of
from raftlog.client.core.search import AskedInVain
from raftlog.client.core.values import ANY_NODE, ClientOptions, ClientTurn, TopicPartition
from raftlog.kafka.error_codes import ErrorCode, is_retriable
from raftlog.kafka.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from raftlog.kafka.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from raftlog.kafka.versions import ApiKey
from raftlog.records.builder import RecordBatchBuilder

TOPIC_IDS_FROM: Final = 13
"""The Produce version that names topics by id."""
_RECORD_OVERHEAD: Final = 36
_NEVER_WRITTEN: Final = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    }
)
"""Retriable errors after which the batch is certainly not in the log. NOT_LEADER_OR_FOLLOWER is not
among them: a leader that steps down answers with it for entries whose outcome it no longer
knows."""
_LEADER_MOVED: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.REPLICA_NOT_AVAILABLE,
    }
)
_IDENTITY_LOST: Final = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
    }
)

Flight = tuple[PartitionQueue, PendingBatch]


@final
@attrs.define(eq=False)
class Producer:
    """All partitions to which records are sent. It adds settled batches to `settled`."""

    options: ClientOptions
    cache: MetadataCache
    keeper: MetadataKeeper
    connections: Connections
    entropy: Entropy
    turn: ClientTurn
    settled: list[PendingBatch] = attrs.field(factory=list, init=False)
    unsettled_bytes: int = attrs.field(default=0, init=False)
    unsettled_batches: int = attrs.field(default=0, init=False)
    _queues: dict[TopicPartition, PartitionQueue] = attrs.field(factory=dict, init=False)
    _active: dict[TopicPartition, PartitionQueue] = attrs.field(factory=dict, init=False)
    _round_robin: RoundRobin = attrs.field(factory=RoundRobin, init=False)
    _identity: ProducerIdentity | None = attrs.field(default=None, init=False)
    _identity_asked: bool = attrs.field(default=False, init=False)
    _identity_asked_of: int = attrs.field(default=ANY_NODE, init=False)
    _identity_at: Instant = attrs.field(default=Instant(0), init=False)
    _identity_in_vain: AskedInVain = attrs.field(factory=AskedInVain, init=False)
    """Since the last id. A broker that is cut off from the controller has none to give."""
    _identity_failures: int = attrs.field(default=0, init=False)
    _learned: int = attrs.field(default=0, init=False)

    # --- records in -------------------------------------------------------------------------------

    def has_room(self) -> bool:
        return self.unsettled_bytes < self.options.buffer_bytes

    def send(
        self,
        view: TopicView,
        value: bytes | None,
        key: bytes | None,
        headers: Headers,
        partition: int | None,
        timestamp_ms: WallMillis,
    ) -> SentRecord:
        """Put a record into its partition's batch. Raises `BufferFull` beyond `buffer_bytes`, and
        `WrongValue` for a partition that the topic does not have or a record that is too large."""
        if self.unsettled_bytes >= self.options.buffer_bytes:
            raise BufferFull(
                f"waiting: {amount(self.unsettled_bytes, 'byte')}",
                do="wait for acknowledgements",
            )
        if headers:
            size = RecordBatchBuilder.size_bound(key, value, headers)
        else:
            size = _RECORD_OVERHEAD + len(key or b"") + len(value or b"")
        if size > self.options.record_bytes:
            raise WrongValue(
                f"value makes a record of {amount(size, 'byte')}, more than "
                f"{self.options.record_bytes}",
                on=f"topic {view.name}",
                do="send less, or raise record_bytes and the brokers' socket.request.max.bytes",
            )
        if partition is None:
            if key is not None:
                partition = partition_of(key, view.count)
            else:
                partition = self._round_robin.next(view.name, view.count)
        elif not 0 <= partition < view.count:
            raise WrongValue(
                f"partition must be 0 to {view.count - 1}, not {partition}", on=f"topic {view.name}"
            )
        place = TopicPartition(view.name, partition)
        queue = self._active.get(place) or self._activate(place, view.topic_id)
        batch, index = queue.add(timestamp_ms, key, value, headers, size, self.turn.now)
        if index == 0:
            self.unsettled_batches += 1
        self.unsettled_bytes += size
        return SentRecord(batch, index, timestamp_ms)

    def _activate(self, place: TopicPartition, topic_id: bytes) -> PartitionQueue:
        queue = self._queues.get(place)
        if queue is None:
            queue = self._queues[place] = PartitionQueue(place, self.options, topic_id)
        self._active[place] = queue
        return queue

    def flush(self) -> None:
        """Let all batches leave without waiting for `linger_ns`."""
        for queue in self._active.values():
            queue.hurry = True

    def is_sending(self, topic: str) -> bool:
        """Whether a topic has unsettled records."""
        return any(place.topic == topic for place in self._active)

    # --- turns ------------------------------------------------------------------------------------

    def drive(self) -> None:
        """Send the batches that may leave; give up those past their deadline."""
        if not self._active:
            return
        if self.keeper.learned != self._learned:
            self._learned = self.keeper.learned
            self._look_at_metadata()
        now = self.turn.now
        for queue in list(self._active.values()):
            for batch in queue.overdue(now):
                assert batch.carrier is not None, batch.place
                self.connections.withdraw(batch.carrier)
            self._settle(queue, queue.expire(now))
        if self.options.idempotent:
            self._see_to_identity()
        while self._send_round():
            pass

    def _send_round(self) -> bool:
        """Send one batch of every partition that has one to send. Return whether there was any."""
        by_node: dict[NodeId, list[Flight]] = {}
        for queue in self._active.values():
            leader = self.cache.leader_of(queue.place)
            if leader is None:
                self.keeper.refresh()
                continue
            batch = queue.next_batch(self._identity, self.turn.now)
            if batch is not None:
                batch.sent_to = leader
                by_node.setdefault(leader, []).append((queue, batch))
        for node, flights in by_node.items():
            self._send_to(node, flights)
        return bool(by_node)

    def _send_to(self, node: NodeId, flights: list[Flight]) -> None:
        """Send batches to a node, in requests of at most `request_bytes`; a larger batch goes
        alone."""
        group: list[Flight] = []
        size = 0
        for flight in flights:
            bytes_more = len(flight[1].encoded)
            if group and size + bytes_more > self.options.request_bytes:
                self._request(node, group)
                group, size = [], 0
            group.append(flight)
            size += bytes_more
        self._request(node, group)

    def _request(self, node: NodeId, flights: list[Flight]) -> None:
        acks = self.options.acks
        topics: dict[str, list[PartitionProduceData]] = {}
        ids: dict[str, bytes] = {}
        for queue, batch in flights:
            place = queue.place
            data = PartitionProduceData(index=place.partition, records=batch.encoded)
            topics.setdefault(place.topic, []).append(data)
            ids[place.topic] = queue.topic_id
        body = ProduceRequest(
            acks=acks,
            timeout_ms=self.options.request_timeout_ns * 3 // 4 // NANOS_PER_MILLI,
            topic_data=tuple(
                TopicProduceData(name=name, topic_id=ids[name], partition_data=tuple(data))
                for name, data in topics.items()
            ),
        )
        then = partial(self._answered, node, flights)
        now = self.turn.now
        carrier = self.connections.send(node, ApiKey.PRODUCE, body, then, now, answered=acks != 0)
        for _, batch in flights:
            batch.carrier = carrier

    def next_instant(self, now: Instant) -> Instant:
        """When `drive` has something to do again."""
        wake = min((queue.next_instant(now) for queue in self._active.values()), default=NEVER)
        if self._active and self.options.idempotent and now < self._identity_at:
            wake = min(wake, self._identity_at)
        return wake

    # --- answers ----------------------------------------------------------------------------------

    def _answered(
        self, node: NodeId, flights: list[Flight], answer: ProduceResponse | RaftlogError | None
    ) -> None:
        if answer is None:
            for queue, batch in flights:
                self._settle(queue, queue.acked(batch, -1, -1))
        elif isinstance(answer, RaftlogError):
            self._failed(flights, answer)
        else:
            endpoints = [(each.node_id, each.host, each.port) for each in answer.node_endpoints]
            self.cache.told_endpoints(endpoints)
            results = self._results(answer)
            for queue, batch in flights:
                result = results.get(queue.place)
                if result is None:
                    lost = ConnectionLost("the answer leaves the partition out", on=f"node {node}")
                    self._retry(queue, batch, lost, maybe_written=True)
                else:
                    self._judge(queue, batch, result)

    def _results(self, answer: ProduceResponse) -> dict[TopicPartition, PartitionProduceResponse]:
        return {
            TopicPartition(topic.name or self.cache.names.get(topic.topic_id, ""), each.index): each
            for topic in answer.responses
            for each in topic.partition_responses
        }

    def _failed(self, flights: list[Flight], error: RaftlogError) -> None:
        """Handle a request that failed as a whole."""
        self.keeper.refresh()
        for queue, batch in flights:
            if isinstance(error, ConnectionLost):
                self._retry(queue, batch, error, maybe_written=True)
            elif isinstance(error, NotSent):
                self._retry(queue, batch, error, maybe_written=False)
            else:
                self._settle(queue, queue.refused(batch, error))

    def _judge(
        self, queue: PartitionQueue, batch: PendingBatch, result: PartitionProduceResponse
    ) -> None:
        code = result.error_code
        if code == ErrorCode.NONE:
            self._settle(queue, queue.acked(batch, result.base_offset, result.log_append_time_ms))
            return
        if code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            self._settle(queue, queue.acked(batch, -1, -1))
            return
        error = KafkaError(code, on=str(queue.place), message=result.error_message)
        if code in _LEADER_MOVED:
            self._leader_moved(queue.place, result)
        gap = code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and queue.has_earlier(batch)
        if gap or is_retriable(code):
            self._retry(queue, batch, error, maybe_written=code not in _NEVER_WRITTEN)
            return
        lost = code in _IDENTITY_LOST
        self._settle(queue, queue.refused(batch, error, lost=lost))

    def _leader_moved(self, place: TopicPartition, result: PartitionProduceResponse) -> None:
        new = result.current_leader
        self.cache.forget_leader(place)
        self.cache.told_leader(place, new.leader_id, new.leader_epoch)
        self.keeper.refresh()

    def _retry(
        self,
        queue: PartitionQueue,
        batch: PendingBatch,
        error: RaftlogError,
        *,
        maybe_written: bool,
    ) -> None:
        pause = backoff(self.options, queue.failures + 1, self.entropy)
        retry_at = Instant(self.turn.now + pause)
        settled = queue.failed(batch, error, maybe_written=maybe_written, retry_at=retry_at)
        self._settle(queue, settled)

    def _settle(self, queue: PartitionQueue, batches: Iterable[PendingBatch]) -> None:
        for batch in batches:
            self.unsettled_bytes -= batch.size - BATCH_HEADER_BYTES
            self.unsettled_batches -= 1
            self.settled.append(batch)
        if queue.idle:
            queue.hurry = False
            self._active.pop(queue.place, None)

    # --- leaders and identity ---------------------------------------------------------------------

    def _look_at_metadata(self) -> None:
        """Handle new metadata. A partition that waited for a leader goes on. A partition whose
        topic was deleted and created again loses the batches that it had sent."""
        now = self.turn.now
        for queue in list(self._active.values()):
            view = self.cache.topic(queue.place.topic)
            if view is None:
                continue
            if view.topic_id != queue.topic_id:
                error = KafkaError(
                    ErrorCode.UNKNOWN_TOPIC_ID,
                    on=str(queue.place),
                    message="the topic was deleted and created again",
                )
                self._settle(queue, queue.topic_replaced(view.topic_id, error))
            leader = self.cache.leader_of(queue.place)
            if leader is not None and leader not in self._leaders_seen(queue):
                queue.retry_at = now

    def _leaders_seen(self, queue: PartitionQueue) -> Sequence[NodeId]:
        """The nodes to which the unacknowledged batches were sent."""
        return [batch.sent_to for batch in queue.sent if not batch.settled]

    def moved_from(self, node: NodeId) -> bool:
        """Whether a batch is in flight to `node` although another node is known to lead its
        partition."""
        for queue in self._active.values():
            leader = self.cache.leader_of(queue.place)
            if leader is None or leader == node:
                continue
            if any(batch.flying and batch.sent_to == node for batch in queue.sent):
                return True
        return False

    def _see_to_identity(self) -> None:
        """Ask for a producer id when there is none, or when its sequence is broken in a
        partition."""
        if self._identity is not None and any(
            queue.needs_identity_after == self._identity for queue in self._active.values()
        ):
            self._identity = None
        if self._identity is None and not self._identity_asked:
            if self.turn.now < self._identity_at:
                return
            self._identity_asked = True
            body = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
            waiting = self.connections.send(
                ANY_NODE,
                ApiKey.INIT_PRODUCER_ID,
                body,
                self._got_identity,
                self.turn.now,
                other_than=self._identity_in_vain.nodes,
            )
            self._identity_asked_of = waiting.target

    def _got_identity(self, answer: InitProducerIdResponse | RaftlogError) -> None:
        self._identity_asked = False
        if isinstance(answer, InitProducerIdResponse) and answer.error_code == 0:
            self._identity = ProducerIdentity(answer.producer_id, answer.producer_epoch)
            self._identity_failures = 0
            self._identity_in_vain.clear()
            return
        self._identity_in_vain.add(self._identity_asked_of)
        self._identity_failures += 1
        pause = backoff(self.options, self._identity_failures, self.entropy)
        self._identity_at = Instant(self.turn.now + pause)
        if isinstance(answer, InitProducerIdResponse) and not is_retriable(answer.error_code):
            self._fail_all(KafkaError(answer.error_code, on="InitProducerId"))

    def _fail_all(self, error: RaftlogError) -> None:
        """Fail all unsent batches: the cluster gives out no producer id, so they can never
        leave."""
        for queue in list(self._active.values()):
            self._settle(queue, queue.give_up_unsent(error))

    def close(self, error: RaftlogError) -> None:
        """Settle all batches. Those never sent certainly failed; the outcome of the others is
        unknown."""
        for queue in list(self._active.values()):
            self._settle(queue, queue.give_up(error))
        self._active.clear()
