"""What goes into the client's core and what comes out: events, effects, options, results.

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
    """One partition, by name."""

    topic: TopicName
    partition: PartitionIndex

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


# --- events ---------------------------------------------------------------------------------------


class Connected(NamedTuple):
    """The connection that a `Dial` asked for is there."""

    dial: DialId


class Disconnected(NamedTuple):
    """The connection is gone, or never came about."""

    dial: DialId
    why: str


class Frame(NamedTuple):
    """One whole answer frame, without its length; its memory is the core's to keep."""

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


class Hangup(NamedTuple):
    """Close a connection; nothing more is reported for it."""

    dial: DialId


class Complete(NamedTuple):
    """A call is done: its result, or a `RaftlogError`."""

    call: CallId
    value: Any


class Settled(NamedTuple):
    """All records of a batch (`batches.PendingBatch`) are acknowledged, or given up."""

    batch: Any


Effect = Dial | Send | Hangup | Complete | Settled


@final
@attrs.define(eq=False)
class Effects:
    """What one turn of the core wants done, in order. `wake_at`: call `handle` again by then."""

    actions: list[Effect] = attrs.Factory(list)
    wake_at: Instant = NEVER


@final
@attrs.define(eq=False)
class Turn:
    """The instant of the turn that is being taken; the parts of the core share it."""

    now: Instant = Instant(0)


# --- results --------------------------------------------------------------------------------------


class RecordPosition(NamedTuple):
    """Where an acknowledged record is. The offset is -1 with acks=0, which acknowledges nothing."""

    topic: str
    partition: int
    offset: Offset
    timestamp_ms: WallMillis


class ConsumedRecord(NamedTuple):
    """A record as consumers get it; kafka-python's field names where there are any."""

    topic: str
    partition: int
    offset: Offset
    timestamp_ms: WallMillis
    key: bytes | None
    value: bytes | None
    headers: tuple[RecordHeader, ...]

    @classmethod
    def of(cls, place: TopicPartition, record: Record) -> "ConsumedRecord":
        """The record as one of this partition."""
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
"""What fits, with the request around it, into the default of `socket.request.max.bytes`."""


@final
@attrs.frozen(kw_only=True)
class ClientOptions:
    """How a client behaves. Names follow Kafka's client settings; times are nanoseconds."""

    bootstrap: tuple[tuple[str, int], ...]
    client_id: str = "raftlog"
    acks: int = -1
    idempotent: bool = True
    """Each record lies in the log at most once, whatever is retried; needs acks=-1."""
    linger_ns: Nanos = millis(0)
    """How long a record may wait for company; a partition that is busy gathers without waiting."""
    batch_bytes: int = 256 * KIB
    request_bytes: int = MIB
    record_bytes: int = RECORD_BYTES_DEFAULT
    """The largest record that is sent. Brokers hang up on a request beyond their
    `socket.request.max.bytes`, so raise both together."""
    buffer_bytes: int = 64 * MIB
    """Records not yet acknowledged, in all; beyond it `send` is refused until some are."""
    in_flight_per_partition: int = 5
    """Brokers remember five batches of an idempotent producer; more could not be told apart."""
    compression: int = 0
    delivery_timeout_ns: Nanos = millis(120_000)
    request_timeout_ns: Nanos = millis(30_000)
    call_timeout_ns: Nanos = millis(30_000)
    """How long a call may take in all, if it does not ask for less."""
    connect_timeout_ns: Nanos = millis(10_000)
    retry_backoff_ns: Nanos = millis(20)
    retry_backoff_max_ns: Nanos = millis(1_000)
    metadata_retry_ns: Nanos = millis(50)
    """How often metadata is asked again while somebody misses a leader or a topic in it."""
    suspect_ns: Nanos = millis(500)
    """A broker that owes an answer for longer is not asked what others can answer, and is left
    when a partition that it was asked about has another leader."""
    topic_wait_ns: Nanos = millis(3_000)
    """How long a topic that does not exist is waited for: it may have been created just now."""
    auto_create: bool = False
    """Let metadata requests create topics that do not exist, as far as the brokers allow it."""
    metadata_max_age_ns: Nanos = millis(300_000)
    fetch_wait_ms: int = 500
    fetch_min_bytes: int = 1
    fetch_bytes: int = 8 * MIB
    fetch_partition_bytes: int = MIB
    buffered_bytes: int = 32 * MIB
    """Fetched and not yet polled, in all."""

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
    """What an option may be: of its default's type; a number also within its range."""
    if type(default) is not int:
        return type(default)
    usual = (1, INT64_MAX // 4) if name.endswith("_ns") else (0, INT32_MAX)
    return Annotated[int, between(*_RANGES.get(name, usual))]


class Moving(NamedTuple):
    """A partition on its way to other brokers: all that are concerned, those that are new to it,
    and those that it leaves."""

    replicas: tuple[NodeId, ...]
    adding: tuple[NodeId, ...]
    removing: tuple[NodeId, ...]
