"""Writes the claims that a history proves, one a line, with counts from the history.

A claim is made where all its classes were checked and none was found. Its count says how much
evidence there was, so that a reader sees a pass of little evidence. Beside the claims stands the
cost of the faults: how long no operation was acknowledged around each, and the speed of the rest.
"""

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, final

import attrs

from raftlog.base.amounts import amount
from raftlog.verify.histories.interval import OPEN, Interval
from raftlog.verify.judging.check import LOG, Judgement
from raftlog.verify.judging.classes import G0, G1C
from raftlog.verify.judging.explain import moment
from raftlog.verify.judging.run_checks import HELD, RunCheck
from raftlog.verify.judging.verdict import VALID
from raftlog.verify.report.trace import Fault

_FAULTS_MAX: Final = 200
_KEYS_MAX: Final = 500
"""The most partitions whose worst wait is looked for."""
_OF_CLIENTS_ALONE: Final = ("assign", "subscribe", "rebalance", "crash")
"""Operations that ask no server."""
_POLLS: Final = ("poll-skip", "nonmonotonic-poll", "int-poll-skip", "int-nonmonotonic-poll")


@final
@attrs.define(eq=False)
class Counts:
    """The amounts in a history that the claims cite."""

    acknowledged: int = 0
    unknown: int = 0
    failed: int = 0
    records_read: int = 0
    polls: int = 0
    lengths: int = 0
    offsets: int = 0
    partitions: int = 0
    readers: dict[int, None] = attrs.field(factory=dict)
    writers: dict[int, None] = attrs.field(factory=dict)
    marks: int = 0
    terms: int = 0
    offset_fetches: int = 0
    sequences: int = 0
    rebalances: int = 0
    members_commits: int = 0

    @property
    def sent(self) -> int:
        """The number of all sends."""
        return self.acknowledged + self.unknown + self.failed


class _Claim(NamedTuple):
    """The classes of a claim, and its sentence where none of them was found."""

    classes: tuple[str, ...]
    says: Callable[[Counts], str]


_n: Final = partial(amount, grouped=True)


def _all_sent(c: Counts) -> str:
    failed = f", none of them by {_n(c.failed, 'send')} that failed" if c.failed else ""
    return f"{_n(c.records_read, 'record')} read: each was sent{failed}"


def _in_one_order(c: Counts) -> str:
    looks = f", {_n(c.lengths, 'look')} at an end" if c.lengths else ""
    made = f"{_n(c.sent, 'send')}, {_n(c.polls, 'poll')}{looks}"
    return f"{made}: one order of each log fits when they were called and answered"


_CLAIMS: Final = (
    _Claim(
        ("lost-write",),
        lambda c: (
            f"{_n(c.acknowledged, 'acknowledged record')}: none lost, up to the last offset "
            "that anybody read"
        ),
    ),
    _Claim(
        ("unseen",),
        lambda c: f"{_n(c.acknowledged, 'acknowledged record')}: each was read before the end",
    ),
    _Claim(
        ("inconsistent-offsets", "duplicate"),
        lambda c: (
            f"{_n(c.offsets, 'offset')} on {_n(c.partitions, 'partition')}: one value each, "
            "and no value twice"
        ),
    ),
    _Claim(
        ("phantom", "G1a"),
        _all_sent,
    ),
    _Claim(
        ("linearizability",),
        _in_one_order,
    ),
    _Claim(
        _POLLS,
        lambda c: (
            f"{_n(c.polls, 'poll')} by {_n(len(c.readers), 'reader')}: none skipped a "
            "record, none went back"
        ),
    ),
    _Claim(
        ("nonmonotonic-send",),
        lambda c: (
            f"{_n(c.sent, 'send')} by {_n(len(c.writers), 'writer')}: each writer's lie in "
            "the order in which it sent them"
        ),
    ),
    _Claim(
        ("ack-regression", "duplicate-sequence"),
        lambda c: (
            f"{_n(c.sequences, 'send')} with a producer's sequence: in order, none appended twice"
        ),
    ),
    _Claim(
        ("monotonic-reads", "read-your-writes"),
        lambda c: f"{_n(c.lengths, 'look')} at an end: none behind what its process knew",
    ),
    _Claim(
        ("hw-regression",),
        lambda c: f"{_n(c.marks, 'high watermark')} told: none lower than one before",
    ),
    _Claim(
        ("two-leaders-one-term",),
        lambda c: f"{_n(c.terms, 'acknowledgement')} with a term: one leader in each",
    ),
    _Claim(
        ("offset-commit-regression",),
        lambda c: f"{_n(c.offset_fetches, 'answer')} with a group's offsets: none went back",
    ),
    _Claim(
        ("group-skip",),
        lambda c: (
            f"{_n(c.members_commits, 'accepted commit')} of groups' members: no record below them "
            "was left out"
        ),
    ),
    _Claim(
        ("commit-regression", "group-rewind"),
        lambda c: (
            f"{_n(c.members_commits, 'accepted commit')} of groups' members: no group went back"
        ),
    ),
    _Claim(
        ("double-owner", "commit-after-revoke"),
        lambda c: (
            f"{_n(c.rebalances, 'time')} members were told of partitions: none had two owners, and "
            "none was committed by a member that had given it up"
        ),
    ),
    _Claim(
        ("fenced-commit",),
        lambda c: (
            f"{_n(c.members_commits, 'accepted commit')} of groups' members: none of an old "
            "generation"
        ),
    ),
    _Claim(
        (*G0, *G1C),
        lambda c: f"{_n(c.sent + c.polls, 'operation')}: no cycle of what depends on what",
    ),
)


def claims_of(judgement: Judgement) -> list[str]:
    """The claims that the history proves, most telling first."""
    verdict = judgement.verdict
    if verdict.model == LOG:
        counts = counts_of(judgement)
        sound = {name for name, r in verdict.classes.items() if r.status == VALID and not r.count}
        return [claim.says(counts) for claim in _CLAIMS if sound.issuperset(claim.classes)]
    return _of_model(judgement)


def _of_model(judgement: Judgement) -> list[str]:
    verdict = judgement.verdict
    if verdict.classes["model"].status != VALID:
        return []
    calls = _n(len(judgement.operations), "operation")
    objects = _n(int(verdict.budget.get("objects", 1)), "object")
    return [f"{calls} on {objects}: each object has an order that is legal for a {verdict.model}"]


def claims_of_checks(checks: Sequence[RunCheck]) -> list[str]:
    """The claims about the run's own checks."""
    held = [check for check in checks if check.status == HELD]
    if not held:
        return []
    compared = sum(check.checked or 0 for check in held)
    times = f", compared {_n(compared, 'time')}" if compared else ""
    return [f"{_n(len(held), 'check')} of the run's own held{times}"]


def counts_of(judgement: Judgement) -> Counts:
    """Count the operations of a history, in one pass."""
    found = Counts()
    kinds = {"ok": "acknowledged", "info": "unknown", "fail": "failed"}
    for op in judgement.operations:
        for _, values, _ in op.sends():
            name = kinds[op.type]
            setattr(found, name, getattr(found, name) + len(values))
            found.writers[op.process] = None
        reads = op.reads()
        if reads:
            found.polls += 1
            found.readers[op.process] = None
            found.records_read += sum(len(pairs) for pairs in reads.values())
        if op.f in ("end", "empty") and op.type == "ok":
            found.lengths += 1
        if op.f == "offset_fetch" and op.type == "ok":
            found.offset_fetches += 1
        evidence = op.evidence or {}
        found.rebalances += op.f == "rebalance" and "member" in evidence
        found.members_commits += (
            op.f == "offset_commit" and op.type == "ok" and "member" in evidence
        )
        found.marks += "hw" in evidence
        found.terms += "term" in evidence and op.f == "send" and op.type == "ok"
        found.sequences += "producer" in evidence
    found.offsets = sum(len(facts.at) for facts in judgement.facts.keys.values())
    found.partitions = len(judgement.facts.keys)
    return found


# --- what it cost ---------------------------------------------------------------------------------


def cost_of(judgement: Judgement, faults: Sequence[Fault]) -> dict[str, Any]:
    """Each fault with the longest wait around it, and the throughput and latency of the whole.

    A wait is a time in which clients waited and no operation was answered. It is given for all
    partitions together and for the worst of them.
    """
    asked = [op for op in judgement.operations if op.f not in _OF_CLIENTS_ALONE]
    by_key: dict[str, list[Interval]] = {}
    for op in asked:
        if op.key is not None and (op.key in by_key or len(by_key) < _KEYS_MAX):
            by_key.setdefault(op.key, []).append(op)
    waits, of_keys = _waits(asked), {key: _waits(ops) for key, ops in by_key.items()}
    return {
        "faults": [
            {
                **fault.document(),
                "unavailable": _longest(fault, waits),
                "worst": _worst(fault, of_keys),
            }
            for fault in faults[:_FAULTS_MAX]
        ],
        "more_faults": max(0, len(faults) - _FAULTS_MAX),
        "speed": _speed(judgement.operations),
    }


def _worst(
    fault: Fault, of_keys: Mapping[str, Sequence[tuple[int, int]]]
) -> tuple[int, str] | None:
    """The longest wait on one partition, with its name; of equal ones the first."""
    found: tuple[int, str] | None = None
    for key, waits in of_keys.items():
        wait = _longest(fault, waits)
        if wait is not None and (found is None or wait > found[0]):
            found = (wait, key)
    return found


def _waits(operations: Sequence[Interval]) -> list[tuple[int, int]]:
    """The waits, as (from, to): one before each answer.

    A wait begins with the answer before it, or with the first call behind that answer where no
    client was waiting then. An operation without an answer waits to the end.
    """
    calls = sorted((op.start_ns, op.end_ns) for op in operations)
    answers = sorted(op.end_ns for op in operations if op.type == "ok")
    if not calls:
        return []
    last = max([start for start, _ in calls] + [end for _, end in calls if end < OPEN])
    found: list[tuple[int, int]] = []
    before, at, open_until = calls[0][0], 0, -OPEN
    for answer in [*answers, *([last] if not answers or last > answers[-1] else [])]:
        while at < len(calls) and calls[at][0] <= before:
            open_until = max(open_until, calls[at][1])
            at += 1
        begin = before if open_until > before else calls[at][0] if at < len(calls) else answer
        if begin < answer:
            found.append((begin, answer))
        before = answer
    return found


def _longest(fault: Fault, waits: Sequence[tuple[int, int]]) -> int | None:
    """The longest wait that touches the time of a fault; None where no client waited then."""
    end = fault.start_ns if fault.end_ns is None else fault.end_ns
    first = bisect_left(waits, (fault.start_ns,))
    first -= first > 0 and waits[first - 1][1] > fault.start_ns
    touching = []
    for begin, until in waits[first:]:
        if begin > end:
            break
        touching.append(until - begin)
    return max(touching, default=None)


def _speed(operations: Sequence[Interval]) -> list[dict[str, str]]:
    """The rows of speed by kind of operation: how many a second, and how long they took."""
    found = []
    kinds: dict[str, list[Interval]] = {}
    for op in operations:
        if op.type == "ok" and op.end_ns < OPEN:
            kinds.setdefault(op.f, []).append(op)
    for f, ops in sorted(kinds.items(), key=lambda entry: -len(entry[1])):
        taken = sorted(op.end_ns - op.start_ns for op in ops)
        begin, end = min(op.start_ns for op in ops), max(op.end_ns for op in ops)
        rate = len(ops) * 1_000_000_000 / (end - begin) if end > begin else 0.0
        found.append(
            {
                "f": f,
                "count": f"{len(ops):,}",
                "rate": f"{rate:,.0f} a second" if end > begin else "",
                "median": moment(taken[len(taken) // 2]),
                "p99": moment(taken[min(len(taken) - 1, len(taken) * 99 // 100)]),
                "most": moment(taken[-1]),
            }
        )
    return found
