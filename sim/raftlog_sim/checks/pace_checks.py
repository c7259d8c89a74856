"""Checks that throttled moves keep their rate, and that only learners ever wait for one.

Rates are taken from the image, not from the product's own budgets. A leader may send twice the
rate, and some slots at once: several learners may have one each when a broker wakes late.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, final

import attrs

from raftlog.base.ids import NodeId
from raftlog.base.limits import THROTTLE_RATE_MIN
from raftlog.broker.events import Effects
from raftlog.metadata.settings.broker_settings import EVERY_BROKER, LEADER_RATE
from raftlog.partition.replica import PartitionReplica
from raftlog.raft.messages import Append
from raftlog.raft.progress import REPLICATE

if TYPE_CHECKING:
    from raftlog_sim.world.node import Node

NAME: Final = "moves-paced"
_LISTS: Final = "leader.replication.throttled.replicas"
_AT_ONCE: Final = 8
_SLOTS_PER_SECOND: Final = 10
_NS_PER_SECOND: Final = 1_000_000_000


@final
@attrs.define(eq=False)
class _Debt:
    """Bytes that a leader sent beyond twice the rate since it began to be throttled so."""

    boots: int
    rate: int
    at: int
    owed: int = 0
    largest: int = 0


@final
@attrs.define(eq=False)
class PaceChecks:
    """Counts the throttled bytes of each broker that has a rate."""

    debts: dict[NodeId, _Debt] = attrs.Factory(dict)

    def after_turn(self, node: "Node", effects: Effects) -> Iterator[tuple[str, str]]:
        """Yields what is wrong with the appends that a broker sent, or held back, in a turn."""
        context = node.broker.context
        settings = context.image.settings
        if not settings:
            return
        own = {**dict(settings.get(EVERY_BROKER, ())), **dict(settings.get(context.node, ()))}
        if LEADER_RATE not in own:
            self.debts.pop(context.node, None)
            return
        rate = max(THROTTLE_RATE_MIN, int(own[LEADER_RATE]))
        debt = self.debts.get(context.node)
        if debt is None or (debt.boots, debt.rate) != (node.boots, rate):
            debt = self.debts[context.node] = _Debt(node.boots, rate, context.now)
        debt.owed = max(0, debt.owed - (context.now - debt.at) * 2 * rate // _NS_PER_SECOND)
        debt.at = context.now
        for send in effects.sends:
            for message in send.messages:
                if type(message) is Append and message.entries:
                    sizes = [len(entry.batch) for entry in message.entries]
                    if _is_throttled(node, message):
                        debt.owed += sum(sizes)
                        debt.largest = max(debt.largest, *sizes)
        allowed = _AT_ONCE * (rate // _SLOTS_PER_SECOND + debt.largest)
        if debt.owed > allowed:
            yield (
                NAME,
                f"broker {context.node} sent learners {debt.owed} bytes more than twice its rate "
                f"of {rate} bytes a second; {allowed} are allowed",
            )
        for replica in context.replicas.values():
            if replica.is_leader and replica.group not in context.touched:
                yield NAME, _held_back(replica)


def _is_throttled(node: "Node", message: Append) -> bool:
    context = node.broker.context
    replica = context.replicas.get(message.group)
    place = context.image.places.get(message.group)
    if replica is None or place is None or not replica.is_leader:
        return False
    listed = context.image.topics[place[0]].config(_LISTS)
    return listed == "*" and not replica.membership.is_voter(message.to)


def _held_back(replica: PartitionReplica) -> str:
    """Returns a voter that the leader could send entries to and did not; "" for none."""
    options, last = replica.node._state.options, replica.log.last_index
    for follower in replica.node.progress.values():
        if (
            replica.membership.is_voter(follower.replica)
            and follower.state is REPLICATE
            and follower.next <= last
            and follower.read_token is None
            and follower.has_room(options)
        ):
            return (
                f"voter {follower.replica} of group {replica.group} lacks entry {follower.next} of "
                f"{last}, has room for it, and was not sent it"
            )
    return ""
