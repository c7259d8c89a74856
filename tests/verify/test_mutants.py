"""Broken judges: each of these mistakes is caught by comparing with the general search.

An oracle that never failed proves nothing. A mutant is a patch made here, never a switch in the
product; the unpatched judge agrees on the same seeds.
"""

import inspect
import random
import textwrap

import pytest
from raftlog_sim.small_logs import KEY, SHAPES, by_search, generate

from raftlog.verify import Header, anomalies, check, facts, holes, judge_operations, linearizability
from raftlog.verify.pairing import OPEN

LINEAR = ("linearizability", "inconsistent-offsets", "duplicate", "phantom", "G1a")
SEEDS = 4000
OTHER = "t/1"


def judged_valid(options, operations):
    verdict = judge_operations(
        Header(source="sim", options=options), operations, with_metrics=False
    ).verdict
    return not any(verdict.classes[name].count for name in LINEAR)


def two_logs(seed, shape):
    """Two keys in one history, and whether both are linearizable."""
    rng = random.Random(f"two-{seed}")
    options, first = generate(rng, shape)
    _, second = generate(rng, shape)
    expected = by_search(options, first) and by_search(options, second)
    for op in second:
        op.index += 100
        op.process += 100
        op.key = OTHER if op.key else None
        if op.f == "poll":
            op.value = {OTHER: op.value[KEY]}
    return options, [*first, *second], expected


def one_log(seed, shape):
    options, operations = generate(random.Random(f"one-{seed}"), shape)
    return options, operations, by_search(options, operations)


def disagreements(names, make=one_log, seeds=SEEDS):
    """How many seeds until the judge and the search differ; None if they never do."""
    for seed in range(seeds):
        for name in names:
            options, operations, expected = make(seed, SHAPES[name])
            if judged_valid(options, operations) != expected:
                return seed
    return None


def rewritten(function, old, new):
    """`function` with a piece of its text replaced."""
    source = textwrap.dedent(inspect.getsource(function))
    assert old in source, (function, old)
    space = dict(vars(inspect.getmodule(function)))
    exec(compile(source.replace(old, new), "mutant", "exec"), space)
    return space[function.__name__]


def hole_check_dropped(patch):
    patch.setattr(linearizability, "_check_holes", lambda *_: None)


def info_treated_as_fail(patch):
    def add_all(self, operations, real=facts.Facts.add_all):
        for op in operations:
            if op.type == "info" and op.f == "send":
                op.type, op.end_ns = "fail", op.start_ns
        real(self, operations)

    patch.setattr(facts.Facts, "add_all", add_all)


def info_treated_as_ok(patch):
    def add_all(self, operations, real=facts.Facts.add_all):
        for op in operations:
            if op.end_ns == OPEN:
                op.end_ns = op.start_ns
        real(self, operations)

    patch.setattr(facts.Facts, "add_all", add_all)


def weak_for_strict(patch):
    patch.setattr(
        linearizability, "scan", rewritten(linearizability.scan, "latest > ", "latest >= ")
    )


def duplicates_ignored(patch):
    patch.setattr(anomalies, "_duplicates", lambda *_: None)


def last_partition_skipped(patch):
    def skipping(real):
        def check_key(key_facts, *rest, **more):
            return [] if key_facts.key == OTHER else real(key_facts, *rest, **more)

        return check_key

    patch.setattr(linearizability, "check_key", skipping(linearizability.check_key))
    patch.setattr(anomalies, "check_key", skipping(anomalies.check_key))


def two_values_at_one_offset_accepted(patch):
    patch.setattr(anomalies, "_inconsistent", lambda *_: None)


def phantoms_accepted(patch):
    patch.setattr(anomalies, "_phantoms", lambda *_: None)


def polls_prove_nothing(patch):
    blind = rewritten(facts.KeyFacts.read, "_earliest(self.at_least, end, op)", "pass")
    patch.setattr(facts.KeyFacts, "read", blind)


def columns_changed(patch, old, new):
    broken = rewritten(linearizability.is_plainly_right, old, new)
    patch.setattr(linearizability, "is_plainly_right", broken)


def columns_forget_what_reads_prove(patch):
    columns_changed(patch, "latest[gap] <= instant", "True")


def columns_forget_what_reads_must_precede(patch):
    columns_changed(patch, "instant > invoked[gap]", "False")


def columns_take_the_maximum_an_append_late(patch):
    columns_changed(patch, "latest[1:]", "latest")


def empty_reads_ignored(patch):
    patch.setattr(
        linearizability,
        "bounds_of",
        lambda f, mode, real=linearizability.bounds_of: _without_at_most(real(f, mode)),
    )


def _without_at_most(bounds):
    bounds.at_most = {}
    return bounds


def exact_reads_only_bound_from_below(patch):
    patch.setattr(
        linearizability,
        "bounds_of",
        lambda f, _, real=linearizability.bounds_of: real(f, "committed-prefix"),
    )


def lagging_reads_taken_as_exact(patch):
    patch.setattr(
        linearizability,
        "bounds_of",
        lambda f, _, real=linearizability.bounds_of: real(f, "linearizable"),
    )


def reads_split_batches(patch):
    patch.setattr(linearizability, "_leave_batches", lambda *_: None)


def holes_ignore_time(patch):
    patch.setattr(holes, "_match", rewritten(holes._match, "<= deadline", "<= OPEN"))


def empty_reads_allow_batches_around_them(patch):
    patch.setattr(holes._Tiling, "_denied", lambda *_: False)


def sparse_logs_judged_dense(patch):
    real = linearizability.check_key
    patch.setattr(
        linearizability,
        "check_key",
        lambda f, findings, *, dense, **more: real(f, findings, dense=True, **more),
    )


def records_before_the_history_forgotten(patch):
    patch.setattr(check, "_first_ends", lambda _: {})


MUTANTS = [
    (hole_check_dropped, ["dense", "batches"], one_log),
    (info_treated_as_fail, ["dense"], one_log),
    (info_treated_as_ok, ["dense"], one_log),
    (weak_for_strict, ["crowded"], one_log),
    (duplicates_ignored, ["dense", "retention"], one_log),
    (last_partition_skipped, ["dense"], two_logs),
    (two_values_at_one_offset_accepted, ["dense", "batches"], one_log),
    (phantoms_accepted, ["dense", "retention"], one_log),
    (polls_prove_nothing, ["dense"], one_log),
    (columns_forget_what_reads_prove, ["dense", "crowded"], one_log),
    (columns_forget_what_reads_must_precede, ["dense", "crowded"], one_log),
    (columns_take_the_maximum_an_append_late, ["dense", "crowded"], one_log),
    (empty_reads_ignored, ["dense"], one_log),
    (exact_reads_only_bound_from_below, ["dense"], one_log),
    (lagging_reads_taken_as_exact, ["committed-prefix"], one_log),
    (reads_split_batches, ["batches", "sparse-batches"], one_log),
    (holes_ignore_time, ["dense", "crowded"], one_log),
    (empty_reads_allow_batches_around_them, ["unheard-batches"], one_log),
    (sparse_logs_judged_dense, ["sparse"], one_log),
    (records_before_the_history_forgotten, ["preloaded"], one_log),
]


@pytest.mark.parametrize(
    ("mutant", "names", "make"), MUTANTS, ids=lambda x: getattr(x, "__name__", None)
)
def test_the_mutant_is_caught(mutant, names, make, monkeypatch):
    mutant(monkeypatch)
    assert disagreements(names, make) is not None


def test_the_real_judge_is_not():
    assert disagreements(SHAPES, seeds=150) is None
    assert disagreements(["dense"], two_logs, seeds=300) is None
