"""Walks a segment's batches and verifies each; all readers of stored batches go through it.

A batch is good when all of this holds:

* its length stays inside the file, and its CRC and magic are right;
* its base offset continues the log;
* its term is the one in force, or it is a term start and begins a higher one;
* a raft entry says its own group, term and index;
* the chain over the headers arrives at the value known for the next checkpoint: a point of the
  sparse index, the next file's header, or a mark.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple, final

from raftlog.base.binary import Buffer
from raftlog.base.checksum import crc32c
from raftlog.base.entries import Entry, EntryKind
from raftlog.base.errors import CorruptData
from raftlog.base.ids import Chain, GroupId, Offset, RaftIndex, Term
from raftlog.base.limits import (
    BATCH_BYTES_MAX,
    BATCH_HEADER_BYTES,
    SEGMENT_HEADER_BYTES,
    WALK_CHUNK_BYTES,
)
from raftlog.base.ports import DiskFile
from raftlog.base.probes import probe
from raftlog.records.batch import CRC_FROM, BatchHeader, entry_of, read_header
from raftlog.records.chain import chain_next
from raftlog.records.control import ControlEntry, parse_control_entry
from raftlog.storage.segments.segment_header import SegmentHeader

TERM_BEGINNERS: Final = (EntryKind.TERM_START, EntryKind.FORCED_RECOVERY)


class WalkPlace(NamedTuple):
    """The position of a walk: before the entry `raft_index`, in the term of the entry before it."""

    raft_index: RaftIndex
    offset: Offset
    position: int
    chain: Chain
    term: Term


class WalkedBatch(NamedTuple):
    """A good batch. `batch` is a view into a read buffer: copy what is to be kept."""

    before: WalkPlace
    header: BatchHeader
    entry: Entry
    control: ControlEntry | None


@final
class Walk:
    """Iterate `batches()`; afterwards `place` is the end of the good batches.

    `fault` says why the walk stopped there. It is None when the walk reached what the caller asked
    for or the exact end of the file.
    """

    __slots__ = ("_file", "_group", "_size", "_term_max", "fault", "on", "place")

    def __init__(
        self,
        file: DiskFile,
        start: WalkPlace,
        group: GroupId,
        on: str,
        term_max: Term | None = None,
    ) -> None:
        self._file = file
        self._group = group
        self._term_max = term_max
        self._size = file.size()
        self.place = start
        self.fault: str | None = None
        self.on = on

    def batches(
        self, stop_index: RaftIndex | None = None, stop_position: int | None = None
    ) -> Iterator[WalkedBatch]:
        """The good batches below the index `stop_index` that begin before `stop_position`."""
        chunk = memoryview(b"")
        chunk_from = self.place.position
        while not self._done(stop_index, stop_position):
            at = self.place.position - chunk_from
            # At most two reads: the first may end in the header, and only the header tells the
            # length of the batch, which may be longer than a chunk.
            while (wanted := self._wanted(chunk[at:])) > len(chunk) - at:
                chunk_from, at = self.place.position, 0
                chunk = memoryview(self._file.read_at(chunk_from, max(wanted, WALK_CHUNK_BYTES)))
                if wanted > len(chunk):
                    self.fault = f"batch of {wanted} bytes, {len(chunk)} are left"
                    return
            walked = self._judge(chunk[at : at + wanted])
            if walked is None:
                return
            yield walked

    def check(self, raft_index: RaftIndex, chain: Chain, position: int | None, what: str) -> bool:
        """Whether the walk stands at this checkpoint; sets `fault` when it does not."""
        place = self.place
        if place.raft_index != raft_index:
            self.fault = f"entries end before {place.raft_index}, {what} says {raft_index}"
        elif place.chain != chain:
            probe("chain-refused-on-disk")
            self.fault = f"chain before {raft_index} is {place.chain:016x}, {what}: {chain:016x}"
        elif position is not None and place.position != position:
            self.fault = f"entry {raft_index} lies at {place.position}, {what} says {position}"
        else:
            return True
        return False

    def _done(self, stop_index: RaftIndex | None, stop_position: int | None) -> bool:
        place = self.place
        if stop_index is not None and place.raft_index >= stop_index:
            return True
        end = self._size if stop_position is None else min(stop_position, self._size)
        return place.position >= end

    def _wanted(self, view: memoryview) -> int:
        """The bytes of the batch that begins the view, as far as its length can be believed."""
        if len(view) < BATCH_HEADER_BYTES:
            return BATCH_HEADER_BYTES
        size = read_header(view).size
        return size if BATCH_HEADER_BYTES <= size <= BATCH_BYTES_MAX else BATCH_HEADER_BYTES

    def _judge(self, batch: memoryview) -> WalkedBatch | None:
        before = self.place
        header = read_header(batch)
        try:
            self.fault = self._fault_of(batch, header)
            if self.fault is not None:
                return None
            entry = entry_of(before.raft_index, batch, CorruptData, self.on)
            control = self._control_of(batch, header)
        except CorruptData as damage:
            self.fault = damage.what
            return None
        if entry.term != before.term and entry.kind not in TERM_BEGINNERS:
            self.fault = f"term {entry.term} after {before.term} without a term start"
            return None
        self.place = WalkPlace(
            RaftIndex(before.raft_index + 1),
            entry.next_offset,
            before.position + len(batch),
            chain_next(before.chain, batch),
            entry.term,
        )
        return WalkedBatch(before, header, entry, control)

    def _fault_of(self, batch: Buffer, header: BatchHeader) -> str | None:
        if header.size != len(batch):
            return f"batch says {header.size} bytes"
        if header.base_offset != self.place.offset:
            return f"batch begins at offset {header.base_offset}, not {self.place.offset}"
        if header.leader_epoch < self.place.term:
            return f"batch of term {header.leader_epoch} after {self.place.term}"
        if self._term_max is not None and header.leader_epoch > self._term_max:
            return f"batch of term {header.leader_epoch}, and {self._term_max} follows"
        if crc32c(memoryview(batch)[CRC_FROM:]) != header.crc:
            return "batch fails its CRC"
        return None

    def _control_of(self, batch: Buffer, header: BatchHeader) -> ControlEntry | None:
        if not header.is_raft_entry:
            return None
        control = parse_control_entry(batch, CorruptData, self.on)
        told = (control.group, control.term, control.raft_index)
        if told != (self._group, header.leader_epoch, self.place.raft_index):
            raise CorruptData(f"raft entry says group, term, index {told}", on=self.on)
        return control


def segment_start(header: SegmentHeader) -> WalkPlace:
    """The place right after a segment's header."""
    return WalkPlace(
        header.first_index,
        header.base_offset,
        SEGMENT_HEADER_BYTES,
        header.chain_before,
        header.term_before,
    )
