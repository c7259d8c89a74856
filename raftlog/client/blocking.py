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
import time
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
        deadline = time.perf_counter() + timeout
        if not self._hand_over(deadline):
            raise _no_room(topic, timeout)
        send = partial(
            self._client.send_soon,
            topic,
            value,
            key=key,
            headers=headers,
            partition=partition,
            timestamp_ms=timestamp_ms,
        )
        return self._thread.call(self._acknowledged, send, topic, timeout, _left(deadline))

    async def _acknowledged(
        self, send: Callable[[], Awaitable[SentRecord]], topic: str, asked: float, left: float
    ) -> RecordPosition:
        sent: SentRecord | None = None
        with trio.move_on_after(left):
            sent = await send()
            return await self._client.wait(sent)
        if sent is None:
            raise _no_room(topic, asked)
        raise OutcomeUnknown(f"not acknowledged within {asked:g} s", on=topic)

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
        timeout: Seconds = inf,
    ) -> None:
        """`Client.send_soon`; `then` is called in the client's thread and must not block. Raises
        `NotDone` when there is no room for the record within `timeout` seconds."""
        timeout = check("timeout", timeout, Seconds)
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
        record, deadline = _Collected(topic, partition, send, then), time.perf_counter() + timeout
        if not self._locked(deadline):
            raise _no_room(topic, timeout)
        try:
            self._collected.append(record)
            if len(self._collected) < COLLECTED_MAX or self._hand_over_locked(deadline):
                return
            if self._collected[-1] is not record:
                return
            self._collected.pop()
        finally:
            self._lock.release()
        raise _no_room(topic, timeout)

    def _locked(self, deadline: float) -> bool:
        """Take the lock, until an instant of `perf_counter` at the latest; False without it."""
        left = _left(deadline)
        return self._lock.acquire(timeout=-1 if left == inf else min(left, threading.TIMEOUT_MAX))

    def _hand_over(self, deadline: float = inf) -> bool:
        """Hand the collected records over, and return whether all were handed over in time. Only
        one thread at a time does, so that the records of each thread keep their order."""
        if not self._locked(deadline):
            return False
        try:
            return self._hand_over_locked(deadline)
        finally:
            self._lock.release()

    def _hand_over_locked(self, deadline: float) -> bool:
        collected, self._collected = self._collected, []
        if collected:
            self._collected = self._thread.call(self._send_all, collected, _left(deadline))
        return not self._collected

    async def _send_all(self, collected: list[_Collected], seconds: float) -> list[_Collected]:
        """Hand the collected records over, and return those for which there was no room in time. A
        record that is refused does not stop the others: its `then` is told of the error, or else
        the next `flush` raises it."""
        unknown: dict[tuple[str, int | None], RaftlogError] = {}
        done = 0
        with trio.move_on_after(seconds):
            for record in collected:
                await self._send_one(record, unknown)
                done += 1
        return collected[done:]

    async def _send_one(
        self, record: _Collected, unknown: dict[tuple[str, int | None], RaftlogError]
    ) -> None:
        # Records of an unknown topic or partition: the first one waits for it, and the others
        # share its error. If each waited in turn, a thousand records would take an hour.
        place = record.topic, record.partition
        error = unknown.get(place)
        if error is None:
            try:
                await record.send()
                return
            except RaftlogError as refused:
                error = refused
            if isinstance(error, KafkaError | NotDone):
                unknown[place] = error
        self._client.tell_later(record.then, error)

    @checked
    def flush(self, *, timeout: Seconds = inf) -> None:
        """`Client.flush`, which includes the collected records. Raises `OutcomeUnknown` after
        `timeout` seconds."""
        deadline = time.perf_counter() + timeout
        if not (self._hand_over(deadline) and self._thread.call(self._flushed, _left(deadline))):
            raise OutcomeUnknown(f"not all is acknowledged within {timeout:g} s")

    async def _flushed(self, seconds: float) -> bool:
        with trio.move_on_after(seconds):
            await self._client.flush()
            return True
        return False

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


def _left(deadline: float) -> float:
    """The seconds until an instant of `perf_counter`."""
    return max(0.0, deadline - time.perf_counter())


def _no_room(topic: str, seconds: float) -> NotDone:
    return NotDone(f"there was no room or no leader within {seconds:g} s", on=topic)
