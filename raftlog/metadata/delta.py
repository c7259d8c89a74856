"""ClusterDelta: what one node must do because the image changed.

A delta is explicit: it names whole replica ids, so that "delete" can never hit a replica that was
placed again later, and nothing is deleted because an image lacks it.
Applying a delta twice, late or after a restart is harmless: starting what runs and deleting what is
gone change nothing. A boot takes the delta from EMPTY_IMAGE to the image that it recovered.
"""

from typing import final

import attrs

from raftlog.base.entries import Membership
from raftlog.base.ids import DirectoryId, GroupId, NodeId, ReplicaId, TopicId
from raftlog.metadata.broker_image import BrokerImage, Removal
from raftlog.metadata.commands import Place
from raftlog.metadata.image import ClusterImage
from raftlog.metadata.settings.broker_settings import EVERY_BROKER
from raftlog.metadata.topic_image import Configs, PartitionImage, TopicImage


@final
@attrs.frozen(kw_only=True)
class StartReplica:
    """Run this replica. Not registered in the directory's store: create it empty, with `founding`
    as the membership at raft index 0. Registered with files: recover it. Registered without files:
    it is lost; run nothing and ask for ReplaceReplica.

    `preferred` says that it is the first choice for leader, which may campaign at once when new.
    """

    group: GroupId
    replica: ReplicaId
    topic_id: TopicId
    partition: int
    founding: Membership
    preferred: bool


@final
@attrs.frozen(kw_only=True)
class Retarget:
    """The target of a partition with a replica here changed: its leader moves the membership."""

    group: GroupId
    target: tuple[ReplicaId, ...]
    target_version: int


@final
@attrs.frozen(kw_only=True)
class ClusterDelta:
    """Everything is in order of topic id and partition.

    * `start`, `delete`, `retarget`: for the partition manager. `delete` is confirmed to the
      controller once the files are gone (ConfirmRemoved).
    * `configured`: topics with a replica here whose overrides changed; all of them when settings of
      this broker or of every one did.
    * `moved`: groups, anywhere, whose leader, membership or target changed (for waiting requests).
    * `created`, `deleted`: topics, anywhere; `deleted_names`: the names that those had.
    * `brokers`: nodes whose registration, addresses or fencing changed, or that went.
    * `evicted`: the node goes on with another directory, or this one was condemned: nothing here
      may take part in anything any more. The lists for the partition manager are then empty.
    """

    version: int
    start: tuple[StartReplica, ...]
    delete: tuple[Removal, ...]
    retarget: tuple[Retarget, ...]
    configured: tuple[TopicId, ...]
    moved: tuple[GroupId, ...]
    created: tuple[TopicId, ...]
    deleted: tuple[TopicId, ...]
    deleted_names: tuple[str, ...]
    brokers: tuple[NodeId, ...]
    feature_level: int
    evicted: bool


@final
@attrs.define(eq=False)
class _Parts:
    start: list[StartReplica] = attrs.Factory(list)
    retarget: list[Retarget] = attrs.Factory(list)
    configured: list[TopicId] = attrs.Factory(list)
    moved: list[GroupId] = attrs.Factory(list)
    created: list[TopicId] = attrs.Factory(list)
    deleted: list[TopicId] = attrs.Factory(list)


def delta_between(
    before: ClusterImage, after: ClusterImage, node: NodeId, directory: DirectoryId
) -> ClusterDelta:
    """The changes that `node`, running on `directory`, must make to follow a later image."""
    parts = _Parts()
    evicted = is_evicted(after, node, directory)
    here = None if evicted else (node, directory)
    resettled = any(_settings(before, who) != _settings(after, who) for who in (EVERY_BROKER, node))
    for topic_id in sorted(after.topics):
        old, new = before.topics.get(topic_id), after.topics[topic_id]
        if old is not new:
            _topic_delta(parts, old, new, here)
        if resettled and here is not None:
            _configured(parts, new, here)
    parts.deleted.extend(
        topic_id for topic_id in sorted(before.topics) if topic_id not in after.topics
    )
    return ClusterDelta(
        version=after.version,
        start=tuple(parts.start),
        delete=() if here is None else _removals(before, after, here),
        retarget=tuple(parts.retarget),
        configured=tuple(parts.configured),
        moved=tuple(parts.moved),
        created=tuple(parts.created),
        deleted=tuple(parts.deleted),
        deleted_names=tuple(before.topics[each].name for each in parts.deleted),
        brokers=_changed_brokers(before, after),
        feature_level=after.feature_level,
        evicted=evicted,
    )


def is_evicted(image: ClusterImage, node: NodeId, directory: DirectoryId) -> bool:
    """Whether the node is registered, and not with this directory or with it condemned."""
    return node in image.brokers and image.directory_of(node) != directory


def local_replica(
    partition: PartitionImage, node: NodeId, directory: DirectoryId
) -> ReplicaId | None:
    """The replica id that the node runs on that directory: the youngest, when an older one has not
    left yet."""
    held = [r for r in partition.replicas if r.node == node and r.directory == directory]
    return max(held) if held else None


def _topic_delta(
    parts: _Parts, old: TopicImage | None, new: TopicImage, here: Place | None
) -> None:
    if old is None:
        parts.created.append(new.topic_id)
    for number, partition in enumerate(new.partitions):
        known = old.partitions[number] if old is not None and number < len(old.partitions) else None
        if known is partition:
            continue
        parts.moved.append(partition.group)
        replica = None if here is None else local_replica(partition, *here)
        if here is None or replica is None:
            continue
        if known is None or local_replica(known, *here) != replica:
            parts.start.append(_start(new.topic_id, number, partition, replica))
        if known is None or known.target_version != partition.target_version:
            parts.retarget.append(
                Retarget(
                    group=partition.group,
                    target=partition.target,
                    target_version=partition.target_version,
                )
            )
    if here is not None and (old is None or old.configs != new.configs):
        _configured(parts, new, here)


def _configured(parts: _Parts, topic: TopicImage, here: Place) -> None:
    """Once for each topic with a replica here: topics come in order."""
    if parts.configured[-1:] == [topic.topic_id]:
        return
    if any(local_replica(partition, *here) for partition in topic.partitions):
        parts.configured.append(topic.topic_id)


def _settings(image: ClusterImage, owner: NodeId) -> Configs:
    return image.settings.get(owner, ())


def _start(
    topic_id: TopicId, number: int, partition: PartitionImage, replica: ReplicaId
) -> StartReplica:
    return StartReplica(
        group=partition.group,
        replica=replica,
        topic_id=topic_id,
        partition=number,
        founding=Membership(partition.founding),
        preferred=partition.target[0] == replica,
    )


def _removals(before: ClusterImage, after: ClusterImage, here: Place) -> tuple[Removal, ...]:
    node, directory = here
    known = dict.fromkeys(before.removals.get(node, ()))
    return tuple(
        removal
        for removal in after.removals.get(node, ())
        if removal not in known and removal.replica.directory == directory
    )


def _changed_brokers(before: ClusterImage, after: ClusterImage) -> tuple[NodeId, ...]:
    nodes = sorted(dict.fromkeys((*before.brokers, *after.brokers)))
    return tuple(node for node in nodes if _broker(before, node) != _broker(after, node))


def _broker(image: ClusterImage, node: NodeId) -> BrokerImage | None:
    return image.brokers.get(node)
