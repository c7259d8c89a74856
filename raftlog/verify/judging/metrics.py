"""Measures a history without judging it: realtime lag, values consumed twice, unseen values.

Series are thinned to the points that a picture can show; the numbers beside them are exact.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any, Final

from raftlog.verify.histories.interval import OPEN, Interval
from raftlog.verify.histories.pairs import Pairs, Value
from raftlog.verify.judging.facts import Batch, Facts

_SERIES_MAX: Final = 400
"""Points of one series: about one per two pixels of a page."""


def measure(operations: Sequence[Interval], facts: Facts) -> dict[str, Any]:
    """Counts by f and type, realtime lag, and the unseen series."""
    counts: dict[str, dict[str, int]] = {}
    for op in operations:
        by_type = counts.setdefault(op.f, {})
        by_type[op.type] = by_type.get(op.type, 0) + 1
    found: dict[str, Any] = {"counts": counts}
    lag = realtime_lag(operations, facts)
    if lag:
        found["realtime_lag"] = {
            "worst_ns": max(value for _, value in lag),
            "median_ns": sorted(value for _, value in lag)[len(lag) // 2],
            "series": thinned(lag),
        }
    unseen = unseen_series(operations, facts)
    if unseen:
        found["unseen"] = {"last": unseen[-1][1], "series": thinned(unseen)}
    return found


def thinned(series: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """At most `_SERIES_MAX` points: the highest of each stretch, so that no peak is lost."""
    if len(series) <= _SERIES_MAX:
        return list(series)
    step = -(-len(series) // _SERIES_MAX)
    return [
        max(series[at : at + step], key=lambda point: point[1])
        for at in range(0, len(series), step)
    ]


def _growth(operations: Sequence[Interval]) -> dict[str, tuple[list[int], list[int]]]:
    """Key -> (ends, instants): from each instant on, the log was known to reach beyond that end."""
    proofs: dict[str, list[tuple[int, int]]] = {}
    for op in operations:
        if op.type != "ok":
            continue
        if op.f == "send" and op.value is not None and op.key is not None:
            size = len(op.asked) if type(op.asked) is list else 1
            proofs.setdefault(op.key, []).append((op.end_ns, op.value + size))
        elif op.f == "end" and op.key is not None:
            proofs.setdefault(op.key, []).append((op.end_ns, op.value))
        else:
            for key, pairs in op.reads().items():
                if len(pairs):
                    proofs.setdefault(key, []).append((op.end_ns, pairs.end))
    found: dict[str, tuple[list[int], list[int]]] = {}
    for key, points in proofs.items():
        ends: list[int] = []
        instants: list[int] = []
        for instant, end in sorted(points):
            if not ends or end > ends[-1]:
                ends.append(end)
                instants.append(instant)
        found[key] = (ends, instants)
    return found


def realtime_lag(operations: Sequence[Interval], facts: Facts) -> list[tuple[int, int]]:
    """(invocation, lag) of each ok poll: how long its next record had been known to exist.

    Per assigned key, the lag is the poll's invocation minus the earliest instant at which the next
    record was known to exist. The next record is the one after the highest offset that this process
    had seen, this poll included. The key with the longest lag counts.
    """
    growth = _growth(operations)
    seen: dict[int, dict[str, int]] = {}
    assigned: dict[int, dict[str, None]] = {}
    found: list[tuple[int, int]] = []
    for op in operations:
        if op.f in ("assign", "subscribe") and op.type != "fail":
            keys = assigned[op.process] = dict.fromkeys(op.value)
            before = seen.get(op.process, {})
            seen[op.process] = {key: end for key, end in before.items() if key in keys}
        elif op.f == "crash":
            seen.pop(op.process, None)
        elif op.f == "poll" and op.type == "ok":
            ends = seen.setdefault(op.process, {})
            reads = op.reads()
            for key, pairs in reads.items():
                ends[key] = max(ends.get(key, 0), pairs.end)
            worst = 0
            for key in assigned.get(op.process) or reads:
                if key in growth:
                    worst = max(worst, _behind(growth[key], ends.get(key, 0), op.start_ns))
            found.append((op.start_ns, worst))
    found.sort()
    return found


def _behind(growth: tuple[list[int], list[int]], end: int, invoked: int) -> int:
    """How long before `invoked` the record at `end` was known to exist; 0 if it was not."""
    ends, instants = growth
    at = bisect_right(ends, end)
    return max(0, invoked - instants[at]) if at < len(ends) else 0


def _first_seen(op: Interval, pairs: Pairs, writers: Mapping[Value, Batch], read: set[Any]) -> int:
    """How many acknowledged values this poll was the first to return."""
    count = 0
    for value in pairs.values:
        if value not in read:
            read.add(value)
            batch = writers.get(value)
            if batch is not None and batch.op.type == "ok":
                count += (batch.op.end_ns, batch.op.index) <= (op.end_ns, op.index)
    return count


def unseen_series(operations: Sequence[Interval], facts: Facts) -> list[tuple[int, int]]:
    """(instant, acknowledged values that no ok poll had returned by then)."""
    if not any(key.polled for key in facts.keys.values()):
        return []
    steps: list[tuple[int, int]] = []
    read: dict[str, set[Any]] = {key: set() for key in facts.keys}
    for op in sorted(operations, key=attrgetter("end_ns", "index")):
        if op.type != "ok" or op.end_ns >= OPEN:
            continue
        change = 0
        if op.f in ("send", "txn"):
            for key, values, _ in op.sends():
                change += sum(value not in read[key] for value in values)
        if op.f in ("poll", "txn"):
            for key, pairs in op.reads().items():
                if not read[key].issuperset(pairs.values):
                    change -= _first_seen(op, pairs, facts.keys[key].writers, read[key])
        if change:
            steps.append((op.end_ns, change))
    total = 0
    series = []
    for instant, change in steps:
        total += change
        series.append((instant, total))
    return series
