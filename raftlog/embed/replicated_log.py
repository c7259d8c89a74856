"""Raft without Kafka: a log of bytes, kept by a majority of replicas.

    with ReplicatedLog(replicas=3) as log:
        offset = log.append(b"first")           durable on a majority when it returns
        for entry in log.read(0):               up to the end as it is now
            print(entry.offset, entry.data)
        for entry in log.follow(0):             and on, for ever
            ...

Inside an event loop, trio's or asyncio's, `async with` gives the same methods to await:

    async with ReplicatedLog(replicas=3) as log:
        offset = await log.append(b"first")
        async for entry in log.read(0):
            print(entry.offset, entry.data)

Offsets are dense from 0 and never change. `end` is linearizable: it lies behind every append that
was acknowledged, by anybody, before it was asked. An append that raises `OutcomeUnknown` may be in
the log; every other error means that it is not.
"""

from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Annotated, Final, NamedTuple, Self, final

from raftlog.base.arguments import between, checked
from raftlog.base.errors import LocalMisuse
from raftlog.base.ids import Offset
from raftlog.base.units import NANOS_PER_MILLI, NANOS_PER_SECOND, Nanos
from raftlog.client.blocking import BlockingClient
from raftlog.client.core.arguments import OffsetFrom, Seconds, TopicName
from raftlog.client.core.asks import EARLIEST, LATEST, fetch
from raftlog.client.core.errors import KafkaError
from raftlog.client.core.fetched import FetchedBatches
from raftlog.client.core.values import TopicPartition
from raftlog.embed.cluster import BROKERS_MAX, Cluster
from raftlog.embed.event_loops import (
    enter_in_thread,
    in_thread,
    in_thread_abandoned,
    in_thread_shielded,
)
from raftlog.kafka.error_codes import ErrorCode

FOLLOW_WAIT_MS: Final = 500
READ_BYTES: Final = 1 << 20
_CONFIGS: Final = {
    "raftlog.read.consistency": "linearizable",
    "retention.ms": "-1",
    "retention.bytes": "-1",
}
"""A log is whole: neither age nor size removes an entry, whatever its cluster's defaults say."""


class LogEntry(NamedTuple):
    """One appended piece of bytes and its place."""

    offset: Offset
    data: bytes


@final
class ReplicatedLog:
    """See the module. It starts a cluster of its own, or uses one that runs; `name` tells several
    logs of a cluster apart. With a directory the log is there again the next time."""

    @checked
    def __init__(
        self,
        replicas: Annotated[int, between(1, BROKERS_MAX)] = 3,
        *,
        name: TopicName = "log",
        directory: str | Path | None = None,
        cluster: Cluster | None = None,
        processes: bool = False,
    ) -> None:
        if cluster is not None and directory is not None:
            raise LocalMisuse("a running cluster has its own directory")
        self._own = cluster is None
        self.cluster = cluster or Cluster(replicas, directory=directory, processes=processes)
        self._replicas = replicas
        self._place = TopicPartition(name, 0)
        self._client: BlockingClient | None = None
        self.aio = AsyncReplicatedLog(self)

    def __enter__(self) -> Self:
        if self._own:
            self.cluster.start()
        try:
            client = BlockingClient(self.cluster.bootstrap_servers)
            self._client = client.__enter__()
            self._make_topic(client)
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise
        return self

    def _make_topic(self, client: BlockingClient) -> None:
        try:
            client.create_topic(
                self._place.topic,
                partitions=1,
                replication_factor=self._replicas,
                configs=_CONFIGS,
            )
        except KafkaError as error:
            if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        client, self._client = self._client, None
        try:
            if client is not None:
                client.__exit__(kind, error, trace)
        finally:
            if self._own:
                self.cluster.stop()

    async def __aenter__(self) -> "AsyncReplicatedLog":
        await enter_in_thread(self.__enter__, partial(self.__exit__, None, None, None))
        return self.aio

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await in_thread_shielded(self.__exit__, kind, error, trace)

    @property
    def _open(self) -> BlockingClient:
        if self._client is None:
            raise LocalMisuse("the log is not open", do="with ReplicatedLog(...) as log")
        return self._client

    @checked
    def append(self, data: bytes) -> Offset:
        """Append; the offset, once a majority of the replicas has it on disk."""
        place = self._place
        return self._open.produce(place.topic, data, partition=place.partition).offset

    @checked
    def append_many(self, pieces: list[bytes]) -> list[Offset]:
        """Append in order, in few rounds; their offsets. The first error is raised once the fate of
        all is known."""
        outcomes: list[Offset | Exception] = []
        client, place = self._open, self._place
        for data in pieces:
            client.send_soon(
                place.topic,
                data,
                partition=place.partition,
                then=lambda told: outcomes.append(
                    told if isinstance(told, Exception) else told.offset
                ),
            )
        client.flush()
        offsets: list[Offset] = []
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                raise outcome
            offsets.append(outcome)
        return offsets

    def start(self) -> Offset:
        """The first offset that is still there."""
        return self._open.offset(self._place, EARLIEST).offset

    def end(self) -> Offset:
        """The offset behind the last entry, linearizable: the leader makes sure that it leads,
        after the question arrived."""
        return self._open.offset(self._place, LATEST).offset

    @checked
    def read(self, from_offset: OffsetFrom = 0) -> Iterator[LogEntry]:
        """The entries from an offset up to `end()` at the moment of the call."""
        return _entries_of(self._pieces(from_offset, self.end()))

    def _pieces(self, from_offset: int, end: int) -> Iterator[list[LogEntry]]:
        """The entries below `end`, as many at a time as one fetch brings."""
        at = Offset(from_offset)
        while at < end:
            piece = self._fetch(at, 0)
            yield [entry for entry in _entries_in(piece) if entry.offset < end]
            at = piece.next_offset

    @checked
    def follow(
        self, from_offset: OffsetFrom = 0, *, seconds: Seconds | None = None
    ) -> Iterator[LogEntry]:
        """The entries from an offset on, waiting for new ones; with `seconds`, until none came for
        so long."""
        return _entries_of(self._pieces_on(from_offset, seconds))

    def _pieces_on(self, from_offset: int, seconds: float | None) -> Iterator[list[LogEntry]]:
        """One list for each fetch, which waits a while and may bring nothing."""
        at = Offset(from_offset)
        quiet_ms = 0
        while seconds is None or quiet_ms < seconds * 1000:
            wait_ms = FOLLOW_WAIT_MS
            if seconds is not None:
                wait_ms = max(1, min(wait_ms, int(seconds * 1000) - quiet_ms))
            piece = self._fetch(at, wait_ms)
            quiet_ms = 0 if piece.batches else quiet_ms + wait_ms
            yield list(_entries_in(piece))
            at = piece.next_offset

    def _fetch(self, offset: Offset, wait_ms: int) -> FetchedBatches:
        timeout = Nanos(30 * NANOS_PER_SECOND + wait_ms * NANOS_PER_MILLI)
        ask = fetch(
            self._place, offset, max_wait_ms=wait_ms, max_bytes=READ_BYTES, timeout_ns=timeout
        )
        found: FetchedBatches = self._open.ask(ask)
        return found


@final
class AsyncReplicatedLog:
    """The methods of an open `ReplicatedLog`, awaitable from trio and from asyncio. `cluster` has
    its own under `cluster.aio`."""

    def __init__(self, log: ReplicatedLog) -> None:
        self._log = log

    @property
    def cluster(self) -> Cluster:
        """The cluster in which the log lies."""
        return self._log.cluster

    async def append(self, data: bytes) -> Offset:
        """`ReplicatedLog.append`."""
        return await in_thread(self._log.append, data)

    async def append_many(self, pieces: list[bytes]) -> list[Offset]:
        """`ReplicatedLog.append_many`."""
        return await in_thread(self._log.append_many, pieces)

    async def start(self) -> Offset:
        """`ReplicatedLog.start`."""
        return await in_thread(self._log.start)

    async def end(self) -> Offset:
        """`ReplicatedLog.end`."""
        return await in_thread(self._log.end)

    @checked
    async def read(self, from_offset: OffsetFrom = 0) -> AsyncIterator[LogEntry]:
        """`ReplicatedLog.read`, for `async for`."""
        pieces = self._log._pieces(from_offset, await self.end())
        while (piece := await in_thread_abandoned(next, pieces, None)) is not None:
            for entry in piece:
                yield entry

    @checked
    async def follow(
        self, from_offset: OffsetFrom = 0, *, seconds: Seconds | None = None
    ) -> AsyncIterator[LogEntry]:
        """`ReplicatedLog.follow`, for `async for`; a cancellation ends it at once."""
        pieces = self._log._pieces_on(from_offset, seconds)
        while (piece := await in_thread_abandoned(next, pieces, None)) is not None:
            for entry in piece:
                yield entry


def _entries_of(pieces: Iterator[list[LogEntry]]) -> Iterator[LogEntry]:
    for piece in pieces:
        yield from piece


def _entries_in(piece: FetchedBatches) -> Iterator[LogEntry]:
    for record in piece.records():
        yield LogEntry(record.offset, record.value or b"")
