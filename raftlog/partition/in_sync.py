"""The in-sync set of a partition, which its leader computes from what each voter holds durably.

The leader takes a voter out of the set when one of these holds:

* The voter has been silent, or behind the leader's log, for longer than `replica.lag.time.max.ms`.
* Its link session ended, or its broker was fenced.

The voter returns when the leader hears it again and its durable entries reach the committed end.
A new leader counts all its voters as in sync until they prove otherwise, so that an election
causes no NOT_ENOUGH_REPLICAS. In a joint configuration the incoming voters count, so that acks=all
speaks of the set that will stay.

The leader samples progress a few times within that time, not at every acknowledgement. It measures
"behind" as Kafka does (KIP-16). A follower that reaches the end which the leader's log had at some
instant was caught up at that instant, however fast the log grows meanwhile.
"""

from collections.abc import Mapping, Sequence
from typing import Final, Protocol, final

import attrs

from raftlog.base.ids import NodeId, RaftIndex, ReplicaId
from raftlog.base.probes import probe
from raftlog.base.units import NEVER, Instant, Nanos

NOTHING_HELD: Final = RaftIndex(-1)
"""The answer of `held_by` when no entry is held by enough members; below every index."""
_SAMPLES: Final = 8
"""How many times the leader looks at a busy voter within the time that the voter may be behind."""


class FollowerView(Protocol):
    """The part of a leader's knowledge of one follower that is needed here
    (`raft.progress.Progress` by shape)."""

    @property
    def match(self) -> RaftIndex: ...

    @property
    def last_contact(self) -> Instant: ...

    @property
    def covered(self) -> bool: ...


@final
@attrs.define(eq=False)
class _Voter:
    """One voter other than the leader.

    * `target`: the end of the leader's log at the instant `target_at`. When the voter's match
      reaches it, the voter was caught up at `target_at`.
    * `caught_up_at`: the last instant at which the voter is known to have been caught up.
    * `member`: whether it is in sync.
    """

    target: RaftIndex
    target_at: Instant
    caught_up_at: Instant
    member: bool = True


@final
class InSyncSet:
    """The in-sync set of a leader; empty on any other replica. `lead` begins it, `clear` ends it.

    * `deadline`: when `refresh` must be called at the latest, because time alone may put a voter
      out.
    * `lag_ns`: `replica.lag.time.max.ms`, in nanoseconds.
    * `someone_is_out`: whether a voter is not in sync.
    """

    __slots__ = (
        "_cut",
        "_fenced",
        "_linked_at",
        "_me",
        "_members",
        "_voters",
        "deadline",
        "lag_ns",
        "someone_is_out",
    )

    def __init__(self, lag_ns: Nanos) -> None:
        self.lag_ns = lag_ns
        self.deadline = NEVER
        self._me: ReplicaId | None = None
        self._voters: dict[ReplicaId, _Voter] = {}
        self._cut: dict[NodeId, None] = {}
        self._linked_at: dict[NodeId, Instant] = {}
        self._fenced: frozenset[NodeId] = frozenset()
        self._members: tuple[ReplicaId, ...] = ()
        self.someone_is_out = False

    @property
    def _sample_ns(self) -> int:
        return max(1, self.lag_ns // _SAMPLES)

    @property
    def members(self) -> tuple[ReplicaId, ...]:
        """The set, sorted; empty when this replica does not lead."""
        return self._members

    def __len__(self) -> int:
        return len(self._members)

    def lead(
        self, me: ReplicaId, voters: Sequence[ReplicaId], last: RaftIndex, now: Instant
    ) -> None:
        """Begin the set with all voters in it: this replica leads now; `last` ends its log."""
        self._voters = {}
        self._cut = {}
        self._linked_at = {}
        self._me = me
        self.follow_membership(me, voters, last, now)

    def clear(self) -> None:
        """Empty the set: this replica leads no more."""
        self._voters = {}
        self._members = ()
        self._me = None
        self.someone_is_out = False
        self.deadline = NEVER

    def follow_membership(
        self, me: ReplicaId, voters: Sequence[ReplicaId], last: RaftIndex, now: Instant
    ) -> None:
        """Follow the membership's incoming voters. A new voter starts in sync, as after an
        election, and has the whole lag time to prove itself."""
        known = self._voters
        self._voters = {
            voter: known.get(voter) or _Voter(last, now, now) for voter in voters if voter != me
        }
        self._me = me if me in voters else None
        self._count()
        self.watch(now)

    def watch(self, now: Instant) -> None:
        """Look at the voters within one sample: something happened that they must follow."""
        self.deadline = min(self.deadline, Instant(now + self._sample_ns))

    def link_down(self, node: NodeId) -> None:
        """Take out the voters of a node whose link session ended, until the next session."""
        self._cut[node] = None
        self._put_out([node])

    def link_up(self, node: NodeId, now: Instant) -> None:
        """Note that a new session with the node began. Its voters return once the leader hears them
        on it and they hold enough."""
        if node in self._cut:
            del self._cut[node]
            self._linked_at[node] = now

    def fence(self, nodes: Sequence[NodeId]) -> None:
        """Take out the voters of the nodes that group 0 has fenced; `nodes` is the whole set."""
        self._fenced = frozenset(nodes)
        self._put_out(nodes)

    def refresh(
        self,
        progress: Mapping[ReplicaId, FollowerView],
        *,
        last: RaftIndex,
        commit: RaftIndex,
        now: Instant,
    ) -> bool:
        """Judge every voter by its progress now; whether the set changed.

        `last` and `commit` are the leader's.
        """
        before = self._members
        deadline: int = NEVER
        for replica, voter in self._voters.items():
            follower = progress.get(replica)
            if follower is None:
                voter.member = False
                continue
            deadline = min(deadline, self._judge(replica, voter, follower, last, commit, now))
        self.deadline = Instant(deadline)
        self._count()
        return self._members != before

    def held_by(
        self,
        count: int,
        progress: Mapping[ReplicaId, FollowerView],
        durable: RaftIndex,
    ) -> RaftIndex:
        """The highest index that at least `count` members hold durably.

        `durable` is the leader's own. NOTHING_HELD when there are fewer members.
        """
        matches = [
            durable if replica == self._me else progress[replica].match
            for replica in self._members
            if replica == self._me or replica in progress
        ]
        if len(matches) < count:
            return NOTHING_HELD
        matches.sort(reverse=True)
        return matches[count - 1]

    def _judge(
        self,
        replica: ReplicaId,
        voter: _Voter,
        follower: FollowerView,
        last: RaftIndex,
        commit: RaftIndex,
        now: Instant,
    ) -> int:
        """Update one voter; returns the instant at which it must be judged again."""
        heard_at = now if follower.covered else follower.last_contact
        _note_progress(voter, follower.match, last, now)
        unreachable = replica.node in self._cut or replica.node in self._fenced
        linked_at = self._linked_at.get(replica.node, heard_at)
        silent = now - heard_at > self.lag_ns or (heard_at < linked_at and not voter.member)
        if voter.member:
            voter.member = not (unreachable or silent or now - voter.caught_up_at > self.lag_ns)
            if not voter.member:
                probe("in-sync-voter-out")
        elif not unreachable and not silent and follower.match >= commit:
            probe("in-sync-voter-back")
            voter.member = True
            voter.caught_up_at = now
        if not voter.member:
            return NEVER  # a message from it brings it back, time alone does not
        idle = follower.covered and follower.match >= last
        out_at = min(heard_at, voter.caught_up_at) + self.lag_ns + 1
        return NEVER if idle else min(out_at, now + self._sample_ns)

    def _put_out(self, nodes: Sequence[NodeId]) -> None:
        for replica, voter in self._voters.items():
            if replica.node in nodes and voter.member:
                probe("in-sync-voter-cut-off")
                voter.member = False
        self._count()

    def _count(self) -> None:
        members = [replica for replica, voter in self._voters.items() if voter.member]
        if self._me is not None:
            members.append(self._me)
        self._members = tuple(sorted(members))
        self.someone_is_out = len(members) < len(self._voters) + (self._me is not None)


def _note_progress(voter: _Voter, match: RaftIndex, last: RaftIndex, now: Instant) -> None:
    if match >= last:
        voter.caught_up_at = now
        voter.target, voter.target_at = last, now
    elif match >= voter.target:
        voter.caught_up_at = max(voter.caught_up_at, voter.target_at)
        voter.target, voter.target_at = last, now
