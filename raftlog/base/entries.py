"""Values that consensus and storage share: entries, hard state, membership.

One entry is one record batch. The batch and its raft index describe the entry completely: the term
is the batch's leader epoch, the offsets are the batch's, and its attributes and payload give the
kind.
"""

import enum
import struct
from typing import Final, NamedTuple, final

import attrs

from raftlog.base.binary import Buffer, Reader, Writer
from raftlog.base.ids import (
    Chain,
    DirectoryId,
    NodeId,
    Offset,
    RaftIndex,
    ReplicaEpoch,
    ReplicaId,
    Term,
)
from raftlog.base.limits import LEARNERS_MAX, VOTERS_MAX


@final
class EntryKind(enum.IntEnum):
    """The kind of an entry. All kinds but RECORDS take no offsets and never reach a client.

    An unknown kind stops the replica, which never skips an entry.
    """

    RECORDS = 0
    TERM_START = 1
    MEMBERSHIP = 2
    LOG_START = 3
    MARKER = 4
    FORCED_RECOVERY = 5


class Entry(NamedTuple):
    """One place of a group's log.

    `batch` is a whole v2 record batch with its final base offset and leader epoch; it never changes
    again. `next_offset` is the offset after its last record. Raft's own entries have no records, so
    theirs equals `base_offset`."""

    raft_index: RaftIndex
    term: Term
    kind: EntryKind
    base_offset: Offset
    next_offset: Offset
    batch: Buffer


class HardState(NamedTuple):
    """Term and vote, always written and read as one pair. The vote is None until one is given."""

    term: Term
    vote: ReplicaId | None


class LogPosition(NamedTuple):
    """A place in a group's log, and the fingerprint of everything up to it."""

    raft_index: RaftIndex
    term: Term
    chain: Chain


@final
@attrs.frozen(kw_only=True)
class InstallPosition:
    """The place where a log begins after a snapshot replaced everything up to `raft_index`.

    `membership` is the one in force at `raft_index`, set by the entry at `membership_index`.
    """

    raft_index: RaftIndex
    term: Term
    chain: Chain
    next_offset: Offset
    log_start: Offset
    membership: "Membership"
    membership_index: RaftIndex


_REPLICA_ID: Final = struct.Struct(">IQQ")
REPLICA_ID_BYTES: Final = _REPLICA_ID.size


def write_replica_id(writer: Writer, replica: ReplicaId) -> None:
    """20 bytes: node u32, directory u64, epoch u64."""
    writer.pack(_REPLICA_ID, *replica)


def read_replica_id(reader: Reader) -> ReplicaId:
    """The reverse of `write_replica_id`."""
    node, directory, epoch = reader.unpack(_REPLICA_ID)
    return ReplicaId(NodeId(node), DirectoryId(directory), ReplicaEpoch(epoch))


@final
@attrs.frozen
class Membership:
    """The replicas of a group, by role, as sorted tuples.

    `outgoing` is the old voter set in a joint configuration, else (). `learners_next` are voters of
    the outgoing set that become learners when the joint configuration ends.
    """

    voters: tuple[ReplicaId, ...]
    outgoing: tuple[ReplicaId, ...] = ()
    learners: tuple[ReplicaId, ...] = ()
    learners_next: tuple[ReplicaId, ...] = ()

    def __attrs_post_init__(self) -> None:
        for group in (self.voters, self.outgoing, self.learners, self.learners_next):
            assert len(group) < 2 or list(group) == sorted(set(group)), group
        assert len(self.voters) <= VOTERS_MAX, self.voters
        assert len(self.learners) <= LEARNERS_MAX, len(self.learners)

    @property
    def joint(self) -> bool:
        return bool(self.outgoing)

    @property
    def decides_alone(self) -> bool:
        """Whether one voter is the majority of each half."""
        return len(self.voters) == 1 and self.outgoing in ((), self.voters)

    def all_voters(self) -> tuple[ReplicaId, ...]:
        """Voters of either half, sorted."""
        return tuple(sorted(set(self.voters) | set(self.outgoing)))

    def everyone(self) -> tuple[ReplicaId, ...]:
        """All that replicate: voters of either half and learners, sorted."""
        return tuple(sorted(set(self.voters) | set(self.outgoing) | set(self.learners)))

    def is_voter(self, replica: ReplicaId) -> bool:
        return replica in self.voters or replica in self.outgoing


def write_membership(writer: Writer, membership: Membership) -> None:
    """Four lists, each a u32 count and that many replica ids."""
    for group in (
        membership.voters,
        membership.outgoing,
        membership.learners,
        membership.learners_next,
    ):
        writer.u32(len(group))
        for replica in group:
            write_replica_id(writer, replica)


def read_membership(reader: Reader) -> Membership:
    """The reverse of `write_membership`; lists must be sorted and free of repetition."""
    groups: list[tuple[ReplicaId, ...]] = []
    for count_max in (VOTERS_MAX, VOTERS_MAX, LEARNERS_MAX, VOTERS_MAX):
        count = reader.count(REPLICA_ID_BYTES, count_max)
        group = tuple(read_replica_id(reader) for _ in range(count))
        if len(group) > 1 and list(group) != sorted(set(group)):
            raise reader.fail("membership list is not sorted or repeats a replica id")
        groups.append(group)
    return Membership(groups[0], groups[1], groups[2], groups[3])
