"""How a group's leader divides partitions among the members. Pure functions of their arguments.

    ASSIGNORS[name].assign(members, partition counts) -> {member id: partitions}

* range: each topic apart, consecutive partitions, the first members one more. Topics with equal
  counts are divided alike, so that partition n of each lies with the same member.
* roundrobin: all partitions of all topics in one circle over the members.
* sticky, cooperative-sticky: as even as subscriptions allow, and each member keeps what it has
  where that is possible. The cooperative one leaves out, for this generation, what another member
  still holds: that member gives it up first, and the next rebalance hands it over.

All give each partition of a subscribed topic to exactly one subscribed member (the cooperative one
to at most one), whatever the order of `members`. Names and order are Kafka's, so that a group may
mix clients.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, final

import attrs

from raftlog.client.core.values import TopicPartition

PartitionCounts = Mapping[str, int]
"""Topic -> how many partitions it has; a topic that does not exist is left out."""
Assignment = dict[str, list[TopicPartition]]


@final
@attrs.frozen(kw_only=True)
class MemberView:
    """A member as the leader sees it. `owned` are the partitions that it held in `generation` (-1:
    it did not say)."""

    member_id: str
    instance_id: str | None = None
    topics: tuple[str, ...] = ()
    owned: tuple[TopicPartition, ...] = ()
    generation: int = -1


class Assignor(NamedTuple):
    """A way to divide partitions, with the name by which members agree on it."""

    name: str
    assign: Callable[[Sequence[MemberView], PartitionCounts], Assignment]
    cooperative: bool = False


def _in_order(members: Sequence[MemberView]) -> list[MemberView]:
    """Kafka's order: static members by their instance, before the others by member id. A static
    member keeps its place when it comes back under another member id."""
    return sorted(
        members, key=lambda each: (each.instance_id is None, each.instance_id or "", each.member_id)
    )


def _subscribers(
    members: Sequence[MemberView], counts: PartitionCounts
) -> dict[str, list[MemberView]]:
    """Topic -> its members, both in order; topics without partitions are left out."""
    found: dict[str, list[MemberView]] = {}
    for member in _in_order(members):
        for topic in dict.fromkeys(member.topics):
            if counts.get(topic, 0) > 0:
                found.setdefault(topic, []).append(member)
    return dict(sorted(found.items()))


# --- range, roundrobin ----------------------------------------------------------------------------


def assign_range(members: Sequence[MemberView], counts: PartitionCounts) -> Assignment:
    """See the module."""
    given: Assignment = {member.member_id: [] for member in members}
    for topic, subscribers in _subscribers(members, counts).items():
        each, more = divmod(counts[topic], len(subscribers))
        first = 0
        for at, member in enumerate(subscribers):
            end = first + each + (1 if at < more else 0)
            given[member.member_id] += [TopicPartition(topic, n) for n in range(first, end)]
            first = end
    return given


def assign_round_robin(members: Sequence[MemberView], counts: PartitionCounts) -> Assignment:
    """See the module."""
    given: Assignment = {member.member_id: [] for member in members}
    circle = _in_order(members)
    at = 0
    for topic, subscribers in _subscribers(members, counts).items():
        wanted = {member.member_id for member in subscribers}
        for partition in range(counts[topic]):
            while circle[at % len(circle)].member_id not in wanted:
                at += 1
            given[circle[at % len(circle)].member_id].append(TopicPartition(topic, partition))
            at += 1
    return given


# --- sticky ---------------------------------------------------------------------------------------


def assign_sticky(members: Sequence[MemberView], counts: PartitionCounts) -> Assignment:
    """See the module."""
    return _divide(members, counts, _claims(members))


def assign_cooperative_sticky(members: Sequence[MemberView], counts: PartitionCounts) -> Assignment:
    """See the module."""
    claims = _claims(members)
    given = _divide(members, counts, claims)
    return {
        member_id: [
            place
            for place in places
            if all(holder == member_id for holder in claims.get(place, _NOBODY).holders)
        ]
        for member_id, places in given.items()
    }


class _Claim(NamedTuple):
    """The members that claim, in the newest generation of any claim, to hold a partition."""

    generation: int
    holders: tuple[str, ...]

    @property
    def owner(self) -> str | None:
        """The holder; None when two members claim the partition in the same generation, because
        then neither claim can be trusted."""
        return self.holders[0] if len(self.holders) == 1 else None


_NOBODY: Final = _Claim(-1, ())


def _claims(members: Sequence[MemberView]) -> dict[TopicPartition, _Claim]:
    """The newest claims for each partition. A claim of an older generation does not count: that
    member missed the rebalance that took the partition away."""
    found: dict[TopicPartition, _Claim] = {}
    for member in _in_order(members):
        for place in dict.fromkeys(member.owned):
            known = found.get(place)
            if known is None or member.generation > known.generation:
                found[place] = _Claim(member.generation, (member.member_id,))
            elif member.generation == known.generation:
                holders = (*known.holders, member.member_id)
                found[place] = _Claim(known.generation, holders)
    return found


def _divide(
    members: Sequence[MemberView],
    counts: PartitionCounts,
    claims: Mapping[TopicPartition, _Claim],
) -> Assignment:
    division = _Division(_in_order(members), _subscribers(members, counts))
    free: list[TopicPartition] = []
    for topic in division.eligible:
        for partition in range(counts[topic]):
            place = TopicPartition(topic, partition)
            owner = claims.get(place, _NOBODY).owner
            if owner is not None and division.may_have(owner, topic):
                division.give(owner, place)
            else:
                free.append(place)
    # Partitions with few eligible members go first; the others can still be placed anywhere.
    for place in sorted(free, key=lambda each: (len(division.eligible[each.topic]), each)):
        division.give(division.lightest(place.topic), place)
    division.level()
    return division.result()


@final
class _Division:
    """A division in the making: the partitions of each member so far, and the moves that make it
    even."""

    def __init__(
        self, members: Sequence[MemberView], subscribers: Mapping[str, Sequence[MemberView]]
    ) -> None:
        self._rank = {member.member_id: at for at, member in enumerate(members)}
        self._load = {member.member_id: 0 for member in members}
        self._has: dict[str, dict[str, list[TopicPartition]]] = {
            member.member_id: {} for member in members
        }
        """Member -> topic -> partitions; the one that came last is the first to move on."""
        self.eligible = {
            topic: [member.member_id for member in found] for topic, found in subscribers.items()
        }
        self._may = {topic: frozenset(found) for topic, found in self.eligible.items()}

    def may_have(self, member_id: str, topic: str) -> bool:
        return member_id in self._may.get(topic, frozenset())

    def give(self, member_id: str, place: TopicPartition) -> None:
        self._has[member_id].setdefault(place.topic, []).append(place)
        self._load[member_id] += 1

    def lightest(self, topic: str) -> str:
        """The member with the fewest partitions among those that subscribe to the topic."""
        return min(self.eligible[topic], key=self._weight)

    def _weight(self, member_id: str) -> tuple[int, int]:
        return self._load[member_id], self._rank[member_id]

    def level(self) -> None:
        """Move partitions from a heavy member to one that has at least two fewer, directly or by a
        chain of members, until no such chain is left. The sum of the squares of the loads falls
        with each, so this ends."""
        settled: dict[str, None] = {}
        while True:
            heavy = [each for each in self._load if each not in settled]
            if not heavy:
                return
            member_id = max(heavy, key=self._weight)
            chain = self._chain_from(member_id)
            if chain is None:
                settled[member_id] = None
                continue
            settled.clear()
            for source, topic, target in chain:
                moved = self._has[source][topic].pop()
                self._load[source] -= 1
                self.give(target, moved)

    def _chain_from(self, heavy: str) -> list[tuple[str, str, str]] | None:
        """The shortest chain of (from, topic, to) that ends at a member with at least two fewer:
        a breadth-first search. None when there is none."""
        wanted = self._load[heavy] - 2
        came_by: dict[str, tuple[str, str]] = {heavy: ("", "")}
        queue = deque([heavy])
        while queue:
            source = queue.popleft()
            reached: list[str] = []
            for topic, places in self._has[source].items():
                if not places:
                    continue
                for target in self.eligible[topic]:
                    if target not in came_by:
                        came_by[target] = (source, topic)
                        reached.append(target)
            light = min(reached, key=self._weight, default=None)
            if light is not None and self._load[light] <= wanted:
                return _chain(came_by, heavy, light)
            queue.extend(reached)
        return None

    def result(self) -> Assignment:
        return {
            member_id: sorted(place for places in topics.values() for place in places)
            for member_id, topics in self._has.items()
        }


def _chain(
    came_by: Mapping[str, tuple[str, str]], first: str, last: str
) -> list[tuple[str, str, str]]:
    steps: list[tuple[str, str, str]] = []
    at = last
    while at != first:
        source, topic = came_by[at]
        steps.append((source, topic, at))
        at = source
    return steps


ASSIGNORS: Final[Mapping[str, Assignor]] = {
    each.name: each
    for each in (
        Assignor("range", assign_range),
        Assignor("roundrobin", assign_round_robin),
        Assignor("sticky", assign_sticky),
        Assignor("cooperative-sticky", assign_cooperative_sticky, cooperative=True),
    )
}
