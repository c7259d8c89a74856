"""Chooses the window of a report: the operations around the failure, and their points.

A history of any length must fit into one small file, so the page shows a few hundred operations.
They surround the witness of the first failure. Without a failure they surround the first fault of
the nemesis, else they are the beginning. Counts, plots and the table of classes are of the whole
history.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, Final, final

import attrs

from raftlog.base.amounts import amount
from raftlog.verify.histories.interval import OPEN, Interval, shortened
from raftlog.verify.histories.pairs import values_of
from raftlog.verify.judging.check import LOG, Judgement
from raftlog.verify.judging.explain import describe
from raftlog.verify.judging.linearizability import BEFORE_ALL, Row, chain_of
from raftlog.verify.report.trace import Fault

OPERATIONS_MAX: Final = 300
"""The most operations shown, a row each in the client timeline: more than a person reads."""
EVENTS_MAX: Final = 600
"""The most events of a trace shown, where no operation says which part of it matters."""
GRID_COLUMNS_MAX: Final = 48
GRID_ROWS_MAX: Final = 60
PARTITIONS_MAX: Final = 6


@final
@attrs.frozen(kw_only=True)
class Window:
    """The operations shown, by invocation, and the span of time that they cover."""

    operations: tuple[Interval, ...]
    start_ns: int
    end_ns: int
    total: int
    note: str
    accused: tuple[Interval, ...]
    focus_ns: int = 0
    """The instant that matters most in the window, in ns."""


def window_of(
    judgement: Judgement,
    faults: Sequence[Fault],
    events: Sequence[int] = (),
    *,
    broken: bool = False,
) -> Window:
    """Choose the window.

    `events` are the instants of the trace. `broken` says that the run failed a check of its own,
    which is where it ended.
    """
    operations = sorted(judgement.operations, key=lambda op: (op.start_ns, op.index))
    if not operations:
        return _without_operations(faults, events, broken=broken)
    accused = witness_of(judgement)
    if accused:
        centre = [operations.index(op) for op in accused]
        note = "around the first failure"
    elif broken:
        centre, note = [len(operations) - 1], "the end of the run, where its own check failed"
    else:
        first = min((fault.start_ns for fault in faults), default=None)
        at = next((n for n, op in enumerate(operations) if first and op.start_ns >= first), 0)
        centre, note = [at], "around the first fault" if first else "the beginning"
    shown = _around(operations, centre)
    if len(shown) == len(operations):
        note = "all of them"
    start = min((op.start_ns for op in shown), default=0)
    ends = [op.end_ns for op in shown if op.end_ns < OPEN]
    end = max([*ends, *(op.start_ns for op in shown)], default=start + 1)
    focus = max((op.start_ns if op.end_ns >= OPEN else op.end_ns for op in accused), default=start)
    if broken and not accused:
        focus = end = max([end, *events[-1:]])
    return Window(
        operations=tuple(shown),
        start_ns=start,
        end_ns=max(end, start + 1),
        total=len(operations),
        note=note,
        accused=accused,
        focus_ns=focus,
    )


def _without_operations(faults: Sequence[Fault], events: Sequence[int], *, broken: bool) -> Window:
    """The window of a run in which no client did anything: events of nodes and faults.

    It shows the last of them where the run failed, else the first.
    """
    shown = sorted(events)[-EVENTS_MAX:] if broken else sorted(events)[:EVENTS_MAX]
    if broken:
        shown = _after_silence(shown)
    instants = shown or [at for fault in faults for at in (fault.start_ns, fault.end_ns or 0)]
    start, end = min(instants, default=0), max(instants, default=1)
    note = "no client did anything"
    if len(shown) < len(events):
        note += (
            f"; the {'last' if broken else 'first'} "
            f"{amount(len(shown), 'event', grouped=True)} of the trace"
        )
    end = max(end, start + 1)
    focus = end if broken else start
    return Window(
        operations=(), start_ns=start, end_ns=end, total=0, note=note, accused=(), focus_ns=focus
    )


def _after_silence(instants: list[int]) -> list[int]:
    """The last instants, without those before a silence of more than half of the whole time."""
    for at in range(len(instants) - 1, 0, -1):
        if 2 * (instants[at] - instants[at - 1]) > instants[-1] - instants[0]:
            return instants[at:]
    return instants


def _around(operations: Sequence[Interval], centre: Sequence[int]) -> list[Interval]:
    """The accused operations and their neighbours in equal parts, at most `OPERATIONS_MAX`."""
    if len(operations) <= OPERATIONS_MAX:
        return list(operations)
    chosen = dict.fromkeys(centre[:OPERATIONS_MAX])
    reach = 0
    while len(chosen) < OPERATIONS_MAX and reach < len(operations):
        reach += 1
        for at in centre:
            for near in (at - reach, at + reach):
                if 0 <= near < len(operations) and len(chosen) < OPERATIONS_MAX:
                    chosen[near] = None
    return [operations[at] for at in sorted(chosen)]


def witness_of(judgement: Judgement) -> tuple[Interval, ...]:
    """The operations of the first failing class that names some."""
    for result in judgement.verdict.failures():
        if result.witness is not None and result.witness.operations:
            return result.witness.operations
    return ()


def points_of(chain: Sequence[Row]) -> tuple[dict[int, int], list[int], list[int]]:
    """The earliest points that the scan gives: of each append by operation, and of reads by gap.

    The points of reads are two lists: gaps ascending, and the earliest point of a read of that end.
    """
    latest = BEFORE_ALL
    appends: dict[int, int] = {}
    gaps: list[int] = []
    levels: list[int] = []
    for offset, exact_in, _, _, at_most, append in chain:
        gaps.append(offset)
        levels.append(latest)
        for bound in (exact_in, at_most):
            if bound is not None:
                latest = max(latest, bound[0])
        if append is not None and append[2] is not None:
            latest = max(latest, append[0])
            appends.setdefault(append[2].index, latest)
        gaps.append(offset + 1)
        levels.append(latest)
    return appends, gaps, levels


def _read_point(op: Interval, chains: Mapping[str, tuple[Any, Any, Any]]) -> int | None:
    """The instant at which a read took effect: at its call, or later at the appends that it saw."""
    ends = {key: pairs.end for key, pairs in op.reads().items() if len(pairs)}
    if op.f == "end" and op.key is not None and op.value is not None:
        ends[op.key] = op.value
    found = None
    for key, end in ends.items():
        _, gaps, levels = chains.get(key, ({}, [], []))
        at = bisect_right(gaps, end) - 1
        level = levels[at] if at >= 0 else BEFORE_ALL
        found = max(op.start_ns, level, found if found is not None else BEFORE_ALL)
    return found


def bars_of(judgement: Judgement, window: Window) -> list[dict[str, Any]]:
    """Every operation of the window as the page draws it."""
    model = judgement.verdict.model
    keys = dict.fromkeys(key for op in window.operations for key in _keys(op))
    chains = {
        key: points_of(chain_of(judgement.facts.keys[key], judgement.verdict.mode))
        for key in keys
        if key in judgement.facts.keys
    }
    appends = {index: at for found, _, _ in chains.values() for index, at in found.items()}
    accused = dict.fromkeys(op.index for op in window.accused)
    found: list[dict[str, Any]] = []
    for op in window.operations:
        point = appends.get(op.index, _read_point(op, chains))
        if point is not None and not op.start_ns <= point <= op.end_ns:
            point = None  # no legal point exists: the red pair on the page says that
        found.append(
            {
                "index": op.index,
                "process": op.process,
                "f": op.f,
                "type": op.type,
                "keys": _keys(op) or ([model] if model != LOG and op.f != "crash" else []),
                "node": op.node,
                "start": op.start_ns,
                "end": None if op.end_ns >= OPEN else op.end_ns,
                "point": point,
                "accused": op.index in accused,
                "label": _label(op),
                "text": describe(op),
            }
        )
    return found


def _keys(op: Interval) -> list[str]:
    keys = dict.fromkeys([op.key] if op.key is not None else [])
    keys.update(dict.fromkeys(op.reads()))
    keys.update(dict.fromkeys(key for key, _, _ in op.sends()))
    return list(keys)


def _label(op: Interval) -> str:
    if op.f == "send":
        values = values_of(op.asked)
        more = f" +{len(values) - 1}" if len(values) > 1 else ""
        return f"send {values[0]}{more}" + (f" @{op.value}" if op.value is not None else "")
    if op.f == "poll":
        parts = [
            f"{pairs.offsets[0]}..{pairs.offsets[-1]}"
            for pairs in op.reads().values()
            if len(pairs)
        ]
        return "poll " + (", ".join(parts[:3]) or "nothing")
    value = shortened(op.value, 3)
    return f"{op.f} {shortened(op.asked, 3) if op.asked is not None else ''} -> {value}"[:80]


def partitions_of(judgement: Judgement, window: Window) -> list[dict[str, Any]]:
    """The order grid of each partition in the window; those of the accused first."""
    keys: dict[str, None] = {}
    for op in [*window.accused, *window.operations]:
        keys.update(dict.fromkeys(key for key in _keys(op) if key in judgement.facts.keys))
    return [_grid(judgement, window, key) for key in list(keys)[:PARTITIONS_MAX]]


def _grid(judgement: Judgement, window: Window, key: str) -> dict[str, Any]:
    facts = judgement.facts.keys[key]
    rows = []
    for op in window.operations:
        cells = {offset: str(value) for offset, value in _cells(op, key)}
        if cells:
            rows.append((op, cells))
    focus = [
        result.witness.offset
        for result in judgement.verdict.failures()
        if result.witness is not None and result.witness.key == key
        if result.witness.offset is not None
    ]
    columns = _columns([cells for _, cells in rows], focus[0] if focus else None)
    rows = [(op, {at: cells[at] for at in columns if at in cells}) for op, cells in rows]
    accused = dict.fromkeys(op.index for op in window.accused)
    shown = [row for row in rows if row[1]]
    shown.sort(key=lambda row: (row[0].index not in accused, row[0].start_ns))
    kept = sorted(shown[:GRID_ROWS_MAX], key=lambda row: (row[0].start_ns, row[0].index))
    return {
        "key": key,
        "columns": columns,
        "conflicts": [offset for offset in columns if offset in facts.also_at],
        "twice": [str(value)[:24] for value in [*facts.elsewhere][:GRID_COLUMNS_MAX]],
        "log_start": facts.log_start,
        "rows": [
            {
                "index": op.index,
                "label": f"{op.f} by {op.process}" + (f" on {op.node}" if op.node else ""),
                "accused": op.index in accused,
                "cells": {str(offset): value[:24] for offset, value in cells.items()},
            }
            for op, cells in kept
        ],
        "left_out": len(shown) - len(kept),
    }


def _cells(op: Interval, key: str) -> list[tuple[int, Any]]:
    if op.f == "send" and op.key == key and op.value is not None:
        return list(enumerate(values_of(op.asked), op.value))
    pairs = op.reads().get(key)
    return list(pairs) if pairs is not None else []


def _columns(rows: Sequence[Mapping[int, str]], focus: int | None) -> list[int]:
    """Consecutive known offsets: around `focus` if there is one, else those with most claims."""
    said: dict[int, int] = {}
    for cells in rows:
        for offset in cells:
            said[offset] = said.get(offset, 0) + 1
    offsets = sorted(said)
    last = len(offsets) - GRID_COLUMNS_MAX
    if last <= 0:
        return offsets
    if focus is not None:
        at = next((n for n, offset in enumerate(offsets) if offset >= focus), len(offsets))
        first = max(0, min(at - GRID_COLUMNS_MAX // 2, last))
    else:
        sums = list(accumulate(map(said.__getitem__, offsets), initial=0))
        first = max(range(last + 1), key=lambda n: (sums[n + GRID_COLUMNS_MAX] - sums[n], -n))
    return offsets[first : first + GRID_COLUMNS_MAX]
