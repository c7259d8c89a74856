"""After the answer to a creation, every broker names the leaders of new partitions.

Story: a client created or enlarged a topic, and asked the next broker for its leaders. For a
quarter of a second it heard LEADER_NOT_AVAILABLE, or of too few partitions. Clients that trust such
an answer for seconds failed to write as long. CreateTopics waited for leaders in the image of its
own broker only, and CreatePartitions for none.
"""

import attrs
import pytest
from raftlog_sim.world.world import seconds

from raftlog.base.probes import fired, reset
from raftlog.base.units import millis
from raftlog.kafka.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from raftlog.kafka.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from raftlog.kafka.versions import ApiKey
from raftlog.metadata import requests as r
from tests.broker.cluster import Cluster

SLOW_NS = millis(25)


def slow(cluster, number):
    """Slow all messages to and from that broker down."""
    for other in cluster.world.nodes:
        if other != number:
            cluster.world.network.pipe(other, number).extra_ns = SLOW_NS
            cluster.world.network.pipe(number, other).extra_ns = SLOW_NS


def make(cluster, at, name, *nodes_of_each, timeout_ms=10_000):
    """Create with these replicas; the answer's error and how long it took, in seconds."""
    assignments = [CreatableReplicaAssignment(n, list(e)) for n, e in enumerate(nodes_of_each)]
    topic = CreatableTopic(name, -1, -1, assignments, [])
    began = cluster.world.now
    answer = cluster.ask(at, ApiKey.CREATE_TOPICS, CreateTopicsRequest([topic], timeout_ms))
    return answer.topics[0].error_code, (cluster.world.now - began) / seconds(1)


def grow(cluster, at, name, count, timeout_ms=10_000):
    body = CreatePartitionsRequest([CreatePartitionsTopic(name, count)], timeout_ms)
    began = cluster.world.now
    answer = cluster.ask(at, ApiKey.CREATE_PARTITIONS, body, version=3)
    return answer.results[0].error_code, (cluster.world.now - began) / seconds(1)


def assert_named_everywhere(cluster, name, count):
    """Clients of all brokers ask in the moment of the answer; the cluster gets no time of its own
    to catch up, for what the brokers know is looked at first."""
    for node in cluster.world.running():
        router = node.broker.context.router
        found = [router.leader_of(name, number) for number in range(count)]
        assert None not in found, (node.number, found)
    for node in cluster.world.running():
        topic = cluster.metadata(name, at=node.number).topics[0]
        assert [part.error_code for part in topic.partitions] == [0] * count, node.number
        assert all(part.leader_id in cluster.world.nodes for part in topic.partitions)


def traced(cluster, name):
    return [dict(event.fields) for event in cluster.tracer.events if event.name == name]


@pytest.mark.parametrize("late", [None, 1, 2, 3])
@pytest.mark.parametrize("at", [1, 2, 3])
def test_every_broker_names_the_leaders_of_a_topic_that_is_made(at, late):
    cluster = Cluster(3, 3, seed=10 * at).ready()
    if late is not None:
        slow(cluster, late)
    for turn in range(3):
        cluster.create(f"t{turn}", 6, 3, at=at)
        assert_named_everywhere(cluster, f"t{turn}", 6)
    assert traced(cluster, "brokers-lag") == []


@pytest.mark.parametrize("late", [None, 1, 2, 3])
@pytest.mark.parametrize("at", [1, 2, 3])
def test_every_broker_names_the_leaders_of_partitions_that_are_added(at, late):
    cluster = Cluster(3, 3, seed=10 * at).ready()
    if late is not None:
        slow(cluster, late)
    cluster.create("t", 1, 3, at=at)
    for count in (3, 4, 9):
        assert grow(cluster, at, "t", count)[0] == 0
        assert_named_everywhere(cluster, "t", count)
    assert traced(cluster, "brokers-lag") == []


def test_every_broker_names_the_leaders_of_a_topic_that_was_made_on_first_use():
    cluster = Cluster(
        3, 3, configure=lambda c: attrs.evolve(c, partitions_default=4, replication_default=3)
    ).ready()
    for at in (1, 2, 3):
        slow(cluster, at % 3 + 1)
        cluster.metadata(f"t{at}", at=at, create=True)
        assert_named_everywhere(cluster, f"t{at}", 4)


def test_brokers_that_hold_no_replica_name_them_too():
    cluster = Cluster(5, 3).ready()
    slow(cluster, 5)
    assert make(cluster, 1, "t", (2, 3), (3, 1))[0] == 0
    assert_named_everywhere(cluster, "t", 2)


def test_a_topic_of_three_replicas_takes_no_heartbeat_longer_than_its_election():
    """The brokers tell at once that their images have changed: in virtual time, where a round trip
    takes a fifth of a millisecond, the wait costs few of them."""
    cluster = Cluster(3, 3).ready()
    error, took = make(cluster, 1, "t", (1, 2, 3))
    heartbeat = cluster.world.nodes[1].broker.context.config.heartbeat_ns / seconds(1)
    assert (error, took < heartbeat + 0.02) == (0, True), took


def silent_joiner():
    """Broker 4 of four is cut off; the controllers are 1 to 3."""
    cluster = Cluster(4, 3).ready()
    cluster.world.network.partition([4])
    return cluster


def test_a_silent_broker_is_waited_for_during_two_heartbeats_and_then_not_at_all():
    cluster = silent_joiner()
    session = cluster.world.nodes[1].broker.context.config.session_ns / seconds(1)
    error, took = make(cluster, 1, "first", (1, 2, 3))
    assert (error, took < session / 3 + 0.1) == (0, True), took
    cluster.run(max(session / 3 - took, 0))
    assert not cluster.world.nodes[1].broker.context.image.brokers[4].fenced
    error, took = make(cluster, 1, "second", (1, 2, 3))
    assert (error, took < 0.1) == (0, True), took
    assert traced(cluster, "brokers-lag") == 2 * [{"topics": 1, "brokers": "4"}]
    cluster.run(2 * session)
    assert cluster.world.nodes[1].broker.context.image.brokers[4].fenced
    assert make(cluster, 1, "third", (1, 2, 3))[1] < 0.1
    assert len(traced(cluster, "brokers-lag")) == 2, "a fenced broker is known to be away"


def standing_still():
    """Broker 4 of four met a record that it does not know: its image moves no more, it lives on."""
    cluster = Cluster(4, 3).ready()
    cluster.world.nodes[4].broker.loader._stop("a record of a later release")
    return cluster


@pytest.mark.parametrize(("timeout_ms", "bound"), [(10_000, 2.0), (600, 0.6)])
def test_a_broker_that_beats_and_stands_still_is_waited_for_up_to_the_bound(timeout_ms, bound):
    cluster = standing_still()
    error, took = make(cluster, 1, "t", (1, 2, 3), timeout_ms=timeout_ms)
    assert error == 0
    assert 0.8 * bound < took < bound + 0.1
    assert traced(cluster, "brokers-lag") == [{"topics": 1, "brokers": "4"}]


def test_a_partition_without_living_replicas_is_made_within_the_bound_and_named():
    cluster = silent_joiner()
    error, took = make(cluster, 1, "t", (1,), (4,))
    assert error == 0
    assert took < 2.1
    (missing,) = [e for e in cluster.tracer.events if e.name == "leader-missing"]
    assert missing.where == "t-1"
    error, took = make(cluster, 1, "u", (1, 2, 3))
    assert (error, took < 0.4) == (0, True), took


def test_a_growth_does_not_wait_for_old_partitions_that_lost_their_leader():
    cluster = Cluster(4, 3).ready()
    assert make(cluster, 1, "t", (4,))[0] == 0
    cluster.world.network.partition([4])
    cluster.run(5)
    assert cluster.partition("t", 0, at=1).error_code == 5
    error, took = grow(cluster, 1, "t", 2)
    assert (error, took < 0.4) == (0, True), took


def test_what_is_only_validated_waits_for_nothing():
    cluster = Cluster(4, 3).ready()
    cluster.create("t", 1, 3)
    cluster.world.nodes[4].broker.loader._stop("a record of a later release")
    topic = CreatableTopic("u", 2, 3, (), [])
    began = cluster.world.now
    cluster.ask(1, ApiKey.CREATE_TOPICS, CreateTopicsRequest([topic], 5000, True))
    body = CreatePartitionsRequest([CreatePartitionsTopic("t", 3)], 5000, True)
    assert cluster.ask(1, ApiKey.CREATE_PARTITIONS, body, version=3).results[0].error_code == 0
    assert cluster.world.now - began < seconds(0.1)


def test_a_controller_that_dies_meanwhile_costs_no_more_than_the_bound():
    cluster = standing_still()
    (old,) = [n.number for n in cluster.world.running() if n.broker.controller.active]
    at = next(n for n in (1, 2, 3) if n != old)
    topic = CreatableTopic("t", 2, 3, (), [])
    pending = cluster.client(at).request(ApiKey.CREATE_TOPICS, CreateTopicsRequest([topic], 9000))
    cluster.run(0.2)
    assert "t" in cluster.world.nodes[at].broker.context.image.names
    assert not pending.done
    cluster.kill(old)
    took = cluster.wait(lambda: pending.done, 5.0)
    assert took < seconds(2.0)
    assert pending.answer.topics[0].error_code == 0


@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_controller_of_an_earlier_release_is_not_waited_for(at, monkeypatch):
    """It does not know the request and says so at once; topics and partitions are made as it made
    them."""
    cluster = Cluster(3, 3).ready()
    decode = r.decode_body

    def decode_as_before(body):
        with pytest.MonkeyPatch.context() as earlier:
            earlier.delitem(r._TABLE, 10, raising=False)
            return decode(body)

    monkeypatch.setattr(r, "decode_body", decode_as_before)
    reset()
    error, took = make(cluster, at, "t", (1, 2, 3))
    assert (error, took < 0.1) == (0, True), took
    assert grow(cluster, at, "t", 2) < (0, 0.1)
    assert fired()["leaders-shown-unknown-to-the-controller"] == 2
    names = [event.name for event in cluster.tracer.events]
    assert "brokers-lag" not in names
    assert "leaders-not-confirmed" not in names
