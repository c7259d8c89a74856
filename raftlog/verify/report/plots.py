"""Makes the series of the plots: latency, unavailability, realtime lag and unseen values.

Each series is thinned to the points that a page can show.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from raftlog.verify.histories.interval import OPEN, Interval
from raftlog.verify.judging.metrics import thinned

_UNAVAILABLE_NS: Final = 200_000_000
"""The shortest gap in acknowledged sends that is shown, in ns: two default heartbeats."""


def plots_of(operations: Sequence[Interval], metrics: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every plot that the history has data for."""
    found = [_latency(operations)]
    gaps = unavailability(operations)
    if gaps:
        found.append(
            {
                "title": "Unavailability",
                "about": "Spans in which no send was acknowledged anywhere, of 200 ms and more.",
                "unit": "ns",
                "kind": "spans",
                "series": [{"name": "no acknowledged send", "points": gaps}],
            }
        )
    for name, title, about, unit in (
        (
            "realtime_lag",
            "Realtime lag",
            "How long a poll's next record had been known to exist when the poll was called.",
            "ns",
        ),
        ("unseen", "Unseen", "Acknowledged values that no poll had returned yet.", "values"),
    ):
        if name in metrics:
            points = [list(point) for point in metrics[name]["series"]]
            found.append(
                {
                    "title": title,
                    "about": about,
                    "unit": unit,
                    "kind": "steps" if name == "unseen" else "dots",
                    "series": [{"name": title.lower(), "points": points}],
                }
            )
    return [plot for plot in found if any(series["points"] for series in plot["series"])]


def _latency(operations: Sequence[Interval]) -> dict[str, Any]:
    by_kind: dict[str, list[tuple[int, int]]] = {}
    for op in operations:
        if op.end_ns < OPEN:
            name = op.f if op.type == "ok" else f"{op.f} ({op.type})"
            by_kind.setdefault(name, []).append((op.start_ns, op.end_ns - op.start_ns))
    return {
        "title": "Latency",
        "about": "From call to return; of many operations at one place, the slowest is shown.",
        "unit": "ns",
        "kind": "dots",
        "series": [
            {"name": name, "points": [list(point) for point in thinned(sorted(points))]}
            for name, points in sorted(by_kind.items())
        ],
    }


def unavailability(operations: Sequence[Interval]) -> list[list[int]]:
    """The gaps between acknowledged sends, as [start, length]."""
    acked = sorted(op.end_ns for op in operations if op.f == "send" and op.type == "ok")
    called = [op.start_ns for op in operations if op.f == "send"]
    if not called:
        return []
    marks = [min(called), *acked, max([*called, *acked])]
    return [
        [before, after - before]
        for before, after in pairwise(marks)
        if after - before >= _UNAVAILABLE_NS
    ]
