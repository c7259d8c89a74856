"""A consumer that follows the whole topic while everything goes on, by the client that users have:
assigned partitions, fetches ahead, polls.

    records-followed    offsets come in order, none is left out (but where a log lost its beginning)
                        or comes twice, and what was acknowledged has the value that was sent
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol, final

import attrs
import trio

from raftlog.base.ids import Offset
from raftlog.client.core.errors import KafkaError
from raftlog.client.core.fetched import FetchedBatches
from raftlog.client.core.values import TopicPartition
from raftlog.kafka.error_codes import ErrorCode
from raftlog_sim.base.violation import Violation
from raftlog_sim.checks.invariants import Invariants
from raftlog_sim.facts.targets import log_start_of
from raftlog_sim.workloads.callers import TOPIC
from raftlog_sim.workloads.workload import SimWorkload, plain

if TYPE_CHECKING:
    from raftlog_sim.world.world import World

POLL_SECONDS: Final = 0.3
AGAIN_SECONDS: Final = 0.05
"""After trouble, before the partition is read on."""


class Polls(Protocol):
    """The product's client, as a consumer uses it."""

    def assign(self, positions: Mapping[TopicPartition, int]) -> None: ...

    def seek(self, place: TopicPartition, offset: int) -> None: ...

    async def poll(self, *, seconds: float) -> list[Any]: ...


@final
@attrs.define(eq=False)
class TrioConsumer:
    """See the module. `positions` is what comes next, by partition."""

    world: "World"
    workload: SimWorkload
    invariants: Invariants
    opened: Callable[[], Any]
    """Gives the client once it is open."""
    positions: dict[int, int] = attrs.Factory(dict)

    async def run(self) -> None:
        """The task."""
        client: Polls = await self.opened()
        self.positions = dict.fromkeys(range(self.workload.options.partitions), 0)
        client.assign({TopicPartition(TOPIC, number): 0 for number in self.positions})
        while True:
            for piece in await client.poll(seconds=POLL_SECONDS):
                if isinstance(piece, FetchedBatches):
                    self._follow(piece)
                else:
                    await trio.sleep(AGAIN_SECONDS)
                    client.seek(piece.place, self._after(piece.place.partition, piece.error))

    def _follow(self, piece: FetchedBatches) -> None:
        partition = piece.place.partition
        for record in piece.records():
            self.invariants.checked["records-followed"] += 1
            self._judge(partition, record.offset, plain(record.value))
            self.positions[partition] = record.offset + 1

    def _judge(self, partition: int, offset: Offset, value: str) -> None:
        expected, where = self.positions[partition], f"partition {partition}"
        if offset < expected or (offset > expected and not self.workload.shrinks):
            raise Violation(
                "records-followed", f"{where}: offset {offset} came, {expected} was next"
            )
        wanted = self.workload.acknowledged.get((partition, offset))
        if wanted is not None and wanted != value:
            raise Violation(
                "records-followed", f"{where}: {value!r} came at offset {offset}, not {wanted!r}"
            )

    def _after(self, partition: int, error: Exception) -> int:
        """Where to read on after trouble. Nothing that was read once is out of range."""
        position = self.positions[partition]
        gone = isinstance(error, KafkaError) and error.code == ErrorCode.OFFSET_OUT_OF_RANGE
        if not gone:
            return position
        if not self.workload.shrinks:
            raise Violation(
                "records-followed",
                f"partition {partition}: {position} is out of range, {position - 1} was read",
            )
        self.positions[partition] = max(position, log_start_of(self.world, TOPIC, partition))
        return self.positions[partition]
