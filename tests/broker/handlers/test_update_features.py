"""UpdateFeatures, the features in ApiVersions, and AlterReplicaLogDirs."""

import attrs
import pytest

from raftlog.broker.release import THIS_RELEASE
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from raftlog.kafka.messages.api_versions import ApiVersionsRequest
from raftlog.kafka.messages.describe_log_dirs import DescribeLogDirsRequest
from raftlog.kafka.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from raftlog.kafka.versions import ApiKey
from tests.broker.cluster import Cluster

NAME = "raftlog.version"
UPGRADE, SAFE, UNSAFE = 1, 2, 3


@pytest.fixture
def three():
    return Cluster(brokers=3, controllers=3, encode=True).ready()


def update(cluster, *updates, version=2, validate_only=False, at=1):
    """(error, message) of each feature; of version 2 and later of the whole."""
    keys = [FeatureUpdateKey(*each) for each in updates]
    body = UpdateFeaturesRequest(60_000, keys, validate_only)
    answer = cluster.ask(at, ApiKey.UPDATE_FEATURES, body, version)
    if version >= 2:
        return [(answer.error_code, answer.error_message)]
    assert answer.error_code == 0
    return [(each.error_code, each.error_message) for each in answer.results]


@pytest.mark.parametrize("version", range(3))
def test_the_present_level_is_no_change(three, version):
    before = three.world.running()[0].broker.context.image.version
    for at in (1, 2, 3):
        assert update(three, (NAME, 1), version=version, at=at) == [(0, None)]
    assert three.world.running()[0].broker.context.image.version == before


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ((NAME, 2), "Broker 1 only supports versions 1-1."),
        ((NAME, 0, False, SAFE), "Broker 1 only supports versions 1-1."),
        ((NAME, -1), "A feature version cannot be less than 0."),
        ((NAME, 1, False, 9), "The controller does not support the given upgrade type."),
        (("metadata.version", 20), "Broker 1 does not support this feature; there is"),
    ],
)
def test_what_is_refused_says_why(three, asked, said):
    ((error, message),) = update(three, asked)
    assert error == ErrorCode.INVALID_UPDATE_VERSION
    assert message.startswith(f"Invalid update version {asked[1]} for feature {asked[0]}. {said}")
    ((error, message),) = update(three, asked, version=1)
    assert (error, said in message) == (ErrorCode.INVALID_UPDATE_VERSION, True)


def test_one_that_is_refused_stops_all(three):
    both = update(three, (NAME, 1), ("group.version", 1), version=1)
    assert [error for error, _ in both] == [ErrorCode.INVALID_UPDATE_VERSION] * 2
    ((error, _),) = update(three, (NAME, 1), (NAME, 1))
    assert error == ErrorCode.INVALID_REQUEST


# --- a release that knows a second level ----------------------------------------------------------


def at_level(cluster, low, high):
    """All brokers of the cluster say from now on that they know these levels."""
    for node in cluster.world.running():
        config = node.broker.context.config
        node.broker.context.config = attrs.evolve(
            config, release=attrs.evolve(THIS_RELEASE, level_min=low, level_max=high)
        )


def test_a_level_that_a_registered_broker_does_not_know_is_refused(three):
    """The broker that is asked knows the level; what the others registered with does not."""
    at_level(three, 1, 2)
    assert update(three, (NAME, 2), validate_only=True) == [(0, None)]
    ((error, message),) = update(three, (NAME, 2))
    assert error == ErrorCode.INVALID_UPDATE_VERSION
    assert "broker 1 supports levels 1 to 1, not 2" in message


# --- ApiVersions ----------------------------------------------------------------------------------


def test_features_are_told_with_the_level_of_the_cluster(three):
    for at in (1, 2, 3):
        answer = three.ask(at, ApiKey.API_VERSIONS, ApiVersionsRequest("test", "1"), 3)
        assert [tuple(each) for each in answer.supported_features] == [(NAME, 1, 1)]
        assert [tuple(each) for each in answer.finalized_features] == [(NAME, 1, 1)]
        assert (
            answer.finalized_features_epoch == three.world.running()[0].broker.context.image.version
        )
    old = three.ask(1, ApiKey.API_VERSIONS, ApiVersionsRequest(), 2)
    assert (list(old.supported_features), old.finalized_features_epoch) == ([], -1)


# --- AlterReplicaLogDirs --------------------------------------------------------------------------


def moved(cluster, path, *places, at=1, version=2):
    """{(topic, partition): error} of asking these replicas into a directory."""
    topics = [AlterReplicaLogDirTopic(topic, numbers) for topic, numbers in places]
    body = AlterReplicaLogDirsRequest([AlterReplicaLogDir(path, topics)])
    answer = cluster.ask(at, ApiKey.ALTER_REPLICA_LOG_DIRS, body, version)
    return {
        (topic.topic_name, each.partition_index): each.error_code
        for topic in answer.results
        for each in topic.partitions
    }


@pytest.mark.parametrize("version", [1, 2])
def test_a_replica_is_in_the_one_directory_already(three, version):
    three.create("orders", 2, 3)
    three.run(2)
    answer = three.ask(1, ApiKey.DESCRIBE_LOG_DIRS, DescribeLogDirsRequest(None), 4)
    path = answer.results[0].log_dir
    asked = moved(three, path, ("orders", [0, 1, 7]), ("nowhere", [0]), version=version)
    assert asked == {
        ("orders", 0): 0,
        ("orders", 1): 0,
        ("orders", 7): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("nowhere", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    elsewhere = moved(three, "/other", ("orders", [0]), ("nowhere", [0]), version=version)
    assert set(elsewhere.values()) == {ErrorCode.LOG_DIR_NOT_FOUND}


def test_a_replica_of_another_broker_is_not_here(three):
    three.create("single", 3, 1)
    three.run(2)
    answer = three.ask(1, ApiKey.DESCRIBE_LOG_DIRS, DescribeLogDirsRequest(None), 4)
    codes = moved(three, answer.results[0].log_dir, ("single", [0, 1, 2]))
    assert sorted(codes.values()) == [0] + [ErrorCode.REPLICA_NOT_AVAILABLE] * 2
