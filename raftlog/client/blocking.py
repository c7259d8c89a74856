"""The blocking client: the trio client in a thread of its own, with the same methods.

    with BlockingClient("localhost:9092") as client:
        print(client.produce("orders", b"value", key=b"k"))
        for number in range(100_000):
            client.send_soon("orders", b"%d" % number)
        client.flush()

Any number of threads may share one client. A call costs two thread switches (50-100 us), so
`send_soon` collects records and hands them to the client's thread in bulk.
"""

import threading
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from math import inf
from types import TracebackType
from typing import Any, Final, NamedTuple, Self, TypeVar, final

import trio

from raftlog.base.arguments import check, checked
from raftlog.base.errors import RaftlogError
from raftlog.base.ids import Offset
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
from raftlog.client.core.batches import Headers, SentRecord
from raftlog.client.core.calls import Call
from raftlog.client.core.errors import KafkaError, NotDone, OutcomeUnknown
from raftlog.client.core.fetcher import Polled
from raftlog.client.core.results import OffsetAt
from raftlog.client.core.values import ClientOptions, RecordPosition, TopicPartition
from raftlog.client.trio_driver import Client, Then
from raftlog.client.trio_thread import TrioThread
from raftlog.kafka.messages.metadata import MetadataResponseTopic

Result = TypeVar("Result")

COLLECTED_MAX: Final = 500
"""Records that `send_soon` collects before it hands them over."""


class _Collected(NamedTuple):
    """A record that `send_soon` took and has not yet handed to the client's thread."""

    topic: str
    partition: int | None
    send: Callable[[], Awaitable[object]]
    then: Then | None


@final
class BlockingClient:
    """A Kafka client whose methods block; its options are those of `Client`.

    `send_soon` collects records. The collected ones are handed over when there are `COLLECTED_MAX`
    of them, by `flush`, by `produce`, and when the `with` block ends."""

    @checked
    def __init__(
        self, bootstrap: str = "", *, options: ClientOptions | None = None, **more: Any
    ) -> None:
        self._client = Client(bootstrap, options=options, **more)
        self._thread = TrioThread(
            self._client,
            name="client",
            face="BlockingClient",
            instead="use raftlog.client.trio_driver.Client there",
            leave=self._client.give_up,
        )
        self._lock = threading.Lock()
        self._collected: list[_Collected] = []

    def __enter__(self) -> Self:
        self._thread.begin()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Wait until every record sent is settled, unless the block failed; then end the thread."""
        del kind, trace
        try:
            if error is None:
                self.flush()
        finally:
            self._thread.end()
        if error is None and self._thread.error is not None:
            raise self._thread.error

    # --- producing --------------------------------------------------------------------------------

    def produce(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
        timeout: Seconds = inf,
    ) -> RecordPosition:
        """`Client.produce`, for at most `timeout` seconds. Then it raises `NotDone`, or
        `OutcomeUnknown` for a record that the client goes on sending."""
        timeout = check("timeout", timeout, Seconds)
        topic, value, key, headers, partition, timestamp_ms = record_arguments(
            topic, value, key, headers, partition, timestamp_ms
        )
        self._hand_over()
        send = partial(
            self._client.send_soon,
            topic,
            value,
            key=key,
            headers=headers,
            partition=partition,
            timestamp_ms=timestamp_ms,
        )
        return self._thread.call(self._acknowledged, send, topic, timeout)

    async def _acknowledged(
        self, send: Callable[[], Awaitable[SentRecord]], topic: str, seconds: float
    ) -> RecordPosition:
        sent: SentRecord | None = None
        with trio.move_on_after(seconds):
            sent = await send()
            return await self._client.wait(sent)
        if sent is None:
            raise NotDone(f"there was no room or no leader within {seconds:g} s", on=topic)
        raise OutcomeUnknown(f"not acknowledged within {seconds:g} s", on=topic)

    def send_soon(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
        then: Then | None = None,
    ) -> None:
        """`Client.send_soon`; `then` is called in the client's thread and must not block."""
        # Checked in the caller's thread, so that a wrong argument is raised to the caller. Later
        # the record is one of many that are handed over together.
        topic, value, key, headers, partition, timestamp_ms = record_arguments(
            topic, value, key, headers, partition, timestamp_ms
        )
        if then is not None:
            check("then", then, Then)
        send = partial(
            self._client.send_soon,
            topic,
            value,
            key=key,
            headers=headers,
            partition=partition,
            timestamp_ms=timestamp_ms,
            then=then,
        )
        with self._lock:
            self._collected.append(_Collected(topic, partition, send, then))
            if len(self._collected) < COLLECTED_MAX:
                return
        self._hand_over()

    def _hand_over(self) -> None:
        """Hand the collected records over. Only one thread at a time does, so that the records of
        each thread keep their order."""
        with self._lock:
            collected, self._collected = self._collected, []
            if collected:
                self._thread.call(self._send_all, collected)

    async def _send_all(self, collected: list[_Collected]) -> None:
        """Hand all collected records over. A record that is refused does not stop the others: its
        `then` is told of the error, or else the next `flush` raises it."""
        unknown: dict[tuple[str, int | None], RaftlogError] = {}
        for topic, partition, send, then in collected:
            # Records of an unknown topic or partition: the first one waits for it, and the others
            # share its error. If each waited in turn, a thousand records would take an hour.
            error = unknown.get((topic, partition))
            if error is None:
                try:
                    await send()
                    continue
                except RaftlogError as refused:
                    error = refused
                if isinstance(error, KafkaError | NotDone):
                    unknown[topic, partition] = error
            self._client.tell_later(then, error)

    @checked
    def flush(self, *, timeout: Seconds = inf) -> None:
        """`Client.flush`, which includes the collected records. Raises `OutcomeUnknown` after
        `timeout` seconds."""
        self._hand_over()
        self._thread.call(self._flushed, timeout)

    async def _flushed(self, seconds: float) -> None:
        with trio.move_on_after(seconds):
            await self._client.flush()
            return
        raise OutcomeUnknown(f"not all is acknowledged within {seconds:g} s")

    @property
    def failure(self) -> Exception | None:
        """The error that the next `flush` would raise, as far as it is known now; None without
        one."""
        return self._client.failure

    # --- consuming --------------------------------------------------------------------------------

    @checked
    def assign(self, positions: Mapping[TopicPartition, OffsetFrom]) -> None:
        """`Client.assign`."""
        self._thread.do(self._client.assign, positions)

    @checked
    def seek(self, place: TopicPartition, offset: OffsetFrom) -> None:
        """`Client.seek`."""
        self._thread.do(self._client.seek, place, offset)

    @checked
    def unassign(self, place: TopicPartition) -> None:
        """`Client.unassign`."""
        self._thread.do(self._client.unassign, place)

    @checked
    def poll(self, *, seconds: Seconds = 1.0, bytes_max: ByteCount = 1 << 20) -> list[Polled]:
        """`Client.poll`."""
        return self._thread.call(partial(self._client.poll, seconds=seconds, bytes_max=bytes_max))

    # --- the cluster ------------------------------------------------------------------------------

    @checked
    def ask(self, request: Call) -> Any:
        """`Client.ask`."""
        return self._thread.call(self._client.ask, request)

    def topics(self) -> list[str]:
        """`Client.topics`."""
        return self._thread.call(self._client.topics)

    @checked
    def describe(self, topic: TopicName) -> MetadataResponseTopic:
        """`Client.describe`."""
        return self._thread.call(self._client.describe, topic)

    @checked
    def create_topic(
        self,
        name: TopicName,
        *,
        partitions: CountOrDefault = -1,
        replication_factor: FactorOrDefault = -1,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        """`Client.create_topic`."""
        create = partial(
            self._client.create_topic,
            name,
            partitions=partitions,
            replication_factor=replication_factor,
            configs=configs,
        )
        self._thread.call(create)

    @checked
    def delete_topic(self, name: TopicName) -> None:
        """`Client.delete_topic`."""
        self._thread.call(self._client.delete_topic, name)

    @checked
    def create_partitions(self, name: TopicName, count: PartitionCount) -> None:
        """`Client.create_partitions`."""
        self._thread.call(self._client.create_partitions, name, count)

    @checked
    def offset(self, place: TopicPartition, timestamp_ms: LookedUp) -> OffsetAt:
        """`Client.offset`."""
        return self._thread.call(self._client.offset, place, timestamp_ms)

    @checked
    def offsets(self, topic: TopicName, timestamp_ms: LookedUp) -> dict[TopicPartition, Offset]:
        """`Client.offsets`."""
        return self._thread.call(self._client.offsets, topic, timestamp_ms)
