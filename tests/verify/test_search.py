"""The general search: small truths by hand, agreement with trying every order, the budget."""

import random

import pytest
from raftlog_sim.hunting.small_registers import (
    by_every_order,
    cas,
    legal,
    random_calls,
    read,
    write,
)

from raftlog.verify import BadHistory, Call, Header, Model, Op, intervals, judge_operations
from raftlog.verify.histories.interval import OPEN
from raftlog.verify.judging.models import (
    CAS_REGISTER,
    CONSUMER_OFFSETS,
    FENCING,
    REGISTER,
    append_only,
)
from raftlog.verify.judging.search import search

LOTS = 10**6


@pytest.mark.parametrize(
    ("calls", "verdict"),
    [
        ([], "valid"),
        ([read(1, 2, None)], "valid"),
        ([read(1, 2, 5)], "invalid"),
        ([write(1, 2, 5), read(3, 4, 5)], "valid"),
        ([write(1, 2, 5), read(3, 4, None)], "invalid"),
        ([write(1, 3, 5), read(3, 4, None)], "valid"),  # closed intervals touch: concurrent
        ([write(1, 9, 5), read(2, 3, 5), read(4, 5, None)], "invalid"),
        ([write(1, 9, 5), read(2, 3, None), read(4, 5, 5)], "valid"),
        ([write(1, OPEN, 5), read(2, 3, None), read(4, 5, 5)], "valid"),
        ([write(1, OPEN, 5), read(2, 3, 5), read(4, 5, None)], "invalid"),
        ([write(1, 2, 5), cas(3, 4, 5, 6), read(5, 6, 6)], "valid"),
        ([write(1, 2, 5), cas(3, 4, 4, 6)], "invalid"),
        ([write(1, 2, 5), cas(3, OPEN, 4, 6), read(5, 6, 5)], "valid"),
        ([write(1, 2, 5), cas(3, 4, 5, 6, False)], "invalid"),
        ([write(1, 2, 5), cas(3, 4, 4, 6, False), read(5, 6, 5)], "valid"),
    ],
)
def test_registers(calls, verdict):
    outcome = search(CAS_REGISTER, calls, LOTS)
    assert outcome.verdict == verdict
    if verdict == "valid":
        assert legal(CAS_REGISTER, calls, outcome.longest)


def test_agrees_with_trying_every_order():
    seen = {True: 0, False: 0}
    for seed in range(600):
        calls = random_calls(random.Random(seed))
        outcome = search(CAS_REGISTER, calls, LOTS)
        expected = by_every_order(CAS_REGISTER, calls)
        assert (outcome.verdict == "valid") == expected, (seed, calls)
        seen[expected] += 1
    assert min(seen.values()) > 60


def test_a_spent_budget_is_unknown_never_valid():
    calls = [write(0, 100, n) for n in range(12)] + [read(101, 102, 99)]
    outcome = search(CAS_REGISTER, calls, 500)
    assert outcome.verdict == "unknown"
    assert outcome.steps == 501
    assert search(CAS_REGISTER, calls[:-1], 500).verdict == "valid"


def test_states_met_before_are_not_searched_again():
    """Twelve writes of one value: 12! orders, 2^12 sets, but hardly any different states."""
    calls = [write(0, 100, 1) for _ in range(12)] + [read(101, 102, 2)]
    outcome = search(REGISTER, calls, 200_000)
    assert outcome.verdict == "invalid"


def test_invalid_says_how_far_it_came():
    calls = [write(1, 2, 5), read(3, 4, 5), read(5, 6, 7)]
    outcome = search(REGISTER, calls, LOTS)
    assert (outcome.verdict, outcome.longest, outcome.stuck_at) == ("invalid", (0, 1), 2)


@pytest.mark.parametrize(
    ("calls", "verdict"),
    [
        ([Call(1, 2, ("acquire",), 1), Call(3, 4, ("check", 1), True)], "valid"),
        ([Call(1, 2, ("acquire",), 2), Call(3, 4, ("acquire",), 1)], "invalid"),
        (
            [
                Call(1, 2, ("acquire",), 1),
                Call(3, 4, ("acquire",), 2),
                Call(5, 6, ("check", 1), True),
            ],
            "invalid",
        ),
        (
            [
                Call(1, 2, ("acquire",), 1),
                Call(3, 7, ("acquire",), 2),
                Call(5, 6, ("check", 1), True),
            ],
            "valid",
        ),
        ([Call(1, 2, ("acquire",), 1), Call(3, 4, ("check", 1), False)], "invalid"),
    ],
)
def test_fencing(calls, verdict):
    assert search(FENCING, calls, LOTS).verdict == verdict


UNHEARD = Call(3, 4, ("acquire",), None)


@pytest.mark.parametrize(
    ("checks", "verdict"),
    [
        ([(3, False), (7, True)], "valid"),
        ([(7, True), (3, False)], "valid"),
        ([(1, True)], "invalid"),
        ([(5, True), (6, False)], "invalid"),
        ([(5, False), (5, True)], "invalid"),
    ],
)
def test_a_token_that_nobody_was_told_may_be_any_higher_one(checks, verdict):
    """The model took such a token for the next number, and called it wrong when a later check of a
    number beyond that was refused."""
    calls = [Call(1, 2, ("acquire",), 1), UNHEARD]
    for at, (token, accepted) in enumerate(checks):
        calls.append(Call(10 + 2 * at, 11 + 2 * at, ("check", token), accepted))
    assert search(FENCING, calls, LOTS).verdict == verdict


@pytest.mark.parametrize(
    ("f", "asked", "answer"), [("acquire", None, "x"), ("acquire", None, True), ("check", [1], 0)]
)
def test_a_token_is_an_integer(f, asked, answer):
    with pytest.raises(BadHistory, match="a token is an integer"):
        judged(FENCING, (0, "invoke", f, asked), (0, "ok", f, answer))


@pytest.mark.parametrize(
    ("written", "read"), [(1, True), (0, False), ([1], [True]), ({"a": 1}, [["a", 1]]), ({}, [])]
)
def test_what_only_python_calls_equal(written, read):
    lines = [(0, "invoke", "write", written), (0, "ok", "write", written)]
    for value, verdict in ((written, "valid"), (read, "invalid")):
        end = [(0, "invoke", "read", None), (0, "ok", "read", value)]
        assert judged(REGISTER, *lines, *end).verdict == verdict


def judged(model, *lines, key="x"):
    ops = []
    for index, (process, kind, f, value) in enumerate(lines):
        ops.append(Op(index, index, process, kind, f, key, value))
    operations, nemesis = intervals(ops)
    return judge_operations(Header(source="import"), operations, nemesis, model=model).verdict


def test_consumer_offsets_are_one_object_per_group():
    commit = [(0, "invoke", "offset_commit", ["g", {"a": 3}]), (0, "ok", "offset_commit", {"a": 3})]
    fetch = [(1, "invoke", "offset_fetch", ["g", ["a"]]), (1, "ok", "offset_fetch", {"a": 3})]
    stale = [(1, "invoke", "offset_fetch", ["g", ["a"]]), (1, "ok", "offset_fetch", {"a": None})]
    other = [(1, "invoke", "offset_fetch", ["h", ["a"]]), (1, "ok", "offset_fetch", {"a": -1})]
    assert judged(CONSUMER_OFFSETS, *commit, *fetch, key=None).exit_code == 0
    assert judged(CONSUMER_OFFSETS, *commit, *stale, key=None).exit_code == 1
    assert judged(CONSUMER_OFFSETS, *commit, *other, key=None).exit_code == 0


def test_objects_are_searched_one_by_one():
    """Eight registers with five concurrent writes each: hopeless as one, easy as eight."""
    ops, index = [], 0
    for register in range(8):
        for process in range(5):
            name = f"r{register}"
            ops.append(Op(index, 0, register * 9 + process, "invoke", "write", name, process))
            index += 1
    for register in range(8):
        for process in range(5):
            number = register * 9 + process
            ops.append(Op(index, 1, number, "ok", "write", f"r{register}", process))
            index += 1
    operations, _ = intervals(ops)
    header = Header(source="import", model="register")
    assert judge_operations(header, operations).verdict.exit_code == 2, "nothing was read"
    for number, kind in ((0, "invoke"), (1, "ok")):
        ops.append(Op(index + number, 2 + number, 99, kind, "read", "r0", 3 if number else None))
    operations, _ = intervals(ops)
    verdict = judge_operations(header, operations, search_steps=2_000).verdict
    assert verdict.exit_code == 0
    assert verdict.budget["objects"] == 8
    assert verdict.budget["search_steps"] < 2_000


def test_an_unknown_part_does_not_hide_an_invalid_one():
    ops, index = [], 0
    for process in range(14):
        ops.append(Op(index, 0, process, "invoke", "write", "wide", process))
        index += 1
    ops.append(Op(index, 0, 99, "invoke", "read", "narrow", None))
    ops.append(Op(index + 1, 1, 99, "ok", "read", "narrow", 7))
    index += 2
    for process in range(14):
        ops.append(Op(index, 2, process, "ok", "write", "wide", process))
        index += 1
    ops.append(Op(index, 3, 50, "invoke", "read", "wide", None))
    ops.append(Op(index + 1, 4, 50, "ok", "read", "wide", 77))
    operations, _ = intervals(ops)
    header = Header(source="import", model="register")
    verdict = judge_operations(header, operations, search_steps=1_000).verdict
    assert verdict.verdict == "invalid"
    wide = judge_operations(
        header, [op for op in operations if op.key == "wide"], search_steps=1_000
    ).verdict
    assert wide.verdict == "unknown"
    assert wide.exit_code == 2
    assert "1000 steps" in wide.classes["model"].note


def test_your_own_model():
    counter = Model(
        name="counter",
        init=lambda: 0,
        step=lambda state, asked, answer: (
            (True, state + 1) if asked == "add" else (answer == state, state)
        ),
        call_of=lambda op: Call(op.start_ns, op.end_ns, op.f, op.value, op),
        functions=("add", "get"),
    )
    lines = [(0, "invoke", "add", None), (0, "ok", "add", None), (1, "invoke", "get", None)]
    assert judged(counter, *lines, (1, "ok", "get", 1)).exit_code == 0
    assert judged(counter, *lines, (1, "ok", "get", 0)).exit_code == 1


def test_an_operation_that_the_model_does_not_know_is_a_mistake():
    with pytest.raises(BadHistory, match="does not know 'pop'"):
        judged("register", (0, "invoke", "pop", None), (0, "ok", "pop", 1))


@pytest.mark.parametrize(
    "model", ["registers", "os:system", "raftlog.verify.judging.models:REGISTER"]
)
def test_a_header_never_loads_code(model):
    with pytest.raises(BadHistory, match="unknown model"):
        judged(model, (0, "invoke", "read", None), (0, "ok", "read", None))


def test_values_that_do_not_fit_the_model():
    with pytest.raises(BadHistory, match="does not fit"):
        judged("cas-register", (0, "invoke", "cas", 5), (0, "ok", "cas", 5))


def test_the_log_model_takes_batches_whole():
    log = append_only()
    append = Call(1, 4, ("append", ("a", "b"), True), 0)
    assert search(log, [append, Call(2, 3, ("length", True), 1)], LOTS).verdict == "invalid"
    assert search(log, [append, Call(2, 3, ("length", True), 2)], LOTS).verdict == "valid"
