"""Moves that are throttled as Kafka's tool does it: rates of brokers, lists of topics."""

import pytest

from raftlog.base.ids import NodeId
from raftlog.raft.throttle import UNTHROTTLED
from tests.broker.cluster import Cluster
from tests.broker.handlers.test_alter_configs import (
    BROKER,
    DELETE,
    SET,
    alter,
    resource,
    settings_of,
)
from tests.broker.handlers.test_partition_reassignments import image, move, moving

LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"
LEADERS = "leader.replication.throttled.replicas"
FOLLOWERS = "follower.replication.throttled.replicas"
RATE = 100_000


@pytest.fixture
def four():
    """A topic `t` of one partition with 500 kB on three of four brokers; the fourth is free."""
    cluster = Cluster(brokers=4, controllers=3).ready()
    cluster.create("t", 1, 3)
    for at in range(50):
        cluster.put("t", [b"%04d" % at + b"x" * 10_000])
    return cluster


def placed(cluster):
    nodes = [replica.node for replica in image(cluster).topic("t").partitions[0].target]
    (new,) = set(cluster.world.nodes) - set(nodes)
    return nodes, new


def set_all(cluster, owner, kind, *changes):
    at = int(owner) if kind == BROKER else 1
    (answer,) = alter(cluster, resource(owner, *changes, kind=kind), at=at)
    assert (answer.error_code, answer.error_message) == (0, None)


def throttle(cluster, leader_rate=None, follower_rate=None, lists=None):
    for node in cluster.world.nodes:
        rates = ((LEADER_RATE, leader_rate), (FOLLOWER_RATE, follower_rate))
        changes = [(name, SET, str(rate)) for name, rate in rates if rate is not None]
        if changes:
            set_all(cluster, str(node), BROKER, *changes)
    leaders, followers = lists or ("*", "*")
    set_all(cluster, "t", 2, (LEADERS, SET, leaders), (FOLLOWERS, SET, followers))


def time_of_move(cluster, limit=60.0):
    nodes, new = placed(cluster)
    began = cluster.world.now
    assert move(cluster, (0, [*nodes[:2], new])) == [0]
    cluster.wait(lambda: not moving(cluster), limit, "moved")
    assert new in cluster.partition("t").isr_nodes
    assert len(cluster.read_all("t")) == 50
    return (cluster.world.now - began) / 1e9


def test_a_move_keeps_the_rate_of_the_leader_and_ends(four):
    throttle(four, leader_rate=RATE)
    assert 2.5 <= time_of_move(four) <= 10.0


def test_a_move_keeps_the_rate_of_the_broker_that_receives(four):
    throttle(four, follower_rate=RATE)
    assert 2.5 <= time_of_move(four) <= 10.0


def test_without_lists_or_rates_nothing_is_throttled(four):
    assert time_of_move(four) < 2.0
    throttle(four, leader_rate=1_000, follower_rate=1_000, lists=("", ""))
    assert time_of_move(four) < 2.0


def test_lists_name_replicas(four):
    nodes, new = placed(four)
    others = ",".join(f"0:{node}" for node in nodes)
    throttle(four, 1_000, 1_000, (f"0:{new},1:{nodes[0]}", others))
    assert time_of_move(four) < 2.0
    nodes, new = placed(four)
    everyone = ",".join(f"0:{node}" for node in nodes)
    throttle(four, RATE, 10**9, (everyone, f"0:{new}"))
    assert 2.5 <= time_of_move(four) <= 10.0


def test_taking_the_throttle_away_ends_the_wait(four):
    throttle(four, leader_rate=1_024)
    nodes, new = placed(four)
    assert move(four, (0, [*nodes[:2], new])) == [0]
    four.run(5.0)
    assert moving(four), "500 kB at 1 kB/s"
    for node in four.world.nodes:
        set_all(four, str(node), BROKER, (LEADER_RATE, DELETE, None))
    four.wait(lambda: not moving(four), 3.0, "moved")


def test_a_throttled_move_is_cancelled_at_once(four):
    throttle(four, leader_rate=1_024)
    nodes, new = placed(four)
    assert move(four, (0, [*nodes[:2], new])) == [0]
    four.run(2.0)
    assert move(four, (0, None)) == [0]
    four.wait(lambda: not moving(four), 3.0, "cancelled")
    four.put("t", [b"after"])


def test_producers_do_not_wait_for_a_throttled_move(four):
    throttle(four, leader_rate=1_024, follower_rate=1_024)
    nodes, new = placed(four)
    assert move(four, (0, [*nodes[:2], new])) == [0]
    four.run(1.0)
    began = four.world.now
    for at in range(20):
        four.put("t", [b"%d" % at])
    assert (four.world.now - began) / 1e9 < 2.0
    assert moving(four)


def test_what_a_broker_takes_is_divided_between_those_that_lead(four):
    """Three leaders send to one broker; together they keep its rate."""
    four.create("u", 8, 1)
    held = {n: p.target[0].node for n, p in enumerate(image(four).topic("u").partitions)}
    targets = {n: [node, 4] for n, node in held.items() if node != 4}
    leaders = {node for node in held.values() if node != 4}
    assert len(leaders) == 3, held
    (answer,) = alter(four, resource("u", (FOLLOWERS, SET, "*")))
    assert answer.error_code == 0
    set_all(four, "4", BROKER, (FOLLOWER_RATE, SET, "30000"))
    four.kill(4)
    assert set(move(four, *targets.items(), name="u")) == {0}

    def shares():
        told = [n.broker.throttles for n in four.world.running()]
        found = [each._followers.get(NodeId(4)) for each in told]
        return [each.rate for each in found if each is not None and each.rate != UNTHROTTLED]

    four.wait(lambda: shares() and max(shares()) == 30_000 // len(leaders), 10.0, "shares")
    four.restart(4)
    four.wait(lambda: not moving(four, name="u"), 30.0, "moved")


@pytest.mark.parametrize("name", [LEADER_RATE, FOLLOWER_RATE])
def test_rates_are_settings_of_brokers_that_change_while_they_run(four, name):
    set_all(four, "2", BROKER, (name, SET, "5000"))
    assert settings_of(four, "2", at=2) == {name: ("5000", 2, False)}
    for wrong in ("-1", "fast", "", str(2**63)):
        (answer,) = alter(four, resource("2", (name, SET, wrong), kind=BROKER), at=2)
        assert answer.error_code == 40, wrong
        assert name in answer.error_message
    (listed,) = alter(four, resource("2", (name, 2, "1"), kind=BROKER), at=2)
    assert (listed.error_code, "not LIST" in listed.error_message) == (40, True)
    set_all(four, "2", BROKER, (name, DELETE, None))
    assert settings_of(four, "2", at=2) == {}
