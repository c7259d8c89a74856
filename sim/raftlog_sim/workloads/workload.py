"""The clients of a world: they produce, read, and in the end read everything; the history has it
all.

The schedule says what they send and read, and when. Producers use the product's own client,
idempotent, with one record in flight each, so that the order of each process means something. A
producer that heard no answer is retired and replaced, as the history's rules demand. `pipelines`
has producers that do not wait.
"""

import io
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, final

import attrs

from raftlog.base.errors import RaftlogError
from raftlog.base.ids import Offset
from raftlog.base.units import NANOS_PER_MILLI, WallMillis, millis
from raftlog.client.core import asks
from raftlog.client.core.calls import Call, Produce
from raftlog.client.core.errors import KafkaError, NotDone, OutcomeUnknown
from raftlog.client.core.fetched import FetchedBatches
from raftlog.client.core.values import (
    RecordPosition,
    TopicPartition,
)
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.messages.init_producer_id import InitProducerIdRequest
from raftlog.kafka.versions import ApiKey
from raftlog.verify import Header, HistoryWriter
from raftlog_sim.facts.targets import log_start_of, resolve
from raftlog_sim.schedules.options import SEGMENT_BYTES, SimOptions
from raftlog_sim.schedules.schedule import Step
from raftlog_sim.schedules.step_kinds import OF_MEMBERS
from raftlog_sim.workloads.callers import TOPIC, Caller, client_options
from raftlog_sim.workloads.pipelines import Pipelines
from raftlog_sim.world.client import HeapClient
from raftlog_sim.world.clock import WALL_START_MS

if TYPE_CHECKING:
    from raftlog_sim.world.world import World

READER: Final = 1_000_000
READERS: Final = 3
_CONSISTENCY: Final = {False: "committed", True: "linearizable"}
WAITING_MAX: Final = 1_000
"""How many records a producer keeps for later; a step that asks for more gets no more."""
_GENERATIONS: Final = 1_000
_LARGE_VALUE_BYTES: Final = 1_000
"""The size from which a batch holds one record only, since it must fit a small segment."""


def _names(world: "World") -> Any:
    return tuple(f"n{number}" for number in sorted(world.nodes))


def _padded(value: str, size: int) -> bytes:
    """Returns the padded value; the history has it without the padding."""
    return value.encode() + b"~".ljust(max(0, size - len(value)), b".") if size else value.encode()


def plain(value: Any) -> str:
    """Returns a value without its padding."""
    return bytes(value or b"").partition(b"~")[0].decode()


def is_certain(outcome: Any) -> bool:
    """Whether a producer that heard this knows whether its record is stored."""
    return isinstance(outcome, RecordPosition | KafkaError | NotDone)


class Asking(Protocol):
    """Performs the steps that ask for offsets."""

    def ask(self, partition: int, what: str, back: int) -> None:
        """Ask for one offset of a partition."""
        ...


class OfMembers(Protocol):
    """Performs the steps of members of groups."""

    def perform(self, step: Step) -> None:
        """Perform a step of the schedule."""
        ...


@final
@attrs.define(eq=False)
class _Producer:
    """One slot: its records to send, one in flight at most. After a send with an unknown outcome
    the next process takes the slot."""

    slot: int
    waiting: deque[int] = attrs.Factory(deque)
    """The partition of each waiting record."""
    generation: int = 0
    client: Caller | None = None
    numbered: int = 0
    busy: bool = False

    @property
    def process(self) -> int:
        """The number of its process in the history."""
        return self.slot * _GENERATIONS + self.generation


@final
@attrs.define(eq=False)
class _Reader:
    """Polls one partition at a time, from its last position."""

    process: int
    client: Caller
    positions: dict[int, int] = attrs.Factory(dict)
    polls: int = 0
    busy: bool = False


@final
@attrs.define(eq=False)
class SimWorkload:
    """All clients of a world. `acknowledged` maps (partition, offset) to the value acknowledged."""

    world: "World"
    options: SimOptions
    shrinks: bool = False
    """Whether logs lose their beginnings during the run."""
    text: io.StringIO = attrs.Factory(io.StringIO)
    history: HistoryWriter = attrs.field(init=False)
    acknowledged: dict[tuple[int, int], str] = attrs.Factory(dict)
    on_acknowledged: Callable[[int, int], None] | None = None
    """Called with partition and offset of every record that a producer knows to be stored."""
    on_read: Callable[[int, int, int], None] | None = None
    """Called for each answered fetch with the partition, the offset after everything that was
    acknowledged when it began, and the high watermark in the answer."""
    questions: Asking | None = None
    members: OfMembers | None = None
    """Members of groups that share the topic; None without any."""
    stored: dict[int, int] = attrs.Factory(dict)
    """The offset after the last acknowledged record, by partition."""
    sent: int = 0
    unknown: int = 0
    running: bool = False
    busy: int = 0
    _producers: dict[int, _Producer] = attrs.Factory(dict)
    _reader: Caller = attrs.field(init=False)
    _readers: list[_Reader] = attrs.Factory(list)
    _pipelines: Pipelines = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        header = Header(
            source="sim",
            seed=self.options.seed,
            options={"consumer": "assign"} | ({} if self.shrinks else {"retention": "none"}),
            nodes=_names(self.world),
        )
        self.history = HistoryWriter(self.text, header)
        self._reader = self.client("reader")
        self._readers = [
            _Reader(READER + number, self.client(f"reader/{number}")) for number in range(READERS)
        ]
        size = self.options.value_bytes
        records_max = 3 if size < _LARGE_VALUE_BYTES else 1
        self._pipelines = Pipelines(self, records_max, _padded, size, self._timestamp, TOPIC)

    def client(self, name: str) -> Caller:
        """One more client of the world."""
        return self.world.client(name, client_options(self.world, name))

    # --- setting up -------------------------------------------------------------------------------

    def create_topic(self, then: Any) -> None:
        """Create the topic; ask again while it is unknown whether that was done (seed 6502585)."""
        configs = {
            "min.insync.replicas": str(self.options.min_in_sync),
            "segment.bytes": str(max(self.options.segment_bytes, SEGMENT_BYTES)),
            "retention.bytes": str(self.options.retention_bytes or -1),
            "retention.ms": str(self.options.retention_ms or -1),
            "raftlog.read.consistency": _CONSISTENCY[self.options.linearizable],
        }
        topic = asks.new_topic(
            TOPIC, self.options.partitions, self.options.replication, configs=configs
        )
        self._create(asks.create_topics([topic]), then)

    def _create(self, call: Call, then: Any, *, again: bool = False) -> None:
        def heard(outcome: Any) -> None:
            if isinstance(outcome, OutcomeUnknown):
                self._create(call, then, again=True)
            elif again and not isinstance(outcome, Exception):
                exists = ErrorCode.TOPIC_ALREADY_EXISTS
                then([result for result in outcome if result.error_code != exists])
            else:
                then(outcome)

        self._reader.call(call, heard)

    def administer(self, call: Call, tries: int = 1) -> None:
        """Perform an operation of an administrator, with some tries.

        The run ends only after it, whatever its outcome.
        """
        self.busy += 1
        self._reader.call(call, partial(self._administered, call, tries - 1))

    def _administered(self, call: Call, tries: int, outcome: Any) -> None:
        self.busy -= 1
        if tries and isinstance(outcome, Exception):
            self.administer(call, tries)

    def start(self) -> None:
        """Let steps do something from here on, until `stop`."""
        self.running = True

    def stop(self) -> None:
        """Begin nothing new."""
        self.running = False

    def perform(self, step: Step) -> None:
        """Perform a step of the schedule; do nothing for a partition that does not exist."""
        if step.kind == "flood":
            self._flood(step)
            return
        if step.kind == "ask-id":
            self._ask_id(step)
            return
        if step.kind in OF_MEMBERS:
            if self.running and self.members is not None:
                self.members.perform(step)
            return
        partition = int(step.argument("partition"))
        if not self.running or partition >= self.options.partitions:
            return
        if step.kind == "read":
            self._read(partition)
            return
        if step.kind == "reads":
            self._repeat(step, self._read, partition)
            return
        if step.kind == "ask":
            assert self.questions is not None, "nobody is there to ask"
            what, back = str(step.argument("what")), int(step.argument("back"))
            self.questions.ask(partition, what, back)
            return
        slot, count = int(step.argument("slot")), int(step.argument("count"))
        if step.kind == "produce":
            self._enqueue(slot, partition, count)
        elif step.kind == "load":
            self._repeat(step, self._enqueue, slot, partition, 1)
        else:
            self._pipelines.send(slot, partition, count, str(step.argument("acks")))

    def _repeat(self, step: Step, action: Callable[..., None], *arguments: int) -> None:
        every_ns = millis(int(step.argument("every_ms")))
        for number in range(int(step.argument("count"))):
            self.world.after(number * every_ns, action, *arguments)

    def _flood(self, step: Step) -> None:
        for number in resolve(self.world, str(step.argument("node")), TOPIC):
            if self.running:
                self.world.flood(number, int(step.argument("count")), millis(step.for_ms))

    def _ask_id(self, step: Step) -> None:
        """Let a client ask a broker for a producer id, and keep its connection until it has one.

        Unlike all others it has no timeout, so the run cannot end while the broker owes the answer.
        """
        for number in resolve(self.world, str(step.argument("node")), TOPIC):
            node = self.world.nodes[number]
            if self.running and node.up and not self.options.trio:
                body = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
                HeapClient(node).connect().request(ApiKey.INIT_PRODUCER_ID, body)

    def _read(self, partition: int) -> None:
        """Let the reader poll that has rested longest; none polls when all are waiting."""
        if not self.running:
            return
        idle = [reader for reader in self._readers if not reader.busy]
        if not idle:
            return
        reader = min(idle, key=lambda each: each.polls)
        reader.busy, reader.polls = True, reader.polls + 1
        position = reader.positions.get(partition, 0)
        self._poll(reader.client, reader.process, partition, position, partial(self._got, reader))

    # --- producing --------------------------------------------------------------------------------

    def _enqueue(self, slot: int, partition: int, count: int) -> None:
        if not self.running:
            return
        producer = self._producers.setdefault(slot, _Producer(slot))
        room = WAITING_MAX - len(producer.waiting)
        producer.waiting.extend([partition] * min(count, room))
        if not producer.busy:
            self._produce(producer)

    def _produce(self, producer: _Producer) -> None:
        if not (self.running and producer.waiting):
            return
        if producer.client is None:
            name = f"producer/{producer.slot}/{producer.generation}"
            producer.client = self.client(name)
        producer.busy = True
        partition, process = producer.waiting.popleft(), producer.process
        value = f"p{process}#{producer.numbered}"
        producer.numbered += 1
        self.send(producer.client, process, partition, value, partial(self._produced, producer))

    def _produced(self, producer: _Producer, outcome: RecordPosition | RaftlogError) -> None:
        if not is_certain(outcome):
            producer.generation += 1
            producer.client = None
        producer.busy = False
        self._produce(producer)

    def send(
        self, client: Caller, process: int, partition: int, value: str, then: Callable[[Any], None]
    ) -> None:
        """Let the client send one record.

        `then` hears the outcome, a `RecordPosition` or an error, after it is written down.
        """
        self.busy += 1
        self.begin(process, partition, value)
        padded = _padded(value, self.options.value_bytes)
        record = Produce(TOPIC, padded, None, (), partition, self._timestamp())
        client.call(record, partial(self._ended, process, value, then))

    def _timestamp(self) -> WallMillis:
        return WallMillis(WALL_START_MS + self.world.now // NANOS_PER_MILLI)

    def _ended(self, process: int, value: str, then: Callable[[Any], None], outcome: Any) -> None:
        self.busy -= 1
        if isinstance(outcome, RecordPosition):
            self.ok(process, outcome.partition, outcome.offset, value)
        elif is_certain(outcome):
            self.failed(process, outcome)
        else:
            assert isinstance(outcome, RaftlogError), outcome
            self.unclear(process, outcome)
        then(outcome)

    # --- the history of a record ------------------------------------------------------------------

    def begin(self, process: int, partition: int, value: str) -> None:
        """Note that a record is about to be sent."""
        self.sent += 1
        self.history.invoke(
            process, "send", time_ns=self.world.now, key=f"{TOPIC}/{partition}", value=value
        )

    def ok(self, process: int, partition: int, offset: int, value: str) -> None:
        """Note that its producer knows where it lies."""
        self.acknowledged[(partition, offset)] = value
        self.stored[partition] = max(offset + 1, self.stored.get(partition, 0))
        if self.on_acknowledged is not None:
            self.on_acknowledged(partition, offset)
        self.history.complete(process, "ok", time_ns=self.world.now, value=[offset, value])

    def failed(self, process: int, error: RaftlogError) -> None:
        """Note that it is certainly not stored."""
        self.history.complete(process, "fail", time_ns=self.world.now, error=str(error))

    def unclear(self, process: int, error: RaftlogError) -> None:
        """Note that it may be stored or not; the process is not used again."""
        self.unknown += 1
        self.history.complete(process, "info", time_ns=self.world.now, error=str(error))

    # --- reading ----------------------------------------------------------------------------------

    def fetch(self, process: int, partition: int, offset: int, then: Any) -> None:
        """Fetch once and write it down; then call `then(partition, next_offset or None)`."""
        self._poll(self._reader, process, partition, offset, then)

    def _poll(self, client: Caller, process: int, partition: int, offset: int, then: Any) -> None:
        self.busy += 1
        asked = {f"{TOPIC}/{partition}": offset}
        self.history.invoke(process, "poll", time_ns=self.world.now, value=asked)
        place = TopicPartition(TOPIC, partition)
        call = asks.fetch(place, Offset(offset), max_wait_ms=20)
        floor = self.stored.get(partition, 0)
        client.call(call, partial(self._fetched, process, partition, offset, then, floor))

    def _fetched(
        self, process: int, partition: int, offset: int, then: Any, floor: int, outcome: Any
    ) -> None:
        self.busy -= 1
        now = self.world.now
        if not isinstance(outcome, FetchedBatches):
            self.history.complete(process, "fail", time_ns=now, error=str(outcome))
            gone = isinstance(outcome, KafkaError) and outcome.code == ErrorCode.OFFSET_OUT_OF_RANGE
            then(partition, log_start_of(self.world, TOPIC, partition) if gone else None)
            return
        if self.on_read is not None:
            self.on_read(partition, floor, outcome.high_watermark)
        pairs = [[record.offset, plain(record.value)] for record in outcome.records()]
        got = {f"{TOPIC}/{partition}": pairs} if pairs else {}
        starts = {f"{TOPIC}/{partition}": int(outcome.log_start)}
        more = {"log_start": starts} if self.shrinks else {}
        self.history.complete(process, "ok", time_ns=now, value=got, **more)
        then(partition, outcome.next_offset if pairs else offset)

    def _got(self, reader: _Reader, partition: int, next_offset: int | None) -> None:
        reader.busy = False
        if next_offset is not None:
            reader.positions[partition] = next_offset

    # --- in the end -------------------------------------------------------------------------------

    def read_everything(self) -> Iterator[tuple[int, int]]:
        """Yields partitions and the offsets from which a last reader must read them."""
        yield from ((number, 0) for number in range(self.options.partitions))
