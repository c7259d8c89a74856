"""FindCoordinator: the internal topic is made on the first ask, and the answer is held until its
partition is led."""

import attrs
import pytest

from raftlog.broker.config import OffsetsTopicSettings
from raftlog.broker.groups.offsets_topic import java_hash, partition_of
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from raftlog.kafka.messages.create_topics import CreatableTopic, CreateTopicsRequest
from raftlog.kafka.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from raftlog.kafka.messages.find_coordinator import FindCoordinatorRequest
from raftlog.kafka.versions import ApiKey
from tests.broker.cluster import Cluster

TOPIC = "__consumer_offsets"


def with_partitions(count):
    def configure(config):
        return attrs.evolve(config, offsets_topic=OffsetsTopicSettings(partitions=count))

    return configure


def a_cluster(brokers=3, partitions=3):
    controllers = 3 if brokers >= 3 else 1
    return Cluster(brokers, controllers, configure=with_partitions(partitions)).ready()


@pytest.fixture
def three():
    return a_cluster()


def found_by(cluster, node, version=6, groups=("g",)):
    body = FindCoordinatorRequest(groups[0], 0, groups if version >= 4 else ())
    answer = cluster.ask(node, ApiKey.FIND_COORDINATOR, body, version)
    return answer.coordinators if version >= 4 else [answer]


@pytest.mark.parametrize(
    ("text", "hashed"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("polygenelubricants", -(2**31)),
        ("grüße", 98768023),
        ("\U0001f600", 1772899),
    ],
)
def test_the_hash_is_javas(text, hashed):
    assert java_hash(text) == hashed


def test_the_smallest_hash_has_no_magnitude_and_means_partition_0():
    assert partition_of("polygenelubricants", 50) == 0
    assert partition_of("hello", 50) == 99162322 % 50


@pytest.mark.parametrize("version", range(7))
def test_the_first_ask_makes_the_topic_and_is_answered_when_it_is_led(version):
    cluster = a_cluster()
    answer = found_by(cluster, 2, version)[0]
    number = partition_of("g", 3)
    assert (answer.error_code, answer.node_id) == (0, cluster.leader(TOPIC, number).number)
    own = next(b for b in cluster.metadata().brokers if b.node_id == answer.node_id)
    assert (answer.host, answer.port) == (own.host, own.port)


def test_every_broker_names_the_same_coordinators(three):
    groups = [f"group-{number}" for number in range(20)]
    first = found_by(three, 1, groups=groups)
    assert [answer.key for answer in first] == groups
    assert {answer.error_code for answer in first} == {0}
    for node in (2, 3):
        assert found_by(three, node, groups=groups) == first
    assert len({answer.node_id for answer in first}) > 1


def test_the_topic_is_internal_and_has_the_shape_that_the_settings_say(three):
    found_by(three, 1)
    topic = three.metadata(TOPIC).topics[0]
    assert topic.is_internal
    assert len(topic.partitions) == 3
    assert [len(each.replica_nodes) for each in topic.partitions] == [3, 3, 3]


def test_one_broker_makes_the_topic_with_one_replica():
    one = a_cluster(brokers=1)
    assert found_by(one, 1)[0].error_code == 0
    partitions = one.metadata(TOPIC).topics[0].partitions
    assert [each.replica_nodes for each in partitions] == [(1,), (1,), (1,)]


def test_the_topic_is_made_with_as_many_replicas_as_brokers_live(three):
    """A cluster of three of which one is down serves groups all the same."""
    three.kill(3)
    three.wait(lambda: len(three.metadata().brokers) == 2, 20, "fenced")
    assert found_by(three, 1)[0].error_code == 0
    partitions = three.metadata(TOPIC).topics[0].partitions
    assert [sorted(each.replica_nodes) for each in partitions] == [[1, 2]] * 3


def test_the_creation_waits_for_brokers_that_may_only_be_late(three):
    """With two live brokers of three, the topic would have two replicas for good."""
    three.kill(3)
    three.wait(lambda: len(three.metadata().brokers) == 2, 20, "fenced")
    body = FindCoordinatorRequest("g", 0, ["g"])
    pending = three.client(1).request(ApiKey.FIND_COORDINATOR, body, 6)
    three.run(0.1)
    three.restart(3)
    three.wait(lambda: pending.done, 20, "an answer")
    assert pending.answer.coordinators[0].error_code == 0
    partitions = three.metadata(TOPIC).topics[0].partitions
    assert [len(each.replica_nodes) for each in partitions] == [3, 3, 3]


def test_two_brokers_that_are_asked_at_once_make_one_topic(three):
    body = FindCoordinatorRequest("g", 0, ["g"])
    asked = [three.client(n).request(ApiKey.FIND_COORDINATOR, body, 6) for n in (1, 2, 3)]
    three.wait(lambda: all(each.done for each in asked), 20, "three answers")
    answers = {each.answer.coordinators[0] for each in asked}
    assert len(answers) == 1
    assert answers.pop().error_code == 0


def test_who_coordinates_moves_with_the_leader(three):
    before = found_by(three, 1)[0].node_id
    three.kill(before)
    other = 1 + before % 3

    def moved():
        answer = found_by(three, other)[0]
        return answer.error_code == 0 and answer.node_id != before

    three.wait(moved, 20, "another coordinator")


def test_without_a_majority_the_answer_comes_in_bounded_time_and_says_not_available(three):
    before = found_by(three, 1)[0].node_id
    others = [node for node in (1, 2, 3) if node != before]
    three.kill(before)
    three.kill(others[0])
    pending = three.client(others[1]).request(
        ApiKey.FIND_COORDINATOR, FindCoordinatorRequest("g", 0, ["g"]), 6
    )
    three.run(15)
    if pending.done and not isinstance(pending.answer, Exception):
        answer = pending.answer.coordinators[0]
        assert answer.error_code in (0, ErrorCode.COORDINATOR_NOT_AVAILABLE)


def test_without_leaders_of_an_old_topic_the_answer_comes_at_once():
    """It was held for five seconds, and with it all that the client had sent behind it: every
    look-up of offsets by librdkafka timed out while two of three brokers were gone."""
    two = a_cluster(brokers=2)
    assert found_by(two, 1)[0].error_code == 0
    two.kill(2)
    two.run(20)
    pending = two.client(1).request(
        ApiKey.FIND_COORDINATOR, FindCoordinatorRequest("g", 0, ["g"]), 6
    )
    two.run(0.1)
    assert pending.done
    assert pending.answer.coordinators[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_clients_neither_create_nor_delete_nor_grow_nor_write_it(three):
    create = CreateTopicsRequest([CreatableTopic(TOPIC, 1, 1)], 5000)
    refused = three.ask(1, ApiKey.CREATE_TOPICS, create).topics[0]
    assert refused.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    found_by(three, 1)
    delete = DeleteTopicsRequest([DeleteTopicState(TOPIC)], (), 5000)
    refused = three.ask(1, ApiKey.DELETE_TOPICS, delete, 6).responses[0]
    assert refused.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    grow = CreatePartitionsRequest([CreatePartitionsTopic(TOPIC, 9)], 5000)
    refused = three.ask(1, ApiKey.CREATE_PARTITIONS, grow, 3).results[0]
    assert refused.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert "fixed its partitions" in refused.error_message
    assert three.produce(TOPIC, [b"x"]).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert len(three.metadata(TOPIC).topics[0].partitions) == 3
