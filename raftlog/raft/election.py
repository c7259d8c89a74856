"""Elections: pre-vote, votes keyed by voter, check-quorum, stickiness (Raft 5.2, 5.4.1; thesis
4.2.3, 9.6).

A candidate's requests and its own vote wait until its (term, vote) is durable; a voter's reply
waits too. A voter that heard from a leader within the shortest election timeout refuses every
candidate, unless the leader itself asked for the election. A leader that hears from no quorum for
that long becomes a follower, so the refusals can never keep a group without a leader.
"""

from typing import Final

from raftlog.base.buggify import buggify
from raftlog.base.entries import EntryKind
from raftlog.base.ids import TERM_MAX, NodeId, RaftIndex, ReplicaId, Term
from raftlog.base.probes import probe
from raftlog.base.units import NEVER, Instant, WallMillis
from raftlog.raft import lease, membership, replication, transfer
from raftlog.raft.messages import (
    PreVoteReply,
    PreVoteRequest,
    TimeoutNow,
    VoteReply,
    VoteRequest,
)
from raftlog.raft.proposals import append_control
from raftlog.raft.quorum import VoteResult, joint_vote
from raftlog.raft.roles import become_follower, end_cover, settle_transfer, stop
from raftlog.raft.state import (
    CANDIDATE,
    FOLLOWER,
    LEADER,
    LONG_AGO,
    PRE_CANDIDATE,
    STOPPED,
    RaftState,
    Reads,
)
from raftlog.records.control import TermStart, write_term_start

EAGER_CAMPAIGNS: Final = 3
"""Attempts at the usual pace: enough to settle split votes (Raft 5.2)."""
_NOBODY: Final = WallMillis(-1)
"""A new leader has not seen for how long producers are silent: it expires none."""
PATIENCE_MAX: Final = 3
"""Doublings of the time between later attempts."""

# --- time -----------------------------------------------------------------------------------------


def tick(state: RaftState) -> None:
    """Time has passed."""
    if state.role is LEADER:
        _leader_tick(state)
    elif state.now >= campaign_deadline(state):
        _begin(state)


def campaign_deadline(state: RaftState) -> Instant:
    """When this replica would campaign; NEVER if it may not, or if node heartbeats cover it."""
    if state.covered or state.role is STOPPED:
        return NEVER
    if (state.voter and state.damaged is None) or _may_campaign(state):
        return lease.campaign_from(state, state.election_deadline)
    return NEVER


def _may_campaign(state: RaftState) -> bool:
    """A whole replica that is a voter; or was one until a membership that is not known to be
    committed (thesis 4.2.2): when only such replicas hold that entry, nobody else can be elected.
    Its votes are counted by the newer membership, in which it has none itself."""
    if state.damaged or state.role is STOPPED:
        return False
    return state.voter or (
        state.membership_index > state.commit
        and len(state.memberships) > 1
        and state.memberships[-2][1].is_voter(state.me)
    )


def _leader_tick(state: RaftState) -> None:
    if state.now >= state.rounds.leads_until(state.options.election_ns):
        probe("step-down-by-own-disk")
        state.rounds.given_up += 1
        transfer.hand_over_and_follow(state, "own disk stalled")
        return
    if state.now < state.heartbeat_deadline:
        return
    if state.options.check_quorum and not _hears_quorum(state):
        probe("step-down-by-check-quorum")
        state.trace("step-down", ("why", "no quorum heard"))
        become_follower(state, state.term, None)
        return
    if buggify("leader-gives-up"):
        transfer.hand_over_and_follow(state, "for no reason")
        return
    transfer.tick(state)
    membership.after_progress(state)
    if state.role is LEADER:
        replication.heartbeats(state)


def _hears_quorum(state: RaftState) -> bool:
    oldest = state.now - state.options.election_ns
    heard = {r: p.covered or p.last_contact >= oldest for r, p in state.progress.items()}
    heard[state.me] = True
    return joint_vote(state.membership, heard) is VoteResult.WON


# --- campaigning ----------------------------------------------------------------------------------


def _begin(state: RaftState) -> None:
    """Begin a campaign, for this replica knows of no leader."""
    if state.rounds.stalled(state.now, state.options.election_ns):
        probe("no-campaign-on-a-stalled-disk")
        state.election_deadline = Instant(state.now + state.options.heartbeat_ns)
        return
    if state.options.pre_vote and state.membership.all_voters() != (state.me,):
        _pre_campaign(state)
    else:
        campaign(state, transfer_asked=False)


def _pre_campaign(state: RaftState) -> None:
    """Ask whether an election could be won, before a new term disturbs the group."""
    if not _term_left(state):
        return
    end_cover(state)
    state.role = PRE_CANDIDATE
    state.leader = None
    state.votes = {state.me: True}
    state.election_deadline = Instant(state.now + (state.draw_timeout() << _patience(state)))
    state.campaigns += 1
    state.trace("pre-campaign")
    term, log = Term(state.term + 1), state.log
    for voter in _other_voters(state):
        state.send.append(
            PreVoteRequest(state.group, state.me, voter, term, log.last_index, log.last_term)
        )


def _patience(state: RaftState) -> int:
    """How often the time to the next attempt is doubled. The first attempts keep the usual pace;
    later ones wait up to eight times as long. A thousand groups whose replicas ask in vain, since
    their nodes have more to do than they can, would otherwise never let them catch up."""
    return min(max(0, state.campaigns - EAGER_CAMPAIGNS), PATIENCE_MAX)


def campaign(state: RaftState, *, transfer_asked: bool) -> None:
    """A new term, and our own vote in it. Nothing leaves or counts before both are durable."""
    if not _term_left(state):
        return
    become_follower(state, Term(state.term + 1), None)
    state.role = CANDIDATE
    state.election_deadline = Instant(state.now + (state.election_timeout << _patience(state)))
    state.vote = state.me
    state.transfer_campaign = transfer_asked
    state.trace("campaign", ("last_index", state.log.last_index))
    log = state.log
    for voter in _other_voters(state):
        state.promise(
            VoteRequest(
                state.group,
                state.me,
                voter,
                state.term,
                log.last_index,
                log.last_term,
                transfer_asked,
            )
        )


def _term_left(state: RaftState) -> bool:
    if state.term < TERM_MAX:
        return True
    stop(state, f"term {state.term} is the last one")
    return False


def _other_voters(state: RaftState) -> list[ReplicaId]:
    return [voter for voter in state.membership.all_voters() if voter != state.me]


def own_vote_durable(state: RaftState) -> None:
    """A round is synced. If it was the one with our (term, vote), our own vote counts from now on.
    A candidacy that began in this very turn is in no round yet."""
    if state.hard_state_dirty:
        probe("campaigned-before-an-older-round-was-synced")
    elif state.role is CANDIDATE and state.rounds.hard_states == 0:
        assert state.vote == state.me, (state.vote, state.me)
        state.votes[state.me] = True
        _count(state)


def _count(state: RaftState) -> None:
    result = joint_vote(state.membership, state.votes)
    if result is VoteResult.LOST:
        probe("election-lost")
        become_follower(state, state.term, None)
    elif result is VoteResult.WON and state.role is PRE_CANDIDATE:
        campaign(state, transfer_asked=False)
    elif result is VoteResult.WON and state.votes.get(state.me):
        _lead(state)


def _lead(state: RaftState) -> None:
    """We have the votes of this term. Its first entry is appended at once (Raft 8)."""
    assert state.role is CANDIDATE, state.role
    state.role = LEADER
    state.campaigns = 0
    state.leader = state.me
    state.votes.clear()
    state.reads = Reads()
    state.ready = False
    state.commit_urgent = False
    state.lease_given_up = False
    state.election_deadline = NEVER
    state.heartbeat_deadline = Instant(state.now + state.options.heartbeat_ns)
    state.progress.clear()
    membership.follow_everyone(state, RaftIndex(state.log.last_index + 1))
    start = TermStart(state.me, _NOBODY)
    state.term_start = append_control(
        state, EntryKind.TERM_START, write_term_start(start)
    ).raft_index
    settle_transfer(state, state.me)
    state.trace("lead", ("term_start", state.term_start))


# --- being asked ----------------------------------------------------------------------------------


def _is_led(state: RaftState) -> bool:
    """Whether we heard from a live leader within the shortest election timeout (thesis 4.2.3), or
    have promised one to elect nobody."""
    if lease.binds(state):
        return True
    if not state.options.check_quorum:
        return False
    if state.role is LEADER:
        return True
    if state.leader is None:
        return False
    return state.covered or state.now - state.leader_contact < state.options.election_ns


def _is_up_to_date(state: RaftState, last_term: Term, last_index: RaftIndex) -> bool:
    """The last terms decide before the lengths (Raft 5.4.1). A damaged voter speaks for what it
    once held: its durable mark."""
    ours = (state.log.last_term, state.log.last_index)
    if state.damaged is not None:
        ours = max(ours, (state.damaged.term, state.damaged.raft_index))
    return (last_term, last_index) >= ours


def on_pre_vote_request(state: RaftState, message: PreVoteRequest) -> None:
    """Would we vote for it? Changes nothing here."""
    led = _is_led(state)
    fits = message.term > state.term
    granted = fits and not led and _is_up_to_date(state, message.last_term, message.last_index)
    if not granted:
        probe("pre-vote-refused")
        _reassure(state, message.sender)
    term = message.term if granted else state.term
    state.send.append(PreVoteReply(state.group, state.me, message.sender, term, granted))


def _reassure(state: RaftState, replica: ReplicaId) -> None:
    """A follower of ours that looks for a leader has not heard us: speak to it, and stop believing
    that heartbeats of the pair of nodes reach its group."""
    follower = state.progress.get(replica)
    if state.role is not LEADER or follower is None:
        return
    if follower.covered:
        probe("pre-vote-of-a-covered-follower")
        replication.uncover(follower, follower.last_contact)
        state.out.uncovered.append(replica)
    replication.send_heartbeat(state, follower)


def on_pre_vote_reply(state: RaftState, message: PreVoteReply) -> None:
    """A granted one speaks of the term that we asked for, a refused one of the replier's own."""
    if not message.granted and message.term > state.term:
        become_follower(state, message.term, None)
        return
    asked = state.role is PRE_CANDIDATE
    if not asked or (message.granted and message.term != state.term + 1):
        probe("pre-vote-reply-too-late")
        return
    state.votes.setdefault(message.sender, message.granted)
    _count(state)


def on_vote_request(state: RaftState, message: VoteRequest) -> None:
    """One vote a term, to a log at least as up to date as ours, synced before it is told."""
    if message.term > state.term:
        if _is_led(state) and not message.transfer:
            probe("vote-request-while-led")
            return
        become_follower(state, message.term, None)
    if lease.binds(state) and not message.transfer:
        probe("vote-request-against-a-promise")  # something else had raised our term before
        return
    granted = (
        message.term == state.term
        and state.vote in (None, message.sender)
        and _is_up_to_date(state, message.last_term, message.last_index)
        and not buggify("vote-refused")
    )
    if granted:
        if state.vote is None:
            state.vote = message.sender
            state.hard_state_dirty = True
        state.election_deadline = Instant(state.now + state.election_timeout)
        state.trace("vote", ("for", str(message.sender)))
    state.promise(VoteReply(state.group, state.me, message.sender, state.term, granted))


def on_vote_reply(state: RaftState, message: VoteReply) -> None:
    """Keyed by voter: a second answer of the same one changes nothing."""
    if message.term > state.term:
        become_follower(state, message.term, None)
    elif message.term < state.term or state.role is not CANDIDATE:
        probe("vote-reply-too-late")
    else:
        state.votes.setdefault(message.sender, message.granted)
        _count(state)


def on_timeout_now(state: RaftState, message: TimeoutNow) -> None:
    """Our leader hands over: campaign at once, without a pre-vote."""
    if message.term > state.term:
        become_follower(state, message.term, message.sender)
    fit = state.role is FOLLOWER and _may_campaign(state)
    if message.term < state.term or not fit:
        probe("timeout-now-ignored")
        return
    campaign(state, transfer_asked=True)


# --- links and covers -----------------------------------------------------------------------------


def on_link_down(state: RaftState, node: NodeId) -> None:
    """The link to our leader's node fell: do not wait for the whole timeout. The pre-vote asks
    those who may still hear it, so a healthy leader is not disturbed by one broken link."""
    if state.role is not FOLLOWER or state.leader is None or state.leader.node != node:
        return
    # a covered follower's deadline stands still, usually in the past: with it all followers would
    # campaign at this very instant, and split the votes
    known = NEVER if state.covered else state.election_deadline
    state.covered = False
    state.agreed = False
    state.leader_contact = LONG_AGO
    beat = state.options.heartbeat_ns
    soon = Instant(state.now + beat + state.entropy.below(beat))
    state.election_deadline = min(known, soon)


def on_link_up(state: RaftState, node: NodeId) -> None:
    """A new link session began: the leader must tell its leadership and term again.

    Without a leader, the election may have waited for this very node: campaign soon.
    """
    if state.leader is None:
        state.campaigns = 0
        soon = Instant(state.now + state.draw_timeout())
        state.election_deadline = min(state.election_deadline, soon)
    elif state.leader.node == node:
        state.agreed = False


def cover(state: RaftState, peer: ReplicaId) -> bool:
    """Our leader's node beats for it. False when it is not our leader (any more)."""
    if state.role is not FOLLOWER or state.leader != peer or not state.agreed:
        return False
    state.covered = True
    return True


def uncover(state: RaftState, peer: ReplicaId, last_contact: Instant) -> None:
    """Node heartbeats no longer cover our leader; it was last known alive at `last_contact`."""
    if not state.covered or state.leader != peer:
        return
    state.covered = False
    state.leader_contact = max(state.leader_contact, last_contact)
    soon = Instant(state.now + state.entropy.below(state.options.heartbeat_ns))
    state.election_deadline = max(soon, Instant(state.leader_contact + state.election_timeout))
