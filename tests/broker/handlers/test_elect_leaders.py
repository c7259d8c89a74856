"""ElectLeaders: preferred leaders by transfer, wherever the present leader is."""

import pytest

from raftlog.kafka.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from raftlog.kafka.versions import ApiKey
from tests.broker.cluster import Cluster


@pytest.fixture
def three():
    cluster = Cluster(brokers=3, controllers=3, encode=True).ready()
    cluster.create("orders", 3, 3)
    cluster.wait(lambda: len(leaders(cluster)) == 3, what="leaders")
    return cluster


def leaders(cluster):
    """Partition -> (leader, preferred leader)."""
    found = cluster.metadata("orders").topics[0].partitions
    return {
        each.partition_index: (each.leader_id, each.replica_nodes[0])
        for each in found
        if each.leader_id >= 0
    }


def elect(cluster, asked, kind=0, at=1, version=2, timeout_ms=10_000):
    body = ElectLeadersRequest(kind, asked, timeout_ms)
    answer = cluster.ask(at, ApiKey.ELECT_LEADERS, body, version)
    assert answer.error_code == 0
    return {
        (topic.topic, each.partition_id): each.error_code
        for topic in answer.replica_election_results
        for each in topic.partition_result
    }


def move_away(cluster, number=0):
    """Another broker leads the partition; the preferred one follows, and all images say so."""
    preferred = cluster.leader("orders", number).number
    assert leaders(cluster)[number] == (preferred, preferred)
    cluster.kill(preferred)
    cluster.wait(lambda: other_leads(cluster, number, preferred), what="another leader")
    cluster.restart(preferred)
    cluster.ready()
    cluster.wait(lambda: all_in_sync(cluster, number), what="in sync again")
    return preferred


def images(cluster, number):
    for node in cluster.world.running():
        yield node.broker.context.image.topic("orders").partitions[number].reported


def other_leads(cluster, number, than):
    leaders_told = [each.leader for each in images(cluster, number)]
    return all(leader is not None and leader.node != than for leader in leaders_told)


def all_in_sync(cluster, number):
    """The leader says so itself: right after a restart, images may still tell of before."""
    told = list(images(cluster, number))
    return (
        all(len(each.in_sync) == 3 and each == told[0] for each in told)
        and other_leads(cluster, number, None)
        and len(in_sync_at_the_leader(cluster, number)) == 3
    )


def in_sync_at_the_leader(cluster, number):
    node = cluster.leader("orders", number)
    return node.broker.context.router.replica("orders", number).in_sync


@pytest.mark.parametrize("at", [1, 2, 3])
def test_any_broker_that_is_asked_has_the_leader_hand_over(three, at):
    preferred = move_away(three)
    assert leaders(three)[0][0] != preferred
    assert elect(three, [TopicPartitions("orders", [0, 0])], at=at) == {("orders", 0): 0}
    assert leaders(three)[0] == (preferred, preferred)
    assert elect(three, [TopicPartitions("orders", [0])], at=at) == {("orders", 0): 84}


@pytest.mark.parametrize("version", range(3))
def test_all_partitions_tells_only_of_those_that_moved(three, version):
    preferred = move_away(three, 1)
    moved = {
        ("orders", number): 0 for number, (led, first) in leaders(three).items() if led != first
    }
    assert ("orders", 1) in moved
    assert elect(three, None, version=version) == moved
    assert leaders(three)[1] == (preferred, preferred)
    assert elect(three, None, version=version) == {}


def test_what_cannot_be_elected_is_told_of_each_partition(three):
    preferred = leaders(three)[0][1]
    three.kill(preferred)
    at = next(number for number in (1, 2, 3) if number != preferred)
    three.wait(
        lambda: (
            three.metadata("orders", at=at).topics[0].partitions[0].leader_id not in (-1, preferred)
        ),
        what="another leader",
    )
    asked = [TopicPartitions("orders", [0, 9]), TopicPartitions("ghost", [0])]
    assert elect(three, asked, at=at) == {("orders", 0): 80, ("orders", 9): 3, ("ghost", 0): 3}


def test_an_unclean_election_is_always_refused(three):
    asked = [TopicPartitions("orders", [0]), TopicPartitions("ghost", [1])]
    assert elect(three, asked, kind=1) == {("orders", 0): 42, ("ghost", 1): 42}
    body = ElectLeadersRequest(1, None, 1000)
    assert three.ask(1, ApiKey.ELECT_LEADERS, body, 2).error_code == 42


@pytest.mark.parametrize("kind", [2, 127, -1])
def test_a_kind_of_election_that_does_not_exist_is_no_unclean_one(three, kind):
    body = ElectLeadersRequest(kind, [TopicPartitions("orders", [0])], 1000)
    (topic,) = three.ask(1, ApiKey.ELECT_LEADERS, body, 2).replica_election_results
    (told,) = topic.partition_result
    assert (told.error_code, told.error_message) == (42, f"there is no election of type {kind}")


def test_records_are_acknowledged_across_the_election(three):
    move_away(three)
    first = three.put("orders", ["before"])
    elect(three, None)
    assert three.put("orders", ["after"]) == first + 1
    assert [value for _, value in three.read_all("orders")] == [b"before", b"after"]
