"""A tiny network with every legal misfortune, and the invariants that must hold after each step.

The wire loses, repeats and reorders; a crash loses what was not synced; disks sync when they like;
membership changes, transfers, retention and installs go on meanwhile. The invariants
concern the core and are checked on memory and on the model of the disk.
"""

import attrs

from raftlog.base.entries import EntryKind, LogPosition, Membership
from raftlog.base.errors import LocalMisuse
from raftlog.base.ids import RaftIndex, ReplicaId
from raftlog.base.units import Instant, millis
from raftlog.raft.messages import AppendReply, VoteReply, VoteRequest
from raftlog.raft.node import Role
from raftlog.raft.options import RaftOptions
from raftlog.raft.quorum import VoteResult, joint_vote
from tests.raft.cluster import ELECTION, WALL, Cluster, Peer, make_batch, rid, voters

OPTIONS = RaftOptions(
    heartbeat_ns=millis(100),
    election_ns=millis(1000),
    append_bytes_max=300,
    appends_in_flight_max=2,
    inflight_bytes_max=600,
    reads_pending_max=5,
    install_chunk_bytes=7,
    promote_lag_max=3,
)
WIRE_MAX = 60


class Chaos:
    """Five replicas, three of them voters at first; steps are small and chosen by the caller."""

    def __init__(
        self,
        *,
        pre_vote: bool = True,
        check_quorum: bool = True,
        membership: Membership | None = None,
    ) -> None:
        options = attrs.evolve(OPTIONS, pre_vote=pre_vote, check_quorum=check_quorum)
        self.live = pre_vote and check_quorum
        self.finishing = False
        self.c = Cluster(5, membership=membership or voters(1, 2, 3), options=options)
        self.leaders: dict[int, ReplicaId] = {}
        self.chains: dict[tuple[int, int], int] = {}
        self.ghost: dict[int, tuple[int, int]] = {}
        self.granted: dict[tuple[int, ReplicaId], dict[ReplicaId, bool]] = {}
        self.reads: dict[tuple[int, int], int] = {}
        self.commits: dict[int, int] = {}
        self.in_force: dict[int, tuple[int, Membership]] = {}
        self.tokens = 0
        self.payload = 0

    # --- steps ------------------------------------------------------------------------------------

    def flush(self, number: int) -> None:
        out = self.c.flush(number)
        peer = self.c[number]
        for message in out.send:
            self._check_promise(peer, message)
        for read in out.reads:
            seen = self.reads.pop((number, read.token))
            assert read.raft_index is None or read.raft_index >= seen, (read, seen)
        del self.c.wire[: max(0, len(self.c.wire) - WIRE_MAX)]
        self.c.sent.clear()
        peer.outputs.clear()
        self._cover(peer)

    def _cover(self, peer: Peer) -> None:
        """Agreement told to a driver lets heartbeats of the pair of nodes stand in; every other
        time here, so that both ways are walked."""
        agreed, peer.agreed = peer.agreed, []
        if peer.node.term % 2:
            for other in agreed:
                peer.node.cover(other, self.c.now)

    def persist(self, number: int) -> None:
        self.c[number].persist(self.c.now)

    def read_disk(self, number: int) -> None:
        self.c[number].answer_reads()

    def deliver(self, position: int, *, again: bool = False) -> None:
        if not self.c.wire:
            return
        at = position % len(self.c.wire)
        message = self.c.wire[at] if again else self.c.wire.pop(at)
        for peer in self.c.peers.values():
            if peer.me == message.to:
                peer.node.receive([message], self.c.now)

    def turn(self, stalled: int) -> None:
        """Do the things that usually happen together: everything arrives, is taken and synced; one
        disk stalls."""
        for _ in range(len(self.c.wire)):
            self.deliver(0)
        for number in self.c.peers:
            self.flush(number)
            if number != stalled:
                self.persist(number)
                self.flush(number)

    def lose(self, position: int) -> None:
        if self.c.wire:
            self.c.wire.pop(position % len(self.c.wire))

    def crash(self, number: int) -> None:
        self.c.crash(number)
        self.commits.pop(number, None)
        self.in_force.pop(number, None)
        self.reads = {key: seen for key, seen in self.reads.items() if key[0] != number}
        self._link_reset(number)

    def damage(self, number: int, count: int) -> None:
        """Kill, and boot with the last entries rotten: the valid log ends before the durable
        mark. One replica at a time, so that every committed entry has a good copy among those who
        may lead."""
        if any(peer.node.damaged for peer in self.c.peers.values()):
            return
        self.crash(number)
        old = self.c[number]
        last = old.log.last_index
        keep = max(last - count, old.log.first_index)
        if keep >= last or old.log.last_index < old.log.first_index:
            return
        mark = LogPosition(last, old.log.last_term, old.log.chain_at(last))
        old.log.truncate_from(RaftIndex(keep + 1))
        old.log.cut_off.clear()
        old.log._disk = old.log._image()
        self.c.peers[number] = Peer(
            old.me,
            old.log,
            hard_state=old.stored,
            options=old.options,
            damaged=mark,
            commit_hint=old.hint,
            now=self.c.now,
            seed=old.io + number,
            io_base=old.io,
        )

    def _link_reset(self, number: int) -> None:
        node = self.c[number].me.node
        for other, peer in self.c.peers.items():
            if other != number:
                peer.node.link_down(node, self.c.now)
                peer.node.link_up(node, self.c.now)

    def reset_links(self, number: int) -> None:
        self.c.links_reset(number)

    def tick(self, number: int) -> None:
        """Time goes on to the next deadline of this replica, and everybody's due ones pass."""
        self.flush(number)
        deadline = self.c[number].deadline
        if deadline > self.c.now + 4 * ELECTION:
            deadline = Instant(self.c.now + millis(50))
        self.c.now = Instant(max(self.c.now, deadline))
        self.c[number].node.tick(self.c.now)

    def pass_time(self, nanos: int) -> None:
        self.c.now = Instant(self.c.now + nanos)

    def uncover(self, number: int, other: int) -> None:
        self.c.node(number).uncover(rid(other), self.c.now, Instant(self.c.now - millis(300)))

    def propose(self, number: int, count: int) -> None:
        peer = self.c[number]
        if not peer.node.ready or peer.log.last_index > 60:
            return
        offset, batches = peer.log.next_offset, []
        for i in range(count):
            self.payload += 1
            batches.append(make_batch(offset + i, peer.node.term, b"%d" % self.payload))
        peer.node.propose(batches, self.c.now, WALL)

    def read(self, number: int) -> None:
        self.tokens += 1
        self.reads[(number, self.tokens)] = max(self.ghost, default=0)
        self.c.node(number).read_index(self.tokens, self.c.now)

    def transfer(self, number: int, to: int) -> None:
        try:
            self.c.node(number).transfer(rid(to), self.c.now)
        except LocalMisuse:
            assert (
                self.c[number].role is not Role.LEADER
                or number == to
                or not self._votes(number, to)
            )

    def _votes(self, number: int, to: int) -> bool:
        return rid(to) in self.c.node(number).membership.voters

    def change(self, number: int, voter_mask: int, learner_mask: int) -> None:
        peer = self.c[number]
        named = [n for n in range(1, 6) if voter_mask >> (n - 1) & 1] or [1, 2, 3]
        learners = [n for n in range(1, 6) if learner_mask >> (n - 1) & 1 and n not in named]
        if peer.role is Role.LEADER:
            peer.node.change_membership(voters(*named, learners=learners), self.c.now, WALL)

    def forget(self, number: int, count: int) -> None:
        """Retention: the oldest entries go, at most what is committed and durable here."""
        peer = self.c[number]
        top = min(peer.node.commit, peer.node.durable)
        first = min(peer.log.first_index + count, top)
        if first > peer.log.first_index and not peer.open:
            peer.log.drop_before(RaftIndex(first))
            peer.log._disk = peer.log._image()

    def window(self, number: int, size: int) -> None:
        self.c[number].log.window = size or None

    # --- what must hold ---------------------------------------------------------------------------

    def _check_promise(self, peer: Peer, message: object) -> None:
        """A promise that leaves is true on the disk already."""
        if isinstance(message, VoteReply) and message.granted:
            assert peer.stored == (message.term, message.to), (peer.stored, message)
            self.granted.setdefault((message.term, message.to), {})[peer.me] = True
        elif isinstance(message, VoteRequest):
            assert peer.stored == (message.term, peer.me), (peer.stored, message)
        elif isinstance(message, AppendReply):
            disk = peer.log._disk
            last = disk["_first"] + len(disk["_entries"]) - 1
            assert message.match <= last, (message, last)
            booted = max(peer.stored.term, disk["_entries"][-1].term if disk["_entries"] else 0)
            assert max(booted, disk["_prev_term"]) >= message.term, (message, peer.stored)

    def check(self) -> None:
        for number, peer in self.c.peers.items():
            self._check_peer(number, peer)

    def _check_peer(self, number: int, peer: Peer) -> None:
        node, log = peer.node, peer.log
        assert peer.role is not Role.STOPPED, (number, node.stopped_why)
        if peer.role is Role.LEADER:
            if node.term not in self.leaders and not self.finishing:
                self._check_elected(number, peer)
            first = self.leaders.setdefault(node.term, peer.me)
            assert first == peer.me, f"two leaders of term {node.term}: {first} and {peer.me}"
        for at, entry in enumerate(log.all_entries):
            chain = log._chains[at + 1]
            place = (entry.raft_index, entry.term)
            assert self.chains.setdefault(place, chain) == chain, place
        assert node.commit >= self.commits.get(number, 0), (number, node.commit)
        assert not (node.damaged and peer.role is not Role.FOLLOWER), (number, peer.role)
        assert node.commit <= log.last_index
        assert node.durable <= log.last_index
        self._check_commit_rule(number, peer)
        self._check_commit(number, peer)
        self._check_cuts(peer)
        self.commits[number] = node.commit
        self.in_force[number] = (node.membership_index, node.membership)
        if peer.role is Role.LEADER and node.term == max(self.leaders):
            self._check_complete(peer)
        self._check_membership(peer)

    def _check_elected(self, number: int, peer: Peer) -> None:
        """A leader has the durable votes of a majority, of both halves if joint (invariant 1)."""
        votes = self.granted.get((peer.node.term, peer.me), {}) | {peer.me: True}
        assert peer.stored == (peer.node.term, peer.me), (peer.stored, peer.node.term)
        _, before = self.in_force.get(number, (0, peer.node.membership))
        deciding = (before, peer.node.membership)
        assert any(joint_vote(m, votes) is VoteResult.WON for m in deciding), (votes, deciding)

    def _check_commit_rule(self, number: int, peer: Peer) -> None:
        """A leader's commit moves only by an entry of its own term (invariant 8). One voter may
        follow and lead within one step, so it is left out."""
        node = peer.node
        moved = number in self.commits and node.commit > self.commits[number]
        if peer.role is Role.LEADER and moved and len(node.membership.all_voters()) > 1:
            assert peer.log.term_at(node.commit) == node.term, (number, node.commit, node.term)

    def _check_cuts(self, peer: Peer) -> None:
        """Nothing that was committed then was cut from any log in this step (invariant 12)."""
        cut, peer.log.cut_off = peer.log.cut_off, []
        for index, term, chain in cut:
            assert self.ghost.get(index) != (term, chain), (peer.me, index)

    def _check_commit(self, number: int, peer: Peer) -> None:
        log = peer.log
        for at, entry in enumerate(log.all_entries):
            if entry.raft_index > peer.node.commit:
                break
            index, value = entry.raft_index, (entry.term, log._chains[at + 1])
            if index not in self.ghost:
                self.ghost[index] = value
                self._check_durable(number, peer, index, entry.term)
            assert self.ghost[index] == value, f"committed entry {index} differs on {peer.me}"

    def _check_durable(self, number: int, peer: Peer, index: int, term: int) -> None:
        """A new commit lies on the synced disks of a majority (of both halves)."""
        held = {}
        for other in self.c.peers.values():
            disk = other.log._disk
            at = index - disk["_first"]
            mine = 0 <= at < len(disk["_entries"]) and disk["_entries"][at].term == term
            mark = other.mark  # a damaged replica votes by what it once held, so that still counts
            marked = mark is not None and (mark.term, mark.raft_index) >= (term, index)
            held[other.me] = mine or marked or index < disk["_first"]
        if peer.role is not Role.LEADER:
            return
        before_index, before = self.in_force.get(number, peer.log.memberships[0])
        newer = [m for i, m in peer.log.memberships if i > before_index]
        # a newer configuration is proposed only when the one before is committed, by its own quorum
        deciding = [before] if index <= before_index else [before, *newer]
        assert any(joint_vote(m, held) is VoteResult.WON for m in deciding), (index, held, deciding)

    def _check_complete(self, peer: Peer) -> None:
        """The leader of the highest term holds everything that was ever committed."""
        log = peer.log
        for index, (term, chain) in self.ghost.items():
            if index >= log.first_index:
                assert log.term_at(RaftIndex(index)) == term, (index, term, peer.me)
                assert log.chain_at(RaftIndex(index)) == chain, (index, peer.me)

    def _check_membership(self, peer: Peer) -> None:
        index, membership = peer.log.memberships[-1]
        assert (peer.node.membership_index, peer.node.membership) == (index, membership)
        assert peer.node.membership.voters
        if peer.role is Role.LEADER:
            others = [r for r in membership.everyone() if r != peer.me]
            assert sorted(peer.node.progress) == others
            for p in peer.node.progress.values():
                assert p.match < p.next <= peer.log.last_index + 1, p
                assert len(p.in_flight) <= OPTIONS.appends_in_flight_max, p

    def _has_whole_majority(self) -> bool:
        """Whether whole voters are a majority. With a damaged one of two voters, none may lead
        before an operator helps."""
        whole = {p.me: not p.node.damaged for p in self.c.peers.values()}
        memberships = [p.node.membership for p in self.c.peers.values()]
        return all(joint_vote(m, whole) is VoteResult.WON for m in memberships)

    # --- and in the end ---------------------------------------------------------------------------

    def heal_and_finish(self) -> None:
        """Healed, the group elects a leader, commits, and all its members end with one log."""
        c = self.c
        self.finishing = True  # from here on the cluster flushes by itself: votes are not recorded
        self.in_force.clear()
        self.commits.clear()
        c.heal()
        c.wire.clear()
        for number in c.peers:
            c.links_reset(number)
            c[number].log.window = None
        c.settle(2000)
        c.advance(12 * ELECTION, step=millis(50))
        if not self.live or not self._has_whole_majority():
            # without pre-vote and check-quorum a removed replica may disturb without end (thesis
            # 4.2.3)
            self.check()
            return
        leader = c.leader()
        assert leader is not None, [(n, p.role, p.node.term) for n, p in c.peers.items()]
        assert c.node(leader).ready
        for peer in c.peers.values():
            for other in list(peer.node.progress):
                peer.node.uncover(other, c.now, c.now)
        c.propose(leader, b"the last one")
        c.advance(4 * ELECTION, step=millis(50))
        leader = c.leader()
        assert leader is not None
        membership = c.node(leader).membership
        assert not membership.joint
        last = c[leader].log.last_index
        for replica in membership.everyone():
            peer = c[replica.node]
            assert (peer.log.last_index, peer.node.commit) == (last, last), (replica, last)
            assert peer.log.chain_at(last) == c[leader].log.chain_at(last)
        self.check()
        kinds = [e.kind for e in c[leader].log.all_entries]
        assert EntryKind.RECORDS in kinds
