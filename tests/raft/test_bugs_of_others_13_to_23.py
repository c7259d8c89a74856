"""Bugs that others had, each under its number and name in docs/internals/named_scenarios.md.

Where a docstring says who had it, the public issue is theirs; the scenario is ours.
"""

import attrs
import pytest

from raftlog.base import probes
from raftlog.base.entries import HardState, LogPosition
from raftlog.base.ids import IoId
from raftlog.raft.messages import (
    Append,
    AppendReply,
    PreVoteReply,
    ReadEcho,
    TimeoutNow,
    VoteReply,
)
from raftlog.raft.node import Role
from tests.paper.speaking import (
    append,
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
    entry,
    log_of_terms,
    make_batch,
    rid,
    voters,
)
from tests.raft.steps import step


class Test13PreVoteReplyTakenForVote:
    """canonical/raft #196; crabka PR 364."""

    def test_a_late_pre_vote_reply_elects_nobody(self):
        peer = replica(options=OPTIONS, membership=voters(1, 2, 3, 4, 5))
        time_out(peer)
        say(peer, pre_vote(1, 2), pre_vote(1, 3))
        assert peer.role is Role.CANDIDATE
        say(peer, pre_vote(1, 4), pre_vote(1, 5), PreVoteReply(GROUP, rid(4), rid(1), 2, True))
        assert peer.role is Role.CANDIDATE

    def test_a_vote_reply_grants_no_pre_vote(self):
        peer = replica(options=OPTIONS)
        time_out(peer)
        say(peer, vote(0), vote(0, 3))
        assert peer.role is Role.PRE_CANDIDATE


class Test14PreVoteDeadlock:
    """canonical/raft #279; hashicorp PR 605, #606; Kafka PR 17807."""

    def test_a_candidate_of_a_lower_term_learns_the_higher_one_and_goes_on(self):
        peer = replica(1, term=1, options=OPTIONS)
        time_out(peer)
        say(peer, PreVoteReply(GROUP, rid(2), rid(1), 7, False))
        assert (peer.role, peer.node.term) == (Role.FOLLOWER, 7)
        asked = time_out(peer)
        assert {m.term for m in asked} == {8}

    def test_a_replica_whose_term_is_above_the_leaders_comes_back(self):
        """Its refusals make the leader follow; one election later all are in one term."""
        c = Cluster(3)
        c.elect(1)
        c.isolate(3)
        c[3].stored = HardState(9, rid(3))
        c.crash(3)
        c.heal()
        c.advance(6 * ELECTION)
        leader = c.leader()
        assert leader is not None
        assert c.node(leader).term >= 9
        c.write(leader, b"a")
        assert all(p.payloads == [b"a"] for p in c.peers.values())

    def test_only_the_longest_log_can_win_and_does(self):
        c = Cluster(3)
        c.elect(1)
        c.isolate(3)
        c.write(1, b"a")
        c.isolate(1)
        c.heal()
        c.isolate(1)
        c.advance(8 * ELECTION)
        assert c.leader() == 2


class Test15TransferBlockedByPreVote:
    """dragonboat #223; canonical/raft PR 205."""

    def test_a_transfer_succeeds_though_everybody_hears_the_leader(self):
        c = Cluster(3)
        c.elect(1)
        c.node(1).transfer(rid(3), c.now)
        c.settle()
        assert c.leader() == 3
        assert c.node(3).term == 2


class Test16TransferRaces:
    """hashicorp #696; redpanda PR 24404, #2606; consul #7031; openraft PR 1749."""

    def test_a_failed_transfer_leaves_no_flag_behind(self):
        peer = lead()
        peer.node.transfer(rid(3), peer.now)
        for _ in range(20):
            wait(peer, BEAT)
            say(peer, matched(1, 1))
        assert peer.node.transferring is None
        assert peer.transfers == [(rid(3), False)]
        assert peer.node.ready

    def test_a_transfer_to_another_ends_the_one_before_with_its_result(self):
        peer = lead()
        peer.node.transfer(rid(3), peer.now)
        peer.node.transfer(rid(2), peer.now)
        listen(peer)
        assert peer.transfers == [(rid(3), False)]
        assert peer.node.transferring == rid(2)

    def test_losing_the_leadership_ends_the_transfer_with_its_result(self):
        peer = lead()
        peer.node.transfer(rid(3), peer.now)
        say(peer, append(5, sender=2))
        assert peer.transfers == [(rid(3), False)]
        assert peer.node.transferring is None

    def test_a_target_that_is_behind_is_not_told_yet(self):
        peer = lead()
        peer.node.propose([make_batch(0, 1)], peer.now, WALL)
        peer.node.transfer(rid(2), peer.now)
        assert not of_kind(listen(peer), TimeoutNow)
        assert of_kind(say(peer, matched(1, 2)), TimeoutNow)

    def test_a_removed_target_ends_the_transfer(self):
        peer = lead(membership=voters(1, 2, 3, 4), ready=False)
        say(peer, matched(1, 1), matched(1, 1, sender=3))
        peer.node.change_membership(voters(1, 2, 3), peer.now, WALL)
        peer.node.transfer(rid(3), peer.now)
        peer.node._state.progress.pop(rid(3))
        wait(peer, BEAT)
        assert peer.transfers == [(rid(3), False)]

    def test_reads_during_a_transfer_still_need_a_quorum(self):
        peer = lead()
        peer.node.transfer(rid(3), peer.now)
        peer.node.read_index(1, peer.now)
        listen(peer)
        assert not peer.reads

    def test_timeout_now_of_an_old_term_is_ignored(self):
        peer = replica(term=3)
        say(peer, append(3), TimeoutNow(GROUP, rid(2), rid(1), 2))
        assert peer.role is Role.FOLLOWER


class Test17StaleReadIndex:
    """etcd #7331, #20418; raft PR 397; restate PR 2950."""

    def test_an_echo_that_was_sent_before_the_read_confirms_nothing(self):
        peer = lead()
        peer.node.read_index(1, peer.now)
        old = max(m.read_context for m in of_kind(listen(peer), Append))
        say(peer, ReadEcho(GROUP, rid(2), rid(1), 1, old))
        peer.node.read_index(2, peer.now)
        listen(peer)
        say(peer, ReadEcho(GROUP, rid(2), rid(1), 1, old), ReadEcho(GROUP, rid(3), rid(1), 1, old))
        assert peer.reads == {1: 1}

    def test_a_lost_round_is_repeated_under_its_own_number(self):
        peer = lead()
        peer.node.read_index(1, peer.now)
        first = max(m.read_context for m in of_kind(listen(peer), Append))
        say(peer, matched(1, 1), matched(1, 1, sender=3))
        probes.reset()
        again = of_kind(wait(peer, BEAT), Append)
        assert {m.read_context for m in again} == {first}
        assert probes.fired()["read-round-sent-again"] == 1

    def test_a_turn_without_new_reads_sends_no_round(self):
        peer = lead()
        peer.node.read_index(1, peer.now)
        assert of_kind(listen(peer), Append)
        for _ in range(3):
            assert not of_kind(listen(peer), Append)
        assert not peer.reads

    def test_a_paused_leader_that_was_deposed_serves_nothing(self):
        c = Cluster(3)
        c.elect(1)
        c.write(1, b"a")
        c.isolate(1)
        c.advance(8 * ELECTION)
        leader = c.leader()
        assert leader != 1
        c.node(1).read_index(1, c.now)
        c.settle()
        assert c[1].reads.get(1) is None

    def test_an_echo_of_an_earlier_leadership_does_not_count(self):
        peer = lead()
        peer.node.read_index(1, peer.now)
        listen(peer)
        peer.node.step_down(peer.now, "test")
        listen(peer)
        time_out(peer)
        say(peer, vote(2))
        say(peer, matched(2, 2))
        peer.node.read_index(2, peer.now)
        listen(peer)
        say(peer, ReadEcho(GROUP, rid(2), rid(1), 1, 1), ReadEcho(GROUP, rid(3), rid(1), 1, 1))
        assert peer.reads == {1: None}

    def test_too_many_reads_are_refused_at_once(self):
        peer = lead(options=attrs.evolve(OPTIONS, pre_vote=False, reads_pending_max=2))
        for token in range(3):
            peer.node.read_index(token, peer.now)
        peer.take()
        assert peer.reads == {2: None}


class Test19StorageAckAba:
    """etcd #1690; raft PR 8; cockroach #124440: the write of an earlier term is reported after
    other entries took its places."""

    def test_a_completion_stabilises_only_what_is_still_there(self):
        peer = replica(1, term=1)
        peer.node.receive([append(1, (1, 1), (entry(2, 1, 1), entry(3, 1, 2)))], peer.now)
        peer.take()
        newer = append(2, (1, 1), (entry(2, 2, 1), entry(3, 2, 2)), sender=3)
        peer.node.receive([newer], peer.now)
        peer.take()
        assert peer.node.durable == 1
        peer.persist(peer.now)
        assert peer.node.durable == 1
        assert not of_kind(peer.take().send, AppendReply)
        peer.persist(peer.now)
        assert peer.node.durable == 3
        (reply,) = of_kind(peer.take().send, AppendReply)
        assert (reply.term, reply.match) == (2, 3)

    def test_completions_out_of_order_wait_for_the_earlier_round(self):
        peer = replica(term=1)
        for i in range(2):
            peer.node.receive([append(1, (i, i), (entry(i + 1, 1, i),))], peer.now)
            peer.take()
        (first, _, _), (second, _, _) = peer.open
        peer.node.persisted(second, peer.now)
        assert peer.node.durable == 0
        peer.node.persisted(first, peer.now)
        assert peer.node.durable == 2

    def test_unknown_and_repeated_completions_change_nothing(self):
        peer = replica(term=1)
        say(peer, append(1, (0, 0), (entry(1, 1, 0),)))
        for io_id in (1, 2, 999):
            peer.node.persisted(IoId(io_id), peer.now)
        assert peer.node.durable == 1
        assert not peer.take().send


class Test20AckBeforeOwnSync:
    """etcd #14370, PR 14407: a single node answered before its own sync; #14143."""

    def test_one_voter(self):
        peer = replica(membership=voters(1))
        time_out(peer)
        peer.node.propose([make_batch(0, 1)], peer.now, WALL)
        peer.take()
        assert peer.node.commit == 1
        peer.persist(peer.now)
        assert peer.node.commit == 2

    def test_written_is_not_persisted(self):
        peer = replica(membership=voters(1))
        time_out(peer)
        peer.node.propose([make_batch(0, 1)], peer.now, WALL)
        peer.take()
        peer.node.written(peer.open[0][0])
        assert (peer.node.commit, peer.node.durable) == (1, 1)


def reopen_with_less(c):
    """Replica 3 is opened again as a damaged one: of four entries it holds two."""
    lost = c[3].log.crashed()
    lost.truncate_from(3)
    lost._disk = lost._image()
    mark = LogPosition(4, 1, c[1].log.chain_at(4))
    c.peers[3] = Peer(
        rid(3), lost, hard_state=c[3].stored, options=OPTIONS, damaged=mark, now=c.now
    )


class Test21CommitBeyondLostTail:
    """etcd #16220, #21178, #20269 ('tocommit out of range'); raft PR 25, 104."""

    def test_a_follower_that_lost_acknowledged_entries_is_probed_again(self):
        """Its disk lied, or it is damaged and says so: its match falls, it is fed from there."""
        c = Cluster(3)
        c.elect(1)
        c.write(1, b"a", b"b", b"c")
        reopen_with_less(c)
        c.node(1).link_down(3, c.now)
        c.node(1).link_up(3, c.now)
        c.frozen_disks.add(3)
        c.settle()
        assert c.node(1).progress[rid(3)].match == 2
        c.frozen_disks.clear()
        c.settle()
        assert c[3].payloads == [b"a", b"b", b"c"]
        assert not c.node(3).damaged

    def test_a_link_that_fell_is_no_word_of_the_follower(self):
        """Its leader would count it as heard, and lead on without a quorum."""
        c = Cluster(3)
        c.elect(1)
        c.write(1, b"a")
        heard = c.node(1).progress[rid(3)].last_contact
        c.now += BEAT
        c.node(1).link_down(3, c.now)
        assert c.node(1).progress[rid(3)].last_contact == heard

    @pytest.mark.parametrize("covered", [False, True])
    def test_one_that_was_opened_anew_within_the_session_is_probed_again(self, covered):
        """Seed 421921: a sector of the metadata log could not be read. The replica was closed, was
        opened as damaged, and refused every heartbeat at the end that it had acknowledged; its
        leader, with nothing to send, took that for an old word, again and again."""
        c = Cluster(3)
        c.elect(1)
        c.write(1, b"a", b"b", b"c")
        if covered:
            assert c.node(1).cover(rid(3), c.now)
        reopen_with_less(c)
        if covered:  # its node says that it follows no more
            c.node(1).uncover(rid(3), c.now, c.now)
        c.advance(3 * BEAT)
        assert c[3].payloads == [b"a", b"b", b"c"]
        assert not c.node(3).damaged

    def test_a_commit_above_the_log_commits_only_what_is_there(self):
        peer = replica(1, term=1)
        say(peer, append(1, (1, 1), commit=99))
        assert peer.node.commit == 1

    def test_a_hint_above_the_log_is_refused_at_boot_unless_damaged(self):
        with pytest.raises(AssertionError):
            replica(1, term=1, commit=5)


class Test22SameEpochRelead:
    """KAFKA-10527, PR 9348: a voter came back as leader of its own epoch and used its offsets
    again."""

    def test_a_leader_that_restarts_follows_and_leads_only_in_a_newer_term(self):
        c = Cluster(3)
        c.elect(1)
        c.propose(1, b"unsynced")
        c.flush(1)
        peer = c.crash(1)
        assert (peer.role, peer.node.leader, peer.node.term) == (Role.FOLLOWER, None, 1)
        c.advance(6 * ELECTION)
        assert c.node(c.leader()).term > 1

    def test_no_vote_in_a_term_that_only_the_log_knew(self):
        log = log_of_terms(1, 4)
        peer = Peer(rid(1), log, hard_state=HardState(2, rid(3)), options=OPTIONS)
        peer.now = c_now = peer.node._state.now
        assert peer.node.term == 4
        (reply,) = say(peer, vote_request(4, (9, 4)))
        assert (reply.term, reply.granted) == (4, False)
        assert peer.stored == (4, rid(1))
        assert of_kind(say(peer, vote_request(5, (9, 4))), VoteReply)[0].granted
        assert peer.now == c_now


class Test23TruncateByWatermark:
    """KIP-101, KIP-279 (KAFKA-6361), KAFKA-10706: divergence after fast failovers. The cut
    follows from terms, never from a watermark."""

    def test_a_committed_entry_survives_a_fast_failover(self):
        """The follower knows less of the commit than its leader did, and leads next."""
        c = Cluster(3, options=attrs.evolve(OPTIONS, eager_commit=False))
        c.elect(1)
        c.propose(1, b"acked")
        for _ in range(3):
            step(c)
        assert c.node(1).commit == 2
        assert c.node(2).commit < 2
        c.isolate(1)
        c.elect(2)
        c.heal()
        c.advance(2 * ELECTION)
        assert all(p.payloads == [b"acked"] for p in c.peers.values())

    def test_divergence_over_three_terms_is_cut_where_the_terms_part(self):
        c = Cluster(
            3,
            logs={1: log_of_terms(1, 1, 4, 4, 4), 2: log_of_terms(1, 1, 2, 2, 3, 3, 3, 3)},
        )
        c.elect(1)
        c.settle()
        assert c[2].terms == [1, 1, 4, 4, 4, 5]
        assert c[2].log.truncations == [3]
