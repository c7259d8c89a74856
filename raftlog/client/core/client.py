"""`ClientCore`: everything that a Kafka client decides, without I/O.

    call(call_id, request, now)   a request with one result         -> Complete(call_id, result)
    send(topic, value, ...)       a record of a known topic         -> Settled(batch)
    assign, seek, poll            reading ahead
    handle(events, now)           what the transport reports; also: time has passed

Every method that may want something done returns `ClientEffects`; `send`, `flush`, `assign`, `seek`
and `poll` only change what the next `handle([], now)` will do, so that a thousand records cost one
turn. A driver performs the actions in order and calls `handle` again by `wake_at`.

A turn handles the events, then the deadlines; then each part sends what it may; then the core
computes when the next turn is due.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import final

import attrs

from raftlog.base.errors import LocalMisuse, OperatingError, RaftlogError
from raftlog.base.ids import NodeId, Offset
from raftlog.base.ports import Entropy
from raftlog.base.units import NEVER, Instant, WallMillis
from raftlog.client.core.asks import Ask
from raftlog.client.core.batches import Headers, PendingBatch, SentRecord
from raftlog.client.core.calls import Call, Produce
from raftlog.client.core.connections import Connections
from raftlog.client.core.coordinators import Coordinators
from raftlog.client.core.fetcher import Fetcher, Polled
from raftlog.client.core.group.consumer import GroupConsumer
from raftlog.client.core.group.options import ConsumerOptions
from raftlog.client.core.metadata_cache import MetadataCache, TopicView
from raftlog.client.core.metadata_keeper import MetadataKeeper
from raftlog.client.core.producer import Producer
from raftlog.client.core.requests import Requests
from raftlog.client.core.topic_waits import TopicWaits
from raftlog.client.core.values import (
    CallId,
    ClientEffects,
    ClientOptions,
    ClientTurn,
    Complete,
    Connected,
    Disconnected,
    Event,
    Frame,
    Settled,
    TopicPartition,
)


@final
@attrs.define(eq=False)
class ClientCore:
    """A Kafka client without I/O. It decides from `options`, `entropy`, calls, events and the time
    alone."""

    options: ClientOptions
    entropy: Entropy
    cache: MetadataCache = attrs.field(factory=MetadataCache, init=False)
    turn: ClientTurn = attrs.field(factory=ClientTurn, init=False)
    effects: ClientEffects = attrs.field(factory=ClientEffects, init=False)
    connections: Connections = attrs.field(init=False)
    keeper: MetadataKeeper = attrs.field(init=False)
    coordinators: Coordinators = attrs.field(init=False)
    requests: Requests = attrs.field(init=False)
    producer: Producer = attrs.field(init=False)
    fetcher: Fetcher = attrs.field(init=False)
    topic_waits: TopicWaits = attrs.field(init=False)
    consumer: GroupConsumer | None = attrs.field(default=None, init=False)
    closed: bool = attrs.field(default=False, init=False)
    _records: dict[CallId, PendingBatch] = attrs.field(factory=dict, init=False)
    """Calls whose record is in a batch."""
    _look_again_at: Instant = attrs.field(default=NEVER, init=False)

    def __attrs_post_init__(self) -> None:
        options, entropy, turn = self.options, self.entropy, self.turn
        self.connections = Connections(options, self.cache, entropy, self.effects)
        self.keeper = MetadataKeeper(options, self.cache, self.connections)
        shared = (options, self.cache, self.keeper, self.connections, entropy, turn)
        self.coordinators = Coordinators(options, self.cache, self.connections, entropy, turn)
        self.requests = Requests(*shared, self.coordinators)
        self.producer = Producer(*shared)
        self.fetcher = Fetcher(*shared)
        self.topic_waits = TopicWaits(options, self.cache, self.keeper, turn)

    # --- calls ------------------------------------------------------------------------------------

    def call(self, call_id: CallId, request: Call, now: Instant) -> ClientEffects:
        """Begin a call. Its result, or a `RaftlogError`, comes as `Complete(call_id, value)`."""
        self.turn.now = now
        if self.closed:
            self.effects.actions.append(Complete(call_id, _closed()))
        elif isinstance(request, Ask):
            self.requests.start(call_id, request)
        elif isinstance(request, Produce):
            self.topic_waits.wait(call_id, request.topic, request.partition, request)
        else:
            self.topic_waits.wait(call_id, request.topic, request.partition)
        return self._finish_turn()

    def cancel(self, call_id: CallId) -> None:
        """Stop waiting for a call: it completes no more. A record that was handed over may still be
        written."""
        self.requests.cancel(call_id)
        self.topic_waits.cancel(call_id)
        self._records.pop(call_id, None)

    # --- records ----------------------------------------------------------------------------------

    def topic(self, name: str, partition: int | None = None) -> TopicView | None:
        """The topic as metadata describes it. None when the topic, or this partition of it, is
        unknown: then call `KnowTopic`."""
        return self.cache.topic(name, partition)

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: WallMillis,
        now: Instant,
    ) -> SentRecord:
        """Put a record of a known topic into its batch; the next turn may send it. When the batch
        is settled, `Settled(batch)` comes among the actions."""
        view = self.cache.topic(topic)
        if view is None or self.closed:
            raise LocalMisuse(f"topic {topic} is not known", do="call KnowTopic first")
        self.turn.now = now
        self.keeper.follow(topic)
        return self.producer.send(view, value, key, headers, partition, timestamp_ms)

    def has_room(self) -> bool:
        """Whether `send` would take a record now."""
        return self.producer.has_room()

    @property
    def unsettled_batches(self) -> int:
        return self.producer.unsettled_batches

    def flush(self) -> None:
        """Let all gathering batches leave in the next turn, without waiting for `linger_ns`."""
        self.producer.flush()

    # --- reading ----------------------------------------------------------------------------------

    def assign(self, positions: Mapping[TopicPartition, Offset]) -> None:
        """Read exactly these partitions, from these offsets on."""
        self.fetcher.assign(positions)

    def seek(self, place: TopicPartition, offset: Offset) -> None:
        """Read an assigned partition from this offset on; what was read ahead is dropped."""
        self.fetcher.seek(place, offset)

    def unassign(self, place: TopicPartition) -> None:
        """Stop reading a partition."""
        self.fetcher.unassign(place)

    def poll(self, bytes_max: int = 1 << 20) -> list[Polled]:
        """Return batches that were read ahead. This makes room for more, so call `handle` soon."""
        return self.fetcher.poll(bytes_max)

    def open_consumer(self, settings: ConsumerOptions) -> GroupConsumer:
        """A consumer on this client. From then on the consumer assigns partitions: do not call
        `assign` as well."""
        if self.consumer is not None:
            raise LocalMisuse("the client has a consumer", do="open one client for each consumer")
        self.consumer = GroupConsumer(
            self.options,
            settings,
            self.cache,
            self.keeper,
            self.connections,
            self.entropy,
            self.turn,
            self.coordinators,
            self.requests,
            self.fetcher,
        )
        return self.consumer

    @property
    def has_ready(self) -> bool:
        """Whether a poll has something to give out."""
        if self.consumer is not None:
            return self.consumer.has_ready
        return self.fetcher.has_ready

    # --- turns ------------------------------------------------------------------------------------

    def handle(self, events: Sequence[Event], now: Instant) -> ClientEffects:
        """Take a turn."""
        assert now >= self.turn.now, (now, self.turn.now)
        self.turn.now = now
        for event in events:
            if type(event) is Frame:
                self.connections.frame(event.dial, memoryview(event.frame), now)
            elif type(event) is Connected:
                self.connections.connected(event.dial, now)
            else:
                assert type(event) is Disconnected, event
                self.connections.disconnected(event.dial, event.why, now)
        self.connections.expire(now)
        return self._finish_turn()

    def _finish_turn(self) -> ClientEffects:
        if not self.closed:
            self._leave_the_slow()
            for call_id, view, record in self.topic_waits.drive():
                self._topic_is_known(call_id, view, record)
            if self.consumer is not None:
                self.consumer.drive()
            self.requests.drive()
            self.coordinators.drive()
            self.producer.drive()
            self.fetcher.drive()
            self.keeper.drive(self.turn.now)
        return self._drain()

    def _drain(self) -> ClientEffects:
        actions = self.effects.actions
        actions.extend(self.requests.done)
        if self.consumer is not None:
            actions.extend(self.consumer.done)
            self.consumer.done = []
        actions.extend(self.topic_waits.failed)
        self.requests.done, self.topic_waits.failed = [], []
        settled, self.producer.settled = self.producer.settled, []
        for batch in settled:
            actions.append(Settled(batch))
            actions.extend(self._completed_calls(batch))
        self.effects.actions = []
        return ClientEffects(actions, self._wake_at())

    def _completed_calls(self, batch: PendingBatch) -> Iterator[Complete]:
        for call_id, index, timestamp_ms in batch.calls:
            if self._records.pop(call_id, None) is None:
                continue
            if batch.error is not None:
                yield Complete(call_id, batch.error)
            else:
                yield Complete(call_id, batch.position(index, timestamp_ms))

    def _wake_at(self) -> Instant:
        if self.closed:
            return NEVER
        now = self.turn.now
        consumer = NEVER if self.consumer is None else self.consumer.next_instant(now)
        return min(
            consumer,
            self._look_again_at,
            self.connections.next_instant(now),
            self.keeper.next_instant(now),
            self.coordinators.next_instant(now),
            self.requests.next_instant(now),
            self.producer.next_instant(now),
            self.fetcher.next_instant(now),
            self.topic_waits.next_instant(now),
        )

    def _topic_is_known(self, call_id: CallId, view: TopicView, record: Produce | None) -> None:
        if record is None:
            self.effects.actions.append(Complete(call_id, view))
            return
        try:
            batch, index, timestamp_ms = self.producer.send(
                view,
                record.value,
                record.key,
                record.headers,
                record.partition,
                record.timestamp_ms,
            )
        except RaftlogError as error:
            self.effects.actions.append(Complete(call_id, error))
            return
        batch.calls.append((call_id, index, timestamp_ms))
        self._records[call_id] = batch

    def _leave_the_slow(self) -> None:
        """Hang up on a broker that owes answers, when another broker leads its partitions or the
        cluster counts it as dead. Such a broker may be paused without end. Its requests then go to
        other brokers."""
        now = self.turn.now
        self._look_again_at = NEVER
        for node in self.connections.slow_nodes(now):
            age = self.options.suspect_ns // 4
            self._look_again_at = self.keeper.refresh_if_older(age, now)
            gone = bool(self.cache.addresses) and node not in self.cache.addresses
            if gone or self._moved_from(node):
                self.connections.drop(node, "does not answer, and others lead", now)

    def _moved_from(self, node: NodeId) -> bool:
        return self.producer.moved_from(node) or self.fetcher.moved_from(node)

    def close(self, now: Instant) -> ClientEffects:
        """Hang up and complete everything. Records not yet acknowledged are given up; flush and
        wait first."""
        self.turn.now = now
        error = _closed()
        self.producer.close(error)
        self.requests.close(error)
        self.topic_waits.close(error)
        self.fetcher.close()
        self.closed = True
        self.connections.close()
        return self._drain()


def _closed() -> OperatingError:
    return OperatingError("the client is closed")
