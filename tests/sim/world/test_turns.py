"""Patient worlds: which events wait for another's turn, in which order a turn takes them, and that
a cluster lives with it."""

from types import SimpleNamespace

import pytest
from raftlog_sim.base.streams import Stream
from raftlog_sim.schedules.options import draw_options
from raftlog_sim.world import turns
from raftlog_sim.world.arrivals import ArrivalQueue, queue_of
from raftlog_sim.world.boot import Boot

from raftlog.base.ids import DirectoryId, GroupId, IoId, NodeId, SessionId
from raftlog.base.limits import TURN_EVENTS_MAX
from raftlog.base.units import millis
from raftlog.broker.broker import Broker
from raftlog.broker.events import LinkDown, PeerMessages, Persisted, Request, Write
from raftlog.broker.turn_queue import TurnQueue
from raftlog.raft.messages import AppendReply
from raftlog.storage.ops import AppendBytes, CreateFile, StoreRecords
from tests.broker.cluster import Cluster

HOME = DirectoryId(1)
ACK = AppendReply(*[1] * 5, damaged=False)


@pytest.fixture
def boot():
    return Boot(broker=None, writer=None, clock=None, inbox=ArrivalQueue())


def a_request(number=0):
    return Request(1, number, b"")


def test_an_impatient_process_takes_each_event_in_the_order_of_arrival(boot):
    events = [a_request(0), PeerMessages(NodeId(2), SessionId(1), [ACK]), Persisted(IoId(1), HOME)]
    boot.inbox.acks_may_wait = boot.writing = True
    for event in events:
        assert turns.wants_turn(boot, event)
    assert boot.inbox.collect([], 2) == events[:2]
    assert boot.inbox.collect([]) == events[2:]


@pytest.mark.parametrize("patient", [False, True])
def test_turns_that_are_split_take_some_of_what_waits_and_lose_nothing(boot, patient):
    world = SimpleNamespace(
        split_turns=True, splits={}, patient=patient, stream=lambda name: Stream(3, name)
    )
    node = SimpleNamespace(world=world, number=NodeId(1))
    requests = [a_request(number) for number in range(10 * TURN_EVENTS_MAX)]
    boot.inbox = queue_of(patient=patient)
    for event in requests:
        boot.inbox.post(event)
    taken = []
    while len(boot.inbox):
        taken.append(turns.taken(node, boot))
        assert 1 <= len(taken[-1]) <= TURN_EVENTS_MAX
    assert [event for turn in taken for event in turn] == requests
    assert len(taken) > 10


def test_a_lone_round_without_a_new_file_is_synced_in_its_turn(boot):
    append, records = AppendBytes(GroupId(1), "a", 0, [b"x"]), StoreRecords([b"r"])
    assert not turns.is_lone(boot)
    boot.rounds.append(Write(HOME, IoId(1), [append, records]))
    assert turns.is_lone(boot)
    boot.writing = True
    assert not turns.is_lone(boot)
    boot.writing = False
    boot.rounds.append(Write(HOME, IoId(2), [append]))
    assert not turns.is_lone(boot)
    boot.rounds.clear()
    boot.rounds.append(Write(HOME, IoId(3), [CreateFile(GroupId(1), "b", b"h")]))
    assert not turns.is_lone(boot)


def test_a_cluster_loses_nothing_by_patience(monkeypatch):
    """With all three at work, seen through what they did: and a leader that dies meanwhile."""
    seen = SimpleNamespace(waited=0, inline=0)
    three = Cluster(brokers=3, controllers=3, patient=True)
    post, is_lone = TurnQueue.post_from_peer, turns.is_lone

    def counting(queue, messages, *, round_ends_soon):
        wanted = post(queue, messages, round_ends_soon=round_ends_soon)
        seen.waited += not wanted
        return wanted

    def lone(boot):
        found = is_lone(boot)
        seen.inline += found
        return found

    monkeypatch.setattr(TurnQueue, "post_from_peer", counting)
    monkeypatch.setattr(turns, "is_lone", lone)
    three.ready()
    three.create("orders", 2, 3)
    for number in range(10):
        three.put("orders", [f"a{number}"])
    three.kill(three.leader("orders").number)
    for number in range(10, 20):
        three.put("orders", [f"a{number}"])
    told = [value for _, value in three.read_all("orders")]
    assert sorted(told, key=lambda v: int(v[1:])) == [f"a{n}".encode() for n in range(20)]
    assert seen.waited > 5
    assert seen.inline > 20


def test_some_seeds_are_patient():
    drawn = [draw_options(seed).patient for seed in range(60)]
    assert 10 < drawn.count(True) < 30


@pytest.fixture
def late(monkeypatch):
    """A node whose turns are late by 50 ms, what its broker was given and when, in world time."""
    cluster = Cluster(brokers=1)
    node, seen = cluster.world.nodes[NodeId(1)], []
    cluster.world.run_for(millis(500))
    handle = Broker.handle

    def watched(broker, events, now, wall):
        seen.append((cluster.world.now, node.live.clock.world(now), list(events)))
        return handle(broker, events, now, wall)

    monkeypatch.setattr(Broker, "handle", watched)
    node.late_turn_ns = millis(50)
    return cluster.world, node, seen


def test_a_late_turn_is_served_by_the_clock_that_it_read(late):
    world, node, seen = late
    begun = world.now
    node.deliver_nothing()
    world.run_for(millis(49))
    assert seen == []
    node.deliver(LinkDown(NodeId(7), SessionId(1)))
    world.run_for(millis(1))
    assert [(at - read, read >= begun) for at, read, _ in seen] == [(millis(50), True)]
    world.run_for(millis(50))
    assert [at - read for at, read, _ in seen] == [millis(50)] * 2
    assert LinkDown(NodeId(7), SessionId(1)) in seen[1][2], "it came when the first had begun"
    assert seen[1][1] == seen[0][0]


def test_a_late_turn_of_a_process_that_stands_still_is_served_when_it_goes_on(late):
    world, node, seen = late
    node.deliver_nothing()
    world.run_for(millis(10))
    node.suspend()
    world.run_for(millis(300))
    assert seen == []
    node.resume()
    node.deliver_nothing()
    world.run_for(millis(1))
    assert [at - read for at, read, _ in seen] == [millis(310)]
    world.run_for(millis(100))
    assert seen[1][1] >= seen[0][0], "turns do not overtake each other"


def test_a_late_turn_dies_with_its_process(late):
    world, node, seen = late
    node.deliver_nothing()
    world.run_for(millis(10))
    node.stop_process()
    world.run_for(millis(100))
    assert seen == []


def test_turns_that_are_late_no_more_are_served_at_once(late):
    world, node, seen = late
    node.late_turn_ns = 0
    node.deliver_nothing()
    world.run_for(0)
    assert [at - read for at, read, _ in seen] == [0]
