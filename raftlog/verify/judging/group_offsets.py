"""Judges a group's offsets: commits that fall, reads that begin too low, records that none read."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from raftlog.verify.histories.interval import OPEN, Interval
from raftlog.verify.judging.evidence import Evidence, Highest, Report
from raftlog.verify.judging.explain import describe
from raftlog.verify.judging.facts import Facts, KeyFacts
from raftlog.verify.judging.group_facts import GroupFacts, Owned, by_member, member_of
from raftlog.verify.judging.verdict import Findings, Witness

LATEST: Final = "latest"


def regressions(group: GroupFacts, evidence: Evidence, findings: Findings) -> None:
    """Find accepted commits below one that was acknowledged before."""
    findings.check("commit-regression")
    highest: dict[str, Highest] = {}
    for commit in group.commits:
        for key, offset in commit.asked[1].items():
            commits = evidence.commits[group.name, key]
            if key not in highest:
                highest[key] = Highest([each for each in commits if each[1].type == "ok"])
            now = -1 if offset is None else offset
            before = highest[key].before(commit.start_ns)
            if before is None or now >= before[0]:
                continue
            lower = [each for each in commits if each[0] <= now and each[1] is not commit]
            higher = _not_lowered(group, commits, lower, now, commit.start_ns, commit.end_ns)
            if higher is not None:
                findings.add(
                    "commit-regression",
                    partial(_lower, "was committed", group.name, key, higher, now, commit),
                )


def rewinds(group: GroupFacts, evidence: Evidence, findings: Findings, *, dense: bool) -> None:
    """Find first polls, of each key after each assignment, below the group's committed offset.

    The coordinator's answer decides where a member begins to read. In a dense log that offset is
    one that was committed, exactly.
    """
    polls: dict[tuple[str, str], list[Interval]] = {}
    for poll in sorted(group.polls, key=lambda op: (op.end_ns, op.index)):
        for key, pairs in poll.reads().items():
            if pairs.count and poll.type == "ok":
                polls.setdefault((member_of(poll)[1], key), []).append(poll)
    for (member, key), spans in by_member(group).items():
        commits = evidence.commits.get((group.name, key), [])
        highest = Highest([each for each in commits if each[1].type == "ok"])
        found, at = polls.get((member, key), []), 0
        for owned in spans:
            while at < len(found) and not _under(owned, found[at]):
                at += 1
            if at == len(found):
                break
            if found[at].start_ns > owned.end_ns:
                continue
            findings.check("group-rewind")
            first = next(iter(found[at].reads()[key]))[0]
            before = highest.before(owned.start_ns)
            if before is None or first >= before[0]:
                continue
            lower = [
                each for each in commits if each[0] == first or (not dense and each[0] < first)
            ]
            higher = _not_lowered(group, commits, lower, first, owned.start_ns, found[at].end_ns)
            if higher is not None:
                findings.add(
                    "group-rewind",
                    partial(_lower, "was read", group.name, key, higher, first, found[at]),
                )


def _under(owned: Owned, poll: Interval) -> bool:
    """Whether the poll belongs to this assignment: its answer came after the application knew."""
    return poll.end_ns >= owned.told_ns


def _not_lowered(
    group: GroupFacts,
    commits: Sequence[Report],
    lower: Sequence[Report],
    offset: int,
    start_ns: int,
    end_ns: int,
) -> Report | None:
    """A commit above `offset` that must still have held at `end_ns`; None where there is none.

    It was acknowledged before `start_ns`, and no commit in `lower` can have taken effect after it.
    """
    ends = [_latest_effect(group, op) for _, op in lower if op.start_ns <= end_ns]
    lowered = max(ends, default=-1)
    for high, op in commits:
        if op.type == "ok" and op.end_ns < start_ns and high > offset and op.start_ns > lowered:
            return high, op
    return None


def _latest_effect(group: GroupFacts, commit: Interval) -> int:
    """The latest instant at which a commit may have taken effect.

    A commit without an answer may take effect as long as its generation lasts.
    """
    if commit.end_ns < OPEN or not (commit.evidence and "member" in commit.evidence):
        return commit.end_ns
    generation = member_of(commit)[2]
    if generation is None:
        return OPEN
    return min((at for at, newer, _ in group.generations if newer > generation), default=OPEN)


def _lower(what: str, group: str, key: str, before: Report, offset: int, op: Interval) -> Witness:
    return Witness(
        text=f"Group {group} had committed offset {before[0]} of {key}, and later {offset} {what}, "
        f"with no lower commit between: {describe(before[1])}; {describe(op)}.",
        key=key,
        offset=offset,
        operations=(before[1], op),
        detail={"group": group, "committed": before[0]},
    )


def skipped(
    group: GroupFacts,
    facts: Facts,
    evidence: Evidence,
    findings: Findings,
    options: Mapping[str, Any],
) -> None:
    """Find records below the members' commits that no member's poll returned."""
    committed: dict[str, Report] = {}
    for op in group.commits:
        for key, offset in op.asked[1].items():
            if offset is not None and offset > committed.get(key, (0, op))[0]:
                committed[key] = offset, op
    seen: dict[str, dict[int, None]] = {}
    for poll in group.polls:
        for key, pairs in poll.reads().items():
            seen.setdefault(key, {}).update(dict.fromkeys(pairs.offsets))
    for key, report in committed.items():
        if key not in facts.keys:
            continue
        known, processed = facts.keys[key], seen.get(key, {})
        # Records below the commit of an administrator, or of a client without a group, were skipped
        # by that commit and not by the group.
        others = [
            offset
            for offset, op in evidence.commits[group.name, key]
            if not (op.evidence and "member" in op.evidence)
        ]
        first = max([known.log_start, known.first_end, *others])
        if options.get("offset_reset") == LATEST:
            first = max(first, min(processed, default=report[0]))
        for offset in known.order():
            if first <= offset < report[0] and offset not in processed:
                findings.add("group-skip", partial(_skip, group.name, known, offset, report))


def _skip(group: str, facts: KeyFacts, offset: int, report: Report) -> Witness:
    batch = facts.writers.get(facts.at[offset])
    return Witness(
        text=f"No member of group {group} read {facts.at[offset]!r} at offset {offset} of "
        f"{facts.key}, and offset {report[0]} was committed: "
        + (f"{describe(batch.op)}; " if batch is not None else "")
        + f"{describe(report[1])}.",
        key=facts.key,
        offset=offset,
        operations=(report[1],) if batch is None else (batch.op, report[1]),
        detail={"group": group, "committed": report[0]},
    )
