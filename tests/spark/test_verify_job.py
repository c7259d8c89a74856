"""The verification job on a real topic: a correct history is valid, each planted lie is found."""

import io
import json
from pathlib import Path

import pytest

from raftlog.base.errors import OperatingError
from raftlog.client.blocking import BlockingClient
from raftlog.spark import verify_job
from raftlog.spark.history_table import history_to_parquet, read_history, tables_of
from raftlog.spark.jobs.verify_report import write_report
from raftlog.spark.verify_job import _judge_cycles, judge_history, verify
from raftlog.verify import Header, HistoryReader, HistoryWriter, check_history, intervals
from raftlog.verify.histories.history import BadHistory
from raftlog.verify.judging.classes import CLASSES
from raftlog.verify.judging.verdict import Findings
from raftlog.verify.report.page import render
from raftlog.verify.report.proof import data_of, digest_of, shell_of
from tests.spark import test_chain_job as rows

pytestmark = [
    pytest.mark.processes,
    pytest.mark.needs_command("java"),
    pytest.mark.filterwarnings("ignore"),
]

KEYS = ("a", "b", "c")


def run_and_write(cluster, topic: str, path: Path, *, lies: bool = False) -> None:
    """Produce 60 records and write their history. With lies, the history gets some of it wrong,
    and another client writes into the log."""
    with BlockingClient(cluster.bootstrap_servers) as client, path.open("w") as file:
        client.create_topic(topic, partitions=2, replication_factor=3)
        writer = HistoryWriter(file, Header(source="blackbox", options={"pipelined": True}))
        clock = iter(range(1, 10_000))
        for number in range(60):
            partition = number % 2
            value = f"{KEYS[partition]}#{number}"
            key = f"{topic}/{partition}"
            writer.invoke(number, "send", time_ns=next(clock), key=key, value=value)
            offset = client.produce(topic, value.encode(), partition=partition).offset
            kind, done = "ok", [offset, value]
            if number == 10 and lies:
                kind, done = "fail", value
            if number == 12 and lies:
                done = [offset + 500, value]
            writer.complete(number, kind, time_ns=next(clock), value=done)
            if number == 20 and lies:
                client.produce(topic, b"x#never", partition=partition)
            if number == 40 and lies:
                client.produce(topic, value.encode(), partition=1 - partition)
        if lies:
            writer.invoke(99, "send", time_ns=next(clock), key=f"{topic}/0", value="a#lost")
            writer.complete(99, "ok", time_ns=next(clock), value=[30, "a#lost"])
            _swap(writer, client, topic, clock)
        writer.close()


def _swap(writer, client, topic, clock):
    """Two records of one key that lie against the order of their sends."""
    first = client.produce(topic, b"a#late", partition=0).offset
    second = client.produce(topic, b"a#early", partition=0).offset
    for process, value, offset in ((101, "a#early", second), (102, "a#late", first)):
        writer.invoke(process, "send", time_ns=next(clock), key=f"{topic}/0", value=value)
        writer.complete(process, "ok", time_ns=next(clock), value=[offset, value])


def job(spark, cluster, topic, path, **more):
    return verify(spark, path, bootstrap=cluster.bootstrap_servers, topic=topic, **more)


def data_of_page(report, path):
    """Returns the data of the written page."""
    write_report(report, path)
    return data_of(path.read_text())


def test_a_correct_topic_is_valid(spark, cluster, topic, tmp_path):
    run_and_write(cluster, topic, tmp_path / "history.jsonl")
    said = []
    found = job(spark, cluster, topic, tmp_path, say=said.append)
    assert said == [
        "judging the history",
        "reading the history",
        f"reading {topic}, 60 offsets, for the first time",
        f"comparing {topic} with its history",
        f"reading {topic} again",
    ]
    assert (found.verdict, found.exit_code) == ("valid", 0), found.document()
    assert [check.name for check in found.log] == [
        "density",
        "acknowledged",
        "once",
        "sent",
        "key-order",
        "immutable",
    ]
    write_report(found, tmp_path / "report.json")
    assert json.loads((tmp_path / "report.json").read_text())["log"]["density"]["checked"] == 60
    page = data_of_page(found, tmp_path / "report.html")
    assert page["summary"]["headline"] == "PASS"
    with (tmp_path / "history.jsonl").open("rb") as file:
        assert page["proof"]["history_sha256"] == digest_of(file)
    text = (tmp_path / "report.html").read_text()
    assert shell_of(text) == shell_of(render(found.judgement))  # the look of raftlog verify
    assert [check.name for check in found.log] == [row["name"] for row in page["invariants"]]


def test_each_lie_is_found(spark, cluster, topic, tmp_path):
    """A small history is judged by one process and a large one by Spark, with one verdict; both
    reports show the witnesses."""
    run_and_write(cluster, topic, tmp_path / "history.jsonl", lies=True)
    found = job(spark, cluster, topic, tmp_path / "history.jsonl")
    assert (found.verdict, found.exit_code) == ("invalid", 1)
    by_spark = job(spark, cluster, topic, tmp_path, small_bytes_max=0)
    assert by_spark.log == found.log
    assert rows_of(by_spark.history) == rows_of(found.history)
    for report in (found, by_spark):
        page = data_of_page(report, tmp_path / "report.html")
        assert page["summary"]["headline"] == "FAIL"
        assert page["accused"]
        told = page["summary"]["notes"]
        assert any("only the operations of the witnesses" in note for note in told) == (
            report is by_spark
        )
    failed = {check.name: (check.failures, check.evidence) for check in found.log}
    assert failed["acknowledged"] == (2, f'"a#12" of {topic}/0, acknowledged at 506, is at 6')
    assert failed["once"] == (1, f'"a#40" lies at {topic}/0 21 and {topic}/1 20')
    assert failed["sent"][0] == 3  # never sent; refused; a copy in another partition
    assert failed["sent"][1] == f'"a#10" at offset 5 of {topic}/0 was refused'
    assert failed["key-order"][0] == 1
    assert "which was sent after it" in failed["key-order"][1]
    assert failed["density"] == failed["immutable"] == (0, "")


def test_records_that_changed_between_two_reads_are_found(spark):
    from raftlog.spark.connector.offsets import TopicPlace
    from raftlog.spark.jobs.log_job import density, fingerprints, immutable

    def log(change=None, without=None):
        made = [
            ("t", 0, at, b"k", b"v" if at != change else b"w", 7, 0)
            for at in range(5)
            if at != without
        ]
        schema = "topic STRING, partition INT, offset LONG, key BINARY, value BINARY, "
        return spark.createDataFrame(made, schema + "timestamp LONG, timestampType INT")

    before = fingerprints(log())
    assert immutable(before, fingerprints(log())).holds
    found = immutable(before, fingerprints(log(change=3)))
    assert (found.failures, found.evidence) == (1, "t-0, offsets 0 to 65535")
    borders = {TopicPlace("t", 0): 0}, {TopicPlace("t", 0): 5}
    assert density(log(), *borders).holds
    assert "has 4 of them" in density(log(without=2), *borders).evidence
    assert not density(log(), {TopicPlace("t", 0): 0}, {TopicPlace("t", 0): 6}).holds


def rows_of(verdict):
    """How often each class was found, and whether that is wrong."""
    return {
        name: (result.count, result.status)
        for name, result in verdict.classes.items()
        if result.status != "not checked"
    }


def test_an_empty_topic_passes_no_check(spark, cluster, client, topic, tmp_path):
    """Without offsets a check says nothing."""
    client.create_topic(topic, partitions=1, replication_factor=1)
    with (tmp_path / "history.jsonl").open("w") as file:
        HistoryWriter(file, Header(source="blackbox")).close()
    found = job(spark, cluster, topic, tmp_path)
    assert {check.status for check in found.log} == {"not exercised"}
    assert found.verdict == "unknown"


# --- histories without a topic --------------------------------------------------------------------


def written(lines) -> str:
    """A history with polls, batches, lengths and log starts, from a generator's operations."""
    sink = io.StringIO()
    writer = HistoryWriter(sink, Header(source="blackbox", options={"pipelined": True}))
    for at, (f, key, asked, kind, value, more) in enumerate(lines):
        writer.invoke(at, f, time_ns=2 * at, key=key, value=asked)
        if kind is not None:
            writer.complete(at, kind, time_ns=2 * at + 5, value=value, **more)
    writer.nemesis("kill", time_ns=999, value={"node": "n1"})
    writer.close()
    return sink.getvalue()


LINES = [
    ("send", "t/0", "a#1", "ok", [0, "a#1"], {}),
    ("send", "t/0", ["a#2", "b#3"], "ok", [1, ["a#2", "b#3"]], {}),
    ("send", "t/1", 17, "info", None, {}),
    ("send", "t/0", 'umlaut ä \\ " #4', "fail", None, {}),
    ("send", "t/1", "#5", None, None, {}),
    ("poll", None, {"t/0": 0}, "ok", {"t/0": [[0, "a#1"], [1, "a#2"]], "t/1": [[0, 17]]}, {}),
    ("poll", None, {"t/0": 0}, "info", {"t/0": 0}, {}),
    ("poll", None, None, "ok", {}, {"log_start": {"t/0": 0}}),
    ("end", "t/0", None, "ok", 3, {"log_start": 1}),
    ("start", "t/1", None, "ok", 0, {}),
    ("empty", "t/1", 2, "ok", 2, {}),
]


def test_lines_become_the_rows_of_their_operations(spark, tmp_path):
    text = written(LINES)
    (tmp_path / "history.jsonl").write_text(text)
    operations, _ = intervals(HistoryReader(io.StringIO(text)))
    history_to_parquet(spark, tmp_path, tmp_path / "parquet")
    for path in (tmp_path, tmp_path / "parquet"):
        tables = tables_of(read_history(spark, path).operations)
        for table, made in zip(
            tables, (rows.sends, rows.reads, rows.lengths, rows.log_starts), strict=True
        ):
            found = [tuple(row[name] for name in table.columns) for row in table.collect()]
            wanted = [row for op in operations for row in made(op, op.key)]
            assert len(found) == len(wanted)
            assert sorted(map(_comparable, found)) == sorted(map(_comparable, wanted))


def _comparable(row: tuple) -> str:
    """Without the key, which the reference rows of polls do not name, and JSON's spaces."""
    return str([json.loads(each) if _is_json(each) else each for each in row[1:]])


def _is_json(value) -> bool:
    return isinstance(value, str) and value[:1] in ('"', "1")


def test_a_history_gets_the_single_process_verdict(spark, tmp_path):
    """Two sends of one log lie against their order: the pair is told in the same words."""
    lines = [("send", "t/0", f"k#{at}", "ok", [at, f"k#{at}"], {}) for at in range(12)]
    lines.append(("poll", None, None, "ok", {"t/0": [[at, f"k#{at}"] for at in range(12)]}, {}))
    lines[4], lines[9] = lines[9], lines[4]
    text = written(lines)
    (tmp_path / "history.jsonl").write_text(text)
    expected = check_history(io.StringIO(text))
    found = judge_history(spark, read_history(spark, tmp_path))
    assert found.verdict == expected.verdict == "invalid"
    for name in ("linearizability", "duplicate", "phantom", "lost-write", "unseen", "G1a"):
        mine, single = found.classes[name], expected.classes[name]
        assert (mine.count, mine.status) == (single.count, single.status), name
    told = expected.classes["linearizability"].witness
    assert found.classes["linearizability"].witness.text == told.text


def statuses(findings: Findings) -> dict[str, str]:
    return {entry.name: findings.result(entry.name, allowed=False).status for entry in CLASSES}


@pytest.mark.parametrize("what", ["valid", "no reads", "touching", "wrong"])
def test_cycles_are_those_of_one_process(spark, tmp_path, monkeypatch, what):
    """Ruled out where the scan does, else searched for by the driver, while the history is small
    enough for it; a larger one is unknown, never valid."""
    sink = io.StringIO()
    writer = HistoryWriter(sink, Header(source="blackbox"))
    length = 10 if what == "touching" else 5
    for at in range(4):
        writer.invoke(1, "send", time_ns=10 * at, key="t/0", value=f"k#{at}")
        place = 3 - at if what == "wrong" else at
        writer.complete(1, "ok", time_ns=10 * at + length, value=[place, f"k#{at}"])
    if what != "no reads":
        places = range(3, -1, -1) if what == "wrong" else range(4)
        pairs = sorted([place, f"k#{at}"] for at, place in enumerate(places))
        writer.invoke(2, "poll", time_ns=60, value={"t/0": 0})
        writer.complete(2, "ok", time_ns=70, value={"t/0": pairs})
    writer.close()
    (tmp_path / "history.jsonl").write_text(sink.getvalue())
    expected = check_history(io.StringIO(sink.getvalue()))
    assert expected.verdict == ("invalid" if what == "wrong" else "valid")
    history = read_history(spark, tmp_path)
    if what == "valid":
        verdict = judge_history(spark, history)
        assert verdict.verdict == "valid"
        status = {name: found.status for name, found in verdict.classes.items()}
    else:
        findings = Findings()
        if what == "wrong":
            assert expected.classes["linearizability"].count
            findings.add("linearizability", lambda: None, 1)
        polled = what != "no reads"
        _judge_cycles(findings, history.operations, {}, placed=True, polled=polled)
        status = statuses(findings)
        if what in ("touching", "wrong"):
            monkeypatch.setattr(verify_job, "SEARCHED_MAX", 4)
            large = Findings()
            large.counts.update(findings.counts)
            _judge_cycles(large, history.operations, {}, placed=True, polled=polled)
            assert statuses(large)["G0"] == statuses(large)["G1c"] == "unknown"
    for name in ("G0", "G0-process", "G0-realtime", "G1c", "G1c-process", "G1c-realtime"):
        assert status[name] == expected.classes[name].status, name


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "empty"),
        ('{"format": 99}\n', "format 99"),
        ('{"format": 1, "source": "sim"}\nnonsense\nnonsense\n', "not JSON"),
    ],
)
def test_what_is_no_history_is_refused(spark, tmp_path, text, said):
    (tmp_path / "history.jsonl").write_text(text)
    with pytest.raises(OperatingError, match=said):
        read_history(spark, tmp_path)


def test_lines_that_contradict_each_other_are_refused(spark, tmp_path):
    text = written([("send", "t/0", "a#1", "ok", [0, "a#1"], {})])
    header, invoke, done, _ = text.splitlines()
    for lines in ([header, done], [header, invoke, invoke.replace('"index": 0', '"index": 9')]):
        (tmp_path / "history.jsonl").write_text("\n".join(lines) + "\n")
        with pytest.raises(BadHistory):
            read_history(spark, tmp_path)
    with pytest.raises(OperatingError, match="no history"):
        read_history(spark, tmp_path / "nowhere")


def test_a_partition_that_a_client_chose_is_refused_by_name(spark, tmp_path):
    (tmp_path / "history.jsonl").write_text(written([("send", "t/?", "a#1", "info", None, {})]))
    with pytest.raises(OperatingError, match="raftlog verify"):
        read_history(spark, tmp_path)
