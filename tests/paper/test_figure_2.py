"""Figure 2 of the Raft paper ("In Search of an Understandable Consensus Algorithm", extended
version), one test per sentence, the section cited. Where the core goes further (nothing is said
before it is synced, conflict hints, pre-vote), the sentence still holds and the docstring says
how."""

import pytest

from raftlog.base.errors import LocalMisuse
from raftlog.raft.messages import (
    Append,
    AppendRefused,
    AppendReply,
    RefusalReason,
    VoteReply,
    VoteRequest,
)
from raftlog.raft.node import Role
from tests.paper.speaking import (
    append,
    lead,
    listen,
    matched,
    of_kind,
    refused,
    replica,
    say,
    time_out,
    vote,
    vote_request,
    wait,
)
from tests.raft.cluster import BEAT, ELECTION, WALL, entry, make_batch, rid, voters


class TestState:
    def test_current_term_is_initialized_to_zero_on_first_boot(self):
        assert replica().node.term == 0

    def test_current_term_increases_monotonically(self):
        peer = replica(term=5)
        for term in (3, 7, 6, 9, 1):
            before = peer.node.term
            say(peer, append(term))
            assert peer.node.term == max(before, term)

    def test_voted_for_is_none_when_nobody_was_voted_for_in_the_term(self):
        peer = replica(term=3, vote=2)
        say(peer, append(4))
        assert peer.node.vote is None

    def test_term_and_vote_are_updated_on_stable_storage_before_responding(self):
        """'(Updated on stable storage before responding to RPCs)'."""
        peer = replica()
        peer.node.receive([vote_request(1)], peer.now)
        out = peer.take()
        assert out.hard_state == (1, rid(2))
        assert not out.send
        peer.persist(peer.now)
        assert of_kind(peer.take().send, VoteReply)[0].granted

    def test_log_entries_are_updated_on_stable_storage_before_responding(self):
        peer = replica(term=1)
        peer.node.receive([append(1, entries=(entry(1, 1, 0),))], peer.now)
        out = peer.take()
        assert out.log_changed
        assert not out.send
        peer.persist(peer.now)
        assert of_kind(peer.take().send, AppendReply)[0].match == 1

    def test_commit_index_is_initialized_to_zero_and_increases_monotonically(self):
        peer = replica(1, 1, term=1)
        assert peer.node.commit == 0
        for commit, expected in ((1, 1), (0, 1), (2, 2), (1, 2)):
            say(peer, append(1, (2, 1), commit=commit))
            assert peer.node.commit == expected

    def test_next_index_is_initialized_to_leader_last_log_index_plus_one(self):
        """The entry that starts the term is appended at once, and is the next one to send."""
        peer = replica(1, 1, term=1)
        time_out(peer)
        peer.node.receive([vote(2)], peer.now)
        assert {p.next for p in peer.node.progress.values()} == {3}
        assert peer.log.last_index == 3

    def test_match_index_is_initialized_to_zero(self):
        peer = lead(1, 1, term=1, ready=False)
        assert {p.match for p in peer.node.progress.values()} == {0}


class TestAppendEntriesReceiver:
    def test_1_reply_false_if_term_is_below_current_term(self):
        """5.1."""
        peer = replica(term=3)
        (reply,) = of_kind(say(peer, append(2)), AppendRefused)
        assert (reply.reason, reply.term) == (RefusalReason.STALE_TERM, 3)

    @pytest.mark.parametrize("prev", [(3, 2), (2, 2), (2, 3)], ids=["missing", "older", "newer"])
    def test_2_reply_false_without_an_entry_at_prev_index_of_prev_term(self, prev):
        """5.3."""
        peer = replica(1, 1, term=3)
        (reply,) = of_kind(say(peer, append(3, prev)), AppendRefused)
        assert (reply.reason, reply.prev_index) == (RefusalReason.MISMATCH, prev[0])

    def test_3_delete_a_conflicting_entry_and_all_that_follow_it(self):
        """5.3."""
        peer = replica(1, 1, 2, 2, term=3)
        say(peer, append(3, (2, 1), (entry(3, 3, 2),)))
        assert peer.terms == [1, 1, 3]
        assert peer.log.truncations == [3]

    def test_3_without_a_conflict_nothing_is_deleted(self):
        """An older, shorter append that arrives late says nothing about what follows it."""
        peer = replica(1, 1, 1, term=1)
        same = peer.log.all_entries[0]
        say(peer, append(1, (0, 0), (same,)))
        assert peer.terms == [1, 1, 1]
        assert peer.log.truncations == []

    def test_4_append_any_new_entries_not_already_in_the_log(self):
        peer = replica(1, 1, term=1)
        second = peer.log.all_entries[1]
        say(peer, append(1, (1, 1), (second, entry(3, 1, 2), entry(4, 1, 3))))
        assert peer.terms == [1, 1, 1, 1]

    @pytest.mark.parametrize(
        ("leader_commit", "expected"), [(1, 1), (2, 2), (3, 2), (9, 2)], ids=str
    )
    def test_5_commit_is_min_of_leader_commit_and_last_new_entry(self, leader_commit, expected):
        """The third entry is here but not verified by this append: it may be another leader's."""
        peer = replica(1, 1, 1, term=1)
        first, second = peer.log.all_entries[:2]
        say(peer, append(2, (0, 0), (first, second), commit=leader_commit))
        assert peer.node.commit == expected


class TestRequestVoteReceiver:
    def test_1_reply_false_if_term_is_below_current_term(self):
        """5.1."""
        (reply,) = say(replica(term=3), vote_request(2, (9, 2)))
        assert (reply.term, reply.granted) == (3, False)

    @pytest.mark.parametrize(("voted", "granted"), [(None, True), (2, True), (3, False)])
    def test_2_grant_if_voted_for_is_null_or_the_candidate(self, voted, granted):
        """5.2: a vote is repeated to the same candidate, and never given to another one."""
        peer = replica(term=3, vote=voted)
        (reply,) = say(peer, vote_request(3))
        assert reply.granted is granted
        assert peer.node.vote == rid(2 if granted else voted)

    @pytest.mark.parametrize(
        ("mine", "last", "granted"),
        [
            ((1, 1), (2, 1), True),
            ((1, 1), (1, 2), True),
            ((1, 1), (3, 1), True),
            ((1, 1), (1, 1), False),
            ((1, 2), (9, 1), False),
            ((1, 1, 1), (1, 2), True),
            ((), (0, 0), True),
        ],
        ids=["equal", "later term", "longer", "shorter", "earlier term", "short, later", "empty"],
    )
    def test_2_only_a_log_at_least_as_up_to_date_gets_the_vote(self, mine, last, granted):
        """5.4.1: the terms of the last entries decide before the lengths."""
        peer = replica(*mine, term=3)
        (reply,) = say(peer, vote_request(4, last))
        assert reply.granted is granted


class TestRulesForAllServers:
    def test_a_commit_index_above_last_applied_is_told_to_be_applied(self):
        peer = replica(1, 1, term=1)
        peer.node.receive([append(1, (2, 1), commit=2)], peer.now)
        assert peer.take().commit == 2

    @pytest.mark.parametrize(
        "message",
        [
            append(9, (0, 0)),
            vote_request(9),
            vote(9, granted=False),
            matched(9, 0),
            refused(9, 0, (0, 0)),
        ],
        ids=lambda m: type(m).__name__,
    )
    @pytest.mark.parametrize("role", ["follower", "candidate", "leader"])
    def test_a_higher_term_is_adopted_and_makes_a_follower(self, role, message):
        """5.1. (A leader that hears from a quorum ignores a vote request that it did not ask for:
        thesis 4.2.3; its own term rises with the candidate's refusal of its next append.)"""
        peer = replica(term=1) if role == "follower" else lead(term=1)
        if role == "candidate":
            peer = replica(term=1)
            time_out(peer)
        if role == "leader" and isinstance(message, VoteRequest):
            message = message._replace(transfer=True)
        say(peer, message)
        assert (peer.role, peer.node.term) == (Role.FOLLOWER, 9)


class TestRulesForFollowers:
    def test_respond_to_rpcs_from_candidates_and_leaders(self):
        peer = replica(term=1)
        assert of_kind(say(peer, append(1)), AppendReply)
        peer = replica(term=1)
        assert of_kind(say(peer, vote_request(1)), VoteReply)

    def test_an_election_timeout_without_word_makes_a_candidate(self):
        peer = replica(term=1)
        time_out(peer)
        assert peer.role is Role.CANDIDATE

    def test_appends_of_the_current_leader_put_the_election_off(self):
        peer = replica(term=1)
        for _ in range(5):
            say(peer, append(1))
            wait(peer, ELECTION - 1)
        assert peer.role is Role.FOLLOWER

    def test_granting_a_vote_puts_the_election_off(self):
        peer = replica(term=1)
        wait(peer, ELECTION - 1)
        say(peer, vote_request(2))
        wait(peer, ELECTION - 1)
        assert peer.role is Role.FOLLOWER

    def test_refusing_a_vote_does_not_put_the_election_off(self):
        peer = replica(1, term=1)
        deadline = peer.take().deadline
        say(peer, vote_request(1, (0, 0)))
        assert peer.take().deadline == deadline

    def test_stale_messages_do_not_put_the_election_off(self):
        peer = replica(term=5)
        deadline = peer.take().deadline
        say(peer, append(4), vote_request(4))
        assert peer.take().deadline == deadline


class TestRulesForCandidates:
    def test_starting_an_election_increments_the_term(self):
        peer = replica(term=4)
        time_out(peer)
        assert peer.node.term == 5

    def test_starting_an_election_votes_for_self(self):
        peer = replica(term=4)
        time_out(peer)
        assert peer.node.vote == rid(1)
        assert peer.stored == (5, rid(1))

    def test_starting_an_election_resets_the_election_timer(self):
        peer = replica(term=4)
        time_out(peer)
        assert peer.now + ELECTION <= peer.deadline < peer.now + 2 * ELECTION

    def test_starting_an_election_asks_all_other_servers(self):
        peer = replica(1, 2, term=4)
        asked = of_kind(time_out(peer), VoteRequest)
        assert [(m.to, m.term, m.last_index, m.last_term) for m in asked] == [
            (rid(2), 5, 2, 2),
            (rid(3), 5, 2, 2),
        ]

    @pytest.mark.parametrize(
        ("count", "votes", "role"),
        [
            (1, [], Role.LEADER),
            (3, [2], Role.LEADER),
            (3, [], Role.CANDIDATE),
            (4, [2], Role.CANDIDATE),
            (4, [2, 3], Role.LEADER),
            (5, [2], Role.CANDIDATE),
            (5, [2, 3], Role.LEADER),
            (5, [2, 2, 2], Role.CANDIDATE),
        ],
    )
    def test_votes_from_a_majority_make_a_leader(self, count, votes, role):
        """A vote counts once, however often it comes."""
        peer = replica(membership=voters(*range(1, count + 1)))
        time_out(peer)
        say(peer, *(vote(1, sender) for sender in votes))
        assert peer.role is role

    def test_an_append_of_the_new_leader_makes_a_follower(self):
        peer = replica()
        time_out(peer)
        say(peer, append(1, sender=3))
        assert (peer.role, peer.node.term, peer.node.leader) == (Role.FOLLOWER, 1, rid(3))

    def test_an_election_timeout_starts_a_new_election(self):
        peer = replica()
        time_out(peer)
        asked = of_kind(time_out(peer), VoteRequest)
        assert (peer.role, peer.node.term) == (Role.CANDIDATE, 2)
        assert {m.term for m in asked} == {2}

    def test_votes_of_an_earlier_election_do_not_count(self):
        peer = replica()
        time_out(peer)
        time_out(peer)
        say(peer, vote(1))
        assert peer.role is Role.CANDIDATE


class TestRulesForLeaders:
    def test_upon_election_every_server_hears_at_once(self):
        """The initial heartbeat carries the entry that starts the term (section 8)."""
        peer = replica()
        time_out(peer)
        said = of_kind(say(peer, vote(1)), Append)
        assert [(m.to, m.prev_index, len(m.entries)) for m in said] == [
            (rid(2), 0, 1),
            (rid(3), 0, 1),
        ]

    def test_heartbeats_are_repeated_during_idle_periods(self):
        peer = lead()
        listen(peer)
        for _ in range(3):
            said = of_kind(wait(peer, BEAT), Append)
            say(peer, matched(1, 1), matched(1, 1, sender=3))
            assert {m.to for m in said} <= {rid(2), rid(3)}
        assert {m.to for m in said} == {rid(2), rid(3)}
        assert peer.deadline <= peer.now + BEAT

    def test_a_command_is_appended_to_the_local_log(self):
        peer = lead()
        peer.node.propose([make_batch(0, 1, b"x")], peer.now, WALL)
        assert peer.payloads == [b"x"]

    def test_a_command_is_answered_only_after_it_is_committed(self):
        peer = lead()
        peer.node.propose([make_batch(0, 1, b"x")], peer.now, WALL)
        listen(peer)
        assert peer.node.commit == 1
        peer.node.receive([matched(1, 2)], peer.now)
        assert peer.take().commit == 2

    def test_entries_from_next_index_on_are_sent(self):
        peer = lead()
        peer.node.propose([make_batch(0, 1, b"x"), make_batch(1, 1, b"y")], peer.now, WALL)
        (message,) = [m for m in of_kind(listen(peer), Append) if m.to == rid(2)]
        assert (message.prev_index, [e.raft_index for e in message.entries]) == (1, [2, 3])

    def test_success_updates_next_and_match(self):
        peer = lead()
        peer.node.propose([make_batch(0, 1, b"x")], peer.now, WALL)
        listen(peer)
        say(peer, matched(1, 2))
        progress = peer.node.progress[rid(2)]
        assert (progress.match, progress.next) == (2, 3)

    def test_failure_by_inconsistency_decrements_next_and_retries(self):
        """5.3: with the hint, by whole terms instead of one entry at a time."""
        peer = replica(1, 1, 2, term=2)
        time_out(peer)
        say(peer, vote(3))
        said = say(peer, refused(3, 3, (2, 1)))
        (retry,) = [m for m in of_kind(said, Append) if m.to == rid(2)]
        assert (retry.prev_index, retry.prev_term) == (2, 1)
        assert [e.term for e in retry.entries] == [2, 3]

    def test_commit_moves_to_what_a_majority_matches_in_the_current_term(self):
        """5.3, 5.4."""
        peer = lead(membership=voters(1, 2, 3, 4, 5), ready=False)
        say(peer, matched(1, 1))
        assert peer.node.commit == 0
        say(peer, matched(1, 1, sender=3))
        assert peer.node.commit == 1

    def test_an_entry_of_an_earlier_term_is_not_committed_by_counting(self):
        """5.4.2, figure 8: it commits only below an entry of the leader's own term."""
        peer = replica(1, 2, term=3)
        time_out(peer)
        say(peer, vote(4))
        say(peer, matched(4, 2))
        assert peer.node.commit == 0
        say(peer, matched(4, 3))
        assert peer.node.commit == 3

    def test_the_leaders_own_disk_counts_only_when_it_has_synced(self):
        """Thesis 10.2.1: the leader writes in parallel with its followers."""
        peer = lead()
        peer.node.propose([make_batch(0, 1, b"x")], peer.now, WALL)
        peer.take()
        peer.node.receive([matched(1, 2)], peer.now)
        assert peer.node.commit == 1
        peer.persist(peer.now)
        assert peer.node.commit == 2

    def test_a_leader_never_overwrites_or_deletes_its_entries(self):
        """5.3, leader append-only; another leader of the same term breaks election safety: it
        stops."""
        peer = lead(1, term=1)
        say(peer, append(2, (0, 0), (entry(1, 2, 0),), sender=3))
        assert peer.role is Role.STOPPED
        assert peer.terms == [1, 2]

    def test_who_does_not_lead_takes_no_commands(self):
        with pytest.raises(LocalMisuse):
            replica().node.propose([make_batch(0, 0)], 0, WALL)
