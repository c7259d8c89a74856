"""Checks that throttled moves keep their rate, and that only learners ever wait for one.

Rates are taken from the image, not from the product's own budgets. A leader may send twice the
rate, and some slots at once: several learners may have one each when a broker wakes late. A copy
between log directories is of one broker alone, and has one slot at a time.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, final

import attrs

from raftlog.base.ids import NodeId
from raftlog.base.limits import THROTTLE_RATE_MIN
from raftlog.broker.events import Effects, Event, JobDone
from raftlog.metadata.settings.broker_settings import (
    DIRECTORY_RATE,
    EVERY_BROKER,
    LEADER_RATE,
    BrokerSettings,
)
from raftlog.partition.replica import PartitionReplica
from raftlog.raft.messages import Append
from raftlog.raft.progress import REPLICATE
from raftlog.storage.directories.directory_move import StretchCopied, copy_stretch

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

    def pay(self, now: int) -> None:
        """Take off what may have been sent since the last time."""
        self.owed = max(0, self.owed - (now - self.at) * 2 * self.rate // _NS_PER_SECOND)
        self.at = now


@final
@attrs.define(eq=False)
class PaceChecks:
    """Counts the throttled bytes of each broker that has a rate."""

    debts: dict[NodeId, _Debt] = attrs.Factory(dict)
    copies: dict[NodeId, _Debt] = attrs.Factory(dict)
    _issued: dict[NodeId, int] = attrs.Factory(dict)
    """The job under way that copies to another log directory, since there has been a rate."""

    def after_turn(self, node: "Node", effects: Effects) -> Iterator[tuple[str, str]]:
        """Yields what is wrong with the appends that a broker sent, or held back, in a turn."""
        context = node.broker.context
        settings = context.image.settings
        if not settings:
            return
        debt = _debt_of(node, settings, LEADER_RATE, self.debts)
        if debt is None:
            return
        for send in effects.sends:
            for message in send.messages:
                if type(message) is Append and message.entries:
                    sizes = [len(entry.batch) for entry in message.entries]
                    if _is_throttled(node, message):
                        debt.owed += sum(sizes)
                        debt.largest = max(debt.largest, *sizes)
        rate = debt.rate
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

    def copied(
        self, node: "Node", events: Sequence[Event], effects: Effects
    ) -> Iterator[tuple[str, str]]:
        """Yields what is wrong with the pace at which a broker copies between its directories."""
        context = node.broker.context
        if not context.image.settings or not context.log_directories.further:
            return
        known = self.copies.get(context.node)
        debt = _debt_of(node, context.image.settings, DIRECTORY_RATE, self.copies)
        if debt is None or debt is not known:
            self._issued.pop(context.node, None)  # a job under way began at another rate
            return
        for event in events:
            if type(event) is not JobDone or event.token != self._issued.get(context.node):
                continue
            if isinstance(event.value, StretchCopied):
                debt.owed += event.value.byte_count
        for job in effects.jobs:
            if job.function is copy_stretch:
                self._issued[context.node] = job.token
        allowed = debt.rate  # four slots
        if debt.owed > allowed:
            yield (
                NAME,
                f"broker {context.node} copied {debt.owed} bytes between its log directories more "
                f"than twice its rate of {debt.rate} bytes a second; {allowed} are allowed",
            )


def _debt_of(
    node: "Node", settings: BrokerSettings, name: str, debts: dict[NodeId, _Debt]
) -> _Debt | None:
    """The debt of the broker by now, under the rate that it has; None where it has none."""
    context = node.broker.context
    own: Mapping[str, str] = {
        **dict(settings.get(EVERY_BROKER, ())),
        **dict(settings.get(context.node, ())),
    }
    if name not in own:
        debts.pop(context.node, None)
        return None
    rate = max(THROTTLE_RATE_MIN, int(own[name]))
    debt = debts.get(context.node)
    if debt is None or (debt.boots, debt.rate) != (node.boots, rate):
        debt = debts[context.node] = _Debt(node.boots, rate, context.now)
    debt.pay(context.now)
    return debt


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
