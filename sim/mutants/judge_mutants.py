"""Planted bugs of the judge: 24 to 24t of the one-pass check of a log, 24u to 24z of the search.

Only `raftlog_sim.hunting.mutation` loads this file; nothing here is ever installed. Each is
expected to be caught by one kind of small history (`raftlog_sim.hunting.judge_hunt`).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, final

import attrs

from raftlog.verify.histories.interval import OPEN, Interval
from raftlog.verify.judging import anomalies, check, facts, holes, linearizability, search
from raftlog.verify.judging.models import Call, Model

ANY = ("dense", "crowded")


def _skipped(*_: Any) -> None:
    """Takes the place of a check, and checks nothing."""


# --- the log --------------------------------------------------------------------------------------


def hole_check_dropped() -> None:
    """24: an offset that no send can have written is no anomaly."""
    linearizability._check_holes = _skipped


def _before_the_facts(change: Callable[[Interval], None]) -> None:
    real = facts.Facts.add_all

    def add_all(self: facts.Facts, operations: Sequence[Interval]) -> None:
        for op in operations:
            change(op)
        real(self, operations)

    facts.Facts.add_all = add_all  # type: ignore[method-assign]


def info_treated_as_fail() -> None:
    """24b: a send without an answer certainly did not happen."""

    def fail(op: Interval) -> None:
        if op.type == "info" and op.f == "send":
            op.type, op.end_ns = "fail", op.start_ns

    _before_the_facts(fail)


def weak_for_strict() -> None:
    """24c: a return at the instant of a call precedes the call.

    Instants are integers, so each return is reported a nanosecond early.
    """
    real = linearizability.scan

    def scan(rows: Iterable[Any], *carry: Any) -> Any:
        return real((_told_early(row) for row in rows), *carry)

    linearizability.scan = scan


def _told_early(row: Any) -> Any:
    offset, exact_in, exact_out, at_least, at_most, append = row
    exact_out, at_least = (bound and (bound[0] - 1, *bound[1:]) for bound in (exact_out, at_least))
    append = append and (append[0], append[1] - 1, append[2])
    return offset, exact_in, exact_out, at_least, at_most, append


def duplicates_ignored() -> None:
    """24d: a value may lie at two offsets."""
    anomalies._duplicates = _skipped


def last_partition_skipped() -> None:
    """24e: the last one of several partitions is not judged."""
    last: list[Any] = []
    real_add_all = facts.Facts.add_all

    def add_all(self: facts.Facts, operations: Sequence[Interval]) -> None:
        real_add_all(self, operations)
        last[:] = list(self.keys.values())[1:][-1:]

    def skipping(real: Any) -> Any:
        def check_key(key_facts: Any, *rest: Any, **more: Any) -> None:
            if key_facts not in last:
                real(key_facts, *rest, **more)

        return check_key

    facts.Facts.add_all = add_all  # type: ignore[method-assign]
    linearizability.check_key = skipping(linearizability.check_key)
    anomalies.check_key = skipping(anomalies.check_key)


def info_treated_as_ok() -> None:
    """24f: an operation without an answer happened at the instant of its call."""

    def close(op: Interval) -> None:
        if op.end_ns == OPEN:
            op.end_ns = op.start_ns

    _before_the_facts(close)


def two_values_at_one_offset_accepted() -> None:
    """24g: an offset may have two values."""
    anomalies._inconsistent = _skipped


def phantoms_accepted() -> None:
    """24h: a value may be read that no send carried."""
    anomalies._phantoms = _skipped


def polls_prove_nothing() -> None:
    """24i: a record that was read need not have existed when the poll returned."""
    real = facts.KeyFacts.read

    def read(self: facts.KeyFacts, op: Interval, pairs: Any) -> None:
        before = dict(self.at_least)
        real(self, op, pairs)
        self.at_least = before

    facts.KeyFacts.read = read  # type: ignore[method-assign]


def _columns_see(change: Callable[[Any], Any]) -> None:
    """Let the short cut for logs without holes see other bounds than the scan."""
    real = linearizability.is_plainly_right
    linearizability.is_plainly_right = lambda key_facts, bounds: real(key_facts, change(bounds))


def _all_at(instant: int, bounds: Mapping[int, Any]) -> dict[int, Any]:
    return {gap: (instant, op) for gap, (_, op) in bounds.items()}


def columns_forget_what_reads_prove() -> None:
    """24j: the short cut passes reads that come too early."""
    _columns_see(
        lambda bounds: attrs.evolve(
            bounds,
            at_least=_all_at(OPEN, bounds.at_least),
            exact_out=_all_at(OPEN, bounds.exact_out),
        )
    )


def columns_forget_what_reads_must_precede() -> None:
    """24k: the short cut lets appends precede the reads that did not see them."""
    _columns_see(
        lambda bounds: attrs.evolve(
            bounds,
            exact_in=_all_at(linearizability.BEFORE_ALL, bounds.exact_in),
            at_most=_all_at(linearizability.BEFORE_ALL, bounds.at_most),
        )
    )


def columns_take_the_maximum_an_append_late() -> None:
    """24l: the short cut compares each append with the maximum of the one before."""
    real = linearizability.is_plainly_right
    held = [linearizability.BEFORE_ALL]

    def is_later(latest: int, returned: int) -> bool:
        before, held[0] = held[0], latest
        return before > returned

    def is_plainly_right(key_facts: Any, bounds: Any) -> bool:
        held[0] = linearizability.BEFORE_ALL
        return real(key_facts, bounds)

    linearizability.gt = is_later
    linearizability.is_plainly_right = is_plainly_right


def _bounds_changed(change: Callable[[Any, facts.KeyFacts, str], Any]) -> None:
    real = linearizability.bounds_of
    linearizability.bounds_of = lambda key_facts, mode: change(real, key_facts, mode)


def empty_reads_ignored() -> None:
    """24m: a read that found nothing says nothing."""

    def without(real: Any, key_facts: facts.KeyFacts, mode: str) -> Any:
        bounds = real(key_facts, mode)
        bounds.at_most = {}
        return bounds

    _bounds_changed(without)


def exact_reads_only_bound_from_below() -> None:
    """24n: reads of the end may lag, whatever the header promises."""
    _bounds_changed(lambda real, key_facts, mode: real(key_facts, "committed-prefix"))


def lagging_reads_taken_as_exact() -> None:
    """24o: reads of the end may never lag, whatever the header says."""
    _bounds_changed(lambda real, key_facts, mode: real(key_facts, "linearizable"))


def reads_split_batches() -> None:
    """24p: half of a batch may be seen."""
    linearizability._leave_batches = _skipped


def holes_ignore_time() -> None:
    """24q: a hole may be filled by a send that was called after the hole was passed."""
    real = holes._match

    def match(segments: Sequence[holes.HoleSegment], invoked: Sequence[int]) -> holes.FillOutcome:
        return real([segment._replace(deadline=OPEN) for segment in segments], invoked)

    holes._match = match


def empty_reads_allow_batches_around_them() -> None:
    """24r: a batch may fill holes around a place at which nothing was found."""
    holes._Tiling._denied = lambda *_: False  # type: ignore[method-assign]


def sparse_logs_judged_dense() -> None:
    """24s: control records are holes."""
    real = linearizability.check_key

    def check_key(key_facts: Any, findings: Any, *, dense: bool, **more: Any) -> None:
        del dense
        real(key_facts, findings, dense=True, **more)

    linearizability.check_key = check_key


def records_before_the_history_forgotten() -> None:
    """24t: the records in the log when the history began are phantoms."""
    check._first_ends = lambda _: {}


# --- the general search ---------------------------------------------------------------------------


def _calls_changed(change: Callable[[list[Call]], list[Call]]) -> None:
    real = search.calls_of

    def calls_of(model: Any, operations: Sequence[Interval]) -> Mapping[Any, list[Call]]:
        return {key: change(calls) for key, calls in real(model, operations).items()}

    search.calls_of = calls_of


def unanswered_calls_dropped() -> None:
    """24u: a call without an answer certainly did not happen."""
    _calls_changed(lambda calls: [call for call in calls if call.end_ns < OPEN])


def touching_calls_ordered() -> None:
    """24v: a return at the instant of a call precedes the call."""
    real = search._event_list

    def event_list(calls: Sequence[Call]) -> Any:
        return real([_earlier(call) for call in calls])

    search._event_list = event_list


def _earlier(call: Call) -> Call:
    if call.start_ns < call.end_ns < OPEN:
        return attrs.evolve(call, end_ns=call.end_ns - 1)
    return call


@final
class _Alike(NamedTuple):
    """A state that equals every other."""

    state: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Alike)

    def __hash__(self) -> int:
        return 0


def memo_without_its_state() -> None:
    """24w: the same calls in another order are taken to leave the same state."""
    real = search.search

    def searched(model: Model, *rest: Any) -> Any:
        def step(alike: _Alike, asked: Any, answer: Any) -> tuple[bool, _Alike]:
            legal, after = model.step(alike.state, asked, answer)
            return legal, _Alike(after)

        return real(attrs.evolve(model, init=lambda: _Alike(model.init()), step=step), *rest)

    search.search = searched


def last_object_skipped() -> None:
    """24x: the last one of several objects is not searched."""
    real = search._parts

    def parts(model: Any, operations: Sequence[Interval]) -> Mapping[Any, Sequence[Call]]:
        found = dict(real(model, operations))
        if len(found) > 1:
            found.popitem()
        return found

    search._parts = parts


def unanswered_calls_must_happen() -> None:
    """24y: a call without an answer certainly happened."""
    _calls_changed(lambda calls: [attrs.evolve(c, end_ns=min(c.end_ns, OPEN - 1)) for c in calls])


def failed_compares_say_nothing() -> None:
    """24z: a compare that failed may have been one that matches."""
    _calls_changed(lambda calls: [call for call in calls if call.answer is not False])


_LOGS: tuple[tuple[str, Callable[[], None], tuple[str, ...]], ...] = (
    ("24", hole_check_dropped, ("dense", "batches")),
    ("24b", info_treated_as_fail, ("dense",)),
    ("24c", weak_for_strict, ("crowded",)),
    ("24d", duplicates_ignored, ("dense", "retention")),
    ("24e", last_partition_skipped, ("two-logs",)),
    ("24f", info_treated_as_ok, ("dense",)),
    ("24g", two_values_at_one_offset_accepted, ("dense", "batches")),
    ("24h", phantoms_accepted, ("dense", "retention")),
    ("24i", polls_prove_nothing, ("dense",)),
    ("24j", columns_forget_what_reads_prove, ANY),
    ("24k", columns_forget_what_reads_must_precede, ANY),
    ("24l", columns_take_the_maximum_an_append_late, ANY),
    ("24m", empty_reads_ignored, ("dense",)),
    ("24n", exact_reads_only_bound_from_below, ("dense",)),
    ("24o", lagging_reads_taken_as_exact, ("committed-prefix",)),
    ("24p", reads_split_batches, ("batches", "sparse-batches")),
    ("24q", holes_ignore_time, ANY),
    ("24r", empty_reads_allow_batches_around_them, ("unheard-batches",)),
    ("24s", sparse_logs_judged_dense, ("sparse",)),
    ("24t", records_before_the_history_forgotten, ("preloaded",)),
)
_SEARCHES: tuple[tuple[str, Callable[[], None]], ...] = (
    ("24u", unanswered_calls_dropped),
    ("24v", touching_calls_ordered),
    ("24w", memo_without_its_state),
    ("24x", last_object_skipped),
    ("24y", unanswered_calls_must_happen),
    ("24z", failed_compares_say_nothing),
)
_ALL = (*_LOGS, *((number, apply, ("registers",)) for number, apply in _SEARCHES))
MUTANTS = tuple(
    (number, apply.__name__.replace("_", "-"), apply, expected, "judge")
    for number, apply, expected in _ALL
)
