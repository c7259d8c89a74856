"""Stops a broker gracefully: hands leadership over, then waits for the rounds in flight.

A transfer that fails is tried again with another follower until the deadline. The stop does not
wait for a group that no other replica can lead (one replica, no follower in reach).
"""

from typing import Final, final

import attrs

from raftlog.base.ids import ReplicaId
from raftlog.base.units import NEVER, Instant, Nanos, millis
from raftlog.broker.replicas.volume import Volume
from raftlog.broker.turn import Turn
from raftlog.partition.replica import PartitionReplica

_LOOK_NS: Final[Nanos] = millis(20)


@final
@attrs.define(eq=False)
class Stopping:
    """The state of a stop. `deadline` is NEVER until a stop was asked for."""

    turn: Turn
    volume: Volume
    deadline: Instant = NEVER
    done: bool = False
    _asked: dict[int, ReplicaId] = attrs.Factory(dict)
    """Group -> the replica that was last offered its leadership."""

    @property
    def asked(self) -> bool:
        return self.deadline != NEVER

    def begin(self, deadline: Instant) -> None:
        """Start handing over; a second call changes the deadline."""
        first = not self.asked
        self.deadline = deadline
        if first:
            self.turn.trace("stopping", f"node {self.turn.node}")
            self._look()

    def _look(self) -> None:
        """Hand over the groups that are still led here.

        The stop is done at the deadline, or when none is left to wait for.
        """
        leading = [replica for replica in self.turn.replicas.values() if replica.is_leader]
        waiting = False
        for replica in leading:
            waiting = self._hand_over(replica) or waiting
        if self.turn.now >= self.deadline or not (waiting or self.volume.rounds):
            self.done = True
            self.turn.trace("stopped", f"node {self.turn.node}", still_leading=len(leading))
            return
        self.turn.at(Instant(self.turn.now + _LOOK_NS), self._look)

    def _hand_over(self, replica: PartitionReplica) -> bool:
        """Transfer the leadership, one heir at a time; False when no replica can take it."""
        heirs = self._heirs(replica)
        if not heirs:
            return False
        last = self._asked.get(replica.group)
        if replica.node.transferring is None:
            later = [heir for heir in heirs if last is not None and heir > last]
            heir = (later or heirs)[0]
            self._asked[replica.group] = heir
            replica.transfer(heir, self.turn.now)
            self.turn.touch(replica.group)
        return True

    def _heirs(self, replica: PartitionReplica) -> list[ReplicaId]:
        """In-sync voters whose node is linked, by id; else any linked voter."""
        voters = [
            voter
            for voter in replica.membership.voters
            if voter != replica.me and self.turn.link_up(voter.node)
        ]
        in_sync = [voter for voter in voters if voter in replica.in_sync]
        return in_sync or voters
