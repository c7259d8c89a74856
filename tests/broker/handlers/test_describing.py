"""DescribeQuorum, DescribeTopicPartitions, DescribeProducers, ListConfigResources,
UnregisterBroker."""

import pytest

from raftlog.base.errors import ProtocolError
from raftlog.broker.control.quorum_view import quorum_state
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.messages.describe_producers import DescribeProducersRequest
from raftlog.kafka.messages.describe_producers import TopicRequest as ProducersOf
from raftlog.kafka.messages.describe_quorum import (
    DescribeQuorumRequest,
    PartitionDataRequest,
    TopicDataRequest,
)
from raftlog.kafka.messages.describe_topic_partitions import (
    CursorRequest,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from raftlog.kafka.messages.list_config_resources import ListConfigResourcesRequest
from raftlog.kafka.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from raftlog.kafka.messages.unregister_broker import UnregisterBrokerRequest
from raftlog.kafka.versions import ApiKey
from raftlog.records.builder import RecordBatchBuilder
from tests.broker.cluster import Cluster


@pytest.fixture
def four():
    """Three controllers and a broker that only follows them."""
    return Cluster(brokers=4, controllers=3, encode=True).ready()


@pytest.fixture
def one():
    return Cluster(brokers=1).ready()


# --- DescribeQuorum -------------------------------------------------------------------------------


def quorum(cluster, at=1, version=2, topic="__cluster_metadata", number=0):
    asked = [TopicDataRequest(topic, [PartitionDataRequest(number)])]
    return cluster.ask(at, ApiKey.DESCRIBE_QUORUM, DescribeQuorumRequest(asked), version)


@pytest.mark.parametrize("version", range(3))
def test_every_broker_tells_how_the_controllers_stand(four, version):
    four.create("orders", 1, 3)
    four.run(2)
    for at in range(1, 5):
        answer = quorum(four, at=at, version=version)
        (partition,) = answer.topics[0].partitions
        assert (answer.error_code, partition.error_code) == (0, 0)
        active = [n for n in four.world.running() if n.broker.controller.term is not None]
        assert partition.leader_id == active[0].number
        assert partition.leader_epoch == active[0].broker.controller.term
        assert [each.replica_id for each in partition.current_voters] == [1, 2, 3]
        assert [each.replica_id for each in partition.observers] == [4]
        ends = {each.log_end_offset for each in (*partition.current_voters, *partition.observers)}
        assert ends == {partition.high_watermark}, "nothing moves any more"
        if version >= 1:
            leader = next(
                r for r in partition.current_voters if r.replica_id == partition.leader_id
            )
            others = [each for each in partition.current_voters if each is not leader]
            heard = [each.last_fetch_timestamp for each in others]
            assert all(
                leader.last_fetch_timestamp - 3000 < ms <= leader.last_fetch_timestamp
                for ms in heard
            )
        if version >= 2:
            assert [node.node_id for node in answer.nodes] == [1, 2, 3]
            assert len({each.replica_directory_id for each in partition.current_voters}) == 3


def test_controllers_of_an_idle_cluster_are_heard_all_the_time(four):
    """Heartbeats of the pair of nodes stand for those of the group, which tells nothing itself."""
    for _ in range(10):
        four.run(7)
        (partition,) = quorum(four).topics[0].partitions
        now = max(each.last_fetch_timestamp for each in partition.current_voters)
        for each in (*partition.current_voters, *partition.observers):
            assert now - each.last_fetch_timestamp < 3000, each
            assert each.last_caught_up_timestamp == each.last_fetch_timestamp, each


def test_a_controller_that_is_gone_falls_behind(four):
    active = next(n for n in four.world.running() if n.broker.controller.term is not None).number
    gone = next(number for number in (1, 2, 3) if number != active)
    at = next(number for number in (1, 2, 3) if number not in (active, gone))
    four.kill(gone)
    four.create("orders", 1, 1, at=at)
    four.run(3)
    (partition,) = quorum(four, at=at).topics[0].partitions
    voters = {each.replica_id: each for each in partition.current_voters}
    assert voters[gone].log_end_offset < voters[active].log_end_offset
    assert voters[gone].last_caught_up_timestamp == -1
    assert voters[gone].last_fetch_timestamp < voters[active].last_fetch_timestamp


def test_no_other_topic_has_a_quorum(four):
    for topic, number in (("orders", 0), ("__cluster_metadata", 1)):
        (partition,) = quorum(four, topic=topic, number=number).topics[0].partitions
        assert partition.error_code == 3


@pytest.mark.parametrize("text", ["", "1,2", "1,2,3\n1,2", "a,b,c", "1,2,3\n1,1,1,1,1,1"])
def test_a_message_that_is_no_state_of_the_group_is_a_peers_fault(text):
    with pytest.raises(ProtocolError, match="it is not understood"):
        quorum_state(text)


# --- DescribeTopicPartitions ----------------------------------------------------------------------


def page(cluster, *names, limit=2000, cursor=None):
    body = DescribeTopicPartitionsRequest([TopicRequest(n) for n in names], limit, cursor)
    answer = cluster.ask(1, ApiKey.DESCRIBE_TOPIC_PARTITIONS, body, 0)
    told = [
        (t.name, t.error_code, [p.partition_index for p in t.partitions]) for t in answer.topics
    ]
    return told, answer.next_cursor


def test_topics_come_by_name_with_all_that_metadata_tells(one):
    one.create("b", 2, 1)
    one.create("a", 1, 1)
    told, following = page(one, "b", "ghost", "a", "b", "a b")
    assert told == [("a", 0, [0]), ("a b", 17, []), ("b", 0, [0, 1]), ("ghost", 3, [])]
    assert following is None
    assert page(one)[0] == [("a", 0, [0]), ("b", 0, [0, 1])]
    body = DescribeTopicPartitionsRequest([TopicRequest("a")])
    (topic,) = one.ask(1, ApiKey.DESCRIBE_TOPIC_PARTITIONS, body, 0).topics
    (partition,) = topic.partitions
    known = one.partition("a")
    assert (partition.leader_id, partition.leader_epoch) == (known.leader_id, known.leader_epoch)
    assert (partition.replica_nodes, partition.isr_nodes) == (known.replica_nodes, known.isr_nodes)


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 6, 7])
def test_pages_together_are_everything_once(one, limit):
    for name, count in (("a", 1), ("b", 3), ("c", 2)):
        one.create(name, count, 1)
    found, cursor = [], None
    for _ in range(10):
        told, following = page(one, limit=limit, cursor=cursor)
        pieces = [(name, number) for name, _, numbers in told for number in numbers]
        assert 0 < len(pieces) <= limit
        found += pieces
        if following is None:
            break
        cursor = CursorRequest(following.topic_name, following.partition_index)
    assert found == [("a", 0), ("b", 0), ("b", 1), ("b", 2), ("c", 0), ("c", 1)]


def test_a_cursor_at_a_topic_that_is_gone_goes_on_behind_it(one):
    one.create("c", 1, 1)
    assert page(one, cursor=CursorRequest("b", 7))[0] == [("c", 0, [0])]
    assert page(one, cursor=CursorRequest("c", 7))[0] == [("c", 0, [])]
    assert page(one, cursor=CursorRequest("c", 0), limit=-5)[0] == [("c", 0, [0])]


def test_a_cursor_at_a_negative_partition_is_refused_as_by_kafka(one):
    """The answer has the topics that the request names, and no others."""
    one.create("c", 1, 1)
    cursor = CursorRequest("c", -1)
    assert page(one, "c", "d", cursor=cursor) == ([("c", 42, []), ("d", 42, [])], None)
    assert page(one, cursor=cursor) == ([], None)


# --- DescribeProducers ----------------------------------------------------------------------------


def producers(cluster, at, name, *numbers):
    body = DescribeProducersRequest([ProducersOf(name, list(numbers))])
    return cluster.ask(at, ApiKey.DESCRIBE_PRODUCERS, body, 0).topics[0].partitions


def test_every_replica_tells_its_producers(four):
    """Kafka's tool for hanging transactions asks a broker for all its replicas; followers refused
    with NOT_LEADER_OR_FOLLOWER, which the tool does not take for an answer."""
    four.create("orders", 1, 3)
    leader = four.leader("orders").number
    (partition,) = producers(four, leader, "orders", 0, 0)
    assert (partition.error_code, partition.active_producers) == (0, ())
    builder = RecordBatchBuilder(producer_id=7, producer_epoch=0, base_sequence=0)
    builder.append(b"numbered", timestamp_ms=1)
    data = PartitionProduceData(0, bytes(builder.build()))
    body = ProduceRequest(None, -1, 5000, [TopicProduceData("orders", partition_data=[data])])
    answer = four.ask(leader, ApiKey.PRODUCE, body, 11)
    assert answer.responses[0].partition_responses[0].error_code == 0
    four.run(2.0)
    found = {}
    for number in (1, 2, 3, 4):
        partition, unknown = producers(four, number, "orders", 0, 9)
        assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        states = [
            (each.producer_id, each.producer_epoch, each.last_sequence)
            for each in partition.active_producers
        ]
        found[number] = (partition.error_code, states)
    replicas = set(four.partition("orders").replica_nodes)
    (other,) = {1, 2, 3, 4} - replicas
    assert found.pop(other) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, [])
    assert found == dict.fromkeys(replicas, (0, [(7, 0, 0)]))
    assert producers(four, leader, "a b", 0)[0].error_code == 17


# --- ListConfigResources, UnregisterBroker --------------------------------------------------------


def test_resources_with_settings(four):
    four.create("orders", 1, 3)
    four.create("flights", 1, 3)

    def listed(*kinds, version=1):
        body = ListConfigResourcesRequest(list(kinds))
        answer = four.ask(2, ApiKey.LIST_CONFIG_RESOURCES, body, version)
        return answer.error_code, [
            (r.resource_type, r.resource_name) for r in answer.config_resources
        ]

    topics = [(2, "flights"), (2, "orders")]
    brokers = [(4, str(number)) for number in range(1, 5)]
    assert listed() == (0, [*topics, *brokers])
    assert listed(2) == (0, topics)
    assert listed(4, 8, 16, 32) == (0, brokers)
    assert listed(2, 77) == (35, [])
    assert listed(version=0) == (0, [])


def unregister(cluster, node, at=1):
    body = UnregisterBrokerRequest(node)
    answer = cluster.ask(at, ApiKey.UNREGISTER_BROKER, body, 0)
    return answer.error_code, answer.error_message


def test_a_broker_that_is_gone_and_empty_is_forgotten(four):
    assert unregister(four, 9) == (102, "Broker ID 9 is not currently registered")
    assert unregister(four, -1) == (102, "Broker ID -1 is not currently registered")
    assert unregister(four, 4)[0] == 42, "it lives"
    four.kill(4)
    four.wait(lambda: 4 not in [b.node_id for b in four.metadata().brokers], what="fenced")
    assert unregister(four, 4, at=2) == (0, None)
    assert unregister(four, 4)[0] == 102
    assert 4 not in four.world.nodes[2].broker.context.image.brokers
