"""Topics and partitions as the image knows them: what is wanted, and what was last reported.

Two truths, one protocol: `target` is what group 0 wants, `reported` is what the group's
own leader last said after commit, and the group's own log decides. A replica id stays in `replicas`
until a committed final membership without it was reported by a leader that had seen it dropped from
the target.
"""

from typing import Final, final

import attrs

from raftlog.base.binary import Writer
from raftlog.base.entries import Membership
from raftlog.base.ids import GroupId, NodeId, RaftIndex, ReplicaId, Term, TopicId
from raftlog.base.limits import (
    CONFIG_NAME_BYTES_MAX,
    CONFIG_VALUE_BYTES_MAX,
    CONFIGS_PER_TOPIC_MAX,
    PARTITIONS_PER_TOPIC_MAX,
    REPLICAS_PER_PARTITION_MAX,
    TOPIC_NAME_CHARS_MAX,
    VOTERS_MAX,
)
from raftlog.metadata import fields as f

Configs = tuple[tuple[str, str], ...]
"""Overrides of a topic, sorted by name, each name once."""


@final
@attrs.frozen(kw_only=True)
class Reported:
    """The last report of a partition's leader after commit. Reports are ordered by
    (term, membership_index, serial); the serial counts reports of one leader at one membership.

    `in_sync` is for display only: the leader's own reckoning decides. `target_version`
    is the target that the leader had seen.
    """

    term: Term
    membership_index: RaftIndex
    serial: int
    membership: Membership
    leader: ReplicaId | None
    in_sync: tuple[ReplicaId, ...]
    target_version: int

    @property
    def order(self) -> tuple[int, int, int]:
        """Later reports are greater."""
        return (self.term, self.membership_index, self.serial)


@final
@attrs.frozen(kw_only=True)
class PartitionImage:
    """One partition. `founding` is the membership at raft index 0, for ever. `target` is in order
    of preference, the preferred leader first; `target_version` is the metadata version that set
    it."""

    group: GroupId
    founding: tuple[ReplicaId, ...]
    target: tuple[ReplicaId, ...]
    target_version: int
    replicas: tuple[ReplicaId, ...]
    reported: Reported
    _bytes: list[bytes] = attrs.field(factory=list, init=False, eq=False, repr=False)

    @property
    def leader(self) -> ReplicaId | None:
        """The last reported leader, of `leader_epoch`."""
        return self.reported.leader

    @property
    def leader_epoch(self) -> Term:
        return self.reported.term

    @property
    def nodes_before(self) -> tuple[NodeId, ...]:
        """Where the group was before the move that is under way, or is: the last membership that
        was reported as final, or the outgoing half of a joint one."""
        membership = self.reported.membership
        return tuple(replica.node for replica in membership.outgoing or membership.voters)

    @property
    def settled(self) -> bool:
        """Whether the group was reported to be where it is wanted."""
        membership = self.reported.membership
        return not membership.joint and membership.voters == tuple(sorted(self.target))

    def encoded(self) -> bytes:
        """Canonical bytes, made once."""
        if not self._bytes:
            writer = Writer()
            f.write_fields(writer, self, _PARTITION_FIELDS)
            self._bytes.append(writer.bytes())
        return self._bytes[0]


@final
@attrs.frozen(kw_only=True)
class TopicImage:
    """One topic. The partition number is the place in `partitions`."""

    topic_id: TopicId
    name: str
    internal: bool
    configs: Configs
    partitions: tuple[PartitionImage, ...]
    _bytes: list[bytes] = attrs.field(factory=list, init=False, eq=False, repr=False)

    def config(self, name: str) -> str | None:
        """The override of that name."""
        return next((value for key, value in self.configs if key == name), None)

    def encoded(self) -> bytes:
        """Canonical bytes, made once: only partitions that changed are encoded again."""
        if not self._bytes:
            writer = Writer()
            f.write_fields(writer, self, _TOPIC_FIELDS)
            self._bytes.append(writer.bytes())
        return self._bytes[0]


CONFIGS: Final = f.many(
    f.pair(f.text(CONFIG_NAME_BYTES_MAX), f.text(CONFIG_VALUE_BYTES_MAX)), CONFIGS_PER_TOPIC_MAX
)

REPORTED_FIELDS: Final[f.Fields] = (
    ("term", f.TERM),
    ("membership_index", f.U64),
    ("serial", f.U64),
    ("membership", f.MEMBERSHIP),
    ("leader", f.optional(f.REPLICA)),
    ("in_sync", f.many(f.REPLICA, 2 * VOTERS_MAX)),
    ("target_version", f.U64),
)

_PARTITION_FIELDS: Final[f.Fields] = (
    ("group", f.U64),
    ("founding", f.REPLICAS),
    ("target", f.REPLICAS),
    ("target_version", f.U64),
    ("replicas", f.many(f.REPLICA, REPLICAS_PER_PARTITION_MAX)),
    ("reported", f.record(Reported, REPORTED_FIELDS)),
)
_PARTITION: Final = f.record(PartitionImage, _PARTITION_FIELDS)

_TOPIC_FIELDS: Final[f.Fields] = (
    ("topic_id", f.TOPIC),
    ("name", f.text(TOPIC_NAME_CHARS_MAX)),
    ("internal", f.FLAG),
    ("configs", CONFIGS),
    (
        "partitions",
        f.many(
            f.Field(
                lambda writer, partition: writer.raw(partition.encoded()),
                _PARTITION.read,
                _PARTITION.bytes_min,
            ),
            PARTITIONS_PER_TOPIC_MAX,
        ),
    ),
)
TOPIC_IMAGE: Final = f.Field(
    lambda writer, topic: writer.raw(topic.encoded()),
    f.record(TopicImage, _TOPIC_FIELDS).read,
    f.record(TopicImage, _TOPIC_FIELDS).bytes_min,
)
