"""Tells the state of each node over time: its role, or that it was down or paused.

A trace tells roles, and a role holds until the next one. The nemesis tells which process was killed
or stopped, and when it came back. A node that is down leads nothing, whatever its last role was.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from raftlog.verify.report.trace import Fault, Picture

_DOWN: Final = ("kill", "crash", "wipe", "stop", "power-loss", "empty-disk", "old-disk")
_PAUSED: Final = ("pause", "freeze")
_SEGMENTS_MAX: Final = 400
_FOREVER: Final = 1 << 62

Segment = dict[str, Any]
"""A stretch of time: `from` and `to` in ns, `role`, and `term` where one is known."""


def segments_of(
    node: str, picture: Picture, faults: Sequence[Fault], start_ns: int, end_ns: int
) -> list[Segment]:
    """The states of `node` in a window of time, in order and without gaps."""
    roles = picture.roles.get(node, [])
    down = _spans(node, faults, _DOWN)
    paused = _spans(node, faults, _PAUSED)
    boots = picture.boots.get(node, [])
    changes = dict.fromkeys((start_ns, end_ns))
    changes.update(dict.fromkeys(role["from"] for role in roles))
    changes.update(dict.fromkeys(boots))
    changes.update(dict.fromkeys(at for span in (*down, *paused) for at in span))
    inside = sorted(at for at in changes if start_ns <= at <= end_ns)
    instants = [role["from"] for role in roles]
    ended = sorted([*(end for _, end in down), *boots])
    found: list[Segment] = []
    for at, until in pairwise(inside):
        role, term = _state(at, roles, instants, down, paused, ended)
        if found and (found[-1]["role"], found[-1]["term"]) == (role, term):
            found[-1]["to"] = until
        else:
            found.append({"from": at, "to": until, "role": role, "term": term})
    return found[-_SEGMENTS_MAX:]


def _state(
    at: int,
    roles: Sequence[Mapping[str, Any]],
    instants: Sequence[int],
    down: Sequence[tuple[int, int]],
    paused: Sequence[tuple[int, int]],
    ended: Sequence[int],
) -> tuple[str, str | None]:
    if any(begin <= at < end for begin, end in down):
        return "down", None
    if any(begin <= at < end for begin, end in paused):
        return "paused", None
    place = bisect_right(instants, at) - 1
    lives = bisect_right(ended, at)
    if place < 0:
        return ("starting" if lives and roles else "unknown"), None
    if lives and ended[lives - 1] > instants[place]:
        return "starting", None  # it is back, and the trace has not told its role yet
    return str(roles[place]["role"]), roles[place]["term"]


def _spans(node: str, faults: Sequence[Fault], names: Sequence[str]) -> list[tuple[int, int]]:
    return [
        (fault.start_ns, _FOREVER if fault.end_ns is None else fault.end_ns)
        for fault in faults
        if fault.name in names and node in fault.nodes
    ]
