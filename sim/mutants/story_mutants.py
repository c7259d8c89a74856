"""Planted bugs that other systems had: docs/internals/named_scenarios.md lists them.

As in raft_mutants.py.
"""

from typing import Any

import attrs

from raftlog.base.units import NEVER
from raftlog.broker.replicas.partition_manager import PartitionManager
from raftlog.partition.in_sync import InSyncSet
from raftlog.raft import election, install, lease, membership, node, replication, transfer
from raftlog.raft.messages import (
    InstallReply,
    PreVoteReply,
    PreVoteRequest,
    TimeoutNow,
    VoteRequest,
)
from raftlog.raft.progress import Progress
from raftlog.raft.rounds import RaftRounds
from raftlog.raft.state import CANDIDATE, FOLLOWER, LEADER, RaftState
from raftlog.storage.boot import walked_log


def pre_vote_taken_for_a_vote() -> None:
    """5b: a replica that would have voted counts as having voted (canonical/raft 196)."""
    real = election.on_pre_vote_reply

    def on_pre_vote_reply(state: RaftState, message: PreVoteReply) -> None:
        if message.granted and state.role is CANDIDATE:
            state.votes.setdefault(message.sender, True)
            election._count(state)
        else:
            real(state, message)

    node._HANDLERS[PreVoteReply] = on_pre_vote_reply


def leader_that_hears_nobody() -> None:
    """10b: a leader leads on though it hears no other (TigerBeetle's livelock of one direction)."""
    election._hears_quorum = lambda state: True


def lease_outlives_a_pause() -> None:
    """12d: a leader whose lease held at its last look believes it still holds (etcd 20418)."""
    lease.holds = lambda state: state.role is LEADER and state.ready and state.lease_until > 0


def leader_with_a_stalled_disk() -> None:
    """10c: a leader leads on although its own disk stands still (hashicorp 503)."""
    replication.deadline = lambda state: state.heartbeat_deadline
    RaftRounds.stalled = lambda self, now, limit: False  # type: ignore[method-assign]
    RaftRounds.leads_until = lambda self, limit: NEVER  # type: ignore[method-assign]


def install_keeps_the_old_membership() -> None:
    """15c: a replica that was installed goes on with the voters that it knew (openraft 1808)."""

    def on_installed(state: RaftState, position: Any) -> None:
        state.memberships[:] = [(position.membership_index, state.membership)]
        membership._follow_membership(state)

    membership.on_installed = on_installed


def install_never_begins_again() -> None:
    """15d: a follower that lost the pieces it had is sent the next one, until the link breaks."""
    real = install.on_reply

    def on_reply(state: RaftState, follower: Progress, message: InstallReply) -> None:
        if follower.install is None or message.received >= follower.install.next_byte:
            real(state, follower, message)

    install.on_reply = on_reply


def boot_forgets_an_uncommitted_membership() -> None:
    """18d: of the memberships in its log a boot knows only the committed ones (camunda 57389)."""
    real = walked_log._Walker._result

    def result(self: Any, fault: Any, seen: Any) -> Any:
        head, *more = self._parts.memberships
        committed = [pair for pair in more if pair[0] <= self._hint]
        self._parts.memberships = [head, *committed]
        return real(self, fault, seen)

    walked_log._Walker._result = result  # type: ignore[method-assign]


def removed_leader_leads_on() -> None:
    """18e: a leader that is no voter any more stays leader (etcd 11038)."""
    real = transfer.hand_over_and_follow

    def hand_over(state: RaftState, why: str) -> None:
        if why != "no voter any more":
            real(state, why)

    transfer.hand_over_and_follow = hand_over


def learner_refuses_its_vote() -> None:
    """19c: a replica that does not know of its promotion does not vote (raft-rs 57)."""
    for kind in (PreVoteRequest, VoteRequest):
        handler = node._HANDLERS[kind]

        def deaf(state: RaftState, message: Any, handler: Any = handler) -> None:
            if state.voter:
                handler(state, message)

        node._HANDLERS[kind] = deaf


def removal_takes_who_is_there() -> None:
    """42: a removal takes the present replica of the group, whatever its id."""
    real = PartitionManager.delete

    def delete(self: PartitionManager, removal: Any) -> None:
        host = self.hosts.get(removal.group)
        if host is not None:
            removal = attrs.evolve(removal, replica=host.spec.replica)
        real(self, removal)

    PartitionManager.delete = delete  # type: ignore[method-assign]


def min_in_sync_ignored() -> None:
    """43: records are accepted with as many copies as there are."""
    real = InSyncSet.held_by

    def held_by(self: InSyncSet, minimum: int, *more: Any) -> Any:
        del minimum
        return real(self, 1, *more)

    InSyncSet.held_by = held_by  # type: ignore[method-assign]
    InSyncSet.__len__ = lambda self: 1_000  # type: ignore[method-assign]


def new_leader_counts_who_answered() -> None:
    """43b: voters are in sync with a new leader once it has heard from them."""
    real = InSyncSet.lead

    def lead(self: InSyncSet, me: Any, voters: Any, last: Any, now: Any) -> None:
        real(self, me, voters, last, now)
        self._put_out([voter.node for voter in voters if voter != me])

    InSyncSet.lead = lead  # type: ignore[method-assign]


def successor_asks_first() -> None:
    """44: the replica that is handed the leadership asks for pre-votes (dragonboat 223)."""

    def on_timeout_now(state: RaftState, message: TimeoutNow) -> None:
        if message.term == state.term and state.role is FOLLOWER:
            election._pre_campaign(state)

    node._HANDLERS[TimeoutNow] = on_timeout_now


MUTANTS = (
    ("5b", "pre-vote-taken-for-a-vote", pre_vote_taken_for_a_vote, ("election-safety",)),
    ("10b", "leader-that-hears-nobody", leader_that_hears_nobody, ("liveness",)),
    ("10c", "leader-with-a-stalled-disk", leader_with_a_stalled_disk, ("liveness",)),
    ("12d", "lease-outlives-a-pause", lease_outlives_a_pause, ("linearizable-read",)),
    ("15c", "install-keeps-the-old-membership", install_keeps_the_old_membership,
     ("election-safety",)),
    ("15d", "install-never-begins-again", install_never_begins_again, ("liveness",)),
    ("18d", "boot-forgets-an-uncommitted-membership", boot_forgets_an_uncommitted_membership,
     ("election-safety", "committed-durable")),
    ("18e", "removed-leader-leads-on", removed_leader_leads_on, ("liveness",)),
    ("19c", "learner-refuses-its-vote", learner_refuses_its_vote, ("liveness",)),
    ("42", "removal-takes-who-is-there", removal_takes_who_is_there, ("removed-rightly",)),
    ("43", "min-in-sync-ignored", min_in_sync_ignored, ("produce-promise",)),
    ("43b", "new-leader-counts-who-answered", new_leader_counts_who_answered,
     ("in-sync-at-first",)),
    ("44", "successor-asks-first", successor_asks_first, ("liveness",)),
)  # fmt: skip
