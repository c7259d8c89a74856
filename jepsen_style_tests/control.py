"""The controls: broken on purpose, to see that the suite can fail.

`BROKEN_DISK` runs the brokers on a disk that only pretends to sync segments, and cuts their power:
acknowledged records are gone, or the brokers notice and refuse to serve. `corrupted` takes a
history that was judged valid and lies about what clients saw.
"""

import json
from collections.abc import Iterable
from typing import Any, Final

from jepsen_style_tests.nemeses import kills
from jepsen_style_tests.world import Nemesis, Setup

BROKEN_DISK: Final = Nemesis(
    name="broken-disk",
    about="control, must be INVALID: segment syncs are only pretended, and the power fails",
    steps=kills.everybody,
    setup=Setup(test_disk="writeback,skip-sync=.log", lost_copies=True),
)
KINDS: Final = ("lost", "doubled", "reordered", "invented")
GROUP_KINDS: Final = ("left-out", "went-back", "shared-twice")
"""Lies about a consumer group."""
LIES: Final = {"append": KINDS, "groups": GROUP_KINDS}
"""Workload -> what is said of its valid runs."""


def corrupted(lines: Iterable[str], kind: str) -> list[str]:
    """The history with one lie about the record in its middle: it is not read, read at two
    offsets, read in the place of its neighbour, or another was read that nobody sent."""
    header, *rest = [json.loads(line) for line in lines]
    sent = [(op["key"], *op["value"]) for op in rest if op["f"] == "send" and op["type"] == "ok"]
    key, offset, value = sorted(sent, key=lambda one: (one[0], one[1]))[len(sent) // 2]
    for op in rest:
        if op["f"] == "poll" and op["type"] == "ok" and key in (op["value"] or {}):
            pairs = op["value"][key]
            op["value"][key] = [pair for each in pairs for pair in _lie(each, kind, offset, value)]
    return [json.dumps(document) + "\n" for document in (header, *rest)]


def group_corrupted(lines: Iterable[str], kind: str) -> list[str]:
    """The history with one lie about its group. Either no member processed the record in its
    middle; or a commit of a lower offset follows the last commit; or another member got the last
    assignment in the same generation as well."""
    header, *rest = [json.loads(line) for line in lines]
    if kind == "left-out":
        sent = [(op["key"], op["value"]) for op in rest if op["f"] == "send" and op["type"] == "ok"]
        key, pair = sorted(sent, key=lambda one: (one[0], one[1][0]))[len(sent) // 2]
        for op in rest:
            if op["f"] == "poll" and op.get("member") and key in (op["value"] or {}):
                op["value"][key] = [each for each in op["value"][key] if each != pair]
        return [json.dumps(document) + "\n" for document in (header, *rest)]
    f = "offset_commit" if kind == "went-back" else "rebalance"
    call, end = [
        (call, end)
        for call, end in _pairs(rest, f)
        if f == "offset_commit" or (call["value"][0] == "assigned" and call["value"][1])
    ][-1]
    called = end["time_ns"] + 1 if f == "offset_commit" else call["time_ns"]
    value, member = call["value"], [*end["member"]]
    if f == "offset_commit":
        value = [value[0], {key: at - 1 for key, at in value[1].items()}]
    else:
        member[1] = "another"
    shared = {"f": f, "key": None, "member": member}
    shared["process"] = 1 + max(op["process"] for op in rest if op["process"] != "nemesis")
    index = max(op["index"] for op in rest)
    rest += [
        {**shared, "index": index + 1, "time_ns": called, "type": "invoke", "value": value},
        {**shared, "index": index + 2, "time_ns": called + 1, "type": "ok", "value": None},
    ]
    return [json.dumps(document) + "\n" for document in (header, *rest)]


def _pairs(operations: Iterable[dict[str, Any]], f: str) -> list[tuple[Any, Any]]:
    """(call, completion) of every operation `f` that was ok, in the order of their completion."""
    calls: dict[int, dict[str, Any]] = {}
    found = []
    for op in operations:
        if op["f"] == f and op["type"] == "invoke":
            calls[op["process"]] = op
        elif op["f"] == f and op["type"] == "ok":
            found.append((calls[op["process"]], op))
    return found


def _lie(pair: list[Any], kind: str, offset: int, value: str) -> list[list[Any]]:
    at, found = pair
    if kind == "doubled" and at == offset + 1:
        return [[at, value]]
    if at != offset or found != value:
        return [pair]
    if kind == "lost":
        return []
    if kind == "reordered":
        return [[at + 1, found]]
    return [[at, "#nobody"]] if kind == "invented" else [pair]
