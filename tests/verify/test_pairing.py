"""Intervals from lines: what stays open, what is refused, and the shape of every value."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftlog.verify import BadHistory, Op, intervals
from raftlog.verify.histories.interval import OPEN, shortened
from raftlog.verify.histories.pairs import Pairs
from tests.verify.writing import KEY


def pair(f, asked, value, *, kind="ok", key=KEY):
    ops = [Op(0, 1, 0, "invoke", f, key, asked)]
    if kind is not None:
        ops.append(Op(1, 2, 0, kind, f, key, value))
    found, _ = intervals(ops)
    return found[0]


def test_what_nobody_completed_stays_open():
    op = pair("send", "#1", None, kind=None)
    assert (op.type, op.end_ns, op.value) == ("info", OPEN, None)


def test_info_stays_open_too():
    op = pair("send", "#1", "#1", kind="info")
    assert (op.type, op.end_ns, op.value) == ("info", OPEN, None)


def test_a_send_keeps_its_base_offset():
    assert pair("send", "#1", [7, "#1"]).value == 7
    assert list(pair("send", ["#1", "#2"], [7, ["#1", "#2"]]).sends()) == [(KEY, ("#1", "#2"), 7)]
    assert pair("send", "#1", [None, "#1"]).value is None


def test_a_poll_is_read_by_key():
    op = pair(
        "poll", None, {"a/0": [[3, "#1"], [4, "#2"]], "a/1": [[9, "#3"], [7, "#4"]]}, key=None
    )
    reads = op.reads()
    assert reads["a/0"].offsets == range(3, 5)
    assert list(reads["a/1"]) == [(9, "#3"), (7, "#4")]
    assert (reads["a/0"].end, reads["a/1"].end) == (5, 10)


def test_a_poll_that_repeats_its_question_read_nothing():
    assert pair("poll", {KEY: 4}, {KEY: 4}, kind="info", key=None).reads() == {}


def test_a_txn_has_its_steps():
    op = pair(
        "txn",
        [["send", "a/0", "#1"], ["poll"], ["send", "a/1", "#2"]],
        [["send", "a/0", [4, "#1"]], ["poll", {"a/0": [[3, "#0"]]}], ["send", "a/1", "#2"]],
        key=None,
    )
    assert list(op.sends()) == [("a/0", ("#1",), 4), ("a/1", ("#2",), None)]
    assert list(op.reads()["a/0"]) == [(3, "#0")]


@pytest.mark.parametrize(
    ("f", "asked", "value"),
    [
        ("send", "#1", None),
        ("send", "#1", [0]),
        ("send", "#1", [0, "#2"]),
        ("send", "#1", [-1, "#1"]),
        ("send", "#1", ["0", "#1"]),
        ("send", [], [0, []]),
        ("send", {"a": 1}, [0, {"a": 1}]),
        ("send", 1.5, [0, 1.5]),
        ("send", 1, [0, True]),
        ("send", 1, [0, 1.0]),
        ("send", [0, 2], [0, [False, 2]]),
        ("send", ["#1", "#1"], [0, ["#1", "#1"]]),
        ("poll", None, []),
        ("poll", None, {KEY: [[0]]}),
        ("poll", None, {KEY: [[0, "#1", 2]]}),
        ("poll", None, {KEY: [[-1, "#1"]]}),
        ("poll", None, {KEY: [["0", "#1"]]}),
        ("poll", None, {KEY: [[0, None]]}),
        ("poll", None, {KEY: [[True, "#1"]]}),
        ("poll", None, {KEY: 3}),
        ("end", None, None),
        ("end", None, -1),
        ("start", None, "3"),
        ("empty", None, 1.0),
        ("assign", ["a/0"], [0]),
        ("assign", None, None),
        ("assign", "a/0", "a/0"),
        ("txn", [["send", 7, "#1"]], [["send", 7, [0, "#1"]]]),
        ("txn", [["send", [1], "#1"]], [["send", [1], [0, "#1"]]]),
        ("txn", [["cas", 1]], None),
        ("txn", [["poll"]], []),
        ("txn", [["poll"]], [["send", KEY, "#1"]]),
        ("offset_commit", ["g"], {}),
        ("offset_commit", [1, {KEY: 3}], {KEY: 3}),
        ("offset_commit", ["g", {KEY: "3"}], {KEY: 3}),
        ("offset_fetch", ["g", [KEY]], None),
        ("offset_fetch", ["g", [KEY]], {KEY: 1.5}),
    ],
)
def test_values_of_the_wrong_shape(f, asked, value):
    with pytest.raises(BadHistory):
        pair(f, asked, value)


@pytest.mark.parametrize("f", ["send", "end", "start", "empty"])
def test_these_have_a_key(f):
    with pytest.raises(BadHistory):
        pair(f, "#1", [0, "#1"] if f == "send" else 0, key=None)


CALL = Op(0, 5, 0, "invoke", "end", KEY, None)
DONE = Op(1, 6, 0, "ok", "end", KEY, 0)


@pytest.mark.parametrize(
    ("ops", "why"),
    [
        ([DONE], "without an invocation"),
        ([CALL, Op(1, 6, 0, "invoke", "end", KEY, None)], "two operations open"),
        (
            [CALL, Op(1, 6, 0, "info", "end", KEY, None), Op(2, 7, 0, "invoke", "end", KEY, None)],
            "comes back",
        ),
        ([CALL, Op(1, 4, 0, "ok", "end", KEY, 0)], "before it begins"),
        ([CALL, Op(1, 6, 0, "ok", "end", "t/1", 0)], "differ"),
        ([CALL, Op(1, 6, 0, "ok", "start", KEY, 0)], "differ"),
        ([CALL, Op(0, 6, 0, "ok", "end", KEY, 0)], "indexes only rise"),
        ([CALL, Op(1, OPEN, 0, "ok", "end", KEY, 0)], "out of range"),
        ([Op(0, OPEN, 0, "invoke", "send", KEY, "#1")], "out of range"),
        ([Op(0, -OPEN, 0, "invoke", "send", KEY, "#1")], "out of range"),
        ([Op(0, OPEN, "nemesis", "info", "kill", None, None)], "out of range"),
    ],
)
def test_lines_that_contradict_each_other(ops, why):
    with pytest.raises(BadHistory, match=why):
        intervals(ops)


def test_nemesis_lines_are_kept_aside():
    found, nemesis = intervals([CALL, Op(1, 6, "nemesis", "info", "kill", None, "n1"), _later()])
    assert len(found) == 1
    assert [op.f for op in nemesis] == ["kill"]


def _later():
    return Op(2, 6, 0, "ok", "end", KEY, 0)


def test_equal_values_share_memory():
    ops = [
        Op(0, 1, 0, "invoke", "send", KEY, "".join(["k", "#1"])),
        Op(1, 2, 0, "ok", "send", KEY, [0, "".join(["k", "#1"])]),
        Op(2, 3, 0, "invoke", "poll", None, None),
        Op(3, 4, 0, "ok", "poll", None, {KEY: [[0, "".join(["k", "#1"])]]}),
    ]
    (send, poll), _ = intervals(ops)
    assert poll.reads()[KEY].values[0] is send.asked


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9)).map(list), max_size=6))
def test_pairs_are_what_they_were_made_of(pairs):
    found = Pairs.of(pairs)
    assert [list(one) for one in found] == pairs
    assert len(found) == len(pairs)
    assert found.end == max((offset + 1 for offset, _ in pairs), default=0)
    consecutive = (
        [o for o, _ in pairs] == list(range(pairs[0][0], pairs[0][0] + len(pairs)))
        if (pairs)
        else False
    )
    assert (type(found.places) is int) == consecutive


def test_long_values_are_cut_for_people():
    assert shortened(list(range(20)), 3) == [0, 1, 2, "... 17 more"]
    assert shortened("x" * 300).endswith("...")
    assert shortened({str(n): n for n in range(20)}, 2) == {"0": 0, "1": 1, "...": "18 more"}
    assert shortened(Pairs.of([[n, n] for n in range(5)]), 2) == [[0, 0], [1, 1], "... 3 more"]
