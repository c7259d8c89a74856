"""Leaving a role: what must be forgotten, answered and reported when a replica stops doing
something.

Entering the roles of candidate and leader is in `election`; these steps are the ones that every
module may need.
"""

from typing import Final

from raftlog.base.ids import RaftIndex, ReplicaId, Term
from raftlog.base.probes import probe
from raftlog.base.units import NEVER, Instant
from raftlog.raft import lease
from raftlog.raft.output import ReadState, TransferDone
from raftlog.raft.state import FOLLOWER, LEADER, STOPPED, RaftState, Reads

TERM_JUMP: Final = 2**20
"""More terms at once than this are traced and counted. A group in which some replica campaigns ten
times a second, and never wins, needs 29 hours for as many."""


def become_follower(state: RaftState, term: Term, leader: ReplicaId | None) -> None:
    """Follow in `term`, at least our own; a newer term has no vote yet. Forgets what belonged to
    the term or leader before."""
    assert term >= state.term, (term, state.term)
    assert state.role is not STOPPED
    if state.role is LEADER:
        _abdicate(state)
    if term > state.term:
        if term - state.term > TERM_JUMP:
            # Terms rise by one with each campaign. A replica that boots far behind, or joins an old
            # group, must take such a term all the same; anything else here is worth a look.
            probe("term-jumped")
            state.trace("term-jump", ("before", state.term), ("after", term))
        state.term = term
        state.vote = None
        state.hard_state_dirty = True
    end_cover(state)
    state.role = FOLLOWER
    state.leader = leader
    state.votes.clear()
    state.transfer_campaign = False
    state.verified = RaftIndex(0)
    state.acked = RaftIndex(0)
    state.ack_wanted = False
    state.agreed = False
    state.receiving = None
    state.election_deadline = Instant(state.now + state.draw_timeout())
    state.trace("follow", ("leader", str(leader) if leader else None))


def learn_leader(state: RaftState, leader: ReplicaId) -> bool:
    """A message that only the leader of our term can have sent has arrived. False: another one
    leads this term, which breaks election safety, so this replica has stopped."""
    if state.role is LEADER or state.leader not in (None, leader):
        known = state.leader
        stop(state, f"two leaders of term {state.term}: {known} and {leader}")
        return False
    if state.leader is None or state.role is not FOLLOWER:
        become_follower(state, state.term, leader)
    settle_transfer(state, leader)
    state.campaigns = 0
    state.leader_contact = state.now
    if not state.covered:
        state.election_deadline = Instant(state.now + state.election_timeout)
    return True


def end_cover(state: RaftState) -> None:
    """The agreement under which a pair of nodes beats for this follower is over."""
    if state.covered:
        assert state.leader is not None
        state.covered = False
        state.out.uncovered.append(state.leader)


def _abdicate(state: RaftState) -> None:
    state.out.uncovered.extend(p.replica for p in state.progress.values() if p.covered)
    state.progress.clear()
    refuse_reads(state)
    lease.end(state)
    state.ready = False
    state.target = None
    state.heartbeat_deadline = NEVER
    state.ready_append = None
    if state.transferring is not None:
        state.transfer_watch = state.transferring
        state.transferring = None
        state.transfer_deadline = NEVER


def refuse_reads(state: RaftState) -> None:
    """Nobody may be told anything under a leadership that is over."""
    reads = state.reads
    tokens = [*reads.parked, *(read.token for read in (*reads.pending, *reads.unsent))]
    state.out.reads.extend(ReadState(token, None) for token in tokens)
    state.reads = Reads()


def settle_transfer(state: RaftState, leader: ReplicaId) -> None:
    """Somebody leads: a transfer that we began has succeeded or failed."""
    if state.transfer_watch is not None:
        to, state.transfer_watch = state.transfer_watch, None
        state.out.transfer_done = TransferDone(to, to == leader)


def stop(state: RaftState, why: str) -> None:
    """Take part no more: for good, until a new node is made after recovery."""
    if state.role is STOPPED:
        return
    if state.role is LEADER:
        _abdicate(state)
    if state.transfer_watch is not None:
        state.out.transfer_done = TransferDone(state.transfer_watch, ok=False)
        state.transfer_watch = None
    end_cover(state)
    state.role = STOPPED
    state.leader = None
    state.stopped_why = why
    state.election_deadline = NEVER
    state.promises.clear()
    state.hard_state_dirty = False  # nothing rests on it, and nobody writes it any more
    state.trace("stop", ("why", why))
