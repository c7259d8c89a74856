"""Node heartbeats: agreement per session, group, term and leader; lists repeated until answered."""

import pytest

from raftlog.base.ids import ReplicaId
from raftlog.base.probes import fired, reset
from raftlog.broker.deadlines import Timers
from raftlog.broker.peer_messages import (
    NO_WALL,
    NodeHeartbeat,
    NodeHeartbeatReply,
    Offer,
    Place,
)
from raftlog.broker.replicas.multi_raft import MultiRaft
from raftlog.broker.replicas.node_clocks import NodeClocks
from raftlog.partition.output import ReplicaOutput

BEAT, ELECTION = 100, 500
A, B = ReplicaId(1, 11, 1), ReplicaId(2, 22, 1)
GROUP, SESSION = 7, 40


class FakeReplica:
    def __init__(self, group, me, leader, term=3):
        self.group, self.me, self.leader, self.term = group, me, leader, term
        self.failed = False
        self.coverable = True
        self.calls = []

    @property
    def is_leader(self):
        return self.leader == self.me

    def cover(self, peer, now):
        if self.coverable:
            self.calls.append(("cover", peer, now))
        return self.coverable

    def uncover(self, peer, now, last_contact):
        self.calls.append(("uncover", peer, last_contact))


class FakeNode:
    """The services of one node, and what it sent."""

    def __init__(self):
        self.now = 1000
        self.replicas = {}
        self.touched = []
        self.sent = []
        self.timers = Timers()
        self.wall = NO_WALL
        self.clocks = NodeClocks()
        self.multi = MultiRaft(self, BEAT, ELECTION, self.clocks)

    def touch(self, group):
        self.touched.append(group)

    def send(self, node, message):
        self.sent.append((node, message))

    def at(self, deadline, call, *args):
        return self.timers.at(deadline, call, *args)

    def run(self, until):
        while self.timers.next() <= until:
            self.now = max(self.now, self.timers.next())
            self.timers.run_due(self.now)
        self.now = max(self.now, until)

    def take_sent(self):
        found, self.sent = [message for _, message in self.sent], []
        return found


@pytest.fixture
def leader():
    node = FakeNode()
    node.replicas[GROUP] = FakeReplica(GROUP, A, A)
    node.multi.link_up(2, SESSION)
    return node


@pytest.fixture
def follower():
    node = FakeNode()
    node.replicas[GROUP] = FakeReplica(GROUP, B, A)
    node.multi.link_up(1, SESSION)
    return node


def agree(node, peer):
    replica = node.replicas[GROUP]
    node.multi.taken(replica, ReplicaOutput(agreed=[peer]))


def exchange(leader, follower):
    """Carry everything both ways, once each."""
    for message in leader.take_sent():
        follower.now = leader.now
        follower.multi.heard(1, message)
    for message in follower.take_sent():
        leader.multi.replied(2, message)


@pytest.fixture
def pair(leader, follower):
    agree(follower, A)
    agree(leader, B)
    leader.run(leader.now + BEAT)
    exchange(leader, follower)
    return leader, follower


OFFER = Offer(GROUP, 3, A, B)


def test_a_pair_without_groups_exchanges_nothing(leader):
    leader.run(leader.now + 10 * BEAT)
    assert leader.sent == []
    assert len(leader.timers) == 0


def test_an_agreed_group_is_offered_with_the_next_heartbeat(leader):
    agree(leader, B)
    assert leader.take_sent() == []
    leader.run(leader.now + BEAT)
    assert leader.take_sent() == [NodeHeartbeat(1, 0, (OFFER,), ())]


def test_the_follower_covers_what_it_agreed_on_itself(pair):
    _, follower = pair
    assert follower.replicas[GROUP].calls == [("cover", A, follower.now)]
    assert follower.touched == [GROUP]


def test_the_leader_covers_when_the_offer_was_answered(pair):
    leader, _ = pair
    assert leader.replicas[GROUP].calls == [("cover", B, leader.now)]
    leader.run(leader.now + BEAT)
    assert leader.take_sent() == [NodeHeartbeat(2, 1, (), ())]


def test_an_offer_is_repeated_until_it_is_answered(leader):
    agree(leader, B)
    leader.run(leader.now + 3 * BEAT)
    assert [m.offers for m in leader.take_sent()] == [(OFFER,)] * 3
    leader.multi.replied(2, NodeHeartbeatReply(2, ()))
    leader.run(leader.now + BEAT)
    assert [m.offers for m in leader.take_sent()] == [()]


@pytest.mark.parametrize(
    "change",
    [
        {"me": ReplicaId(2, 22, 9)},
        {"term": 4},
        {"leader": ReplicaId(3, 33, 1)},
        {"leader": None},
        {"failed": True},
        {"coverable": False},
    ],
    ids=lambda c: next(iter(c)),
)
def test_a_follower_that_does_not_agree_says_so(follower, change):
    agree(follower, A)
    for name, value in change.items():
        setattr(follower.replicas[GROUP], name, value)
    follower.multi.heard(1, NodeHeartbeat(1, 0, (OFFER,), ()))
    assert follower.take_sent() == [NodeHeartbeatReply(1, (Place(GROUP, 3),))]
    assert follower.replicas[GROUP].calls == []


def test_a_follower_without_the_replica_says_so(follower):
    follower.replicas.clear()
    follower.multi.heard(1, NodeHeartbeat(1, 0, (OFFER,), ()))
    assert follower.take_sent() == [NodeHeartbeatReply(1, (Place(GROUP, 3),))]


def test_agreement_of_an_earlier_session_does_not_count(follower):
    agree(follower, A)
    follower.multi.link_down(1)
    follower.multi.link_up(1, SESSION + 1)
    follower.multi.heard(1, NodeHeartbeat(1, 0, (OFFER,), ()))
    assert follower.take_sent() == [NodeHeartbeatReply(1, (Place(GROUP, 3),))]


def test_a_disagreement_is_repeated_until_the_leader_has_heard_it(follower):
    follower.multi.heard(1, NodeHeartbeat(1, 0, (OFFER,), ()))
    follower.multi.heard(1, NodeHeartbeat(2, 0, (), ()))
    follower.multi.heard(1, NodeHeartbeat(3, 2, (), ()))
    told = [m.disagreed for m in follower.take_sent()]
    assert told == [(Place(GROUP, 3),), (Place(GROUP, 3),), ()]


def test_a_refusal_of_a_newer_term_replaces_one_that_is_still_told(follower):
    """The leader was elected again within a heartbeat, and its follower had voted for another one
    by the time of the offer. The word about the term before was still to be repeated and took the
    place of the new one: the leader read no refusal of its offer and took the group as covered. Its
    check-quorum then counted a voter that followed another leader, as long as no client wrote."""
    follower.multi.heard(1, NodeHeartbeat(1, 0, (OFFER,), ()))
    later = Offer(GROUP, 5, A, B)
    follower.replicas[GROUP].term = 6
    follower.multi.heard(1, NodeHeartbeat(2, 0, (later,), ()))
    told = [m.disagreed for m in follower.take_sent()]
    assert told == [(Place(GROUP, 3),), (Place(GROUP, 5),)]


def test_a_refused_offer_is_not_repeated_and_not_covered(leader):
    agree(leader, B)
    leader.run(leader.now + BEAT)
    leader.take_sent()
    leader.multi.replied(2, NodeHeartbeatReply(1, (Place(GROUP, 3),)))
    assert leader.replicas[GROUP].calls == [("uncover", B, 0)], "the next answer is asked anew"
    leader.run(leader.now + 5 * BEAT)
    assert leader.take_sent() == []


def test_a_refusal_takes_back_no_offer_that_a_later_heartbeat_carried(leader, follower):
    """Regression: replies took longer than a heartbeat. The follower refused an offer, for it was
    looking for a leader, and took the same one a heartbeat later, when it had heard from its leader
    again. The refusal came back, the leader forgot the offer, and found nothing in the next reply.
    The follower's group was covered for as long as the pair had any other, and its leader did not
    know: when that lost its leadership the follower was never told, asked for no votes, and gave
    none."""
    agree(leader, B)
    leader.run(leader.now + BEAT)
    (early,) = leader.take_sent()
    follower.multi.heard(1, early)  # it has taken no append yet
    leader.run(leader.now + BEAT)
    agree(follower, A)
    (late,) = leader.take_sent()
    follower.multi.heard(1, late)
    refused, accepted = follower.take_sent()
    assert (refused.disagreed, accepted.disagreed) == ((Place(GROUP, 3),), ())
    leader.multi.replied(2, refused)
    assert leader.multi.covered_groups(2) == (0, 0), "not before the later reply"
    leader.multi.replied(2, accepted)
    assert (leader.multi.covered_groups(2), follower.multi.covered_groups(1)) == ((1, 0), (0, 1))


def test_a_refusal_of_an_earlier_round_says_nothing_of_a_later_offer(leader):
    """A disagreement is repeated until it was heard, and so may meet an offer that it is older
    than."""
    other = GROUP + 1
    leader.replicas[other] = FakeReplica(other, A, A)
    leader.multi.taken(leader.replicas[other], ReplicaOutput(agreed=[B]))
    leader.run(leader.now + BEAT)
    agree(leader, B)
    leader.multi.replied(2, NodeHeartbeatReply(1, (Place(GROUP, 3),)))
    leader.run(leader.now + BEAT)
    assert OFFER in leader.take_sent()[-1].offers
    leader.multi.replied(2, NodeHeartbeatReply(2, ()))
    assert ("cover", B, leader.now) in leader.replicas[GROUP].calls


def test_a_covered_group_that_the_follower_leaves_is_uncovered(pair):
    """A voter that went on to a new term must not count for check-quorum."""
    leader, follower = pair
    follower.replicas[GROUP].term = 4
    follower.multi.taken(follower.replicas[GROUP], ReplicaOutput(uncovered=[A]))
    before = leader.now
    leader.run(leader.now + BEAT)
    exchange(leader, follower)
    assert leader.replicas[GROUP].calls[-1] == ("uncover", B, before)


def test_a_group_that_is_not_led_any_more_is_listed_until_answered(pair):
    leader, follower = pair
    leader.replicas[GROUP].leader = None
    leader.multi.taken(leader.replicas[GROUP], ReplicaOutput(uncovered=[B], leadership=True))
    leader.run(leader.now + 2 * BEAT)
    beats = leader.take_sent()
    assert [m.stopped for m in beats] == [(Place(GROUP, 3),)] * 2
    follower.now = leader.now
    follower.multi.heard(1, beats[1])
    assert follower.replicas[GROUP].calls[-1] == ("uncover", A, follower.now)
    for message in follower.take_sent():
        leader.multi.replied(2, message)
    leader.run(leader.now + 5 * BEAT)
    assert leader.take_sent() == []


def test_an_offer_not_yet_answered_is_taken_back_when_leadership_ends(leader):
    agree(leader, B)
    leader.run(leader.now + BEAT)
    leader.take_sent()
    leader.replicas[GROUP].term = 4
    leader.multi.taken(leader.replicas[GROUP], ReplicaOutput(leadership=True))
    leader.multi.replied(2, NodeHeartbeatReply(1, ()))
    assert leader.replicas[GROUP].calls == []
    leader.run(leader.now + BEAT)
    assert leader.take_sent() == [NodeHeartbeat(2, 1, (), (Place(GROUP, 3),))]


def test_a_replica_that_stopped_here_is_taken_off_both_lists(pair):
    leader, follower = pair
    leader.multi.dropped(GROUP)
    leader.replicas.clear()
    leader.run(leader.now + BEAT)
    assert leader.take_sent()[0].stopped == (Place(GROUP, 3),)
    follower.multi.dropped(GROUP)
    follower.replicas.clear()
    follower.multi.heard(1, NodeHeartbeat(9, 1, (), ()))
    assert follower.take_sent()[0].disagreed == (Place(GROUP, 3),)


def test_silence_of_the_leader_ends_the_coverage_with_the_last_contact(pair):
    _, follower = pair
    heard = follower.now
    follower.run(heard + ELECTION - 1)
    assert follower.replicas[GROUP].calls == [("cover", A, heard)]
    follower.run(heard + ELECTION)
    assert follower.replicas[GROUP].calls[-1] == ("uncover", A, heard)
    follower.multi.heard(1, NodeHeartbeat(9, 1, (), ()))
    assert follower.take_sent()[-1].disagreed == (Place(GROUP, 3),)


def test_a_heartbeat_keeps_the_coverage(pair):
    _, follower = pair
    for number in range(2, 20):
        follower.run(follower.now + ELECTION - 1)
        follower.multi.heard(1, NodeHeartbeat(number, 1, (), ()))
    assert [name for name, _, _ in follower.replicas[GROUP].calls] == ["cover"]


def test_silence_of_the_follower_ends_the_coverage_and_says_so(pair):
    leader, _ = pair
    replied = leader.now
    leader.run(replied + ELECTION + BEAT)
    assert leader.replicas[GROUP].calls[-1] == ("uncover", B, replied)
    assert leader.take_sent()[-1].stopped == (Place(GROUP, 3),)


def test_what_is_not_newer_is_dropped(pair):
    leader, follower = pair
    reset()
    follower.multi.heard(1, NodeHeartbeat(1, 0, (), (Place(GROUP, 3),)))
    assert follower.take_sent() == []
    assert len(follower.replicas[GROUP].calls) == 1
    leader.multi.replied(2, NodeHeartbeatReply(1, (Place(GROUP, 3),)))
    leader.multi.replied(2, NodeHeartbeatReply(99, (Place(GROUP, 3),)))
    assert len(leader.replicas[GROUP].calls) == 1
    assert fired()["node-heartbeat-not-newer"] == 1
    assert fired()["node-heartbeat-reply-not-newer"] == 2


def test_an_older_term_stops_nothing_newer(follower):
    follower.replicas[GROUP].term = 5
    agree(follower, A)
    follower.multi.heard(1, NodeHeartbeat(1, 0, (Offer(GROUP, 5, A, B),), (Place(GROUP, 3),)))
    follower.multi.heard(1, NodeHeartbeat(2, 1, (), (Place(GROUP, 4),)))
    assert [name for name, _, _ in follower.replicas[GROUP].calls] == ["cover"]


def test_news_of_a_peer_without_a_session_is_dropped(leader):
    leader.multi.link_down(2)
    leader.multi.heard(2, NodeHeartbeat(1, 0, (OFFER,), ()))
    leader.multi.replied(2, NodeHeartbeatReply(1, ()))
    agree(leader, B)
    leader.run(leader.now + 5 * BEAT)
    assert leader.sent == []


def test_a_thousand_covered_groups_cost_one_message(leader, follower):
    for group in range(1000):
        leader.replicas[group] = FakeReplica(group, A, A)
        follower.replicas[group] = FakeReplica(group, B, A)
        follower.multi.taken(follower.replicas[group], ReplicaOutput(agreed=[A]))
        leader.multi.taken(leader.replicas[group], ReplicaOutput(agreed=[B]))
    leader.run(leader.now + BEAT)
    exchange(leader, follower)
    assert leader.multi.covered_groups(2) == (1000, 0)
    assert follower.multi.covered_groups(1) == (0, 1000)
    leader.run(leader.now + BEAT)
    assert leader.take_sent() == [NodeHeartbeat(2, 1, (), ())]


def test_a_replica_that_cannot_be_covered_any_more_is_taken_back(leader):
    """Its node lost the agreement between offer and answer: it goes on beating by itself, and
    must be offered again when it agrees again."""
    agree(leader, B)
    leader.run(leader.now + BEAT)
    leader.replicas[GROUP].coverable = False
    leader.multi.replied(2, NodeHeartbeatReply(1, ()))
    leader.run(leader.now + BEAT)
    assert leader.take_sent()[-1] == NodeHeartbeat(2, 1, (), (Place(GROUP, 3),))
    assert leader.multi.covered_groups(2) == (0, 0)
    leader.replicas[GROUP].coverable = True
    agree(leader, B)
    leader.run(leader.now + BEAT)
    assert leader.take_sent()[-1].offers == (OFFER,)


# --- wall clocks ----------------------------------------------------------------------------------


def test_both_ends_of_a_pair_hear_each_others_wall_clock(leader, follower):
    leader.wall, follower.wall = 1_700_000_000_000, 1_700_000_000_250
    agree(follower, A)
    agree(leader, B)
    leader.run(leader.now + BEAT)
    exchange(leader, follower)
    assert leader.clocks.shares(2, leader.now, leader.wall)
    assert follower.clocks.shares(1, follower.now, follower.wall)


def test_an_old_peer_tells_no_clock_and_a_session_that_ends_takes_it_away(pair):
    leader, _ = pair
    assert not leader.clocks.shares(2, leader.now, 1_700_000_000_000)
    leader.multi.replied(2, NodeHeartbeatReply(1, (), 1_700_000_000_000))
    assert not leader.clocks.shares(2, leader.now, 1_700_000_000_000), "round 1 was replied before"
    leader.run(leader.now + BEAT)
    leader.multi.replied(2, NodeHeartbeatReply(2, (), 1_700_000_000_000))
    assert leader.clocks.shares(2, leader.now, 1_700_000_000_000)
    leader.multi.link_down(2)
    assert not leader.clocks.shares(2, leader.now, 1_700_000_000_000)
