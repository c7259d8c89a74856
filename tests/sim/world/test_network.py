"""The links' effects on messages: order, bursts, loss with doom, stale sessions, cuts of every
shape."""

import pytest
from raftlog_sim.base.streams import Stream
from raftlog_sim.playing.simulation import Run, simulate
from raftlog_sim.schedules.options import SimOptions
from raftlog_sim.schedules.schedule import Schedule, step
from raftlog_sim.world.carried import KEPT_MAX, Carried
from raftlog_sim.world.node import Node
from raftlog_sim.world.world import seconds

from raftlog.base import probes
from raftlog.base.ids import DirectoryId, NodeId, ReplicaEpoch, ReplicaId, SessionId
from raftlog.base.units import millis
from raftlog.broker.events import LinkDown, LinkUp, PeerMessages
from raftlog.broker.peer_messages import NodeHeartbeat
from raftlog.raft.messages import Append, AppendReply, ReadEcho, TimeoutNow
from tests.broker.cluster import Cluster


def rid(node):
    return ReplicaId(NodeId(node), DirectoryId(7), ReplicaEpoch(1))


@pytest.fixture
def pair():
    cluster = Cluster(2, 1).ready()
    return cluster.world, cluster.world.network


@pytest.fixture
def heard(monkeypatch):
    """(receiver, instant, event) of everything delivered."""
    found = []
    deliver = Node.deliver

    def note(self, event):
        found.append((self.number, self.world.now, event))
        deliver(self, event)

    monkeypatch.setattr(Node, "deliver", note)
    return found


def say(network, number, sender=1, to=2):
    session = network.links[(1, 2)].session
    network.send(sender, to, session, [TimeoutNow(number, rid(sender), rid(to), 1)])
    return session


def marks(heard, to=2):
    """The numbers said, as they arrived."""
    events = [event for number, _, event in heard if number == to]
    messages = [message for event in events for message in getattr(event, "messages", ())]
    return [message.group for message in messages if isinstance(message, TimeoutNow)]


def kinds(heard, to=2):
    return [type(event) for number, _, event in heard if number == to]


def test_a_clog_holds_everything_and_lets_it_go_in_one_burst_in_order(pair, heard):
    world, network = pair
    say(network, 90)
    clog = network.hold([(1, 2)])
    for number in range(91, 99):
        say(network, number)
        world.run_for(millis(5))
    assert marks(heard) == [], "what was under way is held as well"
    network.mend(clog)
    assert marks(heard) == list(range(90, 99))
    assert LinkDown not in kinds(heard)


def test_a_clog_holds_one_direction_only(pair, heard):
    world, network = pair
    network.hold([(1, 2)])
    say(network, 90)
    say(network, 91, sender=2, to=1)
    world.run_for(millis(20))
    assert (marks(heard, 2), marks(heard, 1)) == ([], [91])


def test_a_session_does_not_outlive_a_pipe_that_stays_silent(pair, heard):
    world, network = pair
    clog = network.hold([(1, 2)])
    say(network, 90)
    world.run_for(seconds(3))
    assert kinds(heard, 2).count(LinkDown) == 1
    assert network.links == {}, "it cannot be dialled either"
    network.mend(clog)
    world.run_for(millis(10))
    assert (1, 2) in network.links
    assert marks(heard) == [], "what was held went with the session"


def test_a_held_link_that_must_keep_too_much_breaks(pair, heard):
    world, network = pair
    network.queue_max = 5
    network.hold([(1, 2)])
    for number in range(90, 97):
        say(network, number)
    world.run_for(millis(20))
    assert LinkDown in kinds(heard, 2)
    assert LinkDown in kinds(heard, 1)


def test_who_cannot_hear_of_a_crash_hears_last_words(pair, heard):
    """The session is half open: what was on its way arrives under it, until a new one begins."""
    world, network = pair
    clog = network.hold([(1, 2)])
    say(network, 90)
    world.nodes[1].crash()
    world.run_for(millis(500))
    assert LinkDown not in kinds(heard)
    network.mend(clog)
    assert marks(heard) == [90]
    world.nodes[1].start()
    world.run_for(millis(10))
    links = [kind for kind in kinds(heard) if kind in (LinkDown, LinkUp)]
    assert links == [LinkDown, LinkUp]


def test_a_half_open_session_ends_when_it_stays_silent(pair, heard):
    world, network = pair
    network.hold([(1, 2)])
    session = say(network, 90)
    world.nodes[1].crash()
    world.run_for(seconds(2))
    assert kinds(heard).count(LinkDown) == 1
    assert network.half_open == {}
    network.heal()
    assert marks(heard) == []
    network.unlink(2, 1, session)
    assert kinds(heard).count(LinkDown) == 1


def test_a_crash_that_can_be_heard_ends_the_session_at_once(pair, heard):
    world, network = pair
    network.hold([(2, 1)])
    world.nodes[1].crash()
    assert kinds(heard).count(LinkDown) == 1
    assert network.half_open == {}


def test_two_holds_end_each_on_its_own(pair, heard):
    world, network = pair
    one, other = network.hold([(1, 2)]), network.hold([(1, 2), (2, 1)])
    say(network, 90)
    world.run_for(millis(5))
    network.mend(one)
    assert marks(heard) == []
    network.mend(other)
    assert marks(heard) == [90]


def test_stale_messages_arrive_under_their_old_session_and_are_refused(pair, heard):
    world, network = pair
    network.stale = True
    probes.reset()
    old = say(network, 90)
    network.reset(1, 2)
    world.run_for(millis(50))
    assert marks(heard) == [90]
    assert network.links[(1, 2)].session != old
    assert LinkUp in kinds(heard)
    assert probes.fired()["message-of-another-session-dropped"] >= 1


def test_lost_messages_doom_their_session(pair, heard):
    world, network = pair
    network.pipe(1, 2).drop = 100
    before = network.links[(1, 2)].session
    say(network, 90)
    world.run_for(millis(200))
    assert marks(heard) == []
    network.pipe(1, 2).drop = 0
    world.run_for(millis(200))
    assert network.links[(1, 2)].session != before


def test_messages_of_one_kind_vanish_and_all_others_arrive(pair, heard):
    world, network = pair
    network.pipe(1, 2).kinds = (TimeoutNow,)
    network.pipe(1, 2).kinds_drop = 100
    before = network.links[(1, 2)].session
    say(network, 90)
    echo = ReadEcho(91, rid(1), rid(2), 1, 1)
    network.send(1, 2, before, [echo])
    world.run_for(millis(20))
    assert marks(heard) == []
    assert [echo] in [list(event.messages) for *_, event in heard if hasattr(event, "messages")]
    network.pipe(1, 2).kinds_drop = 0
    world.run_for(millis(400))
    assert network.links[(1, 2)].session != before, "a link that loses breaks soon after"


def test_messages_come_twice_and_overtake_each_other(pair, heard):
    world, network = pair
    network.pipe(1, 2).duplicate = 50
    network.pipe(1, 2).reorder_ns = millis(3)
    for number in range(100, 160):
        say(network, number)
    world.run_for(millis(4))
    came = marks(heard)
    assert len(came) > len(set(came)), "some twice"
    assert came != sorted(came), "some out of order"


def test_a_slow_link_takes_longer_and_stays_in_order(pair, heard):
    world, network = pair
    network.pipe(1, 2).extra_ns = millis(30)
    say(network, 90)
    world.run_for(millis(25))
    network.pipe(1, 2).extra_ns = 0
    say(network, 91)
    assert marks(heard) == []
    world.run_for(millis(35))
    assert marks(heard) == [90, 91]


def test_healing_ends_all_of_it(pair, heard):
    world, network = pair
    network.hold([(1, 2)])
    network.part([(1, 2)])
    network.pipe(2, 1).drop = 100
    network.heal()
    world.run_for(millis(50))
    assert network.cut == {}
    assert (1, 2) in network.links
    say(network, 90, sender=2, to=1)
    world.run_for(millis(20))
    assert marks(heard, 1) == [90]


# --- as steps -------------------------------------------------------------------------------------


def during(*steps, brokers=5, at_ms=100):
    """A run of these steps, and the world `at_ms` into its safety phase."""
    options = SimOptions(seed=5, brokers=brokers, safety_ms=600)
    run = Run(Schedule(options, steps))
    while run.phase == "set-up":
        run.advance()
    end = run.world.now + millis(at_ms)
    while run.world.now < end:
        run.advance()
    return run


def apart(run):
    return sorted(run.world.network.cut)


def test_a_bridge_leaves_one_node_that_sees_both_halves():
    run = during(step(10, "bridge", 400, hub="n3", how="loud"))
    assert apart(run) == [(1, 4), (1, 5), (2, 4), (2, 5)]
    assert run.play() == ""
    assert apart(run) == []


def test_in_a_ring_each_sees_a_majority_and_no_two_the_same():
    run = during(step(10, "ring", 400, how="silent"))
    cut = apart(run)
    seen = {
        frozenset(n for n in range(1, 6) if n == me or tuple(sorted((n, me))) not in cut)
        for me in range(1, 6)
    }
    assert len(seen) == 5
    assert all(len(each) == 3 for each in seen)
    assert run.play() == ""


@pytest.mark.parametrize("way", ["in", "out"])
def test_one_way_cuts(way):
    run = during(step(10, "one-way", 400, side="n2", way=way), brokers=3)
    held = sorted(pair for pair, pipe in run.world.network.pipes.items() if pipe.holds)
    assert held == ([(1, 2), (3, 2)] if way == "in" else [(2, 1), (2, 3)])
    assert run.play() == ""


def test_a_silent_cut_that_ends_soon_breaks_no_session():
    run = during(step(10, "partition", 150, side="n1", how="silent"), brokers=3, at_ms=5)
    before = {pair: link.session for pair, link in run.world.network.links.items()}
    end = run.world.now + millis(200)
    while run.world.now < end:
        run.advance()
    assert {pair: link.session for pair, link in run.world.network.links.items()} == before
    assert run.play() == ""


def test_clients_that_are_hung_up_on_send_again_and_nothing_is_stored_twice():
    writes = (step(at, "produce", slot=at % 3, partition=0, count=3) for at in range(0, 800, 10))
    breaks = (step(at, "hangup", node="leader:0") for at in range(5, 800, 25))
    options = SimOptions(seed=9, safety_ms=900, latency_us=800)
    result = simulate(Schedule(options, (*writes, *breaks)))
    assert result.failure == ""
    assert result.faults["hangup"] > 10
    assert result.acknowledged > 100


def test_an_append_that_was_carried_before_arrives_again_and_again():
    writes = (step(at, "produce", slot=0, partition=0, count=2) for at in range(0, 800, 40))
    replay = step(300, "replay", 300, sender="all", receiver="all", ms=20)
    heard = []

    def watch(turn):
        for event in turn.events:
            if turn.node.number == 2 and isinstance(event, PeerMessages):
                heard.extend(m for m in event.messages if isinstance(m, Append) and m.entries)

    run = Run(Schedule(SimOptions(seed=9, safety_ms=900), (*writes, replay)), watch=watch)
    assert run.play() == ""
    assert run.nemesis.done == {"replay": 1}
    assert max(sum(one is other for other in heard) for one in heard) >= 10


@pytest.mark.parametrize("what", ["appends", "acks", "asks", "votes", "echoes"])
def test_a_cluster_lives_without_one_kind_of_messages_for_a_while(what):
    steps = (
        *(step(at, "produce", slot=0, partition=0, count=2) for at in range(0, 1_500, 100)),
        step(200, "drop-kind", 800, sender="all", receiver="all", what=what, drop=100),
        step(300, "crash", 100, node="leader:0"),
    )
    result = simulate(Schedule(SimOptions(seed=3, safety_ms=2_000, linearizable=True), steps))
    assert result.failure == ""
    assert result.faults == {"crash": 1, "drop-kind": 1}
    assert result.acknowledged > 0


def test_every_kind_of_the_network_at_once():
    everybody = {"sender": "all", "receiver": "all"}
    result = simulate(
        Schedule(
            SimOptions(seed=8, safety_ms=900, stale=True, queue_max=8),
            (
                *(step(at, "produce", slot=0, partition=0, count=3) for at in range(0, 900, 40)),
                step(50, "lossy", 200, drop=20, duplicate=30, reorder_ms=5, **everybody),
                step(100, "clog", 60, sender="leader:0", receiver="all"),
                step(200, "slow-link", 200, ms=20, **everybody),
                step(300, "one-way", 200, side="leader:0", way="out"),
                step(400, "reset", one="all", other="all"),
                step(500, "partition", 200, side="leader:0", how="silent"),
                step(600, "bridge", 100, hub="controller", how="loud"),
            ),
        )
    )
    assert result.failure == ""
    assert set(result.faults) == {
        "lossy", "clog", "slow-link", "one-way", "reset", "partition", "bridge",
    }  # fmt: skip
    assert result.acknowledged > 0


def test_what_a_link_carries_is_kept_in_bounds_and_each_as_likely():
    carried = Carried(Stream(1, "carried"))
    for number in range(10 * KEPT_MAX):
        carried.note(SessionId(1 + number // KEPT_MAX), [number])
    assert len(carried.kept) == KEPT_MAX
    tenths = [sum(session == each for session, _ in carried.kept) for each in range(1, 11)]
    assert sum(tenths) == KEPT_MAX
    assert min(tenths) > KEPT_MAX // 30, "of each tenth about as many"


def test_what_is_replayed_may_be_told_to_be_of_a_session_that_ended():
    carried = Carried(Stream(1, "carried"))
    assert carried.one(Stream(1, "x"), ended=False, present=None) is None
    carried.note(SessionId(1), ["old"])
    assert carried.one(Stream(1, "x"), ended=True, present=SessionId(1)) is None
    carried.note(SessionId(2), ["new"])
    draws = Stream(1, "y")
    found = [carried.one(draws, ended=False, present=SessionId(2)) for _ in range(20)]
    assert {*found} == {(1, "old"), (2, "new")}
    found = [carried.one(draws, ended=True, present=SessionId(2)) for _ in range(20)]
    assert {*found} == {(1, "old")}


@pytest.mark.parametrize("of", ["any", "ended"])
def test_messages_of_all_kinds_arrive_again_under_their_own_session(of):
    everybody = {"sender": "all", "receiver": "all"}
    writes = (step(at, "produce", slot=0, partition=0, count=2) for at in range(0, 1_500, 40))
    faults = (
        step(200, "reset", one="all", other="all"),
        step(300, "crash", 100, node="leader:0"),
        step(500, "replay-any", 800, of=of, ms=3, **everybody),
        step(900, "elect", node="follower:0", partition=0),
    )
    heard = {}

    def watch(turn):
        for event in turn.events:
            if isinstance(event, PeerMessages):
                for message in event.messages:
                    key = (turn.node.number, id(message))
                    heard.setdefault(key, (message, []))[1].append(event.session)

    options = SimOptions(seed=9, safety_ms=1_600, linearizable=True)
    run = Run(Schedule(options, (*writes, *faults)), watch=watch)
    assert run.play() == ""
    assert run.nemesis.done["replay-any"] == 1
    assert all(len({*sessions}) == 1 for _, sessions in heard.values()), "its own"
    again = {type(message) for message, sessions in heard.values() if len(sessions) > 1}
    assert {Append, AppendReply, NodeHeartbeat} <= again
    assert run.result("", None).probes["message-of-another-session-dropped"] >= 10


def test_nothing_is_kept_where_nobody_asks_for_it():
    run = during(step(10, "reset", one="all", other="all"), brokers=3)
    assert not run.world.network.keeps
    assert all(pipe.carried is None for pipe in run.world.network.pipes.values())
    pipe = next(iter(run.world.network.pipes))
    assert not run.world.network.replay_any(*pipe, Stream(1, "x"), ended=False)
