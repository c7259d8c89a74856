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
