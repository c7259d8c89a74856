"""Small histories by hand: one line per operation, times as (call, return)."""

import io
from typing import Any

import attrs

from raftlog.verify import Header, HistoryWriter, Verdict, check_history

KEY = "t/0"


@attrs.define
class Written:
    """One operation, before it becomes two lines."""

    process: int
    f: str
    start: int
    end: int | None
    key: str | None
    asked: Any
    kind: str
    value: Any
    fields: dict[str, Any]


def op(process, f, times, asked, value=None, *, key=KEY, kind="ok", **fields) -> Written:
    """Any operation. A `times` of one number never returns."""
    start, end = times if isinstance(times, tuple) else (times, None)
    return Written(process, f, start, end, key, asked, kind, value, fields)


def send(process, times, value, base=None, *, key=KEY, kind="ok", **fields) -> Written:
    answer = [base, value] if kind == "ok" else None
    return op(process, "send", times, value, answer, key=key, kind=kind, **fields)


def poll(process, times, *pairs, key=KEY, kind="ok", **fields) -> Written:
    """Write a poll of one key; `pairs` are (offset, value)."""
    read = {key: [list(pair) for pair in pairs]}
    return op(process, "poll", times, None, read, key=None, kind=kind, **fields)


def told(process, times, what, keys, member, *, group="g", **fields) -> Written:
    """A member is told of partitions; `member` is (name, generation)."""
    fields["member"] = [group, *member]
    return op(process, "rebalance", times, [what, keys], key=None, **fields)


def commit(process, times, offset, member, *, key=KEY, group="g", **fields) -> Written:
    """A member's commit of one key."""
    fields["member"] = [group, *member]
    asked = [group, {key: offset}]
    return op(process, "offset_commit", times, asked, {key: offset}, key=None, **fields)


def txn(process, times, asked, value, *, kind="ok") -> Written:
    return op(process, "txn", times, asked, value, key=None, kind=kind)


def length(process, f, times, value, **fields) -> Written:
    return op(process, f, times, None, value, **fields)


def written(*operations: Written, header: Header | None = None, **options: Any) -> str:
    """The history as text, through the real writer."""
    header = header or Header(source="sim", seed=1, options=options, nodes=["n1", "n2", "n3"])
    stream = io.StringIO()
    writer = HistoryWriter(stream, header)
    events = []
    for number, one in enumerate(operations):
        events.append((one.start, 0, number))
        if one.end is not None:
            # Calls before returns at one instant, except where a process goes straight on.
            mine = [other for other in operations if other.process == one.process]
            on = any(other.start == one.end > one.start for other in mine)
            events.append((one.end, -1 if on else 1, number))
    for at, is_end, number in sorted(events, key=lambda event: (event[0], event[1], event[2])):
        one = operations[number]
        if is_end:
            fields = dict(one.fields)
            writer.complete(one.process, one.kind, time_ns=at, value=one.value, **fields)
        else:
            writer.invoke(one.process, one.f, time_ns=at, key=one.key, value=one.asked)
    writer.close()
    return stream.getvalue()


def judged(*operations: Written, allowed=None, header=None, model=None, **options: Any) -> Verdict:
    text = written(*operations, header=header, **options)
    return check_history(text.splitlines(keepends=True), allowed=allowed, model=model)


def invalid(verdict: Verdict) -> list[str]:
    return [result.name for result in verdict.failures()]


def witness(verdict: Verdict, name: str) -> tuple[int | None, list[int]]:
    """(offset, processes of the operations) of the witness of class `name`."""
    found = verdict.classes[name].witness
    assert found is not None, f"{name} has no witness"
    return found.offset, [one.process for one in found.operations]
