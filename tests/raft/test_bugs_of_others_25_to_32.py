"""Bugs that others had, each under its number and name in docs/internals/named_scenarios.md.

Where a docstring says who had it, the public issue is theirs; the scenario is ours.
"""

import attrs
import pytest

from raftlog.base.entries import HardState, LogPosition
from raftlog.base.errors import LocalMisuse
from raftlog.raft.messages import (
    NO_CHAIN,
    Append,
    AppendRefused,
    AppendReply,
    PreVoteRequest,
    TimeoutNow,
)
from raftlog.raft.node import Role
from raftlog.raft.progress import ProgressState
from tests.paper.speaking import (
    append,
    lead,
    listen,
    matched,
    of_kind,
    refused,
    say,
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
    entry,
    log_of_terms,
    make_batch,
    rid,
    voters,
)


class Test25TwoSendersOneFollower:
    """redpanda RFC 20220119, PR 13495, PR 2072: replication and recovery fed one follower at
    once."""

    def test_a_log_read_that_answers_an_ended_sender_is_dropped(self):
        peer = lead(1, 1, 1, term=1)
        peer.log.window = 1
        peer.auto_reads = False
        say(peer, refused(2, 3, (0, 0), sender=3))
        (read,) = peer.pending_log_reads
        assert read.first_index == 1
        peer.node.link_down(3, peer.now)
        peer.node.link_up(3, peer.now)
        listen(peer)
        found = peer.log.read(1, 9999)
        peer.node.log_read_done(read.token, 1, peer.log.chain_at(0), found)
        assert not [m for m in of_kind(listen(peer), Append) if m.entries]

    def test_one_log_read_at_a_time(self):
        peer = lead(1, 1, 1, term=1)
        peer.log.window = 1
        say(peer, refused(2, 3, (0, 0), sender=3))
        for _ in range(5):
            listen(peer)
        assert len(peer.pending_log_reads) == 1

    def test_a_failed_log_read_is_tried_again_after_the_next_answer(self):
        peer = lead(1, 1, 1, term=1)
        peer.log.window = 1
        say(peer, refused(2, 3, (0, 0), sender=3))
        (read,) = peer.pending_log_reads
        peer.node.log_read_done(read.token, 1, 0, None)
        listen(peer)
        assert len(peer.pending_log_reads) == 1
        wait(peer, BEAT)
        say(peer, matched(2, 0, sender=3))
        assert len(peer.pending_log_reads) == 2

    def test_an_install_ends_the_append_sender(self):
        peer = lead(1, 1, 1, term=1)
        say(peer, matched(2, 4, sender=3))
        peer.log.drop_before(4)
        peer.node.link_up(2, peer.now)
        peer.node._state.progress[rid(2)].match = 0
        say(peer, refused(2, 4, (0, 0)))
        progress = peer.node.progress[rid(2)]
        if progress.state is not ProgressState.INSTALL:
            progress.become_probe(1)
            listen(peer)
        assert progress.state is ProgressState.INSTALL
        peer.node.propose([make_batch(3, 2)], peer.now, WALL)
        said = of_kind(listen(peer), Append)
        assert not [m for m in said if m.to == rid(2) and m.entries]


class Test26StaleConflictReply:
    """openraft PR 1501, #1500, #584; raft-rs #428; PySyncObj (S7): acks without term."""

    def test_a_refusal_below_the_match_is_stale(self):
        peer = lead(1, 1, term=1)
        progress = peer.node.progress[rid(2)]
        assert (progress.match, progress.state) == (3, ProgressState.REPLICATE)
        say(peer, refused(2, 2, (1, 1)))
        assert (progress.match, progress.next, progress.state) == (3, 4, ProgressState.REPLICATE)

    def test_a_refusal_at_the_match_is_asked_about(self):
        """An acknowledgement overtook it, so the answer to one probe restores the stream."""
        peer = lead(1, 1, term=1)
        progress = peer.node.progress[rid(2)]
        (probe,) = of_kind(say(peer, refused(2, 3, (1, 1))), Append)
        assert (probe.to, probe.prev_index, probe.entries) == (rid(2), 3, ())
        assert (progress.match, progress.next, progress.state) == (3, 4, ProgressState.PROBE)
        say(peer, matched(2, 3))
        assert (progress.match, progress.next, progress.state) == (3, 4, ProgressState.REPLICATE)

    def test_answers_of_an_earlier_term_count_nothing(self):
        peer = lead(1, 1, term=1, ready=False)
        say(peer, matched(1, 3), matched(1, 3, sender=3))
        assert peer.node.commit == 0
        assert {p.match for p in peer.node.progress.values()} == {0}

    def test_a_match_beyond_our_log_is_nonsense(self):
        peer = lead(1, 1, term=1)
        say(peer, matched(2, 99))
        assert peer.node.progress[rid(2)].match == 3
        assert peer.node.commit == 3


class Test27RejectHintLivelock:
    """braft #421; openraft 6d53aa12; PySyncObj (S8): a backlog and one divergent entry."""

    @pytest.mark.parametrize("terms", [(1, 2, 2, 2), (1, 1, 1, 2, 2, 3, 3, 3), (2, 2, 2, 2, 2)])
    def test_a_divergent_follower_is_caught_up_in_few_messages(self, terms):
        leader = log_of_terms(1, 1, *[4] * 60)
        c = Cluster(3, logs={1: leader, 2: log_of_terms(*terms)})
        c.isolate(3)
        c.elect(1)
        refusals = [m for m in c.sent if isinstance(m, AppendRefused)]
        assert c[2].terms == c[1].terms
        assert len(refusals) <= 1 + len(set(terms))


class Test28HibernationNeverWakes:
    """tikv #16429, #16368, PR 16408, #18916, #10017; cockroach #26257, PR 101899, #125247."""

    @staticmethod
    def covered() -> Cluster:
        c = Cluster(3)
        c.elect(1)
        c.write(1, b"a")
        for number in (2, 3):
            assert rid(number) in c[1].agreed
            assert rid(1) in c[number].agreed
            assert c.node(1).cover(rid(number), c.now)
            assert c.node(number).cover(rid(1), c.now)
        c.advance(3 * BEAT)
        return c

    def test_an_idle_covered_group_costs_nothing(self):
        c = self.covered()
        c.sent.clear()
        c.advance(20 * ELECTION)
        assert c.sent == []
        assert all(p.deadline > c.now + 1000 * ELECTION for p in c.peers.values())
        assert c.leader() == 1

    def test_a_covered_leader_still_sends_entries_and_commits(self):
        c = self.covered()
        c.write(1, b"b")
        c.advance(2 * BEAT)
        assert [p.node.commit for p in c.peers.values()] == [3, 3, 3]

    def test_a_change_that_waited_for_a_transfer_goes_on_after_it_failed(self):
        """Nobody has a word for the leader then, so its own timer must look."""
        c = self.covered()
        c.isolate(3)
        c.node(1).transfer(rid(3), c.now)
        c.node(1).change_membership(voters(1, 2), c.now, WALL)
        c.settle()
        assert c.node(1).membership == voters(1, 2, 3)
        c.advance(3 * ELECTION)
        assert c[1].transfers == [(rid(3), False)]
        assert c.node(1).membership == voters(1, 2)

    def test_a_covered_leader_repeats_a_read_round_that_was_lost(self):
        c = self.covered()
        c.drop = lambda message: True
        c.node(1).read_index(7, c.now)
        c.settle()
        c.heal()
        c.advance(2 * BEAT)
        assert c[1].reads == {7: c.node(1).commit}

    def test_a_covered_leader_tells_its_successor_again(self):
        c = self.covered()
        c.drop = lambda message: True
        c.node(1).transfer(rid(2), c.now)
        c.settle()
        c.heal()
        c.advance(3 * BEAT)
        assert c.leader() == 2

    def test_the_leaders_node_dies(self):
        c = self.covered()
        c.isolate(1)
        for number in (2, 3):
            c.node(number).link_down(1, c.now)
        c.advance(3 * BEAT)
        assert c.leader() in (2, 3)

    def test_followers_of_a_dead_node_do_not_all_campaign_at_once(self):
        """The deadline of a covered follower stands still. When the link to its leader fell, the
        old one still counted: all followers campaigned at that very instant, each voted for itself,
        and a failover cost an election timeout more. Found by writing scenario duplicated-votes."""
        c = self.covered()
        c.advance(3 * ELECTION)
        c.isolate(1)
        deadlines = []
        for number in (2, 3):
            c.node(number).link_down(1, c.now)
            deadlines.append(c.node(number)._state.election_deadline - c.now)
        assert all(BEAT <= deadline < 2 * BEAT for deadline in deadlines), deadlines
        assert deadlines[0] != deadlines[1]

    def test_the_cover_ends_without_a_word_and_the_timer_runs_again(self):
        c = self.covered()
        c.isolate(1)
        for number in (2, 3):
            c.node(number).uncover(rid(1), c.now, c.now)
        c.advance(4 * ELECTION)
        assert c.leader() in (2, 3)

    def test_a_follower_is_uncovered_by_its_leader_alone_and_once(self):
        c = self.covered()
        deadline = c.node(2)._state.election_deadline
        c.node(2).uncover(rid(3), c.now, c.now)
        assert (c.node(2)._state.covered, c.node(2)._state.election_deadline) == (True, deadline)
        c.node(2).uncover(rid(1), c.now, c.now)
        assert not c.node(2)._state.covered
        bare = c.node(2)._state.election_deadline
        c.advance(BEAT // 2, step=BEAT // 2)
        c.node(2).uncover(rid(1), c.now, c.now)  # said again, it does not make it wait longer
        assert c.node(2)._state.election_deadline == bare

    def test_a_peer_dies_while_idle_and_the_leader_notices(self):
        c = self.covered()
        c.isolate(1)
        for number in (2, 3):
            c.node(1).uncover(rid(number), c.now, c.now)
        c.advance(2 * ELECTION)
        assert c[1].role is Role.FOLLOWER

    def test_a_restarted_follower_wakes_the_leader_up(self):
        """It is not covered, for it forgot the agreement; its pre-vote shows that."""
        c = self.covered()
        c.crash(3)
        c.advance(3 * ELECTION)
        assert c.leader() == 1
        assert c.node(3).leader == rid(1)
        assert c[1].uncovered == [rid(3)]
        assert not c.node(1).progress[rid(3)].covered

    def test_a_follower_that_was_not_covered_is_not_uncovered(self):
        c = self.covered()
        c.crash(3)
        c.advance(3 * ELECTION)
        assert c[1].uncovered == [rid(3)]
        asked = PreVoteRequest(GROUP, rid(3), rid(1), c.node(1).term + 1, c[1].log.last_index, 1)
        c.node(1).receive([asked], c.now)
        c.settle()
        assert c[1].uncovered == [rid(3)], "it was said once"

    def test_a_new_leader_ends_every_cover_of_the_old_one(self):
        c = self.covered()
        c.node(1).transfer(rid(2), c.now)
        c.settle()
        assert c.leader() == 2
        assert sorted(c[1].uncovered) == [rid(2), rid(3)]
        assert c[3].uncovered == [rid(1)]

    def test_who_did_not_agree_is_not_covered(self):
        c = Cluster(3)
        c.isolate(3)
        c.elect(1)
        assert not c.node(1).cover(rid(3), c.now)
        assert not c.node(3).cover(rid(1), c.now)
        assert not c.node(2).cover(rid(3), c.now)

    def test_a_new_link_session_needs_a_new_agreement(self):
        c = self.covered()
        c.links_reset(2)
        assert not c.node(1).cover(rid(2), c.now)
        c[1].agreed.clear()
        c.settle()
        assert c[1].agreed == [rid(2)]
        assert c.node(1).cover(rid(2), c.now)


class Test29StalledDiskLeader:
    """hashicorp #503, #614; consul #22064; openraft #1651."""

    def test_a_leader_whose_disk_stalls_hands_over(self):
        c = Cluster(3)
        c.elect(1)
        c.propose(1, b"a")
        c.frozen_disks.add(1)
        c.advance(3 * ELECTION)
        assert c.leader() in (2, 3)
        assert c[1].role is Role.FOLLOWER
        assert c.node(c.leader()).ready

    def test_and_does_not_come_back_while_it_stalls(self):
        c = Cluster(3)
        c.elect(1)
        c.propose(1, b"a")
        c.frozen_disks.add(1)
        c.advance(3 * ELECTION)
        term = c.node(c.leader()).term
        c.isolate(1)
        c.advance(20 * ELECTION)
        assert c.node(1).term <= term

    def test_a_failed_write_stops_the_replica_and_hands_over(self):
        c = Cluster(3)
        c.elect(1)
        c.node(1).io_failed(c.now)
        c.settle()
        assert c[1].role is Role.STOPPED
        assert c.leader() in (2, 3)
        with pytest.raises(LocalMisuse):
            c.propose(1, b"x")


class Test30PipelineKillsBatching:
    """hashicorp PR 541; rabbitmq ra PR 658: a deep pipeline made every append one entry long."""

    def test_what_is_proposed_in_one_turn_shares_one_append(self):
        peer = lead()
        for i in range(20):
            peer.node.propose([make_batch(i, 1)], peer.now, WALL)
        sent = [m for m in of_kind(peer.take().send, Append) if m.to == rid(2)]
        assert [len(m.entries) for m in sent] == [20]

    def test_the_window_is_small_and_what_waits_becomes_one_append(self):
        peer = lead()
        for i in range(20):
            peer.node.propose([make_batch(i, 1)], peer.now, WALL)
            peer.take()
        progress = peer.node.progress[rid(2)]
        assert len(progress.in_flight) == OPTIONS.appends_in_flight_max
        while peer.persist(peer.now):
            pass
        peer.node.receive([matched(1, 5)], peer.now)
        sent = [m for m in of_kind(peer.take().send, Append) if m.to == rid(2) and m.entries]
        assert [len(m.entries) for m in sent] == [16]


class Test31BackPressure:
    """redpanda #1503; etcd PR 22051: a batch larger than the window waited without end."""

    def test_a_batch_above_every_window_is_sent_when_nothing_is_in_flight(self):
        small = attrs.evolve(OPTIONS, append_bytes_max=10, inflight_bytes_max=10)
        c = Cluster(3, options=small)
        c.elect(1)
        c.write(1, b"x" * 5000, b"y" * 5000)
        assert c[3].payloads == [b"x" * 5000, b"y" * 5000]


class Test32MinorityRotWins:
    """Jepsen on NATS 2.12.1; protocol-aware recovery, FAST'18."""

    MARK = LogPosition(3, 2, 0xBAD)

    def damaged(self, mark=MARK) -> Peer:
        peer = Peer(
            rid(1),
            log_of_terms(1),
            hard_state=HardState(2, None),
            options=OPTIONS,
            damaged=mark,
        )
        peer.now = peer.node._state.now
        return peer

    def test_a_damaged_replica_never_campaigns(self):
        peer = self.damaged()
        assert not wait(peer, 9 * ELECTION)
        say(peer, append(2, (0, 0)), TimeoutNow(GROUP, rid(2), rid(1), 2))
        assert peer.role is Role.FOLLOWER

    @pytest.mark.parametrize(
        ("last", "granted"), [((1, 1), False), ((2, 2), False), ((3, 2), True), ((1, 3), True)]
    )
    def test_it_votes_by_its_mark(self, last, granted):
        (reply,) = say(self.damaged(), vote_request(3, last))
        assert reply.granted is granted

    def test_it_acknowledges_its_valid_prefix_and_says_that_it_is_damaged(self):
        peer = self.damaged()
        first = peer.log.all_entries[0]
        (reply,) = of_kind(say(peer, append(3, (0, 0), (first,))), AppendReply)
        assert (reply.match, reply.damaged) == (1, True)

    def test_it_is_whole_again_when_it_holds_what_its_mark_says_durably(self):
        peer = self.damaged()
        seam = append(3, (1, 1), (entry(2, 2, 1),))
        (reply,) = of_kind(say(peer, seam), AppendReply)
        assert reply.damaged
        (reply,) = of_kind(say(peer, append(3, (2, 2), (entry(3, 3, 2),))), AppendReply)
        assert (reply.match, reply.damaged) == (3, False)
        assert not peer.node.damaged

    def test_an_entry_that_comes_back_with_another_chain_stops_it(self):
        peer = self.damaged()
        say(peer, append(3, (1, 1), (entry(2, 2, 1), entry(3, 2, 2))))
        assert peer.role is Role.STOPPED
        assert "chain" in peer.node.stopped_why

    def test_a_mark_without_its_chain_is_compared_with_nothing(self):
        """Seed 30 of the simulator: a replica came up damaged, its mark remembered by index and
        term alone (what a header or a half-done repair vouches for has no chain). The leader sent
        the missing entries up to exactly the mark, the absent chain was compared as if it were one,
        and the replica stopped for good with a whole log."""
        peer = self.damaged(LogPosition(3, 2, NO_CHAIN))
        say(peer, append(3, (1, 1), (entry(2, 2, 1), entry(3, 2, 2))))
        assert peer.role is Role.FOLLOWER
        assert not peer.node.damaged

    def test_a_damaged_learner_is_not_promoted(self):
        peer = lead(membership=voters(1, 2, 3, learners=[4]))
        peer.node.change_membership(voters(1, 2, 3, 4), peer.now, WALL)
        listen(peer)
        say(peer, AppendReply(GROUP, rid(4), rid(1), 1, 1, True))
        assert peer.node.membership.learners == (rid(4),)
        say(peer, AppendReply(GROUP, rid(4), rid(1), 1, 1, False))
        assert rid(4) in peer.node.membership.voters
