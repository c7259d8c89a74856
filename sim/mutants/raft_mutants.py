"""Planted bugs of Raft itself. Each function breaks one rule in this process.

Only `raftlog_sim.hunting.mutation` loads this file; nothing here is ever installed. A number with a
letter is another variant of the same mistake.
"""

from collections.abc import Sequence
from typing import Any

from raftlog.base.entries import Entry, HardState
from raftlog.base.ids import RaftIndex, Term
from raftlog.base.units import Nanos
from raftlog.raft import (
    election,
    following,
    install,
    lease,
    membership,
    node,
    quorum,
    reads,
    replication,
)
from raftlog.raft.messages import Append, AppendReply, VoteReply
from raftlog.raft.options import RaftOptions
from raftlog.raft.progress import PROBE, REPLICATE, Progress
from raftlog.raft.rounds import RaftRounds
from raftlog.raft.state import CANDIDATE, FOLLOWER, LEADER, RaftState
from raftlog.storage.directories import store as storage_store


def one_replica_commits() -> None:
    """canary: an entry on any one voter counts as committed, however many voters there are.

    Only a broken simulator can miss it.
    """

    def majority_committed(voters: Any, match: Any) -> RaftIndex:
        if not voters:
            return quorum.EVERYTHING
        return RaftIndex(max(match.get(voter, 0) for voter in voters))

    quorum.majority_committed = majority_committed


def vote_before_its_sync() -> None:
    """1: messages that must wait for the disk leave at once."""

    def promise(self: RaftState, message: Any) -> None:
        self.send.append(message)

    RaftState.promise = promise  # type: ignore[method-assign]


def term_not_persisted() -> None:
    """2: the stored (term, vote) is always that of a replica that never voted."""
    real = storage_store.hard_state_record

    def forgetful(group: Any, state: Any) -> bytes:
        del state
        return real(group, HardState(Term(0), None))

    storage_store.hard_state_record = forgetful


def acknowledged_before_its_sync() -> None:
    """3: a round counts as durable as soon as it is handed out, on leaders and followers alike."""
    real = RaftRounds.begin

    def begin(self: RaftRounds, io_id: Any, last_index: RaftIndex, **more: Any) -> None:
        real(self, io_id, last_index, **more)
        self.durable = max(self.durable, last_index)

    RaftRounds.begin = begin  # type: ignore[method-assign]


def old_term_committed_by_count() -> None:
    """4: the leader commits entries of earlier terms by counting (figure 8)."""
    real = replication.maybe_commit

    def maybe_commit(state: RaftState) -> None:
        start, state.term_start = state.term_start, RaftIndex(0)
        try:
            real(state)
        finally:
            state.term_start = start

    replication.maybe_commit = maybe_commit


def votes_counted_without_their_voter() -> None:
    """5: a second reply of the same voter counts as another voter's."""

    def on_vote_reply(state: RaftState, message: VoteReply) -> None:
        if message.term != state.term or state.role is not CANDIDATE or not message.granted:
            real(state, message)
            return
        for voter in state.membership.all_voters():
            if voter not in state.votes:
                state.votes[voter] = True
                break
        election._count(state)

    real = election.on_vote_reply
    node._HANDLERS[VoteReply] = on_vote_reply


def every_append_truncates() -> None:
    """6: all entries behind the seam of an append are dropped, whatever they are."""
    real = following._skip_known

    def skip(state: RaftState, message: Append, entries: Sequence[Entry]) -> int | None:
        first = RaftIndex(message.prev_index + 1)
        if state.commit < first <= state.log.last_index:
            following.truncate(state, first)
        return real(state, message, entries)

    following._skip_known = skip


def conflicting_suffix_kept() -> None:
    """7: existing entries count as the leader's, whatever their term."""

    def skip(state: RaftState, message: Append, entries: Sequence[Entry]) -> int:
        del message
        return sum(entry.raft_index <= state.log.last_index for entry in entries)

    following._skip_known = skip


def seam_not_compared() -> None:
    """8: the entry before the first one sent is not compared."""
    following._seam_holds = lambda state, message: message.prev_index <= state.log.last_index


def stale_log_gets_votes() -> None:
    """9: the up-to-date check is gone."""
    election._is_up_to_date = lambda state, last_term, last_index: True


def length_before_term() -> None:
    """9b: the longer log is the newer one."""

    def is_up_to_date(state: RaftState, last_term: Term, last_index: RaftIndex) -> bool:
        return (last_index, last_term) >= (state.log.last_index, state.log.last_term)

    election._is_up_to_date = is_up_to_date


def leader_ignores_newer_terms() -> None:
    """10: no message of a newer term makes a leader follow, nor does silence.

    Check-quorum is the second fence behind the same rule, so it goes too.
    """
    for kind, handler in list(node._HANDLERS.items()):

        def deaf(state: RaftState, message: Any, handler: Any = handler) -> None:
            if not (state.role is LEADER and message.term > state.term):
                handler(state, message)

        node._HANDLERS[kind] = deaf
    election._hears_quorum = lambda state: True


def reads_without_a_quorum() -> None:
    """11: no majority confirms the read index."""
    reads._is_echoed = lambda state, context: True


def leases_without_a_promise() -> None:
    """12: a voter that echoed a round may elect another replica at once."""
    lease.promise = lambda state: state.options.lease_ns


def promises_forgotten_at_boot() -> None:
    """12b: a voter that crashed has promised nothing."""
    lease.boot = lambda state: None


def lease_outlives_its_promise() -> None:
    """12c: the leader counts on twice the time that the voters promised."""
    lease.DRIFT_PERMILLE = -1_000


def install_applied_twice() -> None:
    """30: an install is taken though the follower holds that entry already."""
    real = install.on_piece

    def on_piece(state: RaftState, message: Any) -> None:
        position = message.position
        if position.raft_index <= state.commit:
            received = install._assemble(state, message)
            if received >= message.total and state.receiving is not None:
                snapshot, state.receiving = bytes(state.receiving.buffer), None
                install._switch(state, position, snapshot)
            return
        real(state, message)

    install.on_piece = on_piece


def install_off_by_one() -> None:
    """15: after an install the entry behind it counts as held."""
    real = install._switch

    def switch(state: RaftState, position: Any, snapshot: bytes) -> None:
        real(state, position, snapshot)
        state.verified = RaftIndex(position.raft_index + 1)
        state.rounds.durable = max(state.rounds.durable, state.verified)

    install._switch = switch


def install_keeps_a_longer_log() -> None:
    """15b: a follower that has an entry at that index keeps its log, whatever that term is."""
    real = install.on_piece

    def on_piece(state: RaftState, message: Any) -> None:
        index = message.position.raft_index
        if state.commit < index <= state.log.last_index:
            install._already_there(state, index)
        else:
            real(state, message)

    install.on_piece = on_piece


def membership_at_commit() -> None:
    """18: a membership counts when it is committed, not when it is appended."""

    def in_force(state: RaftState) -> Any:
        committed = [pair for pair in state.memberships if pair[0] <= state.commit]
        return (committed or state.memberships[:1])[-1]

    RaftState.membership = property(lambda state: in_force(state)[1])  # type: ignore[assignment]


def two_changes_at_once() -> None:
    """18b: the next step is proposed before the one before it is committed."""
    real = membership.advance

    def advance(state: RaftState) -> None:
        commit, state.commit = state.commit, max(state.commit, state.membership_index)
        try:
            real(state)
        finally:
            if state.commit == max(commit, state.membership_index):
                state.commit = commit

    membership.advance = advance


def removed_node_counts() -> None:
    """18c: every replica that ever acknowledged counts, voter or not."""
    everybody: dict[Any, dict[Any, RaftIndex]] = {}
    real = replication.maybe_commit

    def maybe_commit(state: RaftState) -> None:
        seen = everybody.setdefault((state.group, state.term), {})
        seen.update({replica: each.match for replica, each in state.progress.items()})
        seen[state.me] = state.rounds.durable
        matches = sorted(seen.values(), reverse=True)
        index = matches[(len(state.membership.voters) // 2)] if matches else RaftIndex(0)
        if index >= state.term_start:
            state.commit = max(state.commit, min(index, state.log.last_index))
        real(state)

    replication.maybe_commit = maybe_commit


def learner_counts() -> None:
    """19: a learner's copy counts for a commit."""

    def counting(_: Any, match: Any) -> RaftIndex:
        matches = sorted(match.values(), reverse=True)
        return RaftIndex(matches[len(matches) // 2])

    replication.joint_committed = counting


def half_is_a_majority() -> None:
    """19b: one of two, two of four, and one of three decide."""
    quorum.majority = lambda count: max(1, count // 2)

    def majority_committed(voters: Any, match: Any) -> RaftIndex:
        if not voters:
            return quorum.EVERYTHING
        matches = sorted([match.get(voter, 0) for voter in voters], reverse=True)
        return RaftIndex(matches[max(0, len(matches) // 2 - 1)])

    quorum.majority_committed = majority_committed


def same_election_timeout() -> None:
    """20: all replicas wait equally long, and ask without a pre-vote."""

    def draw_timeout(self: RaftState) -> Nanos:
        self.election_timeout = self.options.election_ns
        return self.election_timeout

    RaftState.draw_timeout = draw_timeout  # type: ignore[method-assign]
    election._pre_campaign = lambda state: election.campaign(state, transfer_asked=False)


def stale_leader_calms() -> None:
    """20b: any append, of whatever term, puts an election off."""
    real = following.on_append

    def on_append(state: RaftState, message: Append) -> None:
        real(state, message)
        if state.role is FOLLOWER:
            state.election_deadline = state.now + 2 * state.election_timeout  # type: ignore[assignment]

    node._HANDLERS[Append] = on_append


def commit_past_what_was_verified() -> None:
    """31: a follower's commit follows the leader's up to its own last entry."""
    real = following.on_append

    def on_append(state: RaftState, message: Append) -> None:
        real(state, message)
        if state.role is FOLLOWER and message.term == state.term:
            state.commit = max(state.commit, min(message.commit, state.log.last_index))

    node._HANDLERS[Append] = on_append


def ended_rounds_stabilise() -> None:
    """32: a write of an ended term makes the entries in its place durable."""
    RaftRounds.cut = lambda self, last_index: None  # type: ignore[method-assign]


def acks_of_ended_terms_count() -> None:
    """33: an append reply of an ended term moves a match (PySyncObj's S7)."""
    real = replication.on_append_reply

    def on_append_reply(state: RaftState, message: AppendReply) -> None:
        if message.term < state.term and state.role is LEADER:
            message = message._replace(term=state.term)
        real(state, message)

    node._HANDLERS[AppendReply] = on_append_reply


def window_never_closes() -> None:
    """45: a leader sends ahead of the answers without end."""

    def has_room(self: Progress, options: RaftOptions) -> bool:
        del options
        return self.state is REPLICATE or (self.state is PROBE and not self.waiting)

    Progress.has_room = has_room  # type: ignore[method-assign]


def removed_replica_is_sent_to() -> None:
    """45b: the sender of a replica that was removed goes on."""

    def follow_everyone(state: RaftState, following: RaftIndex) -> None:
        for replica in state.membership.everyone():
            if replica != state.me and replica not in state.progress:
                state.progress[replica] = Progress(replica, following, state.now)

    membership.follow_everyone = follow_everyone


MUTANTS = (
    ("canary", "one-replica-commits", one_replica_commits,
     ("committed-durable", "commit-rule", "leader-completeness")),
    ("1", "vote-before-its-sync", vote_before_its_sync, ("one-vote-a-term", "election-safety")),
    ("2", "term-not-persisted", term_not_persisted, ("term-monotone", "one-vote-a-term")),
    ("3", "acknowledged-before-its-sync", acknowledged_before_its_sync, ("leader-completeness",)),
    ("4", "old-term-committed-by-count", old_term_committed_by_count, ("leader-completeness",)),
    ("5", "votes-counted-without-their-voter", votes_counted_without_their_voter,
     ("election-safety",)),
    ("6", "every-append-truncates", every_append_truncates, ("leader-completeness",)),
    ("7", "conflicting-suffix-kept", conflicting_suffix_kept, ("log-matching",)),
    ("8", "seam-not-compared", seam_not_compared, ("log-matching",)),
    ("9", "stale-log-gets-votes", stale_log_gets_votes, ("leader-completeness",)),
    ("9b", "length-compared-before-term", length_before_term, ("leader-completeness",)),
    ("10", "leader-ignores-newer-terms", leader_ignores_newer_terms, ("liveness",)),
    ("11", "reads-without-a-quorum", reads_without_a_quorum, ("linearizable-read",)),
    ("12", "leases-without-a-promise", leases_without_a_promise, ("linearizable-read",)),
    ("12b", "promises-forgotten-at-boot", promises_forgotten_at_boot, ("linearizable-read",)),
    ("12c", "lease-outlives-its-promise", lease_outlives_its_promise, ("linearizable-read",)),
    ("15", "install-off-by-one", install_off_by_one, ("order",)),
    ("15b", "install-keeps-a-longer-log", install_keeps_a_longer_log,
     ("log-matching", "committed-immutable")),
    ("18", "membership-in-force-at-commit", membership_at_commit, ("election-safety",)),
    ("18b", "two-membership-changes-at-once", two_changes_at_once, ("election-safety",)),
    ("18c", "removed-replica-counts", removed_node_counts, ("leader-completeness",)),
    ("19", "learner-counts", learner_counts, ("leader-completeness",)),
    ("19b", "half-is-a-majority", half_is_a_majority, ("election-safety",)),
    ("20", "same-election-timeout", same_election_timeout, ("liveness",)),
    ("20b", "stale-leader-calms", stale_leader_calms, ("liveness",)),
    ("30", "install-applied-twice", install_applied_twice, ("committed-immutable",)),
    ("31", "commit-past-what-was-verified", commit_past_what_was_verified,
     ("committed-immutable",)),
    ("32", "ended-rounds-stabilise", ended_rounds_stabilise, ("leader-completeness",)),
    ("33", "acks-of-ended-terms-count", acks_of_ended_terms_count, ("leader-completeness",)),
    ("45", "window-never-closes", window_never_closes, ("bounded",)),
    ("45b", "removed-replica-is-sent-to", removed_replica_is_sent_to, ("bounded",)),
)  # fmt: skip
