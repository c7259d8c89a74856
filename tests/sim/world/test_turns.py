"""Patient worlds: which events wait for another's turn, in which order a turn takes them, and that
a cluster lives with it."""

from types import SimpleNamespace

import pytest
from raftlog_sim.base.streams import Stream
from raftlog_sim.schedules.options import draw_options
from raftlog_sim.world import turns
from raftlog_sim.world.boot import Boot

from raftlog.base.ids import DirectoryId, GroupId, IoId, NodeId, SessionId
from raftlog.base.limits import TURN_EVENTS_MAX
from raftlog.base.units import millis
from raftlog.broker.broker import Broker
from raftlog.broker.events import LinkDown, PeerMessages, Persisted, Request, Write
from raftlog.raft.messages import Append, AppendReply, ReadEcho
from raftlog.storage.ops import AppendBytes, CreateFile, StoreRecords
from tests.broker.cluster import Cluster

HOME = DirectoryId(1)
ACK = AppendReply(*[1] * 5, damaged=False)
ENTRIES = Append(*[1] * 8, 0, ("an entry",))
HEARTBEAT = ENTRIES._replace(entries=())


@pytest.fixture
def boot():
    return Boot(broker=None, writer=None, clock=None)


def said(*messages):
    return PeerMessages(NodeId(2), SessionId(1), messages)


def a_request(number=0):
    return Request(1, number, b"")


def test_acknowledgements_wait_only_when_the_last_turn_said_so(boot):
    assert not turns.put_off(boot, said(ACK))
    boot.acks_may_wait = True
    assert turns.put_off(boot, said(ACK, ACK))
    assert not turns.put_off(boot, said(ACK, HEARTBEAT))
    assert not turns.put_off(boot, said(ReadEcho(1, 1, 1, 1, 1)))
    assert not turns.put_off(boot, a_request())
    assert list(boot.acks) == [said(ACK, ACK)]


def test_waiting_acknowledgements_are_bounded(boot):
    boot.acks_may_wait = True
    waited = [turns.put_off(boot, said(ACK)) for _ in range(turns.WAITING_ACKS_MAX + 1)]
    assert waited == [True] * turns.WAITING_ACKS_MAX + [False]


def test_entries_wait_for_the_round_that_is_written(boot):
    assert not turns.put_off(boot, said(ENTRIES))
    boot.writing = True
    assert turns.put_off(boot, said(ENTRIES))
    assert not turns.put_off(boot, said(HEARTBEAT))
    assert not turns.put_off(boot, said(ENTRIES._replace(read_context=3)))
    boot.inbox.extend(a_request(number) for number in range(TURN_EVENTS_MAX))
    assert not turns.put_off(boot, said(ENTRIES)), "there is a turn's worth already"


def test_a_turn_takes_completions_then_acknowledgements_then_the_rest(boot):
    boot.acks_may_wait = True
    turns.put_off(boot, said(ACK))
    down, durable = LinkDown(NodeId(2), SessionId(1)), Persisted(IoId(1), HOME)
    boot.inbox.extend([a_request(0), said(HEARTBEAT), durable, down])
    assert turns._collected(boot, TURN_EVENTS_MAX) == [
        durable,
        down,
        said(ACK),
        a_request(0),
        said(HEARTBEAT),
    ]
    assert not boot.inbox
    assert not boot.acks


def test_a_full_turn_leaves_the_rest_in_order(boot):
    requests = [a_request(number) for number in range(TURN_EVENTS_MAX + 5)]
    boot.inbox.extend(requests)
    boot.acks.append(said(ACK))
    assert turns._collected(boot, TURN_EVENTS_MAX) == [said(ACK), *requests[: TURN_EVENTS_MAX - 1]]
    assert turns._collected(boot, TURN_EVENTS_MAX) == requests[TURN_EVENTS_MAX - 1 :]


@pytest.mark.parametrize("patient", [False, True])
def test_turns_that_are_split_take_some_of_what_waits_and_lose_nothing(boot, patient):
    world = SimpleNamespace(
        split_turns=True, splits={}, patient=patient, stream=lambda name: Stream(3, name)
    )
    node = SimpleNamespace(world=world, number=NodeId(1))
    requests = [a_request(number) for number in range(10 * TURN_EVENTS_MAX)]
    boot.inbox.extend(requests)
    taken = []
    while boot.inbox:
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
    seen = SimpleNamespace(acks=0, inline=0)
    three = Cluster(brokers=3, controllers=3)
    three.world.patient = True
    collect, is_lone = turns._collected, turns.is_lone

    def counting(boot, most):
        seen.acks += len(boot.acks)
        return collect(boot, most)

    def lone(boot):
        found = is_lone(boot)
        seen.inline += found
        return found

    monkeypatch.setattr(turns, "_collected", counting)
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
    assert seen.acks > 5
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
