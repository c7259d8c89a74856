"""Streams the flights into the cluster, and records each send and each acknowledgement.

The history has one process for each record in flight (CHECKER: a pipelining producer). A process
without an answer is retired. The stream is fast until a fault needs sends in flight and rows left
to send. It then trickles until the fault is over.
"""

from collections.abc import Iterable
from functools import partial
from itertools import pairwise
from typing import Final, final

import attrs
import trio

from raftlog.base.errors import RaftlogError
from raftlog.base.ports import Clock
from raftlog.base.units import Instant
from raftlog.cli.demo.flights import Flight
from raftlog.client.core.errors import OutcomeUnknown
from raftlog.client.core.partitioner import RoundRobin, partition_of
from raftlog.client.core.values import RecordPosition
from raftlog.client.trio_driver import Client
from raftlog.verify import HistoryWriter

TRICKLE_ROWS: Final = 25
TRICKLE_SECONDS: Final = 0.02


@final
@attrs.define(eq=False)
class RecordStream:
    """The producer's side of the demo.

    `limit` is the number of rows that may go at full speed now.
    """

    client: Client
    history: HistoryWriter
    clock: Clock
    topic: str
    partitions: int
    limit: int
    sent: int = attrs.field(default=0, init=False)
    acknowledged: list[int] = attrs.field(factory=list, init=False)
    unknown: list[int] = attrs.field(factory=list, init=False)
    refused: list[int] = attrs.field(factory=list, init=False)
    ack_times: dict[int, list[Instant]] = attrs.field(factory=dict, init=False)
    done: bool = attrs.field(default=False, init=False)
    _free: list[int] = attrs.field(factory=list, init=False)
    _processes: int = attrs.field(default=0, init=False)
    _round_robin: RoundRobin = attrs.field(factory=RoundRobin, init=False)

    async def run(self, flights: Iterable[Flight]) -> None:
        """Send every row and wait until each is acknowledged or given up."""
        for flight in flights:
            if self.sent >= self.limit and self.sent % TRICKLE_ROWS == 0:
                await trio.sleep(TRICKLE_SECONDS)
            await self._send(flight)
        await self.client.flush()
        self.done = True

    async def _send(self, flight: Flight) -> None:
        key = flight.key
        if key is None:
            partition = self._round_robin.next(self.topic, self.partitions)
        else:
            partition = partition_of(key, self.partitions)
        process = self._process()
        self.history.invoke(
            process,
            "send",
            time_ns=self.clock.now(),
            key=f"{self.topic}/{partition}",
            value=flight.name,
        )
        self.sent += 1
        await self.client.send_soon(
            self.topic,
            flight.value,
            key=key,
            partition=partition,
            then=partial(self._settled, flight, process),
        )

    def _process(self) -> int:
        if self._free:
            return self._free.pop()
        self._processes += 1
        return self._processes

    def _settled(
        self, flight: Flight, process: int, outcome: RecordPosition | RaftlogError
    ) -> None:
        now = self.clock.now()
        if isinstance(outcome, RecordPosition):
            self.acknowledged.append(flight.row)
            self.ack_times.setdefault(outcome.partition, []).append(now)
            value = [outcome.offset, flight.name]
            self.history.complete(process, "ok", time_ns=now, value=value)
            self._free.append(process)
        elif isinstance(outcome, OutcomeUnknown):
            self.unknown.append(flight.row)
            self.history.complete(process, "info", time_ns=now, error=str(outcome))
        else:
            self.refused.append(flight.row)
            self.history.complete(process, "fail", time_ns=now, error=str(outcome))
            self._free.append(process)

    def longest_gap_ms(self, partitions: Iterable[int], since: Instant, until: Instant) -> float:
        """The longest time between two instants without an acknowledgement in these partitions."""
        longest = 0
        for partition in partitions:
            times = [at for at in self.ack_times.get(partition, []) if since <= at <= until]
            edges = [since, *times, *([] if times else [until])]
            gaps = [later - earlier for earlier, later in pairwise(edges)]
            longest = max(longest, *gaps)
        return longest / 1e6
