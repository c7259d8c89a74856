"""The chapters of Ongaro's thesis ("Consensus: Bridging Theory and Practice") that the core
uses, one test per sentence: 3.4, 3.6, 3.8, 3.10, 4.1-4.3, 6.4, 9.6, 10.2.1."""

import pytest

from raftlog.base.entries import EntryKind, Membership
from raftlog.base.errors import LocalMisuse
from raftlog.raft.messages import (
    Append,
    PreVoteReply,
    PreVoteRequest,
    ReadEcho,
    TimeoutNow,
    VoteReply,
    VoteRequest,
)
from raftlog.raft.node import Role
from tests.paper.speaking import (
    THREE,
    append,
    control,
    lead,
    listen,
    matched,
    of_kind,
    pre_vote,
    replica,
    say,
    time_out,
    vote,
    vote_request,
    wait,
)
from tests.raft.cluster import (
    BEAT,
    ELECTION,
    GROUP,
    OPTIONS,
    WALL,
    Cluster,
    Peer,
    SeededEntropy,
    entry,
    log_of_terms,
    make_batch,
    rid,
    voters,
)


class TestElectionTimeouts:
    """3.4."""

    def test_timeouts_are_chosen_randomly_from_a_fixed_interval(self):
        drawn = {Peer(rid(1), log_of_terms(), seed=seed).take().deadline for seed in range(1, 60)}
        now = Peer(rid(1), log_of_terms()).node._state.now
        assert all(now + ELECTION <= deadline < now + 2 * ELECTION for deadline in drawn)
        assert len(drawn) > 50

    def test_each_candidate_restarts_a_randomized_timeout_at_the_start_of_an_election(self):
        peer = replica()
        timeouts = set()
        for _ in range(20):
            time_out(peer)
            timeouts.add(peer.deadline - peer.now)
        assert len(timeouts) > 15

    def test_the_generator_is_an_injected_one(self):
        first, second = (SeededEntropy(5).below(1000) for _ in range(2))
        assert first == second


class TestSafety:
    """3.6 and figure 3.2."""

    def test_the_voter_denies_its_vote_if_its_own_log_is_more_up_to_date(self):
        c = Cluster(3)
        c.elect(1)
        c.isolate(3)
        c.write(1, b"a")
        c.heal()
        c.campaign(3)
        c.settle()
        assert c.leader() == 1
        assert c[3].role is Role.FOLLOWER

    def test_figure_3_7_an_old_entry_on_a_majority_can_still_be_overwritten(self):
        """S1 leads term 4 and brings its entry of term 2 to a majority. It must not count that as
        committed, for S5, with an entry of term 3, can still be elected and overwrite it."""
        five = voters(1, 2, 3, 4, 5)
        s1 = lead(1, 2, term=3, membership=five, ready=False)
        say(s1, matched(4, 2), matched(4, 2, sender=3))
        assert s1.node.commit == 0
        s3 = replica(1, 2, term=4, membership=five)
        (reply,) = say(s3, vote_request(5, (2, 3), sender=5))
        assert reply.granted
        say(s3, append(5, (1, 1), (entry(2, 3, 1), entry(3, 5, 2)), sender=5))
        assert s3.terms == [1, 3, 5]

    def test_figure_3_7_with_an_entry_of_its_own_term_it_commits_both(self):
        s1 = lead(1, 2, term=3, membership=voters(1, 2, 3, 4, 5), ready=False)
        say(s1, matched(4, 3), matched(4, 3, sender=3))
        assert s1.node.commit == 3


class TestServerRestarts:
    """3.8."""

    def test_a_server_restarts_with_its_persisted_term_and_vote(self):
        c = Cluster(3)
        c.elect(1)
        peer = c.crash(2)
        assert (peer.node.term, peer.node.vote) == (1, rid(1))

    def test_a_server_that_restarts_does_not_vote_twice_in_a_term(self):
        peer = replica()
        say(peer, vote_request(1, sender=2))
        again = replica(term=peer.stored.term, vote=2)
        (reply,) = say(again, vote_request(1, sender=3))
        assert reply.granted is False

    def test_the_commit_index_can_be_reinitialized_to_zero(self):
        c = Cluster(3)
        c.elect(1)
        c.write(1, b"a")
        for n in (1, 2, 3):
            c[n].hint = 0
            c.crash(n)
        c.elect(2)
        assert c.node(2).commit == 3
        assert c[1].payloads == [b"a"]


class TestLeadershipTransfer:
    """3.10."""

    def test_the_prior_leader_stops_accepting_client_requests(self):
        peer = lead()
        peer.node.transfer(rid(3), peer.now)
        with pytest.raises(LocalMisuse):
            peer.node.propose([make_batch(0, 1)], peer.now, WALL)
        assert not peer.node.ready

    def test_the_target_is_brought_up_to_date_first(self):
        peer = lead()
        peer.node.transfer(rid(3), peer.now)
        assert not of_kind(listen(peer), TimeoutNow)
        said = say(peer, matched(1, 1, sender=3))
        assert [m.to for m in of_kind(said, TimeoutNow)] == [rid(3)]

    def test_timeout_now_starts_an_election_at_once(self):
        peer = replica(term=1)
        say(peer, append(1))
        asked = of_kind(say(peer, TimeoutNow(GROUP, rid(2), rid(1), 1)), VoteRequest)
        assert (peer.role, peer.node.term) == (Role.CANDIDATE, 2)
        assert all(m.transfer for m in asked)

    def test_the_prior_leader_steps_down_when_it_receives_the_new_term(self):
        c = Cluster(3)
        c.elect(1)
        c.node(1).transfer(rid(2), c.now)
        c.settle()
        assert c.leader() == 2
        assert c[1].role is Role.FOLLOWER
        assert c[1].transfers == [(rid(2), True)]

    def test_without_success_in_an_election_timeout_the_prior_leader_resumes(self):
        c = Cluster(3)
        c.elect(1)
        c.isolate(2)
        c.node(1).transfer(rid(2), c.now)
        c.advance(ELECTION + 2 * BEAT)
        assert c[1].transfers == [(rid(2), False)]
        c.write(1, b"goes on")
        assert c[3].payloads == [b"goes on"]

    @pytest.mark.parametrize("to", [1, 9], ids=["itself", "a stranger"])
    def test_the_target_is_another_voter(self, to):
        with pytest.raises(LocalMisuse):
            lead().node.transfer(rid(to), 0)


class TestMembershipChanges:
    """4.1 to 4.3."""

    def test_4_1_a_configuration_is_used_as_soon_as_it_is_added_to_the_log(self):
        peer = lead()
        peer.node.change_membership(voters(1, 2, 3, learners=[4]), peer.now, WALL)
        assert peer.node.membership.learners == (rid(4),)
        assert peer.node.commit < peer.node.membership_index
        assert rid(4) in peer.node.progress

    def test_4_1_a_removed_entry_brings_the_previous_configuration_back(self):
        """'a server must be prepared to fall back to the previous configuration in its log'."""
        c = Cluster(3)
        c.elect(1)
        c.isolate(1)
        c.node(1).change_membership(voters(1, 2, 3, learners=[4]), c.now, WALL)
        c.settle()
        assert c.node(1).membership.learners == (rid(4),)
        c.advance(4 * ELECTION)
        c.heal()
        c.advance(2 * ELECTION)
        assert c.node(1).membership == voters(1, 2, 3)

    def test_4_1_a_new_change_waits_until_the_previous_one_is_committed(self):
        peer = lead()
        peer.node.change_membership(voters(1, 2, 3, learners=[4]), peer.now, WALL)
        index = peer.node.membership_index
        peer.node.change_membership(voters(1, 2, 3, learners=[4, 5]), peer.now, WALL)
        assert peer.node.membership_index == index
        listen(peer)
        say(peer, matched(1, 2))
        assert peer.node.membership.learners == (rid(4), rid(5))

    def test_4_1_bug_no_change_before_an_entry_of_the_own_term_is_committed(self):
        """Ongaro's correction on raft-dev, 2015."""
        peer = lead(ready=False)
        peer.node.change_membership(voters(1, 2), peer.now, WALL)
        assert peer.node.membership == voters(1, 2, 3)
        say(peer, matched(1, 1))
        assert peer.node.membership == voters(1, 2)

    def test_4_2_1_a_new_server_joins_without_a_vote_until_it_has_caught_up(self):
        c = Cluster(3, learners=())
        c.elect(1)
        c.write(1, *[b"%d" % i for i in range(100)])
        c.peers[4] = Peer(rid(4), log_of_terms(membership=voters(1, 2, 3)), options=OPTIONS)
        c.isolate(4)
        c.node(1).change_membership(voters(1, 2, 3, 4), c.now, WALL)
        c.settle()
        assert c.node(1).membership == voters(1, 2, 3, learners=[4])
        c.heal()
        c.advance(4 * BEAT)
        assert c.node(1).membership == voters(1, 2, 3, 4)
        assert c.node(4).membership == voters(1, 2, 3, 4)

    def test_4_2_2_a_leader_outside_the_new_configuration_does_not_count_itself(self):
        peer = lead()
        peer.node.change_membership(voters(2, 3), peer.now, WALL)
        listen(peer)
        say(peer, matched(1, 2))
        assert (peer.node.commit, peer.role) == (1, Role.LEADER)
        said = say(peer, matched(1, 2, sender=3))
        assert (peer.node.commit, peer.role) == (2, Role.FOLLOWER)
        assert of_kind(said, TimeoutNow)

    def test_4_2_2_a_server_outside_its_configuration_does_not_campaign_but_votes(self):
        peer = replica(membership=voters(2, 3))
        time_out(peer)
        assert peer.role is Role.FOLLOWER
        (reply,) = say(peer, vote_request(1))
        assert reply.granted

    def test_4_2_2_a_removed_server_still_campaigns_until_that_is_committed(self):
        """'a server that is not part of its own latest configuration should still start new
        elections, as it might still be needed until the Cnew entry is committed': here no one
        else holds it."""
        peer = replica(1, term=1, membership=THREE, commit=1)
        leave = control(2, 1, 1, voters(2, 3))
        say(peer, append(1, (1, 1), (leave,), commit=1))
        assert peer.node.membership == voters(2, 3)
        asked = of_kind(time_out(peer), VoteRequest)
        assert {m.to for m in asked} == {rid(2), rid(3)}
        say(peer, vote(2, 2))
        assert peer.role is Role.CANDIDATE
        say(peer, vote(2, 3))
        assert peer.role is Role.LEADER

    def test_4_2_2_a_removed_server_campaigns_no_more_once_that_is_committed(self):
        peer = replica(1, term=1, membership=THREE, commit=1)
        say(peer, append(1, (1, 1), (control(2, 1, 1, voters(2, 3)),), commit=2))
        assert not of_kind(time_out(peer), VoteRequest)

    def test_4_2_3_who_hears_from_a_leader_neither_votes_nor_updates_its_term(self):
        peer = replica(term=1)
        say(peer, append(1))
        peer.now += ELECTION - 1
        assert not say(peer, vote_request(5, sender=3))
        assert peer.node.term == 1
        peer.now += 1
        (reply,) = say(peer, vote_request(5, sender=3))
        assert reply.granted

    def test_4_2_3_a_transfer_tells_the_voters_that_it_may_disrupt(self):
        peer = replica(term=1)
        say(peer, append(1))
        (reply,) = say(peer, vote_request(2, sender=3, transfer=True))
        assert reply.granted

    def test_4_3_agreement_needs_separate_majorities_of_both_configurations(self):
        peer = lead(membership=voters(1, 2, 3, learners=[4, 5]))
        say(peer, *(matched(1, 1, sender=n) for n in (3, 4, 5)))
        peer.node.change_membership(voters(1, 4, 5), peer.now, WALL)
        listen(peer)
        assert peer.node.membership == Membership(
            voters(1, 4, 5).voters, outgoing=voters(1, 2, 3).voters
        )
        joint = peer.node.membership_index
        say(peer, matched(1, joint, sender=4), matched(1, joint, sender=5))
        assert peer.node.commit < joint
        say(peer, matched(1, joint, sender=2))
        assert peer.node.commit == joint

    def test_4_3_elections_need_separate_majorities_of_both_configurations(self):
        joint = Membership(voters(1, 4, 5).voters, outgoing=voters(1, 2, 3).voters)
        peer = replica(membership=joint)
        time_out(peer)
        say(peer, vote(1, 4), vote(1, 5))
        assert peer.role is Role.CANDIDATE
        say(peer, vote(1, 2))
        assert peer.role is Role.LEADER

    def test_4_3_once_joint_is_committed_the_leader_creates_the_new_configuration(self):
        """The leader need not have begun it: here one found the joint configuration in its log."""
        joint = Membership(voters(1, 4, 5).voters, outgoing=voters(1, 2, 3).voters)
        peer = lead(membership=joint, ready=False)
        say(peer, *(matched(1, 1, sender=n) for n in (2, 4)))
        assert peer.node.membership == voters(1, 4, 5)


class TestReadOnlyQueries:
    """6.4."""

    def test_1_a_leader_waits_for_the_first_commit_of_its_term(self):
        peer = lead(ready=False)
        peer.node.read_index(7, peer.now)
        listen(peer)
        assert not peer.reads
        said = say(peer, matched(1, 1))
        context = max(m.read_context for m in of_kind(said, Append))
        say(peer, ReadEcho(GROUP, rid(2), rid(1), 1, context))
        assert peer.reads == {7: 1}

    def test_2_the_current_commit_index_is_saved_as_read_index(self):
        peer = lead()
        peer.node.read_index(7, peer.now)
        peer.node.propose([make_batch(0, 1)], peer.now, WALL)
        context = max(m.read_context for m in of_kind(listen(peer), Append))
        say(peer, matched(1, 2), ReadEcho(GROUP, rid(2), rid(1), 1, context))
        assert peer.node.commit == 2
        assert peer.reads == {7: 1}

    def test_3_it_exchanges_heartbeats_with_a_majority_before_it_answers(self):
        peer = lead()
        peer.node.read_index(7, peer.now)
        said = of_kind(listen(peer), Append)
        assert {m.to for m in said if m.read_context} == {rid(2), rid(3)}
        assert not peer.reads
        say(peer, ReadEcho(GROUP, rid(3), rid(1), 1, said[0].read_context))
        assert peer.reads == {7: 1}

    def test_3_an_acknowledgement_of_an_earlier_round_does_not_count(self):
        peer = lead()
        peer.node.read_index(7, peer.now)
        first = of_kind(listen(peer), Append)[0].read_context
        peer.node.read_index(8, peer.now)
        listen(peer)
        say(peer, ReadEcho(GROUP, rid(3), rid(1), 1, first))
        assert peer.reads == {7: 1}

    def test_one_round_serves_any_number_of_queries(self):
        peer = lead()
        for token in range(100):
            peer.node.read_index(token, peer.now)
        said = of_kind(listen(peer), Append)
        assert len(said) == 2
        say(peer, ReadEcho(GROUP, rid(3), rid(1), 1, said[0].read_context))
        assert len(peer.reads) == 100

    def test_a_deposed_leader_answers_no_query(self):
        peer = lead()
        peer.node.read_index(7, peer.now)
        listen(peer)
        say(peer, append(2, sender=3))
        assert peer.reads == {7: None}

    def test_a_follower_says_so(self):
        peer = replica()
        peer.node.read_index(7, peer.now)
        listen(peer)
        assert peer.reads == {7: None}


class TestPreVote:
    """9.6."""

    def test_a_candidate_increments_its_term_only_after_a_majority_would_vote_for_it(self):
        peer = replica(1, term=1, options=OPTIONS)
        asked = time_out(peer)
        assert {(type(m), m.term, m.last_index) for m in asked} == {(PreVoteRequest, 2, 1)}
        assert (peer.role, peer.node.term, peer.stored.term) == (Role.PRE_CANDIDATE, 1, 1)
        say(peer, pre_vote(2))
        assert (peer.role, peer.node.term) == (Role.CANDIDATE, 2)

    def test_a_pre_vote_is_no_vote(self):
        peer = replica(term=1)
        ask = PreVoteRequest(GROUP, rid(2), rid(1), 2, 0, 0)
        (reply,) = say(peer, ask)
        assert isinstance(reply, PreVoteReply)
        assert (reply.granted, peer.node.term, peer.node.vote) == (True, 1, None)
        (other,) = say(peer, ask._replace(sender=rid(3)))
        assert other.granted

    def test_it_is_granted_only_if_the_candidates_log_is_sufficiently_up_to_date(self):
        peer = replica(1, 1, term=1)
        (reply,) = say(peer, PreVoteRequest(GROUP, rid(2), rid(1), 2, 1, 1))
        assert not reply.granted

    def test_it_is_granted_only_without_a_valid_leader_for_an_election_timeout(self):
        peer = replica(term=1)
        say(peer, append(1))
        ask = PreVoteRequest(GROUP, rid(3), rid(1), 2, 0, 0)
        assert not say(peer, ask)[0].granted
        peer.now += ELECTION
        assert say(peer, ask)[0].granted

    def test_an_isolated_server_cannot_raise_its_term(self):
        c = Cluster(3)
        c.elect(1)
        c.isolate(3)
        c.advance(10 * ELECTION)
        assert c.node(3).term == 1
        c.heal()
        c.advance(ELECTION)
        assert (c.leader(), c.node(1).term) == (1, 1)


class TestWritingInParallel:
    """10.2.1."""

    def test_the_leader_sends_while_its_own_disk_writes(self):
        peer = lead()
        say(peer, matched(1, 1, sender=3))
        peer.node.propose([make_batch(0, 1)], peer.now, WALL)
        assert len(of_kind(peer.take().send, Append)) == 2

    def test_an_entry_may_commit_before_the_leaders_disk_has_it(self):
        peer = lead()
        peer.node.propose([make_batch(0, 1)], peer.now, WALL)
        peer.take()
        peer.node.receive([matched(1, 2), matched(1, 2, sender=3)], peer.now)
        assert (peer.node.commit, peer.node.durable) == (2, 1)


def test_a_leader_begins_its_term_with_an_entry_of_its_own():
    """Section 8 of the paper, thesis 6.4: a no-op, ours is the term start."""
    peer = lead(term=3)
    (start,) = peer.log.all_entries
    assert (start.kind, start.term, start.raft_index) == (EntryKind.TERM_START, 4, 1)


def test_a_candidates_own_vote_counts_only_when_it_is_durable():
    """Nothing is promised before it is durable; the other vote alone is no majority."""
    peer = replica()
    peer.now += 2 * ELECTION
    peer.node.tick(peer.now)
    assert not peer.take().send
    peer.node.receive([vote(1)], peer.now)
    assert peer.role is Role.CANDIDATE
    peer.persist(peer.now)
    assert peer.role is Role.LEADER


def test_a_sync_of_earlier_things_does_not_make_a_new_candidacy_durable():
    """Seed 101 of the simulator: a higher term was being synced when, in one turn, a candidacy
    began and then that sync came back. The candidate took it for the sync of its own vote
    in the next term, which no round held yet; only an assert kept it from counting."""
    peer = replica(1)
    peer.node.receive([append(2, (1, 1))], peer.now)
    peer.take()
    assert [hard.term for _, hard, _ in peer.open] == [2]
    peer.node.receive([TimeoutNow(GROUP, rid(2), rid(1), 2)], peer.now)
    assert (peer.role, peer.node.term) == (Role.CANDIDATE, 3)
    peer.persist(peer.now)
    assert peer.node._state.votes == {}
    assert not [m for m in peer.take().send if isinstance(m, VoteRequest)]
    peer.persist(peer.now)
    assert [type(m) for m in peer.take().send] == [VoteRequest, VoteRequest]


def test_a_vote_reply_waits_for_its_sync_even_when_asked_twice():
    peer = replica()
    peer.node.receive([vote_request(1)], peer.now)
    assert not peer.take().send
    peer.node.receive([vote_request(1)], peer.now)
    assert not peer.take().send
    peer.persist(peer.now)
    assert [type(m) for m in peer.take().send] == [VoteReply, VoteReply]


def test_heartbeats_keep_a_follower_from_campaigning_for_ever():
    peer = replica(term=1)
    for _ in range(50):
        say(peer, append(1))
        wait(peer, BEAT)
    assert (peer.role, peer.node.term) == (Role.FOLLOWER, 1)
