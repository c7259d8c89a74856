"""Leadership transfer (thesis 3.10), and handing over when this replica must stop leading.

The leader takes no more proposals, brings the target up to its last entry, then tells it to
campaign at once. TimeoutNow skips the pre-vote and the stickiness of the others, for the leader
itself asked for it. A transfer that has not succeeded after one election timeout is given up, and
the leader leads on.
"""

from raftlog.base.errors import LocalMisuse
from raftlog.base.ids import ReplicaId
from raftlog.base.probes import probe
from raftlog.base.units import NEVER, Instant
from raftlog.raft import lease
from raftlog.raft.messages import TimeoutNow
from raftlog.raft.output import TransferDone
from raftlog.raft.progress import Progress
from raftlog.raft.roles import become_follower
from raftlog.raft.state import LEADER, RaftState


def transfer(state: RaftState, to: ReplicaId) -> None:
    """Begin. Raises LocalMisuse when we do not lead or `to` is no other voter in force."""
    if state.role is not LEADER:
        raise LocalMisuse(f"replica {state.me} does not lead", on=state.where)
    if to == state.me or to not in state.membership.voters:
        raise LocalMisuse(f"replica {to} is no other voter", on=state.where)
    if state.transferring is not None and state.transferring != to:
        _give_up(state)
    state.transferring = to
    state.transfer_deadline = Instant(state.now + state.options.election_ns)
    state.heartbeat_deadline = min(
        state.heartbeat_deadline, Instant(state.now + state.options.heartbeat_ns)
    )
    state.trace("transfer", ("to", str(to)))
    after_progress(state, state.progress[to])


def after_progress(state: RaftState, follower: Progress) -> None:
    """Its match may have moved: when it holds everything, it is told to campaign."""
    if state.transferring == follower.replica and follower.match == state.log.last_index:
        _tell(state, follower.replica)


def tick(state: RaftState) -> None:
    """Once per heartbeat: tell again, for the first word may be lost; or give up."""
    if state.transferring is None:
        return
    target = state.progress.get(state.transferring)
    if target is None or state.now >= state.transfer_deadline:
        _give_up(state)
    else:
        after_progress(state, target)


def _give_up(state: RaftState) -> None:
    assert state.transferring is not None
    probe("transfer-aborted")
    state.out.transfer_done = TransferDone(state.transferring, ok=False)
    state.transferring = None
    state.transfer_deadline = NEVER


def _tell(state: RaftState, to: ReplicaId) -> None:
    lease.give_up(state)
    state.send.append(TimeoutNow(state.group, state.me, to, state.term))


def hand_over(state: RaftState) -> None:
    """Begin a transfer to a voter that could lead: the one that was asked longest ago.

    While some were never asked, it is the furthest one among them. So each is asked in its turn:
    the leader does not know whether the first one has what this replica lacks.
    """
    heirs = [p for p in state.progress.values() if _could_lead(state, p)]
    if state.role is not LEADER or state.transferring is not None or not heirs:
        return
    asked = state.heirs_asked

    def turn(heir: Progress) -> int:
        return asked.index(heir.replica) + 1 if heir.replica in asked else 0

    best = min(heirs, key=lambda heir: (turn(heir), -heir.match))
    others = [each for each in asked if each in state.progress and each != best.replica]
    state.heirs_asked = [*others, best.replica]
    transfer(state, best.replica)


def hand_over_and_follow(state: RaftState, why: str) -> None:
    """Stop leading now. The voter that is furthest is asked to campaign, so that nobody has to wait
    for an election timeout; if it is not far enough, the others' votes decide against it."""
    assert state.role is LEADER, state.role
    candidates = [p for p in state.progress.values() if _can_succeed(state, p)]
    if state.transferring is not None:
        _tell(state, state.transferring)
    elif candidates:
        best = max(candidates, key=lambda p: p.match)  # the first of equals
        _tell(state, best.replica)
    state.trace("step-down", ("why", why))
    become_follower(state, state.term, None)


def successors(state: RaftState) -> int:
    """How many voters could lead instead of this leader: they hold all that is committed, are not
    damaged, and were heard lately."""
    return sum(_could_lead(state, each) for each in state.progress.values())


def _could_lead(state: RaftState, follower: Progress) -> bool:
    return _can_succeed(state, follower) and follower.match >= state.commit


def _can_succeed(state: RaftState, follower: Progress) -> bool:
    recent = state.now - follower.last_contact <= state.options.election_ns
    is_voter = follower.replica in state.membership.voters
    return is_voter and not follower.damaged and (recent or follower.covered)
