"""Judges one process at a time: skips, repeats and reversals, and its session guarantees.

Offsets of one key are compared by *index*, their rank among the non-empty offsets. So control
records, which take offsets, skip nothing. An `ok` or `info` assign or subscribe keeps only the keys
that are also in the new set, for sends as well (both as Jepsen has it). A crash replaces the
client, so its reads begin afresh.

With committed-prefix reads a process may lag, but not go back. `monotonic-reads` and
`read-your-writes` judge that per key, by the ends of the log that the process was told.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, final

import attrs

from raftlog.verify.histories.interval import Interval
from raftlog.verify.histories.pairs import Pairs
from raftlog.verify.judging.explain import describe
from raftlog.verify.judging.facts import Facts, KeyFacts
from raftlog.verify.judging.linearizability import COMMITTED_PREFIX
from raftlog.verify.judging.verdict import Findings, Witness

_POLL_CLASSES = ("poll-skip", "nonmonotonic-poll", "int-poll-skip", "int-nonmonotonic-poll")


@final
@attrs.define(eq=False)
class _Process:
    """The state of one process on its way through the history."""

    read_to: dict[str, tuple[int, Interval]] = attrs.field(factory=dict)
    """Key -> the last offset of the last ok operation that read it."""
    sent_to: dict[str, tuple[int, Interval]] = attrs.field(factory=dict)
    saw_end: dict[str, tuple[int, Interval]] = attrs.field(factory=dict)
    acked: dict[str, tuple[int, Interval]] = attrs.field(factory=dict)
    subscribed: bool = False
    consumed: dict[tuple[str, int], int] = attrs.field(factory=dict)


@final
@attrs.define(eq=False)
class ProcessOrder:
    """Judges all operations in one pass, in the order of each process."""

    facts: Facts
    findings: Findings
    options: Mapping[str, Any]
    mode: str
    consumed_twice: int = 0
    _polled: bool = False
    _processes: dict[int, _Process] = attrs.field(factory=dict)
    _sessions: bool = attrs.field(init=False)
    _pipelined: bool = attrs.field(init=False)
    _compacted: bool = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._pipelined = bool(self.options.get("pipelined"))
        self._compacted = bool(self.options.get("compaction"))
        self._sessions = self.mode == COMMITTED_PREFIX and not self._pipelined

    def run(self, operations: Iterable[Interval]) -> None:
        """Judge every operation."""
        processes, pipelined = self._processes, self._pipelined
        for op in operations:
            f = op.f
            if f == "send" and pipelined:
                continue
            state = processes.get(op.process)
            if state is None:
                state = processes[op.process] = _Process()
            if f == "send":
                self._send(state, op)
            elif f == "poll":
                if op.value:
                    self._poll(state, op, op.value)
            elif f == "txn":
                self._txn(state, op)
            elif f in ("assign", "subscribe"):
                self._assign(state, op)
            elif f in ("end", "empty"):
                self._length(state, op)
            elif f == "crash":
                state.read_to, state.saw_end, state.acked = {}, {}, {}

    # --- reads ------------------------------------------------------------------------------------

    def _poll(self, state: _Process, op: Interval, reads: Mapping[str, Pairs]) -> None:
        rebalanced = op.evidence.get("rebalance", ()) if op.evidence else ()
        for key, pairs in reads.items():
            if not pairs.count:
                continue
            if not self._polled:
                self._polled = True
                self.findings.check(*_POLL_CLASSES)
            places = pairs.places
            if type(places) is int:
                first, last = places, places + pairs.count - 1
            else:
                offsets = pairs.offsets
                first, last = offsets[0], offsets[-1]
                if key not in rebalanced:
                    self._inside(self.facts.keys[key], op, offsets)
            # A poll of type fail or info must also continue where the last ok read ended. It moves
            # nothing: the next read begins at the same place again, as Jepsen has it.
            before = state.read_to.get(key)
            if before is not None and before[0] + 1 != first:
                self._between(self.facts.keys[key], before, first, op)
            if op.type != "ok":
                continue
            state.read_to[key] = (last, op)
            if self._sessions:
                known = state.saw_end.get(key)
                if known is None or last >= known[0]:
                    state.saw_end[key] = (last + 1, op)
            if state.subscribed:
                self._count(state, key, pairs.offsets)

    def _between(
        self, facts: KeyFacts, before: tuple[int, Interval], first: int, op: Interval
    ) -> None:
        step = facts.rank(first) - facts.rank(before[0])
        if step < 1:
            self._found("nonmonotonic-poll", facts, before[0], first, (before[1], op))
        elif step > 1 and self._readable(facts, first):
            self._found("poll-skip", facts, before[0], first, (before[1], op))

    def _inside(self, facts: KeyFacts, op: Interval, offsets: Sequence[int]) -> None:
        for one, other in pairwise(offsets):
            step = facts.rank(other) - facts.rank(one)
            if step < 1:
                self._found("int-nonmonotonic-poll", facts, one, other, (op,))
            elif step > 1 and self._readable(facts, other):
                self._found("int-poll-skip", facts, one, other, (op,))

    def _readable(self, facts: KeyFacts, reached: int) -> bool:
        """Whether the last skipped record could have been read: above log start, not compacted."""
        if self._compacted:
            return False
        return facts.order()[facts.rank(reached) - 1] >= facts.log_start

    def _found(
        self, name: str, facts: KeyFacts, one: int, other: int, ops: tuple[Interval, ...]
    ) -> None:
        self.findings.add(name, partial(step_witness, name, facts.key, one, other, ops))

    def _count(self, state: _Process, key: str, offsets: Sequence[int]) -> None:
        for offset in offsets:
            times = state.consumed.get((key, offset), 0) + 1
            state.consumed[key, offset] = times
            self.consumed_twice += times == 2

    # --- sends ------------------------------------------------------------------------------------

    def _send(self, state: _Process, op: Interval) -> None:
        if op.type == "fail":
            return
        key = op.key
        assert key is not None
        base, size = op.value, 1
        if base is None or type(op.asked) is list:
            values = op.asked if type(op.asked) is list else (op.asked,)
            base, size = self.facts.keys[key].writers[values[0]].base, len(values)
            if base is None:
                return
        before = state.sent_to.get(key)
        if before is None:
            self.findings.check("nonmonotonic-send")
        elif base <= before[0]:
            self._found("nonmonotonic-send", self.facts.keys[key], before[0], base, (before[1], op))
        state.sent_to[key] = (base + size - 1, op)
        if op.type == "ok" and self._sessions:
            known = state.acked.get(key)
            if known is None or known[0] < base + size - 1:
                state.acked[key] = (base + size - 1, op)

    def _txn(self, state: _Process, op: Interval) -> None:
        failed = op.type == "fail"  # its sends are in no log; its reads are judged all the same
        last: dict[str, int] = {}
        own: dict[tuple[str, Any], None] = {}
        for key, values, _ in op.sends():
            facts = self.facts.keys[key]
            own.update(dict.fromkeys((key, value) for value in values))
            base = facts.writers[values[0]].base
            if base is None:
                continue
            if key in last:
                self._inside_sends(facts, last[key], base, op)
            elif not self._pipelined and not failed:
                self.findings.check("nonmonotonic-send")
                before = state.sent_to.get(key)
                if before is not None and base <= before[0]:
                    self._found("nonmonotonic-send", facts, before[0], base, (before[1], op))
            last[key] = base + len(values) - 1
        for key, offset in last.items() if not failed else ():
            state.sent_to[key] = (offset, op)
        reads = op.reads()
        self._poll(state, op, reads)
        self.findings.check("precommitted-read")
        for key, pairs in reads.items():
            for offset, value in pairs:
                if (key, value) in own:
                    self.findings.add(
                        "precommitted-read", partial(_own_witness, key, offset, value, op)
                    )

    def _inside_sends(self, facts: KeyFacts, one: int, other: int, op: Interval) -> None:
        self.findings.check("int-send-skip", "int-nonmonotonic-send")
        step = facts.rank(other) - facts.rank(one)
        if step < 1:
            self._found("int-nonmonotonic-send", facts, one, other, (op,))
        elif step > 1:
            self._found("int-send-skip", facts, one, other, (op,))

    # --- the rest ---------------------------------------------------------------------------------

    def _assign(self, state: _Process, op: Interval) -> None:
        if op.type == "fail":
            return
        keys = dict.fromkeys(op.value)
        state.subscribed = op.f == "subscribe"
        state.read_to = {key: at for key, at in state.read_to.items() if key in keys}
        state.sent_to = {key: at for key, at in state.sent_to.items() if key in keys}

    def _length(self, state: _Process, op: Interval) -> None:
        if op.type != "ok" or not self._sessions:
            return
        key, position = op.key, op.value
        assert key is not None
        self.findings.check("monotonic-reads", "read-your-writes")
        acked = state.acked.get(key)
        if acked is not None and position <= acked[0]:
            self.findings.add(
                "read-your-writes", partial(session_witness, key, position, acked[1], op)
            )
        saw = state.saw_end.get(key)
        if saw is not None and position < saw[0]:
            self.findings.add(
                "monotonic-reads", partial(session_witness, key, position, saw[1], op)
            )
        elif op.f == "end":
            state.saw_end[key] = (position, op)


def step_witness(name: str, key: str, one: int, other: int, ops: Sequence[Interval]) -> Witness:
    """The witness of a step from one offset to another, inside an operation or between two."""
    went = "back" if other <= one else "on"
    return Witness(
        text=f"{name}: from offset {one} of {key}, process {ops[0].process} went {went} to "
        f"{other}: " + "; ".join(describe(op) for op in ops) + ".",
        key=key,
        offset=other,
        operations=tuple(ops),
        detail={"from": one, "to": other},
    )


def _own_witness(key: str, offset: int, value: Any, op: Interval) -> Witness:
    return Witness(
        text=f"Operation {op.index} read {value!r} at offset {offset} of {key}, which it sent "
        "itself.",
        key=key,
        offset=offset,
        operations=(op,),
        detail={"value": value},
    )


def session_witness(key: str, position: int, before: Interval, op: Interval) -> Witness:
    """The witness of an `op` that was told less than its process knew since `before`."""
    return Witness(
        text=f"After the {describe(before)}, the same process got {describe(op)}.",
        key=key,
        offset=position,
        operations=(before, op),
    )
