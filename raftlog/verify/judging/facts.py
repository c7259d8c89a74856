"""Collects the facts of a history by key: writers, places and readers of values, log lengths.

There are two passes: first all sends, so that a writer is known whatever the order of the lines,
then all reads. A poll of many keys becomes one read per key with the same interval, since
linearizability is local.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Any, Final, final

import attrs
import msgspec

from raftlog.verify.histories.history import BadHistory
from raftlog.verify.histories.interval import Interval
from raftlog.verify.histories.pairs import KnownLog, Pairs, Value, values_of

Bound = tuple[int, Interval]
"""An instant, and the operation that it comes from."""

_LENGTHS: Final = ("empty", "end", "start")
_NOTHING: Final[dict[str, Pairs]] = {}
_GAP_MAX: Final = 4096
"""The most empty offsets that a log may have and still be compared by slices: 32 KiB of pointers.
"""


@final
class Sent(msgspec.Struct, eq=False, gc=False):
    """One record batch of one send. `base` comes from the acknowledgement or from a read."""

    op: Interval
    sent: Value | tuple[Value, ...]
    """The value, or the values of a real batch: a tuple around a single value would cost 64 bytes.
    """
    base: int | None

    @property
    def values(self) -> tuple[Value, ...]:
        """The values that the batch carries, in order."""
        sent = self.sent
        return sent if type(sent) is tuple else (sent,)  # type: ignore[return-value]

    @property
    def size(self) -> int:
        """The number of offsets that the batch takes."""
        return len(self.sent) if type(self.sent) is tuple else 1

    def offset_of(self, value: Value) -> int | None:
        """Where `value` lies if the batch lies at `base`."""
        if self.base is None:
            return None
        return self.base if self.size == 1 else self.base + self.values.index(value)


Batch = Sent | Interval
"""A batch. An acknowledged send of one record is its own batch, which saves an object for each."""


class _SentTwice(Exception):
    """Two sends of one value to one key."""


@final
@attrs.define(eq=False)
class KeyFacts:
    """One key. Offsets map to the first value seen there; contradicting values are kept beside."""

    key: str
    first_end: int = 0
    writers: dict[Value, Batch] = attrs.field(factory=dict)
    """Value -> the batch that carries it, also when its send failed."""
    batches: list[Batch] = attrs.field(factory=list)
    at: dict[int, Value] = attrs.field(factory=dict)
    """Offset -> the first value known there, from reads of any type and from acknowledged sends."""
    also_at: dict[int, dict[Value, Interval]] = attrs.field(factory=dict)
    """Offset -> the other values claimed there, each with the operation that claims it."""
    elsewhere: dict[Value, dict[int, Interval]] = attrs.field(factory=dict)
    """Value -> offsets other than its batch's own place, each with the operation that named it."""
    strays: dict[Value, dict[int, Interval]] = attrs.field(factory=dict)
    """Values that no operation sent -> offsets, each with the reader."""
    cut_short: dict[Value, tuple[int, Interval, Batch]] = attrs.field(factory=dict)
    """Values read so low that their batch would begin below offset 0."""
    acknowledged: list[Interval] = attrs.field(factory=list)
    """Acknowledged sends of one record that wait for `take_acknowledged`: many at once is cheap."""
    seen: set[Value] = attrs.field(factory=set)
    """Values that an ok read returned. For membership only: never iterated. Whole once `settle` was
    called."""
    polled: bool = False
    """Whether an ok read returned anything."""
    read_any: bool = False
    """Whether a read of any type returned anything."""
    at_least: dict[int, Bound] = attrs.field(factory=dict)
    """Gap e -> earliest return of an ok read that proves tail >= e (`lb`)."""
    exact_in: dict[int, Bound] = attrs.field(factory=dict)
    """Gap e -> latest invocation of an exact read of e (`gi`)."""
    exact_out: dict[int, Bound] = attrs.field(factory=dict)
    """Gap e -> earliest return of an exact read of e (`gr`)."""
    at_most: dict[int, Bound] = attrs.field(factory=dict)
    """Gap a -> latest invocation of a read that found nothing at a (`ub`)."""
    placed: list[int] = attrs.field(factory=list)
    """Columns of the records that have a place and may be there, in the order in which they were
    placed, for `plain_columns`: their offsets, and when their sends were invoked and returned."""
    invoked: list[int] = attrs.field(factory=list)
    returned: list[int] = attrs.field(factory=list)
    plain: bool = True
    """Whether the columns say everything: no batch of several and no failed send has a place."""
    any_failed: bool = False
    """Whether any send failed."""
    any_batches: bool = False
    """Whether any send was a batch of several records."""
    log_start: int = 0
    log_start_op: Interval | None = None
    proven: dict[int, None] = attrs.field(factory=dict)
    """Indexes of operations of type info that certainly happened. All keys share that of `Facts`.
    """
    _order: list[int] | None = None
    _log: list[Value | None] | None = None
    """`at` as a list from `_log_first` on, compared with polls by slices. None before the first
    poll, empty where the gaps are too wide."""
    _log_first: int = 0
    _same: KnownLog | None = None
    """The known log that agrees with `_log` from offset `_same_from` to `_same_to`."""
    _same_from: int = 0
    _same_to: int = 0
    _seen_from: int = 0
    """The run that grows: from here to `_seen_to`, ok reads returned exactly the values of `_log`.
    """
    _seen_to: int = 0
    _seen_runs: dict[int, int] = attrs.field(factory=dict)
    """All other such runs: first offset -> end."""

    # --- sends ------------------------------------------------------------------------------------

    def send(self, op: Interval, values: tuple[Value, ...], base: int | None) -> None:
        """Take one batch of one send of any type."""
        if self.acknowledged:
            self.take_acknowledged()
        batch = Sent(op, values if len(values) > 1 else values[0], base)
        self.batches.append(batch)
        self.any_batches = self.any_batches or len(values) > 1
        self.any_failed = self.any_failed or op.type == "fail"
        writers = self.writers
        for value in values:
            if writers.setdefault(value, batch) is not batch:
                raise _SentTwice
        if base is not None:
            self._claim(batch, op)

    def take_acknowledged(self) -> None:
        """Do the work of `send` for all of `acknowledged` at once."""
        ops, self.acknowledged = self.acknowledged, []
        values: list[Value] = [op.asked for op in ops]
        bases: list[int] = [op.value for op in ops]
        writers = dict(zip(values, ops, strict=True))
        if len(writers) < len(ops) or not self.writers.keys().isdisjoint(writers.keys()):
            raise _SentTwice
        self.writers.update(writers)
        self.batches += ops
        self.placed += bases
        self.invoked += [op.start_ns for op in ops]
        self.returned += [op.end_ns for op in ops]
        at = dict(zip(bases, values, strict=True))
        if len(at) == len(ops) and self.at.keys().isdisjoint(at.keys()):
            self.at.update(at)
        else:
            for op in ops:
                if self.at.setdefault(op.value, op.asked) != op.asked:
                    self.also_at.setdefault(op.value, {}).setdefault(op.asked, op)

    def _claim(self, batch: Sent, op: Interval) -> None:
        """Note the place of `batch`, which the answer to its own send or another `op` told."""
        assert batch.base is not None
        if batch.size > 1 or batch.op.type == "fail":
            self.plain = False
        self.placed.append(batch.base)
        self.invoked.append(batch.op.start_ns)
        self.returned.append(batch.op.end_ns)
        for offset, value in enumerate(batch.values, batch.base):
            if self.at.setdefault(offset, value) != value:
                self.also_at.setdefault(offset, {}).setdefault(value, op)

    def plain_columns(self) -> tuple[list[int], list[int]] | None:
        """(invoked, returned) by offset from 0 on, of a plain log; None for any other.

        In a plain log each offset has one record, sent alone. None failed or was seen elsewhere.
        """
        count = len(self.placed)
        if not self.plain or self.cut_short or self.first_end or count != len(self.at):
            return None
        if self.placed != list(range(count)):
            order = sorted(range(count), key=self.placed.__getitem__)
            self.placed = [self.placed[at] for at in order]
            self.invoked = [self.invoked[at] for at in order]
            self.returned = [self.returned[at] for at in order]
            if self.placed != list(range(count)):
                return None
        return self.invoked, self.returned

    # --- reads ------------------------------------------------------------------------------------

    def read(self, op: Interval, pairs: Pairs) -> None:
        """Take one poll of this key, of any type."""
        if not pairs.count:
            return
        self.read_any = True
        # Known pairs, the usual case, bring nothing new: they were acknowledged or read before.
        first, ok = pairs.places, op.type == "ok"
        end = first + pairs.count if type(first) is int else pairs.end
        if type(first) is int and (
            (pairs.held is self._same and self._same_from <= first and end <= self._same_to)
            or self._has(pairs, first, end)
        ):
            if ok and not (self._seen_from <= first and end <= self._seen_to):
                self._see(first, end)
        else:
            self._read_anew(op, pairs)
            if type(first) is int:
                self._copy(first, end)
            if ok:
                self.seen.update(pairs.values)
        if ok:
            self.polled = True
            bound = self.at_least.get(end)
            if bound is None or op.end_ns <= bound[0]:
                _earliest(self.at_least, end, op)

    def _see(self, first: int, end: int) -> None:
        """Note that an ok read returned the values of `_log` from `first` to `end`."""
        if self._seen_from <= first <= self._seen_to:
            self._seen_to = max(self._seen_to, end)
        elif self._seen_runs.get(first, 0) < end:
            self._seen_runs[first] = end

    def _has(self, pairs: Pairs, first: int, end: int) -> bool:
        """Whether `at` has all of `pairs`, which are consecutive.

        The part of a `KnownLog` that was compared before is not compared again.
        """
        if self._log is None:
            self._log = self._as_list()
        held, start, begin = pairs.held, self._log_first, first
        if first < start:
            return False
        if type(held) is tuple:
            return tuple(self._log[first - start : end - start]) == held
        assert isinstance(held, KnownLog)
        going_on = held is self._same and self._same_from <= first <= self._same_to
        if going_on:
            begin = self._same_to
        ours, theirs = self._log[begin - start : end - start], held.values
        if ours != theirs[begin - held.first : end - held.first]:
            return False
        if not going_on:
            self._same, self._same_from = held, first
            if not self._seen_to:
                self._seen_from = self._seen_to = first
        self._same_to = end
        return True

    def _as_list(self) -> list[Value | None]:
        first, last = min(self.at, default=0), max(self.at, default=-1)
        self._log_first = first
        if last - first > 2 * len(self.at) + _GAP_MAX:
            return []
        return list(map(self.at.get, range(first, last + 1)))

    def _copy(self, first: int, end: int) -> None:
        """Bring `_log` up to date from `first` to `end`, where a read brought something new."""
        place = first - self._log_first
        if self._log and 0 <= place <= len(self._log):
            self._log[place : end - self._log_first] = map(self.at.get, range(first, end))

    def settle(self) -> None:
        """End the collecting: add the values of all runs to `seen`."""
        log: list[Any] = self._log or []
        start, reached = self._log_first, 0
        runs = [*self._seen_runs.items(), (self._seen_from, self._seen_to)]
        for first, end in sorted(runs):
            if end > reached:
                self.seen.update(log[max(first, reached) - start : end - start])
                reached = end
        self._log = self._same = None

    def _read_anew(self, op: Interval, pairs: Pairs) -> None:
        at, writers = self.at, self.writers
        for offset, value in pairs:
            if at.setdefault(offset, value) != value:
                self.also_at.setdefault(offset, {}).setdefault(value, op)
            batch = writers.get(value)
            if batch is None or batch.base != offset or batch.size > 1:
                self._place(op, offset, value, batch)

    def claim(self, op: Interval, batch: Batch, base: int) -> None:
        """Take `base`, which the end of `op` named though it is `info`, as the place of `batch`."""
        if batch.base is None:
            assert isinstance(batch, Sent), batch  # an acknowledged one has its place
            batch.base = base
            self._claim(batch, op)
        elif batch.base != base:
            for offset, value in enumerate(batch.values, base):
                self.elsewhere.setdefault(value, {}).setdefault(offset, op)
                if self.at.setdefault(offset, value) != value:
                    self.also_at.setdefault(offset, {}).setdefault(value, op)

    def _place(self, op: Interval, offset: int, value: Value, batch: Batch | None) -> None:
        """Take a read that is not simply the acknowledged place of a single record."""
        if batch is None:
            self.strays.setdefault(value, {}).setdefault(offset, op)
            return
        base = offset - (batch.values.index(value) if batch.size > 1 else 0)
        if base < 0:
            self.cut_short.setdefault(value, (offset, op, batch))
            self.elsewhere.setdefault(value, {}).setdefault(offset, op)
        elif batch.base is None:
            assert isinstance(batch, Sent), batch  # an acknowledged one has its place
            batch.base = base
            self._claim(batch, op)
        elif batch.base != base:
            self.elsewhere.setdefault(value, {}).setdefault(offset, op)

    def length(self, op: Interval) -> None:
        """Take an ok `empty`, `end` or `start`."""
        position: int = op.value
        if op.f == "empty":
            _latest(self.at_most, position, op)
        elif op.f == "end":
            _latest(self.exact_in, position, op)
            _earliest(self.exact_out, position, op)
        else:
            _earliest(self.at_least, position, op)
            self.raise_log_start(position, op)

    def raise_log_start(self, start: int, op: Interval) -> None:
        """Take a log start that an answer named."""
        if start > self.log_start:
            self.log_start, self.log_start_op = start, op

    # --- derived ----------------------------------------------------------------------------------

    def order(self) -> list[int]:
        """The non-empty offsets, ascending: the version order. Final once all facts are in."""
        if self._order is None:
            self._order = sorted(self.at)
        return self._order

    def gapless(self) -> bool:
        """Whether the non-empty offsets are consecutive, so that index = offset - first."""
        order = self.order()
        return not order or order[-1] - order[0] + 1 == len(order)

    def rank(self, offset: int) -> int:
        """The index of a non-empty offset: its place among the non-empty ones."""
        order = self.order()
        if order[-1] - order[0] + 1 == len(order):
            return offset - order[0]
        return bisect_left(order, offset)

    def committed(self, batch: Batch) -> bool:
        """Whether `batch` was sent: acknowledged, or an ok read saw any value of its operation."""
        if batch.op.type == "ok" or batch.op.index in self.proven:
            return True
        return batch.op.type == "info" and any(value in self.seen for value in batch.values)

    def last_offset(self, batch: Batch, value: Value) -> int | None:
        """The highest offset at which `value` of `batch` is known to lie."""
        if value in self.elsewhere:
            return self.offsets_of(value)[-1]
        return batch.offset_of(value)

    def offsets_of(self, value: Value) -> list[int]:
        """Every offset at which `value` is known to lie, ascending."""
        batch = self.writers.get(value)
        found = dict.fromkeys(self.elsewhere.get(value, ()))
        found.update(dict.fromkeys(self.strays.get(value, ())))
        place = batch.offset_of(value) if batch is not None else None
        if place is not None:
            found[place] = None
        return sorted(found)


@final
@attrs.define(eq=False)
class Facts:
    """All keys of one history, by name, in the order of their first appearance."""

    first_ends: dict[str, int] = attrs.field(factory=dict)
    keys: dict[str, KeyFacts] = attrs.field(factory=dict)
    others: list[Interval] = attrs.field(factory=list)
    """All operations except sends without evidence."""
    proven: dict[int, None] = attrs.field(factory=dict)
    """Indexes of operations of type info with a value that an ok read returned."""

    def of(self, key: str) -> KeyFacts:
        """The facts of `key`; begins them when the key is new."""
        facts = self.keys.get(key)
        if facts is None:
            facts = self.keys[key] = KeyFacts(key, self.first_ends.get(key, 0), proven=self.proven)
        return facts

    def add_all(self, operations: Sequence[Interval]) -> None:
        """Take all operations, in both passes."""
        try:
            self._add_sends(operations)
            for facts in self.keys.values():
                facts.take_acknowledged()
        except _SentTwice:
            raise _first_sent_twice(operations) from None
        of, keys = self.of, self.keys
        for op in self.others:
            if op.f in ("poll", "txn"):
                reads = (op.value or _NOTHING) if op.f == "poll" else op.reads()
                for key, pairs in reads.items():
                    (keys.get(key) or of(key)).read(op, pairs)
            elif op.f in _LENGTHS and op.type == "ok":
                of(op.key).length(op)  # type: ignore[arg-type]
            if op.evidence and "log_start" in op.evidence:
                for key, start in per_key(op, op.evidence["log_start"]):
                    of(key).raise_log_start(start, op)
        for facts in keys.values():
            facts.settle()
        self._take_claims()

    def _take_claims(self) -> None:
        """Count the places that `info` operations claim, where a read shows that they happened."""
        for op in self.others:
            if op.type != "info" or op.f not in ("send", "txn"):
                continue
            sends = list(op.sends())
            if not any(value in self.of(key).seen for key, values, _ in sends for value in values):
                continue
            self.proven[op.index] = None
            claimed = op.evidence.get("claimed", ()) if op.evidence else ()
            for (key, values, _), base in zip(sends, claimed, strict=False):
                if base is not None:
                    facts = self.of(key)
                    facts.claim(op, facts.writers[values[0]], base)

    def _add_sends(self, operations: Sequence[Interval]) -> None:
        of, keys, others = self.of, self.keys, self.others
        for op in operations:
            if op.f == "send":
                asked, key = op.asked, op.key
                assert key is not None
                facts = keys.get(key) or of(key)
                if op.type == "ok" and op.value is not None and type(asked) is not list:
                    facts.acknowledged.append(op)
                else:
                    facts.send(op, values_of(asked), op.value)
                if op.evidence:
                    others.append(op)
                continue
            if op.f == "txn":
                for key, values, base in op.sends():
                    of(key).send(op, values, base)
            others.append(op)


def _first_sent_twice(operations: Iterable[Interval]) -> BadHistory:
    """The error for the first of `operations` that sends a value again."""
    sent: dict[tuple[str, Value], tuple[int, int]] = {}
    for op in operations:
        for number, (key, values, _) in enumerate(op.sends()):
            for value in values:
                first = sent.setdefault((key, value), (op.index, number))
                if first != (op.index, number):
                    return BadHistory(
                        f"value {value!r} is sent twice to {key}",
                        on=f"indexes {first[0]} and {op.index}",
                        do="values are unique in a history",
                    )
    raise AssertionError("every value is sent once")


def per_key(op: Interval, value: Any) -> Iterable[tuple[str, int]]:
    """Evidence by key: an int belongs to the operation's own key, an object names its keys."""
    if type(value) is int:
        return [(op.key, value)] if op.key is not None else []
    if isinstance(value, dict):
        return [(key, item) for key, item in value.items() if type(item) is int]
    return []


# Ties go to the lower index, so that a cluster which meets operations in another order agrees.


def _earliest(bounds: dict[int, Bound], gap: int, op: Interval) -> None:
    known = bounds.get(gap)
    if known is None or (op.end_ns, op.index) < (known[0], known[1].index):
        bounds[gap] = (op.end_ns, op)


def _latest(bounds: dict[int, Bound], gap: int, op: Interval) -> None:
    known = bounds.get(gap)
    if known is None or (op.start_ns, -op.index) > (known[0], -known[1].index):
        bounds[gap] = (op.start_ns, op)
