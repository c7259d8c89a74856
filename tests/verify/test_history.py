"""The history format: what the writer leaves at every moment, and what the reader refuses."""

import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftlog.base.errors import FutureFormat, LocalMisuse
from raftlog.base.limits import HISTORY_LINE_CHARS_MAX
from raftlog.verify import BadHistory, Header, HistoryReader, HistoryWriter, Op, check_history
from raftlog.verify.histories import history_reader as history_module
from tests.verify.writing import KEY, poll, send, written

HEADER = '{"format":1,"source":"sim","model":"log"}\n'


def ops_of(text):
    return list(HistoryReader(text.splitlines(keepends=True)))


class Sink:
    """A file of a process that may be killed: what was flushed stays, the rest is lost."""

    def __init__(self, fail_at=None):
        self.kept = ""
        self.buffer = ""
        self.writes = 0
        self.fail_at = fail_at

    def write(self, text):
        self.writes += 1
        if self.fail_at is not None and self.writes >= self.fail_at:
            self.buffer += text[: len(text) // 2]
            raise OSError(28, "No space left on device")
        self.buffer += text
        return len(text)

    def flush(self):
        self.kept += self.buffer
        self.buffer = ""


def test_a_round_trip_keeps_everything():
    text = written(
        send(0, (1, 2), "k#1", 0, node="n1", term=3, hw=1, producer=[7, 0, 0]),
        poll(1, (3, 4), (0, "k#1"), node="n2", hw={KEY: 1}, rebalance=["t/1"]),
        read_consistency="linearizable",
    )
    reader = HistoryReader(text.splitlines(keepends=True))
    again = HEADER.splitlines()[:0]
    again.append(json.dumps(reader.header.document()))
    again += [json.dumps(op.document()) for op in reader]
    assert [json.loads(line) for line in text.splitlines()] == [json.loads(x) for x in again]
    assert not reader.torn


def test_unknown_fields_are_kept():
    line = {"index": 0, "time_ns": 1, "process": 0, "type": "invoke", "f": "end", "key": KEY}
    line |= {"value": None, "trace_id": "abc", "term": 4}
    text = HEADER.replace("}", ',"lab":7}') + json.dumps(line) + "\n"
    reader = HistoryReader(text.splitlines(keepends=True))
    (op,) = reader
    assert op.extra == {"trace_id": "abc"}
    assert op.document() == line
    assert reader.header.document()["lab"] == 7


def test_an_invocation_is_on_its_way_to_disk_before_the_call_can_be_sent():
    sink = Sink()
    writer = HistoryWriter(sink, Header(source="demo"))
    assert sink.kept.count("\n") == 1, "the header"
    writer.invoke(0, "send", time_ns=1, key=KEY, value="#1")
    assert '"invoke"' in sink.kept
    writer.complete(0, "ok", time_ns=2, value=[0, "#1"])
    assert '"ok"' not in sink.kept, "a completion may be lost: then the send counts as info"
    writer.invoke(0, "send", time_ns=3, key=KEY, value="#2")
    assert '"ok"' in sink.kept


@given(st.data())
def test_a_killed_writer_leaves_a_history(data):
    """Cut at any byte: whole lines before, at most one torn line, and a verdict all the same."""
    text = written(*[send(p, (2 * p, 2 * p + 3), f"#{p}", p) for p in range(4)], final_read=False)
    first = len(text.splitlines(keepends=True)[0])
    cut = data.draw(st.integers(first, len(text)))
    lines = text[:cut].splitlines(keepends=True)
    reader = HistoryReader(lines)
    found = list(reader)
    whole = [line for line in lines[1:] if line.rstrip("\n").endswith("}") and _parses(line)]
    assert len(found) == len(whole)
    assert reader.torn == (len(whole) < len(lines) - 1)
    verdict = check_history(lines)
    acknowledged = [op for op in found if op.type == "ok"]
    assert verdict.exit_code == (0 if acknowledged else 2)
    assert any("torn" in note for note in verdict.notes) == reader.torn


def _parses(line):
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("fail_at", [2, 3])
def test_after_a_failed_write_nothing_follows_the_half_line(fail_at):
    sink = Sink(fail_at)
    writer = HistoryWriter(sink, Header(source="demo"))
    with pytest.raises(OSError, match="No space"):  # noqa: PT012
        writer.invoke(0, "end", time_ns=1, key=KEY)
        writer.complete(0, "ok", time_ns=2, value=0)
    with pytest.raises(LocalMisuse, match="failed"):
        writer.nemesis("kill", time_ns=3)
    writer.close()
    sink.flush()
    reader = HistoryReader(sink.kept.splitlines(keepends=True))
    assert len(list(reader)) == fail_at - 2
    assert reader.torn


def test_a_closed_writer_refuses():
    writer = HistoryWriter(io.StringIO(), Header(source="demo"))
    writer.close()
    with pytest.raises(LocalMisuse, match="closed"):
        writer.invoke(0, "end", time_ns=1, key=KEY)


class TestTheWriterRefuses:
    def setup_method(self):
        self.writer = HistoryWriter(io.StringIO(), Header(source="demo"))
        self.writer.invoke(0, "end", time_ns=5, key=KEY)

    def test_two_open_operations(self):
        with pytest.raises(LocalMisuse, match="open"):
            self.writer.invoke(0, "end", time_ns=6, key=KEY)

    def test_a_completion_of_nothing(self):
        with pytest.raises(LocalMisuse, match="no open"):
            self.writer.complete(1, "ok", time_ns=6, value=0)

    def test_a_retired_process(self):
        self.writer.complete(0, "info", time_ns=6, error="timeout")
        with pytest.raises(LocalMisuse, match="retired"):
            self.writer.invoke(0, "end", time_ns=7, key=KEY)

    def test_time_that_runs_backwards(self):
        with pytest.raises(LocalMisuse, match="5 ns then 4 ns"):
            self.writer.complete(0, "ok", time_ns=4, value=0)

    def test_another_type(self):
        with pytest.raises(LocalMisuse, match="maybe"):
            self.writer.complete(0, "maybe", time_ns=6)

    def test_fields_that_it_sets_itself(self):
        with pytest.raises(LocalMisuse, match="set by the writer"):
            self.writer.complete(0, "ok", time_ns=6, value=0, index=9)


@pytest.mark.parametrize("version", [2, 99])
def test_a_later_format_is_refused_not_guessed(version):
    with pytest.raises(FutureFormat, match=str(version)):
        HistoryReader([HEADER.replace("1", str(version), 1)])


@pytest.mark.parametrize(
    "first",
    [
        "",
        "\n",
        "{}\n",
        '{"format":0}\n',
        '{"format":true,"source":"sim"}\n',
        '{"format":1.0,"source":"sim"}\n',
        '{"format":2.0,"source":"sim"}\n',
        '{"format":null,"source":"sim"}\n',
        '{"format":"1","source":"sim"}\n',
        '{"format":1,"source":"mars"}\n',
        '{"format":1}\n',
        '{"format":1,"source":"sim","options":[]}\n',
        '{"format":1,"source":"sim","nodes":[1]}\n',
        '{"format":1,"source":"sim","model":7}\n',
        "[1]\n",
        "[" * 100_000,
        '{"format":1,"source":"sim"',
    ],
)
def test_what_is_no_header(first):
    with pytest.raises(BadHistory):
        HistoryReader([first] if first else [])


GOOD = {"index": 0, "time_ns": 1, "process": 0, "type": "invoke", "f": "end", "key": KEY}


@pytest.mark.parametrize(
    "change",
    [
        {"index": "0"},
        {"index": True},
        {"index": None},
        {"time_ns": 1.5},
        {"process": "somebody"},
        {"process": None},
        {"type": "done"},
        {"f": 3},
        {"key": 0},
        {"value": ...},
        {"key": ...},
        {"time_ns": ...},
    ],
)
def test_what_is_no_operation(change):
    line = {name: v for name, v in (GOOD | {"value": None} | change).items() if v is not ...}
    text = HEADER + json.dumps(line) + "\n"
    with pytest.raises(BadHistory, match="line 2"):
        ops_of(text)


@pytest.mark.parametrize("line", ["", "null", "[]", "{", '{"a":1} {"b":2}', "{}x", "[" * 99_999])
def test_nonsense_between_lines_is_named_by_its_line(line):
    good = json.dumps(GOOD | {"value": None})
    with pytest.raises(BadHistory, match="line 3"):
        ops_of(f"{HEADER}{good}\n{line}\n{good}\n")


def test_a_last_line_with_something_behind_it_is_torn():
    good = json.dumps(GOOD | {"value": None})
    reader = HistoryReader([HEADER, good + "x"])
    assert list(reader) == []
    assert reader.torn


def test_nonsense_at_the_end_of_a_whole_line_is_not_called_torn():
    with pytest.raises(BadHistory, match="line 2"):
        ops_of(HEADER + '{"index":0\n')


def test_a_line_has_a_bound(monkeypatch):
    monkeypatch.setattr(history_module, "HISTORY_LINE_CHARS_MAX", 100)
    with pytest.raises(BadHistory, match="100 are allowed"):
        ops_of(HEADER + json.dumps(GOOD | {"value": "x" * 200}) + "\n")
    assert HISTORY_LINE_CHARS_MAX > 10**7


@given(st.text(), st.integers(-(2**70), 2**70), st.text())
def test_any_text_and_number_survive(value, time_ns, key):
    stream = io.StringIO()
    writer = HistoryWriter(stream, Header(source="demo", options={"note": value}))
    writer.invoke(3, "x", time_ns=time_ns, key=key, value=value)
    reader = HistoryReader(io.StringIO(stream.getvalue()))
    assert reader.header.options == {"note": value}
    assert list(reader) == [Op(0, time_ns, 3, "invoke", "x", key, value)]
