"""Linearizable reads by read index (thesis 6.4).

A read notes the commit index when it arrives. It is confirmed when a quorum of voters echoed a
round that was sent *after* that, in this term: nobody else can have committed anything in
between. Rounds are numbered within a term and batched per turn; an echo of a later round confirms
the earlier ones too. A leader that has not committed in its own term does not know the commit
index yet: reads are parked.
"""

from raftlog.base.probes import probe
from raftlog.raft import lease
from raftlog.raft.output import ReadState
from raftlog.raft.quorum import VoteResult, joint_vote
from raftlog.raft.state import LEADER, PendingRead, RaftState

_UNSENT = 0


def read_index(state: RaftState, token: int) -> None:
    """Answered through `Output.reads`, by None at once when it cannot be served here."""
    if state.role is not LEADER or state.reads.count() >= state.options.reads_pending_max:
        probe("read-index-refused")
        state.out.reads.append(ReadState(token, None))
    elif lease.holds(state):
        probe("read-by-lease")
        state.out.reads.append(ReadState(token, state.commit))
    elif not state.ready:
        probe("read-index-parked")
        state.reads.parked.append(token)
    else:
        state.reads.unsent.append(PendingRead(token, state.commit, _UNSENT))


def unpark(state: RaftState) -> None:
    """The leader has committed in its term: what waited for that arrives now."""
    parked, state.reads.parked = state.reads.parked, []
    state.reads.unsent.extend(PendingRead(token, state.commit, _UNSENT) for token in parked)


def seal(state: RaftState) -> bool:
    """Give the reads of this turn, of which there are some, a round of their own. Whether the round
    must be sent now."""
    reads = state.reads
    reads.context += 1
    reads.pending.extend(read._replace(context=reads.context) for read in reads.unsent)
    reads.unsent = []
    lease.round_sent(state, reads.context)
    confirm(state)
    return bool(reads.pending)


def context_of(state: RaftState) -> int:
    """The round that an append carries: the newest while any read waits, else 0. A repeated round
    is the same one: reads that came later have a later number."""
    return state.reads.context if state.reads.pending else 0


def confirm(state: RaftState) -> None:
    """Answer the reads whose round a quorum has echoed. Only voters in force count, each once."""
    pending = state.reads.pending
    done = 0
    while done < len(pending) and _is_echoed(state, pending[done].context):
        done += 1
    if done:
        lease.round_echoed(state, pending[done - 1].context)
        state.out.reads.extend(ReadState(read.token, read.raft_index) for read in pending[:done])
        del pending[:done]


def _is_echoed(state: RaftState, context: int) -> bool:
    votes = {replica: True for replica, p in state.progress.items() if p.echoed >= context}
    votes[state.me] = True
    return joint_vote(state.membership, votes) is VoteResult.WON
