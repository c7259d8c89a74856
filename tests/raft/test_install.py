"""Installs, piece by piece: what comes late, twice, out of order, too large, or not at all."""

import attrs
import pytest

from raftlog.base.errors import CorruptData, FutureFormat
from raftlog.base.limits import INSTALL_BYTES_MAX
from raftlog.raft.messages import (
    AppendRefused,
    AppendReply,
    Install,
    InstallReply,
    RefusalReason,
    Unreadable,
)
from raftlog.raft.node import Role
from raftlog.raft.progress import ProgressState
from tests.paper.speaking import append, lead, listen, of_kind, refused, replica, say, wait
from tests.raft.cluster import BEAT, ELECTION, GROUP, OPTIONS, Cluster, Peer, rid, voters
from tests.raft.memory_log import MemoryLog

PIECES = attrs.evolve(OPTIONS, install_chunk_bytes=4, pre_vote=False)


def sending() -> Peer:
    """A leader whose log begins at 4, and follower 2 that needs what is below."""
    peer = lead(1, 1, 1, term=1, options=PIECES)
    say(peer, refused(2, 4, (0, 0), sender=3))
    peer.log.drop_before(4)
    peer.auto_reads = False
    peer.node._state.progress[rid(3)].become_probe(1)
    listen(peer)
    assert peer.node.progress[rid(3)].state is ProgressState.INSTALL
    return peer


def answer(peer: Peer, snapshot: bytes) -> list[Install]:
    (read,) = peer.pending_snapshots
    peer.pending_snapshots.clear()
    peer.node.snapshot_read_done(read.token, peer.log.position_before_first(), snapshot)
    return of_kind(listen(peer), Install)


def got(received: int, index: int = 3) -> InstallReply:
    return InstallReply(GROUP, rid(3), rid(1), 2, index, received)


def append_reply(sender: int, match: int) -> AppendReply:
    return AppendReply(GROUP, rid(sender), rid(1), 2, match, False)


class TestSender:
    def test_pieces_follow_the_answers(self):
        peer = sending()
        (first,) = answer(peer, b"0123456789")
        assert (first.start, bytes(first.chunk), first.total) == (0, b"0123", 10)
        (second,) = of_kind(say(peer, got(4)), Install)
        (third,) = of_kind(say(peer, got(8)), Install)
        assert (bytes(second.chunk), bytes(third.chunk)) == (b"4567", b"89")

    def test_an_answer_for_another_position_moves_nothing(self):
        peer = sending()
        answer(peer, b"0123456789")
        assert not of_kind(say(peer, got(4, index=2)), Install)

    def test_a_follower_that_lost_its_pieces_is_served_from_where_it_is(self):
        peer = sending()
        answer(peer, b"0123456789")
        say(peer, got(4))
        (again,) = of_kind(say(peer, got(0)), Install)
        assert again.start == 0

    def test_a_piece_without_answer_is_sent_again_after_an_election_timeout(self):
        peer = sending()
        answer(peer, b"0123456789")
        again = []
        for _ in range(2 * ELECTION // BEAT):
            again += of_kind(wait(peer, BEAT), Install)
            say(peer, append_reply_of(2))
        assert [m.start for m in again] in ([0], [0, 0])

    def test_a_snapshot_that_cannot_be_read_is_asked_for_after_the_next_answer(self):
        peer = sending()
        (read,) = peer.pending_snapshots
        peer.pending_snapshots.clear()
        peer.node.snapshot_read_done(read.token, None, b"")
        listen(peer)
        assert not peer.pending_snapshots
        say(peer, refused(2, 3, (0, 0), sender=3))
        assert len(peer.pending_snapshots) == 1

    def test_a_log_that_lost_more_of_its_beginning_meanwhile_is_installed_anew(self):
        """Seed 32 of the simulator: retention moved on between the read of the snapshot and the
        answer to it. The follower held all that it was sent, the leader no longer held what comes
        next, and sent the same pieces again and again."""
        peer = sending()
        answer(peer, b"0123")
        peer.log.drop_before(5)
        say(peer, append_reply(3, match=3))
        assert peer.node.progress[rid(3)].state is ProgressState.INSTALL
        (piece,) = answer(peer, b"4567")
        assert piece.position.raft_index == 4
        say(peer, append_reply(3, match=4))
        assert peer.node.progress[rid(3)].state is ProgressState.REPLICATE

    def test_a_snapshot_for_a_sender_that_ended_is_dropped(self):
        peer = sending()
        (read,) = peer.pending_snapshots
        peer.node.link_down(3, peer.now)
        peer.node.snapshot_read_done(read.token, peer.log.position_before_first(), b"abc")
        assert not of_kind(listen(peer), Install)


def append_reply_of(sender: int):
    from tests.paper.speaking import matched

    return matched(2, 4, sender=sender)


class TestReceiver:
    def piece(self, start: int, chunk: bytes, total: int = 6, index: int = 9) -> Install:
        """Returns an install from leader 2 in term 1, for a log that will begin after `index`."""
        log = MemoryLog.founded(voters(1, 2, 3))
        position = attrs.evolve(
            log.position_before_first(), raft_index=index, term=1, chain=77, next_offset=5
        )
        return Install(GROUP, rid(2), rid(1), 1, position, total, start, chunk)

    def test_pieces_are_put_together_and_switched_at_once(self):
        peer = replica(term=1)
        (reply,) = of_kind(say(peer, self.piece(0, b"abc")), InstallReply)
        assert (reply.received, peer.log.first_index) == (3, 1)
        said = say(peer, self.piece(3, b"def"))
        assert not of_kind(said, InstallReply)
        assert (peer.log.first_index, peer.log.snapshot, peer.node.commit) == (10, b"abcdef", 9)
        assert peer.installed == [9]

    @pytest.mark.parametrize("start", [0, 2, 4])
    def test_a_piece_out_of_order_is_answered_with_where_we_are(self, start):
        peer = replica(term=1)
        say(peer, self.piece(0, b"abc"))
        (reply,) = of_kind(say(peer, self.piece(start, b"x")), InstallReply)
        assert reply.received == 3

    def test_a_piece_beyond_the_total_is_not_taken(self):
        peer = replica(term=1)
        (reply,) = of_kind(say(peer, self.piece(0, b"abcdefgh")), InstallReply)
        assert reply.received == 0

    @pytest.mark.parametrize("error", [CorruptData("no state"), FutureFormat("version 2")])
    def test_a_state_that_no_boot_could_go_on_from_is_not_switched_to(self, error):
        """The story: the log was replaced, on the disk too, before any check had looked at what the
        leader had sent in its place, and there was no way back."""
        peer = replica(term=1)
        peer.log.refusal = error
        assert not say(peer, self.piece(0, b"abcdef"))
        assert (peer.log.first_index, peer.node.commit, peer.installed) == (1, 0, [])
        peer.log.refusal = None
        say(peer, self.piece(0, b"abcdef"))
        assert (peer.log.first_index, peer.installed) == (10, [9])

    def test_a_leader_of_a_newer_term_is_followed_in_its_term(self):
        peer = replica(term=0)
        (reply,) = of_kind(say(peer, self.piece(0, b"abc")), InstallReply)
        assert (peer.node.term, reply.term, reply.received) == (1, 1, 3)
        assert (peer.stored.term, peer.node.leader) == (1, rid(2))

    def test_a_leader_of_an_older_term_is_told_and_its_piece_is_not_taken(self):
        peer = replica(term=2)
        said = say(peer, self.piece(0, b"abcdef"))
        assert [m.reason for m in of_kind(said, AppendRefused)] == [RefusalReason.STALE_TERM]
        assert (peer.log.first_index, peer.node.commit) == (1, 0)

    def test_a_seam_below_the_first_entry_is_committed_hence_equal(self):
        peer = replica(term=1)
        say(peer, self.piece(0, b"abcdef"))
        (reply,) = of_kind(say(peer, append(1, (5, 1))), AppendReply)
        assert (peer.role, reply.match) == (Role.FOLLOWER, 9)

    def test_another_snapshot_begins_anew(self):
        peer = replica(term=1)
        say(peer, self.piece(0, b"abc"))
        (reply,) = of_kind(say(peer, self.piece(0, b"ab", index=12)), InstallReply)
        assert (reply.raft_index, reply.received) == (12, 2)

    def test_a_snapshot_above_the_bound_is_not_begun(self):
        peer = replica(term=1)
        huge = self.piece(0, b"abc", total=INSTALL_BYTES_MAX + 1)
        (reply,) = of_kind(say(peer, huge), InstallReply)
        assert reply.received == 0

    def test_a_new_term_forgets_the_pieces_of_the_old_leader(self):
        peer = replica(term=1)
        say(peer, self.piece(0, b"abc"))
        newer = self.piece(0, b"xy")._replace(term=2, sender=rid(3))
        (reply,) = of_kind(say(peer, newer), InstallReply)
        assert reply.received == 2

    def test_an_install_of_a_deposed_leader_changes_nothing(self):
        peer = replica(term=5)
        say(peer, self.piece(0, b"abcdef"))
        assert peer.log.first_index == 1

    def test_appends_go_on_after_the_install(self):
        c = Cluster(3)
        c.elect(1)
        c.isolate(3)
        c.write(1, b"a", b"b", b"c")
        c[1].log.drop_before(4)
        c.heal()
        c.advance(3 * BEAT)
        c.write(1, b"d")
        assert c[3].installed == [3]
        assert c[3].payloads == [b"c", b"d"]
        assert c.node(3).commit == c.node(1).commit


def test_an_entry_kind_of_a_later_release_stops_the_replica():
    """It stops, and skips nothing; a deposed leader cannot stop it."""
    peer = replica(term=3)
    say(peer, Unreadable(GROUP, rid(2), rid(1), 2, "entry of unknown kind 77"))
    assert peer.role is Role.FOLLOWER
    say(peer, Unreadable(GROUP, rid(2), rid(1), 3, "entry of unknown kind 77"))
    assert peer.role is Role.STOPPED
    assert "77" in peer.node.stopped_why
    assert not say(peer, append(3))
