"""The membership of a group: effective on append, changed by joint consensus (thesis 4).

The pure part says which configurations may follow one another. The rest keeps the list of
memberships that the log holds. The last one is in force; truncation brings the one before back.
The leader of a group moves it toward a target:

* New voters join as learners, and are promoted when they are near the end of the log.
* More than one change of voters at a time goes through a joint configuration.
* The leader of a joint configuration proposes its end.

A leader proposes a step only when it has committed in its own term and the step before is committed
(Ongaro on raft-dev, 2015).
"""

from raftlog.base.entries import Entry, EntryKind, InstallPosition, Membership
from raftlog.base.errors import LocalMisuse, ProtocolError, RaftlogError
from raftlog.base.ids import RaftIndex, ReplicaId
from raftlog.base.limits import LEARNERS_MAX, VOTERS_MAX
from raftlog.base.probes import probe
from raftlog.raft import lease, pacing, reads, transfer
from raftlog.raft.progress import REPLICATE, Progress
from raftlog.raft.proposals import append_control
from raftlog.raft.state import LEADER, RaftState
from raftlog.records.control import (
    parse_control_entry,
    read_membership_body,
    write_membership_body,
)

# --- which configurations may follow one another --------------------------------------------------


def check_target(target: Membership) -> None:
    """A target is a configuration to stay in. Raises LocalMisuse."""
    if target.joint or target.learners_next:
        raise LocalMisuse("a target membership is never joint")
    if not 1 <= len(target.voters) <= VOTERS_MAX:
        raise LocalMisuse(f"{len(target.voters)} voters", do=f"name 1 to {VOTERS_MAX}")
    if len(target.learners) > LEARNERS_MAX:
        raise LocalMisuse(f"{len(target.learners)} learners", do=f"name at most {LEARNERS_MAX}")
    if any(learner in target.voters for learner in target.learners):
        raise LocalMisuse("a replica is voter and learner at once")


def names(state: RaftState, replica: ReplicaId) -> bool:
    """Whether any membership that this log holds, committed or not, names a replica on the same
    node and data directory."""
    place = replica[:2]
    return any(
        each[:2] == place for _, membership in state.memberships for each in membership.everyone()
    )


def changed_voters(current: Membership, target: Membership) -> int:
    """How many voters come or go."""
    same = sum(voter in current.voters for voter in target.voters)
    return len(current.voters) + len(target.voters) - 2 * same


def enter_joint(current: Membership, target: Membership) -> Membership:
    """The configuration in which both voter sets decide. A voter that is to become a learner does
    so when the joint configuration ends, for until then it counts in the outgoing half."""
    if current.joint:
        raise LocalMisuse("the membership is joint already", do="leave it first")
    if not current.voters:
        raise LocalMisuse("0 voters", do="a joint membership needs both halves")
    check_target(target)
    return Membership(
        voters=target.voters,
        outgoing=current.voters,
        learners=tuple(r for r in target.learners if r not in current.voters),
        learners_next=tuple(r for r in target.learners if r in current.voters),
    )


def leave_joint(current: Membership) -> Membership:
    """The end of a joint configuration: the incoming half alone."""
    if not current.joint:
        raise LocalMisuse("the membership is not joint")
    return Membership(
        voters=current.voters, learners=tuple(sorted(current.learners + current.learners_next))
    )


def simple_change(current: Membership, target: Membership) -> Membership:
    """A change of at most one voter, whose majorities overlap by themselves (thesis 4.1)."""
    if current.joint:
        raise LocalMisuse("the membership is joint", do="leave it first")
    check_target(target)
    if changed_voters(current, target) > 1:
        raise LocalMisuse("more than one voter changes", do="go through a joint membership")
    return target


def next_step(
    current: Membership, target: Membership, caught_up: tuple[ReplicaId, ...]
) -> Membership | None:
    """The configuration to propose next on the way to `target`; None: there, or waiting for a
    learner to catch up. `current` is committed."""
    if current.joint:
        return leave_joint(current)
    incoming = tuple(r for r in target.voters if r not in current.voters)
    staying = tuple(r for r in target.learners if r not in current.voters)
    learners = tuple(sorted(incoming + staying))
    if learners != current.learners:
        return Membership(voters=current.voters, learners=learners)
    if any(r not in caught_up for r in incoming):
        return None
    if target == current:
        return None
    if changed_voters(current, target) == 1:
        return simple_change(current, target)
    return enter_joint(current, target)


# --- the memberships that a log holds -------------------------------------------------------------


def check_control(state: RaftState, entry: Entry) -> None:
    """One of Raft's own entries, from a leader: it must say its own group, term and place, and its
    membership must be one. Raises ProtocolError."""
    control = parse_control_entry(entry.batch, ProtocolError, state.where)
    place = (control.group, control.term, control.raft_index)
    if place != (state.group, entry.term, entry.raft_index):
        raise ProtocolError(f"control entry of another place: {place}", on=state.where)
    if entry.kind is EntryKind.MEMBERSHIP:
        try:
            voters = read_membership_body(control.body).voters
        except RaftlogError as error:
            raise ProtocolError(error.what, on=state.where) from error
        if not voters:
            raise ProtocolError("membership without voters", on=state.where)


def on_appended(state: RaftState, entry: Entry) -> None:
    """A membership entry is in the log: it is in force from here on (thesis 4.1)."""
    body = parse_control_entry(entry.batch, ProtocolError, state.where).body
    _enter(state, entry.raft_index, read_membership_body(body))


def _enter(state: RaftState, index: RaftIndex, membership: Membership) -> None:
    assert index > state.membership_index, (index, state.membership_index)
    kept = state.memberships
    while len(kept) > 1 and kept[1][0] <= state.commit:
        del kept[0]
    kept.append((index, membership))
    lease.end(state)
    _follow_membership(state)


def on_truncated(state: RaftState, index: RaftIndex) -> None:
    """Entries from `index` on are gone, and with them the memberships that they brought."""
    while state.memberships[-1][0] >= index:
        probe("membership-truncated")
        state.memberships.pop()
        assert state.memberships, index
    _follow_membership(state)


def on_installed(state: RaftState, position: InstallPosition) -> None:
    """The log begins anew: with the membership of that place, whatever was there before."""
    state.memberships[:] = [(position.membership_index, position.membership)]
    _follow_membership(state)


def _follow_membership(state: RaftState) -> None:
    membership = state.membership
    state.voter = membership.is_voter(state.me)
    state.trace(
        "membership",
        ("index", state.membership_index),
        ("voters", " ".join(map(str, membership.voters))),
        ("outgoing", " ".join(map(str, membership.outgoing))),
        ("learners", " ".join(map(str, membership.learners))),
    )
    if state.role is LEADER:
        follow_everyone(state, state.log.last_index)
        # those who echoed may be a quorum of these; no lease comes of it, for `lease.end` has
        # forgotten when their rounds were sent
        reads.confirm(state)


def follow_everyone(state: RaftState, following: RaftIndex) -> None:
    """Keep one Progress for each other replica in force, and none for replicas that left.

    The leader probes a new replica from `following` on, an entry that it must get anyway.
    """
    everyone = state.membership.everyone()
    for replica in [r for r in state.progress if r not in everyone]:
        if state.progress.pop(replica).covered:
            state.out.uncovered.append(replica)
    for replica in everyone:
        if replica != state.me and replica not in state.progress:
            state.progress[replica] = Progress(replica, following, state.now)


# --- the leader's work ----------------------------------------------------------------------------


def change(state: RaftState, target: Membership) -> None:
    """Move the group to `target`; asking again is harmless, another target replaces this one."""
    if state.role is not LEADER:
        raise LocalMisuse(f"replica {state.me} does not lead", on=state.where)
    check_target(target)
    state.target = target
    advance(state)


def after_commit(state: RaftState) -> None:
    """The commit index moved: a step may be done, and everybody should know at once."""
    if state.commit_taken < state.membership_index <= state.commit:
        state.commit_urgent = True
    advance(state)


def after_progress(state: RaftState) -> None:
    """A follower came nearer: a learner may be ready."""
    if state.target is not None:
        advance(state)


def advance(state: RaftState) -> None:
    """Propose the next step, if there is one and it may be proposed now."""
    if not state.ready or state.membership_index > state.commit:
        return
    current = state.membership
    if current.joint:
        probe("joint-left")
        if state.log.term_at(state.membership_index) != state.term:
            probe("joint-left-by-a-new-leader")
        _propose(state, leave_joint(current))
    elif state.me not in current.voters:
        probe("leader-removed")
        transfer.hand_over_and_follow(state, "no voter any more")
    elif state.target is not None and state.transferring is None:
        step = next_step(current, state.target, _caught_up(state))
        if step is not None:
            _propose(state, step)
        elif current == state.target:
            state.target = None


def _propose(state: RaftState, membership: Membership) -> None:
    if any(replica in state.membership.learners for replica in membership.voters):
        probe("learner-promoted")
    entry = append_control(state, EntryKind.MEMBERSHIP, write_membership_body(membership))
    _enter(state, entry.raft_index, membership)


def _caught_up(state: RaftState) -> tuple[ReplicaId, ...]:
    """Learners whose durable match is near the end, and that are there: never a damaged one."""
    near = state.log.last_index - state.options.promote_lag_max
    oldest = state.now - state.options.election_ns
    return tuple(
        replica
        for replica, p in state.progress.items()
        if p.match >= near
        and p.state is REPLICATE
        and not p.damaged
        and pacing.near_end(state, p)
        and (p.covered or p.last_contact >= oldest)
    )
