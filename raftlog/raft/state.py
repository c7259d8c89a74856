"""The state of one replica, shared by the modules that each know one part of Raft's rules.

Fields say their invariant and when they move. `node.py` is the only door; the modules change the
state and queue what should leave; `take` drains it.
"""

import enum
from collections.abc import Sequence
from typing import Final, NamedTuple, final

import attrs

from raftlog.base.entries import Entry, EntryKind, HardState, LogPosition, Membership
from raftlog.base.ids import Chain, GroupId, RaftIndex, ReplicaId, Term
from raftlog.base.ports import Entropy, Tracer
from raftlog.base.trace import TraceEvent, TraceValue
from raftlog.base.units import NEVER, Instant, Nanos, WallMillis
from raftlog.raft.log_view import RaftLog
from raftlog.raft.messages import RaftMessage
from raftlog.raft.options import RaftOptions
from raftlog.raft.output import Installed, LogRead, ReadState, SnapshotRead, TransferDone
from raftlog.raft.progress import Progress
from raftlog.raft.rounds import RaftRounds

LONG_AGO: Final = Instant(-(2**62))


@final
class Role(enum.Enum):
    """The role of a replica in its term. The membership says whether it is a learner or a voter."""

    FOLLOWER = "follower"
    PRE_CANDIDATE = "pre-candidate"
    CANDIDATE = "candidate"
    LEADER = "leader"
    STOPPED = "stopped"


# In CPython 3.11 a member looked up through its Enum class costs sixteen times a global name
# (measured), and these are asked for on every message.
RECORDS: Final = EntryKind.RECORDS
MEMBERSHIP: Final = EntryKind.MEMBERSHIP
FOLLOWER: Final = Role.FOLLOWER
PRE_CANDIDATE: Final = Role.PRE_CANDIDATE
CANDIDATE: Final = Role.CANDIDATE
LEADER: Final = Role.LEADER
STOPPED: Final = Role.STOPPED


class PendingRead(NamedTuple):
    """A read-index request. `raft_index` is the commit index when it arrived; `context` the first
    round whose echoes confirm it."""

    token: int
    raft_index: RaftIndex
    context: int


class ReadyAppend(NamedTuple):
    """Entries cut for sending from `first`; kept for one take, for followers usually agree."""

    first: RaftIndex
    prev_term: Term
    prev_chain: Chain
    entries: Sequence[Entry]
    byte_count: int


@final
@attrs.define(eq=False)
class Reads:
    """Read index (thesis 6.4). `context` numbers the rounds of a term; `confirmed` is the newest
    one that a quorum echoed. `parked` wait for the first commit of the term, `unsent` for the
    next take."""

    context: int = 0
    parked: list[int] = attrs.Factory(list)
    unsent: list[PendingRead] = attrs.Factory(list)
    pending: list[PendingRead] = attrs.Factory(list)
    sent_at: dict[int, Instant] = attrs.Factory(dict)
    """With leases: when the rounds that no quorum has echoed yet were first sent, oldest first."""

    def count(self) -> int:
        return len(self.parked) + len(self.unsent) + len(self.pending)


@final
@attrs.define(eq=False)
class InstallReceiver:
    """A snapshot that is arriving, assembled in memory. It belongs to one leader's term."""

    index: RaftIndex
    total: int
    buffer: bytearray = attrs.Factory(bytearray)


@final
@attrs.define(eq=False)
class Queued:
    """The output that leaves with the next take beside messages (see Output). It is made only when
    there is any, for most turns have none."""

    reads: list[ReadState] = attrs.Factory(list)
    log_reads: list[LogRead] = attrs.Factory(list)
    snapshot_reads: list[SnapshotRead] = attrs.Factory(list)
    installed: Installed | None = None
    verify: list[tuple[RaftIndex, RaftIndex]] = attrs.Factory(list)
    agreed: list[ReplicaId] = attrs.Factory(list)
    uncovered: list[ReplicaId] = attrs.Factory(list)
    transfer_done: TransferDone | None = None


@final
@attrs.define(eq=False, kw_only=True)
class RaftState:
    """One replica of one group.

    Everybody:
    * `term`, `vote`: the hard state in memory. The term never falls; the vote of a term never
      changes. `hard_state_dirty`: changed since the last take.
    * `promises`: messages that are true only once the term they speak in is durable; they wait
      there while any (term, vote) is in flight.
    * `commit`: never falls, at most the log's last index. As a follower it moves only over what was
      verified with the leader of this term, as a leader only by entries of its own term.
    * `commit_taken`: the commit index that the last Output told.
    * `memberships`: (index, membership) of every membership entry that can still be truncated,
      and one below those; the last one is in force. Indexes ascend.
    * `voter`: whether this replica is a voter in force.
    * `damaged`: the durable mark, while the log's valid prefix ends before it; None when whole. Its
      chain may be NO_CHAIN, not known.

    Follower:
    * `verified`: the log up to here equals the leader's, by appends of this term.
    * `leader_contact`: when the leader of this term was last heard; LONG_AGO when its link fell.
    * `ack_wanted`: an append reply is due; `acked` is the highest match told in this term.
    * `covered`: heartbeats of the pair of nodes stand for the leader's.
    * `promised_until`: until then this voter elects nobody (raftlog.raft.lease).

    Candidate: `votes`, keyed by voter; only voters in force are counted. `transfer_campaign`:
    asked for by the leader.

    Leader:
    * `term_start`: index of this term's first entry; what is committed at or above it is ours.
    * `ready`: that entry is committed.
    * `target`: the membership that the group is being moved to, or None.
    * `paced_until`: when the first throttled learner may be sent entries; NEVER when none waits.
    * `lease_until`: reads need no round before then. `lease_given_up`: never again in this term.
    """

    group: GroupId
    me: ReplicaId
    log: RaftLog
    options: RaftOptions
    entropy: Entropy
    tracer: Tracer
    where: str

    now: Instant
    wall_ms: WallMillis = WallMillis(0)

    role: Role = FOLLOWER
    term: Term
    vote: ReplicaId | None
    hard_state_dirty: bool = False
    log_changed: bool = False
    leader: ReplicaId | None = None
    commit: RaftIndex
    commit_taken: RaftIndex
    memberships: list[tuple[RaftIndex, Membership]]
    voter: bool
    damaged: LogPosition | None
    rounds: RaftRounds
    send: list[RaftMessage] = attrs.Factory(list)
    queued: Queued | None = None
    promises: list[RaftMessage] = attrs.Factory(list)
    stopped_why: str | None = None

    election_timeout: Nanos
    election_deadline: Instant = NEVER
    leader_contact: Instant = LONG_AGO
    verified: RaftIndex = RaftIndex(0)
    acked: RaftIndex = RaftIndex(0)
    ack_wanted: bool = False
    covered: bool = False
    agreed: bool = False
    receiving: InstallReceiver | None = None
    promised_until: Instant = Instant(0)

    campaigns: int = 0
    """Elections begun in a row without hearing of a leader."""
    votes: dict[ReplicaId, bool] = attrs.Factory(dict)
    transfer_campaign: bool = False

    progress: dict[ReplicaId, Progress] = attrs.Factory(dict)
    term_start: RaftIndex = RaftIndex(0)
    ready: bool = False
    heartbeat_deadline: Instant = NEVER
    commit_urgent: bool = False
    reads: Reads = attrs.Factory(Reads)
    ready_append: ReadyAppend | None = None
    next_token: int = 1
    target: Membership | None = None
    transferring: ReplicaId | None = None
    transfer_deadline: Instant = NEVER
    transfer_watch: ReplicaId | None = None
    heirs_asked: list[ReplicaId] = attrs.Factory(list)
    """Voters that `transfer.hand_over` asked to lead, each once, the last one at the end."""
    paced_until: Instant = NEVER
    lease_until: Instant = Instant(0)
    lease_given_up: bool = False

    @property
    def membership(self) -> Membership:
        return self.memberships[-1][1]

    @property
    def membership_index(self) -> RaftIndex:
        return self.memberships[-1][0]

    @property
    def out(self) -> Queued:
        """Where to put what leaves with the next take."""
        if self.queued is None:
            self.queued = Queued()
        return self.queued

    def token(self) -> int:
        """A number that no earlier request to the driver had."""
        self.next_token += 1
        return self.next_token

    def trace(self, name: str, *fields: tuple[str, TraceValue]) -> None:
        self.tracer.emit(TraceEvent(name, self.where, (("term", self.term), *fields)))

    def hard_state(self) -> HardState:
        return HardState(self.term, self.vote)

    def promise(self, message: RaftMessage) -> None:
        """Queue a message that is true only once our term (and vote) is durable."""
        assert message.term == self.term, (message, self.term)
        self.promises.append(message)

    def draw_timeout(self) -> Nanos:
        """A fresh election timeout, from once to twice the option (thesis 3.4)."""
        base = self.options.election_ns
        self.election_timeout = Nanos(base + self.entropy.below(base))
        return self.election_timeout
