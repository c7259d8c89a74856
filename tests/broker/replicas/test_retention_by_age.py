"""Retention by age in whole brokers: whose clock counts, mixed releases, what is never deleted."""

import attrs
import pytest
from raftlog_sim.world import node as sim_node
from raftlog_sim.world.clock import WALL_START_MS
from raftlog_sim.world.releases import RELEASES

from raftlog.base.probes import fired, reset
from raftlog.base.units import millis
from raftlog.broker.peer_codec import PROTOCOL_1, PROTOCOL_2
from raftlog.broker.release import THIS_RELEASE
from raftlog.metadata.commands import AlterTopicConfigs, CreateTopic
from raftlog.metadata.settings.topic_defaults import MADE_NOW
from tests.broker.cluster import Cluster

HOUR_MS = 3_600_000
MONTH_MS = 30 * 24 * HOUR_MS
LAST_RELEASE = attrs.evolve(THIS_RELEASE, codecs={1: PROTOCOL_1, 2: PROTOCOL_2})
"""As far as links go: the release before this one knew no wall clocks of others."""


def quick(config):
    return attrs.evolve(config, retention_check_ns=millis(200))


def cluster_of(brokers=3, **more):
    return Cluster(brokers, min(brokers, 3), configure=quick, encode=True, **more).ready()


def start_of(cluster, name):
    return cluster.leader(name).broker.context.router.replica(name, 0).log_start


def jump(cluster, number, by_ms):
    """The node's wall clock is wrong from now on."""
    cluster.world.nodes[number].machine.skew_ms += by_ms


def test_a_leader_whose_clock_jumped_a_month_deletes_nothing():
    """The cluster's batches are of the beginning of its time; an hour is kept."""
    reset()
    cluster = cluster_of()
    cluster.create("orders", 1, 3, configs=[("retention.ms", str(HOUR_MS)), ("segment.ms", "1")])
    cluster.put("orders", ["a"])
    cluster.run(2)
    leader = cluster.leader("orders").number
    jump(cluster, leader, MONTH_MS)
    cluster.run(4)
    assert cluster.leader("orders").number == leader
    assert start_of(cluster, "orders") == 0
    assert "retention-waits-for-clocks" in fired()
    for number in cluster.world.nodes:
        if number != leader:
            jump(cluster, number, MONTH_MS)
    cluster.run(4)
    assert start_of(cluster, "orders") == 1, "all clocks say so: a month has passed"


def test_old_records_go_at_the_next_check_and_fresh_ones_behind_them_stay():
    """Nothing rolls for its age here: a week is kept. A record of a month ago, alone in its
    partition, goes; a fresh one behind another such keeps both."""
    cluster = cluster_of()
    week = [("retention.ms", str(7 * 24 * HOUR_MS))]
    for name in ("alone", "mixed"):
        cluster.create(name, 1, 3, configs=week)
        cluster.put(name, ["old"], stamp=WALL_START_MS - MONTH_MS)
    cluster.put("mixed", ["fresh"], stamp=WALL_START_MS)
    cluster.run(4)
    assert start_of(cluster, "alone") == 1
    assert cluster.fetch("alone", 0).error_code == 1
    assert start_of(cluster, "mixed") == 0
    assert [value for _, value in cluster.read_all("mixed")] == [b"old", b"fresh"]
    for node in cluster.world.nodes.values():
        assert node.broker.context.router.replica("alone", 0).log_start == 1
    assert cluster.put("alone", ["after"]) == 1


@pytest.mark.parametrize("by_ms", [MONTH_MS, -MONTH_MS])
def test_a_follower_whose_clock_jumped_holds_nothing_up(by_ms):
    cluster = cluster_of()
    cluster.create("orders", 1, 3, configs=[("retention.ms", "1000")])
    leader = cluster.leader("orders").number
    jump(cluster, next(number for number in cluster.world.nodes if number != leader), by_ms)
    cluster.put("orders", ["a"])
    cluster.run(6)
    assert start_of(cluster, "orders") == 1


def test_a_lowered_age_acts_on_a_live_topic_at_the_next_check():
    cluster = cluster_of()
    cluster.create("orders", 1, 3, configs=[("segment.ms", "1000")])
    cluster.put("orders", ["a"])
    cluster.run(10)
    assert start_of(cluster, "orders") == 0
    alter(cluster, "orders", ("retention.ms", "5000"))
    cluster.run(3)
    assert start_of(cluster, "orders") == 1
    assert cluster.fetch("orders", 0).error_code == 1


def alter(cluster, name, *changed):
    image = cluster.leader(name).broker.context.image
    command = AlterTopicConfigs(
        topic_id=image.names[name], changed=tuple(sorted(changed)), removed=()
    )
    propose(cluster, command)


def propose(cluster, command):
    """Let the controller decide without a client's request."""
    active = next(n for n in cluster.world.running() if n.broker.controller.term is not None)
    active.broker.controller._propose(command)
    active.deliver_nothing()
    cluster.run(1)


def test_topics_of_an_older_release_are_kept_and_new_ones_are_not():
    """A topic that the last release made carries no version of its defaults."""
    cluster = cluster_of(brokers=1)
    cluster.create("new", 1, 1)
    image = cluster.leader("new").broker.context.image
    (node,) = image.brokers
    place = ((node, image.brokers[node].directory),)
    plain = CreateTopic(
        topic_id=b"o" * 16, name="old", internal=False, configs=(), assignments=(place,)
    )
    internal = attrs.evolve(plain, topic_id=b"i" * 16, name="inner", internal=True)
    propose(cluster, plain)
    propose(cluster, attrs.evolve(internal, configs=(MADE_NOW, ("retention.ms", "1000"))))
    for name in ("new", "old"):
        cluster.put(name, ["x"])
    jump(cluster, node, MONTH_MS)
    rolls = [("segment.ms", "1000")]
    alter(cluster, "new", *rolls)
    alter(cluster, "old", *rolls)
    cluster.run(4)
    assert start_of(cluster, "new") == 1
    assert start_of(cluster, "old") == 0
    alter(cluster, "old", ("retention.ms", str(HOUR_MS)))
    cluster.run(3)
    assert start_of(cluster, "old") == 1, "an age that was set by name counts"
    inner = cluster.world.nodes[node].broker.context.router.replica("inner", 0)
    assert not inner.config.deletes


def test_brokers_of_the_last_release_take_part_and_hold_deletion_up(monkeypatch):
    """Two of three are of the last release: they tell no clock. When they are restarted into this
    one, the leader deletes."""
    monkeypatch.setattr(sim_node, "RELEASES", (*RELEASES, LAST_RELEASE))
    last = len(RELEASES)
    cluster = cluster_of()
    for number in (1, 2):
        restart_into(cluster, number, last)
    cluster.create("orders", 1, 3, configs=[("retention.ms", "1000"), ("segment.ms", "1000")])
    for number in range(3):
        cluster.put("orders", [f"v{number}"])
    cluster.run(5)
    if cluster.leader("orders").number != 3:
        cluster.kill(cluster.leader("orders").number)
        cluster.run(3)
    assert start_of(cluster, "orders") == 0
    assert [value for _, value in cluster.read_all("orders")] == [b"v0", b"v1", b"v2"]
    for number in (1, 2):
        restart_into(cluster, number, 0)
    cluster.run(6)
    assert start_of(cluster, "orders") == 3
    assert cluster.put("orders", ["after"]) == 3


def restart_into(cluster, number, release):
    if cluster.world.nodes[number].up:
        cluster.kill(number)
    cluster.world.nodes[number].installed = release
    cluster.restart(number)
    cluster.ready()


def test_a_replica_that_leads_alone_goes_by_its_own_clock():
    cluster = cluster_of(brokers=1)
    cluster.create("orders", 1, 1, configs=[("retention.ms", str(HOUR_MS)), ("segment.ms", "1")])
    cluster.put("orders", ["a"])
    cluster.run(3)
    assert start_of(cluster, "orders") == 0
    jump(cluster, 1, 2 * HOUR_MS)
    cluster.run(3)
    assert start_of(cluster, "orders") == 1
