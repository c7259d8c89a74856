"""The sparse index of one segment: exact places at intervals, terms, and Raft's own entries.

A point is the place before a batch: its raft index, base offset, file position, and the chain
before it. The chain makes each stretch between two points checkable by itself. Beside the points
lie the segment's terms and Raft's own entries.

Points divide a segment into stretches: number 0 ends at the first point, the last one at the
segment's end. A stretch has the largest timestamp of its records, or NOT_KNOWN. A job computes it
from the records when a client first asks for it (`raftlog.storage.segments.time_jobs`); no header
is believed.

In a file it can be deleted: it is rebuilt by walking the segment. Layout (big-endian):

      0  magic "rlindex\\0"       8  format version u16 = 1     10  reserved u16 = 0
     12  group u64               20  file sequence u64          28  first raft index u64
     36  end: next raft index u64, next offset u64, position u64, chain u64, timestamp i64
     76  count u32, then points: raft index u64, offset u64, position u64, chain u64, timestamp i64
         (a timestamp is the largest of the stretch that ends there; version 1 had other ones, which
         are read as NOT_KNOWN)
     ..  count u32, then terms: term u32, raft index u64, offset u64
     ..  count u32, then Raft's own entries: raft index u64, position u64, size u32, kind u8,
         offset u64
     ..  CRC-32C of all before, u32
"""

from array import array
from bisect import bisect_right
from itertools import pairwise
from typing import Final, NamedTuple, final

from raftlog.base.binary import Buffer, Reader, Writer
from raftlog.base.checksum import crc32c
from raftlog.base.entries import Entry, EntryKind
from raftlog.base.errors import CorruptData
from raftlog.base.ids import Chain, GroupId, Offset, RaftIndex, Term
from raftlog.base.limits import (
    BATCH_HEADER_BYTES,
    CONTROL_BATCH_BYTES_MAX,
    INDEX_ROWS_MAX,
    SEGMENT_HEADER_BYTES,
)

MAGIC: Final = b"rlindex\x00"
VERSION: Final = 2
_VERSION_OF_CLAIMS: Final = 1
"""The version of index files whose timestamps came from headers."""
NOT_KNOWN: Final = -2
"""The value of a stretch whose largest timestamp has not been computed."""


class Point(NamedTuple):
    """The place before a batch; `timestamp` is the largest of the stretch that ends there."""

    raft_index: RaftIndex
    offset: Offset
    position: int
    chain: Chain
    timestamp: int


class TermRow(NamedTuple):
    """A term that begins in this segment."""

    term: Term
    raft_index: RaftIndex
    offset: Offset


class ControlRow(NamedTuple):
    """One of Raft's own entries in this segment; no client gets its bytes."""

    raft_index: RaftIndex
    position: int
    size: int
    kind: EntryKind
    offset: Offset


@final
class SegmentIndex:
    """Grows with the segment; it consists of arrays of integers, 40 bytes a point."""

    __slots__ = (
        "_chains",
        "_indexes",
        "_interval",
        "_offsets",
        "_positions",
        "_timestamps",
        "controls",
        "tail",
        "terms",
    )

    def __init__(self, interval_bytes: int) -> None:
        self._interval = interval_bytes
        self._indexes = array("Q")
        self._offsets = array("Q")
        self._positions = array("Q")
        self._chains = array("Q")
        self._timestamps = array("q")
        self.controls: list[ControlRow] = []
        self.terms: list[TermRow] = []
        self.tail = NOT_KNOWN
        """The largest timestamp of the last stretch, once the segment takes no more entries."""

    def __len__(self) -> int:
        return len(self._indexes)

    def add_point(self, point: Point) -> None:
        """Add a place after all others."""
        self._indexes.append(point.raft_index)
        self._offsets.append(point.offset)
        self._positions.append(point.position)
        self._chains.append(point.chain)
        self._timestamps.append(point.timestamp)

    def note(self, entry: Entry, position: int, chain_before: Chain) -> None:
        """Take in an entry that lies at `position`; the caller adds its term row."""
        positions = self._positions
        last = positions[-1] if positions else SEGMENT_HEADER_BYTES
        index, offset = entry.raft_index, entry.base_offset
        if position - last >= self._interval:
            self.add_point(Point(index, offset, position, chain_before, NOT_KNOWN))
        if entry.kind:
            size = len(entry.batch)
            self.controls.append(ControlRow(index, position, size, entry.kind, offset))

    def point(self, ordinal: int) -> Point:
        return Point(
            RaftIndex(self._indexes[ordinal]),
            Offset(self._offsets[ordinal]),
            self._positions[ordinal],
            Chain(self._chains[ordinal]),
            self._timestamps[ordinal],
        )

    def points(self) -> list[Point]:
        """All points, in order."""
        return [self.point(ordinal) for ordinal in range(len(self))]

    def copy(self) -> "SegmentIndex":
        """An index with the same points and rows, for a job: this one may be cut meanwhile."""
        made = SegmentIndex(self._interval)
        made._indexes, made._offsets = self._indexes[:], self._offsets[:]
        made._positions, made._chains = self._positions[:], self._chains[:]
        made._timestamps = self._timestamps[:]
        made.controls, made.terms = list(self.controls), list(self.terms)
        made.tail = self.tail
        return made

    def at_or_below_offset(self, offset: Offset) -> Point | None:
        """The last point whose batch begins at or below `offset`; None before the first."""
        return self._at(bisect_right(self._offsets, offset) - 1)

    def at_or_below_index(self, index: RaftIndex) -> Point | None:
        """The last point at or below the entry `index`."""
        return self._at(bisect_right(self._indexes, index) - 1)

    def at_or_below_position(self, position: int) -> Point | None:
        """The last point at or below a file position."""
        return self._at(bisect_right(self._positions, position) - 1)

    def after(self, position: int) -> Point | None:
        """The first point beyond a file position."""
        ordinal = bisect_right(self._positions, position)
        return self.point(ordinal) if ordinal < len(self) else None

    def between(self, position: int, reach: int) -> tuple[Point, ...]:
        """The points beyond `position`, up to the first two beyond `reach`."""
        first = bisect_right(self._positions, position)
        last = min(len(self), bisect_right(self._positions, reach) + 2)
        return tuple(self.point(ordinal) for ordinal in range(first, last))

    # --- timestamps of stretches ------------------------------------------------------------------

    def stretch_of(self, offset: Offset) -> int:
        """The number of the stretch that holds `offset`."""
        return bisect_right(self._offsets, offset)

    def stretches_before(self, index: RaftIndex) -> int:
        """The number of stretches that end at a point before the entry `index` or at it."""
        return bisect_right(self._indexes, index)

    def end_of(self, stretch: int, segment_end: RaftIndex) -> RaftIndex:
        """The entry before which a stretch ends, in a segment that ends before `segment_end`."""
        return RaftIndex(self._indexes[stretch]) if stretch < len(self) else segment_end

    def largest_of(self, stretch: int) -> int:
        """The largest timestamp of a stretch, or NOT_KNOWN."""
        return self._timestamps[stretch] if stretch < len(self) else self.tail

    def next_candidate(self, first: int, stop: int, timestamp_ms: int) -> int:
        """The first stretch from `first` to before `stop` that may hold this timestamp or a later.

        `stop` when there is none.
        """
        for number in range(first, stop):
            largest = self.largest_of(number)
            if largest >= timestamp_ms or largest == NOT_KNOWN:
                return number
        return stop

    def next_unknown(self, first: int, stop: int) -> int:
        """The first stretch from `first` to before `stop` that was not computed, or `stop`."""
        try:
            return self._timestamps.index(NOT_KNOWN, first, stop)
        except ValueError:
            return len(self) if first <= len(self) < stop and self.tail == NOT_KNOWN else stop

    def largest_between(self, first: int, stop: int) -> int:
        """The largest timestamp of known stretches that end at points."""
        return max(self._timestamps[first:stop], default=NOT_KNOWN)

    def largest(self) -> int | None:
        """The largest timestamp of a segment that takes no more entries.

        None until each of its stretches is known.
        """
        if self.tail == NOT_KNOWN or NOT_KNOWN in self._timestamps:
            return None
        return max(self.tail, max(self._timestamps, default=self.tail))

    def learn_largest(self, stretch: int, end: RaftIndex, timestamp: int) -> None:
        """Keep the largest timestamp of a stretch that ended at the point before entry `end`.

        A stretch that ends elsewhere by now (a truncation cut it) is another one.
        """
        if stretch < len(self) and self._indexes[stretch] == end:
            self._timestamps[stretch] = timestamp

    def adopt_largest(self, other: "SegmentIndex") -> None:
        """Take over timestamps of another index of the segment, where both have the same points."""
        if other._indexes == self._indexes and other._chains == self._chains:
            self._timestamps, self.tail = other._timestamps[:], other.tail

    def _at(self, ordinal: int) -> Point | None:
        return self.point(ordinal) if ordinal >= 0 else None

    def term_at(self, index: RaftIndex, before: Term) -> Term:
        """The term of an entry of this segment; `before` is the term of the entry before it."""
        begun = [row.term for row in self.terms if row.raft_index <= index]
        return begun[-1] if begun else before

    def cut(self, index: RaftIndex) -> None:
        """Forget what lies at or above the entry `index`; a place before that entry stays."""
        keep = bisect_right(self._indexes, index)
        for column in (self._indexes, self._offsets, self._positions, self._chains):
            del column[keep:]
        del self._timestamps[keep:]
        self.tail = NOT_KNOWN
        self.controls = [row for row in self.controls if row.raft_index < index]
        self.terms = [row for row in self.terms if row.raft_index < index]


class IndexFile(NamedTuple):
    """The content of an index file, about its segment."""

    group: GroupId
    file_sequence: int
    first_index: RaftIndex
    end: Point
    sparse: SegmentIndex

    def joins(self, before: Term, last: Term) -> bool:
        """Whether its terms lead from `before`, of the entry before the segment, to `last`."""
        terms = [before, *(row.term for row in self.sparse.terms)]
        return terms[-1] == last and all(one < two for one, two in pairwise(terms))


NOWHERE: Final = Point(RaftIndex(0), Offset(0), 0, Chain(0), NOT_KNOWN)
"""The end in an index file that vouches for its segment no longer. Its points stay, for they show
how far the segment is whole."""


def write_index_file(file: IndexFile) -> bytes:
    """The bytes of an index file; `file.end` is the place after the segment's last entry."""
    writer = Writer().raw(MAGIC).u16(VERSION).u16(0)
    writer.u64(file.group).u64(file.file_sequence).u64(file.first_index)
    _write_point(writer, file.end)
    writer.u32(len(file.sparse))
    for point in file.sparse.points():
        _write_point(writer, point)
    writer.u32(len(file.sparse.terms))
    for term in file.sparse.terms:
        writer.u32(term.term).u64(term.raft_index).u64(term.offset)
    writer.u32(len(file.sparse.controls))
    for row in file.sparse.controls:
        writer.u64(row.raft_index).u64(row.position).u32(row.size).u8(row.kind).u64(row.offset)
    return writer.u32(crc32c(writer.bytes())).bytes()


def read_index_file(data: Buffer, interval_bytes: int, on: str) -> IndexFile:
    """The index file in these bytes.

    Raises `CorruptData` for anything doubtful: the file is then rebuilt. The result is an index
    that some segment could have: rows ascend and lie within it.
    """
    view = memoryview(data)
    if len(view) < len(MAGIC) + 4 or crc32c(view[:-4]) != int.from_bytes(view[-4:], "big"):
        raise CorruptData("index file fails its checksum", on=on)
    reader = Reader(view[:-4], CorruptData, on)
    magic, version, reserved = bytes(reader.take(len(MAGIC))), reader.u16(), reader.u16()
    if magic != MAGIC or version not in (VERSION, _VERSION_OF_CLAIMS) or reserved != 0:
        raise reader.fail("index file is of another kind or version")
    group, sequence, first = GroupId(reader.u64()), reader.u64(), RaftIndex(reader.u64())
    computed = version == VERSION
    end = _read_point(reader, computed)
    index = SegmentIndex(interval_bytes)
    index.tail = end.timestamp
    for _ in range(reader.count(40, INDEX_ROWS_MAX)):
        index.add_point(_read_point(reader, computed))
    for _ in range(reader.count(20, INDEX_ROWS_MAX)):
        term = Term(reader.u32())
        index.terms.append(TermRow(term, RaftIndex(reader.u64()), Offset(reader.u64())))
    for _ in range(reader.count(29, INDEX_ROWS_MAX)):
        index.controls.append(_read_control(reader))
    reader.end()
    file = IndexFile(group, sequence, first, end, index)
    why = _impossible(file)
    if why is not None:
        raise reader.fail(why)
    return file


def _impossible(file: IndexFile) -> str | None:
    """The reason why no segment can have this index; None when one can.

    A checksum also vouches for a forged file, and a boot reads where these rows lead.
    """
    start = Point(file.first_index, Offset(0), SEGMENT_HEADER_BYTES, Chain(0), NOT_KNOWN)
    known = file.end != NOWHERE
    points = [start, *file.sparse.points(), *([file.end] if known else ())]
    if not all(_in_order(one, two) for one, two in pairwise(points)):
        return "points of an index that do not ascend"
    last = points[-1] if known else None
    return _impossible_terms(file, last) or _impossible_controls(file, last)


def _in_order(one: Point, two: Point) -> bool:
    """Whether two points may follow each other.

    The end may be a point; Raft's entries take no offset.
    """
    return (
        one.raft_index <= two.raft_index
        and one.offset <= two.offset
        and one.position <= two.position
        and two.timestamp >= NOT_KNOWN
    )


def _impossible_terms(file: IndexFile, end: Point | None) -> str | None:
    rows = file.sparse.terms
    for one, two in pairwise(rows):
        if one.term >= two.term or one.raft_index >= two.raft_index or one.offset > two.offset:
            return "terms of an index that do not ascend"
    if rows and rows[0].raft_index < file.first_index:
        return "a term that begins before the segment"
    if end and rows and (rows[-1].raft_index >= end.raft_index or rows[-1].offset > end.offset):
        return "a term that begins behind the segment"
    return None


def _impossible_controls(file: IndexFile, end: Point | None) -> str | None:
    rows = file.sparse.controls
    position, offset, after = SEGMENT_HEADER_BYTES, 0, file.first_index
    for row in rows:
        if not BATCH_HEADER_BYTES <= row.size <= CONTROL_BATCH_BYTES_MAX:
            return f"a raft entry of {row.size} bytes"
        if row.position < position or row.raft_index < after or row.offset < offset:
            return "raft entries of an index that do not ascend"
        position, offset = row.position + row.size, row.offset
        after = RaftIndex(row.raft_index + 1)
    if end and (position > end.position or after > end.raft_index or offset > end.offset):
        return "a raft entry behind the segment"
    return None


def _write_point(writer: Writer, point: Point) -> None:
    writer.u64(point.raft_index).u64(point.offset).u64(point.position).u64(point.chain)
    writer.i64(point.timestamp)


def _read_point(reader: Reader, computed: bool) -> Point:
    index, offset, position = RaftIndex(reader.u64()), Offset(reader.u64()), reader.u64()
    chain, timestamp = Chain(reader.u64()), reader.i64()
    return Point(index, offset, position, chain, timestamp if computed else NOT_KNOWN)


def _read_control(reader: Reader) -> ControlRow:
    index, position, size, kind = reader.u64(), reader.u64(), reader.u32(), reader.u8()
    offset = Offset(reader.u64())
    try:
        return ControlRow(RaftIndex(index), position, size, EntryKind(kind), offset)
    except ValueError:
        raise reader.fail(f"raft entry of unknown kind {kind}") from None
