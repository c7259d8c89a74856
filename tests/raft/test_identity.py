"""Identity, content and links: who counts, what is refused, and how soon a failover begins."""

import pytest

from raftlog.base.entries import Membership
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
    THREE,
    append,
    control,
    lead,
    listen,
    matched,
    of_kind,
    refused,
    replica,
    say,
    time_out,
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


class TestIdentity:
    """A wiped broker comes back as another replica."""

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
    """Equal index and term with unequal chain stops the replica; nothing is repaired by
    guessing."""

    def test_another_chain_at_the_seam(self):
        peer = replica(1, term=1)
        said = say(peer, append(1, (1, 1), chain=12345))
        assert peer.role is Role.STOPPED
        assert [m.reason for m in of_kind(said, AppendRefused)] == [RefusalReason.CONTENT]

    def test_another_term_at_the_seam_below_the_commit(self):
        """No leader can hold another entry there: one of the two has lost something."""
        peer = replica(1, 1, term=1)
        say(peer, append(1, (2, 1), commit=2))
        assert peer.node.commit == 2
        said = say(peer, append(2, (2, 2)))
        assert peer.role is Role.STOPPED
        assert not of_kind(said, AppendReply)

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
        """A leader with a rotten batch and a follower that refuses it."""
        peer = lead()
        peer.node.propose([make_batch(0, 1)], peer.now, WALL)
        listen(peer)
        said = say(peer, refused(1, 1, (1, 1), reason=RefusalReason.CONTENT))
        assert peer.verify == [(2, 2)]
        assert not [m for m in of_kind(said, Append) if m.entries and m.to == rid(2)]
        peer.node.step_down(peer.now, "bad range")
        assert peer.role is Role.FOLLOWER

    def test_the_range_to_verify_has_the_entry_that_a_probe_sent(self):
        """While the leader probes, what it sends next is the entry that the follower refused. The
        range was empty then, and the leader never read what it had sent."""
        peer = lead()
        peer.node.propose([make_batch(0, 1), make_batch(1, 1)], peer.now, WALL)
        listen(peer)
        say(peer, refused(1, 2, (1, 1)))
        say(peer, refused(1, 1, (1, 1), reason=RefusalReason.CONTENT))
        assert peer.verify == [(2, 2)]

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


class TestFailure:
    def test_a_vote_that_was_never_written_is_not_handed_out(self):
        """A replica gave its vote in the turn in which it failed. Its last take still named the
        vote, the broker's store remembered it, and its round was never written: the reopened
        replica took it for durable and would have told it at once."""
        peer = replica(term=3)
        request = VoteRequest(GROUP, rid(2), peer.me, 4, 9, 3, False)
        peer.node.receive([request], peer.now)
        peer.node.io_failed(peer.now)
        out = peer.node.take(peer.io + 1)
        assert (out.hard_state, list(out.send)) == (None, [])


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
