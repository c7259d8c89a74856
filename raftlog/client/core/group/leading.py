"""The leader's part of a consumer group: divide the partitions, and call for the next rebalance
when a division leaves a partition without an owner.

The cooperative assignor leaves out a partition that another member still holds. That member gives
it up and joins again, which begins the rebalance that hands it over. A static member may die
between these steps: it comes back without a rebalance and does not know of the partition. Only the
leader knows, so the leader asks for a rebalance too. It asks at once, and later with pauses,
because a faulty member may claim in every rebalance a partition that it was never given.

A static leader that comes back after a restart keeps its earlier assignment, which it does not
know. A cooperative division may have left something out, so the leader then asks as well.
"""

from typing import final

import attrs

from raftlog.base.errors import RaftlogError
from raftlog.base.ports import Entropy
from raftlog.base.probes import probe
from raftlog.base.units import NEVER, Instant
from raftlog.client.core.connections import backoff
from raftlog.client.core.group.assignors import ASSIGNORS
from raftlog.client.core.group.membership import GroupMembership, Phase
from raftlog.client.core.group.protocol import decode_member, encode_assignment
from raftlog.client.core.group.topics import SubscribedTopics
from raftlog.client.core.values import ClientOptions, ClientTurn


@final
@attrs.define(eq=False)
class Leading:
    """See the module."""

    options: ClientOptions
    membership: GroupMembership
    subscribed: SubscribedTopics
    entropy: Entropy
    turn: ClientTurn
    unfinished: int = attrs.field(default=0, init=False)
    """How many divisions in a row left a partition without an owner."""
    again_at: Instant = attrs.field(default=NEVER, init=False)
    """When to ask for the next rebalance."""

    def divide(self) -> None:
        """Divide the partitions and hand the division in, as soon as all topics are known."""
        membership = self.membership
        try:
            members = [decode_member(each, membership.protocol) for each in membership.members]
            topics = sorted({topic for each in members for topic in each.topics})
            counts = self.subscribed.counts(topics)
        except RaftlogError as error:
            # Another member's subscription cannot be read, or there are more topics than a client
            # can follow. The whole group is stuck until that changes, so the user gets the error.
            membership.error = error
            membership.forget_generation(keep_member_id=True)
            return
        if counts is None:
            return
        self.subscribed.remember(counts)
        assignor = ASSIGNORS[membership.protocol]
        if membership.keeps_assignment:
            self.unfinished = 1 if assignor.cooperative else 0
            membership.sync({})
            return
        divided = assignor.assign(members, counts)
        given = sum(len(each) for each in divided.values())
        self.unfinished = self.unfinished + 1 if given < sum(counts.values()) else 0
        membership.sync({name: encode_assignment(each) for name, each in divided.items()})

    def assigned(self) -> None:
        """Handle the end of a rebalance: every member has its assignment."""
        self.again_at = NEVER
        if not self.membership.leads:
            self.unfinished = 0
        elif self.unfinished:
            more = self.unfinished - 1
            pause = backoff(self.options, more, self.entropy) if more else 0
            self.again_at = Instant(self.turn.now + pause)

    def drive(self) -> None:
        """Ask for the next rebalance when it is time."""
        if self.turn.now < self.again_at:
            return
        self.again_at = NEVER
        if self.membership.phase is Phase.STABLE:
            probe("client-group-leader-divides-again")
            self.membership.rejoin_wanted = True
