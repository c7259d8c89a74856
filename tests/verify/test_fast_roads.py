"""Two roads lead through a history, and nobody can tell which was taken.

Usual lines are decoded in blocks and paired as bytes; everything else is read line by line. The
slow road is the specification: it is forced by refusing every block. What both make of a history,
good or broken anywhere, must be the same intervals or the same error on the same line.
"""

import io
import json
import random
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftlog.base.errors import RaftlogError
from raftlog.verify import HistoryReader, history_reader, intervals, linearizability
from raftlog.verify.facts import Facts
from raftlog.verify.pairing import Interval
from raftlog.verify.pairs import KnownLog, Pairs
from tests.verify.small_logs import SHAPES, generate

HEADER = '{"format":1,"source":"sim","model":"log"}\n'
KEYS = ["t/0", "t/1", "\N{LATIN SMALL LETTER E WITH ACUTE}/0", 'a"b', "a\\u0041", "a\\b"]
PIECES = [
    *("", "\n", "\n\n", "{", "}", "}\n{", " ", ",", '"', "\\", "1", "-", "\r", "\u2028", "e9"),
    *("\udcff", "null", '{"index":1}', "[[", "]]", "\\u0041", "\\ud800"),
]
STYLES = [(",", ":"), (", ", ": ")]


@contextmanager
def only_the_slow_road():
    kept = history_reader._decoded
    history_reader._decoded = lambda *_: None
    try:
        yield
    finally:
        history_reader._decoded = kept


def outcome(source):
    try:
        reader = HistoryReader(source)
        found, nemesis = intervals(reader)
    except RaftlogError as error:
        return str(error)
    told = []
    for op in found:
        reads = {key: [list(pair) for pair in pairs] for key, pairs in op.reads().items()}
        value = None if op.f in ("poll", "txn") else op.value
        told.append(
            [op.index, op.process, op.f, op.key, op.type, op.start_ns, op.end_ns, op.asked, value]
        )
        told.append([op.node, op.evidence, reads])
    # As text, for 1 and True and 1.0 are equal otherwise.
    return repr(told), [op.document() for op in nemesis], reader.torn


def both(text):
    """The outcome on every road and from every kind of source; they must be one."""
    raw = text.encode("utf-8", "surrogateescape")
    with only_the_slow_road():
        slow = outcome(io.BytesIO(raw))
    assert outcome(io.BytesIO(raw)) == slow
    assert outcome(io.BytesIO(raw).readlines()) == slow
    try:
        plain = raw.decode()
    except UnicodeDecodeError:
        return slow
    assert outcome(io.StringIO(plain, newline="\n")) == slow
    return slow


def a_history(seed, size=40):
    """A log for each of a few keys, clients that send and poll, now and then something unusual."""
    rng = random.Random(seed)
    style = rng.choice(STYLES)
    ascii_only = rng.random() < 0.5
    strange = rng.choice([0, 0, 0.05, 0.3])
    logs = {key: [] for key in rng.sample(KEYS, 3)}
    first = rng.choice([0, 0, 7])
    lines, open_ops, process = [], {}, 0
    for number in range(size):
        line = {"index": len(lines), "time_ns": number, "process": None, "type": "invoke"}
        if rng.random() < strange / 2:
            line |= {"process": "nemesis", "type": "info", "f": "kill", "key": None, "value": "n1"}
        elif open_ops and (rng.random() < 0.5 or len(open_ops) > 4):
            who = rng.choice(sorted(open_ops))
            f, key, value = open_ops.pop(who)
            line |= {"process": who, "type": "ok", "f": f, "key": key}
            line["value"] = answer(rng, logs, first, f, key, value, strange)
            if rng.random() < strange:
                line |= rng.choice([{"hw": 3}, {"node": "n1"}, {"lab": 1}, {"error": "x"}])
            if rng.random() < strange:
                line |= {"type": "info", "value": value}
        else:
            process += 1
            key = rng.choice(sorted(logs))
            f = rng.choice(["send", "send", "poll", "end"])
            value = None
            if f == "send":
                value = rng.choice(["k#%d", "#%d", "\N{SNOWMAN}#%d", 'q"\\#%d']) % number
                if rng.random() < strange:
                    value = [f"#b{number}.{at}" for at in range(2)]
            open_ops[process] = f, None if f == "poll" else key, value
            line |= {"process": process, "f": f, "key": open_ops[process][1], "value": value}
        lines.append(json.dumps(line, separators=style, ensure_ascii=ascii_only) + "\n")
    return HEADER + "".join(lines)


def answer(rng, logs, first, f, key, value, strange):
    if f == "send":
        log = logs[key]
        base = first + len(log)
        log.extend(value if isinstance(value, list) else [value])
        if rng.random() < strange:
            return rng.choice([[None, value], [base, "other"], [-1, value], [base], [True, value]])
        return [base, value]
    if f == "end":
        return first + len(logs[key])
    read = {}
    for name in rng.sample(sorted(logs), rng.choice([1, 1, 1, 2])):
        log = logs[name]
        begin = rng.randint(0, len(log))
        pairs = [[first + at, log[at]] for at in range(begin, rng.randint(begin, len(log)))]
        if pairs and rng.random() < strange:
            pairs[-1] = rng.choice([[first, "phantom"], [1.0, "x"], [True, "x"], [3], [0, 7]])
        read[name] = pairs
    return read


@pytest.mark.parametrize("seed", range(150))
def test_every_history_on_both_roads(seed):
    both(a_history(seed))


def test_the_sample_has_the_usual_and_the_broken():
    found = [both(a_history(seed)) for seed in range(60)]
    assert any(isinstance(one, str) for one in found)
    assert sum(not isinstance(one, str) for one in found) > 20


@given(st.integers(0, 40), st.data())
def test_broken_anywhere(seed, data):
    text = a_history(seed, size=25)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(len(HEADER), len(text)))
        piece = data.draw(st.sampled_from(PIECES))
        keep = data.draw(st.sampled_from([0, 0, 1, 5]))
        text = text[:at] + piece + text[at + keep :]
    both(text)


def test_line_breaks_that_make_up_for_each_other():
    """Two objects on one line and an empty line: as many lines as objects, and still refused."""
    line = '{"index":%d,"time_ns":1,"process":%d,"type":"invoke","f":"end","key":"t","value":null}'
    one, two, three = (line % (n, n) for n in range(3))
    for broken in (f"{one}{two}\n\n{three}\n", f"{one}\n\n{two}{three}\n"):
        assert "not a JSON object" in both(HEADER + broken)
    assert "not a JSON object" in both(HEADER + one.replace(",", ",\n", 1) + two + "\n")


def test_bytes_that_are_no_text_are_named_by_their_line():
    line = '{"index":0,"time_ns":1,"process":0,"type":"invoke","f":"\udcff","key":"t","value":null}'
    assert both(HEADER + line + "\n") == "not UTF-8 text (line 2)"


def test_an_unparsed_value_that_is_no_json():
    line = '{"index":0,"time_ns":1,"process":0,"type":"invoke","f":"x","key":"t","value":"\\q"}'
    assert "line 2" in both(HEADER + line + "\n")


def test_a_usual_poll_shares_its_values():
    log = [f"#{at}" for at in range(30)]
    lines = []
    for at, value in enumerate(log):
        for kind, told in (("invoke", value), ("ok", [at, value])):
            lines.append({"process": 0, "type": kind, "f": "send", "key": "t/0", "value": told})
    pairs = [[at, log[at]] for at in range(3, 25)]
    for kind, told in (("invoke", None), ("ok", {"t/0": pairs})):
        lines.append({"process": 1, "type": kind, "f": "poll", "key": None, "value": told})
    text = HEADER
    for index, line in enumerate(lines):
        text += json.dumps({"index": index, "time_ns": index, **line}) + "\n"
    *sends, poll = intervals(HistoryReader(io.BytesIO(text.encode())))[0]
    assert [list(pair) for pair in poll.reads()["t/0"]] == pairs
    assert all(sends[at].asked is value for at, value in poll.reads()["t/0"])


class TestKnownLog:
    def test_what_comes_early_waits(self):
        log = KnownLog("t/0")
        log.put(4, "a", b'[4,"a"]')
        log.put(6, "c", b'[6,"c"]')
        assert log.told(4, b'[4,"a"]') == ("a",)
        assert log.told(6, b'[6,"c"]') is None
        log.put(5, "b", b'[5,"b"]')
        assert log.told(4, b'[4,"a"],[5,"b"],[6,"c"]') == ("a", "b", "c")
        assert log.told(5, b'[5,"b"]') == ("b",)

    def test_other_words_are_not_known(self):
        log = KnownLog("t/0")
        log.put(0, "a", b'[0, "a"]')
        log.put(1, "b", b'[1, "b"]')
        assert log.told(0, b'[0, "a"], [1, "b"]') == ("a", "b")
        for other in (b'[0,"a"]', b'[0, "a"], [1, "c"]', b'[0, "a"], [1, "b"], [2, "c"]'):
            assert log.told(0, other) is None

    def test_an_offset_that_was_taken_keeps_its_value(self):
        log = KnownLog("t/0")
        log.put(0, "a", b'[0,"a"]')
        log.put(0, "b", b'[0,"b"]')
        assert log.told(0, b'[0,"b"]') is None

    def test_a_flood_of_far_offsets_takes_no_memory(self):
        log = KnownLog("t/0")
        for at in range(0, 10**6, 1000):
            log.put(at, "x", b'[%d,"x"]' % at)
        assert len(log._waiting) <= 256

    def test_a_poll_fills_in_what_nobody_acknowledged(self):
        log = KnownLog("t/0")
        log.put(0, "a", b'[0,"a"]')
        Pairs.of([[0, "a"], [1, 'q"']], log)
        assert log.told(0, b'[0,"a"],[1,"q\\""]') == ("a", 'q"')


@pytest.mark.parametrize("name", SHAPES)
def test_columns_agree_with_the_scan(name):
    """Where whole columns say that a log is right, the scan finds nothing; and they often do."""
    short = 0
    for seed in range(400):
        options, operations = generate(random.Random(f"columns-{name}-{seed}"), SHAPES[name])
        known = Facts(dict(options.get("first_end", {})))
        known.add_all(operations)
        facts = known.keys.get("t/0")
        if facts is None:
            continue
        bounds = linearizability.bounds_of(facts, options["read_consistency"])
        if linearizability.is_plainly_right(facts, bounds):
            short += 1
            rows = linearizability.rows_of(facts, bounds)
            assert linearizability.scan(rows)[0] == [], (name, seed)
            assert [row[0] for row in rows[: len(facts.at)]] == list(range(len(facts.at)))
    assert short > 0 or name in ("preloaded", "committed-sparse"), "the short cut is never taken"


@pytest.mark.parametrize(
    ("sends", "reads"),
    [
        ([("fail", "#a", None)], [(0, "#a")]),
        ([("ok", ["#a", "#b"], 0)], []),
        ([("ok", "#a", 0), ("ok", "#b", 0)], []),
        ([("ok", "#a", 0)], [(1, "#a")]),
        ([("ok", "#a", 1)], []),
        ([("ok", "#a", 0)], [(1, "#phantom")]),
        ([("info", ["#a", "#b"], None)], [(0, "#b")]),
    ],
)
def test_what_is_not_plain_has_no_columns(sends, reads):
    """A failed send that was read, a batch, two records in one place, one in two, a hole, a record
    of nobody's, half a batch that would begin below 0: all go to the scan."""
    found = Facts()
    ops = [
        Interval(at, at, "send", "t/0", kind, at, at + 1, asked, base)
        for at, (kind, asked, base) in enumerate(sends)
    ]
    pairs = Pairs.of([list(pair) for pair in reads])
    ops.append(Interval(9, 9, "poll", None, "ok", 9, 10, None, {"t/0": pairs}))
    found.add_all(ops)
    assert found.keys["t/0"].plain_columns() is None
