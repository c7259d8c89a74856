"""Nothing that is written in a history can do more than be refused.

Lines of good histories with any field replaced by any JSON: a verdict, or one of the two errors
that the command line turns into exit code 64. Never another exception or a report that breaks.
"""

import copy
import json
import random

from hypothesis import given
from hypothesis import strategies as st

from raftlog.base.errors import FutureFormat
from raftlog.verify import BadHistory, judge
from raftlog.verify.report.page import RunFolder, render
from tests.verify.sample_runs import simulated
from tests.verify.test_classes import CASES
from tests.verify.writing import KEY, op, written

anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 5)
    | st.sampled_from([2**63, -(2**70), 10**30, 1.5, "n1", KEY, "k#1", "", "invoke", "nemesis"])
    | st.sampled_from([[7, 0, 0], [0, "k#1"], {KEY: 3}, {KEY: [[0, "k#1"]]}, ["g", {KEY: 1}]])
    | st.sampled_from([["g", "m", 1], ["g", "m", None], ["assigned", [KEY]], ["lost", [KEY]]]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.just(KEY), inner, max_size=1),
    max_leaves=4,
)
FIELDS = [
    *("index", "time_ns", "process", "type", "f", "key", "value", "error", "node", "term", "hw"),
    *("log_start", "producer", "rebalance", "member"),
]
OPTIONS = [
    *("read_consistency", "consumer", "pipelined", "dense", "compaction", "first_end", "retention"),
    *("final_read", "transactions", "offset_reset"),
]


def histories():
    for options, bad, _, _, good in CASES.values():
        yield written(*bad, **options)
        yield written(*good, **options)
    group = [
        op(0, "offset_commit", (1, 2), ["g", {KEY: 5}], {KEY: 5}, key=None),
        op(1, "offset_fetch", (3, 4), ["g", [KEY]], {KEY: 5}, key=None),
    ]
    yield written(*group, op(2, "subscribe", (1, 2), [KEY], [KEY], key=None))


GOOD = [[json.loads(line) for line in text.splitlines()] for text in histories()]


def outcome(lines, **more):
    try:
        judgement = judge([json.dumps(line) + "\n" for line in lines], **more)
    except (BadHistory, FutureFormat):
        return None
    page = render(judgement, RunFolder(name="x"))
    assert "</html>" in page
    json.dumps(judgement.verdict.document())
    return judgement


@given(st.data())
def test_any_field_of_any_line(data):
    lines = copy.deepcopy(data.draw(st.sampled_from(GOOD)))
    for _ in range(data.draw(st.integers(1, 3))):
        line = data.draw(st.sampled_from(lines[1:] or lines))
        line[data.draw(st.sampled_from(FIELDS))] = data.draw(anything)
    outcome(lines)


@given(st.data())
def test_any_option_of_the_header(data):
    lines = copy.deepcopy(data.draw(st.sampled_from(GOOD)))
    for _ in range(data.draw(st.integers(1, 3))):
        lines[0]["options"][data.draw(st.sampled_from(OPTIONS))] = data.draw(anything)
    outcome(lines)


@given(st.data())
def test_any_field_of_the_header(data):
    lines = copy.deepcopy(data.draw(st.sampled_from(GOOD)))
    lines[0][data.draw(st.sampled_from(sorted(lines[0])))] = data.draw(anything)
    outcome(lines)


@given(st.data())
def test_lines_in_any_order_twice_or_missing(data):
    lines = copy.deepcopy(data.draw(st.sampled_from(GOOD)))
    body = data.draw(st.lists(st.sampled_from(lines[1:]), max_size=12))
    for number, line in enumerate(body):
        body[number] = {**line, "index": number}
    outcome([lines[0], *body])


def test_any_run_folder():
    text, folder = simulated(lose=True)
    judgement = judge(text.splitlines(keepends=True))
    strange = [None, 5, "x", [], {}, [[]], {"a": None}, {"a": [1]}, {"a": {"b": 3}}, [1.5, None]]
    for seed in range(60):
        rng = random.Random(seed)
        run = {
            **folder.run,
            **{name: rng.choice(strange) for name in folder.run if rng.random() < 0.4},
        }
        invariants = {"x": rng.choice(strange)}
        page = render(judgement, RunFolder(run=run, invariants=invariants, trace="5 n1 role role="))
        assert "</html>" in page
