"""What clients do in a world: produce, read, and in the end read everything; all of it written
down.

Producers use the product's own client, idempotent, one record in flight each, so that the order
of each process means something. A producer that heard no answer is retired and replaced, as the
history's rules demand.
"""

import io
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final, final

import attrs

from raftlog.base.errors import RaftlogError
from raftlog.base.ids import Offset
from raftlog.base.units import NANOS_PER_MILLI, WallMillis, millis
from raftlog.client.core import asks
from raftlog.client.core.client import Produce
from raftlog.client.core.errors import KafkaError, NotDone
from raftlog.client.core.fetched import FetchedBatches
from raftlog.client.core.values import (
    ClientOptions,
    RecordPosition,
    TopicPartition,
)
from raftlog.verify import Header, HistoryWriter
from raftlog_sim.clock import WALL_START_MS
from raftlog_sim.driver import SimClient
from raftlog_sim.options import SimOptions

if TYPE_CHECKING:
    from raftlog_sim.world import World

TOPIC: Final = "t"
READER: Final = 1_000_000
_THINK_NS: Final = millis(5)
_READ_NS: Final = millis(40)


def _names(world: "World") -> Any:
    return tuple(f"n{number}" for number in sorted(world.nodes))


@final
@attrs.define(eq=False)
class Workload:
    """All clients of a world. `acknowledged` maps (partition, offset) to the value acknowledged."""

    world: "World"
    options: SimOptions
    text: io.StringIO = attrs.Factory(io.StringIO)
    history: HistoryWriter = attrs.field(init=False)
    acknowledged: dict[tuple[int, int], str] = attrs.Factory(dict)
    sent: int = 0
    unknown: int = 0
    running: bool = False
    busy: int = 0
    _processes: int = 0
    _reader: SimClient = attrs.field(init=False)
    _positions: dict[int, int] = attrs.Factory(dict)

    def __attrs_post_init__(self) -> None:
        header = Header(
            source="sim",
            seed=self.options.seed,
            options={"consumer": "assign", "retention": "none"},
            nodes=_names(self.world),
        )
        self.history = HistoryWriter(self.text, header)
        self._reader = self._client("reader")
        self._positions = dict.fromkeys(range(self.options.partitions), 0)

    def _client(self, name: str) -> SimClient:
        bootstrap = tuple((f"n{number}", 9092) for number in sorted(self.world.nodes))
        options = ClientOptions(
            bootstrap=bootstrap,
            client_id=name,
            request_timeout_ns=millis(1_500),
            delivery_timeout_ns=millis(4_000),
            connect_timeout_ns=millis(500),
        )
        return SimClient(self.world, name, options)

    # --- setting up
    # ---------------------------------------------------------------------------------

    def create_topic(self, then: Any) -> None:
        """Create the topic, retrying until it exists."""
        configs = {
            "min.insync.replicas": str(self.options.min_in_sync),
            "segment.bytes": str(self.options.segment_bytes),
        }
        topic = asks.new_topic(
            TOPIC, self.options.partitions, self.options.replication, configs=configs
        )
        self._reader.call(asks.create_topics([topic]), then)

    def start(self) -> None:
        """Let producers and the reader go on until `stop`."""
        self.running = True
        for number in range(self.options.producers):
            self._new_producer(number)
        self._read_soon()

    def stop(self) -> None:
        """Begin nothing new."""
        self.running = False

    # --- producing
    # ----------------------------------------------------------------------------------

    def _new_producer(self, slot: int) -> None:
        self._processes += 1
        client = self._client(f"producer/{self._processes}")
        self.world.after(_THINK_NS, self._produce, client, self._processes, slot)

    def _produce(self, client: SimClient, process: int, slot: int) -> None:
        if not self.running:
            return
        number = self.sent
        self.sent += 1
        self.busy += 1
        partition = (number + slot) % self.options.partitions
        value = f"p{process}#{number}"
        now_ms = self.world.now // NANOS_PER_MILLI
        self.history.invoke(
            process, "send", time_ns=self.world.now, key=f"{TOPIC}/{partition}", value=value
        )
        stamp = WallMillis(WALL_START_MS + now_ms)
        record = Produce(TOPIC, value.encode(), None, (), partition, stamp)
        client.call(record, partial(self._produced, client, process, slot, value))

    def _produced(
        self, client: SimClient, process: int, slot: int, value: str, outcome: Any
    ) -> None:
        self.busy -= 1
        now = self.world.now
        if isinstance(outcome, RecordPosition):
            self.acknowledged[(outcome.partition, outcome.offset)] = value
            self.history.complete(process, "ok", time_ns=now, value=[outcome.offset, value])
        elif isinstance(outcome, KafkaError | NotDone):
            self.history.complete(process, "fail", time_ns=now, error=str(outcome))
        else:
            assert isinstance(outcome, RaftlogError), outcome
            self.unknown += 1
            self.history.complete(process, "info", time_ns=now, error=str(outcome))
            self._new_producer(slot)
            return
        self.world.after(_THINK_NS, self._produce, client, process, slot)

    # --- reading
    # ------------------------------------------------------------------------------------

    def _read_soon(self) -> None:
        self.world.after(_READ_NS, self._read, self._next_partition())

    def _next_partition(self) -> int:
        lowest = min(self._positions.values())
        return next(number for number, at in self._positions.items() if at == lowest)

    def _read(self, partition: int) -> None:
        if self.running:
            self.fetch(READER, partition, self._positions[partition], self._got)

    def fetch(self, process: int, partition: int, offset: int, then: Any) -> None:
        """Fetch once, write it down; `then(partition, next_offset or None)`."""
        self.busy += 1
        asked = {f"{TOPIC}/{partition}": offset}
        self.history.invoke(process, "poll", time_ns=self.world.now, value=asked)
        place = TopicPartition(TOPIC, partition)
        call = asks.fetch(place, Offset(offset), max_wait_ms=20)
        self._reader.call(call, partial(self._fetched, process, partition, offset, then))

    def _fetched(self, process: int, partition: int, offset: int, then: Any, outcome: Any) -> None:
        self.busy -= 1
        now = self.world.now
        if not isinstance(outcome, FetchedBatches):
            self.history.complete(process, "fail", time_ns=now, error=str(outcome))
            then(partition, None)
            return
        pairs = [[record.offset, (record.value or b"").decode()] for record in outcome.records()]
        got = {f"{TOPIC}/{partition}": pairs} if pairs else {}
        self.history.complete(process, "ok", time_ns=now, value=got)
        then(partition, outcome.next_offset if pairs else offset)

    def _got(self, partition: int, next_offset: int | None) -> None:
        if next_offset is not None:
            self._positions[partition] = next_offset
        if self.running:
            self.world.after(_READ_NS, self._read, (partition + 1) % self.options.partitions)

    # --- in the end
    # ---------------------------------------------------------------------------------

    def read_everything(self) -> Iterator[tuple[int, int]]:
        """Partitions and the offsets from which a last reader has to read them."""
        yield from ((number, 0) for number in range(self.options.partitions))
