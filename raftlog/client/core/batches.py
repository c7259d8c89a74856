"""A batch to be sent: it gathers records, gets its place in the producer's sequence, and is
settled.

Only one tuple is made per record: the sender holds (batch, index). The whole batch is settled at
once, by its base offset or by an error. The bytes are built when the batch is first sent, because
the CRC covers producer id and sequence. A retry sends the same bytes.
"""

import struct
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, final

import attrs

from raftlog.base.checksum import crc32c
from raftlog.base.errors import RaftlogError
from raftlog.base.ids import NodeId, Offset
from raftlog.base.limits import BATCH_HEADER_BYTES
from raftlog.base.units import Instant, WallMillis
from raftlog.client.core.connections import QueuedRequest
from raftlog.client.core.values import CallId, RecordPosition, TopicPartition
from raftlog.records.batch import CRC_FROM
from raftlog.records.builder import RecordBatchBuilder

Headers = Sequence[tuple[str, bytes | None]]
PendingRecord = tuple[WallMillis, bytes | None, bytes | None, Headers]
"""Timestamp, key, value, headers."""

SEQUENCES: Final = 2**31
"""Sequence numbers run from 0 to 2**31 - 1 and begin again at 0."""

_PRODUCER: Final = struct.Struct(">qhi")
_PRODUCER_AT: Final = 43
_CRC: Final = struct.Struct(">I")
_CRC_AT: Final = 17


class ProducerIdentity(NamedTuple):
    """An idempotent producer, as the cluster knows it."""

    producer_id: int
    epoch: int


@final
@attrs.define(eq=False)
class PendingBatch:
    """Records of one partition that are sent, retried and settled together.

    `settled` moves once, to True; then either `error` is set or `base_offset` is (-1 with acks=0,
    and for a duplicate whose place the broker has forgotten). `maybe_written`: some attempt ended
    without a certain answer. `watch` belongs to the driver.
    """

    place: TopicPartition
    opened_at: Instant
    deadline: Instant
    records: list[PendingRecord] = attrs.Factory(list)
    size: int = BATCH_HEADER_BYTES
    encoded: bytes | bytearray = b""
    base_sequence: int = -1
    flying: bool = False
    sent_to: NodeId = NodeId(-1)
    carrier: QueuedRequest | None = None
    """The request that carries the batch; None while none does."""
    attempts: int = 0
    maybe_written: bool = False
    last_error: RaftlogError | None = None
    settled: bool = False
    base_offset: Offset = Offset(-1)
    append_time_ms: WallMillis = WallMillis(-1)
    error: RaftlogError | None = None
    count: int = 0
    calls: list[tuple[CallId, int, WallMillis]] = attrs.Factory(list)
    watch: Any = None

    def add(
        self,
        timestamp_ms: WallMillis,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        size: int,
    ) -> int:
        """Append a record of at most `size` bytes; its index in the batch."""
        self.records.append((timestamp_ms, key, value, headers))
        self.size += size
        index = self.count
        self.count = index + 1
        return index

    def build(self, codec: int, identity: ProducerIdentity | None, sequence: int) -> None:
        """Build the bytes. If they exist already, only write another place in the sequence into
        them."""
        producer_id, epoch = identity if identity is not None else (-1, -1)
        self.base_sequence = sequence if identity is not None else -1
        if self.encoded:
            self.encoded = _restamped(self.encoded, producer_id, epoch, self.base_sequence)
            return
        builder = RecordBatchBuilder(
            codec=codec,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=self.base_sequence,
        )
        append = builder.append
        for timestamp_ms, key, value, headers in self.records:
            append(value, key=key, timestamp_ms=timestamp_ms, headers=headers)
        self.encoded = builder.build()
        self.records = []

    def succeed(self, base_offset: Offset, append_time_ms: WallMillis) -> None:
        """The batch is acknowledged."""
        assert not self.settled, self.place
        self.settled = True
        self.base_offset = base_offset
        self.append_time_ms = append_time_ms
        self.encoded = b""

    def fail(self, error: RaftlogError) -> None:
        """The batch is given up."""
        assert not self.settled, self.place
        self.settled = True
        self.error = error
        self.encoded = b""
        self.records = []

    def position(self, index: int, timestamp_ms: WallMillis) -> RecordPosition:
        """The position of a record in the log; raises the error of a batch that failed."""
        assert self.settled, "asked before the batch was settled"
        if self.error is not None:
            raise self.error
        offset = Offset(self.base_offset + index) if self.base_offset >= 0 else Offset(-1)
        stamp = self.append_time_ms if self.append_time_ms >= 0 else timestamp_ms
        return RecordPosition(self.place.topic, self.place.partition, offset, stamp)


class SentRecord(NamedTuple):
    """A handle of a record that was sent: its batch and its index there."""

    batch: PendingBatch
    at: int
    timestamp_ms: WallMillis

    @property
    def settled(self) -> bool:
        return self.batch.settled

    def position(self) -> RecordPosition:
        """The position of the record in the log, once its batch is settled; raises the batch's
        error."""
        return self.batch.position(self.at, self.timestamp_ms)


def _restamped(encoded: bytes | bytearray, producer_id: int, epoch: int, sequence: int) -> bytes:
    batch = bytearray(encoded)
    _PRODUCER.pack_into(batch, _PRODUCER_AT, producer_id, epoch, sequence)
    _CRC.pack_into(batch, _CRC_AT, crc32c(memoryview(batch)[CRC_FROM:]))
    return bytes(batch)
