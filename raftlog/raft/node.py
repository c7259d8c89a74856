"""RaftNode: one replica of one group, as a value that is stepped. Dispatch only.

    receive(messages, now)   propose(batches, now, wall_ms)   tick(now)   persisted(io_id, now)
    read_index(token, now)   transfer(to, now)   change_membership(target, now, wall_ms)
    take(io_id) -> Output

Laws:
1. Nothing leaves but through `take`; no call waits, fails or looks at a clock.
2. Nothing is promised before it is durable: votes, vote requests and append replies come out of the
   take after `persisted` of the io_id that carries what they speak of.
3. Only messages addressed to exactly this replica id are heard.
4. A replica that finds its log or its leader contradicting what is proven stops (role STOPPED) and
   says why; it never repairs by guessing.
"""

from collections.abc import Callable, Sequence
from typing import Final, Never, final

from raftlog.base.binary import Buffer
from raftlog.base.entries import (
    Entry,
    EntryKind,
    HardState,
    InstallPosition,
    LogPosition,
    Membership,
)
from raftlog.base.errors import LocalMisuse
from raftlog.base.ids import TERM_MAX, Chain, GroupId, IoId, NodeId, RaftIndex, ReplicaId, Term
from raftlog.base.ports import Entropy, Tracer
from raftlog.base.probes import probe
from raftlog.base.units import Instant, Nanos, WallMillis
from raftlog.raft import (
    election,
    following,
    install,
    lease,
    membership,
    proposals,
    reads,
    replication,
)
from raftlog.raft import transfer as transferring
from raftlog.raft.log_view import RaftLog
from raftlog.raft.messages import (
    Append,
    AppendRefused,
    AppendReply,
    Install,
    InstallReply,
    PreVoteReply,
    PreVoteRequest,
    RaftMessage,
    ReadEcho,
    TimeoutNow,
    Unreadable,
    VoteReply,
    VoteRequest,
)
from raftlog.raft.options import RaftOptions
from raftlog.raft.output import Output
from raftlog.raft.progress import Progress
from raftlog.raft.roles import become_follower, stop
from raftlog.raft.rounds import RaftRounds
from raftlog.raft.state import (
    CANDIDATE,
    FOLLOWER,
    LEADER,
    PRE_CANDIDATE,
    STOPPED,
    Queued,
    RaftState,
    Role,
)

__all__ = ["RaftNode", "Role"]

_Handler = Callable[[RaftState, Never], None]

# Looked up by type: 41 ns, against 365 ns for the last arm of a long class match.
_HANDLERS: Final[dict[type[RaftMessage], _Handler]] = {
    Append: following.on_append,
    AppendReply: replication.on_append_reply,
    AppendRefused: replication.on_append_refused,
    ReadEcho: replication.on_read_echo,
    Install: following.on_install,
    InstallReply: replication.on_install_reply,
    PreVoteRequest: election.on_pre_vote_request,
    PreVoteReply: election.on_pre_vote_reply,
    VoteRequest: election.on_vote_request,
    VoteReply: election.on_vote_reply,
    TimeoutNow: election.on_timeout_now,
    Unreadable: following.on_unreadable,
}

_PROPOSABLE: Final = (EntryKind.LOG_START, EntryKind.MARKER)


@final
class RaftNode:
    """One replica. `now` is integer nanoseconds of one monotonic clock and never goes back.

    `memberships` are (index, membership) pairs as the log holds them, ascending: the head
    header's first, so there is always one. `commit_hint` is a commit index stored earlier.
    `damaged` is the durable mark, when the valid log ends before it; its chain is NO_CHAIN when it
    is not known. A node that finds its log ahead of its stored term starts in the log's term and
    gives no vote in it (its own takes that place).
    """

    __slots__ = ("_state",)

    def __init__(
        self,
        *,
        group: GroupId,
        me: ReplicaId,
        log: RaftLog,
        hard_state: HardState,
        memberships: Sequence[tuple[RaftIndex, Membership]],
        commit_hint: RaftIndex,
        damaged: LogPosition | None = None,
        options: RaftOptions,
        entropy: Entropy,
        tracer: Tracer,
        now: Instant,
    ) -> None:
        assert memberships, group
        assert damaged is not None or commit_hint <= log.last_index, (commit_hint, log.last_index)
        commit = RaftIndex(max(min(commit_hint, log.last_index), log.first_index - 1))
        ahead = log.last_term > hard_state.term
        self._state = RaftState(
            group=group,
            me=me,
            log=log,
            options=options,
            entropy=entropy,
            tracer=tracer,
            where=f"group {group} replica {me}",
            now=now,
            term=log.last_term if ahead else hard_state.term,
            vote=me if ahead else hard_state.vote,
            hard_state_dirty=ahead,
            commit=commit,
            commit_taken=commit,
            memberships=list(memberships),
            voter=memberships[-1][1].is_voter(me),
            damaged=damaged,
            rounds=RaftRounds(log.last_index),
            election_timeout=options.election_ns,
        )
        self._boot(ahead=ahead)

    def _boot(self, *, ahead: bool) -> None:
        state = self._state
        if ahead:
            probe("term-raised-by-the-log")
        if state.term > TERM_MAX:
            stop(state, f"term {state.term} is above the highest one")
            return
        alone = state.membership.all_voters() == (state.me,)
        state.election_deadline = Instant(state.now + (0 if alone else state.draw_timeout()))
        lease.boot(state)
        state.trace("boot", ("commit", state.commit), ("last_index", state.log.last_index))

    # --- what a driver may ask --------------------------------------------------------------------

    @property
    def group(self) -> GroupId:
        return self._state.group

    @property
    def me(self) -> ReplicaId:
        return self._state.me

    @property
    def role(self) -> Role:
        return self._state.role

    @property
    def leading(self) -> bool:
        """Whether this replica leads its term (perhaps without having committed in it yet)."""
        return self._state.role is LEADER

    @property
    def awaits_answers(self) -> bool:
        """Leads, and acknowledgements of followers should be handed in at once."""
        return replication.awaits_answers(self._state)

    @property
    def ready(self) -> bool:
        """Leads, has committed in its own term, and is not handing over: takes proposals."""
        return self._state.ready and self._state.transferring is None

    @property
    def term(self) -> Term:
        return self._state.term

    @property
    def vote(self) -> ReplicaId | None:
        return self._state.vote

    @property
    def leader(self) -> ReplicaId | None:
        """Whom this replica knows to lead its term."""
        return self._state.leader

    @property
    def commit(self) -> RaftIndex:
        return self._state.commit

    @property
    def durable(self) -> RaftIndex:
        """The last index that survives a crash of this replica."""
        return self._state.rounds.durable

    @property
    def term_durable(self) -> bool:
        """Whether the present term, and the vote in it, survive a crash of this replica."""
        return not (self._state.hard_state_dirty or self._state.rounds.hard_states)

    @property
    def membership(self) -> Membership:
        """The membership in force, committed or not."""
        return self._state.membership

    @property
    def membership_index(self) -> RaftIndex:
        return self._state.membership_index

    def names(self, replica: ReplicaId) -> bool:
        """Whether a membership of this log, committed or not, names its data directory."""
        return membership.names(self._state, replica)

    def standing(self) -> tuple[Term, bool, RaftIndex, RaftIndex]:
        """`term`, `leading`, `commit`, `membership_index`, for who compares them all the time."""
        state = self._state
        return state.term, state.role is LEADER, state.commit, state.memberships[-1][0]

    @property
    def changing(self) -> bool:
        """Whether a membership step is uncommitted, joint, or wanted."""
        state = self._state
        uncommitted = state.membership_index > state.commit
        return uncommitted or state.membership.joint or state.target is not None

    @property
    def progress(self) -> dict[ReplicaId, Progress]:
        """As leader: everybody else in force. To be read only."""
        return self._state.progress

    @property
    def transferring(self) -> ReplicaId | None:
        return self._state.transferring

    @property
    def damaged(self) -> bool:
        return self._state.damaged is not None

    @property
    def successors(self) -> int:
        """How many voters, not damaged, hold all that is committed and were heard lately."""
        return transferring.successors(self._state)

    @property
    def stopped_why(self) -> str | None:
        return self._state.stopped_why

    @property
    def wall_ms(self) -> WallMillis:
        """Unix time for the entries that the node makes itself; the driver sets it each turn."""
        return self._state.wall_ms

    @wall_ms.setter
    def wall_ms(self, value: WallMillis) -> None:
        self._state.wall_ms = value

    # --- what happens -----------------------------------------------------------------------------

    def receive(self, messages: Sequence[RaftMessage], now: Instant) -> None:
        """Hear messages of this group, in order; drop those for another group or replica id."""
        state = self._state
        me, group, state.now = state.me, state.group, now
        for message in messages:
            if message.to != me or message.group != group:
                probe("message-not-addressed-to-me")
                if message.to.directory != me.directory:
                    probe("message-to-a-wiped-directory-dropped")
            elif message.term > TERM_MAX or state.role is STOPPED:
                probe("message-refused")
            else:
                _HANDLERS[type(message)](state, message)  # type: ignore[arg-type]  # by its own type

    def propose(
        self, batches: Sequence[Buffer], now: Instant, wall_ms: WallMillis
    ) -> tuple[RaftIndex, RaftIndex]:
        """Append record batches that carry the offsets that follow and our term; first and last
        index. Raises LocalMisuse, with nothing changed, when not `ready` or a batch does not
        fit."""
        state = self._state
        state.now, state.wall_ms = now, wall_ms
        proposals.check_ready(state)
        return proposals.append_batches(state, batches)

    def propose_control(
        self, kind: EntryKind, body: bytes, now: Instant, wall_ms: WallMillis
    ) -> RaftIndex:
        """Append a log-start or periodic marker. Raises LocalMisuse as `propose` does."""
        state = self._state
        state.now, state.wall_ms = now, wall_ms
        proposals.check_ready(state)
        if kind not in _PROPOSABLE:
            raise LocalMisuse(f"{kind.name} is not for callers to propose", on=state.where)
        return proposals.append_control(state, kind, body).raft_index

    def tick(self, now: Instant) -> None:
        """The deadline of the last Output has come; harmless at any other time."""
        self._state.now = now
        if self._state.role is not STOPPED:
            election.tick(self._state)

    def wants_to_campaign(self, now: Instant) -> bool:
        """Whether `tick` would begin a campaign; a driver of many groups may put it off."""
        state = self._state
        return state.role is not LEADER and now >= election.campaign_deadline(state)

    def hasten(self, deadline: Instant) -> None:
        """Campaign at `deadline` at the latest if nobody leads by then: a new group's preferred
        replica need not wait for its election timeout."""
        state = self._state
        if state.leader is None and not state.covered:
            state.election_deadline = min(state.election_deadline, deadline)

    def defer(self, pause: Nanos) -> None:
        """Campaign later by that much, unless somebody leads by then: the other side of `hasten`.
        A replica without other voters has nobody to wait for."""
        state = self._state
        alone = state.membership.all_voters() == (state.me,)
        if state.role is FOLLOWER and state.leader is None and not (state.covered or alone):
            state.election_deadline = Instant(state.election_deadline + pause)

    def put_off(self, deadline: Instant) -> None:
        """Do not campaign before then, because it would be in vain; a sole voter still may."""
        state = self._state
        if state.membership.all_voters() != (state.me,):
            state.election_deadline = max(state.election_deadline, deadline)

    def written(self, io_id: IoId) -> None:
        """The round can be read back, but is not durable yet: nothing moves."""

    def persisted(self, io_id: IoId, now: Instant) -> None:
        """The round is synced. Rounds that this node did not use, or that ended, are ignored."""
        state = self._state
        state.now = now
        if state.role is STOPPED or not state.rounds.complete(io_id, now):
            return
        if state.role is LEADER:
            replication.maybe_commit(state)
        elif state.role is CANDIDATE:
            election.own_vote_durable(state)
        elif state.role is FOLLOWER:
            following.durable_moved(state)
        if state.rounds.given_up and (state.ready if state.role is LEADER else state.leader):
            state.rounds.forgive(state.options.election_ns)

    def io_failed(self, now: Instant) -> None:
        """A write of this replica failed: what its disk holds is unknown until it was reopened."""
        state = self._state
        state.now = now
        probe("write-failed")
        if state.role is LEADER:
            transferring.hand_over_and_follow(state, "write failed")
        stop(state, "write failed")

    def step_down(self, now: Instant, why: str) -> None:
        """Stop leading (no space, a bad range, a poisoned disk), handing over where possible."""
        self._state.now = now
        if self._state.role is LEADER:
            transferring.hand_over_and_follow(self._state, why)
        elif self._state.role in (CANDIDATE, PRE_CANDIDATE):
            become_follower(self._state, self._state.term, None)

    def hand_over(self, now: Instant) -> None:
        """Transfer the leadership to a voter that could lead, if there is one, and lead on until it
        does. Each call asks the one that was asked longest ago."""
        self._state.now = now
        transferring.hand_over(self._state)

    def read_index(self, token: int, now: Instant) -> None:
        """Ask from which index on a linearizable read may be served; see `Output.reads`."""
        self._state.now = now
        reads.read_index(self._state, token)

    def transfer(self, to: ReplicaId, now: Instant) -> None:
        """Hand leadership to a voter; see `Output.transfer_done`. Raises LocalMisuse."""
        self._state.now = now
        transferring.transfer(self._state, to)

    def change_membership(self, target: Membership, now: Instant, wall_ms: WallMillis) -> None:
        """Move the group toward `target`, in as many steps as are safe. Raises LocalMisuse."""
        state = self._state
        state.now, state.wall_ms = now, wall_ms
        membership.change(state, target)

    def cancel_change(self, now: Instant) -> None:
        """Propose no further step; a joint configuration that is in the log is still left."""
        self._state.now, self._state.target = now, None

    def link_up(self, node: NodeId, now: Instant) -> None:
        """A new link session with a node: earlier messages to it may be lost."""
        state = self._state
        state.now = now
        if state.role is LEADER:
            replication.on_link_up(state, node)
        else:
            election.on_link_up(state, node)

    def link_down(self, node: NodeId, now: Instant) -> None:
        """The link session with a node is over."""
        state = self._state
        state.now = now
        if state.role is LEADER:
            replication.on_link_down(state, node)
        else:
            election.on_link_down(state, node)

    def cover(self, peer: ReplicaId, now: Instant) -> bool:
        """Heartbeats of the pair of nodes stand for this group from now on: as leader for that
        follower, as follower for that leader. False when that is not (any more) agreed."""
        state = self._state
        state.now = now
        if state.role is LEADER:
            return replication.cover(state, peer)
        return election.cover(state, peer)

    def uncover(self, peer: ReplicaId, now: Instant, last_contact: Instant) -> None:
        """They stand for it no more; the other side was last heard at `last_contact`."""
        state = self._state
        state.now = now
        if state.role is not LEADER:
            election.uncover(state, peer, last_contact)
        elif peer in state.progress:
            replication.uncover(state.progress[peer], last_contact)

    def log_read_done(
        self, token: int, first_index: RaftIndex, prev_chain: Chain, entries: Sequence[Entry] | None
    ) -> None:
        """Answer to a LogRead: verified entries from `first_index`, or None when that failed."""
        replication.on_log_read(self._state, token, first_index, prev_chain, entries)

    def snapshot_read_done(
        self, token: int, position: InstallPosition | None, snapshot: Buffer
    ) -> None:
        """Answer to a SnapshotRead; without a position it failed."""
        install.on_snapshot_read(self._state, token, position, snapshot)

    def install_whole(self, message: Install) -> bytes | None:
        """The state that this piece would complete; None when it would not."""
        return install.whole_with(self._state, message)

    def stop(self, now: Instant) -> None:
        """Take part no more, for good."""
        self._state.now = now
        stop(self._state, "stopped by its owner")

    def take(self, io_id: IoId) -> Output:
        """Drain the node: what leaves, and what must be written with this io_id."""
        state = self._state
        if state.role is LEADER:
            replication.send_all(state)
        log_changed, dirty = state.log_changed, state.hard_state_dirty
        rounds = state.rounds
        if log_changed or dirty:
            rounds.begin(io_id, state.log.last_index, hard_state=dirty, now=state.now)
            state.log_changed = state.hard_state_dirty = False
        if not rounds.hard_states and (state.ack_wanted or state.promises):
            following.keep_promises(state)
        send, state.send = state.send, []
        commit = state.commit if state.commit != state.commit_taken else None
        state.commit_taken = state.commit
        out = Output(send, state.hard_state() if dirty else None, log_changed, commit)
        leads = state.role is LEADER
        out.deadline = (replication.deadline if leads else election.campaign_deadline)(state)
        if state.queued is not None:
            _add_queued(out, state.queued)
            state.queued = None
        return out


def _add_queued(out: Output, queued: Queued) -> None:
    out.reads = queued.reads
    out.log_reads = queued.log_reads
    out.snapshot_reads = queued.snapshot_reads
    out.installed = queued.installed
    out.verify = queued.verify
    out.agreed = queued.agreed
    out.uncovered = queued.uncovered
    out.transfer_done = queued.transfer_done
