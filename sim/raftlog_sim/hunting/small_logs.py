"""Random small histories of one log, and an independent judge for them.

`generate` runs a real log (one list) with random windows around each operation's instant, then
breaks the record of it in up to three places. `by_search` judges the result by the definition
alone: the general search over the append-only model. It does not argue from offsets, holes or moved
batches. The tests of `raftlog.verify` and the hunts of its mutants draw from here.
"""

from random import Random  # noqa: TID251  (seeded by name, outside every simulated world)
from typing import Any, Final, final

import attrs

from raftlog.verify.histories.interval import OPEN, Interval
from raftlog.verify.histories.pairs import Pairs
from raftlog.verify.judging.linearizability import COMMITTED_PREFIX, LINEARIZABLE
from raftlog.verify.judging.models import Call, append_only
from raftlog.verify.judging.search import search
from raftlog.verify.judging.verdict import UNKNOWN

KEY: Final = "t/0"


@final
@attrs.frozen(kw_only=True)
class Shape:
    """The shape of a small history."""

    operations: int = 9
    span: int = 12
    batches: bool = False
    sparse: bool = False
    retention: bool = False
    preloaded: bool = False
    mode: str = LINEARIZABLE
    mutations: int = 3
    unheard: float = 0.35
    """The share of sends that get no answer."""
    empties: bool = False
    """Whether most reads are of lengths, among them lengths that no log has had."""


SHAPES: Final = {
    "dense": Shape(),
    "crowded": Shape(span=5),
    "batches": Shape(batches=True),
    "sparse": Shape(sparse=True),
    "sparse-batches": Shape(sparse=True, batches=True),
    "retention": Shape(retention=True, batches=True),
    "unheard-batches": Shape(retention=True, batches=True, unheard=0.9, empties=True, operations=7),
    "preloaded": Shape(preloaded=True, retention=True),
    "committed-prefix": Shape(mode=COMMITTED_PREFIX, batches=True, retention=True),
    "committed-sparse": Shape(mode=COMMITTED_PREFIX, sparse=True, preloaded=True),
}


@final
@attrs.define(eq=False)
class _Log:
    tail: int = 0
    start: int = 0
    held: list[tuple[int, Any]] = attrs.field(factory=list)


def generate(rng: Random, shape: Shape) -> tuple[dict[str, Any], list[Interval]]:
    """Returns options for the header, and the operations."""
    first_end = rng.randint(1, 3) if shape.preloaded else 0
    log = _Log(tail=first_end, held=[(at, f"#old{at}") for at in range(first_end)])
    count = rng.randint(2, shape.operations)
    instants = sorted(rng.randint(0, shape.span) for _ in range(count))
    operations = []
    for number, instant in enumerate(instants):
        if shape.sparse and rng.random() < 0.25:
            log.tail += rng.randint(1, 2)
        if shape.retention and rng.random() < 0.15 and log.tail > log.start:
            log.start = rng.randint(log.start, log.tail)
        start = instant - rng.randint(0, 4)
        end = instant + rng.randint(0, 4)
        operations.append(_operation(rng, shape, log, number, start, end))
    for _ in range(rng.randint(0, shape.mutations)):
        _mutate(rng, operations)
    for op in operations:
        if op.f == "poll":
            op.value = {KEY: Pairs.of(op.value[KEY])}
    options: dict[str, Any] = {"read_consistency": shape.mode, "dense": not shape.sparse}
    if first_end:
        options["first_end"] = {KEY: first_end}
    return options, operations


def _operation(rng: Random, shape: Shape, log: _Log, number: int, start: int, end: int) -> Interval:
    roll = rng.random()
    if roll < 0.55:
        return _send(rng, shape, log, number, start, end)
    if roll < (0.6 if shape.empties else 0.8):
        kind = "info" if rng.random() < 0.1 else "ok"
        held = [pair for pair in log.held if pair[0] >= log.start]
        first = rng.randint(0, len(held))
        last = rng.randint(first, len(held))
        pairs = [list(pair) for pair in held[first:last]]
        ends = end if kind == "ok" else OPEN
        return Interval(number, number, "poll", None, kind, start, ends, None, {KEY: pairs})
    f, value = rng.choice([("end", log.tail), ("empty", log.tail), ("start", log.start)])
    if shape.empties:
        f, value = rng.choice(["empty", "start"]), max(0, log.tail + rng.randint(-2, 1))
    return Interval(number, number, f, KEY, "ok", start, end, None, value)


def _send(rng: Random, shape: Shape, log: _Log, number: int, start: int, end: int) -> Interval:
    size = rng.randint(1, 3) if shape.batches and rng.random() < 0.6 else 1
    values = [f"#{number}.{at}" for at in range(size)]
    asked: Any = values if size > 1 or rng.random() < 0.1 else values[0]
    roll = rng.random()
    base = log.tail
    if roll < 0.85:  # it happened
        log.held += list(enumerate(values, base))
        log.tail += size
    if roll < 0.95 - shape.unheard:
        known = base if rng.random() < 0.9 else None
        return Interval(number, number, "send", KEY, "ok", start, end, asked, known)
    if roll < 0.95:
        return Interval(number, number, "send", KEY, "info", start, OPEN, asked, None)
    return Interval(number, number, "send", KEY, "fail", start, end, asked, None)


def _mutate(rng: Random, operations: list[Interval]) -> None:
    if not operations:
        return
    op = rng.choice(operations)
    roll = rng.random()
    if roll < 0.5:
        by = rng.choice([-4, -3, -2, -1, 1, 2, 3, 4])
        op.start_ns += by
        if op.end_ns < OPEN:
            op.end_ns += by
    elif roll < 0.7 and op.end_ns < OPEN:
        op.end_ns = max(op.start_ns, op.end_ns - rng.randint(1, 3))
    elif roll < 0.85 and type(op.value) is int:
        op.value = max(0, op.value + rng.choice([-1, 1]))
    elif roll < 0.93 and op.f == "poll" and op.value[KEY]:
        pairs = op.value[KEY]
        if rng.random() < 0.5:
            pairs.pop(rng.randrange(len(pairs)))
        else:
            pair = rng.choice(pairs)
            pair[0] = max(0, pair[0] + rng.choice([-1, 1]))
    elif roll < 0.97:
        operations.remove(op)
    elif op.f == "send" and op.type == "ok":
        op.type, op.end_ns, op.value = "info", OPEN, None


def by_search(options: dict[str, Any], operations: list[Interval]) -> bool:
    """Whether the history is linearizable, by definition."""
    dense = options["dense"]
    exact = options["read_consistency"] == LINEARIZABLE
    first_end = options.get("first_end", {}).get(KEY, 0)
    sent = [value for op in operations for _, values, _ in op.sends() for value in values]
    if not _old_values_agree(operations, sent, first_end):
        return False
    places = _places(operations)
    calls = []
    for op in operations:
        if op.f == "send":
            call = _append_call(op, places, dense=dense)
        elif op.f == "poll":
            pairs = tuple(
                (offset, value)
                for offset, value in op.value[KEY]
                if offset >= first_end or value in sent
            )
            answered = op.end_ns if op.type == "ok" else OPEN - 1
            call = Call(op.start_ns, answered, ("poll",), pairs) if pairs else None
            if op.type == "ok" and len(op.value[KEY]):
                end = max(offset for offset, _ in op.value[KEY]) + 1
                calls.append(Call(op.start_ns, op.end_ns, ("at least", dense), end))
        elif op.f == "start" or (op.f == "end" and not exact):
            call = Call(op.start_ns, op.end_ns, ("at least", dense), op.value)
        elif op.f == "end":
            call = Call(op.start_ns, op.end_ns, ("length", dense), op.value)
        else:
            call = Call(op.start_ns, op.end_ns, ("at most",), op.value) if exact else None
        if call is not None:
            calls.append(call)
    outcome = search(append_only(first_end=first_end), calls, 2_000_000)
    assert outcome.verdict != UNKNOWN, "small histories fit the budget"
    return outcome.verdict == "valid"


def _old_values_agree(operations: list[Interval], sent: list[Any], first_end: int) -> bool:
    """Whether each old value, from before the history, has one place and each place one value."""
    at: dict[int, Any] = {}
    where: dict[Any, int] = {}
    for op in operations:
        for offset, value in op.reads().get(KEY, ()):
            if value not in sent:
                if offset >= first_end:
                    return False
                if at.setdefault(offset, value) != value:
                    return False
                if where.setdefault(value, offset) != offset:
                    return False
    return True


def _places(operations: list[Interval]) -> dict[Any, int]:
    """Returns, by value, the first offset at which it was read."""
    found: dict[Any, int] = {}
    for op in operations:
        for offset, value in op.reads().get(KEY, ()):
            found.setdefault(value, offset)
    return found


def _append_call(op: Interval, places: dict[Any, int], *, dense: bool) -> Call | None:
    if op.type == "fail":
        return None
    values = tuple(value for _, batch, _ in op.sends() for value in batch)
    base = op.value
    if base is None:
        read = [places[value] - at for at, value in enumerate(values) if value in places]
        base = read[0] if read else None
    if base is None and not dense:
        return None  # it can always come last
    end = op.end_ns if base is not None else OPEN
    return Call(op.start_ns, end, ("append", values, dense), base)
