"""Judges consumer groups: owners of partitions, commits, and records that no member processed.

Every operation of a group's member carries `member`: [group, member, generation or null]. A member
is one life of one client. The operations allow three kinds of conclusions:

1. *By generation*: proven. A coordinator gives a partition to one member of a generation, and
   accepts commits of the newest generation only. Generations only rise while a group exists.
2. *By offsets*: proven. The answer to a call must reflect every commit acknowledged before the
   call.
3. *By time alone*: indicated. A member that is paused or cut off believes to own a partition long
   after the coordinator gave it away. A slow member is told of an assignment that is over. A
   cooperative member that comes back may get its partitions again without being told to give them
   up. So owners that overlap in time are counted (`owner-overlap`) and make nothing invalid.

A member owns a partition from the call of its `assigned` to the return of its `revoked` or `lost`,
or of its `crash`.
"""

from collections.abc import Mapping
from functools import partial
from itertools import accumulate
from typing import Any, Final

from raftlog.verify.histories.interval import OPEN, Interval
from raftlog.verify.judging import group_offsets
from raftlog.verify.judging.evidence import Evidence
from raftlog.verify.judging.explain import describe
from raftlog.verify.judging.facts import Facts
from raftlog.verify.judging.group_facts import (
    GroupFacts,
    Owned,
    Told,
    by_member,
    groups_of,
    member_of,
)
from raftlog.verify.judging.verdict import Findings, Witness

_OWNERS: Final = ("double-owner", "owner-overlap")
NO_COMMIT: Final = "no commit of a group's member was acknowledged: nothing to judge"


def check(facts: Facts, findings: Findings, options: Mapping[str, Any]) -> dict[str, Any]:
    """Judge every class about groups that has evidence in the history; returns figures by group."""
    groups = groups_of(facts.others)
    if not groups:
        return {}
    evidence = Evidence()
    evidence.add_all(facts.others)
    measured = {}
    for group in groups.values():
        if group.owned:
            findings.check(*_OWNERS)
        _one_owner_a_generation(group, findings)
        _overlaps(group, findings)
        if group.commits:
            _fenced(group, findings)
            if group.held:
                findings.check("commit-after-revoke")
                _after_revoke(group, findings)
            group_offsets.regressions(group, evidence, findings)
            if group.polls:
                findings.check("group-skip")
                group_offsets.skipped(group, facts, evidence, findings, options)
        if group.owned and group.polls:
            group_offsets.rewinds(
                group, evidence, findings, dense=options.get("dense", True) is not False
            )
        measured[group.name] = _measured(group)
    if not any(group.commits for group in groups.values()):
        # A run whose members committed nothing has proved nothing about the group.
        findings.give_up("group-skip", NO_COMMIT)
    if options.get("compaction"):
        findings.forget("group-skip")
    return measured


def _measured(group: GroupFacts) -> dict[str, Any]:
    times: dict[tuple[str, int], int] = {}
    for poll in group.polls:
        for key, pairs in poll.reads().items():
            for offset in pairs.offsets:
                times[key, offset] = times.get((key, offset), 0) + 1
    return {
        "members": len(group.held),
        "rebalances": group.rebalances,
        "generations": len(dict.fromkeys(each[1] for each in group.generations)),
        "commits": len(group.commits),
        "records": len(times),
        "processed_twice": sum(count > 1 for count in times.values()),
    }


# --- owners ---------------------------------------------------------------------------------------


def _one_owner_a_generation(group: GroupFacts, findings: Findings) -> None:
    for (generation, key), members in group.claims.items():
        told = list(members.items())
        for at, (_, second) in enumerate(told):
            # A static member's next life gets its old partitions back within one generation.
            others = [
                (member, first)
                for member, first in told[:at]
                if group.ended.get(member, OPEN) >= second.start_ns
            ]
            if others:
                both = (others[-1], told[at])
                findings.add(
                    "double-owner", partial(_two_in_one, group.name, generation, key, both)
                )


def _two_in_one(
    group: str,
    generation: int,
    key: str,
    members: tuple[tuple[str, Interval], tuple[str, Interval]],
) -> Witness:
    (one, first), (other, second) = members
    return Witness(
        text=f"Generation {generation} of group {group} gave {key} to {one} and to {other}: "
        f"{describe(first)}; {describe(second)}.",
        key=key,
        operations=(first, second),
        detail={"group": group, "generation": generation, "members": [one, other]},
    )


def _overlaps(group: GroupFacts, findings: Findings) -> None:
    for key, spans in group.owned.items():
        latest: Owned | None = None  # of the earlier owners, the one that gave the key up last
        for owned in spans:
            if (
                latest is not None
                and latest.member != owned.member
                and latest.told_ns < owned.start_ns < latest.end_ns
            ):
                findings.add("owner-overlap", partial(_overlap, group.name, key, latest, owned))
            if latest is None or owned.end_ns >= latest.end_ns:
                latest = owned


def _overlap(group: str, key: str, one: Owned, other: Owned) -> Witness:
    return Witness(
        text=f"{other.member} of group {group} was told to read {key} while {one.member} had not "
        f"been told to give it up: {describe(one.assigned)}; {describe(other.assigned)}.",
        key=key,
        operations=(one.assigned, other.assigned),
        detail={"group": group, "members": [one.member, other.member]},
    )


# --- commits that should have been refused --------------------------------------------------------


def _fenced(group: GroupFacts, findings: Findings) -> None:
    """Find commits of an older generation that were accepted.

    A call that began after a member had been told of generation g found the group at g or later, so
    the coordinator must have refused it.
    """
    told = sorted(group.generations, key=lambda each: (each[0], each[2].index))
    newest: list[Told] = list(accumulate(told, _newer))
    at = 0
    for commit in sorted(group.commits, key=lambda op: (op.start_ns, op.index)):
        _, member, generation = member_of(commit)
        while at < len(told) and told[at][0] < commit.start_ns:
            at += 1
        if generation is None or not told:
            continue
        findings.check("fenced-commit")
        if at and newest[at - 1][1] > generation:
            findings.add(
                "fenced-commit",
                partial(_fenced_witness, group.name, member, generation, newest[at - 1], commit),
            )


def _newer(one: Told, other: Told) -> Told:
    return other if other[1] > one[1] else one


def _fenced_witness(
    group: str, member: str, generation: int, newer: Told, commit: Interval
) -> Witness:
    return Witness(
        text=f"Group {group} accepted a commit of {member} of generation {generation}, called "
        f"after generation {newer[1]} was known: {describe(newer[2])}; {describe(commit)}.",
        key=next(iter(commit.asked[1]), None),
        operations=(newer[2], commit),
        detail={"group": group, "generation": generation, "newer": newer[1]},
    )


def _after_revoke(group: GroupFacts, findings: Findings) -> None:
    owned = by_member(group)
    for commit in group.commits:
        member = member_of(commit)[1]
        if member not in group.held:  # its client does not tell what it owns
            continue
        for key in commit.asked[1]:
            spans = owned.get((member, key), [])
            owns = any(
                each.start_ns <= commit.end_ns and each.end_ns >= commit.start_ns for each in spans
            )
            if not owns:
                before = [each for each in spans if each.end_ns < commit.start_ns]
                last = before[-1].given_up if before else None
                findings.add(
                    "commit-after-revoke",
                    partial(_not_owned, group.name, member, key, last, commit),
                )


def _not_owned(
    group: str, member: str, key: str, given_up: Interval | None, commit: Interval
) -> Witness:
    before = "had never been given" if given_up is None else "had given up"
    return Witness(
        text=f"{member} of group {group} {before} {key}, and its commit of it was accepted: "
        + (f"{describe(given_up)}; " if given_up is not None else "")
        + f"{describe(commit)}.",
        key=key,
        offset=commit.asked[1][key],
        operations=(commit,) if given_up is None else (given_up, commit),
        detail={"group": group, "member": member},
    )
