"""Rules that follow one process: Spark's windows give the counts of the single process.

All random histories are one file with keys and processes of their own, so that Spark judges them at
once; the single process judges each by itself.
"""

import io
import random

import pytest

from raftlog.spark.history_table import history_to_parquet, read_history, tables_of
from raftlog.spark.jobs.process_job import CLASSES, SESSIONS, judge_processes
from raftlog.spark.verify_job import judge_history
from raftlog.verify import (
    BadHistory,
    Header,
    HistoryReader,
    HistoryWriter,
    check_history,
    intervals,
)
from raftlog.verify.judging.facts import Facts
from raftlog.verify.judging.linearizability import COMMITTED_PREFIX
from raftlog.verify.judging.process_order import ProcessOrder
from raftlog.verify.judging.verdict import Findings

pytestmark = [pytest.mark.needs_command("java"), pytest.mark.filterwarnings("ignore")]

HISTORIES = 150


class Story:
    """One small history: a real log with holes, and clients that are told it, more or less."""

    def __init__(self, number: int) -> None:
        self.random = random.Random(f"process-{number}")
        self.keys = [f"h{number}/{partition}" for partition in range(2)]
        self.processes = [number * 1000 + at for at in range(3)]
        self.next_process = number * 1000 + 3
        self.logs = {key: {} for key in self.keys}
        self.ends = dict.fromkeys(self.keys, self.random.choice([0, 0, 5]))
        self.values = 0

    def operations(self):
        """(process, f, key, asked, kind, value, evidence)."""
        for _ in range(self.random.randint(10, 50)):
            slot = self.random.randrange(3)
            process = self.processes[slot]
            f, key, asked, kind, value, more = self.one()
            if kind in (None, "info"):
                self.processes[slot] = self.next_process
                self.next_process += 1
            yield process, f, key, asked, kind, value, more

    def one(self):
        key = self.random.choice(self.keys)
        what = self.random.choices(
            [self.send, self.poll, self.assign, self.crash, self.length], [8, 9, 1, 0.5, 3]
        )[0]
        return what(key)

    def send(self, key):
        size = self.random.choice([1, 1, 1, 2, 3])
        values = []
        for _ in range(size):
            self.values += 1
            values.append(f"{key}#{self.values}")
        asked = values if size > 1 or self.random.random() < 0.1 else values[0]
        kind = self.random.choice(["ok"] * 12 + ["info", None, "fail"])
        base = self.ends[key] + self.random.choice([0, 0, 0, 1])
        if kind == "ok" or self.random.random() < 0.6:
            for at, value in enumerate(values):
                self.logs[key][base + at] = value
            self.ends[key] = base + size
        told = base if self.random.random() < 0.9 else max(0, base - 3)
        return "send", key, asked, kind, [told, asked] if kind == "ok" else None, {}

    def poll(self, _key):
        reads = {}
        for key in self.random.sample(self.keys, self.random.randint(0, 2)):
            log = sorted(self.logs[key].items())
            start = self.random.randint(0, len(log))
            pairs = [list(pair) for pair in log[start : start + self.random.randint(0, 5)]]
            if pairs and self.random.random() < 0.4:
                at = self.random.randrange(len(pairs))
                mutation = self.random.choice(["drop", "swap", "again", "elsewhere"])
                if mutation == "drop":
                    del pairs[at]
                elif mutation == "swap":
                    pairs[0], pairs[at] = pairs[at], pairs[0]
                elif mutation == "again":
                    pairs.insert(at, list(pairs[at]))
                else:
                    pairs[at][0] += self.random.randint(1, 3)
            reads[key] = pairs
        more = {}
        if self.random.random() < 0.2:
            more["rebalance"] = self.random.sample(self.keys, 1)
        if self.random.random() < 0.1:
            more["log_start"] = {self.keys[0]: self.random.randint(0, 6)}
        kind = self.random.choice(["ok"] * 10 + ["info", "fail"])
        told = kind != "fail" or self.random.random() < 0.5  # a failed one may have read as well
        return "poll", None, None, kind, reads if told else None, more

    def assign(self, _key):
        f = self.random.choice(["assign", "subscribe"])
        kept = self.random.sample(self.keys, self.random.randint(0, 2))
        kind = self.random.choice(["ok"] * 5 + ["info", "fail"])
        return f, None, kept, kind, self.random.choice([None, kept]), {}

    def crash(self, _key):
        return "crash", None, None, self.random.choice(["ok", "info"]), None, {}

    def length(self, key):
        f = self.random.choice(["end", "end", "empty", "start"])
        end = max(0, self.ends[key] - self.random.choice([0, 0, 1, 4]))
        asked = end if f == "empty" else None
        kind = self.random.choice(["ok", "ok", "ok", "fail"])
        return f, key, asked, kind, end if kind == "ok" else None, {}


def written(stories, options) -> str:
    sink = io.StringIO()
    writer = HistoryWriter(sink, Header(source="blackbox", options=options))
    clock = 0
    for story in stories:
        for process, f, key, asked, kind, value, more in story.operations():
            clock += 10
            writer.invoke(process, f, time_ns=clock, key=key, value=asked)
            if kind is not None:
                writer.complete(process, kind, time_ns=clock + 5, value=value, **more)
    writer.close()
    return sink.getvalue()


def counted(text, mode) -> dict[str, int]:
    """Returns the counts that the single process finds."""
    reader = HistoryReader(io.StringIO(text))
    operations, _ = intervals(reader)
    facts, findings = Facts({}), Findings()
    facts.add_all(operations)
    order = ProcessOrder(facts, findings, reader.header.options, mode)
    order.run(operations)
    return {name: findings.counts.get(name, 0) for name in CLASSES if name in findings.checked}


def test_counts_are_those_of_one_process(spark, tmp_path):
    options, mode = {}, COMMITTED_PREFIX
    text = written([Story(number) for number in range(HISTORIES)], options)
    (tmp_path / "history.jsonl").write_text(text)
    operations = read_history(spark, tmp_path).operations.coalesce(2).persist()
    tables = tables_of(operations)
    found = judge_processes(operations, tables, mode=mode, pipelined=False, block=3)
    operations.unpersist()
    totals: dict[str, int] = {}
    for number in range(HISTORIES):
        expected = counted(written([Story(number)], options), mode)
        mine = {
            name: sum(count for key, count in keys.items() if key.startswith(f"h{number}/"))
            for name, keys in found.counts.items()
        }
        assert {name: count for name, count in expected.items() if count} == {
            name: count for name, count in mine.items() if count
        }, number
        for name, count in expected.items():
            totals[name] = totals.get(name, 0) + count
    assert sorted(found.checked) == sorted(totals)
    assert sorted(totals) == sorted(CLASSES)
    # Every class is broken here and there, so that agreeing says something.
    assert all(totals[name] >= 10 for name in CLASSES), totals


def test_a_history_is_told_in_the_words_of_one_process(spark, tmp_path):
    """One step of each kind: verdict, counts and witnesses of `check_history`."""
    sink = io.StringIO()
    header = Header(source="blackbox", options={"read_consistency": "committed-prefix"})
    writer = HistoryWriter(sink, header)
    lines = [
        (1, "send", "t/0", f"#{at}", [at, f"#{at}"]) for at in range(6)
    ] + [
        (2, "poll", None, None, {"t/0": [[0, "#0"], [1, "#1"]]}),
        (2, "poll", None, None, {"t/0": [[3, "#3"], [5, "#5"]]}),
        (2, "poll", None, None, {"t/0": [[4, "#4"], [2, "#2"]]}),
        (2, "end", "t/0", None, 4),
        (1, "empty", "t/0", 3, 3),
        (1, "send", "t/0", "#late", [6, "#late"]),
        (3, "send", "t/0", "#8", [8, "#8"]),
        (3, "send", "t/0", "#7", [7, "#7"]),
    ]  # fmt: skip
    for at, (process, f, key, asked, value) in enumerate(lines):
        writer.invoke(process, f, time_ns=10 * at, key=key, value=asked)
        writer.complete(process, "ok", time_ns=10 * at + 5, value=value)
    writer.close()
    (tmp_path / "history.jsonl").write_text(sink.getvalue())
    expected = check_history(io.StringIO(sink.getvalue()))
    history_to_parquet(spark, tmp_path, tmp_path / "parquet")
    found = judge_history(spark, read_history(spark, tmp_path / "parquet"))
    assert found.verdict == expected.verdict == "invalid"
    for name in CLASSES:
        mine, single = found.classes[name], expected.classes[name]
        assert (mine.status, mine.count) == (single.status, single.count), name
        assert mine.count >= 1
        assert mine.witness.text == single.witness.text, name
    assert {name for name in SESSIONS if found.classes[name].count} == set(SESSIONS)


def judged(spark, folder, *calls):
    """Each: process, f, key, asked, kind, value."""
    sink = io.StringIO()
    writer = HistoryWriter(sink, Header(source="blackbox"))
    for at, (process, f, key, asked, kind, value) in enumerate(calls):
        writer.invoke(process, f, time_ns=10 * at, key=key, value=asked)
        writer.complete(process, kind, time_ns=10 * at + 5, value=value)
    writer.close()
    folder.mkdir()
    (folder / "history.jsonl").write_text(sink.getvalue())
    history_to_parquet(spark, folder, folder / "parquet")
    expected = check_history(io.StringIO(sink.getvalue()))
    return judge_history(spark, read_history(spark, folder / "parquet")), expected


def test_a_history_of_nothing_is_unknown_here_too(spark, tmp_path):
    found, expected = judged(spark, tmp_path / "a", (0, "send", "t/0", "#0", "info", None))
    assert found.verdict == expected.verdict == "unknown"
    assert found.notes == expected.notes
    polled = (1, "poll", None, None, "fail", {"t/0": [[0, "#0"]]})
    found, expected = judged(
        spark, tmp_path / "b", (0, "send", "t/0", "#0", "ok", [0, "#0"]), polled
    )
    assert {n: r.status for n, r in found.classes.items()} == {
        n: r.status for n, r in expected.classes.items()
    }


def test_an_offset_that_an_info_names_is_left_to_one_process(spark, tmp_path):
    with pytest.raises(BadHistory, match="names its offset"):
        judged(spark, tmp_path / "a", (0, "send", "t/0", "#0", "info", [3, "#0"]))
