"""The leader's side of a throttle: which follower waits, and what it has reserved.

See `throttle` for the budgets. A follower waits only while it is a learner: what a voter lacks may
be what the next commit needs.
"""

from raftlog.raft.progress import Progress
from raftlog.raft.state import RaftState
from raftlog.raft.throttle import Slot, Throttle


def limits_on(state: RaftState, follower: Progress) -> tuple[Throttle, ...]:
    """The throttles that bound this follower; none for a voter."""
    throttling = state.options.throttling
    if throttling is None or not throttling.bounds or state.membership.is_voter(follower.replica):
        return ()
    return throttling.limits(follower.replica.node)


def slot_of(state: RaftState, follower: Progress, limits: tuple[Throttle, ...]) -> Slot:
    """The follower's slot, reserved now if it has none that counts."""
    throttling = state.options.throttling
    assert throttling is not None, follower.replica
    slot = follower.slot
    if slot is None or slot.stamp != throttling.stamp(limits):
        slot = throttling.reserve(limits, state.now, state.options.append_bytes_max)
        follower.slot = slot
    return slot


def settle(state: RaftState, follower: Progress, byte_count: int) -> None:
    """So many bytes were sent in the follower's slot, which is used up."""
    slot, throttling = follower.slot, state.options.throttling
    if slot is None or throttling is None:
        return
    follower.slot = None
    limits = throttling.limits(follower.replica.node)
    # A slot from before a change of the rates was never charged to the budgets of now.
    charged = slot.byte_count if slot.stamp == throttling.stamp(limits) else 0
    for each in limits:
        each.settle(byte_count - charged)


def near_end(state: RaftState, follower: Progress) -> bool:
    """Whether a learner may be promoted as far as throttles go. A voter is not throttled: what a
    learner lacked when it was promoted would go out at once. So it must have been sent everything
    up to our last entry in one of its slots; what came since is small."""
    held = follower.match == state.log.last_index
    return held or follower.at_end or not limits_on(state, follower)
