"""A thousand idle groups must cost what one costs: nothing per group and second."""

import attrs
import pytest

from raftlog.base.units import millis
from tests.broker.cluster import Cluster


def default_timings(config):
    return attrs.evolve(
        config, heartbeat_ns=millis(100), election_ns=millis(500), session_ns=millis(3000)
    )


def idle_messages(partitions):
    """Messages and turns of ten idle seconds, after all leaders are settled."""
    cluster = Cluster(3, 3, configure=default_timings).ready()
    cluster.create("t", partitions, 3, timeout_ms=30_000)
    cluster.run(5)
    nodes = cluster.world.running()
    messages = cluster.world.network.messages_sent
    turns = sum(node.turns for node in nodes)
    cluster.run(10)
    return (
        cluster.world.network.messages_sent - messages,
        sum(node.turns for node in nodes) - turns,
        [len(node.broker.deadlines) for node in nodes],
    )


def test_idle_groups_send_nothing_and_wake_nobody():
    few_messages, few_turns, few_deadlines = idle_messages(2)
    many_messages, many_turns, many_deadlines = idle_messages(60)
    assert many_messages <= few_messages * 1.6, (
        "one heartbeat per pair of nodes, however many groups"
    )
    assert many_turns <= few_turns * 1.6
    assert few_deadlines == many_deadlines == [0, 0, 0]


def test_every_idle_group_elects_when_its_leader_dies():
    cluster = Cluster(3, 3).ready()
    cluster.create("t", 30, 3, timeout_ms=30_000)
    cluster.run(2)
    victim = cluster.leader("t", 0)
    cluster.kill(victim.number)
    cluster.wait(
        lambda: all(
            any(
                (r := node.broker.context.router.replica("t", number)).is_leader and r.ready
                for node in cluster.world.running()
            )
            for number in range(30)
        ),
        3.0,
        "all led again",
    )


def all_covered(cluster, groups):
    """Both followers of every group are spoken for by heartbeats of nodes, on both ends."""
    led = followed = 0
    for node in cluster.world.running():
        for peer in node.broker.context.sessions:
            here, there = node.broker.multi.covered_groups(peer)
            led += here
            followed += there
    return (led, followed) == (2 * groups, 2 * groups)


@pytest.fixture
def settled():
    cluster = Cluster(3, 3).ready()
    cluster.create("t", 12, 3, timeout_ms=30_000)
    cluster.wait(lambda: all_covered(cluster, 13), 10.0, "covered")
    return cluster


def test_groups_are_covered_again_after_a_node_stood_still(settled):
    for node in settled.world.running():
        node.suspend()
        settled.run(3)
        node.resume()
        settled.wait(lambda: all_covered(settled, 13), 10.0, "covered again")


def test_groups_are_covered_again_after_links_broke(settled):
    settled.world.network.reset(1, 2)
    settled.run(0.01)
    assert not all_covered(settled, 13)
    settled.wait(lambda: all_covered(settled, 13), 10.0, "covered again")
    settled.world.network.partition([3])
    settled.run(2)
    settled.world.network.heal()
    settled.wait(lambda: all_covered(settled, 13), 10.0, "covered again")
