"""Explains why no order of a register's operations is legal, with as few of them as possible.

Two faults have a name and are looked for first. One is a read of a value that no write can have
written. The other is a stale read: its value had been overwritten before the read was called. Each
is sound by itself: the named operations contradict each other whatever else happened. Where neither
is found, operations are dropped one by one, as long as the search still finds no order.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import attrs

from raftlog.verify.histories.interval import OPEN, Interval
from raftlog.verify.judging.explain import moment
from raftlog.verify.judging.models import Call

CALLS_MAX: Final = 400
"""The longest history that is reduced to a core. A longer one keeps its last calls before the
fault."""
READS_MAX: Final = 20_000
"""The most reads that are examined for a fault with a name."""


class RegisterStory(NamedTuple):
    """A sentence and the calls that it is about, in the order of time."""

    text: str
    calls: tuple[Call, ...]


def story_of(name: str, calls: Sequence[Call], stuck: Call) -> RegisterStory | None:
    """The first fault with a name that the calls of one register show; None where there is none.

    The search gave up at `stuck`, so that call is examined first.
    """
    writes = [call for call in calls if call.asked[0] != "read"]
    by_value: dict[Any, list[Call]] = {}
    for call in writes:
        if call.answer is not False:  # a compare that failed wrote nothing
            by_value.setdefault(call.asked[-1], []).append(call)
    reads = sorted(
        (call for call in calls if call.asked[0] == "read"), key=lambda call: call.end_ns
    )
    first = [stuck] if stuck.asked[0] == "read" else []
    done = sorted(
        (call for call in writes if call.end_ns < OPEN and call.answer is not False),
        key=lambda call: call.end_ns,
    )
    for read in [*first, *reads[:READS_MAX]]:
        found = _unwritten(name, read, by_value) or _stale(name, read, by_value, done)
        if found is not None:
            return found
    return None


def _unwritten(name: str, read: Call, by_value: dict[Any, list[Call]]) -> RegisterStory | None:
    """A read of a value that no write had begun to write by its return; nil is there first."""
    if read.answer is None:
        return None
    writers = by_value.get(read.answer, [])
    if not writers:
        return RegisterStory(
            f"{_read(name, read)} No operation wrote {_value(read.answer)}.", (read,)
        )
    early = min(writers, key=lambda call: call.start_ns)
    if early.start_ns <= read.end_ns:
        return None
    late = moment(early.start_ns - read.end_ns)
    return RegisterStory(
        f"{_read(name, read)} {_value(read.answer)} was first written by {_op(early)}, which was "
        f"called {late} after that.",
        (read, early),
    )


def _stale(
    name: str, read: Call, by_value: dict[Any, list[Call]], done: Sequence[Call]
) -> RegisterStory | None:
    """A stale read: every write of its value had been overwritten before the read was called.

    Each such write had returned before another write was called, and that one had returned before
    the read was called.
    """
    value = read.answer
    writers = [call for call in by_value.get(value, ()) if call.start_ns <= read.end_ns]
    if not writers and value is not None:
        return None
    last = max((call.end_ns for call in writers), default=-OPEN)
    if last >= OPEN:
        return None
    over = next(
        (
            c
            for c in done
            if c.start_ns > last and c.asked[-1] != value and c.end_ns < read.start_ns
        ),
        None,
    )
    if over is None:
        return None
    ago = moment(read.start_ns - over.end_ns)
    what = (
        f"{_op(over)} {_did(over)} {_value(over.asked[-1])} between {moment(over.start_ns)} and "
        f"{moment(over.end_ns)}, which ended {ago} before the read was called"
    )
    if not writers:
        return RegisterStory(f"{_read(name, read)} But {what}.", (over, read))
    writer = max(writers, key=lambda call: call.end_ns)
    return RegisterStory(
        f"{_read(name, read)} {_value(value)} was written by {_op(writer)}, which returned at "
        f"{moment(writer.end_ns)}, and then overwritten: {what}.",
        (writer, over, read),
    )


def _read(name: str, read: Call) -> str:
    source = read.source
    who = f"Process {source.process}" if isinstance(source, Interval) else "An operation"
    what = "nothing (nil)" if read.answer is None else _value(read.answer)
    return (
        f"{who} read {what} from {name} ({_op(read)}, called at {moment(read.start_ns)}, answered "
        f"at {moment(read.end_ns)})."
    )


def _op(call: Call) -> str:
    source = call.source
    if not isinstance(source, Interval):
        return "an operation"
    return f"operation {source.index} of process {source.process}"


def _did(call: Call) -> str:
    return "wrote" if call.asked[0] == "write" else f"set {_value(call.asked[1])} to"


def _value(value: Any) -> str:
    """A value as JSON has it, without the wrappings of truth values and objects."""
    inner = getattr(value, "truth", getattr(value, "fields", value))
    return repr(list(inner)) if isinstance(inner, tuple) else repr(inner)


def core_of(
    calls: Sequence[Call], stuck: Call, still_invalid: Callable[[Sequence[Call]], bool]
) -> list[Call]:
    """The calls that are needed to show that no order exists; empty where that is too much work.

    A call is dropped by taking its return away. It may then happen at any time or never, which only
    allows more orders. So the calls that remain are a fault whatever became of the others.
    `still_invalid` says whether surely no order exists.
    """
    kept = [call for call in calls if call.start_ns <= stuck.end_ns]
    if len(kept) > CALLS_MAX or not still_invalid(kept):
        return []
    size = max(1, len(kept) // 2)
    while True:
        at = 0
        while at < len(kept):
            group = kept[at : at + size]
            if any(call.end_ns < OPEN for call in group):
                loose = [attrs.evolve(call, end_ns=OPEN) for call in group]
                tried = [*kept[:at], *loose, *kept[at + size :]]
                if still_invalid(tried):
                    kept = tried
            at += size
        if size == 1:
            return [call for call in kept if call.end_ns < OPEN]
        size //= 2
