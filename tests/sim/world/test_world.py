"""The world: order of time, bounded waits, links that lose their queue, copies that go on alike."""

import copy

import pytest
from raftlog_sim.base.streams import Stream
from raftlog_sim.base.stuck import StuckError
from raftlog_sim.world.node import Node
from raftlog_sim.world.world import World, seconds

from raftlog.base.ids import DirectoryId, NodeId, ReplicaEpoch, ReplicaId
from raftlog.broker.events import LinkDown, LinkUp
from raftlog.raft.messages import TimeoutNow
from tests.broker.cluster import Cluster


def rid(node):
    return ReplicaId(NodeId(node), DirectoryId(7), ReplicaEpoch(1))


# --- time -----------------------------------------------------------------------------------------


def test_actions_come_by_time_then_in_the_order_of_asking():
    world, seen = World(1), []
    world.after(20, seen.append, "c")
    world.after(10, seen.append, "a")
    world.after(10, seen.append, "b")
    world.run_for(100)
    assert (seen, world.now) == (["a", "b", "c"], 100)


def test_what_lies_in_the_past_happens_now():
    world, seen = World(1), []
    world.run_for(100)
    world.at(50, seen.append, "late")
    world.step()
    assert (seen, world.now) == (["late"], 100)


def test_a_wait_is_bounded():
    world = World(1)
    world.after(seconds(10), print)
    with pytest.raises(StuckError, match="the moon"):
        world.run_until(lambda: False, seconds(1), "the moon")


def test_an_empty_world_is_stuck():
    with pytest.raises(StuckError, match="nothing is left"):
        World(1).step()


# --- randomness -----------------------------------------------------------------------------------


def test_time_that_stands_still_is_found():
    """Seed 256: a broker asked for turn after turn at one instant, and the sweep never ended."""
    world = World(1)

    def again():
        world.after(0, again)

    world.at(seconds(1), again)
    with pytest.raises(StuckError, match=f"steps at {seconds(1)}, and no end"):
        world.run_for(seconds(2))


def test_streams_of_one_seed_and_name_are_equal_and_others_differ():
    def draws(seed, name):
        stream = Stream(seed, name)
        return [stream.below(1000) for _ in range(20)]

    assert draws(1, "a") == draws(1, "a")
    assert draws(1, "a") != draws(1, "b")
    assert draws(1, "a") != draws(2, "a")


def test_a_fork_does_not_shift_its_parent():
    plain, forked = Stream(1, "a"), Stream(1, "a")
    forked.fork("x").bytes(100)
    assert plain.bytes(50) == forked.bytes(50)


def test_draws_are_within_their_bounds_and_reach_them():
    stream = Stream(1, "a")
    assert {stream.between(3, 5) for _ in range(100)} == {3, 4, 5}
    assert all(not stream.chance(0, 5) and stream.chance(5, 5) for _ in range(20))
    assert len(stream.bytes(1000)) == 1000


# --- links ----------------------------------------------------------------------------------------


@pytest.fixture
def pair():
    cluster = Cluster(2, 1).ready()
    return cluster.world, cluster.world.network


def session(network):
    return network.links[(1, 2)].session


@pytest.fixture
def heard(monkeypatch):
    """Every event that was delivered to a node, in order."""
    found = []
    deliver = Node.deliver

    def note(self, event):
        found.append((self.number, event))
        deliver(self, event)

    monkeypatch.setattr(Node, "deliver", note)
    return found


def test_messages_arrive_in_the_order_of_sending(pair, heard):
    world, network = pair
    for number in range(20):
        network.send(1, 2, session(network), [TimeoutNow(90 + number, rid(1), rid(2), 1)])
    world.run_for(seconds(0.01))
    groups = [m.group for _, event in heard for m in messages_of(event) if hasattr(m, "group")]
    assert [group for group in groups if group >= 90] == list(range(90, 110))


def test_a_reset_loses_what_is_queued_and_begins_a_new_session(pair, heard):
    world, network = pair
    old = session(network)
    network.send(1, 2, old, [TimeoutNow(99, rid(1), rid(2), 1)])
    network.reset(1, 2)
    network.send(1, 2, old, [TimeoutNow(98, rid(1), rid(2), 1)])
    world.run_for(seconds(0.01))
    links = [type(event) for number, event in heard if number == 2]
    assert [each for each in links if each in (LinkDown, LinkUp)] == [LinkDown, LinkUp]
    assert session(network) != old
    groups = [getattr(m, "group", 0) for _, event in heard for m in messages_of(event)]
    assert not any(group in (98, 99) for group in groups)


def messages_of(event):
    return getattr(event, "messages", ())


def test_a_partition_holds_until_it_is_healed(pair):
    world, network = pair
    network.partition([1])
    world.run_for(seconds(1))
    assert network.links == {}
    assert not world.nodes[1].broker.context.sessions
    network.heal()
    world.run_for(seconds(0.1))
    assert (1, 2) in network.links
    assert 2 in world.nodes[1].broker.context.sessions


def test_a_dead_node_has_no_links(pair):
    world, network = pair
    world.nodes[2].stop_process()
    world.run_for(seconds(1))
    assert network.links == {}


# --- copies ---------------------------------------------------------------------------------------


def test_a_copied_world_goes_on_exactly_like_the_first():
    """The debugger's steps back and the forks of a run depend on this."""
    cluster = Cluster(3, 3).ready()
    cluster.create("orders", 2, 3)
    for number in range(10):
        cluster.put("orders", [f"v{number}" * 30])

    def go_on(one):
        one.kill(one.leader("orders").number)
        one.put("orders", ["after"])
        one.run(1)
        trace = [repr(event) for event in one.tracer.events]
        return trace, one.world.now, one.world.steps, one.read_all("orders")

    twin = copy.deepcopy(cluster)
    assert go_on(cluster) == go_on(twin)


@pytest.mark.parametrize("views", [False, True])
def test_frames_may_be_views_that_are_written_to(views):
    """The runtime hands over views into slabs; large batches are stamped where they are."""
    cluster = Cluster(3, 1)
    cluster.world.views = views
    cluster.ready().create("orders", 1, 3)
    large = "x" * 100_000
    assert cluster.put("orders", [large]) == 0
    assert cluster.put("orders", ["small"]) == 1
    assert cluster.read_all("orders") == [(0, large.encode()), (1, b"small")]
