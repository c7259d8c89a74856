"""The leader of a group says who gets what, and asks for the next division when this one leaves a
partition without an owner.

The cooperative assignor leaves out what another member still holds. That member gives it up, joins
again, and so begins the division that hands it over. A static member may die between the two: it
comes back without a rebalance, and does not know of the partition. Only the leader does, so the
leader asks too. It asks at once, and then with pauses, should a member claim in each division what
it was never given.

A static leader that comes back keeps the assignment of its former self, which it has not seen. If
that is cooperative, it may have left something out, so the new one asks as well.
"""

from typing import final

import attrs

from raftlog.base.errors import RaftlogError
from raftlog.base.ports import Entropy
from raftlog.base.probes import probe
from raftlog.base.units import NEVER, Instant
from raftlog.client.core.connections import backoff
from raftlog.client.core.group.assignors import ASSIGNORS
from raftlog.client.core.group.membership import Membership, Phase
from raftlog.client.core.group.protocol import decode_member, encode_assignment
from raftlog.client.core.group.topics import SubscribedTopics
from raftlog.client.core.values import ClientOptions, Turn


@final
@attrs.define(eq=False)
class Leading:
    """See the module."""

    options: ClientOptions
    membership: Membership
    subscribed: SubscribedTopics
    entropy: Entropy
    turn: Turn
    unfinished: int = attrs.field(default=0, init=False)
    """How many divisions in a row left a partition without an owner."""
    again_at: Instant = attrs.field(default=NEVER, init=False)
    """When to ask for the next one."""

    def divide(self) -> None:
        """Hand in who gets what, as soon as all topics are known."""
        membership = self.membership
        try:
            members = [decode_member(each, membership.protocol) for each in membership.members]
            topics = sorted({topic for each in members for topic in each.topics})
            counts = self.subscribed.counts(topics)
        except RaftlogError as error:
            # Another member's words, or more topics than a client can follow. The group is stuck
            # for all of them until that changes, so the user hears of it.
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
        """The members hear who got what."""
        self.again_at = NEVER
        if not self.membership.leads:
            self.unfinished = 0
        elif self.unfinished:
            more = self.unfinished - 1
            pause = backoff(self.options, more, self.entropy) if more else 0
            self.again_at = Instant(self.turn.now + pause)

    def drive(self) -> None:
        """Ask for the next division when it is time."""
        if self.turn.now < self.again_at:
            return
        self.again_at = NEVER
        if self.membership.phase is Phase.STABLE:
            probe("client-group-leader-divides-again")
            self.membership.rejoin_wanted = True
