"""Raft without Kafka: a log of bytes, kept by a majority of replicas.

    with ReplicatedLog(replicas=3) as log:
        offset = log.append(b"first")           durable on a majority when it returns
        for entry in log.read(0):               up to the end as it is now
            print(entry.offset, entry.data)
        for entry in log.follow(0):             and then waits for more
            ...

Without `with`, the log opens with its first use, and `close` ends it:

    log = ReplicatedLog(replicas=3)
    log.append(b"second")
    log.close()

Inside an event loop (trio or asyncio) `async with` gives the same methods to await:

    async with ReplicatedLog(replicas=3) as log:
        offset = await log.append(b"first")
        async for entry in log.read(0):
            print(entry.offset, entry.data)

Other processes and hosts use the same log by the addresses of its brokers:

    with ReplicatedLog(cluster="10.0.0.1:9092,10.0.0.2:9092") as log:
        ...

Offsets count from 0 without gaps and never change. `end` is linearizable: it lies after every
append, by any user, that was acknowledged before `end` was called. An append that raises
`OutcomeUnknown` may be in the log. After any other error it is not.

Every call ends: with its result, with an error, or after its `timeout` with an error that says so.
While no majority of the replicas can be reached, all calls run into their timeout.
"""

import time
from collections.abc import AsyncIterator, Iterator
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple, Self, final

from raftlog.base.arguments import AnyPath, between, checked
from raftlog.base.errors import LocalMisuse
from raftlog.base.ids import Offset
from raftlog.base.units import NANOS_PER_MILLI, Nanos
from raftlog.client.core.arguments import OffsetFrom, Seconds, TopicName
from raftlog.client.core.asks import EARLIEST, LATEST, delete_records, fetch, list_offsets
from raftlog.client.core.errors import NotDone, OutcomeUnknown
from raftlog.client.core.fetched import FetchedBatches
from raftlog.client.core.values import TopicPartition
from raftlog.client.system import parse_bootstrap
from raftlog.embed.cluster import BROKERS_MAX, Cluster
from raftlog.embed.event_loops import (
    enter_in_thread,
    in_thread,
    in_thread_abandoned,
    in_thread_shielded,
)
from raftlog.embed.log_lifetime import LogLifetime, nanos

if TYPE_CHECKING:
    from raftlog.client.core.results import OffsetAt

FOLLOW_WAIT_MS: Final = 500
READ_BYTES: Final = 1 << 20
Timeout = Annotated[float, between(0.001, 1_000_000)]
"""The seconds that a call may take."""


class LogEntry(NamedTuple):
    """An entry of the log: its offset and its bytes."""

    offset: Offset
    data: bytes


@final
class ReplicatedLog:
    """A log on several disks: `append`, `read`, `follow`, `trim`, and a linearizable `end`.

    It starts a cluster of its own, or uses a running one: a `Cluster`, or the addresses of its
    brokers as `host:port,host:port`. `name` distinguishes the logs of one cluster. With a
    `directory` the log is kept for the next start. `timeout` is in seconds, for calls that have
    none of their own.

    The first call opens the log, from any thread, and raises what the opening raises; the next call
    then tries again. A call's `timeout` includes the opening, but not the start of an own cluster.
    `with` opens the log at its beginning and closes it at its end. Without `with`, `close` does. A
    log that is not closed ends when it is collected or when the program ends, with a
    `ResourceWarning`. A process that was forked after the opening makes a log of its own."""

    @checked
    def __init__(
        self,
        replicas: Annotated[int, between(1, BROKERS_MAX)] = 3,
        *,
        name: TopicName = "log",
        directory: AnyPath | None = None,
        cluster: Cluster | str | None = None,
        processes: bool = False,
        timeout: Timeout = 30.0,
    ) -> None:
        if cluster is not None and directory is not None:
            raise LocalMisuse("a running cluster has its own directory")
        if cluster is not None and processes:
            raise LocalMisuse("a running cluster has its brokers, processes or not")
        if isinstance(cluster, str):
            parse_bootstrap(cluster, "cluster")
        owned: Cluster | None = None
        if cluster is None:
            cluster = owned = Cluster(replicas, directory=directory, processes=processes)
        self._cluster = cluster
        self._place = TopicPartition(name, 0)
        self._lifetime = LogLifetime(owned, cluster, replicas, name, timeout)
        self.aio = AsyncReplicatedLog(self)

    @property
    def cluster(self) -> Cluster:
        """The cluster that keeps the log. Raises `LocalMisuse` for a log that is used by address:
        its cluster cannot be started, stopped or killed from here."""
        if isinstance(self._cluster, str):
            raise LocalMisuse(
                "this log is used by address, its cluster belongs to another program",
                on=self._cluster,
                do="use raftlog.Cluster where the brokers run",
            )
        return self._cluster

    def __enter__(self) -> Self:
        """Open the log at once, and not with its first use."""
        try:
            self._lifetime.use(None)
        except BaseException as error:
            self._lifetime.close(error, for_good=False)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        del kind, trace
        self._lifetime.close(error)

    def close(self) -> None:
        """Wait until every append is settled, then stop what the log has started. A closed log
        stays closed: every later call raises `LocalMisuse`, but another `close` does nothing."""
        self._lifetime.close()

    async def __aenter__(self) -> "AsyncReplicatedLog":
        await enter_in_thread(self.__enter__, partial(self._lifetime.close, for_good=False))
        return self.aio

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await in_thread_shielded(self.__exit__, kind, error, trace)

    @checked
    def append(self, data: bytes, *, timeout: Timeout | None = None) -> Offset:
        """Append an entry. Returns its offset once a majority of the replicas has it on disk."""
        client, seconds = self._lifetime.use(timeout)
        place = self._place
        told = client.produce(place.topic, data, partition=place.partition, timeout=seconds)
        return told.offset

    @checked
    def append_many(self, pieces: list[bytes], *, timeout: Timeout | None = None) -> list[Offset]:
        """Append entries in order, in few rounds. Returns their offsets. The first error is raised
        once the outcome of all is known; the other entries may then be in the log."""
        outcomes: list[Offset | Exception] = []
        client, seconds = self._lifetime.use(timeout)
        deadline = time.perf_counter() + seconds
        try:
            for data in pieces:
                client.send_soon(
                    self._place.topic,
                    data,
                    partition=self._place.partition,
                    then=lambda told: outcomes.append(
                        told if isinstance(told, Exception) else told.offset
                    ),
                    timeout=_left(deadline),
                )
            client.flush(timeout=_left(deadline))
        except NotDone as error:
            # It is of one entry. Those before it may be in the log.
            raise OutcomeUnknown(
                f"not all is acknowledged within {seconds:g} s", on=self._place.topic
            ) from error
        offsets: list[Offset] = []
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                raise outcome
            offsets.append(outcome)
        return offsets

    @checked
    def start(self, *, timeout: Timeout | None = None) -> Offset:
        """The first offset that is still in the log."""
        return self._offset(EARLIEST, timeout)

    @checked
    def end(self, *, timeout: Timeout | None = None) -> Offset:
        """The offset after the last entry. It is linearizable: the leader confirms that it still
        leads after the question has arrived."""
        return self._offset(LATEST, timeout)

    def _offset(self, which: int, timeout: float | None) -> Offset:
        client, seconds = self._lifetime.use(timeout)
        found: OffsetAt = client.ask(list_offsets(self._place, which, nanos(seconds)))
        return found.offset

    @checked
    def trim(self, before: OffsetFrom, *, timeout: Timeout | None = None) -> Offset:
        """Delete the entries below an offset, at most up to `end()`. Returns the first offset that
        is left. Offsets do not change. Disk space is freed in whole segments."""
        client, seconds = self._lifetime.use(timeout)
        found: Offset = client.ask(delete_records(self._place, before, nanos(seconds)))
        return found

    @checked
    def read(
        self, from_offset: OffsetFrom = 0, *, timeout: Timeout | None = None
    ) -> Iterator[LogEntry]:
        """Read the entries from an offset up to the `end()` at the time of the call. `timeout` is
        for each request, not for the whole read."""
        end = self.end(timeout=timeout)
        return _entries_of(self._pieces(from_offset, end, timeout))

    def _pieces(
        self, from_offset: int, end: int, timeout: float | None
    ) -> Iterator[list[LogEntry]]:
        """Yield the entries below `end`; each list is the result of one fetch."""
        at = Offset(from_offset)
        while at < end:
            piece = self._fetch(at, 0, timeout)
            yield [entry for entry in _entries_in(piece) if entry.offset < end]
            at = piece.next_offset

    @checked
    def follow(
        self,
        from_offset: OffsetFrom = 0,
        *,
        seconds: Seconds | None = None,
        timeout: Timeout | None = None,
    ) -> Iterator[LogEntry]:
        """Read the entries from an offset on, and wait for new ones. With `seconds` it ends when no
        entry came for so long. `timeout` is for each request that gets no answer."""
        return _entries_of(self._pieces_on(from_offset, seconds, timeout))

    def _pieces_on(
        self, from_offset: int, seconds: float | None, timeout: float | None
    ) -> Iterator[list[LogEntry]]:
        """Yield a list for each fetch. A fetch waits a while and may bring no entry."""
        at = Offset(from_offset)
        quiet_ms = 0
        while seconds is None or quiet_ms < seconds * 1000:
            wait_ms = FOLLOW_WAIT_MS
            if seconds is not None:
                wait_ms = max(1, min(wait_ms, int(seconds * 1000) - quiet_ms))
            piece = self._fetch(at, wait_ms, timeout)
            quiet_ms = 0 if piece.batches else quiet_ms + wait_ms
            yield list(_entries_in(piece))
            at = piece.next_offset

    def _fetch(self, offset: Offset, wait_ms: int, timeout: float | None) -> FetchedBatches:
        client, seconds = self._lifetime.use(timeout)
        limit = Nanos(nanos(seconds) + wait_ms * NANOS_PER_MILLI)
        ask = fetch(
            self._place, offset, max_wait_ms=wait_ms, max_bytes=READ_BYTES, timeout_ns=limit
        )
        found: FetchedBatches = client.ask(ask)
        return found


@final
class AsyncReplicatedLog:
    """The methods of a `ReplicatedLog`, awaitable from trio and from asyncio. The methods of
    `cluster` are under `cluster.aio`. `timeout` is in seconds."""

    def __init__(self, log: ReplicatedLog) -> None:
        self._log = log

    @property
    def cluster(self) -> Cluster:
        """The cluster in which the log lies."""
        return self._log.cluster

    async def close(self) -> None:
        """`ReplicatedLog.close`; it goes on in a cancelled task."""
        await in_thread_shielded(self._log.close)

    async def append(self, data: bytes, *, timeout: float | None = None) -> Offset:
        """`ReplicatedLog.append`."""
        return await in_thread(self._log.append, data, timeout=timeout)

    async def append_many(
        self, pieces: list[bytes], *, timeout: float | None = None
    ) -> list[Offset]:
        """`ReplicatedLog.append_many`."""
        return await in_thread(self._log.append_many, pieces, timeout=timeout)

    async def start(self, *, timeout: float | None = None) -> Offset:
        """`ReplicatedLog.start`."""
        return await in_thread(self._log.start, timeout=timeout)

    async def end(self, *, timeout: float | None = None) -> Offset:
        """`ReplicatedLog.end`."""
        return await in_thread(self._log.end, timeout=timeout)

    async def trim(self, before: int, *, timeout: float | None = None) -> Offset:
        """`ReplicatedLog.trim`."""
        return await in_thread(self._log.trim, before, timeout=timeout)

    @checked
    async def read(
        self, from_offset: OffsetFrom = 0, *, timeout: Timeout | None = None
    ) -> AsyncIterator[LogEntry]:
        """`ReplicatedLog.read`, for `async for`."""
        end = await self.end(timeout=timeout)
        pieces = self._log._pieces(from_offset, end, timeout)
        while (piece := await in_thread_abandoned(next, pieces, None)) is not None:
            for entry in piece:
                yield entry

    @checked
    async def follow(
        self,
        from_offset: OffsetFrom = 0,
        *,
        seconds: Seconds | None = None,
        timeout: Timeout | None = None,
    ) -> AsyncIterator[LogEntry]:
        """`ReplicatedLog.follow`, for `async for`; a cancellation ends it at once."""
        await in_thread(self._log._lifetime.use, timeout)  # an opening is not abandoned
        pieces = self._log._pieces_on(from_offset, seconds, timeout)
        while (piece := await in_thread_abandoned(next, pieces, None)) is not None:
            for entry in piece:
                yield entry


def _left(deadline: float) -> float:
    """The seconds until an instant of `perf_counter`. Raises `NotDone` when it has passed."""
    left = deadline - time.perf_counter()
    if left <= 0:
        raise NotDone("the time is up")
    return left


def _entries_of(pieces: Iterator[list[LogEntry]]) -> Iterator[LogEntry]:
    for piece in pieces:
        yield from piece


def _entries_in(piece: FetchedBatches) -> Iterator[LogEntry]:
    for record in piece.records():
        yield LogEntry(record.offset, record.value or b"")
