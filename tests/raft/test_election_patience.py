"""Elections in vain wait longer and longer, and no longer than needed once they can be won.

Seen with 1,000 partitions on a starved machine: three brokers kept asking each other for votes in
all groups once per election timeout, the answers came after the next question, and no replica ever
led. The first attempts keep their pace, because a split vote is settled by the next one.
"""

import pytest

from raftlog.raft.election import EAGER_CAMPAIGNS, PATIENCE_MAX
from raftlog.raft.messages import PreVoteReply, PreVoteRequest
from raftlog.raft.node import Role
from tests.raft.cluster import ELECTION, Cluster, rid


def pauses(c, number, count):
    """The times between this many attempts of a replica without any answer."""
    node, found, last = c.node(number), [], None
    while len(found) < count:
        c.tick(number, node._state.election_deadline)
        assert node.role is Role.PRE_CANDIDATE
        if last is not None:
            found.append(c.now - last)
        last = c.now
        c.flush(number)
    return found


def test_the_first_attempts_keep_their_pace_and_later_ones_double_up_to_a_bound():
    c = Cluster(3)
    c.isolate(1)
    waited = pauses(c, 1, EAGER_CAMPAIGNS + PATIENCE_MAX + 4)
    for attempt, pause in enumerate(waited):
        doubled = min(max(0, attempt - EAGER_CAMPAIGNS), PATIENCE_MAX)
        assert ELECTION << doubled <= pause < 2 * ELECTION << doubled, (attempt, pause)


def test_hearing_of_a_leader_restores_the_pace():
    c = Cluster(3)
    c.isolate(1)
    pauses(c, 1, EAGER_CAMPAIGNS + PATIENCE_MAX)
    c.elect(2)
    c.heal()
    c.settle()
    c.advance(3 * ELECTION)
    assert c.node(1).leader == c.node(2).me
    assert c.node(1)._state.campaigns == 0


def test_a_link_that_comes_back_makes_a_waiting_replica_ask_soon():
    c = Cluster(3)
    c.isolate(1)
    pauses(c, 1, EAGER_CAMPAIGNS + PATIENCE_MAX + 2)
    node = c.node(1)
    assert node._state.election_deadline - c.now > 2 * ELECTION
    node.link_up(rid(2).node, c.now)
    assert node._state.election_deadline - c.now < 2 * ELECTION


def test_a_link_that_comes_up_never_delays_an_election():
    c = Cluster(3)
    c.isolate(1)
    node = c.node(1)
    before = node._state.election_deadline
    for _ in range(5):
        node.link_up(rid(2).node, c.now)
        assert node._state.election_deadline <= before


@pytest.mark.parametrize("patient", [(3,), (1, 2, 3)])
def test_a_quorum_that_returns_elects_within_the_longest_pause(patient):
    c = Cluster(3)
    c.isolate(1, 2, 3)
    for number in patient:
        pauses(c, number, EAGER_CAMPAIGNS + PATIENCE_MAX + 2)
    c.heal()
    c.advance((2 * ELECTION << PATIENCE_MAX) + 4 * ELECTION)
    assert c.leader() is not None


def test_attempts_still_ask_everybody():
    c = Cluster(3)
    c.isolate(1)
    pauses(c, 1, EAGER_CAMPAIGNS + 2)
    c.tick(1, c.node(1)._state.election_deadline)
    out = c[1].take()
    assert [type(message) for message in out.send] == [PreVoteRequest, PreVoteRequest]


def test_a_candidate_whose_votes_come_slowly_waits_as_patiently():
    """Disks that need longer than an election timeout to sync a vote are no reason to start
    over."""
    c = Cluster(3)
    c.isolate(1)
    pauses(c, 1, EAGER_CAMPAIGNS + PATIENCE_MAX)
    c.heal()
    node = c.node(1)
    node.receive([PreVoteReply(node.group, rid(2), node.me, node.term + 1, True)], c.now)
    assert node.role is Role.CANDIDATE
    assert node._state.election_deadline - c.now >= ELECTION << PATIENCE_MAX


def test_who_holds_back_leaves_the_first_election_to_the_first_choice():
    """Seen with 300 new partitions on a starved machine: the first choice of each group was late,
    its two rivals campaigned meanwhile, and it took 25 s until all groups had leaders."""
    c = Cluster(3)
    before = [c.node(number)._state.election_deadline for number in (2, 3)]
    for number in (2, 3):
        c.node(number).defer(2 * ELECTION)
    after = [c.node(number)._state.election_deadline for number in (2, 3)]
    assert after == [deadline + 2 * ELECTION for deadline in before]
    c.settle()
    c.advance(2 * ELECTION + ELECTION // 2)
    assert c.leader() == 1
    assert [c.node(number)._state.campaigns for number in (2, 3)] == [0, 0]


def test_without_the_first_choice_the_others_still_elect_one():
    c = Cluster(3)
    c.isolate(1)
    for number in (2, 3):
        c.node(number).defer(2 * ELECTION)
    c.advance(8 * ELECTION)
    assert c.leader() in (2, 3)


def test_holding_back_means_nothing_to_who_is_alone_leads_or_has_a_leader():
    alone = Cluster(1).node(1)
    before = alone._state.election_deadline
    alone.defer(2 * ELECTION)
    assert alone._state.election_deadline == before
    c = Cluster(3)
    c.elect(1)
    c.settle()
    for number in (1, 2):
        before = c.node(number)._state.election_deadline
        c.node(number).defer(2 * ELECTION)
        assert c.node(number)._state.election_deadline == before


def test_who_puts_off_campaigns_neither_then_nor_grows_patient():
    c = Cluster(3)
    c.isolate(1)
    node = c.node(1)
    until = c.now + 6 * ELECTION
    node.put_off(until)
    c.advance(5 * ELECTION)
    assert node._state.campaigns == 0
    c.advance(2 * ELECTION)
    assert node._state.campaigns == 1
    alone = Cluster(1).node(1)
    before = alone._state.election_deadline
    alone.put_off(before + ELECTION)
    assert alone._state.election_deadline == before
