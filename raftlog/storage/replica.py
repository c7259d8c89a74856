"""Names and small values that the parts of storage share: replicas, paths, marks, ends.

A replica's directory is named by topic id, partition and replica epoch, never by a string that a
client chose. Its files begin with the raft index of their first entry, so that a plain listing
sorts by place:

    groups/<topic id>-<partition>-<epoch>/
        <first raft index, 20 digits>-<file sequence, 10 digits>.log    the segments
        <same>.index                                                    can be deleted
        <raft index, 20 digits>.snapshot                                state before that index
        head                                                            what retention removed
        moving                                                          while the replica moves
        *.tmp                                                           unfinished, removed at boot
        *.away                                                          put back at boot
"""

from collections.abc import Callable
from typing import Final, NamedTuple, final

import attrs

from raftlog.base.binary import Buffer
from raftlog.base.ids import (
    Chain,
    ClusterId,
    GroupId,
    Offset,
    RaftIndex,
    ReplicaEpoch,
    ReplicaId,
    Term,
    TopicId,
)
from raftlog.base.limits import RECENT_WINDOW_BYTES_MAX, SEGMENT_BYTES_DEFAULT
from raftlog.base.units import KIB

GROUPS_DIRECTORY: Final = "groups"
HEAD_FILE: Final = "head"
MOVING_FILE: Final = "moving"
"""Says of a directory that is not the registered one: these are the remains of a move."""
SEGMENT_SUFFIX: Final = ".log"
INDEX_SUFFIX: Final = ".index"
SNAPSHOT_SUFFIX: Final = ".snapshot"
TEMPORARY_SUFFIX: Final = ".tmp"
AWAY_SUFFIX: Final = ".away"
_INDEX_DIGITS: Final = 20
_SEQUENCE_DIGITS: Final = 10
_INTERVAL_BYTES_MIN: Final = 32 * KIB
_POINTS_A_SEGMENT: Final = 8192


StateCheck = Callable[[GroupId, RaftIndex, Buffer], None]
"""Judges the body of a snapshot: the state of a group before an entry. Raises `CorruptData` when it
is no such state, `FutureFormat` when a later release wrote it."""


def any_state(group: GroupId, before: RaftIndex, body: Buffer) -> None:
    """Accept every body: the check for callers that do not read bodies."""


@final
@attrs.frozen(kw_only=True)
class ReplicaSpec:
    """Names a replica of a group of a cluster, and the directory that is its own.

    Storage does not know the meaning of a snapshot's body; `check_state` does. It judges every body
    before the body is written, and before one that was read counts. `serves_gaps`: records are of
    use one by one, so a damaged sole voter may serve those that it still has.
    """

    cluster: ClusterId
    group: GroupId
    replica: ReplicaId
    path: str
    check_state: StateCheck = attrs.field(default=any_state, eq=False, repr=False)
    serves_gaps: bool = attrs.field(default=False, eq=False, repr=False)


@final
@attrs.frozen(kw_only=True)
class LogOptions:
    """Sizes of one log. `index_interval_bytes` 0 derives it: 8,192 points in a full segment."""

    segment_bytes: int = SEGMENT_BYTES_DEFAULT
    window_bytes: int = RECENT_WINDOW_BYTES_MAX
    index_interval_bytes: int = 0

    def resized(self, segment_bytes: int) -> "LogOptions":
        """These options with other segments; the index keeps its spacing until a reopening."""
        spacing = self.interval_bytes
        return attrs.evolve(self, segment_bytes=segment_bytes, index_interval_bytes=spacing)

    @property
    def interval_bytes(self) -> int:
        """Log bytes between two points of the sparse index, when batches are smaller than that."""
        derived = max(_INTERVAL_BYTES_MIN, self.segment_bytes // _POINTS_A_SEGMENT)
        return self.index_interval_bytes or derived


class Mark(NamedTuple):
    """How far a group's log is known to be durable.

    `commit` is the commit hint, at most `raft_index`.

    Invalid bytes that a boot finds before the mark are damage.
    """

    group: GroupId
    file_sequence: int
    end_position: int
    raft_index: RaftIndex
    term: Term
    chain: Chain
    commit: RaftIndex


class Registration(NamedTuple):
    """A replica that this data directory answers for; written before its first vote or ack."""

    replica: ReplicaId
    path: str


class LogEnd(NamedTuple):
    """A place after an entry, with everything that an append there continues from."""

    raft_index: RaftIndex
    term: Term
    chain: Chain
    next_offset: Offset


def replica_path(topic: TopicId, partition: int, epoch: ReplicaEpoch) -> str:
    """The directory of a replica, relative to the data directory."""
    return f"{GROUPS_DIRECTORY}/{topic.hex()}-{partition}-{epoch}"


def segment_name(first_index: RaftIndex, file_sequence: int) -> str:
    """The file name of a segment."""
    return f"{first_index:0{_INDEX_DIGITS}d}-{file_sequence:0{_SEQUENCE_DIGITS}d}{SEGMENT_SUFFIX}"


def parse_segment_name(name: str) -> tuple[RaftIndex, int] | None:
    """First index and file sequence; None when the name is not a segment's."""
    stem = name.removesuffix(SEGMENT_SUFFIX)
    first, dash, sequence = stem.partition("-")
    if stem == name or not dash or not _digits(first) or not _digits(sequence):
        return None
    parsed = (RaftIndex(int(first)), int(sequence))
    return parsed if segment_name(*parsed) == name else None


def index_name(segment: str) -> str:
    """The index file beside a segment file (names or paths)."""
    return segment.removesuffix(SEGMENT_SUFFIX) + INDEX_SUFFIX


def snapshot_name(before: RaftIndex) -> str:
    """The file of the state before the entry `before`."""
    return f"{before:0{_INDEX_DIGITS}d}{SNAPSHOT_SUFFIX}"


def parse_snapshot_name(name: str) -> RaftIndex | None:
    """The raft index that the snapshot's state is before; None for another kind of name."""
    stem = name.removesuffix(SNAPSHOT_SUFFIX)
    if stem == name or not _digits(stem):
        return None
    index = RaftIndex(int(stem))
    return index if snapshot_name(index) == name else None


def _digits(text: str) -> bool:
    return text.isascii() and text.isdigit()
