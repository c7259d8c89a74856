"""How far one file of a log is whole, and the known facts about a damaged one."""

from typing import NamedTuple

from raftlog.base.entries import Membership
from raftlog.base.ids import Chain, Offset, RaftIndex
from raftlog.storage.segments.live_files import LiveFile
from raftlog.storage.segments.segment import Damage, Segment, before_header
from raftlog.storage.segments.sparse_index import SegmentIndex, TermRow
from raftlog.storage.segments.walk import WalkPlace


class Checkpoint(NamedTuple):
    """A place whose chain was written down elsewhere."""

    chain: Chain
    position: int | None
    what: str
    binds: bool = True
    """Whether disagreement proves damage. It does not for a place from an index file, which may be
    of an earlier life of the file, whose tail was lost."""


class SegmentEnd(NamedTuple):
    """How far a file is whole.

    `agreed` is the last place whose chain was known from elsewhere. In a damaged file nothing
    behind it counts, since batches that look right may be another partition's.
    """

    place: WalkPlace
    agreed: WalkPlace
    fault: str | None

    def damaged(self, fault: str) -> "SegmentEnd":
        """The same file, with damage somewhere behind what is agreed."""
        return SegmentEnd(self.agreed, self.agreed, fault)


class KeptGap(NamedTuple):
    """A damaged segment that is kept, and the known facts about its end."""

    segment: Segment
    terms: list[TermRow]
    membership: tuple[RaftIndex, Membership]
    log_start: tuple[RaftIndex, Offset]


def kept_gap(file: LiveFile, following: LiveFile, index: SegmentIndex, end: SegmentEnd) -> KeptGap:
    """A damaged file as a gap: the header of the next one says what was in force at its end.

    If a later term began inside the gap, its first entry is not known.
    """
    header, place = following.header, end.place
    index.cut(place.raft_index)
    terms = list(index.terms)
    if header.term_before > place.term:
        terms.append(TermRow(header.term_before, place.raft_index, place.offset))
    last = before_header(header)
    segment = Segment(file.path, file.header, last, None, index, None, True)
    segment.damage = Damage(place, end.fault or "damaged")
    membership = (header.membership_index, header.membership)
    return KeptGap(segment, terms, membership, (last.raft_index, header.log_start))
