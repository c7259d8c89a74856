"""Screens of user interfaces for Kafka, replayed request by request against three brokers.

Each dialect has the versions with which the client library of an interface was seen to ask brokers
of this release. Every dialect must show the same facts: sizes as they lie on the disks, counts,
offsets and lag. `scripts/strangers kaskade` runs an interface itself.
"""

import socket
from contextlib import ExitStack
from typing import NamedTuple

import pytest

from raftlog.client.blocking import BlockingClient
from raftlog.client.blocking_consumer import BlockingConsumer
from raftlog.client.core.values import TopicPartition
from raftlog.embed.cluster import Cluster
from raftlog.kafka import codec
from raftlog.kafka.embedded import decode_embedded
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.messages import (
    describe_acls,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_quorum,
    describe_topic_partitions,
    describe_transactions,
    describe_user_scram_credentials,
    find_coordinator,
    list_config_resources,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    list_transactions,
    metadata,
    offset_fetch,
)
from raftlog.kafka.messages.api_versions import ApiVersionsRequest
from raftlog.kafka.versions import ApiKey

SECONDS = 20
NODES = [1, 2, 3]
TOPIC, PARTITIONS, RECORDS = "orders", 3, 20
"""Each partition of the topic has so many records."""
BUSY, IDLE = "busy", "idle"
"""A group with a member, and one without."""
COMMITTED = 12
"""The offset that the idle group has committed in each partition."""
RETENTION = "7200000"
EARLIEST, LATEST, MAX_TIMESTAMP = -2, -1, -3
TOPICS, BROKERS, LOGGERS, GROUPS = 2, 4, 8, 32
OF_THE_TOPIC, DEFAULT = 1, 5
"""Sources of a setting's value."""


class Dialect(NamedTuple):
    """The versions with which a client asks; None when its screens do not ask this."""

    metadata: int
    list_offsets: int
    find_coordinator: int
    offset_fetch: int
    describe_configs: int
    list_groups: int | None = None
    describe_groups: int | None = None
    describe_log_dirs: int | None = None
    describe_acls: int | None = None
    describe_cluster: int | None = None


DIALECTS = {
    "Kafbat UI, AKHQ, Kafdrop (Java 4.4)": Dialect(13, 11, 6, 9, 4, 5, 6, 5, 3, 2),
    "Kafbat UI, AKHQ, Kafdrop (Java 3.9)": Dialect(12, 9, 6, 9, 4, 5, 5, 4, 3, 1),
    "Redpanda Console (franz-go 1.22)": Dialect(13, 11, 6, 10, 4, 5, 6, 5, 3, 2),
    "kafkactl, kaf (sarama 1.61)": Dialect(11, 6, 3, 7, 4, 4, 5, 2, 2, 0),
    "kafkactl, kaf (sarama 1.61, set to Kafka 2.1)": Dialect(7, 4, 2, 5, 2, 2, 2, 1, 1),
    "kaskade (librdkafka 2.16)": Dialect(13, 7, 2, 9, 1, 5, 5),
    "kafka-console (@platformatic/kafka 1.35)": Dialect(12, 9, 6, 9, 4),
}


def dialects_with(*apis):
    """Parametrizes a test with the dialects whose screens ask all of these APIs."""
    found = {
        name: dialect
        for name, dialect in DIALECTS.items()
        if all(getattr(dialect, api) is not None for api in apis)
    }
    return pytest.mark.parametrize("dialect", found.values(), ids=found.keys())


dialects = dialects_with()


class Wire:
    """One connection to each broker; a broker that closes one fails the test."""

    def __init__(self, cluster, stack):
        places = {node: cluster.address_of(node) for node in cluster.alive}
        self.addresses = {node: f"{host}:{port}" for node, (host, port) in places.items()}
        self._connections = {}
        for node, place in places.items():
            made = socket.create_connection(place, SECONDS)
            self._connections[node] = stack.enter_context(made)

    def ask(self, key, version, body, *, node=1):
        """Returns the answer of a broker, which must come in time."""
        connection = self._connections[node]
        connection.sendall(b"".join(codec.encode_request(key, version, 7, "a screen", body)))
        size = int.from_bytes(self._read(connection, 4), "big")
        return codec.decode_response(key, version, self._read(connection, size)).body

    @staticmethod
    def _read(connection, size):
        read = b""
        while len(read) < size:
            piece = connection.recv(size - len(read))
            assert piece, "the broker hung up"
            read += piece
        return read

    def topics(self, version):
        """Returns the answer about all topics, and the topics by name."""
        everything = () if version == 0 else None
        answer = self.ask(ApiKey.METADATA, version, metadata.MetadataRequest(everything))
        return answer, {each.name: each for each in answer.topics}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("interfaces")


@pytest.fixture(scope="module")
def wire(place):
    """A cluster with records, a group of one member, and a group without members."""
    places = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
    with ExitStack() as stack:
        cluster = stack.enter_context(Cluster(brokers=3, directory=place))
        client = stack.enter_context(BlockingClient(cluster.bootstrap_servers))
        client.create_topic(
            TOPIC,
            partitions=PARTITIONS,
            replication_factor=3,
            configs={"retention.ms": RETENTION},
        )
        for number in range(PARTITIONS * RECORDS):
            client.send_soon(TOPIC, b"%d" % number, partition=number % PARTITIONS)
        client.flush(timeout=SECONDS)
        with BlockingConsumer(cluster.bootstrap_servers, group_id=IDLE) as idle:
            idle.assign(places)
            idle.commit(dict.fromkeys(places, COMMITTED))
        busy = BlockingConsumer(cluster.bootstrap_servers, group_id=BUSY, client_id="member")
        stack.enter_context(busy)
        busy.subscribe([TOPIC])
        while len(busy.assignment()) < PARTITIONS:
            busy.poll(seconds=0.1)
        yield Wire(cluster, stack)


# --- the cluster and its brokers ------------------------------------------------------------------


@dialects
def test_the_overview_names_brokers_cluster_and_controller(wire, dialect):
    shown = [
        wire.ask(ApiKey.METADATA, dialect.metadata, metadata.MetadataRequest(None), node=node)
        for node in NODES
    ]
    for answer in shown:
        addresses = {each.node_id: f"{each.host}:{each.port}" for each in answer.brokers}
        assert addresses == wire.addresses
    assert len({(each.cluster_id, each.controller_id) for each in shown}) == 1
    assert shown[0].cluster_id
    assert shown[0].controller_id in NODES


@dialects_with("describe_cluster")
def test_both_requests_for_the_cluster_name_the_same_controller(wire, dialect):
    shown, _ = wire.topics(dialect.metadata)
    body = describe_cluster.DescribeClusterRequest(include_cluster_authorized_operations=True)
    told = wire.ask(ApiKey.DESCRIBE_CLUSTER, dialect.describe_cluster, body)
    assert (told.cluster_id, told.controller_id) == (shown.cluster_id, shown.controller_id)
    assert {each.broker_id: f"{each.host}:{each.port}" for each in told.brokers} == wire.addresses
    assert told.cluster_authorized_operations > 0, "what the reader may do is known"


@dialects_with("describe_log_dirs")
def test_sizes_of_topics_are_those_of_their_files(wire, place, dialect):
    (topic,) = wire.ask(
        ApiKey.METADATA, 12, metadata.MetadataRequest([metadata.MetadataRequestTopic(name=TOPIC)])
    ).topics
    for node in NODES:
        body = describe_log_dirs.DescribeLogDirsRequest(None)
        answer = wire.ask(ApiKey.DESCRIBE_LOG_DIRS, dialect.describe_log_dirs, body, node=node)
        (directory,) = answer.results
        assert directory.error_code == 0
        assert directory.log_dir == str(place / f"broker{node}")
        if dialect.describe_log_dirs >= 4:
            assert 0 < directory.usable_bytes < directory.total_bytes
        told = {each.name: each.partitions for each in directory.topics}
        assert set(told) == {TOPIC, "__consumer_offsets"}
        for partition in told[TOPIC]:
            folder = f"groups/{topic.topic_id.hex()}-{partition.partition_index}-*/*.log"
            files = (place / f"broker{node}").glob(folder)
            assert partition.partition_size == sum(file.stat().st_size for file in files) > 0
            assert (partition.offset_lag, partition.is_future_key) == (0, False)
        assert sorted(each.partition_index for each in told[TOPIC]) == list(range(PARTITIONS))


@dialects
@pytest.mark.parametrize("kind", [TOPICS, BROKERS])
def test_settings_have_values_sources_synonyms_and_documentation(wire, dialect, kind):
    name = TOPIC if kind == TOPICS else "2"
    asked = describe_configs.DescribeConfigsResource(kind, name, None)
    body = describe_configs.DescribeConfigsRequest([asked], True, True)
    node = 1 if kind == TOPICS else 2
    (result,) = wire.ask(ApiKey.DESCRIBE_CONFIGS, dialect.describe_configs, body, node=node).results
    assert (result.error_code, result.resource_type, result.resource_name) == (0, kind, name)
    found = {each.name: each for each in result.configs}
    assert len(found) == len(result.configs) > 30
    assert all(each.synonyms for each in found.values()), "each says where its value is from"
    assert not [each.name for each in found.values() if each.is_sensitive]
    if dialect.describe_configs >= 3:
        assert all(each.documentation and each.config_type for each in found.values())
    if kind == TOPICS:
        retention = found["retention.ms"]
        assert (retention.value, retention.config_source) == (RETENTION, OF_THE_TOPIC)
        assert retention.synonyms[0] == ("retention.ms", RETENTION, OF_THE_TOPIC)
        assert found["cleanup.policy"].config_source == DEFAULT
    else:
        assert (found["node.id"].value, found["node.id"].read_only) == ("2", True)
        assert found["log.retention.ms"].read_only is False


@dialects
def test_settings_of_a_broker_are_asked_of_that_broker(wire, dialect):
    asked = describe_configs.DescribeConfigsResource(BROKERS, "2", None)
    body = describe_configs.DescribeConfigsRequest([asked])
    (result,) = wire.ask(ApiKey.DESCRIBE_CONFIGS, dialect.describe_configs, body).results
    assert result.error_code == ErrorCode.INVALID_REQUEST
    assert "ask broker 2 itself" in result.error_message


# --- topics ---------------------------------------------------------------------------------------


@dialects
def test_topics_have_leaders_replicas_and_those_in_sync(wire, dialect):
    _, topics = wire.topics(dialect.metadata)
    assert set(topics) == {TOPIC, "__consumer_offsets"}
    assert [topics[name].is_internal for name in (TOPIC, "__consumer_offsets")] == [False, True]
    partitions = sorted(topics[TOPIC].partitions, key=lambda each: each.partition_index)
    assert [each.partition_index for each in partitions] == list(range(PARTITIONS))
    for each in partitions:
        assert each.error_code == 0
        assert sorted(each.replica_nodes) == sorted(each.isr_nodes) == NODES
        assert each.leader_id in NODES
        assert len(each.offline_replicas) == 0


@dialects
def test_offsets_count_the_records(wire, dialect):
    _, topics = wire.topics(dialect.metadata)
    lookups = {EARLIEST: 0, LATEST: RECORDS}
    if dialect.list_offsets >= 7:
        lookups[MAX_TIMESTAMP] = RECORDS - 1
    for timestamp, wanted in lookups.items():
        for partition in topics[TOPIC].partitions:
            asked = list_offsets.ListOffsetsPartition(partition.partition_index, -1, timestamp)
            body = list_offsets.ListOffsetsRequest(
                -1, 0, [list_offsets.ListOffsetsTopic(TOPIC, [asked])]
            )
            version, leader = dialect.list_offsets, partition.leader_id
            (topic,) = wire.ask(ApiKey.LIST_OFFSETS, version, body, node=leader).topics
            (told,) = topic.partitions
            assert (told.error_code, told.partition_index) == (0, partition.partition_index)
            if timestamp == MAX_TIMESTAMP:
                # Records of one millisecond: the first of them has the newest timestamp.
                assert (0 <= told.offset <= wanted, told.timestamp > 0) == (True, True)
            else:
                assert told.offset == wanted


# --- groups ---------------------------------------------------------------------------------------


@dialects_with("list_groups")
def test_the_list_of_groups_has_all_coordinators_groups(wire, dialect):
    body = list_groups.ListGroupsRequest()
    found = []
    for node in NODES:
        answer = wire.ask(ApiKey.LIST_GROUPS, dialect.list_groups, body, node=node)
        assert answer.error_code == 0
        found += answer.groups
    # A group that only committed has no protocol, as with Kafka.
    types = {each.group_id: each.protocol_type for each in found}
    assert types == {BUSY: "consumer", IDLE: ""}
    if dialect.list_groups >= 4:
        assert {each.group_id: each.group_state for each in found} == {
            BUSY: "Stable",
            IDLE: "Empty",
        }
    if dialect.list_groups >= 5:
        assert {each.group_type for each in found} == {"classic"}


def coordinator_of(wire, dialect, group):
    """Returns the node that coordinates a group, as the dialect finds it."""
    version = dialect.find_coordinator
    body = find_coordinator.FindCoordinatorRequest(group, 0, [group] if version >= 4 else ())
    answer = wire.ask(ApiKey.FIND_COORDINATOR, version, body)
    (found,) = answer.coordinators if version >= 4 else (answer,)
    assert (found.error_code, f"{found.host}:{found.port}") == (0, wire.addresses[found.node_id])
    return found.node_id


@dialects_with("describe_groups")
def test_groups_have_members_with_partitions_or_none(wire, dialect):
    found = {}
    for group in (BUSY, IDLE):
        node = coordinator_of(wire, dialect, group)
        body = describe_groups.DescribeGroupsRequest([group], True)
        (found[group],) = wire.ask(
            ApiKey.DESCRIBE_GROUPS, dialect.describe_groups, body, node=node
        ).groups
    assert [each.error_code for each in found.values()] == [0, 0]
    assert [each.group_state for each in found.values()] == ["Stable", "Empty"]
    assert len(found[IDLE].members) == 0
    (member,) = found[BUSY].members
    assert (member.client_id, member.client_host) == ("member", "/127.0.0.1")
    _, assignment = decode_embedded("ConsumerProtocolAssignment", member.member_assignment)
    (assigned,) = assignment.assigned_partitions
    assert (assigned.topic, sorted(assigned.partitions)) == (TOPIC, list(range(PARTITIONS)))


@dialects
def test_lag_is_the_end_without_what_a_group_committed(wire, dialect):
    version = dialect.offset_fetch
    node = coordinator_of(wire, dialect, IDLE)
    everything = offset_fetch.OffsetFetchRequestGroup(IDLE, topics=None)
    body = offset_fetch.OffsetFetchRequest(IDLE, None, [everything] if version >= 8 else ())
    answer = wire.ask(ApiKey.OFFSET_FETCH, version, body, node=node)
    (told,) = answer.groups if version >= 8 else (answer,)
    assert told.error_code == 0
    (topic,) = told.topics
    if version < 10:
        assert topic.name == TOPIC
    else:
        _, topics = wire.topics(dialect.metadata)
        assert topic.topic_id == topics[TOPIC].topic_id
    lag = {each.partition_index: RECORDS - each.committed_offset for each in topic.partitions}
    assert lag == dict.fromkeys(range(PARTITIONS), RECORDS - COMMITTED)


# --- what is not served ---------------------------------------------------------------------------


@dialects_with("describe_acls")
def test_the_page_of_access_control_lists_hears_that_there_is_no_authorizer(wire, dialect):
    version = dialect.describe_acls
    shown = wire.ask(
        ApiKey.DESCRIBE_ACLS,
        version,
        describe_acls.DescribeAclsRequest(1, None, 1, None, None, 1, 1),
    )
    assert (shown.error_code, len(shown.resources)) == (ErrorCode.SECURITY_DISABLED, 0)
    assert "No Authorizer" in shown.error_message


UNSERVED = [
    (ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, describe_client_quotas.DescribeClientQuotasRequest()),
    (ApiKey.LIST_TRANSACTIONS, 1, list_transactions.ListTransactionsRequest()),
    (
        ApiKey.DESCRIBE_TRANSACTIONS,
        0,
        describe_transactions.DescribeTransactionsRequest(["a transaction"]),
    ),
    (
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        0,
        describe_user_scram_credentials.DescribeUserScramCredentialsRequest(None),
    ),
]


@pytest.mark.parametrize(("key", "version", "body"), UNSERVED, ids=[e[0].name for e in UNSERVED])
def test_pages_of_what_is_not_served_are_not_offered_and_refused(wire, key, version, body):
    """A screen that looks into the list first hides the page; another hears a clear error."""
    offered = wire.ask(ApiKey.API_VERSIONS, 3, ApiVersionsRequest("a screen", "1"))
    assert key not in [each.api_key for each in offered.api_keys]
    answer = wire.ask(key, version, body)
    if key == ApiKey.DESCRIBE_TRANSACTIONS:
        (answer,) = answer.transaction_states
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert wire.topics(12)[1], "the connection is still there"


# --- pages of an administrator, which ask one version each ----------------------------------------


def test_pages_of_the_administrator(wire):
    answer, topics = wire.topics(13)
    asked = [describe_quorum.PartitionDataRequest(0)]
    quorum = wire.ask(
        ApiKey.DESCRIBE_QUORUM,
        2,
        describe_quorum.DescribeQuorumRequest(
            [describe_quorum.TopicDataRequest("__cluster_metadata", asked)]
        ),
        node=answer.controller_id,
    )
    (voters,) = quorum.topics[0].partitions
    assert (quorum.error_code, voters.error_code) == (0, 0)
    assert sorted(each.replica_id for each in voters.current_voters) == NODES
    assert voters.leader_id == answer.controller_id

    moving = wire.ask(
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        0,
        list_partition_reassignments.ListPartitionReassignmentsRequest(),
    )
    assert (moving.error_code, len(moving.topics)) == (0, 0)

    leader = topics[TOPIC].partitions[0].leader_id
    number = topics[TOPIC].partitions[0].partition_index
    producers = wire.ask(
        ApiKey.DESCRIBE_PRODUCERS,
        0,
        describe_producers.DescribeProducersRequest(
            [describe_producers.TopicRequest(TOPIC, [number])]
        ),
        node=leader,
    )
    (partition,) = producers.topics[0].partitions
    assert [each.last_sequence for each in partition.active_producers] == [RECORDS - 1]

    listed = wire.ask(
        ApiKey.LIST_CONFIG_RESOURCES,
        1,
        list_config_resources.ListConfigResourcesRequest([TOPICS, BROKERS, LOGGERS, GROUPS]),
    )
    names = [(each.resource_type, each.resource_name) for each in listed.config_resources]
    assert names == [
        (TOPICS, "__consumer_offsets"),
        (TOPICS, TOPIC),
        *((BROKERS, str(node)) for node in NODES),
    ]

    told = wire.ask(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        0,
        describe_topic_partitions.DescribeTopicPartitionsRequest(
            [describe_topic_partitions.TopicRequest(TOPIC)]
        ),
    )
    (topic,) = told.topics
    assert topic.topic_id == topics[TOPIC].topic_id
    assert [sorted(each.isr_nodes) for each in topic.partitions] == [NODES] * PARTITIONS
