"""apply(image, command) -> Applied: the state machine of the metadata group.

Pure and total: it raises for no command, reads no clock, dice, configuration or default, and gives
the same on every replica and release; what a release does differently is a new command version
behind a feature level. A refused command leaves the image as it is, down to the object. Each
command that changes the image raises `version` by one; that number becomes the epoch of replicas
placed by it.

The rules live beside their nouns: apply_brokers, apply_topics.
"""

from collections.abc import Callable
from typing import Any, Final

import attrs

from raftlog.base.errors import CorruptData, FutureFormat
from raftlog.metadata import commands as c
from raftlog.metadata.image import ClusterImage, decode_snapshot, encode_snapshot
from raftlog.metadata.performed import Done, OnceId
from raftlog.metadata.refusals import Refusal
from raftlog.metadata.rules import apply_brokers, apply_controllers, apply_topics
from raftlog.metadata.rules.applied import Applied
from raftlog.metadata.rules.once import done_before, once_problem, with_done


def apply(image: ClusterImage, command: c.Command, once: OnceId | None = None) -> Applied:
    """The image after the command, or why not. A command that fulfils the request `once` of a
    broker is applied at most once: again, it changes nothing."""
    if image.cluster_id is None and not isinstance(command, _FIRST):
        return Applied(image, Refusal.NOT_FOUNDED, "the cluster has not been founded")
    rule = _RULES[type(command)]
    return rule(image, command) if once is None else _apply_once(image, command, once)


def _apply_once(image: ClusterImage, command: c.Command, once: OnceId) -> Applied:
    before = done_before(image, once)
    if before is not None:
        return Applied(image, before.refusal, before.message, before.value)
    problem = once_problem(image, once)
    if problem is not None:
        return Applied(image, *problem)
    if isinstance(command, c.CloseRequest):
        closed = attrs.evolve(image, version=image.version + 1)
        return Applied(with_done(closed, once, Done(once.number, refusal=command.refusal)))
    applied = _RULES[type(command)](image, command)
    if applied.image is image:
        return applied
    done = Done(once.number, applied.value)
    return attrs.evolve(applied, image=with_done(applied.image, once, done))


def _found_cluster(image: ClusterImage, command: c.FoundCluster) -> Applied:
    if image.cluster_id is not None:
        return Applied(image, Refusal.ALREADY_FOUNDED, f"founded as {image.cluster_id.hex()}")
    controllers = tuple(sorted(command.controllers))
    nodes = [replica.node for replica in controllers]
    if not nodes or len(nodes) != len(dict.fromkeys(nodes)) or command.feature_level < 1:
        return Applied(image, Refusal.MALFORMED, "controllers are none, or one node twice")
    founded = attrs.evolve(
        image,
        cluster_id=command.cluster_id,
        version=image.version + 1,
        feature_level=command.feature_level,
        founders=controllers,
        controllers=controllers,
    )
    return Applied(founded)


def _allocate_producer_ids(image: ClusterImage, command: c.AllocateProducerIds) -> Applied:
    if command.node not in image.brokers:
        return Applied(image, Refusal.UNKNOWN_BROKER, f"node {command.node} is not registered")
    first = image.next_producer_id
    if command.count < 1 or first + command.count > 2**63 - 1:
        return Applied(image, Refusal.MALFORMED, f"{command.count} producer ids from {first}")
    grown = attrs.evolve(image, version=image.version + 1, next_producer_id=first + command.count)
    return Applied(grown, value=first)


def _raise_feature_level(image: ClusterImage, command: c.RaiseFeatureLevel) -> Applied:
    if command.level == image.feature_level:
        return Applied(image)
    if command.level < image.feature_level:
        return Applied(image, Refusal.STALE, f"the feature level is {image.feature_level} already")
    for node in sorted(image.brokers):
        broker = image.brokers[node]
        if not broker.level_min <= command.level <= broker.level_max:
            return Applied(
                image,
                Refusal.FEATURE_UNSUPPORTED,
                f"broker {node} supports levels {broker.level_min} to {broker.level_max},"
                f" not {command.level}",
            )
    return Applied(attrs.evolve(image, version=image.version + 1, feature_level=command.level))


def _compare_digest(image: ClusterImage, command: c.CompareDigest) -> Applied:
    """A comparison that speaks of another version compares nothing: it was made before commands
    that the same log holds ahead of it."""
    if command.version == image.version and command.digest != image.digest():
        return Applied(
            image,
            Refusal.DIGEST_DIFFERS,
            f"at version {image.version} the image has digest {image.digest().hex()}, the"
            f" controller's had {command.digest.hex()}",
        )
    return Applied(image)


def _snapshot_image(image: ClusterImage, command: c.SnapshotImage) -> Applied:
    """Nothing was applied before: the image is the one given. Otherwise it must be this one."""
    if image.cluster_id is not None:
        if command.snapshot == encode_snapshot(image):
            return Applied(image)
        return Applied(
            image,
            Refusal.DIGEST_DIFFERS,
            f"at version {image.version} the image differs from the controller's snapshot",
        )
    try:
        return Applied(decode_snapshot(command.snapshot))
    except (CorruptData, FutureFormat) as error:
        return Applied(image, Refusal.MALFORMED, str(error))


def _close_request(image: ClusterImage, command: c.CloseRequest) -> Applied:
    return Applied(image, Refusal.MALFORMED, "no request is named")


_FIRST: Final = (c.FoundCluster, c.SnapshotImage)
"""The commands with which an image can begin."""

_RULES: Final[dict[type[Any], Callable[[ClusterImage, Any], Applied]]] = {
    c.FoundCluster: _found_cluster,
    c.RegisterBroker: apply_brokers.register,
    c.CondemnDirectory: apply_brokers.condemn,
    c.FenceBroker: apply_brokers.fence,
    c.UnfenceBroker: apply_brokers.unfence,
    c.UnregisterBroker: apply_brokers.unregister,
    c.ConfirmRemoved: apply_brokers.confirm_removed,
    c.CreateTopic: apply_topics.create,
    c.DeleteTopic: apply_topics.delete,
    c.CreatePartitions: apply_topics.create_partitions,
    c.SetTarget: apply_topics.set_target,
    c.ReplaceReplica: apply_topics.replace_replica,
    c.ReportMembership: apply_topics.report_membership,
    c.AlterTopicConfigs: apply_topics.alter_configs,
    c.AllocateProducerIds: _allocate_producer_ids,
    c.RaiseFeatureLevel: _raise_feature_level,
    c.CompareDigest: _compare_digest,
    c.SnapshotImage: _snapshot_image,
    c.CloseRequest: _close_request,
    c.AlterBrokerConfigs: apply_brokers.alter_configs,
    c.ChangeController: apply_controllers.change,
}
