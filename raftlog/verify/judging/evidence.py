"""Judges what the answers say about the cluster itself.

These are high watermarks, terms, log starts, producer sequences and offset commits, where the
writer of the history recorded them. "Before" always means that one operation returned before the
other was invoked; concurrent operations are never compared.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, final

import attrs

from raftlog.verify.histories.interval import Interval
from raftlog.verify.judging.anomalies import claims_of
from raftlog.verify.judging.explain import describe
from raftlog.verify.judging.facts import Facts, KeyFacts, per_key
from raftlog.verify.judging.linearizability import LINEARIZABLE
from raftlog.verify.judging.verdict import Findings, Witness

_SEQUENCES: Final = 1 << 31
"""Kafka's producer sequences are 31 bits wide and wrap to 0."""

Report = tuple[int, Interval]
"""A number that an answer named, and the operation with that answer."""


@final
@attrs.define(eq=False)
class Evidence:
    """All evidence of one history, sorted by the check that needs it.

    The lists are plain, so that two histories' evidence can be merged.
    """

    watermarks: dict[tuple[str, str], list[Report]] = attrs.field(factory=dict)
    """(key, node) -> high watermarks."""
    starts: dict[tuple[str, str], list[Report]] = attrs.field(factory=dict)
    """(key, node) -> log starts."""
    leaders: dict[tuple[str, int], dict[str, Interval]] = attrs.field(factory=dict)
    """(key, term) -> the nodes that acknowledged appends, each with such an operation."""
    produced: dict[tuple[str, int], list[Interval]] = attrs.field(factory=dict)
    """(key, producer id) -> the producer's sends."""
    commits: dict[tuple[str, str], list[Report]] = attrs.field(factory=dict)
    """(group, key) -> offset commits of type ok or info."""
    fetches: dict[tuple[str, str], list[Report]] = attrs.field(factory=dict)

    def add_all(self, operations: Iterable[Interval]) -> None:
        """Sort the evidence of every operation."""
        for op in operations:
            if op.evidence:
                self._add(op, op.evidence)
            if op.f == "start" and op.type == "ok":
                self._start(op, ((op.key or "", op.value),))
            elif op.f == "offset_commit":
                self._commit(op)
            elif op.f == "offset_fetch" and op.type == "ok":
                group = op.asked[0]
                for key, offset in op.value.items():
                    report = (-1 if offset is None else offset, op)
                    self.fetches.setdefault((group, key), []).append(report)

    def _add(self, op: Interval, evidence: Mapping[str, Any]) -> None:
        if "hw" in evidence and op.type == "ok":
            for key, mark in per_key(op, evidence["hw"]):
                self.watermarks.setdefault((key, op.node or ""), []).append((mark, op))
        if "log_start" in evidence:
            self._start(op, per_key(op, evidence["log_start"]))
        if op.f == "send" and op.key is not None:
            if op.type == "ok" and op.node is not None and type(evidence.get("term")) is int:
                self.leaders.setdefault((op.key, evidence["term"]), {}).setdefault(op.node, op)
            if "producer" in evidence:
                self.produced.setdefault((op.key, evidence["producer"][0]), []).append(op)

    def _start(self, op: Interval, starts: Iterable[tuple[str, int]]) -> None:
        for key, start in starts:
            self.starts.setdefault((key, op.node or ""), []).append((start, op))

    def _commit(self, op: Interval) -> None:
        if op.type == "fail":
            return
        group, offsets = op.asked
        for key, offset in offsets.items():
            report = (-1 if offset is None else offset, op)
            self.commits.setdefault((group, key), []).append(report)


def check(
    operations: Sequence[Interval],
    facts: Facts,
    findings: Findings,
    *,
    options: Mapping[str, Any],
    mode: str,
) -> None:
    """Check every class of this module whose evidence the history has."""
    evidence = Evidence()
    evidence.add_all(facts.others)
    for (key, node), reports in evidence.watermarks.items():
        if node:
            findings.check("hw-regression")
            for before, after in regressions(reports):
                findings.add("hw-regression", partial(_back, "high watermark", key, before, after))
        findings.check("read-above-hw")
        _read_above(key, reports, findings)
    _truncated(evidence, operations, facts, findings, mode)
    _log_starts(evidence, facts, findings, options, mode)
    for (key, term), nodes in evidence.leaders.items():
        findings.check("two-leaders-one-term")
        if len(nodes) > 1:
            findings.add("two-leaders-one-term", partial(_leaders, key, term, nodes))
    for (key, _), sends in evidence.produced.items():
        findings.check("ack-regression", "duplicate-sequence")
        _sequences(facts.keys[key], sends, findings)
    for (group, key), fetches in evidence.fetches.items():
        findings.check("offset-commit-regression")
        _offset_commits(group, key, evidence.commits.get((group, key), []), fetches, findings)


def regressions(reports: Sequence[Report]) -> list[tuple[Report, Report]]:
    """Pairs of reports (higher, lower) where the higher was complete before the lower's call."""
    done = sorted(reports, key=lambda report: (report[1].end_ns, report[1].index))
    found: list[tuple[Report, Report]] = []
    highest: Report | None = None
    at = 0
    for report in sorted(reports, key=lambda report: (report[1].start_ns, report[1].index)):
        while at < len(done) and done[at][1].end_ns < report[1].start_ns:
            if highest is None or done[at][0] > highest[0]:
                highest = done[at]
            at += 1
        if highest is not None and report[0] < highest[0]:
            found.append((highest, report))
    return found


def _back(what: str, key: str, before: Report, after: Report) -> Witness:
    node = after[1].node
    who = f"{node} answered" if node else "the answer was"
    return Witness(
        text=f"The {what} of {key} went back: {who} {after[0]} after {before[0]}: "
        f"{describe(before[1])}; then {describe(after[1])}.",
        key=key,
        offset=after[0],
        operations=(before[1], after[1]),
        detail={"before": before[0], "after": after[0]},
    )


# --- high watermarks ------------------------------------------------------------------------------


def _read_above(key: str, reports: Sequence[Report], findings: Findings) -> None:
    for mark, op in reports:
        for offset, value in op.reads().get(key, ()):
            if offset >= mark:
                findings.add("read-above-hw", partial(_above, key, offset, value, mark, op))
                break


def _above(key: str, offset: int, value: Any, mark: int, op: Interval) -> Witness:
    return Witness(
        text=f"The {describe(op)} returned {value!r} at offset {offset} of {key} with a high "
        f"watermark of {mark}.",
        key=key,
        offset=offset,
        operations=(op,),
        detail={"hw": mark},
    )


def _truncated(
    evidence: Evidence,
    operations: Sequence[Interval],
    facts: Facts,
    findings: Findings,
    mode: str,
) -> None:
    by_key: dict[str, list[Report]] = {}
    for (key, _), reports in evidence.watermarks.items():
        by_key.setdefault(key, []).extend(reports)
    for key, reports in by_key.items():
        findings.check("truncated-below-hw")
        marks = Highest(reports)
        if key in facts.keys:
            _changed_below(facts.keys[key], operations, marks, findings)
        _shorter_below(key, operations, marks, findings, mode)


@final
class Highest:
    """The highest report that was complete before an instant."""

    def __init__(self, reports: Iterable[Report]) -> None:
        self._ends: list[int] = []
        self._best: list[Report] = []
        for report in sorted(reports, key=lambda report: (report[1].end_ns, report[1].index)):
            if not self._best or report[0] > self._best[-1][0]:
                self._ends.append(report[1].end_ns)
                self._best.append(report)

    def before(self, instant: int) -> Report | None:
        """The highest report of an operation that returned before `instant`."""
        at = bisect_left(self._ends, instant)
        return self._best[at - 1] if at else None


def _changed_below(
    facts: KeyFacts, operations: Sequence[Interval], marks: Highest, findings: Findings
) -> None:
    """Find offsets whose value changed after a reported high watermark had covered them."""
    if not facts.also_at:
        return
    first: dict[int, tuple[Any, Interval]] = {}
    for op in sorted(operations, key=lambda op: (op.end_ns, op.index)):
        for offset, value in claims_of(op, facts.key):
            if offset not in facts.also_at:
                continue
            known = first.setdefault(offset, (value, op))
            mark = marks.before(op.start_ns)
            if known[0] != value and mark is not None and offset < mark[0]:
                findings.add(
                    "truncated-below-hw",
                    partial(_replaced, facts.key, offset, known, (value, op), mark),
                )


def _replaced(
    key: str, offset: int, first: tuple[Any, Interval], second: tuple[Any, Interval], mark: Report
) -> Witness:
    return Witness(
        text=f"Offset {offset} of {key} held {first[0]!r}, a high watermark of {mark[0]} was "
        f"reported, and later it held {second[0]!r}.",
        key=key,
        offset=offset,
        operations=(first[1], mark[1], second[1]),
        detail={"hw": mark[0]},
    )


def _shorter_below(
    key: str, operations: Sequence[Interval], marks: Highest, findings: Findings, mode: str
) -> None:
    """Find logs that are shorter than a reported high watermark. Reads that may lag say nothing."""
    if mode != LINEARIZABLE:
        return
    for op in operations:
        if op.key == key and op.type == "ok" and op.f in ("end", "empty"):
            mark = marks.before(op.start_ns)
            if mark is not None and op.value < mark[0]:
                findings.add("truncated-below-hw", partial(_shorter, key, op, mark))


def _shorter(key: str, op: Interval, mark: Report) -> Witness:
    return Witness(
        text=f"A high watermark of {mark[0]} of {key} was reported, and later: {describe(op)}.",
        key=key,
        offset=op.value,
        operations=(mark[1], op),
        detail={"hw": mark[0]},
    )


# --- log starts -----------------------------------------------------------------------------------


def _log_starts(
    evidence: Evidence,
    facts: Facts,
    findings: Findings,
    options: Mapping[str, Any],
    mode: str,
) -> None:
    """Find log starts that fall, pass a high watermark, or pass records without a retention policy.

    Reports are compared per node. Linearizable `start` operations without a node are one sequence
    as well.
    """
    for (key, node), reports in evidence.starts.items():
        findings.check("log-start-overrun")
        if node or mode == LINEARIZABLE:
            for before, after in regressions(reports):
                findings.add("log-start-overrun", partial(_back, "log start", key, before, after))
        for start, op in reports:
            marks = dict(per_key(op, (op.evidence or {}).get("hw")))
            if key in marks and start > marks[key]:
                findings.add("log-start-overrun", partial(_passed, key, start, marks[key], op))
        if options.get("retention") == "none" and key in facts.keys:
            _unlicensed(facts.keys[key], max(reports, key=lambda report: report[0]), findings)


def _passed(key: str, start: int, mark: int, op: Interval) -> Witness:
    return Witness(
        text=f"Log start {start} of {key} lies beyond the high watermark {mark}: {describe(op)}.",
        key=key,
        offset=start,
        operations=(op,),
        detail={"hw": mark},
    )


def _unlicensed(facts: KeyFacts, report: Report, findings: Findings) -> None:
    """Find a log start that passed an acknowledged record which no client consumed.

    Without a retention policy the log start must not pass such a record.
    """
    start, op = report
    for batch in facts.batches:
        if batch.base is None or batch.op.type != "ok" or batch.base >= start:
            continue
        for offset, value in enumerate(batch.values, batch.base):
            if offset < start and value not in facts.seen:
                findings.add(
                    "log-start-overrun",
                    partial(_unconsumed, facts.key, offset, start, batch.op, op),
                )


def _unconsumed(key: str, offset: int, start: int, send: Interval, op: Interval) -> Witness:
    return Witness(
        text=f"Log start of {key} moved to {start} past offset {offset}, which nobody had consumed "
        f"and no retention policy gave leave to drop: {describe(send)}.",
        key=key,
        offset=offset,
        operations=(send, op),
    )


# --- leaders, producers, groups -------------------------------------------------------------------


def _leaders(key: str, term: int, nodes: Mapping[str, Interval]) -> Witness:
    first, second = list(nodes.values())[:2]
    return Witness(
        text=f"In term {term}, both {first.node} and {second.node} acknowledged appends to {key}.",
        key=key,
        operations=(first, second),
        detail={"term": term, "nodes": list(nodes)},
    )


def _sequences(facts: KeyFacts, sends: Sequence[Interval], findings: Findings) -> None:
    """Compare one producer's acknowledged sends to one key, in the order of (epoch, sequence)."""
    placed = [(_rank(op, sends[0]), op) for op in sends if op.type != "fail"]
    placed.sort(key=lambda item: (item[0], item[1].index))
    highest: tuple[int, Interval] | None = None
    places: dict[tuple[int, int], tuple[int, Interval]] = {}
    for rank, op in placed:
        value = op.asked[0] if type(op.asked) is list else op.asked
        offsets = facts.offsets_of(value)
        for offset in offsets:
            known = places.setdefault(rank, (offset, op))
            if known[0] != offset:
                findings.add("duplicate-sequence", partial(_twice, facts.key, known, (offset, op)))
        if op.type != "ok" or not offsets:
            continue
        if highest is not None and offsets[-1] < highest[0]:
            findings.add("ack-regression", partial(_against, facts.key, highest, (offsets[-1], op)))
        if highest is None or offsets[-1] > highest[0]:
            highest = (offsets[-1], op)


def _rank(op: Interval, first: Interval) -> tuple[int, int]:
    """(epoch, sequence) of a send; the sequence is unwrapped to within half a turn of `first`'s."""
    assert op.evidence is not None
    assert first.evidence is not None
    _, epoch, sequence = op.evidence["producer"]
    _, first_epoch, origin = first.evidence["producer"]
    if epoch != first_epoch:
        return epoch, sequence
    ahead = (sequence - origin + _SEQUENCES // 2) % _SEQUENCES - _SEQUENCES // 2
    return epoch, origin + ahead


def _twice(key: str, one: tuple[int, Interval], other: tuple[int, Interval]) -> Witness:
    producer = (other[1].evidence or {})["producer"]
    return Witness(
        text=f"Sequence {producer[2]} of producer {producer[0]}, epoch {producer[1]}, lies at "
        f"offsets {one[0]} and {other[0]} of {key}: a retry was appended again.",
        key=key,
        offset=other[0],
        operations=(one[1],) if one[1] is other[1] else (one[1], other[1]),
        detail={"producer": producer, "offsets": [one[0], other[0]]},
    )


def _against(key: str, high: tuple[int, Interval], low: tuple[int, Interval]) -> Witness:
    return Witness(
        text=f"One producer's acknowledged sends lie in {key} against their order: "
        f"{describe(high[1])} at offset {high[0]} came before {describe(low[1])} at {low[0]}.",
        key=key,
        offset=low[0],
        operations=(high[1], low[1]),
    )


def _offset_commits(
    group: str,
    key: str,
    commits: Sequence[Report],
    fetches: Sequence[Report],
    findings: Findings,
) -> None:
    """Find fetches below an acknowledged commit.

    Such a fetch needs a lower commit that may have taken effect between the two.
    """
    acked = Highest([report for report in commits if report[1].type == "ok"])
    for offset, fetch in fetches:
        highest = acked.before(fetch.start_ns)
        if highest is None or offset >= highest[0]:
            continue
        lowered = max(
            (op.end_ns for low, op in commits if low <= offset and op.start_ns <= fetch.end_ns),
            default=-1,
        )
        for high, op in commits:
            complete = op.type == "ok" and op.end_ns < fetch.start_ns
            if complete and high > offset and op.start_ns > lowered:
                findings.add(
                    "offset-commit-regression",
                    partial(_lost_commit, group, key, (high, op), (offset, fetch)),
                )
                break


def _lost_commit(group: str, key: str, before: Report, fetch: Report) -> Witness:
    return Witness(
        text=f"Group {group} had committed offset {before[0]} of {key}, and later fetched "
        f"{fetch[0]}, with no lower commit since: {describe(before[1])}; {describe(fetch[1])}.",
        key=key,
        offset=fetch[0],
        operations=(before[1], fetch[1]),
        detail={"group": group},
    )
