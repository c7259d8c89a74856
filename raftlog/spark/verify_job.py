"""The verification job: Spark judges a topic together with the history of its clients.

    report = verify(spark, history="runs/latest", bootstrap="localhost:9092", topic="orders")
    print(report.verdict, report.log)

The judge of `raftlog verify` judges a small history on the driver. A larger one is judged by the
same rules on all of Spark's cores: in the classes that need values, places and intervals
(`chain_job.CLASSES`) and in those that follow one process (`process_job.CLASSES`). The scan usually
rules cycles of operations out (`raftlog.verify.judging.cycles`). If not, they are left to the
single process and are reported as `not checked`. Evidence from brokers is judged key by key
(`evidence_job.CARRIED`). The log is read from the brokers twice.
"""

import json
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from raftlog.base.amounts import amount
from raftlog.base.units import MIB
from raftlog.spark.connector.cluster import ClusterView
from raftlog.spark.connector.offsets import KnownOffsets
from raftlog.spark.connector.options import Mode, read_options
from raftlog.spark.history_table import (
    HISTORY_FILE,
    History,
    first_ends_of,
    read_history,
    tables_of,
)
from raftlog.spark.jobs import log_job
from raftlog.spark.jobs.chain_job import CLASSES as JUDGED
from raftlog.spark.jobs.chain_job import KeyResult, Tables, judge_tables
from raftlog.spark.jobs.evidence_job import ELSEWHERE, interval_of_row, judge_evidence
from raftlog.spark.jobs.log_job import LogCheck
from raftlog.spark.jobs.process_job import SESSIONS, ProcessStep, judge_processes
from raftlog.spark.jobs.verify_report import SparkReport, judgement_of
from raftlog.verify.histories.interval import Interval
from raftlog.verify.judging import cycles
from raftlog.verify.judging.anomalies import CONFLICTS
from raftlog.verify.judging.check import Judgement, judge, mode_of
from raftlog.verify.judging.classes import CLASSES, G0, G1C, GROUP_CLASSES, allowed_by_default
from raftlog.verify.judging.facts import Facts
from raftlog.verify.judging.linearizability import CLASS, ChainViolation, pair_witness
from raftlog.verify.judging.process_order import session_witness, step_witness
from raftlog.verify.judging.verdict import Findings, Verdict, Witness, with_note_on_nothing
from raftlog.verify.report.proof import digest_of

NEED_READS: Final = ("G1a", "lost-write", "unseen")
SCANNED: Final = ("linearizability", "duplicate", "phantom", "G1a", "inconsistent-offsets")
"""The classes of the scan: if none of them is found, the scan of every key passed."""
SEARCHED_MAX: Final = 200_000
"""The most operations among which the driver searches for cycles: a few hundred megabytes."""
NOT_UNDER_COMPACTION: Final = ("lost-write", "poll-skip", "int-poll-skip", "unseen")
SMALL_BYTES_MAX: Final = 64 * MIB
"""The largest history.jsonl that the driver judges by itself, in some ten seconds."""
QUICK_TO_BEGIN: Final = {
    "spark_driver_extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark_sql_codegen_wholeStage": "false",
    "spark_sql_codegen_factoryMode": "NO_CODEGEN",
    "spark_sql_adaptive_enabled": "false",
}
"""Settings for a session that judges little data, where compiling a query costs more than it
saves."""
KEPT_RECORDS_MAX: Final = 1_000_000
"""The most records of a topic that Spark caches between the checks of one read."""


def _say_nothing(step: str) -> None:
    del step


def verify(
    spark: SparkSession,
    history: str | Path,
    *,
    bootstrap: str | None = None,
    topic: str | None = None,
    name_sql: str = log_job.NAME_SQL,
    say: Callable[[str], None] = _say_nothing,
    small_bytes_max: int = SMALL_BYTES_MAX,
) -> SparkReport:
    """Judge a history and, if one is given, the topic that it is about.

    This process judges a history of at most `small_bytes_max` itself, as `raftlog verify` does,
    because Spark takes longer to start. `say` is called with a line when a step begins."""
    path = Path(history)
    judgement: Judgement | None = None
    digest = ""
    if is_small(path, small_bytes_max):
        say("judging the history")
        with _file_of(path).open("rb") as stream:
            judgement = judge(stream)
            stream.seek(0)
            digest = digest_of(stream)
    read: History | None = None
    checks: tuple[LogCheck, ...] = ()
    try:
        if judgement is None or (topic is not None and bootstrap is not None):
            say("reading the history")
            read = read_history(spark, path)
            read = read._replace(operations=read.operations.persist())
        if read is not None and topic is not None and bootstrap is not None:
            checks = verify_topic(spark, read, bootstrap, topic, name_sql, say)
        if judgement is None:
            assert read is not None
            say("judging the history")
            judgement = judgement_of(judge_history(spark, read), read.header)
    finally:
        if read is not None:
            read.operations.unpersist()
    return SparkReport(
        judgement=judgement, log=checks, topic=topic, place=str(history), history_sha256=digest
    )


def is_small(path: Path, bytes_max: int = SMALL_BYTES_MAX) -> bool:
    """Whether a history is one file that a single process judges within seconds."""
    file = _file_of(path)
    return file.is_file() and file.stat().st_size <= bytes_max


def _file_of(path: Path) -> Path:
    return path / HISTORY_FILE if path.is_dir() else path


# --- the log --------------------------------------------------------------------------------------


def verify_topic(
    spark: SparkSession,
    history: History,
    bootstrap: str,
    topic: str,
    name_sql: str,
    say: Callable[[str], None] = _say_nothing,
) -> tuple[LogCheck, ...]:
    """Run every check of `raftlog.spark.jobs.log_job` on the present offsets of a topic."""
    options = {"bootstrap.servers": bootstrap, "subscribe": topic}
    with ClusterView(read_options(options, Mode.BATCH)) as view:
        known = view.known()
    log_job.check_borders(known.first, known.end)
    total = sum(known.end[place] - known.first[place] for place in known.end)
    say(f"reading {topic}, {amount(total, 'offset', grouped=True)}, for the first time")
    log = read_topic(spark, bootstrap, known)
    if total <= KEPT_RECORDS_MAX:
        log = log.persist()
    before = log_job.fingerprints(log).persist()
    before.count()
    sends = tables_of(history.operations).sends
    starts = {f"{place.topic}/{place.partition}": at for place, at in known.first.items()}
    mine = sends.where(sends["key"].startswith(f"{topic}/"))
    say(f"comparing {topic} with its history")
    checks = [
        log_job.density(log, known.first, known.end),
        *log_job.against_history(log_job.named(log, name_sql), mine, starts),
    ]
    # Spark would use its cached rows for the second read, too.
    log.unpersist()
    say(f"reading {topic} again")
    checks.append(
        log_job.immutable(before, log_job.fingerprints(read_topic(spark, bootstrap, known)))
    )
    before.unpersist()
    return tuple(check._replace(checked=total) for check in checks)


def read_topic(spark: SparkSession, bootstrap: str, known: KnownOffsets) -> DataFrame:
    """The topic as a table between fixed offsets, so that every read has the same records."""
    borders: dict[str, dict[str, dict[str, int]]] = {"startingOffsets": {}, "endingOffsets": {}}
    for name, offsets in (("startingOffsets", known.first), ("endingOffsets", known.end)):
        for place, offset in offsets.items():
            borders[name].setdefault(place.topic, {})[str(place.partition)] = offset
    return (
        spark.read.format("raftlog")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", ",".join(sorted(known.ids)))
        .options(**{name: json.dumps(offsets) for name, offsets in borders.items()})
        .load()
    )


# --- the history ----------------------------------------------------------------------------------


def judge_history(spark: SparkSession, history: History) -> Verdict:
    """The verdict of `raftlog.verify.check_history` in the classes of `JUDGED`."""
    header, operations = history
    options = header.options
    mode = mode_of(options)
    tables = tables_of(operations)
    found = judge_tables(
        spark,
        tables,
        mode=mode,
        dense=options.get("dense", True) is not False,
        first_ends=first_ends_of(header),
        unpolled=options.get("final_read") is True,
    )
    allowed = allowed_by_default(header.source, options)
    findings = Findings()
    read = _has_rows(tables.reads)
    placed = read or _has_rows(tables.sends.where("base IS NOT NULL"))
    if placed:
        findings.check(*(name for name in JUDGED if name not in (*NEED_READS, "phantom")))
    elif _has_rows(tables.lengths):
        findings.check(CLASS)
    if read:
        findings.check("phantom")
    polled = _has_rows(tables.reads.where("kind = 'ok'"))
    if polled:
        findings.check(*NEED_READS)
    for key, result in found.items():
        _add(findings, operations, key, result, allowed)
    _add_processes(findings, operations, tables, mode, options)
    _judge_cycles(findings, operations, first_ends_of(header), placed=placed, polled=polled)
    judge_evidence(
        operations, findings, options=options, mode=mode, first_ends=first_ends_of(header)
    )
    if _has_rows(operations.where("member IS NOT NULL")):
        for name in GROUP_CLASSES:
            findings.give_up(name, ELSEWHERE)
    if options.get("final_read", True) is False:
        findings.forget("unseen")
    if options.get("compaction"):
        for name in NOT_UNDER_COMPACTION:
            findings.forget(name)
    return with_note_on_nothing(
        Verdict(
            classes={
                entry.name: findings.result(entry.name, allowed=entry.name in allowed)
                for entry in CLASSES
            },
            operations=operations.count(),
            mode=mode,
            model=header.model,
            notes=_notes(findings),
        )
    )


def _has_rows(rows: DataFrame) -> bool:
    return bool(rows.limit(1).count())


def _notes(findings: Findings) -> list[str]:
    """Notes for the report on the checks that Spark leaves to the single process."""
    left = [name for name, why in findings.exhausted.items() if why == ELSEWHERE]
    return [f"{', '.join(left)}: {ELSEWHERE}"] if left else []


def _add(
    findings: Findings,
    operations: DataFrame,
    key: str,
    result: KeyResult,
    allowed: Collection[str],
) -> None:
    for name, count in result.counts.items():
        if count:
            findings.add(name, partial(_witness, operations, key, name, result), count)
    for name in CONFLICTS:
        count = result.counts[name]
        if count and name not in allowed:
            findings.add(CLASS, partial(_witness, operations, key, name, result), count)
    if result.undecided:
        findings.give_up(CLASS, f"filling holes of {key}")


def _add_processes(
    findings: Findings,
    operations: DataFrame,
    tables: Tables,
    mode: str,
    options: Mapping[str, Any],
) -> None:
    pipelined = bool(options.get("pipelined"))
    found = judge_processes(operations, tables, mode=mode, pipelined=pipelined)
    findings.check(*found.checked)
    for name, by_key in found.counts.items():
        told = partial(_step, operations, name, found.first[name])
        findings.add(name, told, sum(by_key.values()))


def _judge_cycles(
    findings: Findings,
    operations: DataFrame,
    first_ends: Mapping[str, int],
    *,
    placed: bool,
    polled: bool,
) -> None:
    """Judge G0 and G1c. Usually the scan has ruled them out, as `cycles.acyclic_by_scan` explains.
    Otherwise the driver searches a history that fits into memory, as the single process does. For a
    larger one the classes stay unknown."""
    if _acyclic_by_scan(findings, operations):
        if placed and _has_rows(operations.where("f = 'send'")):
            findings.check(*G0)
        if polled:
            findings.check(*G1C)
    elif operations.count() > SEARCHED_MAX:
        for name in (*G0, *G1C):
            findings.give_up(name, ELSEWHERE)
    else:
        rows = operations.orderBy(F.col("done").asc_nulls_last(), "op").collect()
        ops = [interval_of_row(row, {}) for row in rows]
        facts = Facts(dict(first_ends))
        facts.add_all(ops)
        cycles.check(facts, ops, findings)


def _acyclic_by_scan(findings: Findings, operations: DataFrame) -> bool:
    if any(findings.counts.get(name) for name in SCANNED):
        return False
    before = F.lag("end_ns").over(Window.partitionBy("process").orderBy("op"))
    touching = operations.withColumn("before_ns", before).where("before_ns = start_ns")
    return not touching.limit(1).count()


def _step(operations: DataFrame, name: str, step: ProcessStep) -> Witness:
    """The witness of a step, in the words of the single process."""
    ops = _intervals(operations, sorted({step.before_op, step.op}))
    before, after = ops[step.before_op], ops[step.op]
    if name in SESSIONS:
        return session_witness(step.key, step.other, before, after)
    pair = (after,) if name.startswith("int-") else (before, after)
    return step_witness(name, step.key, step.one, step.other, pair)


def _witness(operations: DataFrame, key: str, name: str, result: KeyResult) -> Witness:
    """The witness of a violated pair, in the words of the single process; without a pair, the
    counts and their keys."""
    if name == CLASS and result.first is not None:
        offset, before, after = result.first
        ops = _intervals(operations, [op for op in (before, after) if op is not None and op >= 0])
        pair = ChainViolation(offset, ops.get(before), ops.get(after))
        if pair.before is not None or pair.after is not None:
            return pair_witness(key, pair)
    return Witness(text=f"{result.counts[name]} in {key}", key=key, detail={"kind": "count"})


def _intervals(operations: DataFrame, wanted: list[int]) -> Mapping[int | None, Interval]:
    rows = operations.where(operations["op"].isin(wanted)).collect() if wanted else []
    return {row["op"]: interval_of_row(row, {}) for row in rows}
