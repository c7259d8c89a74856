"""Changes that must not change a verdict: wider intervals, forgotten answers, other clocks, other
places."""

import copy
import random

import pytest
from raftlog_sim.hunting.small_logs import KEY, SHAPES, generate

from raftlog.verify import Header, judge_operations
from raftlog.verify.histories.interval import OPEN
from raftlog.verify.judging import cycles
from raftlog.verify.judging.facts import Facts
from raftlog.verify.judging.verdict import Findings

LINEAR = ("linearizability", "inconsistent-offsets", "duplicate", "phantom", "G1a")
SEEDS = 120


def found(options, operations):
    header = Header(source="sim", options=options)
    verdict = judge_operations(header, operations, with_metrics=False).verdict
    return {name: verdict.classes[name].count for name in LINEAR}


def histories(name, *, valid):
    for seed in range(SEEDS):
        rng = random.Random(f"meta-{name}-{seed}")
        options, operations = generate(rng, SHAPES[name])
        if any(found(options, operations).values()) != valid:
            yield rng, options, operations


@pytest.mark.parametrize("name", SHAPES)
def test_widening_an_interval_never_makes_a_valid_history_invalid(name):
    for rng, options, operations in histories(name, valid=True):
        for op in operations:
            if op.f == "send" and op.type == "fail":
                continue
            wider = copy.deepcopy(operations)
            twin = wider[operations.index(op)]
            twin.start_ns -= rng.randint(0, 9)
            twin.end_ns = min(OPEN, twin.end_ns + rng.randint(0, 9))
            assert not any(found(options, wider).values()), (op, operations)


@pytest.mark.parametrize("name", SHAPES)
def test_an_answer_that_never_came_never_makes_a_valid_history_invalid(name):
    for _, options, operations in histories(name, valid=True):
        for op in operations:
            if op.f == "send" or op.type != "ok":
                continue
            forgotten = copy.deepcopy(operations)
            twin = forgotten[operations.index(op)]
            twin.type, twin.end_ns = "info", OPEN
            if twin.f != "poll":
                twin.value = None
            assert not any(found(options, forgotten).values()), (op, operations)


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("valid", [True, False])
def test_only_the_order_of_time_matters(name, valid):
    for _, options, operations in histories(name, valid=valid):
        before = found(options, operations)
        for op in operations:
            op.start_ns = op.start_ns * 3 + 1_000_000
            op.end_ns = op.end_ns * 3 + 1_000_000 if op.end_ns < OPEN else OPEN
        assert found(options, operations) == before


@pytest.mark.parametrize("name", SHAPES)
def test_the_order_of_lines_does_not_matter(name):
    for rng, options, operations in histories(name, valid=True):
        rng.shuffle(operations)
        assert not any(found(options, operations).values())


@pytest.mark.parametrize("name", SHAPES)
def test_keys_are_judged_alone(name):
    """A second, valid log beside it changes nothing."""
    for _, options, operations in histories(name, valid=False):
        before = found(options, operations)
        other = random.Random(1)
        _, beside = generate(other, SHAPES["dense"])
        while any(found({**options, "first_end": {}}, beside).values()):
            _, beside = generate(other, SHAPES["dense"])
        for op in beside:
            op.index, op.process = op.index + 100, op.process + 100
            op.key = "t/1" if op.key else None
            if op.f == "poll":
                op.value = {"t/1": op.value[KEY]}
        assert found(options, [*operations, *beside]) == before


@pytest.mark.parametrize("name", SHAPES)
def test_where_the_scan_rules_out_cycles_there_are_none(name, monkeypatch):
    """`acyclic_by_scan` saves the search for cycles; here it is searched all the same."""
    ruled_out = 0
    for _, options, operations in histories(name, valid=True):
        facts = Facts(options.get("first_end", {}))
        facts.add_all(operations)
        if not cycles.acyclic_by_scan(facts, operations, Findings()):
            continue
        ruled_out += 1
        findings = Findings()
        with monkeypatch.context() as patch:
            patch.setattr(cycles, "acyclic_by_scan", lambda *_: False)
            cycles.check(facts, operations, findings)
        assert findings.counts == {}, operations
    assert ruled_out > SEEDS // 3
