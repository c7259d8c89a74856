"""Judges the linearizability of an append-only log, exactly and in near-linear time.

Offsets fix the order of the appends. Only the reads are free, each bound to one side of one append
or to both. So all operations lie on one chain:

    reads of end 0 | append 0 | reads of end 1 | append 1 | ... | reads of end T

Give every operation its earliest point: the running maximum M of the invocations of everything
before it on the chain. This decides the question:

1. Necessary: every operation that precedes X has its point at or after its own invocation. So X's
   point is at least M, and if M is later than X's return there is no order.
2. Sufficient: these points never fall along the chain and lie inside the (closed) intervals, so the
   operations in the order of their points are a linearization.

An offset below T that no operation claims is a hole: some unresolved append must be able to have
filled it (`raftlog.verify.judging.holes`). The scan can start anywhere
with a carry, so a cluster of machines can run it block by block, as
`raftlog.spark.jobs.chain_job` does.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import accumulate
from operator import gt
from typing import Any, Final, NamedTuple, final

import attrs

from raftlog.base.amounts import amount
from raftlog.verify.histories.interval import OPEN, Interval
from raftlog.verify.histories.pairs import Value
from raftlog.verify.judging import explain, holes
from raftlog.verify.judging.facts import Batch, Bound, KeyFacts
from raftlog.verify.judging.verdict import Findings, Witness

CLASS: Final = "linearizability"
LINEARIZABLE: Final = "linearizable"
COMMITTED_PREFIX: Final = "committed-prefix"
BEFORE_ALL: Final = -OPEN


Row = tuple[int, Any, Any, Any, Any, Any]
"""The chain's part at one offset: the reads of the gap just before it, and the append.

(offset, exact_in, exact_out, at_least, at_most, append): each bound is (instant, operation) or
None, the append is (invocation, return, operation or None) or None. The caller chooses how an
operation is named: an `Interval` here, a plain id on a cluster. Rows are plain tuples because there
is one per offset."""


class Carry(NamedTuple):
    """The running maximum, and the operation that holds it."""

    latest: int = BEFORE_ALL
    holder: Any = None


NO_CARRY: Final = Carry()


class ChainViolation(NamedTuple):
    """`before` precedes `after` on the chain, yet `after` returned before `before` was invoked."""

    offset: int
    before: Any
    after: Any


def scan(rows: Iterable[Row], carry: Carry = NO_CARRY) -> tuple[list[ChainViolation], Carry]:
    """Walk the chain. Returns every violated pair, and the carry for the block that follows."""
    latest, holder = carry
    found: list[ChainViolation] = []
    for offset, exact_in, exact_out, at_least, at_most, append in rows:
        if exact_out is not None and latest > exact_out[0]:
            found.append(ChainViolation(offset, holder, exact_out[1]))
        if at_least is not None and latest > at_least[0]:
            found.append(ChainViolation(offset, holder, at_least[1]))
        if exact_in is not None and exact_in[0] > latest:
            latest, holder = exact_in
        if at_most is not None and at_most[0] > latest:
            latest, holder = at_most
        if append is not None:
            invoked, returned, op = append
            if latest > returned:
                found.append(ChainViolation(offset, holder, op))
            if invoked > latest:
                latest, holder = invoked, op
    return found, Carry(latest, holder)


@final
@attrs.define(eq=False)
class Bounds:
    """The reads of one key in the chosen mode, moved out of the middle of batches."""

    at_least: dict[int, Bound]
    exact_in: dict[int, Bound]
    exact_out: dict[int, Bound]
    at_most: dict[int, Bound]
    split: list[tuple[Interval, Batch]] = attrs.field(factory=list)
    """Exact reads that saw a batch in half."""


def bounds_of(facts: KeyFacts, mode: str) -> Bounds:
    """The bounds in a mode: without linearizable reads, an exact read is only a lower bound."""
    if mode == LINEARIZABLE:
        bounds = Bounds(facts.at_least, facts.exact_in, facts.exact_out, facts.at_most)
    else:
        at_least = dict(facts.at_least)
        for gap, bound in facts.exact_out.items():
            _lower(at_least, gap, bound)
        bounds = Bounds(at_least, {}, {}, {})
    if facts.any_batches:
        _leave_batches(facts, bounds)
    return bounds


def _leave_batches(facts: KeyFacts, bounds: Bounds) -> None:
    """Move reads that end inside a batch to its edges, since a batch is one atomic range."""
    moved: dict[int, Bound] = {}
    for gap, bound in bounds.at_least.items():
        around = _around(facts, gap)
        _lower(moved, gap if around is None else _stop(around), bound)
    bounds.at_least = moved
    moved = {}
    for gap, bound in bounds.at_most.items():
        around = _around(facts, gap)
        _raise(moved, gap if around is None else _base(around), bound)
    bounds.at_most = moved
    for gap in sorted(bounds.exact_out):
        around = _around(facts, gap)
        if around is not None:
            bounds.split.append((bounds.exact_out[gap][1], around))


def _around(facts: KeyFacts, gap: int) -> Batch | None:
    """The batch in whose middle `gap` lies; None where there is none."""
    value = facts.at.get(gap)
    batch = facts.writers.get(value) if value is not None else None
    if batch is None or batch.base is None or batch.size == 1:
        return None
    return batch if batch.base < gap < batch.base + batch.size else None


def _base(batch: Batch) -> int:
    assert batch.base is not None
    return batch.base


def _stop(batch: Batch) -> int:
    return _base(batch) + batch.size


def _lower(bounds: dict[int, Bound], gap: int, bound: Bound) -> None:
    known = bounds.get(gap)
    if known is None or (bound[0], bound[1].index) < (known[0], known[1].index):
        bounds[gap] = bound


def _raise(bounds: dict[int, Bound], gap: int, bound: Bound) -> None:
    known = bounds.get(gap)
    if known is None or (bound[0], -bound[1].index) > (known[0], -known[1].index):
        bounds[gap] = bound


def rows_of(facts: KeyFacts, bounds: Bounds) -> list[Row]:
    """The chain, without the offsets at which nothing is known."""
    order = facts.order()
    gaps = bounds.exact_out.keys() | bounds.at_least.keys()
    end = max(gaps, default=0)
    if order and order[-1] >= end:
        end = order[-1] + 1
    end = max(end, facts.first_end)
    binding = {gap: bound for gap, bound in bounds.at_most.items() if gap < end}
    points = sorted(gaps.union(order, binding, [facts.first_end - 1] if facts.first_end else ()))
    values = list(map(facts.at.get, points))
    batches = map(facts.writers.get, values)  # type: ignore[arg-type]
    appends = [
        (batch.op.start_ns, batch.op.end_ns, batch.op)
        if batch is not None and batch.base == offset and batch.op.type != "fail"
        else _append(batch, value, offset)
        for offset, value, batch in zip(points, values, batches, strict=True)
    ]
    if facts.first_end:
        appends[points.index(facts.first_end - 1)] = (BEFORE_ALL, BEFORE_ALL, None)
    return list(
        zip(
            points,
            map(bounds.exact_in.get, points),
            map(bounds.exact_out.get, points),
            map(bounds.at_least.get, points),
            map(binding.get, points),
            appends,
            strict=True,
        )
    )


def _append(
    batch: Batch | None, value: Value | None, offset: int
) -> tuple[int, int, Interval | None] | None:
    """The append at `offset`.

    It has no operation where the value lies elsewhere or its send failed.
    """
    if value is None:
        return None
    if batch is None or batch.op.type == "fail" or batch.offset_of(value) != offset:
        return (BEFORE_ALL, OPEN, None)
    return (batch.op.start_ns, batch.op.end_ns, batch.op)


def check_key(
    facts: KeyFacts, findings: Findings, *, mode: str, dense: bool, hole_steps: int
) -> None:
    """Check one key for linearizability, without the value conflicts."""
    if facts.at or facts.at_least or facts.exact_in or facts.at_most:
        findings.check(CLASS)  # else no operation says where anything lies, or how long the log is
    bounds = bounds_of(facts, mode)
    if is_plainly_right(facts, bounds):
        return
    rows = rows_of(facts, bounds)
    violations, _ = scan(rows)
    for violation in violations:
        findings.add(CLASS, partial(pair_witness, facts.key, violation))
    for read, batch in bounds.split:
        findings.add(CLASS, partial(_split_witness, facts, read, batch))
    for value in facts.cut_short:
        findings.add(CLASS, partial(_cut_short_witness, facts, value))
    for batch in facts.batches:
        if batch.base is not None and (batch.op.type == "fail" or batch.base < facts.first_end):
            findings.add(CLASS, partial(_impossible_witness, facts, batch))
    if dense:
        empties = {gap: instant for gap, (instant, _) in bounds.at_most.items()}
        _check_holes(facts, rows, findings, hole_steps, empties)


def is_plainly_right(facts: KeyFacts, bounds: Bounds) -> bool:
    """Whether a usual log, one without holes, is linearizable, told by whole columns.

    It gives the same answer as `scan`, faster. Reads that must precede append o raise the maximum
    before o as o's own invocation does. No append returns before its own invocation, so both may be
    taken together. False says nothing: the caller must scan.
    """
    columns = facts.plain_columns()
    if columns is None or bounds.split:
        return False
    invoked, returned = columns
    end = len(invoked)
    gaps = (bounds.at_least, bounds.exact_in, bounds.exact_out)
    if max(max(gap, default=0) for gap in gaps) > end:
        return False
    if bounds.exact_in or bounds.at_most:
        invoked = list(invoked)
        for bound in (bounds.exact_in, bounds.at_most):
            for gap, (instant, _) in bound.items():
                if gap < end and instant > invoked[gap]:
                    invoked[gap] = instant
    latest = list(accumulate(invoked, max, initial=BEFORE_ALL))  # the maximum before each gap
    if any(map(gt, latest[1:], returned)):
        return False
    return all(
        latest[gap] <= instant
        for bound in (bounds.at_least, bounds.exact_out)
        for gap, (instant, _) in bound.items()
    )


def chain_of(facts: KeyFacts, mode: str) -> list[Row]:
    """The chain that `check_key` judged, for pictures."""
    return rows_of(facts, bounds_of(facts, mode))


def _check_holes(
    facts: KeyFacts,
    rows: Sequence[Row],
    findings: Findings,
    hole_steps: int,
    empties: Mapping[int, int],
) -> None:
    order = facts.order()
    first, last = facts.first_end, rows[-1][0] if rows else 0
    if order and facts.gapless() and order[0] <= first and order[-1] + 1 >= last:
        return
    segments = holes.segments_of(rows, first)
    if not segments:
        return
    spare = [
        holes.Filler(batch.size, batch.op.start_ns, batch.op)
        for batch in facts.batches
        if batch.base is None and batch.op.type != "fail"
    ]
    outcome = holes.fill(segments, spare, hole_steps, empties)
    if outcome.exhausted:
        findings.give_up(CLASS, f"filling holes of {facts.key}: {amount(hole_steps, 'step')} spent")
    for hole in outcome.unfilled[:1]:
        findings.add(CLASS, partial(_hole_witness, facts.key, hole, spare), outcome.count)


def pair_witness(key: str, violation: ChainViolation) -> Witness:
    """A violated pair in words.

    An operation that is None stands for the log as it was at the start.
    """
    before, after = violation.before, violation.after
    known = tuple(op for op in (before, after) if op is not None)
    if before is not None and after is not None:
        text = explain.order_violated(before, after)
    else:
        text = (
            f"The {explain.describe(known[0])} contradicts the records that the log of {key} had "
            "when the history began."
        )
    return Witness(
        text=text, key=key, offset=violation.offset, operations=known, detail={"kind": "pair"}
    )


def _impossible_witness(facts: KeyFacts, batch: Batch) -> Witness:
    why = "certainly failed"
    if batch.op.type != "fail":
        why = f"was made when the log had {amount(facts.first_end, 'record')}"
    return Witness(
        text=f"The {explain.describe(batch.op)} {why}, yet it lies at offset {_base(batch)}.",
        key=facts.key,
        offset=batch.base,
        operations=(batch.op,),
        detail={"kind": "conflict"},
    )


def _cut_short_witness(facts: KeyFacts, value: Value) -> Witness:
    offset, read, batch = facts.cut_short[value]
    return Witness(
        text=f"The {explain.describe(read)} saw {value!r} at {offset}, but its batch, the "
        f"{explain.describe(batch.op)}, has more values before it than that.",
        key=facts.key,
        offset=offset,
        operations=(batch.op, read),
        detail={"kind": "split batch"},
    )


def _split_witness(facts: KeyFacts, read: Interval, batch: Batch) -> Witness:
    return Witness(
        text=(
            f"The {explain.describe(read)} saw the {explain.describe(batch.op)} in half: one "
            f"batch of {batch.size} lies at {_base(batch)} to {_stop(batch) - 1}."
        ),
        key=facts.key,
        offset=read.value,
        operations=(batch.op, read),
        detail={"kind": "split batch"},
    )


def _hole_witness(key: str, hole: holes.Hole, spare: Sequence[holes.Filler]) -> Witness:
    late = [spare_one.op for spare_one in spare if spare_one.invoked > hole.deadline][:3]
    behind = f"the {explain.describe(hole.holder)} saw something behind it" if hole.holder else ""
    until = explain.moment(hole.deadline)
    return Witness(
        text=(
            f"Nobody can have written offset {hole.offset} of {key}: {behind}, done at {until}; "
            + (
                f"{amount(len(late), 'unresolved send')} began only later."
                if late
                else "no unresolved send is left that could have filled it."
            )
        ),
        key=key,
        offset=hole.offset,
        operations=tuple(op for op in (hole.holder, *late) if op is not None),
        detail={"kind": "hole"},
    )
