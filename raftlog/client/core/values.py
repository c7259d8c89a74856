"""The values that go into the client's core and come out of it: events, effects, options, results.

Events and effects are plain tuples. A driver performs effects in order and reports events; it
decides nothing. Time is given in integer nanoseconds with every call.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Final, NamedTuple, final

import attrs

from raftlog.base.arguments import between, check
from raftlog.base.binary import Buffer
from raftlog.base.errors import WrongValue
from raftlog.base.ids import NodeId, Offset
from raftlog.base.limits import BATCH_BYTES_MAX, BATCH_HEADER_BYTES, INT32_MAX, INT64_MAX
from raftlog.base.units import KIB, MIB, NEVER, Instant, Nanos, WallMillis, millis
from raftlog.client.core.arguments import PartitionIndex, TopicName
from raftlog.kafka.shape import Part
from raftlog.records.record import Record, RecordHeader

CallId = int
DialId = int


class TopicPartition(NamedTuple):
    """A partition, named by topic and number."""

    topic: TopicName
    partition: PartitionIndex

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


# --- events ---------------------------------------------------------------------------------------


class Connected(NamedTuple):
    """An event: the connection that a `Dial` asked for is open."""

    dial: DialId


class Disconnected(NamedTuple):
    """An event: the connection is gone, or could not be opened."""

    dial: DialId
    why: str


class Frame(NamedTuple):
    """An event: one whole answer frame, without its length. The core may keep its memory."""

    dial: DialId
    frame: Buffer


Event = Connected | Disconnected | Frame

# --- effects --------------------------------------------------------------------------------------


class Dial(NamedTuple):
    """Open a connection and report `Connected` or `Disconnected` for it."""

    dial: DialId
    host: str
    port: int


class Send(NamedTuple):
    """Send these parts, in order, on a connection."""

    dial: DialId
    parts: Sequence[Part]


class Disconnect(NamedTuple):
    """Close a connection. The driver then reports nothing more for it."""

    dial: DialId


class Complete(NamedTuple):
    """A call is done; `value` is its result or a `RaftlogError`."""

    call: CallId
    value: Any


class Settled(NamedTuple):
    """All records of a batch (`batches.PendingBatch`) are acknowledged, or given up."""

    batch: Any


Effect = Dial | Send | Disconnect | Complete | Settled


@final
@attrs.define(eq=False)
class ClientEffects:
    """The actions of one turn of the core, to perform in order. Call `handle` again by
    `wake_at`."""

    actions: list[Effect] = attrs.Factory(list)
    wake_at: Instant = NEVER


@final
@attrs.define(eq=False)
class ClientTurn:
    """The instant of the present turn, which all parts of the core share."""

    now: Instant = Instant(0)


# --- results --------------------------------------------------------------------------------------


class RecordPosition(NamedTuple):
    """The place of an acknowledged record in the log. The offset is -1 with acks=0, which
    acknowledges nothing."""

    topic: str
    partition: int
    offset: Offset
    timestamp_ms: WallMillis


class ConsumedRecord(NamedTuple):
    """A record as consumers get it. Field names are kafka-python's where it has them."""

    topic: str
    partition: int
    offset: Offset
    timestamp_ms: WallMillis
    key: bytes | None
    value: bytes | None
    headers: tuple[RecordHeader, ...]

    @classmethod
    def of(cls, place: TopicPartition, record: Record) -> "ConsumedRecord":
        """Make a `ConsumedRecord` of a partition from a decoded record."""
        return cls(
            place.topic,
            place.partition,
            record.offset,
            record.timestamp_ms,
            record.key,
            record.value,
            record.headers,
        )


# --- options --------------------------------------------------------------------------------------

ANY_NODE: Final = NodeId(-1)
RECORD_BYTES_DEFAULT: Final = 32 * MIB - 64 * KIB
"""The default of `record_bytes`: with the request around it, it fits into the default of
`socket.request.max.bytes`."""


@final
@attrs.frozen(kw_only=True)
class ClientOptions:
    """How a client behaves. Names follow Kafka's client settings; times are nanoseconds."""

    bootstrap: tuple[tuple[str, int], ...]
    client_id: str = "raftlog"
    acks: int = -1
    idempotent: bool = True
    """Write each record to the log at most once, even after retries; needs acks=-1."""
    linger_ns: Nanos = millis(0)
    """How long a record may wait for more records of its batch. While a partition has batches in
    flight, records gather anyway."""
    batch_bytes: int = 256 * KIB
    request_bytes: int = MIB
    record_bytes: int = RECORD_BYTES_DEFAULT
    """The largest record that is sent. Brokers hang up on a request beyond their
    `socket.request.max.bytes`, so raise both together."""
    buffer_bytes: int = 64 * MIB
    """The bytes of all records not yet acknowledged. Beyond it `send` is refused until some are
    acknowledged."""
    in_flight_per_partition: int = 5
    """How many batches of a partition may be in flight. At most five: a broker remembers five
    batches of an idempotent producer, and could not recognise a repeat of an older one."""
    compression: int = 0
    delivery_timeout_ns: Nanos = millis(120_000)
    request_timeout_ns: Nanos = millis(30_000)
    call_timeout_ns: Nanos = millis(30_000)
    """How long a call may take in all, if it has no shorter timeout of its own."""
    connect_timeout_ns: Nanos = millis(10_000)
    retry_backoff_ns: Nanos = millis(20)
    retry_backoff_max_ns: Nanos = millis(1_000)
    metadata_retry_ns: Nanos = millis(50)
    """The time between metadata requests while a leader or a topic is missing."""
    suspect_ns: Nanos = millis(500)
    """A broker that has owed an answer for longer gets no requests that others can answer. The
    client hangs up on it when another broker leads a partition that it was asked about."""
    topic_wait_ns: Nanos = millis(3_000)
    """How long a call waits for a topic that does not exist: it may have been created just now."""
    auto_create: bool = False
    """Let metadata requests create topics that do not exist, if the brokers allow it."""
    metadata_max_age_ns: Nanos = millis(300_000)
    fetch_wait_ms: int = 500
    fetch_min_bytes: int = 1
    fetch_bytes: int = 8 * MIB
    fetch_partition_bytes: int = MIB
    buffered_bytes: int = 32 * MIB
    """The bytes of all batches that are fetched and not yet polled."""

    def __attrs_post_init__(self) -> None:
        check("bootstrap", self.bootstrap, tuple[tuple[str, int], ...])
        if not self.bootstrap:
            raise WrongValue("bootstrap must name at least one broker", do="host:port")
        for field in attrs.fields(ClientOptions):
            if field.name != "bootstrap":
                check(field.name, getattr(self, field.name), _option(field.name, field.default))
        if self.idempotent and self.acks != -1:
            raise WrongValue("idempotent must be False unless acks is -1")


_RANGES: Final = {
    "acks": (-1, 1),
    "in_flight_per_partition": (1, 5),
    "compression": (0, 4),
    "record_bytes": (1, BATCH_BYTES_MAX - BATCH_HEADER_BYTES),
    "linger_ns": (0, INT64_MAX // 4),
    "retry_backoff_ns": (1, INT64_MAX // 4),
}


def _option(name: str, default: Any) -> Any:
    """The rule for an option: it has the type of its default, and a number is also within its
    range."""
    if type(default) is not int:
        return type(default)
    usual = (1, INT64_MAX // 4) if name.endswith("_ns") else (0, INT32_MAX)
    return Annotated[int, between(*_RANGES.get(name, usual))]


class Moving(NamedTuple):
    """A partition that is being moved to other brokers: all its replicas, those being added, and
    those being removed."""

    replicas: tuple[NodeId, ...]
    adding: tuple[NodeId, ...]
    removing: tuple[NodeId, ...]
