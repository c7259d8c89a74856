"""The commands of the metadata group: one per record of `__cluster_metadata`-0.

A command carries every input that it needs beyond the image: times, random ids, decisions of the
controller such as placement. `apply` gives out the values that follow from the image alone (group
ids, replica epochs, producer id blocks), so that they cannot collide. Command kinds and versions
are in command_codec.
"""

from typing import final

import attrs

from raftlog.base.entries import Membership
from raftlog.base.ids import (
    BootNumber,
    ClusterId,
    DirectoryId,
    GroupId,
    NodeId,
    RaftIndex,
    ReplicaEpoch,
    ReplicaId,
    Term,
    TopicId,
)
from raftlog.metadata.broker_image import BrokerListener
from raftlog.metadata.refusals import Refusal
from raftlog.metadata.topic_image import Configs

Place = tuple[NodeId, DirectoryId]
"""Where a replica is wanted; its epoch is the metadata version that `apply` gives."""

Assignment = tuple[Place, ...]
"""Places of one partition in order of preference, the preferred leader first."""


@final
@attrs.frozen(kw_only=True)
class FoundCluster:
    """The first command of a cluster, from its format: controllers and the feature level to start
    at."""

    cluster_id: ClusterId
    controllers: tuple[ReplicaId, ...]
    feature_level: int


@final
@attrs.frozen(kw_only=True)
class RegisterBroker:
    """A broker booted. A new directory under a known node id replaces the old one: every replica id
    on the old directory gets a successor on the new one. `incarnation` is random per boot, so that
    two boots from copies of one directory are told apart."""

    node: NodeId
    directory: DirectoryId
    boot: BootNumber
    incarnation: int
    listeners: tuple[BrokerListener, ...]
    peer_host: str
    peer_port: int
    rack: str
    level_min: int
    level_max: int


@final
@attrs.frozen(kw_only=True)
class CondemnDirectory:
    """The directory was seen with a boot number that is not above an earlier one: it was rolled
    back and may never take part again."""

    node: NodeId
    directory: DirectoryId


@final
@attrs.frozen(kw_only=True)
class FenceBroker:
    """The broker fell silent. `epoch` names the registration meant."""

    node: NodeId
    epoch: int


@final
@attrs.frozen(kw_only=True)
class UnfenceBroker:
    """The broker, in that registration, is alive and has applied its own registration."""

    node: NodeId
    epoch: int


@final
@attrs.frozen(kw_only=True)
class UnregisterBroker:
    """Forget a broker that is fenced, is no controller and holds nothing."""

    node: NodeId


@final
@attrs.frozen(kw_only=True)
class CreateTopic:
    """The same topic id and name again is no change and no refusal, so that a call can be
    retried."""

    topic_id: TopicId
    name: str
    internal: bool
    configs: Configs
    assignments: tuple[Assignment, ...]


@final
@attrs.frozen(kw_only=True)
class DeleteTopic:
    """The topic and all its partitions go; every node is told which replicas to delete."""

    topic_id: TopicId


@final
@attrs.frozen(kw_only=True)
class CreatePartitions:
    """Grow a topic that has exactly `count_before` partitions."""

    topic_id: TopicId
    count_before: int
    assignments: tuple[Assignment, ...]


@final
@attrs.frozen(kw_only=True)
class SetTarget:
    """Where a partition is wanted from now on; a cancel is a new target. A place that still holds a
    replica keeps its id. Refused as STALE unless the present target version is
    `if_target_version`."""

    topic_id: TopicId
    partition: int
    assignment: Assignment
    if_target_version: int


@final
@attrs.frozen(kw_only=True)
class ReplaceReplica:
    """The node lost this replica's files (its directory lives): give the place a new id. Group 0
    too."""

    group: GroupId
    lost: ReplicaId


@final
@attrs.frozen(kw_only=True)
class ReportMembership:
    """The report of a partition's leader after commit; see topic_image.Reported for the order of
    reports."""

    group: GroupId
    term: Term
    membership_index: RaftIndex
    serial: int
    membership: Membership
    leader: ReplicaId | None
    in_sync: tuple[ReplicaId, ...]
    target_version: int


@final
@attrs.frozen(kw_only=True)
class ConfirmRemoved:
    """The node deleted the files of these replicas of its directory, or never had any."""

    node: NodeId
    directory: DirectoryId
    removed: tuple[tuple[GroupId, ReplicaEpoch], ...]


@final
@attrs.frozen(kw_only=True)
class AllocateProducerIds:
    """Give that many producer ids; `Applied.value` is the first."""

    node: NodeId
    count: int


@final
@attrs.frozen(kw_only=True)
class AlterTopicConfigs:
    """Set and remove overrides. Names and values were judged before the command was proposed."""

    topic_id: TopicId
    changed: Configs
    removed: tuple[str, ...]


@final
@attrs.frozen(kw_only=True)
class AlterBrokerConfigs:
    """Set and remove settings of one broker, or (`broker_settings.EVERY_BROKER`) of every one.
    Names and values were judged before the command was proposed."""

    owner: NodeId
    changed: Configs
    removed: tuple[str, ...]


@final
@attrs.frozen(kw_only=True)
class ChangeController:
    """Let the node, on that directory, vote in the metadata group (`votes`), or only learn."""

    node: NodeId
    directory: DirectoryId
    votes: bool


@final
@attrs.frozen(kw_only=True)
class RaiseFeatureLevel:
    """From here on things of that level may be written; all registered brokers must support it."""

    level: int


@final
@attrs.frozen(kw_only=True)
class CompareDigest:
    """The controller's image had this digest at this version. A replica at that version with
    another digest refuses with DIGEST_DIFFERS, and stops."""

    version: int
    digest: bytes


@final
@attrs.frozen(kw_only=True)
class SnapshotImage:
    """The whole image, after all records before this one (image.encode_snapshot).

    Replicas that have applied the log compare it with their own image, byte for byte. A replica
    whose log begins later starts from it. The records before it may then be deleted from the log.
    """

    snapshot: bytes


@final
@attrs.frozen(kw_only=True)
class CloseRequest:
    """The request that this record names was refused, or done without a change (None), while a try
    of it may still be on its way. No copy of it is performed from here on."""

    refusal: Refusal | None


Command = (
    FoundCluster
    | RegisterBroker
    | CondemnDirectory
    | FenceBroker
    | UnfenceBroker
    | UnregisterBroker
    | CreateTopic
    | DeleteTopic
    | CreatePartitions
    | SetTarget
    | ReplaceReplica
    | ReportMembership
    | ConfirmRemoved
    | AllocateProducerIds
    | AlterTopicConfigs
    | RaiseFeatureLevel
    | CompareDigest
    | SnapshotImage
    | CloseRequest
    | AlterBrokerConfigs
    | ChangeController
)
