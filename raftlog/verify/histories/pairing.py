"""Pairs invocations with completions into intervals.

An interval is closed: at equal times a call sorts before a return, so the two are concurrent. An
operation that may still happen (`info`, or no completion) ends at `OPEN`, later than every instant.

Values are checked once, by `raftlog.verify.histories.shapes`.
"""

from collections.abc import Iterable
from sys import intern
from typing import Any, final

import attrs

from raftlog.verify.histories.history import NEMESIS, BadHistory, Op, chosen_late
from raftlog.verify.histories.interval import OPEN, Interval
from raftlog.verify.histories.late_keys import settle_keys
from raftlog.verify.histories.pairs import KnownLog, values_of
from raftlog.verify.histories.shapes import SHAPES, are_texts, completed, poll


@final
@attrs.define(eq=False)
class Pairing:
    """Pairs the operations that it is fed in file order.

    `found` has the intervals in the order of their completion. `finish()` adds those that never
    completed. Nemesis lines are collected in `nemesis`. `raftlog.verify.histories.raw_pairing` does
    the same with usual lines, faster, on the same state.
    """

    found: list[Interval] = attrs.field(factory=list)
    nemesis: list[Op] = attrs.field(factory=list)
    open_ops: dict[int | str, Op] = attrs.field(factory=dict)
    retired: dict[int | str, None] = attrs.field(factory=dict)
    logs: dict[str, KnownLog] = attrs.field(factory=dict)
    unanswered: list[Interval] = attrs.field(factory=list)
    """Sends that were not acknowledged."""
    last_index: int = -1

    def feed(self, ops: Iterable[Op]) -> None:
        """Pair the lines. Raises `BadHistory` where they contradict each other."""
        for op in ops:
            self.one(op)

    def one(self, op: Op) -> None:
        """Take the next line."""
        if op.index <= self.last_index:
            raise BadHistory(f"index {op.index} follows {self.last_index}", do="indexes only rise")
        self.last_index = op.index
        process = op.process
        if process == NEMESIS:
            if not -OPEN < op.time_ns < OPEN:
                raise BadHistory("a time is out of range", on=_at(op, None))
            self.nemesis.append(op)
        elif op.type == "invoke":
            if process in self.open_ops or process in self.retired:
                self._refuse(op)
            self.open_ops[process] = op
        else:
            call = self.open_ops.pop(process, None)
            if call is None:
                raise BadHistory("a completion without an invocation", on=f"index {op.index}")
            if op.type == "info":
                self.retired[process] = None
            found = interval_of(call, op, self.logs)
            self.found.append(found)
            if found.f == "send" and found.type != "ok":
                self.unanswered.append(found)
            elif found.f == "send" and found.value is not None:
                log = self.log_of(str(found.key))
                for offset, value in enumerate(values_of(found.asked), found.value):
                    log.put(offset, value)

    def log_of(self, key: str) -> KnownLog:
        """The known part of the log of `key`."""
        log = self.logs.get(key)
        if log is None:
            log = self.logs[key] = KnownLog(intern(key))
        return log

    def finish(self) -> None:
        """End the pairing. Operations that are still open may have happened, or may yet."""
        left = [interval_of(call, None) for call in self.open_ops.values()]
        self.found += left
        self.unanswered += [op for op in left if op.f == "send"]
        self.found += settle_keys(self.found, self.unanswered)
        for log in self.logs.values():
            log.close()

    def _refuse(self, op: Op) -> None:
        if op.process in self.retired:
            raise BadHistory(
                f"process {op.process} comes back after info",
                on=f"index {op.index}",
                do="give its client a new process number",
            )
        raise BadHistory(
            f"process {op.process} has two operations open",
            on=f"indexes {self.open_ops[op.process].index} and {op.index}",
            do="use one process per slot in flight",
        )


def says_more(call: Op, end: Op) -> bool:
    """Whether the two lines carry evidence beside the node that answered."""
    return not (
        end.hw is end.term is end.log_start is end.producer is end.rebalance is end.error is None
        and call.producer is call.member is end.member is None
        and (end.node is None or type(end.node) is str)
    )


def interval_of(call: Op, end: Op | None, logs: dict[str, KnownLog] | None = None) -> Interval:
    """One operation from its two lines; `end` is None where no completion was recorded.

    With `logs`, by key, values that were read share the memory of those that were sent.
    """
    if not -OPEN < call.time_ns < OPEN:
        raise BadHistory("a time is out of range", on=_at(call, end))
    if end is None:
        kind, end_ns, value, node = "info", OPEN, None, call.node
    else:
        kind, value, node = end.type, end.value, end.node
        if end.f != call.f or (end.key != call.key and not chosen_late(call, end)):
            raise BadHistory("f or key differ between call and completion", on=_at(call, end))
        if end.time_ns < call.time_ns:
            raise BadHistory("an operation ends before it begins", on=_at(call, end))
        if end.time_ns >= OPEN:
            raise BadHistory("a time is out of range", on=_at(call, end))
        end_ns = OPEN if kind == "info" else end.time_ns
    shape = SHAPES.get(call.f)
    asked = call.value
    try:
        if shape is not None:
            if shape is poll:
                asked, value = poll(call, kind, value, logs)
            else:
                asked, value = shape(call, kind, value)
    except (TypeError, ValueError, IndexError, KeyError, AttributeError) as why:
        raise BadHistory(
            f"the value of {call.f} has the wrong shape ({why})", on=_at(call, end)
        ) from None
    assert type(call.process) is int, call.process
    key = call.key if end is None else end.key
    f, key = intern(call.f), None if key is None else intern(key)
    if node is not None and type(node) is not str:
        raise BadHistory("node is a name", on=_at(call, end))
    interval = Interval(
        call.index, call.process, f, key, kind, call.time_ns, end_ns, asked, value, node
    )
    if end is None:
        if call.member is not None:
            interval.evidence = {"member": _member(call, call)}
    else:
        if says_more(call, end):
            add_evidence(interval, call, end)
        if call.f == "txn" or (call.f == "send" and kind == "info"):
            _add_completion(interval, call, end)
    return interval


def _at(call: Op, end: Op | None) -> str:
    return f"index {call.index}" if end is None else f"indexes {call.index} and {end.index}"


def add_evidence(interval: Interval, call: Op, end: Op) -> None:
    """Add the evidence of the two lines to `interval`, checked."""
    found: dict[str, Any] = {}
    for name in ("hw", "log_start"):
        value = getattr(end, name)
        if value is not None:
            numbers = value.values() if type(value) is dict else [value]
            _require(all(type(one) is int for one in numbers), f"{name} is a number", call, end)
            found[name] = value
    if end.term is not None:
        _require(type(end.term) is int, "term is a number", call, end)
        found["term"] = end.term
    if end.error is not None:
        found["error"] = end.error
    if end.rebalance is not None:
        _require(are_texts(end.rebalance), "rebalance is a list of keys", call, end)
        found["rebalance"] = end.rebalance
    producer = end.producer if end.producer is not None else call.producer
    if producer is not None:
        three = type(producer) is list and len(producer) == 3
        _require(
            three and all(type(one) is int for one in producer),
            "producer is [pid, epoch, first sequence]",
            call,
            end,
        )
        found["producer"] = producer
    if call.member is not None or end.member is not None:
        found["member"] = _member(call, end)
    if found:
        interval.evidence = found


def _member(call: Op, end: Op) -> list[Any]:
    """The group that a client acts for: [group, member, generation or None].

    The completion decides, since a client may have joined a newer generation before it sent the
    request.
    """
    member = end.member if end.member is not None else call.member
    three = type(member) is list and len(member) == 3
    _require(
        three
        and type(member[0]) is str
        and type(member[1]) is str
        and (member[2] is None or type(member[2]) is int),
        "member is [group, member, generation or null]",
        call,
        end,
    )
    return member  # type: ignore[no-any-return]


def _add_completion(interval: Interval, call: Op, end: Op) -> None:
    """Add the facts about sends that only the completion tells.

    `claimed` has the places that the end of an `info` operation names. `called` has the sends of
    the call, where the completion names others.
    """
    found: dict[str, Any] = {}
    if interval.f == "send":
        base = _claimed_base(interval.asked, end.value)
        claimed = [base]
    else:
        sends = [micro for micro in call.value if micro[0] == "send"]
        called = [[micro[1], micro[2]] for micro in sends]
        if called != [[key, sent] for what, key, sent in interval.asked if what == "send"]:
            found["called"] = called
        claimed = []
        if interval.type == "info" and end.value is not None:
            claimed = [
                completed(sent, micro[2])[1]
                for micro, (_, sent) in zip(
                    (micro for micro in end.value if micro[0] == "send"), called, strict=True
                )
            ]
    if any(base is not None for base in claimed):
        found["claimed"] = claimed
    if found:
        interval.evidence = {**(interval.evidence or {}), **found}


def _claimed_base(asked: Any, value: Any) -> int | None:
    """The offset that the completion of an `info` send names, or None.

    A batch of two values is a list of two as well, so only `[offset, what was asked]` names an
    offset.
    """
    if type(value) is not list or len(value) != 2 or value == asked or value[1] != asked:
        return None
    return value[0] if type(value[0]) is int and value[0] >= 0 else None


def _require(fact: bool, what: str, call: Op, end: Op) -> None:
    if not fact:
        raise BadHistory(what, on=_at(call, end))
