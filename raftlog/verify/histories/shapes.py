"""The shapes of values, one function per `f`: the request and the answer as `Interval` has them.

Values are checked here, once: all later code may rely on the shapes that the table in
docs/internals/history_format.md gives for each `f`.
"""

from sys import intern
from typing import Any, Final

from raftlog.verify.histories.history import Op
from raftlog.verify.histories.pairs import KnownLog, Pairs, values_of

REBALANCES: Final = ("assigned", "revoked", "lost")
"""The messages about partitions that a consumer of a group gets."""


def are_texts(value: Any) -> bool:
    """Whether `value` is a list of texts."""
    return type(value) is list and all(type(one) is str for one in value)


def _send(call: Op, kind: str, value: Any) -> tuple[Any, Any]:
    asked = call.value
    if call.key is None:
        raise ValueError("a send has a key, its topic partition")
    if type(asked) is not str:
        _check_values(asked)
    if kind != "ok":
        return asked, None
    base: Any
    base, echoed = value
    if echoed != asked or list(map(type, values_of(echoed))) != list(map(type, values_of(asked))):
        raise ValueError("the completion names another value than the call")
    return asked, base if base is None else _offset_or_none(base)


def poll(
    call: Op, kind: str, value: Any, logs: dict[str, KnownLog] | None = None
) -> tuple[Any, Any]:
    """The answer of a poll; with `logs`, by key, it shares the memory of values that were sent."""
    # A poll of type info or fail that repeats the positions it asked for has read nothing.
    if value is None or (kind != "ok" and value == call.value):
        return call.value, None
    found = {}
    for key, pairs in value.items():
        if type(key) is not str:
            raise TypeError("a key is a string")
        found[intern(key)] = Pairs.of(pairs, None if logs is None else logs.get(key))
    return call.value, found


def _txn(call: Op, kind: str, value: Any) -> tuple[Any, Any]:
    """The steps of a transaction, and their results.

    Where the completion names other keys or values than the call, the completion is believed, as
    Jepsen does: it says what was really sent.
    """
    asked: list[tuple[str, str, Any]] = []
    for micro in call.value:
        if micro[0] == "send":
            asked.append(_checked_send(micro[1], micro[2]))
        elif micro[0] == "poll":
            asked.append(("poll", "", None))
        else:
            raise ValueError(f"{micro[0]!r} is neither send nor poll")
    if value is None or (kind != "ok" and value == call.value):
        return asked, None
    bases: list[int | None] = []
    reads: dict[str, list[Any]] = {}
    for at, (micro, (what, _, sent)) in enumerate(zip(value, asked, strict=True)):
        if micro[0] != what:
            raise ValueError("the completion has other steps than the call")
        if what == "send":
            done, base = completed(sent, micro[2])
            asked[at] = _checked_send(micro[1], done)
            bases.append(base if kind == "ok" else None)
        else:
            bases.append(None)
            for key, pairs in (micro[1] or {}).items():
                reads.setdefault(key, []).extend(pairs)
    if kind != "ok" and not reads:
        return asked, None
    return asked, (bases, poll(call, "ok", reads)[1])


def _checked_send(key: Any, sent: Any) -> tuple[str, str, Any]:
    if type(key) is not str:
        raise TypeError("a key is a string")
    _check_values(sent)
    return ("send", key, sent)


def completed(sent: Any, completed: Any) -> tuple[Any, int | None]:
    """(the value, its offset or None) of a completed send: the value alone, or `[offset, value]`.

    A batch that repeats what was asked is not taken for an offset and a value.
    """
    if completed == sent or type(completed) is not list or len(completed) != 2:
        return completed, None
    base, value = completed
    if base is not None and type(base) is not int:
        return completed, None  # another batch
    return value, _offset_or_none(base)


def _position(call: Op, kind: str, value: Any) -> tuple[Any, Any]:
    if call.key is None:
        raise ValueError(f"{call.f} has a key, its topic partition")
    if kind != "ok":
        return call.value, None
    if type(value) is not int or value < 0:
        raise ValueError(f"offset {value!r}")
    return call.value, value


def _assigned(call: Op, kind: str, value: Any) -> tuple[Any, Any]:
    keys = value if value is not None else call.value
    if not are_texts(call.value) or not are_texts(keys):
        raise TypeError("a list of keys")
    return call.value, keys


def _rebalanced(call: Op, kind: str, value: Any) -> tuple[Any, Any]:
    what, keys = call.value
    if what not in REBALANCES or not are_texts(keys):
        raise ValueError(f"one of {', '.join(REBALANCES)}, and a list of keys")
    return call.value, None


def _offset_commit(call: Op, kind: str, value: Any) -> tuple[Any, Any]:
    group, offsets = call.value
    _check_offsets(offsets)
    if type(group) is not str:
        raise TypeError("a group is a string")
    return call.value, offsets if kind == "ok" and value is None else _partial(value, kind)


def _offset_fetch(call: Op, kind: str, value: Any) -> tuple[Any, Any]:
    group, keys = call.value
    if type(group) is not str or not all(type(key) is str for key in keys):
        raise TypeError("a group and its keys are strings")
    return call.value, _partial(value, kind)


def _partial(value: Any, kind: str) -> Any:
    if kind != "ok":
        return None
    _check_offsets(value)
    return value


def _check_offsets(offsets: Any) -> None:
    for offset in offsets.values():
        if offset is not None and type(offset) is not int:
            raise ValueError(f"offset {offset!r}")


def _check_values(asked: Any) -> None:
    values = values_of(asked)
    for value in values:
        if type(value) is not str and type(value) is not int:
            raise TypeError(f"value {value!r}")
    if not values:
        raise ValueError("an empty batch")
    if len(dict.fromkeys(values)) != len(values):
        raise ValueError("a value is twice in one batch, and values are unique")


def _offset_or_none(base: Any) -> int | None:
    if base is None:
        return None
    if type(base) is not int or base < 0:
        raise ValueError(f"offset {base!r}")
    return base


SHAPES: Final = {
    "send": _send,
    "poll": poll,
    "txn": _txn,
    "empty": _position,
    "end": _position,
    "start": _position,
    "assign": _assigned,
    "subscribe": _assigned,
    "rebalance": _rebalanced,
    "offset_commit": _offset_commit,
    "offset_fetch": _offset_fetch,
}
