"""Leases: linearizable reads without a round of messages (thesis 6.4.1), off unless asked for.

A follower that echoes a read round promises the leader to elect no other replica for `lease_ns`
from when it heard of the round. The echo says how long that is. The leader counts from when it
*sent* the round, which was earlier. It also subtracts the bound on how far two clocks may drift
apart. While the lease lasts, a quorum refuses its votes to every candidate. So no other leader has
committed anything that the reader could miss.

Dangers to a lease, and the remedy for each:

* The leader itself asks for an election (TimeoutNow, which others obey at once): it gives up its
  lease before, for the rest of its term, for that word may be obeyed late.
* The quorum changes: a membership entry ends the lease; only rounds that the new quorum echoed
  begin another. An election by an older membership needs voters of the quorum that promised too.
* A voter forgets its promise in a crash: for one lease after its boot it neither votes nor
  campaigns, unless it has always been the only voter by a whole log.
* Brokers are of different settings or releases, while they are restarted one by one: the leader
  rests on what the echoes of a quorum say, the least of it, and never on its own setting alone. An
  echo of a release that says nothing counts as no promise.
* A voter is restarted with leases off, or with a shorter election time: its data directory says how
  long an earlier boot may have promised, and the boot promises that again. So the settings may be
  changed by restarting brokers one by one, in any order.
* A voter's term is raised by something else than a request for its vote: the promise binds in the
  new term as well.
* A fallen link makes a follower campaign early: not before its promise ends.
* The leader is not yet up to date: no lease before it has committed in its own term.
* Clocks: `now` must run during suspend, and no clock may run more than DRIFT_PERMILLE faster than
  another. Where that cannot be promised, leases must stay off: this is the only place where Raft's
  safety would depend on time.
"""

from typing import Final

from raftlog.base.probes import probe
from raftlog.base.units import NEVER, Instant, Nanos
from raftlog.raft.quorum import VoteResult, joint_vote
from raftlog.raft.state import LEADER, RaftState

DRIFT_PERMILLE: Final = 100
"""A tenth: crystals drift by 0.1 permille, a clock that is being slewed by NTP by up to 1, so this
leaves room for virtual machines whose clocks catch up after a pause."""

NO_LEASE: Final = Instant(0)
NO_PROMISE: Final = Instant(0)


# --- the leader's side ----------------------------------------------------------------------------


def holds(state: RaftState) -> bool:
    """Whether a read may be answered now, with what is committed now."""
    if state.role is not LEADER or not state.ready:
        return False
    if state.now < state.lease_until:
        return True
    if state.lease_until != NO_LEASE:
        probe("lease-had-run-out")
    return False


def round_sent(state: RaftState, context: int) -> None:
    """A read round begins in this turn."""
    if state.options.lease_ns and not state.lease_given_up:
        state.reads.sent_at[context] = state.now


def round_echoed(state: RaftState, context: int) -> None:
    """A quorum has echoed this round, and with it all earlier ones."""
    sent = state.reads.sent_at
    while sent:
        oldest = next(iter(sent))
        if oldest > context:
            return
        began = sent.pop(oldest)
        lasts = _promised(state, context) * (1000 - DRIFT_PERMILLE) // 1000
        if lasts:
            state.lease_until = max(state.lease_until, Instant(began + lasts))


def _promised(state: RaftState, context: int) -> Nanos:
    """For how long a quorum elects nobody else, each from when it echoed this round or a later one.
    We elect nobody while we hold a lease."""
    said = {
        replica: follower.promised_ns
        for replica, follower in state.progress.items()
        if follower.echoed >= context
    }
    said[state.me] = state.options.lease_ns
    for lasts in sorted(said.values(), reverse=True):
        votes = {replica: True for replica, promised in said.items() if promised >= lasts}
        if joint_vote(state.membership, votes) is VoteResult.WON:
            return min(lasts, state.options.lease_ns)
    return Nanos(0)


def end(state: RaftState) -> None:
    """The quorum that promised is not the one that decides from here on, or we do not lead."""
    state.lease_until = NO_LEASE
    state.reads.sent_at.clear()


def give_up(state: RaftState) -> None:
    """No lease for the rest of this term: others are about to be asked to campaign."""
    end(state)
    state.lease_given_up = True


# --- the voter's side -----------------------------------------------------------------------------


def promise(state: RaftState) -> Nanos:
    """A read round of our leader is being echoed: for how long we promise to elect nobody else."""
    _bind(state, state.options.lease_ns)
    return state.options.lease_ns


def boot(state: RaftState) -> None:
    """Promise again at a boot, for the longest time that a promise before the crash may have had.

    A crash loses the promises. A replica that is the only voter by every membership in its log
    never promised anything. Being so by the last membership alone is not enough. A damaged replica
    knows only the memberships of the valid prefix, so it promises too.
    """
    alone = state.damaged is None and all(
        each.all_voters() == (state.me,) for _, each in state.memberships
    )
    lasts = max(state.options.lease_ns, state.options.earlier_lease_ns)
    if lasts and state.term > 0 and not alone:
        probe("boot-promises-one-lease")
        _bind(state, lasts)


def _bind(state: RaftState, lasts: Nanos) -> None:
    if lasts:
        state.promised_until = max(state.promised_until, Instant(state.now + lasts))


def binds(state: RaftState) -> bool:
    """Whether a promise forbids every election now, this replica's own included."""
    return state.now < state.promised_until


def campaign_from(state: RaftState, deadline: Instant) -> Instant:
    """The deadline, or the end of the promise if that is later. All voters promised in the same
    instant: up to two heartbeats by chance keep them from campaigning in the same one, too."""
    if deadline == NEVER or state.promised_until == NO_PROMISE:
        return deadline
    options = state.options
    chance = state.election_timeout - options.election_ns
    apart = 2 * options.heartbeat_ns * chance // options.election_ns
    return max(deadline, Instant(state.promised_until + apart))
