"""Bugs that others had, each under its number and name in docs/internals/named_scenarios.md.

Where a docstring says who had it, the public issue is theirs; the scenario is ours.
"""

import attrs
import pytest

from raftlog.base import probes
from raftlog.base.entries import HardState, Membership
from raftlog.base.ids import IoId
from raftlog.raft.messages import (
    Append,
    AppendReply,
    Install,
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
    replica,
    say,
    time_out,
    vote,
    vote_request,
)
from tests.raft.cluster import (
    BEAT,
    ELECTION,
    GROUP,
    WALL,
    Cluster,
    entry,
    log_of_terms,
    rid,
    voters,
)
from tests.raft.steps import install, step


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

    def test_memberships_before_the_committed_one_are_forgotten(self):
        c = Cluster(3)
        c.elect(1)
        for _ in range(10):
            for target in (voters(1, 2, 3, learners=[4]), THREE):
                c.node(1).change_membership(target, c.now, WALL)
                c.settle()
                assert c.node(1).membership == target
        assert all(len(c.node(number)._state.memberships) <= 2 for number in (1, 2, 3))


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
        """It comes again after the follower went on by appends."""
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
        probes.reset()
        c.advance(6 * ELECTION)
        leader = c.leader()
        assert leader in (3, 4, 5)
        assert c.node(leader).membership == voters(3, 4, 5)
        assert probes.fired()["joint-left-by-a-new-leader"] == 1


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
