"""IncrementalAlterConfigs and AlterConfigs: what becomes of a running topic; what is refused."""

import pytest

from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.messages.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
)
from raftlog.kafka.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from raftlog.kafka.messages.incremental_alter_configs import (
    AlterableConfig as IncrementalConfig,
)
from raftlog.kafka.messages.incremental_alter_configs import (
    AlterConfigsResource as IncrementalResource,
)
from raftlog.kafka.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from raftlog.kafka.versions import ApiKey
from raftlog.metadata.settings.topic_defaults import MADE_NOW
from raftlog.runtime.settings.config_keys import SETTINGS
from tests.broker.cluster import Cluster

SET, DELETE, APPEND, SUBTRACT = range(4)
TOPIC, BROKER, LOGGER, GROUP = 2, 4, 8, 32
BOUNDS_OF_SESSIONS = ("group.min.session.timeout.ms", "group.max.session.timeout.ms")


@pytest.fixture
def one():
    cluster = Cluster(brokers=1).ready()
    cluster.create("orders", 1, 1, configs=[("retention.ms", "5000")])
    return cluster


@pytest.fixture
def three():
    cluster = Cluster(brokers=3, controllers=3, encode=True).ready()
    cluster.create("orders", 2, 3)
    return cluster


def resource(name, *changes, kind=TOPIC):
    return IncrementalResource(kind, name, [IncrementalConfig(*change) for change in changes])


def alter(cluster, *resources, validate_only=False, version=1, at=1):
    body = IncrementalAlterConfigsRequest(list(resources), validate_only)
    return cluster.ask(at, ApiKey.INCREMENTAL_ALTER_CONFIGS, body, version).responses


def replace(cluster, name, *pairs, kind=TOPIC, validate_only=False, version=2):
    configs = [AlterableConfig(*pair) for pair in pairs]
    body = AlterConfigsRequest([AlterConfigsResource(kind, name, configs)], validate_only)
    (answer,) = cluster.ask(1, ApiKey.ALTER_CONFIGS, body, version).responses
    return answer


def own(cluster, name="orders"):
    """Settings of the topic's own, as clients see them."""
    body = DescribeConfigsRequest([DescribeConfigsResource(TOPIC, name, None)])
    (result,) = cluster.ask(1, ApiKey.DESCRIBE_CONFIGS, body).results
    return {each.name: each.value for each in result.configs if each.config_source == 1}


@pytest.mark.parametrize("version", range(2))
def test_incremental_changes_touch_nothing_else(one, version):
    (answer,) = alter(one, resource("orders", ("segment.ms", SET, "7000")), version=version)
    assert answer == (0, None, TOPIC, "orders")
    assert own(one) == {"retention.ms": "5000", "segment.ms": "7000"}
    alter(one, resource("orders", ("retention.ms", DELETE, None)), version=version)
    assert own(one) == {"segment.ms": "7000"}
    alter(one, resource("orders", ("cleanup.policy", APPEND, "compact")), version=version)
    assert own(one)["cleanup.policy"] == "delete,compact"
    alter(one, resource("orders", ("cleanup.policy", SUBTRACT, "delete")), version=version)
    assert own(one)["cleanup.policy"] == "compact"


@pytest.mark.parametrize("version", range(3))
def test_the_older_api_replaces_all_settings_of_the_topic(one, version):
    assert replace(one, "orders", ("segment.ms", "7000"), version=version).error_code == 0
    assert own(one) == {"segment.ms": "7000"}
    image = one.world.nodes[1].broker.context.image
    assert MADE_NOW in image.topic("orders").configs, "that is not the client's to take away"


def test_validation_only_says_the_same_and_changes_nothing(one):
    good, bad = ("segment.ms", SET, "7000"), ("segment.ms", SET, "soon")
    assert alter(one, resource("orders", good), validate_only=True)[0].error_code == 0
    assert alter(one, resource("orders", bad), validate_only=True)[0].error_code == 40
    assert replace(one, "orders", validate_only=True).error_code == 0
    assert own(one) == {"retention.ms": "5000"}


def test_each_resource_has_its_own_outcome(one):
    answers = alter(
        one,
        resource("ghost", ("segment.ms", SET, "7000")),
        resource("orders", ("segment.ms", SET, "7000")),
        resource("a b", ("segment.ms", SET, "7000")),
        resource("", ("segment.ms", SET, "7000")),
        resource("1", ("log.cleaner.threads", SET, "2"), kind=BROKER),
        resource("1", ("raftlog", SET, "DEBUG"), kind=LOGGER),
        resource("x", ("a", SET, "b"), kind=77),
    )
    assert [answer.error_code for answer in answers] == [3, 0, 17, 42, 42, 42, 42]
    assert [(answer.resource_type, answer.resource_name) for answer in answers[4:]] == [
        (BROKER, "1"),
        (LOGGER, "1"),
        (77, "x"),
    ]
    assert answers[0].error_message == "The topic 'ghost' does not exist."
    assert "Cannot update these configs dynamically: log.cleaner.threads" in (
        answers[4].error_message
    )
    assert "loggers" in answers[5].error_message
    assert own(one)["segment.ms"] == "7000"


@pytest.mark.parametrize(
    ("changes", "code", "says"),
    [
        ([("retention.mss", SET, "1")], 40, "did you mean retention.ms?"),
        ([("retention.ms", SET, "soon")], 40, "retention.ms=soon"),
        ([("retention.ms", APPEND, "1")], 40, "its type is not LIST"),
        ([("unclean.leader.election.enable", SET, "true")], 40, "must be false"),
        ([(MADE_NOW[0], DELETE, None)], 40, "belongs to the cluster"),
        ([("retention.ms", SET, None)], 42, "Null value not supported for : retention.ms"),
        ([("retention.ms", 9, "1")], 42, "Unknown operation type 9"),
        ([("retention.ms", SET, "1")] * 2, 42, "duplicate config keys"),
        ([(f"name.{n}", SET, "1") for n in range(65)], 42, "at most 64"),
        ([("n" * 256, SET, "1")], 40, "longer than 255 bytes"),
        ([("retention.ms", SET, "1" * 4097)], 40, "longer than 4096 bytes"),
    ],
)
def test_what_is_wrong_is_told_and_nothing_changes(one, changes, code, says):
    (answer,) = alter(one, resource("orders", *changes))
    assert answer.error_code == code
    assert says in answer.error_message
    assert own(one) == {"retention.ms": "5000"}


def test_a_resource_that_is_named_twice_is_refused(one):
    same = resource("orders", ("segment.ms", SET, "7000"))
    answers = alter(one, same, same)
    assert [answer.error_code for answer in answers] == [42, 42]
    assert own(one) == {"retention.ms": "5000"}
    assert alter(one) == ()


def test_a_broker_that_has_no_dynamic_setting_has_none_to_take_away(one):
    """Kafka's tools take dynamic settings away without asking whether there are any."""
    rate = "num.io.threads"
    for name in ("1", ""):
        assert alter(one, resource(name, (rate, DELETE, None), kind=BROKER))[0].error_code == 0
        assert alter(one, resource(name, (rate, SET, "1"), kind=BROKER))[0].error_code == 42
    (other,) = alter(one, resource("7", (rate, DELETE, None), kind=BROKER))
    assert (other.error_code, other.error_message) == (
        42,
        "Unexpected broker id, expected 1, but received 7",
    )
    assert replace(one, "1", (rate, "1"), kind=BROKER).error_code == 42


def settings_of(cluster, name, at=1):
    """{name: (value, source, read-only)} of those of a broker that were given while it ran."""
    body = DescribeConfigsRequest([DescribeConfigsResource(BROKER, name, None)], True)
    (result,) = cluster.ask(at, ApiKey.DESCRIBE_CONFIGS, body).results
    assert result.error_code == 0
    found = [each for each in result.configs if each.config_source in (2, 3)]
    return {each.name: (each.value, each.config_source, each.read_only) for each in found}


def config_of(cluster, at):
    replica = cluster.world.nodes[at].broker.context.router.replica("orders", 0)
    return replica.config


def test_settings_of_brokers_change_while_they_run(three):
    """For one broker, and for every one: replicas act upon them at once, and describe says where
    they come from. They outlive a restart."""
    every = [("log.retention.ms", SET, "7000"), ("message.max.bytes", SET, "20000")]
    (answer,) = alter(three, resource("", *every, kind=BROKER), at=2)
    assert (answer.error_code, answer.error_message) == (0, None)
    (answer,) = alter(three, resource("3", ("log.retention.ms", SET, "9000"), kind=BROKER), at=3)
    assert answer.error_code == 0
    three.run(0.5)
    shown = {"log.retention.ms": ("7000", 3, False), "message.max.bytes": ("20000", 3, False)}
    assert settings_of(three, "1") == settings_of(three, "") == shown
    assert settings_of(three, "3", at=3)["log.retention.ms"] == ("9000", 2, False)
    assert [config_of(three, at).retention_ms for at in (1, 2, 3)] == [7000, 7000, 9000]
    assert three.produce("orders", ["x" * 30_000]).error_code == 10
    for at in (1, 2, 3):
        three.kill(at)
    for at in (1, 2, 3):
        three.restart(at)
    three.ready()
    three.wait(lambda: three.leader("orders") is not None, what="a leader")
    assert [config_of(three, at).retention_ms for at in (1, 2, 3)] == [7000, 7000, 9000]
    alter(three, resource("3", ("log.retention.ms", DELETE, None), kind=BROKER), at=3)
    three.run(0.5)
    assert config_of(three, 3).retention_ms == 7000
    assert alter(three, resource("orders", ("retention.ms", SET, "5")))[0].error_code == 0
    three.run(0.5)
    assert config_of(three, 3).retention_ms == 5


@pytest.mark.parametrize(
    ("name", "value", "code", "says"),
    [
        ("log.retention.ms", "soon", 40, "log.retention.ms=soon"),
        ("log.retention.hours", "1", 42, "Cannot update these configs dynamically"),
        ("node.id", "9", 42, "Cannot update these configs dynamically: node.id"),
        ("log.retention.m", "1", 42, "did you mean"),
    ],
)
def test_settings_of_brokers_that_are_refused(one, name, value, code, says):
    for owner in ("", "1"):
        (answer,) = alter(one, resource(owner, (name, SET, value), kind=BROKER))
        assert (answer.error_code, says in answer.error_message or "mean" in says) == (code, True)
    assert settings_of(one, "1") == settings_of(one, "") == {}


def test_a_validation_of_settings_of_brokers_changes_nothing(one):
    asked = resource("1", ("log.retention.ms", SET, "7000"), kind=BROKER)
    assert alter(one, asked, validate_only=True)[0].error_code == 0
    assert settings_of(one, "1") == {}
    assert replace(one, "1", ("log.retention.ms", "7000"), kind=BROKER).error_code == 0
    assert replace(one, "1", ("min.insync.replicas", "1"), kind=BROKER).error_code == 0
    assert settings_of(one, "1") == {"min.insync.replicas": ("1", 2, False)}


def test_every_broker_shows_the_change_and_acts_upon_it_at_once(three):
    """`max.message.bytes`, `segment.bytes` and `min.insync.replicas` of a topic that takes
    records."""
    three.put("orders", ["small"])
    big = ["x" * 20_000]
    assert three.put("orders", big) == 1
    changes = [("max.message.bytes", SET, "10000"), ("segment.bytes", SET, "65536")]
    (answer,) = alter(three, resource("orders", *changes), at=2)
    assert answer.error_code == 0
    three.run(0.5)
    assert three.produce("orders", big).error_code == 10
    for node in three.world.nodes.values():
        replica = node.broker.context.router.replica("orders", 0)
        assert replica.config.max_message_bytes == 10_000
    alter(three, resource("orders", ("min.insync.replicas", SET, "3")), at=3)
    three.run(0.5)
    three.kill(next(n for n in (1, 2, 3) if n != three.leader("orders").number))
    three.wait(lambda: three.produce("orders", ["a"]).error_code in (19, 20), what="too few")


def test_a_smaller_segment_bounds_the_next_batches_and_the_next_files():
    cluster = Cluster(brokers=1).ready()
    cluster.create("orders", 1, 1)
    replica = cluster.leader("orders").broker.context.router.replica("orders", 0)
    cluster.put("orders", ["x" * 50_000])
    assert len(replica.log.segments) == 1
    assert alter(cluster, resource("orders", ("segment.bytes", SET, "65536")))[0].error_code == 0
    assert replica.log.options.segment_bytes == 65_536
    cluster.put("orders", ["x" * 50_000])
    assert len(replica.log.segments) == 2
    assert cluster.produce("orders", ["x" * 65_536]).error_code == 18
    alter(cluster, resource("orders", ("segment.bytes", SET, "1048576")))
    assert cluster.put("orders", ["x" * 65_536]) == 2
    assert len(replica.log.segments) == 2
    cluster.kill(1)
    cluster.restart(1)
    cluster.ready()
    assert [value for _, value in cluster.read_all("orders")] == [
        b"x" * size for size in (50_000, 50_000, 65_536)
    ]
    replica = cluster.leader("orders").broker.context.router.replica("orders", 0)
    assert replica.log.options.segment_bytes == 1 << 20


@pytest.mark.parametrize("validate_only", [False, True])
@pytest.mark.parametrize(
    "change", [("consumer.session.timeout.ms", SET, "45000"), ("no.such", DELETE, "1")]
)
def test_settings_of_groups_are_refused_with_what_acts_instead(one, validate_only, change):
    asked = [resource("g", change, kind=GROUP), resource("orders", ("segment.ms", SET, "7000"))]
    refused, altered = alter(one, *asked, validate_only=validate_only)
    older = replace(one, "g", change[::2], kind=GROUP, validate_only=validate_only)
    assert altered.error_code == 0, "one resource of a request does not stop another"
    for answer in (refused, older):
        assert (answer.error_code, answer.resource_name) == (ErrorCode.INVALID_REQUEST, "g")
        assert "settings of groups are not served" in answer.error_message
        for instead in ("session.timeout.ms at the members", *BOUNDS_OF_SESSIONS):
            assert instead in answer.error_message


@pytest.mark.parametrize("name", ["g", "unknown"])
def test_a_group_is_described_without_settings(one, name):
    asked = DescribeConfigsResource(GROUP, name, None)
    body = DescribeConfigsRequest([asked], include_synonyms=True, include_documentation=True)
    (result,) = one.ask(1, ApiKey.DESCRIBE_CONFIGS, body, 4).results
    assert (result.error_code, result.resource_name, len(result.configs)) == (0, name, 0)


def test_the_bounds_that_the_refusal_names_are_settings_of_a_broker():
    assert set(BOUNDS_OF_SESSIONS) <= set(SETTINGS)
