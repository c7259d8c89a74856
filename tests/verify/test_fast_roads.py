"""Two roads lead through a history, and no result tells which was taken.

Usual lines are decoded in blocks and paired as bytes; everything else is read line by line. The
slow road is the specification: the tests force it by refusing every block. Both must make the same
intervals of a history, good or broken anywhere, or the same error on the same line.
"""

import io
import json
import random
from contextlib import contextmanager

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from raftlog_sim.hunting.small_logs import SHAPES, generate

from raftlog.base.errors import RaftlogError
from raftlog.verify import HistoryReader, intervals
from raftlog.verify.histories import history_reader
from raftlog.verify.histories.history import BadHistory
from raftlog.verify.histories.interval import Interval
from raftlog.verify.histories.pairs import KnownLog, Pairs
from raftlog.verify.judging import linearizability
from raftlog.verify.judging.facts import Facts, KeyFacts, Sent

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


@pytest.mark.parametrize("instant", [-(2**70), -(2**62), 2**62 - 1, 2**62, 2**70])
@pytest.mark.parametrize("ends", [True, False])
@pytest.mark.parametrize("f", ["send", "poll"])
def test_an_instant_that_no_clock_shows(instant, ends, f):
    """A call later than every instant, or earlier, bent what has no end: such a log was invalid."""
    known = [
        {"index": 0, "time_ns": 1, "process": 0, "type": "invoke", "value": "#1"},
        {"index": 1, "time_ns": 2, "process": 0, "type": "ok", "value": [0, "#1"]},
    ]
    strange: list[dict] = [
        {"index": 2, "time_ns": instant, "process": 1, "type": "invoke", "value": None},
        {"index": 3, "time_ns": instant + 1, "process": 1, "type": "ok", "value": None},
    ]
    strange[0]["value"] = "#2" if f == "send" else None
    strange[1]["value"] = [1, "#2"] if f == "send" else {"t/0": [[0, "#1"]]}
    lines = [{**line, "f": "send", "key": "t/0"} for line in known]
    lines += [{**line, "f": f, "key": "t/0" if f == "send" else None} for line in strange]
    text = HEADER + "".join(json.dumps(line) + "\n" for line in (lines if ends else lines[:3]))
    told = both(text)
    if instant == 2**62 - 1 and not ends:
        assert isinstance(told, tuple), "the last instant there is"
    else:
        assert isinstance(told, str)
        assert "a time is out of range" in told


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


def forked(seed, size=150):
    """Two nodes that agree up to an offset and no further, for one key: sends of every outcome, to
    either; polls of either, long and short, some before anything was acknowledged."""
    rng = random.Random(seed)
    logs, agreed = [[], []], rng.choice([0, 5, 20, size])
    lines, first = [], rng.choice([0, 0, 3])
    for number in range(size):
        side = rng.randrange(2)
        log, other = logs[side], logs[1 - side]
        kind = "ok"
        if rng.random() < 0.5:
            value = f"#{number}"
            f, key, kind = "send", "t/0", rng.choice(["ok", "ok", "ok", "info", "fail"])
            told = [first + len(log), value]
            if len(log) < agreed:
                other.append(value)
            if kind != "fail" or rng.random() < 0.05:
                log.append(value)
        else:
            f, key, value = "poll", None, None
            begin = rng.randint(0, len(log))
            end = rng.randint(begin, min(len(log), begin + rng.choice([3, 100])))
            told = {"t/0": [[first + at, log[at]] for at in range(begin, end)]}
            kind = rng.choice(["ok", "ok", "ok", "info"])
        call = {"process": number, "type": "invoke", "f": f, "key": key, "value": value}
        lines += [call, {**call, "type": kind, "value": told if kind == "ok" else value}]
        if f == "poll" and kind == "info":
            lines[-1]["value"] = told
    text = HEADER
    for index, line in enumerate(lines):
        text += json.dumps({"index": index, "time_ns": index, **line}) + "\n"
    return text


def without_known_logs(operations):
    """The same operations, each poll with values of its own."""
    for op in operations:
        if op.f == "poll" and op.value:
            op.value = {key: Pairs.of([*map(list, pairs)]) for key, pairs in op.value.items()}
    return operations


def facts_of(operations):
    """All that the facts say, with operations by their index. In order, for witnesses take the
    first of what they find."""
    found = Facts()
    found.add_all(operations)
    return {name: plain(public(facts)) for name, facts in found.keys.items()}


def public(facts):
    names = [field.name for field in attrs.fields(KeyFacts) if field.name[0] != "_"]
    return {name: getattr(facts, name) for name in names}


def plain(value):
    if isinstance(value, Interval):
        return f"operation {value.index}"
    if isinstance(value, Sent):
        return [plain(value.op), value.sent, value.base]
    if isinstance(value, dict):
        return [(one, plain(other)) for one, other in value.items()]
    if isinstance(value, set):
        return sorted(value)
    return [plain(one) for one in value] if isinstance(value, (list, tuple)) else value


@pytest.mark.parametrize("seed", range(150))
def test_what_is_known_word_for_word_says_no_more_than_values_of_its_own(seed):
    """Polls that refer to a known log, against the same polls with their values: the facts may
    agree with the log, disagree, or come to agree while they are read."""
    text = forked(seed).encode()
    both(text.decode())
    found, _ = intervals(HistoryReader(io.BytesIO(text)))
    again, _ = intervals(HistoryReader(io.BytesIO(text)))
    assert facts_of(found) == facts_of(without_known_logs(again))


def test_the_forks_have_polls_of_every_kind():
    held = set()
    for seed in range(20):
        found, _ = intervals(HistoryReader(io.BytesIO(forked(seed).encode())))
        held |= {type(pairs.held) for op in found for pairs in op.reads().values() if len(pairs)}
    assert held == {tuple, KnownLog}


def test_polls_of_two_readers_know_two_logs():
    """Two histories of one cluster, judged as one: what one log knows says nothing of the other."""
    texts = [forked(seed, 60).encode() for seed in (1, 2)]
    for order in (texts, texts[::-1]):
        found, again = (
            [op for text in order for op in intervals(HistoryReader(io.BytesIO(text)))[0]]
            for _ in range(2)
        )
        sends = {op.asked: None for op in found if op.f == "send"}
        kept = []
        for operations in (found, again):
            left = dict(sends)
            kept.append(
                [op for op in operations if op.f == "poll" or left.pop(op.asked, 1) is None]
            )
        assert facts_of(kept[0]) == facts_of(without_known_logs(kept[1]))


@pytest.mark.parametrize("kinds", [["ok", "ok"], ["ok", "info"], ["fail", "ok"], ["info", "fail"]])
def test_the_first_value_sent_twice_is_named_whatever_came_after(kinds):
    """Acknowledged sends are taken many at once, and all the same the first pair is named."""
    sends = [("t/1", "ok", "#a"), ("t/0", kinds[0], "#b"), ("t/1", "ok", "#c")]
    sends += [("t/0", kinds[1], "#b"), ("t/1", "ok", "#a"), ("t/0", "ok", ["#b", "#d"])]
    ops = [
        Interval(at, at, "send", key, kind, at, at + 1, asked, at if kind == "ok" else None)
        for at, (key, kind, asked) in enumerate(sends)
    ]
    with pytest.raises(BadHistory, match=r"'#b' is sent twice to t/0 \(indexes 1 and 3\)"):
        Facts().add_all(ops)


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
