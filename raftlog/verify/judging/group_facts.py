"""Collects the facts about consumer groups: members, their partitions and their commits."""

from collections.abc import Iterable, Sequence
from typing import final

import attrs

from raftlog.verify.histories.interval import OPEN, Interval

Told = tuple[int, int, Interval]
"""(instant at which a member was told of it, generation, operation)."""


@final
@attrs.define(eq=False)
class Owned:
    """One member's time with one partition."""

    member: str
    generation: int | None
    assigned: Interval
    end_ns: int = OPEN
    given_up: Interval | None = None

    @property
    def start_ns(self) -> int:
        """When the client was about to tell its application. The assignment itself is older."""
        return self.assigned.start_ns

    @property
    def told_ns(self) -> int:
        """When the application knew of the assignment."""
        return self.assigned.end_ns


@final
@attrs.define(eq=False)
class GroupFacts:
    """The facts of a history about one group."""

    name: str
    owned: dict[str, list[Owned]] = attrs.field(factory=dict)
    """Key -> its owners, in the order of the calls of `assigned`."""
    held: dict[str, dict[str, Owned]] = attrs.field(factory=dict)
    """Member -> key -> its present time with the partition."""
    claims: dict[tuple[int, str], dict[str, Interval]] = attrs.field(factory=dict)
    """(generation, key) -> members to which that generation gave the key."""
    generations: list[Told] = attrs.field(factory=list)
    given_up: dict[tuple[str, str, int], None] = attrs.field(factory=dict)
    """(member, key, generation): the member gave the key up, and its line named that generation."""
    ended: dict[str, int] = attrs.field(factory=dict)
    """Member -> when its client was gone."""
    commits: list[Interval] = attrs.field(factory=list)
    """The accepted commits of members."""
    polls: list[Interval] = attrs.field(factory=list)
    rebalances: int = 0


def groups_of(operations: Sequence[Interval]) -> dict[str, GroupFacts]:
    """Every group that an operation with `member` names."""
    groups: dict[str, GroupFacts] = {}
    ours = [op for op in operations if op.evidence and "member" in op.evidence]
    for op in sorted(ours, key=lambda op: (op.start_ns, op.index)):
        name, member, generation = member_of(op)
        group = groups.get(name)
        if group is None:
            group = groups[name] = GroupFacts(name)
        if op.f == "rebalance" and op.type != "fail":
            _rebalance(group, op, member, generation)
        elif op.f == "crash" and op.type != "fail":
            _give_up(group, op, member, list(group.held.get(member, ())))
            group.ended.setdefault(member, op.end_ns)
        elif op.f == "offset_commit" and op.type == "ok" and op.asked[0] == name:
            group.commits.append(op)
        elif op.f == "poll" and op.value:
            group.polls.append(op)
    for group in groups.values():
        _claim(group)
    return groups


def member_of(op: Interval) -> tuple[str, str, int | None]:
    """(group, member, generation) of an operation that has them."""
    assert op.evidence is not None
    name, member, generation = op.evidence["member"]
    return name, member, generation


def _rebalance(group: GroupFacts, op: Interval, member: str, generation: int | None) -> None:
    what, keys = op.asked
    group.rebalances += 1
    held = group.held.setdefault(member, {})
    if generation is not None:
        group.generations.append((op.start_ns, generation, op))
    if what != "assigned":
        _give_up(group, op, member, keys)
        if generation is not None:
            group.given_up.update({(member, key, generation): None for key in keys})
        return
    for key in keys:
        if key in held:  # an eager client may get a key again that it was never told to give up
            held[key].end_ns = op.start_ns
        held[key] = Owned(member, generation, op)
        group.owned.setdefault(key, []).append(held[key])
    if generation is not None:
        for key in held:
            group.claims.setdefault((generation, key), {}).setdefault(member, op)


def _give_up(group: GroupFacts, op: Interval, member: str, keys: Iterable[str]) -> None:
    held = group.held.get(member, {})
    for key in keys:
        owned = held.pop(key, None)
        if owned is not None:
            owned.end_ns, owned.given_up = op.end_ns, op


def _claim(group: GroupFacts) -> None:
    """Keep only the claims that are certain.

    Certain are the keys that a generation's own line names, and those that a member kept through
    the generation. A cooperative client may be told to give up a key of the old assignment after
    the line of the new one, under the same generation. Such a key was not kept.
    """
    for (generation, key), members in group.claims.items():
        for member, op in list(members.items()):
            kept = key not in op.asked[1]
            if kept and (member, key, generation) in group.given_up:
                del members[member]


def by_member(group: GroupFacts) -> dict[tuple[str, str], list[Owned]]:
    """(member, key) -> the member's times with the key, in order."""
    found: dict[tuple[str, str], list[Owned]] = {}
    for key, spans in group.owned.items():
        for each in spans:
            found.setdefault((each.member, key), []).append(each)
    return found
