"""Old copies of data directories are told by the lives that others have met, and no other is
kept from serving. Whole brokers in virtual time."""

import copy

import pytest
from raftlog_sim.world import node as sim_node

from raftlog.base.ids import METADATA_GROUP
from raftlog.base.probes import fired, reset
from raftlog.broker.peer_messages import IncarnationConfirmed, IncarnationQuestion
from raftlog.storage.directories import incarnations
from raftlog.storage.directories.data_dir import peek_directory
from raftlog.storage.directories.incarnations import NONE
from tests.broker.cluster import Cluster
from tests.broker.whole_brokers import broker, cluster, group_zero, image, wait_settled, wipe

OLD = "node 3 has met a later life of this data directory"


def book(node):
    """The list that is durable on its disk."""
    return peek_directory(node.disk.durable_copy()).incarnations


def own(world, number):
    return broker(world, number).links.incarnations.own


def put_back(world, number, disk):
    node = world.world.nodes[number]
    if node.up:
        node.stop_process()
    node.disk = disk


def copied(world, number):
    """A copy of the disk of a broker that was stopped for it, and runs again."""
    node = world.world.nodes[number]
    node.stop_process()
    found = copy.deepcopy(node.disk)
    world.restart(number)
    world.ready(40.0)
    world.run(1.0)
    return found


def acknowledged(world, count, base):
    return {world.put("orders", [b"%d" % n]): b"%d" % n for n in range(base, base + count)}


@pytest.fixture
def three():
    world = cluster(3, 3)
    world.create("orders", partitions=1)
    wait_settled(world, "orders")
    world.run(1.0)
    reset()
    return world


def test_each_end_syncs_the_life_of_the_other(three):
    lives = {n: own(three, n) for n in (1, 2, 3)}
    assert len(set(lives.values())) == 3
    for number in (1, 2, 3):
        found = book(three.world.nodes[number])
        assert found.has(lives[number])
        known = {each.node: each.incarnation for each in found.known.values()}
        assert known == {n: life for n, life in lives.items() if n != number}
        assert {held[1] for held in found.held.values()} == {lives[number]}
    assert fired().get("voter-asked-to-vouch", 0) == 0, "of three, two decide"


@pytest.mark.parametrize("starts_alone", [0, 1, 3])
def test_a_broker_put_back_is_refused_however_often_it_started_alone(three, starts_alone):
    """The finding: the copy was started twice alone, had a higher boot number than all had seen of
    its original, and with a broker that was away it was a majority: 50 of 70 records were lost."""
    want = acknowledged(three, 5, 0)
    old = copied(three, 2)
    three.kill(3)
    three.run(0.5)
    want |= acknowledged(three, 10, 5)
    for number in (1, 2):
        three.kill(number)
    put_back(three, 2, old)
    for _ in range(starts_alone):
        three.restart(2)
        three.run(1.0)
        three.kill(2)
    three.restart(2)
    three.run(0.5)
    three.restart(3)
    three.wait(lambda: broker(three, 2).registration.refused is not None, 10.0, "refused")
    assert broker(three, 2).registration.message.startswith(OLD)
    three.run(5.0)
    assert broker(three, 2).context.replicas == {}
    leaders = [r for r in broker(three, 3).context.replicas.values() if r.is_leader and r.ready]
    assert leaders == [], "3 alone decides nothing"
    three.restart(1)
    three.wait(lambda: group_zero(three) is not None, 20.0, "a controller")
    found = dict(three.read_all("orders", at=three.leader("orders").number))
    assert {offset: found.get(offset) for offset in want} == want
    acknowledged(three, 1, 99)


def test_a_broker_put_back_before_it_knew_of_lives_is_refused(monkeypatch):
    """Its copy is of the last release, which drew none; the others have met one since."""
    drawn = sim_node.draw_incarnation
    monkeypatch.setattr(sim_node, "draw_incarnation", lambda stream: NONE)
    world = cluster(3, 3)
    world.run(0.5)
    monkeypatch.setattr(sim_node, "draw_incarnation", drawn)
    old = copied(world, 2)
    for number in (1, 3, 2):
        world.kill(number)
        world.restart(number)
        world.ready(40.0)
    put_back(world, 2, old)
    world.restart(2)
    world.wait(lambda: broker(world, 2).registration.refused is not None, 10.0, "refused")


def test_brokers_of_the_last_release_are_upgraded_one_by_one(monkeypatch):
    """They say no life, and count as they did."""
    drawn = sim_node.draw_incarnation
    monkeypatch.setattr(sim_node, "draw_incarnation", lambda stream: NONE)
    world = cluster(3, 3)
    world.create("orders", partitions=1)
    wait_settled(world, "orders")
    want = acknowledged(world, 2, 0)
    monkeypatch.setattr(sim_node, "draw_incarnation", drawn)
    for number in (1, 2, 3):
        world.kill(number)
        want |= acknowledged(world, 1, 10 * number)
        world.restart(number)
        world.ready(40.0)
        want |= acknowledged(world, 1, 10 * number + 1)
    world.run(1.0)
    assert all(len(book(node).known) == 2 for node in world.world.running())
    assert dict(world.read_all("orders")) == want


@pytest.mark.parametrize("rounds", [1, 3])
def test_all_three_started_at_once_serve(three, rounds):
    want = acknowledged(three, 3, 0)
    for _ in range(rounds):
        for number in (1, 2, 3):
            three.world.nodes[number].crash()
        for number in (1, 2, 3):
            three.restart(number)
    three.ready(20.0)
    want |= acknowledged(three, 1, 50)
    assert dict(three.read_all("orders")) == want


def test_all_crash_loop_alone_before_any_link_and_serve_afterwards(three):
    want = acknowledged(three, 3, 0)
    nodes = [three.world.nodes[number] for number in (1, 2, 3)]
    for node in nodes:
        node.crash()
    pairs = [(one, other) for one in (1, 2, 3) for other in (1, 2, 3) if one != other]
    alone = three.world.network.part(pairs)
    for _ in range(3):
        for node in nodes:
            node.start()
        three.run(0.4)
        for node in nodes:
            node.crash()
    three.world.network.mend(alone)
    for node in nodes:
        node.start()
    three.ready(30.0)
    want |= acknowledged(three, 1, 50)
    assert dict(three.read_all("orders")) == want


def test_one_that_crash_loops_is_not_locked_out(three):
    for _ in range(8):
        three.world.nodes[2].crash()
        three.restart(2)
        three.run(0.03)
    three.ready(30.0)
    assert broker(three, 2).registration.refused is None
    acknowledged(three, 1, 1)


def test_a_link_that_breaks_between_any_two_messages_locks_nobody_out(three):
    """Each cut leaves the exchange of lives at another point."""
    for step in range(25):
        three.kill(2)
        three.restart(2)
        three.run(0.0005 + step * 0.0002)
        for other in (1, 3):
            three.world.network.reset(2, other)
    three.ready(30.0)
    three.run(1.0)
    assert broker(three, 2).registration.refused is None
    assert {each.incarnation for each in book(three.world.nodes[1]).known.values()} == {
        own(three, 2),
        own(three, 3),
    }


def test_a_broker_that_was_away_for_many_lives_of_another_is_not_a_reason_to_refuse(three):
    three.kill(3)
    for _ in range(30):
        three.kill(2)
        three.restart(2)
        three.run(0.2)
    three.restart(3)
    three.ready(30.0)
    assert broker(three, 2).registration.refused is None


def test_a_list_that_was_cut_since_keeps_what_the_one_that_was_away_may_name(three, monkeypatch):
    monkeypatch.setattr(incarnations, "OWN_KEPT", 8)
    life = own(three, 2)
    three.kill(3)
    for _ in range(20):
        three.kill(2)
        three.restart(2)
        three.run(0.1)
    kept = book(three.world.nodes[2])
    assert kept.has(life)
    assert len(kept.own) <= 8 + 2 * 2
    three.restart(3)
    three.ready(30.0)
    assert broker(three, 2).registration.refused is None


def test_two_of_three_serve_when_one_is_gone_for_good(three):
    want = acknowledged(three, 3, 0)
    for number in (1, 2, 3):
        three.kill(number)
    for number in (1, 2):
        three.restart(number)
    three.wait(lambda: group_zero(three) is not None, 20.0, "a controller")
    want |= acknowledged(three, 2, 7)
    assert dict(three.read_all("orders")) == want


def test_a_cluster_of_one_serves():
    world = cluster(1, 1)
    world.create("orders", partitions=1, factor=1)
    for _ in range(3):
        world.kill(1)
        world.restart(1)
        world.ready(20.0)
    acknowledged(world, 1, 0)


def test_a_new_disk_is_no_old_copy(three):
    three.kill(2)
    three.run(2.0)
    wipe(three, 2)
    three.restart(2)
    three.ready(60.0)
    wait_settled(three, "orders")
    assert broker(three, 2).registration.refused is None
    three.kill(3)
    acknowledged(three, 1, 1)


def test_votes_do_not_count_before_the_life_is_synced(three):
    """3 has a disk that syncs nothing: 2 restarts, and with 3 it could decide."""
    three.kill(1)
    two, slow = three.world.nodes[2], three.world.nodes[3]
    two.stop_process()
    slow.stalled = True
    three.restart(2)
    three.run(2.0)
    met = broker(three, 3).links.incarnations
    replica = broker(three, 3).context.replicas[METADATA_GROUP]
    assert not met.counts(2, replica)
    assert own(three, 2) not in [each.incarnation for each in book(slow).known.values()]


@pytest.mark.parametrize("lost", [IncarnationQuestion, IncarnationConfirmed])
def test_words_do_not_count_when_part_of_the_acquaintance_is_lost(three, monkeypatch, lost):
    """A question that is lost could be the one that shows that this end is an old copy."""
    three.kill(2)
    three.restart(2)
    context = broker(three, 2).context
    send = type(context).send

    def lossy(self, node, message):
        if not (self is context and node == 1 and type(message) is lost):
            send(self, node, message)

    monkeypatch.setattr(type(context), "send", lossy)
    three.run(1.0)
    one, replica = broker(three, 1), broker(three, 1).context.replicas[METADATA_GROUP]
    assert not one.links.incarnations.counts(2, replica)
    monkeypatch.undo()
    three.world.network.reset(2, 1)
    three.run(0.5)
    assert one.links.incarnations.counts(2, replica)


def test_a_peer_that_was_refused_for_a_while_counts_in_the_same_session(three, monkeypatch):
    """Its question came while it was refused, and comes once in a session."""
    gate = broker(three, 1).registration
    allowed = type(gate).peer_allowed

    def refusing(self, peer, directory, boot):
        return not (self is gate and peer == 2) and allowed(self, peer, directory, boot)

    monkeypatch.setattr(type(gate), "peer_allowed", refusing)
    three.kill(2)
    three.restart(2)
    three.run(0.5)
    one, two = broker(three, 1), broker(three, 2)
    assert list(one.links.refused) == [2]
    session = one.context.sessions[2].session
    monkeypatch.undo()
    one.links.recheck()
    three.run(0.5)
    assert one.context.sessions[2].session == session
    for mine, peer in ((one, 2), (two, 1)):
        assert mine.links.incarnations.counts(peer, mine.context.replicas[METADATA_GROUP])


def test_what_is_known_is_named_at_once_while_something_else_is_being_synced(three):
    """Else the end that asks could elect an old copy before it has said what it knows."""
    old = copied(three, 2)
    met = broker(three, 3).links.incarnations
    three.run(0.5)
    directory = three.world.nodes[2].directory
    met._writing[directory] = 1  # as if a life of an earlier session were on its way to the disk
    put_back(three, 2, old)
    three.restart(2)
    three.world.network.part([(1, 2)])
    three.wait(lambda: broker(three, 2).registration.refused is not None, 5.0, "refused")


class TestFive:
    """Where two are no majority, those who make one with them are asked."""

    def test_they_vouch_and_serve(self):
        reset()
        world = Cluster(5, 5).ready()
        world.create("orders", partitions=1, factor=5)
        wait_settled(world, "orders")
        acknowledged(world, 3, 0)
        assert fired()["voter-asked-to-vouch"] > 0
        for number in (1, 2, 3, 4, 5):
            world.world.nodes[number].crash()
        for number in (1, 3, 5):
            world.restart(number)
        world.wait(lambda: group_zero(world) is not None, 20.0, "a controller of three")
        acknowledged(world, 1, 8)

    def test_a_third_voter_tells_of_a_life_that_the_leader_never_met(self):
        """2 lived on with 4 and 5, and 1 and 3 were cut off. Put back, it speaks to 1 first, which
        has met no later life of it; 4 has."""
        world = Cluster(5, 5).ready()
        world.create("orders", partitions=1, factor=5)
        wait_settled(world, "orders")
        node = world.world.nodes[2]
        node.stop_process()
        old = copy.deepcopy(node.disk)
        network = world.world.network
        cut = network.part([(one, other) for one in (1, 3) for other in (2, 4, 5)])
        world.restart(2)
        world.run(5.0)
        put_back(world, 2, old)
        network.mend(cut)
        network.part([(2, other) for other in (4, 5)])
        world.kill(5)
        world.kill(3)
        reset()
        world.restart(2)
        world.wait(lambda: broker(world, 2).registration.refused is not None, 20.0, "refused")
        assert broker(world, 2).registration.message.startswith("node 1 has met")
        assert fired()["another-life-named-by-a-voter"] >= 1
        assert image(world, 1)
