"""Paces what a leader sends to learners, by budgets that all groups of a broker share.

A partition that moves is copied by its leader to learners. The copy can take the whole network from
clients. A `Throttle` bounds it, in bytes a second:

1. A leader that has entries for a paced learner reserves a slot: when it may send, and how much.
   The throttle gives the next slot only after the bytes of this one have passed at its rate. Slots
   go out in the order in which they are asked for, so no group starves another one.
2. The leader wakes at the slot and sends. The bytes that it really sent are settled with the
   throttle: a batch larger than the slot makes the next slots later.
3. A rate that changes makes all slots void: learners reserve again, at the new rate.

Only learners wait. Voters, heartbeats, votes and the commit index are never held back: an in-sync
replica that waited would hold up every producer. A rate under THROTTLE_RATE_MIN counts as that, so
a move always goes on.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple, final

import attrs

from raftlog.base.ids import NodeId
from raftlog.base.limits import THROTTLE_RATE_MIN
from raftlog.base.units import Instant, Nanos, millis

UNTHROTTLED: Final = 0
"""The rate of a throttle that bounds nothing."""
_NS_PER_SECOND: Final = 1_000_000_000
_SLOT_NS: Final = millis(100)
"""A slot holds what passes in that time: sends are even, and small at a small rate."""
_SLOT_BYTES_MIN: Final = 128


@final
@attrs.define(eq=False)
class Throttle:
    """One budget. `rate` is in bytes a second; UNTHROTTLED bounds nothing. `free_at` is when all
    that was reserved has passed. `changes` counts changes of the rate."""

    rate: int = UNTHROTTLED
    free_at: Instant = Instant(0)
    changes: int = 0

    def limit(self, rate: int) -> bool:
        """Set the rate, UNTHROTTLED for none. Whether it changed: slots are void then."""
        wanted = rate if rate == UNTHROTTLED else max(rate, THROTTLE_RATE_MIN)
        if wanted == self.rate:
            return False
        self.rate = wanted
        self.free_at = Instant(0)
        self.changes += 1
        return True

    def reserve(self, now: Instant, byte_count: int) -> Instant:
        """When so many bytes may be sent; what is reserved later comes behind them."""
        slot = max(now, self.free_at)
        self.free_at = Instant(slot + self.time_of(byte_count))
        return slot

    def settle(self, byte_count: int) -> None:
        """So many bytes more than reserved were sent, or fewer (negative)."""
        self.free_at = Instant(self.free_at + self.time_of(byte_count))

    def time_of(self, byte_count: int) -> Nanos:
        """How long so many bytes take at the rate."""
        return Nanos(byte_count * _NS_PER_SECOND // self.rate)


@final
class Slot(NamedTuple):
    """When a learner may be sent how many bytes. `stamp` says under which rates."""

    due: Instant
    byte_count: int
    stamp: tuple[int, ...]


@final
@attrs.define(eq=False)
class Throttling:
    """Which throttles one group obeys, as a leader. The broker changes it while the group runs.

    `leader` is the budget of this broker; None when the topic does not name this replica.
    `followers` are the budgets of the brokers that receive, where the topic names those.
    """

    leader: Throttle | None = None
    followers: Mapping[NodeId, Throttle] = attrs.Factory(dict)
    changes: int = 0

    @property
    def bounds(self) -> bool:
        """Whether the topic names any replica; budgets may still be without a rate."""
        return self.leader is not None or bool(self.followers)

    def limits(self, node: NodeId) -> tuple[Throttle, ...]:
        """The throttles that bound what a learner on `node` is sent."""
        both = (self.leader, self.followers.get(node))
        return tuple(each for each in both if each is not None and each.rate != UNTHROTTLED)

    def reserve(self, limits: tuple[Throttle, ...], now: Instant, bytes_max: int) -> Slot:
        """A slot that all `limits` give, of `bytes_max` at most."""
        rate = min(each.rate for each in limits)
        size = min(bytes_max, max(_SLOT_BYTES_MIN, rate * _SLOT_NS // _NS_PER_SECOND))
        due = max(each.reserve(now, size) for each in limits)
        return Slot(due, size, self.stamp(limits))

    def stamp(self, limits: tuple[Throttle, ...]) -> tuple[int, ...]:
        """Changes whenever a slot that was given is void."""
        return (self.changes, *(each.changes for each in limits))
