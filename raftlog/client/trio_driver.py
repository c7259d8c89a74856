"""The trio client: `async with Client("localhost:9092") as client`.

    position = await client.produce("orders", b"value", key=b"k")     one record, acknowledged

    for value in values:                                              many records, pipelined
        await client.send_soon("orders", value)
    await client.flush()

    client.assign({TopicPartition("orders", 0): 0})
    for piece in await client.poll():
        for record in piece.records(): ...

raftlog.client.core decides, this file performs its effects on sockets. Call it only in the trio
run that opened the client. Other threads use `raftlog.client.blocking`.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from types import TracebackType
from typing import Any, Final, Self, final

import trio

from raftlog.base.arguments import check, checked
from raftlog.base.errors import LocalMisuse, OperatingError, RaftlogError
from raftlog.base.ids import Offset
from raftlog.base.units import NANOS_PER_SECOND, NEVER, Instant, WallMillis
from raftlog.client import system
from raftlog.client.core import asks
from raftlog.client.core.arguments import (
    ByteCount,
    CountOrDefault,
    FactorOrDefault,
    LookedUp,
    OffsetFrom,
    PartitionCount,
    Seconds,
    TopicName,
    record_arguments,
)
from raftlog.client.core.batches import Headers, PendingBatch, SentRecord
from raftlog.client.core.calls import Call, KnowTopic
from raftlog.client.core.client import ClientCore
from raftlog.client.core.errors import KafkaError
from raftlog.client.core.fetcher import Polled
from raftlog.client.core.group.consumer import GroupConsumer
from raftlog.client.core.group.options import ConsumerOptions
from raftlog.client.core.results import OffsetAt
from raftlog.client.core.values import (
    ClientEffects,
    ClientOptions,
    Complete,
    Dial,
    Disconnect,
    Event,
    RecordPosition,
    Send,
    Settled,
    TopicPartition,
)
from raftlog.client.wires import Wires
from raftlog.kafka.messages.metadata import MetadataResponse, MetadataResponseTopic

_SENDS_PER_CHECKPOINT: Final = 256
"""`send_soon` lets other tasks run once per so many records; each time costs like ten records."""

Then = Callable[[RecordPosition | RaftlogError], None]
"""Called with the outcome of one record: its position, or the error."""


@final
class Client:
    """A Kafka client for trio. Pass `ClientOptions`, or its fields as keywords."""

    @checked
    def __init__(
        self,
        bootstrap: str = "",
        *,
        options: ClientOptions | None = None,
        machine: system.DriverPorts = system.THIS_MACHINE,
        **more: object,
    ) -> None:
        self.options = system.client_options(bootstrap, options, more)
        self._machine = machine
        self._core = ClientCore(self.options, machine.entropy)
        self._wires: Wires | None = None
        self._calls: dict[int, Callable[[Any], None]] = {}
        self._last_call = 0
        self._wake_at: Instant = NEVER
        self._wake = trio.Event()
        self._changed = trio.Event()
        """Set and replaced whenever batches were settled or something was fetched."""
        self._changed_waited = False
        self._unseen_error: Exception | None = None
        self._given_up = False
        self._sent_on = 0
        """Records handed over since the sending task last let others run."""
        self._nursery_manager: Any = None

    async def __aenter__(self) -> Self:
        if not system.inside_trio():
            raise LocalMisuse(
                "Client runs in trio tasks only, and this is another event loop (asyncio's?)",
                do="under asyncio: open a BlockingClient (raftlog.client.blocking), and call it by "
                "`await asyncio.to_thread(client.produce, ...)`",
            )
        assert self._nursery_manager is None, "a client is opened once"
        self._nursery_manager = trio.open_nursery()
        nursery: trio.Nursery = await self._nursery_manager.__aenter__()
        self._wires = Wires(nursery, self._turn, self._machine.connect)
        nursery.start_soon(self._run, name="client")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Wait until every record sent is settled, unless the block failed; then hang up."""
        assert self._wires is not None
        try:
            if error is None and not self._given_up:
                await self.flush()
        finally:
            self._perform(self._core.close(system.now()))
            self._wires.nursery.cancel_scope.cancel()
            await _leave(self._nursery_manager, kind, error, trace)

    def give_up(self) -> None:
        """Leave the block without waiting for records that are not yet settled."""
        self._given_up = True

    # --- turns ------------------------------------------------------------------------------------

    async def _run(self) -> None:
        """Take turns at deadlines, and when `send_soon` or `poll` left something to do."""
        while True:
            seconds = (self._wake_at - system.now()) / NANOS_PER_SECOND
            with trio.move_on_after(max(0.0, min(seconds, 3600.0))):
                await self._wake.wait()
            self._wake = trio.Event()
            await trio.lowlevel.checkpoint()
            self._turn(())

    def _turn(self, events: Sequence[Event]) -> None:
        self._perform(self._core.handle(events, system.now()))

    def _perform(self, effects: ClientEffects) -> None:
        wires = self._wires
        assert wires is not None, "the client is not open"
        for action in effects.actions:
            kind = type(action)
            if kind is Send:
                wires.send(action)  # type: ignore[arg-type]
            elif kind is Settled:
                self._settled(action.batch)  # type: ignore[union-attr]
            elif kind is Complete:
                done = self._calls.pop(action.call, None)  # type: ignore[union-attr]
                if done is not None:
                    done(action.value)  # type: ignore[union-attr]
            elif kind is Dial:
                wires.dial(action)  # type: ignore[arg-type]
            else:
                assert isinstance(action, Disconnect), action
                wires.hang_up(action)
        earlier = effects.wake_at < self._wake_at
        self._wake_at = effects.wake_at
        if earlier:
            self._wake.set()
        if (self._changed_waited and effects.actions) or self._core.has_ready:
            self._tell_waiters()

    def _tell_waiters(self) -> None:
        if self._changed_waited:
            self._changed_waited = False
            self._changed.set()
            self._changed = trio.Event()

    async def _until_changed(self) -> None:
        self._changed_waited = True
        await self._changed.wait()

    # --- what `raftlog.client.consumer` stands on -------------------------------------------------

    def open_consumer(self, settings: ConsumerOptions) -> GroupConsumer:
        """`ClientCore.open_consumer`."""
        return self._core.open_consumer(settings)

    def take_turn(self) -> None:
        """Take a turn of the core at once, after the consumer was changed."""
        self._turn(())

    def turn_effects(self) -> ClientEffects:
        """The effects of one turn of the core, for `result_of`."""
        return self._core.handle((), system.now())

    async def until_changed(self) -> None:
        """Wait until something was settled or answered, or a poll would return something."""
        await self._until_changed()

    def _settled(self, batch: PendingBatch) -> None:
        if batch.watch:
            for done in batch.watch:
                done()
            batch.watch = None
        elif batch.error is not None:
            self._raise_at_flush(batch.error)

    # --- calls ------------------------------------------------------------------------------------

    @checked
    async def ask(self, request: Call) -> Any:
        """Make a call (see `raftlog.client.core.asks`) and wait for its result."""
        return await self.result_of(lambda call_id: self._core.call(call_id, request, system.now()))

    async def result_of(self, begin: Callable[[int], ClientEffects]) -> Any:
        """Give a call its number, begin it with `begin`, and wait for its result."""
        if self._wires is None:
            raise LocalMisuse("the client is not open", do="async with Client(...) as client")
        self._last_call += 1
        call_id = self._last_call
        answered = trio.Event()
        results: list[Any] = []

        def done(value: object) -> None:
            results.append(value)
            answered.set()

        self._calls[call_id] = done
        self._perform(begin(call_id))
        try:
            await answered.wait()
        finally:
            if not results:
                self._calls.pop(call_id, None)
                self._core.cancel(call_id)
        if isinstance(results[0], RaftlogError):
            raise results[0]
        return results[0]

    # --- producing --------------------------------------------------------------------------------

    async def produce(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> RecordPosition:
        """Send one record and wait until it is acknowledged. Raises `KafkaError` (refused),
        `NotDone` (certainly not written) or `OutcomeUnknown` (it may be)."""
        sent = await self.send_soon(
            topic, value, key=key, headers=headers, partition=partition, timestamp_ms=timestamp_ms
        )
        return await self.wait(sent)

    async def send_soon(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
        then: Then | None = None,
    ) -> SentRecord:
        """Hand over a record and return; wait only while the buffer is full. A cancelled call has
        sent nothing. `then` is called with the outcome, in the order of the partition. Without it,
        learn the outcome from `wait`, or after `flush` from the `position` of the result."""
        topic, value, key, headers, partition, timestamp_ms = record_arguments(
            topic, value, key, headers, partition, timestamp_ms
        )
        if then is not None:
            check("then", then, Then)
        if self._sent_on >= _SENDS_PER_CHECKPOINT:
            self._sent_on = 0
            await trio.lowlevel.checkpoint()  # here, so that a cancelled call has sent nothing
        core = self._core
        while not core.has_room() or core.topic(topic, partition) is None:
            if core.has_room():
                await self.ask(KnowTopic(topic, partition))
            else:
                await self._until_changed()
        stamp = self._machine.wall_ms() if timestamp_ms is None else WallMillis(timestamp_ms)
        now = system.now()
        sent = core.send(
            topic,
            value,
            key=key,
            headers=headers,
            partition=partition,
            timestamp_ms=stamp,
            now=now,
        )
        if then is not None:
            _watch(sent.batch, partial(self._tell_one, then, sent))
        if sent.at == 0 or sent.batch.size >= self.options.batch_bytes:
            self._wake.set()
        self._sent_on += 1
        return sent

    @checked
    async def wait(self, sent: SentRecord) -> RecordPosition:
        """Wait until a record is acknowledged; return its position, or raise as `produce` does."""
        if not sent.settled:
            settled = trio.Event()
            _watch(sent.batch, settled.set)
            await settled.wait()
        return sent.position()

    def _tell_one(self, then: Then, sent: SentRecord) -> None:
        error = sent.batch.error
        self._tell(then, error if error is not None else sent.position())

    def _tell(self, then: Then, outcome: RecordPosition | RaftlogError) -> None:
        try:
            then(outcome)
        except Exception as raised:
            # This is inside a turn. Raised here, the error would end the client for all its users.
            self._raise_at_flush(raised)

    def _raise_at_flush(self, error: Exception) -> None:
        if self._unseen_error is None:
            self._unseen_error = error

    def tell_later(self, then: Then | None, error: RaftlogError) -> None:
        """Report a record that was refused when it was handed over. The error goes to its `then`,
        or else the next `flush` raises it."""
        if then is not None:
            self._tell(then, error)
        else:
            self._raise_at_flush(error)

    async def flush(self) -> None:
        """Wait until every record handed over is settled; then raise the first error since the last
        flush: of a record without a `then` and without a `wait`, or one that a `then` raised."""
        self._core.flush()
        self._wake.set()
        while self._core.unsettled_batches:
            await self._until_changed()
        error, self._unseen_error = self._unseen_error, None
        if error is not None:
            raise error

    @property
    def failure(self) -> Exception | None:
        """The error that the next `flush` would raise, if one is known by now."""
        return self._unseen_error

    @property
    def unsettled_bytes(self) -> int:
        """The bytes of all records that are handed over and not yet acknowledged."""
        return self._core.producer.unsettled_bytes

    # --- consuming --------------------------------------------------------------------------------

    @checked
    def assign(self, positions: Mapping[TopicPartition, OffsetFrom]) -> None:
        """Read exactly these partitions, each from an offset on; `offsets` has the ends."""
        self._core.assign({place: Offset(offset) for place, offset in positions.items()})
        self._wake.set()

    @checked
    def seek(self, place: TopicPartition, offset: OffsetFrom) -> None:
        """Read an assigned partition from another offset on."""
        self._core.seek(place, Offset(offset))
        self._wake.set()

    @checked
    def unassign(self, place: TopicPartition) -> None:
        """Stop reading a partition."""
        self._core.unassign(place)

    @checked
    async def poll(self, *, seconds: Seconds = 1.0, bytes_max: ByteCount = 1 << 20) -> list[Polled]:
        """Return the batches that were read ahead; wait up to `seconds` for the first. A `Trouble`
        among them names a partition that stands still until `seek` is called for it."""
        if not self._core.fetcher.has_ready:
            with trio.move_on_after(seconds):
                while not self._core.fetcher.has_ready:
                    await self._until_changed()
        else:
            await trio.lowlevel.checkpoint()
        given = self._core.poll(bytes_max)
        if given:
            self._wake.set()
        return given

    # --- the cluster ------------------------------------------------------------------------------

    async def know_brokers(self) -> None:
        """Learn all live brokers' addresses, so that a call can name one by its node id."""
        self._core.cache.learn_brokers(await self.ask(asks.metadata([])))

    async def topics(self) -> list[str]:
        """The names of all topics, sorted."""
        answer: MetadataResponse = await self.ask(asks.metadata())
        return sorted(topic.name or "" for topic in answer.topics)

    @checked
    async def describe(self, topic: TopicName) -> MetadataResponseTopic:
        """The id and the partitions of a topic; `KafkaError` when it does not exist."""
        answer: MetadataResponse = await self.ask(asks.metadata([topic]))
        found = answer.topics[0]
        if found.error_code != 0:
            raise KafkaError(found.error_code, on=f"topic {topic}")
        return found

    @checked
    async def create_topic(
        self,
        name: TopicName,
        *,
        partitions: CountOrDefault = -1,
        replication_factor: FactorOrDefault = -1,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        """Create a topic; `KafkaError` when the cluster refuses."""
        topic = asks.new_topic(name, partitions, replication_factor, configs=configs)
        for result in await self.ask(asks.create_topics([topic])):
            result.check()

    @checked
    async def delete_topic(self, name: TopicName) -> None:
        """Delete a topic and all its records."""
        for result in await self.ask(asks.delete_topics([name])):
            result.check()

    @checked
    async def create_partitions(self, name: TopicName, count: PartitionCount) -> None:
        """Add partitions to a topic until it has `count`."""
        for result in await self.ask(asks.create_partitions({name: count})):
            result.check()

    @checked
    async def offset(self, place: TopicPartition, timestamp_ms: LookedUp) -> OffsetAt:
        """The first offset at or after a Unix time in ms, or at asks.EARLIEST or asks.LATEST."""
        found: OffsetAt = await self.ask(asks.list_offsets(place, timestamp_ms))
        return found

    @checked
    async def offsets(
        self, topic: TopicName, timestamp_ms: LookedUp
    ) -> dict[TopicPartition, Offset]:
        """The `offset` of every partition of a topic."""
        view = await self.ask(KnowTopic(topic))
        found: dict[TopicPartition, Offset] = {}

        async def one(place: TopicPartition) -> None:
            found[place] = (await self.offset(place, timestamp_ms)).offset

        async with gather() as nursery:
            for partition in range(view.count):
                nursery.start_soon(one, TopicPartition(topic, partition))
        return dict(sorted(found.items()))


async def _leave(
    manager: Any,
    kind: type[BaseException] | None,
    error: BaseException | None,
    trace: TracebackType | None,
) -> None:
    """Leave the nursery; an error that the block alone raised is not wrapped into a group."""
    try:
        await manager.__aexit__(kind, error, trace)
    except BaseExceptionGroup as group:
        if error is None or group.exceptions != (error,):
            raise


@asynccontextmanager
async def gather() -> AsyncIterator[trio.Nursery]:
    """A nursery for calls that run at the same time. The first error is raised without a group
    around it."""
    try:
        async with trio.open_nursery() as nursery:
            yield nursery
    except BaseExceptionGroup as group:
        errors, rest = group.split(RaftlogError)
        if rest is not None:
            raise
        error: BaseException | None = errors
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        raise error or OperatingError("a call failed") from None


def _watch(batch: PendingBatch, done: Callable[[], None]) -> None:
    if batch.watch is None:
        batch.watch = [done]
    else:
        batch.watch.append(done)
