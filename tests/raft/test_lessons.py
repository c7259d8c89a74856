"""Bugs that others had (LESSONS.md part 4), each as a scripted scenario under its name there.

Where a docstring says who had it, the public issue is theirs; the scenario is ours.
"""

import attrs
import pytest

from raftlog.base.entries import HardState, LogPosition, Membership
from raftlog.base.errors import LocalMisuse
from raftlog.base.ids import IoId
from raftlog.raft.messages import (
    Append,
    AppendRefused,
    AppendReply,
    Install,
    PreVoteReply,
    ReadEcho,
    RefusalReason,
    TimeoutNow,
    VoteReply,
    VoteRequest,
)
from raftlog.raft.node import Role
from raftlog.raft.progress import ProgressState
from tests.paper.speaking import (
    THREE,
    append,
    control,
    lead,
    listen,
    matched,
    of_kind,
    pre_vote,
    refused,
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


class Test01AppendErasesAckedTail:
    """openraft 9540c904; redpanda #17731; NATS PR 7424; PySyncObj (S1): a late or repeated append
    deleted everything after its seam, acknowledged entries among it."""

    def test_a_second_copy_of_the_backlog_cuts_nothing(self):
        peer = replica(term=1)
        backlog = [append(1, (i, 1 if i else 0), (entry(i + 1, 1, i),)) for i in range(5)]
        say(peer, *backlog)
        assert peer.node.durable == 5
        said = say(peer, backlog[1])
        assert peer.terms == [1] * 5
        assert of_kind(said, AppendReply)[-1].match == 5

    def test_a_reordered_shorter_append_cuts_nothing(self):
        peer = replica(term=1)
        whole = tuple(entry(i + 1, 1, i) for i in range(4))
        say(peer, append(1, (0, 0), whole), append(1, (0, 0), whole[:2]))
        assert peer.terms == [1] * 4


class Test02CommitPastVerified:
    """atomix/copycat #265; scylladb #9965; RATIS-2605; PySyncObj (S2): commit taken as
    min(leader commit, own last) over a tail that is another leader's."""

    def test_a_heartbeat_does_not_commit_an_unverified_tail(self):
        peer = replica(1, 2, 2, term=3)
        say(peer, append(3, (1, 1), commit=3))
        assert peer.node.commit == 1

    def test_a_refused_append_commits_nothing(self):
        peer = replica(1, 2, 2, term=3)
        say(peer, append(3, (3, 3), commit=3))
        assert peer.node.commit == 0

    def test_a_piece_of_an_install_commits_nothing(self):
        c = Cluster(3)
        c.elect(1)
        c.write(1, b"a")
        position = attrs.evolve(c[1].log.position_before_first(), raft_index=9, term=1)
        message = install(c, position, total=10, chunk=b"xy")
        c.node(2).receive([message], c.now)
        assert c.node(2).commit == 2

    def test_verification_belongs_to_one_term(self):
        peer = replica(1, 1, 1, term=1)
        say(peer, append(1, (3, 1), commit=1))
        say(peer, append(2, (1, 1), commit=3, sender=3))
        assert peer.node.commit == 1


def install(c: Cluster, position, total: int, chunk: bytes, start: int = 0, to: int = 2):
    return Install(GROUP, rid(1), rid(to), c.node(1).term, position, total, start, chunk)


class Test03OldTermCommitByCount:
    """Raft, figure 8. logcabin #44; PySyncObj #169."""

    def test_a_majority_for_an_old_entry_commits_nothing(self):
        peer = lead(1, 2, term=2, ready=False)
        say(peer, matched(3, 2), matched(3, 2, sender=3))
        assert peer.node.commit == 0


class Test04SingleChangeDisjointQuorums:
    """Ongaro on raft-dev, 2015."""

    @pytest.mark.parametrize(
        "target", [voters(1, 2), voters(1, 2, 3, learners=[4]), voters(1, 2, 4)], ids=str
    )
    def test_no_change_before_an_own_term_commit(self, target):
        peer = lead(1, term=1, ready=False)
        peer.node.change_membership(target, peer.now, WALL)
        listen(peer)
        assert peer.node.membership == THREE

    def test_no_second_change_while_one_is_uncommitted(self):
        peer = lead()
        peer.node.change_membership(voters(1, 2), peer.now, WALL)
        index = peer.node.membership_index
        peer.node.change_membership(voters(1, 3), peer.now, WALL)
        assert (peer.node.membership_index, peer.node.membership) == (index, voters(1, 2))


class Test05RestartForgetsUncommittedConfig:
    """camunda #57389; PySyncObj (S9)."""

    def test_an_appended_membership_is_in_force_after_a_restart(self):
        c = Cluster(3)
        c.elect(1)
        c.isolate(1)
        c.node(1).change_membership(voters(1, 2, 3, learners=[4]), c.now, WALL)
        c.settle()
        peer = c.crash(1)
        assert peer.node.membership == voters(1, 2, 3, learners=[4])
        assert peer.node.commit < peer.node.membership_index


class Test06And07Install:
    """openraft #1808, PR 753; scylladb #9551, #9965."""

    @staticmethod
    def lagging() -> Cluster:
        """3 has a tail and a membership of its own, and is below what 1 still holds."""
        c = Cluster(3)
        c.elect(3)
        c.isolate(3)
        c.node(3).change_membership(voters(1, 2, 3, learners=[5]), c.now, WALL)
        c.propose(3, b"lost", b"lost too")
        c.settle()
        c.elect(1)
        c.write(1, *[b"%d" % i for i in range(9)])
        c[1].log.drop_before(8)
        c[1].log._disk = c[1].log._image()
        return c

    def test_install_keeps_no_stale_membership(self):
        c = self.lagging()
        assert c.node(3).membership.learners
        c.heal()
        c.advance(ELECTION)
        assert c[3].installed == [7]
        assert c.node(3).membership == voters(1, 2, 3)
        assert c.node(3).membership_index == 0

    def test_install_keeps_no_conflicting_suffix(self):
        c = self.lagging()
        c.heal()
        c.advance(ELECTION)
        assert c[3].payloads == c[1].payloads
        assert c[3].log.chain_at(c[3].log.last_index) == c[1].log.chain_at(c[1].log.last_index)
        assert c.node(3).commit == c.node(1).commit

    @staticmethod
    def installing(c: Cluster) -> None:
        """3 has the term on disk and the snapshot in memory; its disk syncs no more."""
        c.heal()
        c.drop = lambda message: isinstance(message, Install)
        c.advance(2 * BEAT)
        assert c[3].stored.term == c.node(1).term
        c.frozen_disks.add(3)
        c.heal()
        c.advance(2 * ELECTION)
        assert c[3].installed == [7]

    def test_an_acknowledgement_waits_until_the_install_is_durable(self):
        c = self.lagging()
        self.installing(c)
        assert c.node(1).progress[rid(3)].match <= 1
        c.frozen_disks.clear()
        c.advance(2 * BEAT)
        assert c.node(1).progress[rid(3)].match == c[1].log.last_index

    def test_a_crash_before_the_install_is_synced_boots_the_old_state(self):
        c = self.lagging()
        self.installing(c)
        peer = c.crash(3)
        assert peer.log.first_index == 1
        assert peer.node.membership.learners == (rid(5),)
        c.frozen_disks.clear()
        c.advance(2 * ELECTION)
        assert c[3].payloads == c[1].payloads

    def test_a_late_install_changes_nothing(self):
        """review-14: it comes again after the follower went on by appends."""
        c = self.lagging()
        c.heal()
        c.advance(ELECTION)
        last = c[3].log.last_index
        late = install(c, c[1].log.position_before_first(), 3, b"abc", to=3)
        c.node(3).receive([late, late], c.now)
        c.settle()
        assert (c[3].log.last_index, len(c[3].installed)) == (last, 1)


class Test08JointNeverLeft:
    """etcd #12136, PR 14545; openraft t99."""

    def test_a_new_leader_proposes_the_end_of_a_joint_configuration(self):
        c = Cluster(5, membership=voters(1, 2, 3))
        c.elect(1)
        c.node(1).change_membership(voters(3, 4, 5), c.now, WALL)
        for _ in range(60):
            if all(c.node(n).membership.joint for n in (2, 3)):
                break
            step(c)
        assert c.node(2).membership.joint
        c.isolate(1)
        c.advance(6 * ELECTION)
        leader = c.leader()
        assert leader in (3, 4, 5)
        assert c.node(leader).membership == voters(3, 4, 5)


def step(c: Cluster) -> None:
    """One exchange: everybody takes and syncs, then all that is on the wire arrives."""
    for number, peer in c.peers.items():
        c.flush(number)
        while peer.persist(c.now):
            c.flush(number)
    c.deliver()


class Test09CandidateLacksCommittedConfig:
    """etcd #12359, #7625: liveness when those who hold the newest configuration may not
    campaign."""

    def test_the_new_configuration_is_only_on_replicas_that_it_removes(self):
        """Found by our own walks: C-new = {3} is on 1 and 2 only; 3 needs their votes with an older
        log, and they are no voters of C-new. One of them must campaign (thesis 4.2.2)."""
        joint = Membership(voters(3).voters, outgoing=voters(1, 2).voters)
        logs = {n: log_of_terms(1, membership=voters(1, 2)) for n in (1, 2, 3)}
        for n, log in logs.items():
            log.append([control(2, 1, 1, joint)])
            if n != 3:
                log.append([control(3, 1, 1, voters(3, learners=[1, 2]))])
            log.take(IoId(0))
            log.persisted(IoId(0))
        c = Cluster(3, logs=logs, hints=dict.fromkeys((1, 2, 3), 1))
        c.advance(12 * ELECTION)
        assert c.leader() == 3
        assert c.node(3).membership == voters(3, learners=[1, 2])
        assert c.node(3).ready


class Test10RemovedLeader:
    """etcd #11038, raft PR 79; raft-rs PR 584; cockroach PR 105578."""

    def test_it_leads_until_the_final_configuration_commits_and_not_longer(self):
        c = Cluster(4, membership=voters(1, 2, 3))
        c.elect(1)
        c.node(1).change_membership(voters(2, 3, 4), c.now, WALL)
        seen = []
        for _ in range(40):
            step(c)
            node = c.node(1)
            if c[1].role is Role.LEADER:
                seen.append((node.membership.joint, node.membership.is_voter(rid(1))))
        assert (True, True) in seen
        assert (False, False) in seen
        assert c[1].role is Role.FOLLOWER
        c.advance(4 * ELECTION)
        assert c.leader() in (2, 3, 4)
        assert c.node(c.leader()).membership == voters(2, 3, 4)

    def test_its_own_disk_does_not_count_for_the_configuration_without_it(self):
        peer = lead()
        peer.node.change_membership(voters(2, 3), peer.now, WALL)
        listen(peer)
        say(peer, matched(1, 2))
        assert peer.node.commit == 1


class Test11LearnerAskedToVote:
    """raft-rs #57; etcd campaign_learner_must_vote; redpanda PR 8495."""

    def test_a_learner_never_campaigns_but_votes(self):
        peer = replica(membership=voters(2, 3, learners=[1]))
        assert not of_kind(time_out(peer), VoteRequest)
        assert of_kind(say(peer, vote_request(1)), VoteReply)[0].granted

    def test_a_learner_ignores_timeout_now(self):
        peer = replica(membership=voters(2, 3, learners=[1]))
        say(peer, append(1), TimeoutNow(GROUP, rid(2), rid(1), 1))
        assert peer.role is Role.FOLLOWER

    def test_votes_and_matches_of_learners_count_nothing(self):
        peer = replica(membership=voters(1, 2, 3, learners=[4, 5]))
        time_out(peer)
        say(peer, vote(1, 4), vote(1, 5))
        assert peer.role is Role.CANDIDATE
        say(peer, vote(1, 2))
        say(peer, matched(1, 1, sender=4), matched(1, 1, sender=5))
        assert peer.node.commit == 0

    def test_read_echoes_of_learners_count_nothing(self):
        peer = lead(membership=voters(1, 2, 3, learners=[4, 5]))
        peer.node.read_index(1, peer.now)
        context = max(m.read_context for m in of_kind(listen(peer), Append))
        say(peer, *(ReadEcho(GROUP, rid(n), rid(1), 1, context) for n in (4, 5, 9)))
        assert not peer.reads


class Test12HalfSavedVote:
    """hashicorp #661; PySyncObj #84, PR 202; tikv #8381: term and vote saved apart."""

    def test_term_and_vote_are_one_value(self):
        peer = replica(term=1, vote=3)
        peer.node.receive([vote_request(2)], peer.now)
        assert peer.take().hard_state == HardState(2, rid(2))

    def test_a_crash_between_take_and_sync_promises_nothing(self):
        c = Cluster(3)
        c.settle()
        c.frozen_disks.add(2)
        c.campaign(1)
        c.settle()
        assert c.node(2).vote == rid(1)
        assert not [m for m in c.sent if isinstance(m, VoteReply) and m.sender == rid(2)]
        assert c.crash(2).node.vote is None


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
        """Its refusals make the leader follow; one election later everybody is in one term."""
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
        again = of_kind(wait(peer, BEAT), Append)
        assert {m.read_context for m in again} == {first}

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


class Test21CommitBeyondLostTail:
    """etcd #16220, #21178, #20269 ('tocommit out of range'); raft PR 25, 104."""

    def test_a_follower_that_lost_acknowledged_entries_is_probed_again(self):
        """Its disk lied, or it is damaged and says so: its match falls, it is fed from there."""
        c = Cluster(3)
        c.elect(1)
        c.write(1, b"a", b"b", b"c")
        lost = c[3].log.crashed()
        lost.truncate_from(3)
        lost._disk = lost._image()
        mark = LogPosition(4, 1, c[1].log.chain_at(4))
        c.peers[3] = Peer(
            rid(3), lost, hard_state=c[3].stored, options=OPTIONS, damaged=mark, now=c.now
        )
        c.node(1).link_down(3, c.now)
        c.node(1).link_up(3, c.now)
        c.frozen_disks.add(3)
        c.settle()
        assert c.node(1).progress[rid(3)].match == 2
        c.frozen_disks.clear()
        c.settle()
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

    def test_the_leaders_node_dies(self):
        c = self.covered()
        c.isolate(1)
        for number in (2, 3):
            c.node(number).link_down(1, c.now)
        c.advance(3 * BEAT)
        assert c.leader() in (2, 3)

    def test_the_cover_ends_without_a_word_and_the_timer_runs_again(self):
        c = self.covered()
        c.isolate(1)
        for number in (2, 3):
            c.node(number).uncover(rid(1), c.now, c.now)
        c.advance(4 * ELECTION)
        assert c.leader() in (2, 3)

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
    """redpanda #1503; etcd PR 22051: a batch larger than the window waited for ever."""

    def test_a_batch_above_every_window_is_sent_when_nothing_is_in_flight(self):
        small = attrs.evolve(OPTIONS, append_bytes_max=10, inflight_bytes_max=10)
        c = Cluster(3, options=small)
        c.elect(1)
        c.write(1, b"x" * 5000, b"y" * 5000)
        assert c[3].payloads == [b"x" * 5000, b"y" * 5000]


class Test32MinorityRotWins:
    """Jepsen on NATS 2.12.1; protocol-aware recovery, FAST'18."""

    MARK = LogPosition(3, 2, 0)

    def damaged(self, **options) -> Peer:
        peer = Peer(
            rid(1),
            log_of_terms(1),
            hard_state=HardState(2, None),
            options=OPTIONS,
            damaged=self.MARK,
            **options,
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

    def test_a_damaged_learner_is_not_promoted(self):
        peer = lead(membership=voters(1, 2, 3, learners=[4]))
        peer.node.change_membership(voters(1, 2, 3, 4), peer.now, WALL)
        listen(peer)
        say(peer, AppendReply(GROUP, rid(4), rid(1), 1, 1, True))
        assert peer.node.membership.learners == (rid(4),)
        say(peer, AppendReply(GROUP, rid(4), rid(1), 1, 1, False))
        assert rid(4) in peer.node.membership.voters


class TestIdentity:
    """DESIGN 4; review-7: a wiped broker comes back as another replica."""

    def test_a_vote_of_an_id_that_is_no_voter_does_not_count(self):
        peer = replica()
        time_out(peer)
        stranger = VoteReply(GROUP, rid(2, epoch=5), rid(1), 1, True)
        say(peer, stranger)
        assert peer.role is Role.CANDIDATE

    def test_an_ack_for_the_old_id_does_not_count_for_the_new_one(self):
        peer = lead()
        say(peer, AppendReply(GROUP, rid(3, epoch=5), rid(1), 1, 1, False))
        assert peer.node.progress[rid(3)].match == 0

    def test_replacing_a_voters_id_after_its_disk_was_wiped(self):
        c = Cluster(3)
        c.elect(1)
        c.write(1, b"a", b"b")
        new = rid(3, epoch=7)
        c.peers[3] = Peer(new, log_of_terms(membership=voters(1, 2, 3)), options=OPTIONS, now=c.now)
        target = Membership(tuple(sorted((rid(1), rid(2), new))))
        c.node(1).change_membership(target, c.now, WALL)
        c.settle()
        c.advance(2 * BEAT)
        assert c.node(1).membership == target
        assert c[3].payloads == [b"a", b"b"]
        assert c.node(3).membership == target
        c.isolate(2)
        c.write(1, b"c")
        assert c.node(3).commit == c[1].log.last_index

    def test_a_replaced_voter_goes_through_a_joint_configuration(self):
        peer = lead(membership=voters(1, 2, 3, learners=[4]))
        say(peer, matched(1, 1, sender=4))
        peer.node.change_membership(voters(1, 2, 4), peer.now, WALL)
        assert peer.node.membership == Membership(
            voters(1, 2, 4).voters, outgoing=voters(1, 2, 3).voters
        )


class TestContent:
    """DESIGN 5: equal index and term with unequal chain stops the replica; nothing is repaired by
    guessing."""

    def test_another_chain_at_the_seam(self):
        peer = replica(1, term=1)
        said = say(peer, append(1, (1, 1), chain=12345))
        assert peer.role is Role.STOPPED
        assert [m.reason for m in of_kind(said, AppendRefused)] == [RefusalReason.CONTENT]

    def test_another_entry_in_a_known_place(self):
        peer = replica(1, 1, term=1)
        other = entry(2, 1, 1, b"other")
        first = peer.log.all_entries[0]
        chain = peer.log.chain_at(0)
        say(peer, append(1, (0, 0), (first, other), chain=chain))
        assert peer.role is Role.STOPPED

    @pytest.mark.parametrize(
        "bad",
        [
            entry(2, 1, 5),
            entry(3, 1, 1),
            entry(2, 9, 1),
            control(7, 1, 1, THREE)._replace(raft_index=2),
            control(2, 1, 1, voters()),
        ],
        ids=["offset", "index", "term", "place", "no voters"],
    )
    def test_entries_that_do_not_continue_the_log_are_refused(self, bad):
        peer = replica(1, term=1)
        (said,) = of_kind(say(peer, append(1, (1, 1), (bad,))), AppendRefused)
        assert said.reason is RefusalReason.CONTENT
        assert (peer.role, peer.terms) == (Role.FOLLOWER, [1])

    def test_the_leader_has_the_range_verified_and_does_not_send_in_a_circle(self):
        """review-17: a leader with a rotten batch and a follower that refuses it."""
        peer = lead()
        peer.node.propose([make_batch(0, 1)], peer.now, WALL)
        listen(peer)
        said = say(peer, refused(1, 1, (1, 1), reason=RefusalReason.CONTENT))
        assert peer.verify == [(2, 2)]
        assert not [m for m in of_kind(said, Append) if m.entries and m.to == rid(2)]
        peer.node.step_down(peer.now, "bad range")
        assert peer.role is Role.FOLLOWER

    @pytest.mark.parametrize("prev", [(1, 2), (0, 0)])
    def test_a_committed_entry_is_never_cut(self, prev):
        peer = replica(1, 1, term=2, commit=2)
        say(peer, append(2, prev, (entry(prev[0] + 1, 2, prev[0]),)))
        assert peer.role is Role.STOPPED
        assert peer.terms == [1, 1]

    def test_a_term_above_the_highest_is_refused(self):
        peer = replica(term=1)
        assert not say(peer, append(2**31))
        assert peer.node.term == 1

    def test_the_last_term_stops_a_replica_that_would_need_another(self):
        peer = replica(term=2**31 - 1)
        time_out(peer)
        assert peer.role is Role.STOPPED


class TestLinkDown:
    """Failover far below a second, and no disturbance of a healthy leader."""

    def test_followers_elect_soon_after_the_leaders_links_broke(self):
        c = Cluster(3)
        c.elect(1)
        c.isolate(1)
        for number in (2, 3):
            c.node(number).link_down(1, c.now)
        c.advance(3 * BEAT, step=BEAT // 10)
        assert c.leader() in (2, 3)

    def test_one_broken_link_disturbs_nobody(self):
        c = Cluster(3)
        c.elect(1)
        c.advance(2 * BEAT)
        c.cut |= {(1, 3), (3, 1)}
        c.node(3).link_down(1, c.now)
        c.node(1).link_down(3, c.now)
        c.advance(10 * ELECTION)
        assert (c.leader(), c.node(1).term) == (1, 1)
        c.heal()
        c.node(3).link_up(1, c.now)
        c.node(1).link_up(3, c.now)
        c.advance(BEAT)
        assert c.node(3).leader == rid(1)
