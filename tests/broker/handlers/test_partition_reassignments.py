"""AlterPartitionReassignments and ListPartitionReassignments over real frames."""

import pytest

from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from raftlog.kafka.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from raftlog.kafka.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from raftlog.kafka.versions import ApiKey
from tests.broker.cluster import Cluster


@pytest.fixture
def four():
    """A topic `t` of two partitions on three of four brokers each."""
    cluster = Cluster(brokers=4, controllers=3).ready()
    cluster.create("t", 2, 3)
    cluster.wait(lambda: reported(cluster), 20.0, "leaders that are known")
    return cluster


def image(cluster, at=1):
    return cluster.world.nodes[at].broker.context.image


def partitions(cluster, at=1):
    return image(cluster, at).topic("t").partitions


def reported(cluster):
    running = cluster.world.running()
    return all(each.leader for node in running for each in partitions(cluster, node.number))


def nodes_of(cluster, number=0, at=1):
    return [replica.node for replica in partitions(cluster, at)[number].target]


def elsewhere(cluster, number=0):
    """The partition's nodes with the last one exchanged for the one that has none; that one."""
    nodes = nodes_of(cluster, number)
    (new,) = set(cluster.world.nodes) - set(nodes)
    return [*nodes[:2], new], new


def move(cluster, *moves, name="t", at=1, version=1, factor_may_change=True, timeout_ms=5_000):
    """The error of each (number, nodes or None)."""
    asked = [ReassignablePartition(number, nodes) for number, nodes in moves]
    body = AlterPartitionReassignmentsRequest(
        timeout_ms, factor_may_change, [ReassignableTopic(name, asked)]
    )
    answer = cluster.ask(at, ApiKey.ALTER_PARTITION_REASSIGNMENTS, body, version)
    assert (answer.error_code, answer.error_message) == (0, None)
    assert answer.allow_replication_factor_change is factor_may_change
    (topic,) = answer.responses
    assert (topic.name, [p.partition_index for p in topic.partitions]) == (
        name,
        [number for number, _ in moves],
    )
    assert all(bool(p.error_message) == bool(p.error_code) for p in topic.partitions)
    return [p.error_code for p in topic.partitions]


def moving(cluster, *numbers, at=1, name="t"):
    """{(topic, partition): (replicas, adding, removing)} of these partitions, or of all."""
    topics = [ListPartitionReassignmentsTopics(name, numbers)] if numbers else None
    body = ListPartitionReassignmentsRequest(5_000, topics)
    answer = cluster.ask(at, ApiKey.LIST_PARTITION_REASSIGNMENTS, body)
    assert (answer.error_code, answer.error_message) == (0, None)
    return {
        (topic.name, p.partition_index): (
            list(p.replicas),
            list(p.adding_replicas),
            list(p.removing_replicas),
        )
        for topic in answer.topics
        for p in topic.partitions
    }


@pytest.mark.parametrize("version", range(2))
def test_a_partition_moves_and_all_its_records_with_it(four, version):
    four.put("t", ["a", "b"])
    nodes, new = elsewhere(four)
    assert move(four, (0, nodes), version=version) == [0]
    four.wait(lambda: not moving(four), 20.0, "moved")
    four.wait(lambda: not image(four).removals, 20.0, "files gone")
    assert sorted(four.partition("t").replica_nodes) == sorted(nodes)
    assert new in four.partition("t").isr_nodes
    assert [value for _, value in four.read_all("t")] == [b"a", b"b"]


def test_a_move_under_way_is_told_by_every_broker_at_once(four):
    nodes, new = elsewhere(four)
    gone = nodes_of(four)[2]
    four.kill(new)
    asked_at = next(n for n in nodes if n not in (gone, new))
    assert move(four, (0, nodes), at=asked_at) == [0]
    for node in four.world.running():
        found = moving(four, at=node.number)
        assert found == {("t", 0): ([*nodes, gone], [new], [gone])}
    assert moving(four, 0, at=asked_at) == found
    assert moving(four, 0, 0, 7, -1, at=asked_at) == found
    assert moving(four, 1, at=asked_at) == {}
    assert moving(four, 0, at=asked_at, name="ghost") == {}


def test_a_cancel_goes_back_and_there_is_only_one(four):
    nodes, new = elsewhere(four)
    before = nodes_of(four)
    at = before[0]
    four.kill(new)
    assert move(four, (0, nodes), (1, None), at=at) == [0, 85]
    assert move(four, (0, None), at=at) == [0]
    assert nodes_of(four, at=at) == before
    assert moving(four, at=at) == {}
    assert move(four, (0, None), at=at) == [ErrorCode.NO_REASSIGNMENT_IN_PROGRESS]


def test_the_first_choice_alone_may_change(four):
    nodes = nodes_of(four)[::-1]
    assert move(four, (0, nodes)) == [0]
    assert nodes_of(four) == nodes
    assert moving(four) == {}


@pytest.mark.parametrize(
    "nodes", [[], [1, 1], [9], [-1], [1, 2, -3], [1] * 6, list(range(1, 7)), [2**31 - 1]], ids=str
)
def test_a_bad_list_of_brokers_is_39(four, nodes):
    """An empty one is not taken for a cancel."""
    good, _ = elsewhere(four, 1)
    before = nodes_of(four)
    assert move(four, (0, nodes), (1, good)) == [ErrorCode.INVALID_REPLICA_ASSIGNMENT, 0]
    assert nodes_of(four) == before
    assert nodes_of(four, 1) == good


def test_what_is_not_there_is_3(four):
    nodes, _ = elsewhere(four)
    assert move(four, (2, nodes), (-1, nodes), (2**31 - 1, None)) == [3, 3, 3]
    assert move(four, (0, nodes), name="ghost") == [3]
    assert move(four, (0, nodes), name="__cluster_metadata") == [3]


def test_a_partition_named_twice_is_refused_twice(four):
    nodes, _ = elsewhere(four)
    assert move(four, (0, nodes), (1, nodes_of(four, 1)), (0, None)) == [42, 0, 42]
    assert nodes_of(four) != nodes


def test_the_number_of_replicas_changes_only_where_the_client_allows_it(four):
    nodes = nodes_of(four)
    assert move(four, (0, nodes[:1]), factor_may_change=False) == [38]
    assert move(four, (0, nodes[:1])) == [0]
    four.wait(lambda: not moving(four), 20.0, "moved")
    assert list(four.partition("t").replica_nodes) == nodes[:1]


def test_a_topic_that_was_made_anew_is_found_by_its_name():
    cluster = Cluster(brokers=3, controllers=3).ready()
    running = cluster.world.running()
    controller = next(node for node in running if node.broker.controller.active)
    behind = next(node for node in running if node is not controller)
    cluster.create("t", 1, 1)
    cluster.wait(lambda: image(cluster, behind.number).topic("t"), 5.0, "known")
    cluster.world.network.hold([(controller.number, behind.number)])
    delete = DeleteTopicsRequest([DeleteTopicState("t")], timeout_ms=5_000)
    cluster.ask(controller.number, ApiKey.DELETE_TOPICS, delete)
    cluster.create("t", 1, 1, at=controller.number)
    asked = [ReassignableTopic("t", [ReassignablePartition(0, [behind.number])])]
    body = AlterPartitionReassignmentsRequest(10_000, True, asked)
    pending = cluster.client(behind.number).request(ApiKey.ALTER_PARTITION_REASSIGNMENTS, body)
    cluster.run(0.02)
    assert not pending.done
    cluster.world.network.heal()
    cluster.wait(lambda: pending.done, 20.0, "an answer")
    assert pending.answer.responses[0].partitions[0].error_code == 0
    assert nodes_of(cluster) == [behind.number]


def test_without_a_controller_both_time_out():
    cluster = Cluster(brokers=3, controllers=3).ready()
    cluster.create("t", 1, 3)
    cluster.wait(lambda: image(cluster, 3).topic("t"), 5.0, "known")
    cluster.kill(1)
    cluster.kill(2)
    assert move(cluster, (0, [3]), at=3, timeout_ms=300) == [ErrorCode.REQUEST_TIMED_OUT]
    body = ListPartitionReassignmentsRequest(300, None)
    answer = cluster.ask(3, ApiKey.LIST_PARTITION_REASSIGNMENTS, body)
    assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert answer.error_message
