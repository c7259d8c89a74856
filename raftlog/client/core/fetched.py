"""The result of a fetch: whole batches, checked before they are given out.

Checked: each batch's length against what is left, magic, CRC-32C, that offsets ascend without going
back below the fetch offset. A batch that is cut off at the end is dropped (Kafka's brokers cut at
the byte limit; ours do not). The records inside a batch are checked when they are read: a broker
passes on what a producer wrote.
"""

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple, final

from raftlog.base.amounts import amount
from raftlog.base.errors import CorruptData, ProtocolError
from raftlog.base.ids import Offset
from raftlog.base.limits import BATCH_HEADER_BYTES
from raftlog.client.core.errors import LogTruncated
from raftlog.client.core.values import ConsumedRecord, TopicPartition
from raftlog.kafka.messages.fetch import PartitionData
from raftlog.records.batch import CONTROL, LENGTH_OVERHEAD, MAGIC, crc_matches, read_header
from raftlog.records.record import records_of

_LENGTH: Final = struct.Struct(">i")
_LENGTH_AT: Final = 8


@final
class CorruptBatch(CorruptData):
    """A batch cannot be read: its checksum or its content is wrong. Its offsets are `first` to
    `next_offset` - 1. To go on after it, `seek` to `next_offset`."""

    def __init__(
        self, place: TopicPartition, first: Offset, next_offset: Offset, cause: str
    ) -> None:
        last = next_offset - 1
        where = f"offset {first}" if last == first else f"offsets {first} to {last}"
        super().__init__(
            f"the batch of {where} cannot be read: {cause}",
            on=str(place),
            do=f"seek to offset {next_offset} to go on behind it",
        )
        self.place = place
        self.first = first
        self.next_offset = next_offset


class FetchedBatches(NamedTuple):
    """Whole batches of one partition, checked, from the fetch offset on. `next_offset` is where the
    next fetch begins; records below `first_offset`, the offset asked for, have to be dropped."""

    place: TopicPartition
    first_offset: Offset
    next_offset: Offset
    high_watermark: Offset
    log_start: Offset
    last_epoch: int
    """The leader epoch of the last batch; -1 when there is none."""
    batches: tuple[memoryview, ...]
    aborted: tuple[tuple[int, int], ...] = ()
    """Producer id and first offset of each aborted transaction in this range, when asked for."""

    @property
    def size(self) -> int:
        """The size of all batches in bytes."""
        return sum(len(batch) for batch in self.batches)

    def records(self) -> Iterator[ConsumedRecord]:
        """The records, in order, without those below the offset asked for and without control
        batches. Raises `CorruptBatch` at a batch whose content is wrong; the records before it are
        good."""
        for batch in self.batches:
            yield from self.records_of(batch)

    def records_of(self, batch: memoryview) -> Iterator[ConsumedRecord]:
        """The records of one of the batches, with the same rules as `records`."""
        place, first, header = self.place, self.first_offset, read_header(batch)
        if header.attributes & CONTROL:
            return
        try:
            for record in records_of(batch, CorruptData, str(place)):
                if record.offset >= first:
                    yield ConsumedRecord.of(place, record)
        except CorruptData as error:
            begin, end = Offset(header.base_offset), Offset(header.next_offset)
            raise CorruptBatch(place, begin, end, error.what) from error


def check_batches(place: TopicPartition, asked: Offset, data: PartitionData) -> FetchedBatches:
    """The batches of an answer without an error. `CorruptData` for what fails its checksum,
    `ProtocolError` for what is no batch at this place, `LogTruncated` for a diverging epoch."""
    if data.diverging_epoch.epoch >= 0:
        raise LogTruncated(
            f"the log has ended epoch {data.diverging_epoch.epoch} at offset "
            f"{data.diverging_epoch.end_offset}, before what was read",
            on=str(place),
            do="seek, knowing that records were lost",
        )
    batches: list[memoryview] = []
    next_offset, epoch = asked, -1
    for batch in _whole_batches(place, data.records):
        header = read_header(batch)
        if header.magic != MAGIC:
            raise ProtocolError(f"batch of magic {header.magic}", on=str(place))
        if not crc_matches(batch, header):
            if batches:
                break  # the batches before it are good; the next fetch begins with the damaged one
            # The damage may be in the header. Its next offset is used only if it lies ahead, so
            # that a seek there always makes progress.
            end = Offset(max(header.next_offset, next_offset + 1))
            raise CorruptBatch(place, next_offset, end, "it fails its CRC")
        if header.next_offset <= next_offset or (batches and header.base_offset < next_offset):
            raise ProtocolError(
                f"batch {header.base_offset} to {header.next_offset} where {next_offset} was due",
                on=str(place),
            )
        next_offset, epoch = Offset(header.next_offset), header.leader_epoch
        batches.append(batch)
    return FetchedBatches(
        place,
        asked,
        next_offset,
        Offset(data.high_watermark),
        Offset(data.log_start_offset),
        epoch,
        tuple(batches),
        tuple((each.producer_id, each.first_offset) for each in data.aborted_transactions or ()),
    )


def _whole_batches(place: TopicPartition, records: object) -> Iterator[memoryview]:
    if records is None:
        return
    assert isinstance(records, memoryview | bytes | bytearray), type(records)
    view = memoryview(records)
    position = 0
    while len(view) - position >= BATCH_HEADER_BYTES:
        size = int(_LENGTH.unpack_from(view, position + _LENGTH_AT)[0]) + LENGTH_OVERHEAD
        if size < BATCH_HEADER_BYTES:
            raise ProtocolError(f"batch says {amount(size, 'byte')}", on=str(place))
        if size > len(view) - position:
            break
        yield view[position : position + size]
        position += size
    if position == 0 and len(view) > 0:
        raise ProtocolError(
            f"{amount(len(view), 'byte')} without a whole batch",
            on=str(place),
            do="fetch more bytes",
        )
