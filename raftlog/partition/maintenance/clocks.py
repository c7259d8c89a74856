"""The wall clock by which a leader deletes by age: one that a majority of voters shares.

A leader does not trust its own clock alone. The clock may have jumped, and deleted records stay
deleted. So the leader asks, for each half of the membership, whether a majority of the voters
shows about the same time. A group of one voter has only its own clock.
"""

from typing import Final, Protocol, final

from raftlog.base.entries import Membership
from raftlog.base.ids import NodeId, ReplicaId
from raftlog.base.units import Instant, WallMillis
from raftlog.raft.quorum import VoteResult, joint_vote


class PeerClocks(Protocol):
    """This broker's knowledge of the wall clocks of other nodes."""

    def shares(self, node: NodeId, now: Instant, wall_ms: WallMillis) -> bool:
        """Whether the node's clock was heard lately and agrees with ours, `wall_ms` at `now`."""
        ...


@final
class UnknownClocks:
    """`PeerClocks` of a broker that knows no clock of another node."""

    def shares(self, node: NodeId, now: Instant, wall_ms: WallMillis) -> bool:
        """False for every node."""
        del node, now, wall_ms
        return False


UNKNOWN_CLOCKS: Final = UnknownClocks()


def most_share(
    clocks: PeerClocks, membership: Membership, me: ReplicaId, now: Instant, wall_ms: WallMillis
) -> bool:
    """Whether a majority of the voters, this replica among them, shows our wall clock's time."""
    agree = {
        voter: voter == me or clocks.shares(voter.node, now, wall_ms)
        for voter in membership.all_voters()
    }
    return joint_vote(membership, agree) is VoteResult.WON
