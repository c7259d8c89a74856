"""Every class of anomaly: a history that has it, with the witness, and the nearest one that has
not.

The invalid history's verdict names exactly the classes listed: a class that fires for its
neighbour's reason would hide what went wrong.
"""

import pytest

from raftlog.verify import Header
from raftlog.verify.judging.classes import CLASSES
from raftlog.verify.judging.linearizability import LINEARIZABLE
from tests.verify.group_cases import ALL, GROUP_CASES, A, B, C, three
from tests.verify.writing import (
    KEY,
    invalid,
    judged,
    length,
    op,
    poll,
    send,
    txn,
    witness,
)

LINEAR = {"read_consistency": LINEARIZABLE}

# class -> (options, invalid operations, all invalid classes, witness, valid operations)
CASES = {
    "lost-write": (
        ALL,
        [*three(), poll(1, (7, 8), (0, A)), poll(2, (9, 10), (2, C))],
        ["lost-write"],
        (1, [0, 2]),
        [*three(), poll(1, (7, 8), (0, A), (1, B), (2, C))],
    ),
    "inconsistent-offsets": (
        ALL,
        [send(0, (1, 2), A, 0), send(1, (1, 3), B, 0), poll(2, (4, 5), (0, A))],
        ["lost-write", "inconsistent-offsets", "linearizability"],
        (0, [2, 1]),
        [send(0, (1, 2), A, 0), send(1, (1, 3), B, 1), poll(2, (4, 5), (0, A), (1, B))],
    ),
    "duplicate": (
        ALL,
        [send(0, (1, 2), A, 0), poll(1, (3, 4), (0, A), (1, A))],
        ["duplicate", "linearizability"],
        (1, [1, 1]),
        [send(0, (1, 2), A, 0), poll(1, (3, 4), (0, A)), poll(2, (3, 4), (0, A))],
    ),
    "G1a": (
        ALL,
        [send(0, (1, 2), A, kind="fail"), poll(1, (3, 4), (0, A))],
        ["G1a", "linearizability"],
        (0, [0, 1]),
        [send(0, (1, 2), A, kind="info"), poll(1, (3, 4), (0, A))],
    ),
    "phantom": (
        ALL,
        [send(0, (1, 2), A, 0), poll(1, (3, 4), (0, A), (1, B))],
        ["phantom", "linearizability"],
        (1, [1]),
        [send(0, (1, 2), A, 0), send(2, 3, B), poll(1, (4, 5), (0, A), (1, B))],
    ),
    "fork": (
        ALL,
        [
            send(0, (1, 2), A, 0, node="n1"),
            send(3, 1, B),
            poll(1, (3, 4), (0, A), node="n1"),
            poll(2, (5, 6), (0, B), node="n2"),
        ],
        ["fork", "inconsistent-offsets", "linearizability"],
        (0, [0, 2]),
        [
            send(0, (1, 2), A, 0, node="n1"),
            send(3, 1, B),
            poll(1, (3, 4), (0, A), node="n1"),
            poll(2, (5, 6), (0, A), (1, B), node="n2"),
        ],
    ),
    "linearizability": (
        LINEAR | ALL,
        [send(0, (1, 2), A, 0), length(1, "end", (3, 4), 0)],
        ["linearizability"],
        (0, [1, 0]),
        [send(0, (1, 2), A, 0), length(1, "end", (2, 4), 0)],
    ),
    "monotonic-reads": (
        ALL,
        [send(0, 1, A), send(1, 1, B), length(2, "end", (3, 4), 2), length(2, "end", (5, 6), 1)],
        ["monotonic-reads"],
        (1, [2, 2]),
        [send(0, 1, A), send(1, 1, B), length(2, "end", (3, 4), 2), length(3, "end", (5, 6), 1)],
    ),
    "read-your-writes": (
        ALL,
        [*three(), length(0, "end", (7, 8), 2)],
        ["read-your-writes"],
        (2, [0, 0]),
        [*three(), length(1, "end", (7, 8), 2), length(0, "end", (7, 8), 3)],
    ),
    "unseen": (
        {},
        [*three(), poll(1, (7, 8), (0, A), (1, B))],
        ["unseen"],
        (2, [0]),
        [*three(), poll(1, (7, 8), (0, A), (1, B)), poll(1, (9, 10), (2, C))],
    ),
    "poll-skip": (
        ALL,
        [*three(), poll(1, (7, 8), (0, A)), poll(1, (9, 10), (2, C)), poll(2, (11, 12), (1, B))],
        ["poll-skip"],
        (2, [1, 1]),
        [*three(), poll(1, (7, 8), (0, A)), poll(1, (9, 10), (1, B)), poll(2, (11, 12), (2, C))],
    ),
    "nonmonotonic-poll": (
        ALL,
        [*three(), poll(1, (7, 8), (0, A), (1, B)), poll(1, (9, 10), (1, B), (2, C))],
        ["nonmonotonic-poll"],
        (1, [1, 1]),
        [
            *three(),
            poll(1, (7, 8), (0, A), (1, B)),
            op(1, "crash", (8, 8), None, key=None),
            poll(1, (9, 10), (1, B), (2, C)),
        ],
    ),
    "int-poll-skip": (
        ALL,
        [*three(), poll(1, (7, 8), (0, A), (2, C)), poll(2, (7, 8), (1, B))],
        ["int-poll-skip"],
        (2, [1]),
        [*three(), poll(1, (7, 8), (0, A), (2, C), rebalance=[KEY]), poll(2, (7, 8), (1, B))],
    ),
    "int-nonmonotonic-poll": (
        ALL,
        [*three(), poll(1, (7, 8), (1, B), (0, A), (1, B), (2, C))],
        ["int-nonmonotonic-poll"],
        (0, [1]),
        [*three(), poll(1, (7, 8), (0, A), (1, B), (2, C))],
    ),
    "nonmonotonic-send": (
        ALL,
        [send(0, (1, 2), A, 1), send(0, (2, 4), B, 0)],
        ["nonmonotonic-send", "G0-process"],
        (0, [0, 0]),
        [send(0, (1, 2), A, 0), send(0, (2, 4), B, 1)],
    ),
    "int-send-skip": (
        ALL,
        [
            txn(
                0,
                (1, 9),
                [["send", KEY, A], ["send", KEY, C]],
                [["send", KEY, [0, A]], ["send", KEY, [2, C]]],
            ),
            send(1, (2, 3), B, 1),
        ],
        ["int-send-skip", "G0"],
        (2, [0]),
        [
            txn(
                0,
                (1, 9),
                [["send", KEY, A], ["send", KEY, C]],
                [["send", KEY, [0, A]], ["send", KEY, [1, C]]],
            ),
            send(1, (2, 3), B, 2),
        ],
    ),
    "int-nonmonotonic-send": (
        ALL,
        [
            txn(
                0,
                (1, 9),
                [["send", KEY, A], ["send", KEY, B]],
                [["send", KEY, [1, A]], ["send", KEY, [0, B]]],
            )
        ],
        ["int-nonmonotonic-send"],
        (0, [0]),
        [
            txn(
                0,
                (1, 9),
                [["send", KEY, A], ["send", KEY, B]],
                [["send", KEY, [0, A]], ["send", KEY, [1, B]]],
            )
        ],
    ),
    "precommitted-read": (
        ALL,
        [
            txn(
                0,
                (1, 9),
                [["send", KEY, A], ["poll"]],
                [["send", KEY, [0, A]], ["poll", {KEY: [[0, A]]}]],
            )
        ],
        ["precommitted-read"],
        (0, [0]),
        [
            txn(
                0,
                (1, 9),
                [["send", KEY, A], ["poll"]],
                [["send", KEY, [0, A]], ["poll", {}]],
            )
        ],
    ),
    "G0": (
        ALL,
        [
            txn(
                0,
                (1, 9),
                [["send", "x/0", "#1"], ["send", "y/0", "#2"]],
                [["send", "x/0", [0, "#1"]], ["send", "y/0", [1, "#2"]]],
            ),
            txn(
                1,
                (1, 9),
                [["send", "x/0", "#3"], ["send", "y/0", "#4"]],
                [["send", "x/0", [1, "#3"]], ["send", "y/0", [0, "#4"]]],
            ),
        ],
        ["G0"],
        (None, [0, 1]),
        [
            txn(
                0,
                (1, 9),
                [["send", "x/0", "#1"], ["send", "y/0", "#2"]],
                [["send", "x/0", [0, "#1"]], ["send", "y/0", [0, "#2"]]],
            ),
            txn(
                1,
                (1, 9),
                [["send", "x/0", "#3"], ["send", "y/0", "#4"]],
                [["send", "x/0", [1, "#3"]], ["send", "y/0", [1, "#4"]]],
            ),
        ],
    ),
    "G0-process": (
        ALL,
        [send(0, (1, 5), A, 1), send(0, (5, 9), B, 0, kind="ok")],
        ["nonmonotonic-send", "G0-process"],
        (None, [0, 0]),
        [send(0, (1, 5), A, 0), send(0, (5, 9), B, 1)],
    ),
    "G0-realtime": (
        ALL,
        [send(0, (1, 2), A, 1), send(1, (3, 4), B, 0)],
        ["linearizability", "G0-realtime"],
        (None, [1, 0]),
        [send(0, (1, 3), A, 1), send(1, (3, 4), B, 0)],
    ),
    "G1c": (
        ALL,
        [
            txn(
                0,
                (1, 9),
                [["send", "x/0", "#1"], ["poll"]],
                [["send", "x/0", [0, "#1"]], ["poll", {"y/0": [[0, "#2"]]}]],
            ),
            txn(
                1,
                (1, 9),
                [["send", "y/0", "#2"], ["poll"]],
                [["send", "y/0", [0, "#2"]], ["poll", {"x/0": [[0, "#1"]]}]],
            ),
        ],
        ["G1c"],
        (None, [0, 1]),
        [
            txn(
                0,
                (1, 9),
                [["send", "x/0", "#1"], ["poll"]],
                [["send", "x/0", [0, "#1"]], ["poll", {"y/0": [[0, "#2"]]}]],
            ),
            txn(
                1,
                (1, 9),
                [["send", "y/0", "#2"], ["poll"]],
                [["send", "y/0", [0, "#2"]], ["poll", {}]],
            ),
        ],
    ),
    "G1c-process": (
        ALL,
        [poll(0, (1, 5), (0, A)), send(0, (5, 9), A, 0)],
        ["G1c-process"],
        (None, [0, 0]),
        [poll(1, (1, 5), (0, A)), send(0, (5, 9), A, 0)],
    ),
    "G1c-realtime": (
        ALL,
        [poll(0, (1, 4), (0, A)), send(1, (5, 9), A, 0)],
        ["linearizability", "G1c-realtime"],
        (None, [1, 0]),
        [poll(0, (1, 5), (0, A)), send(1, (5, 9), A, 0)],
    ),
    "ack-regression": (
        ALL,
        [
            send(0, (1, 9), A, 1, producer=[7, 0, 0]),
            send(1, (2, 9), B, 0, producer=[7, 0, 1]),
        ],
        ["ack-regression"],
        (0, [0, 1]),
        [
            send(0, (1, 9), A, 0, producer=[7, 0, (1 << 31) - 1]),
            send(1, (2, 9), B, 1, producer=[7, 0, 0]),
        ],
    ),
    "duplicate-sequence": (
        ALL,
        [send(0, (1, 2), A, 0, producer=[7, 0, 0]), poll(1, (3, 4), (0, A), (1, A))],
        ["duplicate", "linearizability", "duplicate-sequence"],
        (1, [0]),
        [send(0, (1, 2), A, 0, producer=[7, 0, 0]), poll(1, (3, 4), (0, A))],
    ),
    "hw-regression": (
        ALL,
        [
            *three(),
            poll(1, (7, 8), (0, A), (1, B), (2, C), node="n1", hw={KEY: 3}),
            poll(2, (9, 10), (0, A), (1, B), node="n1", hw={KEY: 2}),
        ],
        ["hw-regression"],
        (2, [1, 2]),
        [
            *three(),
            poll(1, (7, 9), (0, A), (1, B), (2, C), node="n1", hw={KEY: 3}),
            poll(2, (9, 10), (0, A), (1, B), node="n1", hw={KEY: 2}),
            poll(3, (11, 12), (0, A), node="n2", hw={KEY: 1}),
        ],
    ),
    "read-above-hw": (
        ALL,
        [*three(), poll(1, (7, 8), (0, A), (1, B), (2, C), hw={KEY: 2})],
        ["read-above-hw"],
        (2, [1]),
        [*three(), poll(1, (7, 8), (0, A), (1, B), (2, C), hw={KEY: 3})],
    ),
    "truncated-below-hw": (
        LINEAR | ALL,
        [*three(), poll(1, (7, 8), (0, A), hw={KEY: 3}), length(2, "end", (9, 10), 2)],
        ["linearizability", "truncated-below-hw"],
        (2, [1, 2]),
        [*three(), poll(1, (7, 8), (0, A), hw={KEY: 3}), length(2, "end", (9, 10), 3)],
    ),
    "offset-commit-regression": (
        ALL,
        [
            op(0, "offset_commit", (1, 2), ["g", {KEY: 5}], {KEY: 5}, key=None),
            op(1, "offset_fetch", (3, 4), ["g", [KEY]], {KEY: 3}, key=None),
        ],
        ["offset-commit-regression"],
        (3, [0, 1]),
        [
            op(0, "offset_commit", (1, 2), ["g", {KEY: 5}], {KEY: 5}, key=None),
            op(2, "offset_commit", 2, ["g", {KEY: 3}], key=None),
            op(1, "offset_fetch", (3, 4), ["g", [KEY]], {KEY: 3}, key=None),
        ],
    ),
    "log-start-overrun": (
        ALL | {"retention": "none"},
        [*three(), poll(1, (7, 8), (0, A)), length(2, "start", (9, 10), 2)],
        ["log-start-overrun"],
        (1, [0, 2]),
        [*three(), poll(1, (7, 8), (0, A), (1, B)), length(2, "start", (9, 10), 2)],
    ),
    "two-leaders-one-term": (
        ALL,
        [send(0, (1, 2), A, 0, node="n1", term=3), send(1, (3, 4), B, 1, node="n2", term=3)],
        ["two-leaders-one-term"],
        (None, [0, 1]),
        [send(0, (1, 2), A, 0, node="n1", term=3), send(1, (3, 4), B, 1, node="n2", term=4)],
    ),
}
CASES |= GROUP_CASES


@pytest.mark.parametrize("name", CASES)
def test_the_invalid_history_is_caught_with_its_witness(name):
    options, operations, expected, where, _ = CASES[name]
    verdict = judged(*operations, allowed=(), **options)
    assert invalid(verdict) == expected
    assert verdict.exit_code == 1
    assert witness(verdict, name) == where


@pytest.mark.parametrize("name", CASES)
def test_its_neighbour_is_valid_and_was_checked(name):
    options, _, _, _, operations = CASES[name]
    verdict = judged(*operations, allowed=(), **options)
    assert invalid(verdict) == []
    assert verdict.classes[name].status == "valid"
    assert verdict.exit_code == 0


@pytest.mark.parametrize("name", ["inconsistent-offsets", "duplicate", "phantom"])
def test_linearizability_does_not_tell_a_conflict_again(name):
    """Regression: a report said the same sentence twice."""
    options, operations, *_ = CASES[name]
    verdict = judged(*operations, allowed=(), **options)
    told = verdict.classes["linearizability"].witness.text
    assert verdict.classes[name].witness.text not in told
    assert f"{name} shows why" in told


def test_every_class_of_the_log_has_its_pair():
    assert [entry.name for entry in CLASSES if entry.group != "model"] == sorted(
        CASES, key=[entry.name for entry in CLASSES].index
    )


def test_a_model_has_its_pair_too():
    header = Header(source="import", model="register")
    write = op(0, "write", (1, 2), 5, 5, key="x")
    stale = op(1, "read", (3, 4), None, None, key="x")
    fresh = op(1, "read", (3, 4), None, 5, key="x")
    assert invalid(judged(write, stale, header=header)) == ["model"]
    assert witness(judged(write, stale, header=header), "model") == (None, [0, 1])
    assert judged(write, fresh, header=header).exit_code == 0
