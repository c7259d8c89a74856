"""Evidence that brokers gave of themselves: the verdicts of the single process, class by class."""

import io
import random

import pytest

from raftlog.spark.history_table import history_to_parquet, read_history
from raftlog.spark.jobs.evidence_job import CARRIED, judge_evidence, judge_key, of_key
from raftlog.spark.verify_job import judge_history
from raftlog.verify import Header, HistoryReader, HistoryWriter, check_history, intervals
from raftlog.verify.judging.check import mode_of
from raftlog.verify.judging.linearizability import COMMITTED_PREFIX
from raftlog.verify.judging.verdict import Findings
from tests.verify.writing import KEY, poll, send, written

pytestmark = [pytest.mark.needs_command("java"), pytest.mark.filterwarnings("ignore")]

HISTORIES = 150
CLASSES = tuple(CARRIED)


class Story:
    """One small history: a log, clients that are told it more or less, nodes that err."""

    def __init__(self, number: int) -> None:
        self.random = random.Random(f"evidence-{number}")
        self.keys = [f"h{number}/{partition}" for partition in range(2)]
        self.logs = {key: [] for key in self.keys}
        self.process = number * 1000
        self.values = 0
        self.wrong = self.random.random() < 0.7

    def lines(self):
        """(start, end, process, f, key, asked, kind, value, evidence)."""
        for at in range(self.random.randint(4, 25)):
            key = self.random.choice(self.keys)
            f, named, asked, kind, value, more = self.random.choice(
                [self.send, self.send, self.poll, self.length, self.group]
            )(key)
            start = 10 * at
            self.process += 1
            yield (
                start,
                start + self.random.randint(1, 30),
                self.process,
                f,
                named,
                asked,
                (kind),
                value,
                more,
            )

    def off(self) -> int:
        """How wrong a number is."""
        return self.random.choice([0, 0, 0, -1, -2, 1]) if self.wrong else 0

    def evidence(self, key):
        more = {}
        if self.random.random() < 0.8:
            more["node"] = self.random.choice(["n1", "n2"])
        mark = max(0, len(self.logs[key]) + self.off())
        if self.random.random() < 0.6:
            by_key = {at: max(0, len(self.logs[at]) + self.off()) for at in self.keys}
            more["hw"] = self.random.choice([{key: mark}, by_key])
        if self.random.random() < 0.2:
            start = max(0, self.off())
            more["log_start"] = self.random.choice([{key: start}, dict.fromkeys(self.keys, start)])
        return more

    def send(self, key):
        self.values += 1
        value = f"{key}#{self.values}"
        asked = [value, f"{value}b"] if self.random.random() < 0.2 else value
        more = self.evidence(key)
        if self.wrong and self.random.random() < 0.5:
            more["term"] = self.random.randint(1, 3)
        if self.random.random() < 0.6:
            sequence = self.values + (self.random.choice([0, 0, -1]) if self.wrong else 0)
            more["producer"] = [7, 0, ((1 << 31) - 3 + sequence) % (1 << 31)]
        if "hw" in more and self.random.random() < 0.5:
            more["hw"] = len(self.logs[key]) + 1
        kind = self.random.choice(["ok"] * 6 + ["info", "fail", None])
        base = max(0, len(self.logs[key]) + min(0, self.off()))
        if kind != "fail":
            self.logs[key] += asked if isinstance(asked, list) else [asked]
        return "send", key, asked, kind, [base, asked] if kind == "ok" else None, more

    def poll(self, key):
        reads = {}
        for at in self.random.sample(self.keys, self.random.randint(0, 2)):
            pairs = [[offset, value] for offset, value in enumerate(self.logs[at])]
            if pairs and self.wrong and self.random.random() < 0.2:
                pairs[-1][0] += 1
            reads[at] = pairs[self.random.randint(0, len(pairs)) :]
        return (
            "poll",
            None,
            None,
            self.random.choice(["ok", "ok", "info"]),
            reads,
            (self.evidence(key)),
        )

    def length(self, key):
        f = self.random.choice(["end", "empty", "start"])
        value = max(0, (0 if f == "start" else len(self.logs[key])) + self.off())
        return f, key, None, "ok", value, self.evidence(key)

    def group(self, key):
        group = f"g{self.random.randint(1, 2)}"
        offsets = {at: self.random.randint(0, 4) for at in self.keys}
        if self.random.random() < 0.5:
            kind = self.random.choice(["ok", "ok", "info", "fail"])
            return "offset_commit", None, [group, offsets], kind, None, self.evidence(key)
        return "offset_fetch", None, [group, self.keys], "ok", offsets, self.evidence(key)


def written_together(stories, options) -> str:
    sink = io.StringIO()
    writer = HistoryWriter(sink, Header(source="blackbox", options=options))
    events = []
    for story in stories:
        for line in story.lines():
            events.append((line[0], 0, line))
            if line[6] is not None:
                events.append((line[1], 1, line))
    for time_ns, done, line in sorted(events, key=lambda event: event[:2]):
        _, _, process, f, key, asked, kind, value, more = line
        if done:
            writer.complete(process, kind, time_ns=time_ns, value=value, **more)
        else:
            writer.invoke(process, f, time_ns=time_ns, key=key, value=asked)
    writer.close()
    return sink.getvalue()


OPTIONS = [
    {"read_consistency": "linearizable", "retention": "none"},
    {"read_consistency": "committed-prefix"},
]


def counted(findings_or_verdict) -> dict[str, tuple[str, int]]:
    return {
        name: (result.status, result.count)
        for name, result in findings_or_verdict.items()
        if name in CLASSES
    }


@pytest.mark.parametrize("options", OPTIONS, ids=["linearizable", "prefix"])
def test_a_key_alone_tells_what_the_whole_tells(options):
    """The rule that a task runs, on each key's share of a history, without Spark."""
    broken = dict.fromkeys(CLASSES, 0)
    sound = 0
    for number in range(HISTORIES):
        text = written_together([Story(number)], options)
        verdict = check_history(io.StringIO(text))
        operations, _ = intervals(HistoryReader(io.StringIO(text)))
        findings = Findings()
        for key in Story(number).keys:
            share = [of_key(op, key) for op in operations]
            judge_key(key, share, findings, options, mode_of(options), {})
        mine = {name: findings.result(name, allowed=False) for name in CLASSES}
        assert counted(mine) == counted(verdict.classes), number
        for name in CLASSES:
            broken[name] += mine[name].count > 0
        sound += not any(mine[name].count for name in CLASSES)
    assert min(broken.values()) >= 3, broken
    assert sound >= 5


@pytest.mark.parametrize("options", OPTIONS, ids=["linearizable", "prefix"])
def test_all_classes_are_those_of_one_process(spark, tmp_path, options):
    """All histories in one, each with keys and groups of its own."""
    text = written_together([Story(number) for number in range(HISTORIES)], options)
    (tmp_path / "history.jsonl").write_text(text)
    verdict = check_history(io.StringIO(text), with_metrics=False)
    operations = read_history(spark, tmp_path).operations.coalesce(2)
    findings = Findings()
    mode = mode_of(options)
    judge_evidence(operations, findings, options=options, mode=mode, first_ends={})
    mine = {name: findings.result(name, allowed=False) for name in CLASSES}
    assert counted(mine) == counted(verdict.classes)
    assert all(mine[name].count >= 3 for name in CLASSES), counted(mine)
    for result in mine.values():
        assert result.witness.operations


def test_a_watermark_that_went_back_is_told_as_by_one_process(spark, tmp_path):
    text = written(
        send(0, (1, 2), "#0", 0),
        poll(1, (7, 8), (0, "#0"), node="n1", hw={KEY: 3}),
        poll(2, (9, 10), (0, "#0"), node="n1", hw={KEY: 2}),
        final_read=False,
    )
    (tmp_path / "history.jsonl").write_text(text)
    expected = check_history(io.StringIO(text))
    history_to_parquet(spark, tmp_path, tmp_path / "parquet")
    found = judge_history(spark, read_history(spark, tmp_path / "parquet"))
    assert found.verdict == expected.verdict == "invalid"
    assert counted(found.classes) == counted(expected.classes)
    told = expected.classes["hw-regression"].witness.text
    assert found.classes["hw-regression"].witness.text == told
    assert not found.notes


def test_a_key_that_is_too_large_is_unknown(spark, tmp_path):
    text = written(
        send(0, (1, 2), "#0", 0),
        poll(1, (7, 8), (0, "#0"), node="n1", hw={KEY: 3}),
        poll(2, (9, 10), (0, "#0"), node="n1", hw={KEY: 2}),
    )
    (tmp_path / "history.jsonl").write_text(text)
    findings = Findings()
    operations = read_history(spark, tmp_path).operations
    settings = {"options": {}, "mode": COMMITTED_PREFIX, "first_ends": {}, "bytes_max": 100}
    judge_evidence(operations, findings, **settings)
    wanted = ["fork", "hw-regression", "read-above-hw", "truncated-below-hw"]
    assert sorted(findings.exhausted) == wanted
    assert all(findings.result(name, allowed=False).status == "unknown" for name in wanted)
