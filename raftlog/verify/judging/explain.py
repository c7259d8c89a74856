"""Sentences about operations, for witnesses: plain words, the same for terminal, JSON and page."""

from raftlog.verify.histories.interval import OPEN, Interval, shortened


def moment(ns: int) -> str:
    """An instant or a length of time, in a unit that a person reads."""
    if ns >= OPEN:
        return "never"
    if abs(ns) < 10_000:
        return f"{ns} ns"
    if abs(ns) < 10_000_000:
        return f"{ns / 1_000:.3f} us"
    if abs(ns) < 10_000_000_000:
        return f"{ns / 1_000_000:.3f} ms"
    return f"{ns / 1_000_000_000:.3f} s"


def describe(op: Interval) -> str:
    """One operation, as a noun phrase."""
    asked = shortened(op.asked, 3)
    if op.f == "send":
        place = f" at offset {op.value}" if op.value is not None else ""
        what = f"send of {asked!r}{place}"
    elif op.f in ("end", "start", "empty"):
        what = {
            "end": f"read of the end = {op.value}",
            "start": f"read of the log start = {op.value}",
            "empty": f"read that found nothing at {op.value}",
        }[op.f]
    elif op.f == "poll":
        last = {key: pairs.end - 1 for key, pairs in list(op.reads().items())[:3] if len(pairs)}
        what = "poll that ended " + (
            ", ".join(f"at offset {offset} of {key}" for key, offset in last.items()) or "empty"
        )
    else:
        what = f"{op.f} {asked!r} -> {shortened(op.value, 3)!r}"
    node = f" on {op.node}" if op.node is not None else ""
    return f"{what} (operation {op.index}, process {op.process}{node}, {op.type})"


def order_violated(before: Interval, after: Interval) -> str:
    """The sentence about a pair in the wrong order.

    `before` must precede `after`, yet it was called after `after` had returned.
    """
    return (
        f"The {describe(before)} precedes the {describe(after)} in the log, yet the latter "
        f"returned at {moment(after.end_ns)}, before the former was invoked at "
        f"{moment(before.start_ns)}."
    )
