"""The admin APIs over real frames, on one broker and through any broker of three."""

import attrs
import pytest
from raftlog_sim.world.client import ConnectionLostError

from raftlog.kafka.codec import decode_response
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.messages.api_versions import ApiVersionsRequest
from raftlog.kafka.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from raftlog.kafka.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from raftlog.kafka.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from raftlog.kafka.messages.describe_cluster import DescribeClusterRequest
from raftlog.kafka.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from raftlog.kafka.messages.end_txn import EndTxnRequest
from raftlog.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic
from raftlog.kafka.versions import SERVED, ApiKey
from raftlog.metadata.settings.topic_config_table import TOPIC_CONFIGS
from tests.broker.cluster import Cluster


@pytest.fixture
def one():
    return Cluster(brokers=1).ready()


@pytest.fixture
def three():
    return Cluster(brokers=3, controllers=3).ready()


def create(cluster, *topics, at=1, validate_only=False, version=7):
    body = CreateTopicsRequest(list(topics), 5000, validate_only)
    return cluster.ask(at, ApiKey.CREATE_TOPICS, body, version).topics


# --- ApiVersions ----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(5))
def test_api_versions_gives_the_table_of_what_is_served(one, version):
    answer = one.ask(1, ApiKey.API_VERSIONS, ApiVersionsRequest("tests", "1.0"), version)
    assert answer.error_code == 0
    assert [(a.api_key, a.min_version, a.max_version) for a in answer.api_keys] == [
        (int(s.key), s.advertised_min, s.max) for s in SERVED.values()
    ]


def test_api_versions_of_an_unknown_version_is_answered_in_version_0_with_error_35(one):
    """KIP-511; kafka-python begins with a version that a broker may not know."""
    frame = b"\x00\x12" + b"\x00\x63" + b"\x00\x00\x00\x00" + b"garbage that is not read"
    pending = one.client(1).send_frame(frame)
    one.wait(lambda: pending.done)
    answer = decode_response(ApiKey.API_VERSIONS, 0, pending.answer).body
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert len(answer.api_keys) == len(SERVED)


@pytest.mark.parametrize("name", ["", "-tool", "tool-", "tool/1", "a b", "x" * 200 + "!"])
def test_a_client_that_names_itself_nonsense_is_refused(one, name):
    answer = one.ask(1, ApiKey.API_VERSIONS, ApiVersionsRequest(name, "1.0"), 3)
    assert answer.error_code == ErrorCode.INVALID_REQUEST


# --- frames that cannot be served -----------------------------------------------------------------


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\x00",
        b"\x7f\xff\x00\x00\x00\x00\x00\x01\xff\xff",
        b"\x00\x03\x00\x63\x00\x00\x00\x01\xff\xff",
        b"\x00\x00\x00\x02\x00\x00\x00\x01\xff\xff",
        b"\x00\x03\x00\x0c\x00\x00\x00\x01\xff\xff\x00\xff\xff\xff\xff\x0f",
    ],
    ids=["empty", "one byte", "unknown API", "unknown version", "produce 2", "lying count"],
)
def test_a_frame_without_a_schema_or_that_lies_ends_the_connection(one, frame):
    pending = one.client(1).send_frame(frame)
    one.wait(lambda: pending.done)
    assert isinstance(pending.answer, ConnectionLostError)
    assert one.metadata().brokers, "other connections are served"


def test_requests_behind_a_bad_one_are_not_answered(one):
    client = one.client(1)
    bad, later = client.send_frame(b"\x00"), client.request(ApiKey.METADATA, MetadataRequest(None))
    one.wait(lambda: bad.done and later.done)
    assert isinstance(later.answer, ConnectionLostError)


def test_what_parses_and_is_not_served_is_answered_with_35(one):
    """Closing would make the client come back at once, again and again."""
    assert ApiKey.END_TXN not in SERVED
    answer = one.ask(1, ApiKey.END_TXN, EndTxnRequest("t", 1, 0, True), 3)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION


# --- Metadata -------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(14))
def test_metadata_of_every_version_names_the_broker_and_the_topic(one, version):
    one.create("orders", 2, 1)
    body = MetadataRequest([] if version == 0 else None)
    answer = one.ask(1, ApiKey.METADATA, body, version)
    assert [(b.node_id, b.host, b.port) for b in answer.brokers] == [(1, "n1", 9092)]
    (topic,) = answer.topics
    assert (topic.name, topic.error_code, len(topic.partitions)) == ("orders", 0, 2)
    assert [p.leader_id for p in topic.partitions] == [1, 1]
    if version >= 10:
        assert topic.topic_id == one.create_id


@pytest.fixture(autouse=True)
def _remember_created_id(monkeypatch):
    made = Cluster.create

    def create_and_remember(self, *args, **kwargs):
        answer = made(self, *args, **kwargs)
        self.create_id = answer.topic_id
        return answer

    monkeypatch.setattr(Cluster, "create", create_and_remember)


def test_metadata_by_id(one):
    topic_id = one.create("orders", 1, 1).topic_id
    topics = [MetadataRequestTopic(topic_id, None), MetadataRequestTopic(b"x" * 16, None)]
    answer = one.ask(1, ApiKey.METADATA, MetadataRequest(topics), 12)
    assert [(t.name, t.error_code) for t in answer.topics] == [("orders", 0), (None, 100)]


def test_metadata_creates_a_topic_on_first_use_and_answers_when_it_is_led(one):
    answer = one.metadata("clicks", create=True)
    (topic,) = answer.topics
    assert (topic.error_code, topic.partitions[0].leader_id) == (0, 1)


def test_metadata_does_not_create_when_it_must_not(one):
    assert one.metadata("clicks").topics[0].error_code == 3
    assert one.metadata().topics == ()


def test_metadata_does_not_create_when_the_broker_is_told_not_to():
    import attrs

    cluster = Cluster(brokers=1, configure=lambda c: attrs.evolve(c, auto_create=False)).ready()
    assert cluster.metadata("clicks", create=True).topics[0].error_code == 3


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "ü", "x" * 250, "a/b"])
def test_metadata_refuses_names_outside_the_grammar(one, name):
    assert one.metadata(name, create=True).topics[0].error_code == 17


def test_the_metadata_log_is_no_topic(one):
    assert one.metadata("__cluster_metadata", create=True).topics[0].error_code == 3
    assert one.metadata().topics == ()


def test_auto_creation_with_too_few_brokers_says_so(one):
    import attrs

    cluster = Cluster(brokers=1, configure=lambda c: attrs.evolve(c, replication_default=3)).ready()
    assert cluster.metadata("clicks", create=True).topics[0].error_code == 38


def test_authorized_operations_are_told_only_when_asked(one):
    one.create("orders", 1, 1)
    plain = one.ask(1, ApiKey.METADATA, MetadataRequest(None), 10)
    asked = one.ask(1, ApiKey.METADATA, MetadataRequest(None, False, True, True), 10)
    assert plain.cluster_authorized_operations == -2147483648
    assert plain.topics[0].topic_authorized_operations == -2147483648
    assert asked.cluster_authorized_operations > 0
    assert asked.topics[0].topic_authorized_operations > 0


def test_every_broker_tells_the_same_after_a_moment(three):
    three.create("orders", 4, 3)
    three.run(0.3)
    told = [three.metadata("orders", at=n).topics for n in (1, 2, 3)]
    assert told[0] == told[1] == told[2]
    for partition in told[0][0].partitions:
        assert sorted(partition.replica_nodes) == [1, 2, 3]
        assert partition.leader_id in (1, 2, 3)


def test_a_dead_broker_is_named_to_nobody(three):
    three.create("orders", 4, 3)
    three.kill(2)
    three.wait(lambda: 2 not in [b.node_id for b in three.metadata(at=1).brokers], what="fenced")
    three.run(1.0)
    for partition in three.metadata("orders", at=1).topics[0].partitions:
        assert partition.leader_id in (1, 3)
        assert partition.offline_replicas == (2,)
        assert 2 not in partition.isr_nodes


# --- CreateTopics ---------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(2, 8))
def test_create_topics_of_every_version(one, version):
    (answer,) = create(one, CreatableTopic("orders", 3, 1), version=version)
    assert (answer.name, answer.error_code) == ("orders", 0)
    if version >= 5:
        assert (answer.num_partitions, answer.replication_factor) == (3, 1)
        assert [c.name for c in answer.configs] == list(TOPIC_CONFIGS)
    if version >= 7:
        assert answer.topic_id == one.metadata("orders").topics[0].topic_id != bytes(16)


def test_create_topics_takes_the_brokers_defaults(one):
    (answer,) = create(one, CreatableTopic("orders", -1, -1))
    assert (answer.error_code, answer.num_partitions, answer.replication_factor) == (0, 1, 1)


def test_validate_only_creates_nothing(one):
    (answer,) = create(one, CreatableTopic("orders", 3, 1), validate_only=True)
    assert (answer.error_code, answer.num_partitions, answer.topic_id) == (0, 3, bytes(16))
    assert one.metadata().topics == ()


WRONG = [
    (CreatableTopic("a b", 1, 1), 17),
    (CreatableTopic("", 1, 1), 17),
    (CreatableTopic("__cluster_metadata", 1, 1), 29),
    (CreatableTopic("t", 0, 1), 37),
    (CreatableTopic("t", -2, 1), 37),
    (CreatableTopic("t", 2**31 - 1, 1), 37),
    (CreatableTopic("t", 1, 0), 38),
    (CreatableTopic("t", 1, 2), 38),
    (CreatableTopic("t", 1, 32767), 38),
    (CreatableTopic("t", 1, 1, [CreatableReplicaAssignment(0, [1])]), 42),
    (CreatableTopic("t", -1, -1, [CreatableReplicaAssignment(1, [1])]), 39),
    (CreatableTopic("t", -1, -1, [CreatableReplicaAssignment(0, [9])]), 39),
    (CreatableTopic("t", -1, -1, [CreatableReplicaAssignment(0, [1, 1])]), 39),
    (CreatableTopic("t", -1, -1, [CreatableReplicaAssignment(0, [])]), 39),
    (CreatableTopic("t", -1, -1, [CreatableReplicaAssignment(0, [-1])]), 39),
    (CreatableTopic("t", -1, -1, [CreatableReplicaAssignment(0, list(range(9)))]), 38),
    (CreatableTopic("t", 1, 1, (), [CreatableTopicConfig("retention.ms", "soon")]), 40),
    (CreatableTopic("t", 1, 1, (), [CreatableTopicConfig("retention.ms", None)]), 40),
    (CreatableTopic("t", 1, 1, (), [CreatableTopicConfig("retenton.ms", "1")]), 40),
    (
        CreatableTopic(
            "t", 1, 1, (), [CreatableTopicConfig("unclean.leader.election.enable", "true")]
        ),
        40,
    ),
    (CreatableTopic("t", 1, 1, (), [CreatableTopicConfig("remote.storage.enable", "true")]), 40),
]


@pytest.mark.parametrize(("topic", "code"), WRONG, ids=range(len(WRONG)))
def test_a_wrong_topic_is_refused_by_its_code_and_the_others_are_created(one, topic, code):
    wrong, right = create(one, topic, CreatableTopic("right", 1, 1))
    assert (wrong.error_code, right.error_code) == (code, 0)
    assert wrong.error_message
    assert [t.name for t in one.metadata().topics] == ["right"]


def test_a_topic_named_twice_in_one_request_is_refused_in_one_entry(one):
    """As Kafka answers; the others of the request are created."""
    named = [("t", 1), ("u", 1), ("t", 2), ("t", 1)]
    answers = create(one, *(CreatableTopic(name, count, 1) for name, count in named))
    assert [(a.name, a.error_code) for a in answers] == [("t", 42), ("u", 0)]
    assert [t.name for t in one.metadata().topics] == ["u"]


def test_a_topic_that_exists_is_36(one):
    create(one, CreatableTopic("t", 1, 1))
    assert create(one, CreatableTopic("t", 1, 1))[0].error_code == 36


def test_a_retried_creation_over_any_broker(three):
    for at in (1, 2, 3):
        assert create(three, CreatableTopic(f"t{at}", 2, 3), at=at)[0].error_code == 0
    assert [t.name for t in three.metadata(at=2).topics] == ["t1", "t2", "t3"]


def test_an_even_factor_comes_with_a_warning(three):
    (answer,) = create(three, CreatableTopic("t", 1, 2))
    assert answer.error_code == 0
    assert "no more failures than 1" in answer.error_message


def test_an_assignment_is_followed(three):
    assignment = [
        CreatableReplicaAssignment(0, [3, 1]),
        CreatableReplicaAssignment(1, [2]),
    ]
    wrong = create(three, CreatableTopic("t", -1, -1, assignment))[0]
    assert wrong.error_code == 39, "factors must be equal"
    assignment = [CreatableReplicaAssignment(0, [3]), CreatableReplicaAssignment(1, [2])]
    assert create(three, CreatableTopic("u", -1, -1, assignment))[0].error_code == 0
    told = three.metadata("u").topics[0].partitions
    assert [p.replica_nodes for p in told] == [(3,), (2,)]


def test_create_topics_without_a_controller_times_out(three):
    three.kill(1)
    three.kill(2)
    answer = create(three, CreatableTopic("t", 1, 1), at=3)[0]
    assert answer.error_code == 7


# --- DeleteTopics, CreatePartitions ---------------------------------------------------------------


@pytest.mark.parametrize("version", range(1, 7))
def test_delete_topics_of_every_version(one, version):
    one.create("orders", 2, 1)
    names = ["orders", "ghost"]
    body = DeleteTopicsRequest([DeleteTopicState(name) for name in names], names, 5000)
    body = body._replace(topics=body.topics if version >= 6 else ())
    body = body._replace(topic_names=names if version < 6 else ())
    answer = one.ask(1, ApiKey.DELETE_TOPICS, body, version)
    assert [(r.name, r.error_code) for r in answer.responses] == [("orders", 0), ("ghost", 3)]
    assert one.metadata().topics == ()


def test_delete_topics_by_id_and_files_go(one):
    topic_id = one.create("orders", 2, 1).topic_id
    node = one.world.nodes[1]
    assert any(topic_id.hex() in path for path in node.disk.paths())
    topics = [
        DeleteTopicState(None, topic_id),
        DeleteTopicState(None, b"x" * 16),
        DeleteTopicState("orders", topic_id),
    ]
    answer = one.ask(1, ApiKey.DELETE_TOPICS, DeleteTopicsRequest(topics, (), 5000), 6)
    assert [r.error_code for r in answer.responses] == [0, 100, 42]
    one.run(0.5)
    assert not any(topic_id.hex() in path for path in node.disk.paths())
    assert node.broker.context.image.removals == {}


@pytest.mark.parametrize(("version", "code"), [(6, 73), (3, 73), (2, 42)])
def test_delete_topic_enable_false_forbids_every_deletion(version, code):
    """delete.topic.enable was no known setting: who relied on it lost the topic."""
    cluster = Cluster(
        brokers=1, configure=lambda config: attrs.evolve(config, delete_topics=False)
    ).ready()
    cluster.create("orders", 1, 1)
    body = DeleteTopicsRequest([DeleteTopicState("orders"), DeleteTopicState("ghost")], [], 5000)
    if version < 6:
        body = DeleteTopicsRequest([], ["orders", "ghost"], 5000)
    answer = cluster.ask(1, ApiKey.DELETE_TOPICS, body, version)
    assert [(each.name, each.error_code) for each in answer.responses] == [
        ("orders", code),
        ("ghost", code),
    ]
    assert [topic.name for topic in cluster.metadata().topics] == ["orders"]


def test_a_topic_created_again_has_a_new_id(one):
    first = one.create("orders", 1, 1).topic_id
    body = DeleteTopicsRequest([DeleteTopicState("orders")], (), 5000)
    one.ask(1, ApiKey.DELETE_TOPICS, body, 6)
    assert one.create("orders", 1, 1).topic_id != first


def grow(cluster, *topics, validate_only=False, version=3):
    body = CreatePartitionsRequest(list(topics), 5000, validate_only)
    return cluster.ask(1, ApiKey.CREATE_PARTITIONS, body, version).results


@pytest.mark.parametrize("version", range(4))
def test_create_partitions_of_every_version(one, version):
    one.create("orders", 2, 1)
    assert grow(one, CreatePartitionsTopic("orders", 5, None), version=version)[0].error_code == 0
    assert len(one.metadata("orders").topics[0].partitions) == 5


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (CreatePartitionsTopic("ghost", 5, None), 3),
        (CreatePartitionsTopic("orders", 2, None), 37),
        (CreatePartitionsTopic("orders", 1, None), 37),
        (CreatePartitionsTopic("orders", -1, None), 37),
        (CreatePartitionsTopic("orders", 2**31 - 1, None), 37),
        (CreatePartitionsTopic("orders", 3, [CreatePartitionsAssignment([9])]), 39),
        (CreatePartitionsTopic("orders", 3, [CreatePartitionsAssignment([])]), 39),
        (CreatePartitionsTopic("orders", 3, [CreatePartitionsAssignment([1])] * 2), 39),
        (CreatePartitionsTopic("orders", 3, [CreatePartitionsAssignment([1] * 9)]), 39),
    ],
)
def test_a_growth_that_cannot_be_is_refused(one, topic, code):
    one.create("orders", 2, 1)
    answer = grow(one, topic)[0]
    assert (answer.error_code, bool(answer.error_message)) == (code, True)
    assert len(one.metadata("orders").topics[0].partitions) == 2


def test_growth_for_validation_only(one):
    one.create("orders", 2, 1)
    assert grow(one, CreatePartitionsTopic("orders", 5, None), validate_only=True)[0][1] == 0
    assert len(one.metadata("orders").topics[0].partitions) == 2


# --- DescribeConfigs, DescribeCluster, FindCoordinator --------------------------------------------


def describe(cluster, *resources, version=4, synonyms=False, documentation=False):
    body = DescribeConfigsRequest(list(resources), synonyms, documentation)
    return cluster.ask(1, ApiKey.DESCRIBE_CONFIGS, body, version).results


@pytest.mark.parametrize("version", range(1, 5))
def test_describe_configs_shows_every_setting_of_a_topic(one, version):
    one.create("orders", 1, 1, configs=[("retention.ms", "5000")])
    (result,) = describe(one, DescribeConfigsResource(2, "orders", None), version=version)
    assert (result.error_code, [c.name for c in result.configs]) == (0, list(TOPIC_CONFIGS))
    retention = next(c for c in result.configs if c.name == "retention.ms")
    assert (retention.value, retention.config_source) == ("5000", 1)
    others = [c for c in result.configs if c.name != "retention.ms"]
    assert [c.config_source for c in others] == [5] * len(others)


def test_describe_configs_filters_and_explains(one):
    one.create("orders", 1, 1, configs=[("retention.ms", "5000")])
    resource = DescribeConfigsResource(2, "orders", ["retention.ms"])
    (result,) = describe(one, resource, synonyms=True, documentation=True)
    (line,) = result.configs
    assert line.documentation
    assert [(s.name, s.value, s.source) for s in line.synonyms] == [
        ("retention.ms", "5000", 1),
        ("log.retention.ms", "604800000", 5),
    ]


def test_describe_configs_of_the_broker(one):
    (own, other, all_brokers) = describe(
        one,
        DescribeConfigsResource(4, "1", None),
        DescribeConfigsResource(4, "7", None),
        DescribeConfigsResource(4, "", None),
    )
    values = {line.name: line.value for line in own.configs}
    assert values["node.id"] == "1"
    assert values["log.retention.ms"] == "604800000"
    assert other.error_code == 42
    assert (all_brokers.error_code, all_brokers.configs) == (0, ())


def test_describe_configs_of_what_is_not_there(one):
    results = describe(
        one,
        DescribeConfigsResource(2, "ghost", None),
        DescribeConfigsResource(2, "a b", None),
        DescribeConfigsResource(77, "x", None),
    )
    assert [r.error_code for r in results] == [3, 17, 42]


@pytest.mark.parametrize("version", range(3))
def test_describe_cluster(three, version):
    answer = three.ask(2, ApiKey.DESCRIBE_CLUSTER, DescribeClusterRequest(), version)
    assert [b.broker_id for b in answer.brokers] == [1, 2, 3]
    assert answer.controller_id in (1, 2, 3)
    assert answer.cluster_id == three.metadata().cluster_id
    assert len(answer.cluster_id) == 22


def test_describe_cluster_with_fenced_brokers(three):
    three.kill(3)
    three.wait(lambda: len(three.metadata(at=1).brokers) == 2, what="fenced")
    plain = three.ask(1, ApiKey.DESCRIBE_CLUSTER, DescribeClusterRequest(), 2)
    everyone = DescribeClusterRequest(include_fenced_brokers=True)
    every = three.ask(1, ApiKey.DESCRIBE_CLUSTER, everyone, 2)
    assert [b.broker_id for b in plain.brokers] == [1, 2]
    assert [(b.broker_id, b.is_fenced) for b in every.brokers] == [
        (1, False),
        (2, False),
        (3, True),
    ]


@pytest.mark.parametrize(("kind", "code"), [(2, 114), (9, 115)])
def test_describe_cluster_of_other_endpoints(one, kind, code):
    body = DescribeClusterRequest(endpoint_type=kind)
    assert one.ask(1, ApiKey.DESCRIBE_CLUSTER, body, 1).error_code == code
