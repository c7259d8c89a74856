"""The twin of the Spark job: the log check as mergeable folds, without Spark.

Rows are (key, aggregate) pairs of plain tuples, strings and ints: they pickle, they merge in any
order and grouping (each merge is commutative, associative and idempotent), and nothing in them is
an object of ours. Operations are named by their index. The stages, each a group-by-key with a
merge:

1. `batch_rows` by (key, batch of a send): where a batch lies, from its acknowledgement and from
reads of its values, which `value_rows` by (key, value) bring together. 2. `offset_rows` by (key,
offset): bounds and values; reads inside a batch are moved to its edges. 3. `key_row` by key: the
end, log start, the highest first offset that was read. 4. The chain by (key, offset), cut into
blocks of any size: `summary_of` each block, an exclusive scan of the summaries on the driver, then
`scan_block` each block with its carry.

`judge_in_parts` runs them in one process. It must agree with the judge and with the Spark job.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import reduce
from typing import Any, NamedTuple, TypeVar

from raftlog.verify.histories.interval import OPEN, Interval
from raftlog.verify.histories.pairs import Value
from raftlog.verify.judging import holes
from raftlog.verify.judging.facts import per_key
from raftlog.verify.judging.linearizability import (
    BEFORE_ALL,
    LINEARIZABLE,
    Carry,
    ChainViolation,
    Row,
    scan,
)

_A = TypeVar("_A")
_K = TypeVar("_K", bound=Hashable)


def reduce_by_key(rows: Iterable[tuple[_K, _A]], merge: Callable[[_A, _A], _A]) -> dict[_K, _A]:
    """Merge the rows of each key, as a cluster's `reduceByKey` does."""
    groups: dict[_K, list[_A]] = {}
    for key, aggregate in rows:
        groups.setdefault(key, []).append(aggregate)
    return {key: reduce(merge, found) for key, found in groups.items()}


def _least(one: Any, other: Any) -> Any:
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)


def _most(one: Any, other: Any) -> Any:
    """The later instant; at one instant the lower operation, as `Facts` has it."""
    if one is None or other is None:
        return other if one is None else one
    return min(one, other, key=lambda bound: (-bound[0], bound[1]))


# --- 1. values and batches ------------------------------------------------------------------------


class ValueFold(NamedTuple):
    """One value of one key: the batch that carries it, where it was read, whether by an ok read."""

    batch: tuple[int, int] | None
    """(operation, number of the batch inside it)."""
    place: int
    """Place of the value inside the batch."""
    read_low: int | None
    read_high: int | None
    seen: bool


class BatchFold(NamedTuple):
    """One batch: its send, and the lowest and highest base that anything gives it."""

    kind: str | None
    start_ns: int
    end_ns: int
    size: int
    base_low: int | None
    base_high: int | None
    seen: bool


def value_rows(op: Interval) -> Iterable[tuple[tuple[str, Value], ValueFold]]:
    """Yields the facts of one operation about values."""
    for number, (key, values, _) in enumerate(op.sends()):
        for place, value in enumerate(values):
            yield (key, value), ValueFold((op.index, number), place, None, None, False)
    for key, pairs in op.reads().items():
        for offset, value in pairs:
            yield (key, value), ValueFold(None, 0, offset, offset, op.type == "ok")


def merge_value(one: ValueFold, other: ValueFold) -> ValueFold:
    """Two folds of one value."""
    return ValueFold(
        _least(one.batch, other.batch),
        max(one.place, other.place),
        _least(one.read_low, other.read_low),
        one.read_high if other.read_high is None else max(one.read_high or 0, other.read_high),
        one.seen or other.seen,
    )


def batch_rows(op: Interval) -> Iterable[tuple[tuple[str, int, int], BatchFold]]:
    """The batches that one operation sent."""
    for number, (key, values, base) in enumerate(op.sends()):
        fold = BatchFold(op.type, op.start_ns, op.end_ns, len(values), base, base, False)
        yield (key, op.index, number), fold


def batch_row_of(key: str, fold: ValueFold) -> tuple[tuple[str, int, int], BatchFold] | None:
    """Returns the facts about a batch from the reads of one of its values."""
    if fold.batch is None or fold.read_low is None or fold.read_high is None:
        return None
    low, high = fold.read_low - fold.place, fold.read_high - fold.place
    return (key, *fold.batch), BatchFold(None, 0, 0, 0, low, high, fold.seen)


def merge_batch(one: BatchFold, other: BatchFold) -> BatchFold:
    """Two folds of one batch."""
    high = [base for base in (one.base_high, other.base_high) if base is not None]
    sent = one if one.kind is not None else other
    return BatchFold(
        sent.kind,
        sent.start_ns,
        sent.end_ns,
        sent.size,
        _least(one.base_low, other.base_low),
        max(high, default=None),
        one.seen or other.seen,
    )


# --- 2. offsets -----------------------------------------------------------------------------------


class OffsetFold(NamedTuple):
    """One offset of one key. Bounds are (instant, operation); values are compared as texts."""

    low: str | None = None
    high: str | None = None
    exact_in: tuple[int, int] | None = None
    exact_out: tuple[int, int] | None = None
    at_least: tuple[int, int] | None = None
    at_most: tuple[int, int] | None = None
    append: tuple[int, int, int] | None = None
    inside: tuple[int, int] | None = None
    """(base, end) of the batch whose middle lies before this offset."""


def _text(value: Value) -> str:
    """Values of both kinds in one order: what is equal stays equal, what differs differs."""
    return f"{type(value).__name__} {value}"


def offset_rows(op: Interval, mode: str) -> Iterable[tuple[tuple[str, int], OffsetFold]]:
    """Yields the facts about offsets from one operation that is not a send."""
    for key, pairs in op.reads().items():
        for offset, value in pairs:
            yield (key, offset), OffsetFold(low=_text(value), high=_text(value))
        if len(pairs) and op.type == "ok":
            yield (key, pairs.end), OffsetFold(at_least=(op.end_ns, op.index))
    if op.type != "ok" or op.f not in ("end", "empty", "start"):
        return
    at = (op.key or "", op.value)
    exact = mode == LINEARIZABLE
    if op.f == "start" or (op.f == "end" and not exact):
        yield at, OffsetFold(at_least=(op.end_ns, op.index))
    elif op.f == "end":
        bounds = ((op.start_ns, op.index), (op.end_ns, op.index))
        yield at, OffsetFold(exact_in=bounds[0], exact_out=bounds[1])
    elif exact:
        yield at, OffsetFold(at_most=(op.start_ns, op.index))


def offset_rows_of(
    key: str, index: int, values: Sequence[Value], fold: BatchFold
) -> Iterable[tuple[tuple[str, int], OffsetFold]]:
    """Where one placed batch lies; a failed one was read, so it lies there all the same."""
    if fold.base_low is None or fold.base_high is None:
        return
    append = (fold.start_ns, fold.end_ns, index)
    if fold.base_high != fold.base_low or fold.base_low < 0 or fold.kind == "fail":
        append = (BEFORE_ALL, OPEN, -1)
    for base in dict.fromkeys((fold.base_low, fold.base_high)):
        for place, value in enumerate(values):
            inside = (base, base + len(values)) if place else None
            text = _text(value)
            yield (key, base + place), OffsetFold(low=text, high=text, append=append, inside=inside)


def merge_offset(one: OffsetFold, other: OffsetFold) -> OffsetFold:
    """Two folds of one offset."""
    texts = [text for text in (one.high, other.high) if text is not None]
    return OffsetFold(
        _least(one.low, other.low),
        max(texts, default=None),
        _most(one.exact_in, other.exact_in),
        _least(one.exact_out, other.exact_out),
        _least(one.at_least, other.at_least),
        _most(one.at_most, other.at_most),
        _least(one.append, other.append),
        _least(one.inside, other.inside),
    )


def unfolded(at: tuple[str, int], fold: OffsetFold) -> Iterable[tuple[tuple[str, int], OffsetFold]]:
    """Reads that end inside a batch go to its edges. To be merged again."""
    if fold.inside is None or (fold.at_least is None and fold.at_most is None):
        yield at, fold
        return
    key, _ = at
    base, end = fold.inside
    yield at, fold._replace(at_least=None, at_most=None)
    if fold.at_least is not None:
        yield (key, end), OffsetFold(at_least=fold.at_least)
    if fold.at_most is not None:
        yield (key, base), OffsetFold(at_most=fold.at_most)


# --- 4. the chain, in blocks ----------------------------------------------------------------------


class Summary(NamedTuple):
    """The facts of a block that the rest of the chain needs."""

    carry: Carry
    earliest: tuple[int, Any]
    """The earliest return in it, and whose."""
    after: int
    """The offset after its last row, or its last gap where nothing lies there."""


def row_of(offset: int, fold: OffsetFold, end: int) -> Row:
    """One row of the chain; `end` is the key's: what found nothing there or beyond binds
    nothing.
    """
    append = fold.append
    if append is None and fold.low is not None:
        append = (BEFORE_ALL, OPEN, -1)
    at_most = fold.at_most if offset < end else None
    return offset, fold.exact_in, fold.exact_out, fold.at_least, at_most, append


def summary_of(rows: Sequence[Row]) -> Summary:
    """Returns the summary of a block that is not empty."""
    _, carry = scan(rows)
    earliest: tuple[int, Any] = (OPEN, None)
    for _, _, exact_out, at_least, _, append in rows:
        bounds = (exact_out, at_least, append[1:] if append is not None else None)
        earliest = min([earliest, *(b for b in bounds if b is not None)], key=lambda b: b[0])
    return Summary(carry, earliest, rows[-1][0] + (rows[-1][5] is not None))


def carries_of(
    summaries: Sequence[Summary], first: int
) -> list[tuple[Carry, int, tuple[int, Any]]]:
    """For each block: the carry into it, the offset expected first, the earliest return
    behind it.
    """
    into: list[tuple[Carry, int]] = []
    carry, expected = Carry(), first
    for summary in summaries:
        into.append((carry, expected))
        carry = carry if carry.latest >= summary.carry.latest else summary.carry
        expected = max(expected, summary.after)
    behind: list[tuple[int, Any]] = []
    earliest: tuple[int, Any] = (OPEN, None)
    for summary in reversed(summaries):
        behind.append(earliest)
        earliest = min(earliest, summary.earliest, key=lambda bound: bound[0])
    behind.reverse()
    return [(carry, first, late) for (carry, first), late in zip(into, behind, strict=True)]


def scan_block(
    rows: Sequence[Row], carry: Carry, first: int, behind: tuple[int, Any]
) -> tuple[list[ChainViolation], list[holes.HoleSegment]]:
    """The violated pairs and the holes of one block, given what lies before and behind it."""
    violations, _ = scan(rows, carry)
    return violations, holes.segments_of(rows, first, behind)


# --- the whole, in one process --------------------------------------------------------------------


class KeyVerdict(NamedTuple):
    """Counts per class of one key, and its first violated pair as (offset, before, after)."""

    counts: Mapping[str, int]
    first: tuple[int, Any, Any] | None


def judge_in_parts(
    parts: Sequence[Sequence[Interval]], options: Mapping[str, Any], *, block: int = 64
) -> dict[str, KeyVerdict]:
    """Every stage over `parts` of a history, merged; the log's classes by key.

    The classes are those of `raftlog.verify.judging.anomalies` and `linearizability` (violated
    pairs and holes; batches seen in half and sends before the history's first end are counted there
    too).
    """
    mode = str(options.get("read_consistency", ""))
    operations = [op for part in parts for op in part]
    values = reduce_by_key((row for op in operations for row in value_rows(op)), merge_value)
    from_reads = (batch_row_of(key, fold) for (key, _), fold in values.items())
    batches = reduce_by_key(
        [
            *(row for op in operations for row in batch_rows(op)),
            *(row for row in from_reads if row is not None),
        ],
        merge_batch,
    )
    sent = {
        (key, op.index, number): texts
        for op in operations
        for number, (key, texts, _) in enumerate(op.sends())
    }
    offsets = reduce_by_key(
        [
            *(row for op in operations for row in offset_rows(op, mode)),
            *(
                row
                for (key, index, number), fold in batches.items()
                for row in offset_rows_of(key, index, sent[key, index, number], fold)
            ),
        ],
        merge_offset,
    )
    moved = reduce_by_key(
        (row for at, fold in offsets.items() for row in unfolded(at, fold)), merge_offset
    )
    starts = _log_starts(operations)
    keys = sorted({key: None for key, _ in [*moved, *values]} | {key: None for key, *_ in batches})
    return {key: _judge_key(key, values, batches, moved, starts, options, block) for key in keys}


def _log_starts(operations: Iterable[Interval]) -> dict[str, int]:
    """The third stage's `log start`: the highest that any answer named."""
    rows = [
        (key, start)
        for op in operations
        for key, start in [
            *([(op.key or "", op.value)] if op.f == "start" and op.type == "ok" else []),
            *per_key(op, (op.evidence or {}).get("log_start")),
        ]
    ]
    return reduce_by_key(rows, max)


def _judge_key(
    key: str,
    values: Mapping[tuple[str, Value], ValueFold],
    batches: Mapping[tuple[str, int, int], BatchFold],
    offsets: Mapping[tuple[str, int], OffsetFold],
    starts: Mapping[str, int],
    options: Mapping[str, Any],
    block: int,
) -> KeyVerdict:
    first_end = (options.get("first_end") or {}).get(key, 0)
    mine = {offset: fold for (name, offset), fold in offsets.items() if name == key}
    unpolled = options.get("final_read") is True
    counts = _value_counts(key, values, batches, starts.get(key, 0), first_end, unpolled)
    conflicts = sum(fold.low != fold.high for fold in mine.values())
    counts["inconsistent-offsets"] = conflicts
    spare = [
        holes.Filler(fold.size, fold.start_ns, index)
        for (name, index, _), fold in batches.items()
        if name == key and fold.base_low is None and fold.kind != "fail"
    ]
    split = sum(f.inside is not None and f.exact_out is not None for f in mine.values())
    misplaced = sum(
        fold.base_low is not None and (fold.base_low < first_end or fold.kind == "fail")
        for (name, *_), fold in batches.items()
        if name == key
    )
    violations, unfilled = _chain(mine, first_end, spare, options, block)
    counts["linearizability"] = len(violations) + unfilled + split + misplaced
    first = violations[0] if violations else None
    return KeyVerdict(counts, None if first is None else tuple(first))


def _value_counts(
    key: str,
    values: Mapping[tuple[str, Value], ValueFold],
    batches: Mapping[tuple[str, int, int], BatchFold],
    log_start: int,
    first_end: int,
    unpolled: bool,
) -> dict[str, int]:
    """The counts of what values show. `unpolled`: a key that no poll read may be unseen, too."""
    names = ("duplicate", "phantom", "G1a", "lost-write", "unseen")
    counts = dict.fromkeys(names, 0)
    polled = any(fold.seen for (name, _), fold in values.items() if name == key)
    highest = -1
    places: list[tuple[ValueFold, BatchFold | None, list[int]]] = []
    for (name, _), fold in values.items():
        if name != key:
            continue
        batch = batches[key, *fold.batch] if fold.batch is not None else None
        known = [place for place in (fold.read_low, fold.read_high) if place is not None]
        if batch is not None:
            bases = (batch.base_low, batch.base_high)
            known += [base + fold.place for base in bases if base is not None and base >= 0]
        places.append((fold, batch, known))
        counts["duplicate"] += len(dict.fromkeys(known)) > 1
        counts["phantom"] += batch is None and max(known, default=-1) >= first_end
        counts["G1a"] += batch is not None and batch.kind == "fail" and fold.seen
        if fold.seen:
            highest = max(highest, min(known))
    for fold, batch, known in places:
        if fold.seen or batch is None:
            continue
        above = max(known) >= log_start if known else not log_start
        counts["unseen"] += (polled or unpolled) and batch.kind == "ok" and above
        if not polled:
            continue
        committed = batch.kind == "ok" or (batch.kind == "info" and batch.seen)
        counts["lost-write"] += bool(known) and above and committed and max(known) <= highest
    return counts


def _chain(
    mine: Mapping[int, OffsetFold],
    first_end: int,
    spare: Sequence[holes.Filler],
    options: Mapping[str, Any],
    block: int,
) -> tuple[list[ChainViolation], int]:
    """Stage 4: blocks, their summaries, carries, scans; the holes matched in one place."""
    known = [offset + 1 for offset, fold in mine.items() if fold.low is not None]
    reads = [
        o for o, fold in mine.items() if fold.exact_out is not None or fold.at_least is not None
    ]
    end = max([first_end, *known, *reads], default=0)
    folds = dict(mine)
    if first_end:
        before = folds.get(first_end - 1, OffsetFold())
        folds[first_end - 1] = before._replace(append=(BEFORE_ALL, BEFORE_ALL, -1))
    rows = [row_of(offset, folds[offset], end) for offset in sorted(folds) if offset <= end]
    blocks = [rows[at : at + block] for at in range(0, len(rows), block)]
    carries = carries_of([summary_of(part) for part in blocks], first_end)
    violations: list[ChainViolation] = []
    segments: list[holes.HoleSegment] = []
    for part, (carry, first, behind) in zip(blocks, carries, strict=True):
        found, gaps = scan_block(part, carry, first, behind)
        violations += found
        segments += gaps
    if options.get("dense", True) is False or not segments:
        return violations, 0
    empties = {at: fold.at_most[0] for at, fold in mine.items() if fold.at_most is not None}
    return violations, holes.fill(segments, spare, 10**6, empties).count
