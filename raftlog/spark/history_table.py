"""A history as Spark tables: lines are paired into operations, operations become rows.

A history is a run's folder, a `history.jsonl`, or a folder of Parquet that `history_to_parquet`
made of one: the columns of a line, some of them as JSON texts (`JSON_COLUMNS`), and the header in
`_header.json` beside them. The rules are those of `raftlog.verify.histories.pairing`; a history
that breaks them raises `BadHistory` here too.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from raftlog.base.errors import LocalMisuse, OperatingError
from raftlog.spark.jobs.chain_job import LENGTHS, LOG_STARTS, READS, SENDS, Tables
from raftlog.verify.histories.history import UNKNOWN_PARTITION, BadHistory, Header
from raftlog.verify.histories.history_reader import HistoryReader, header_of
from raftlog.verify.histories.interval import OPEN

HISTORY_FILE: Final = "history.jsonl"
HEADER_FILE: Final = "_header.json"

LINE_COLUMNS: Final = {
    "index": "BIGINT",
    "time_ns": "BIGINT",
    "process": "BIGINT",
    "type": "STRING",
    "f": "STRING",
    "key": "STRING",
    "value": "STRING",
    "log_start": "STRING",
    "rebalance": "STRING",
    "node": "STRING",
    "term": "STRING",
    "hw": "STRING",
    "producer": "STRING",
    "member": "STRING",
}
EVIDENCE: Final = ("node", "term", "hw", "producer", "member")
"""The columns with evidence from brokers and group members, besides log starts."""
JSON_COLUMNS: Final = ("value", "log_start", "rebalance", *EVIDENCE)
"""The columns that are kept as JSON texts, because their shapes vary."""


class History(NamedTuple):
    """A header, and the operations: op (the index of the call), done (that of the completion, null
    where there is none), process, f, key, kind, start_ns, end_ns, and as JSON texts asked, value,
    log_start, rebalance and `EVIDENCE`."""

    header: Header
    operations: DataFrame


def read_history(spark: SparkSession, path: str | Path) -> History:
    """Read the history at `path`. `BadHistory` for a file that is none."""
    header, lines = _lines(spark, Path(path))
    return History(header, _operations(lines))


def history_to_parquet(spark: SparkSession, path: str | Path, out: str | Path) -> None:
    """Write a history as Parquet, which reads several times as fast and need not be one file."""
    header, lines = _lines(spark, Path(path))
    lines.write.parquet(str(out))
    (Path(out) / HEADER_FILE).write_text(json.dumps(header.document()) + "\n", encoding="utf-8")


def _lines(spark: SparkSession, path: Path) -> tuple[Header, DataFrame]:
    """The header and the lines of clients. Lines of the nemesis are dropped, because no check uses
    them."""
    if path.is_dir() and (path / HEADER_FILE).exists():
        header = header_of(json.loads((path / HEADER_FILE).read_text(encoding="utf-8")))
        lines = spark.read.parquet(str(path))
        # Without the evidence columns, a history might pass that the single process calls invalid.
        if not set(JSON_COLUMNS) <= set(lines.columns):
            raise OperatingError(
                "this Parquet was made before all evidence was kept in it",
                on=str(path),
                do="make it again with history_to_parquet",
            )
        return header, lines
    file = path / HISTORY_FILE if path.is_dir() else path
    if not file.exists():
        raise OperatingError("there is no history", on=str(path), do="give a run's folder")
    with file.open(encoding="utf-8") as stream:
        header = HistoryReader(stream).header
    # A header has no index; JSON is kept as text where its shape varies.
    parsed = spark.read.text(str(file)).selectExpr(
        "value AS line", "try_parse_json(value) AS line_json"
    )
    broken = parsed.where("line_json IS NULL AND trim(line) != ''")
    if broken.limit(2).count() > 1:
        raise BadHistory("lines are not JSON", on=str(file), do="only the last may be torn")
    scalar = [
        f"try_variant_get(line_json, '$.{name}', '{kind}') AS {name}"
        for name, kind in LINE_COLUMNS.items()
        if name not in JSON_COLUMNS
    ]
    # A JSON null means no value, as if the field were missing.
    texts = [
        f"nullif(to_json(variant_get(line_json, '$.{name}')), 'null') AS {name}"
        for name in JSON_COLUMNS
    ]
    lines = parsed.where("line_json IS NOT NULL").selectExpr(*scalar, *texts)
    return header, lines.where("index IS NOT NULL AND process IS NOT NULL")


def _operations(lines: DataFrame) -> DataFrame:
    by_process = Window.partitionBy("process").orderBy("index")
    paired = lines.withColumns(
        {
            "call": F.lag(
                F.struct("index", "time_ns", "type", "f", "key", "value", "producer", "member")
            ).over(by_process),
            "next_type": F.lead("type").over(by_process),
        }
    )
    wrong = paired.where(
        "(type = 'invoke' AND call.type IN ('invoke', 'info')) OR "
        "(type != 'invoke' AND (call IS NULL OR call.type != 'invoke' OR call.f != f "
        "OR NOT (call.key <=> key) OR time_ns < call.time_ns)) OR "
        "(type = 'invoke' AND f = 'send' AND key LIKE '%/?')"
    )
    first = wrong.orderBy("index").limit(1).collect()
    if first and first[0]["type"] == "invoke" and str(first[0]["key"]).endswith(UNKNOWN_PARTITION):
        raise OperatingError(
            "a client chose the partition of this send, which the job cannot follow",
            on=f"index {first[0]['index']}",
            do="judge the history by raftlog verify",
        )
    if first:
        raise BadHistory(
            f"process {first[0]['process']} has a {first[0]['type']} that fits no invocation",
            on=f"index {first[0]['index']}",
        )
    ended = paired.where("type != 'invoke'").selectExpr(
        "call.index AS op",
        "index AS done",
        "process",
        "f",
        "key",
        "type AS kind",
        "call.time_ns AS start_ns",
        f"IF(type = 'info', {OPEN}L, time_ns) AS end_ns",
        "call.value AS asked",
        "IF(type != 'ok' AND value <=> call.value, NULL, value) AS value",
        "log_start",
        "rebalance",
        "node",
        "term",
        "hw",
        "coalesce(producer, call.producer) AS producer",
        "coalesce(member, call.member) AS member",
    )
    left_open = paired.where("type = 'invoke' AND next_type IS NULL").selectExpr(
        "index AS op",
        "CAST(NULL AS BIGINT) AS done",
        "process",
        "f",
        "key",
        "'info' AS kind",
        "time_ns AS start_ns",
        f"{OPEN}L AS end_ns",
        "value AS asked",
        "CAST(NULL AS STRING) AS value",
        "CAST(NULL AS STRING) AS log_start",
        "CAST(NULL AS STRING) AS rebalance",
        "node",
        *(f"CAST(NULL AS STRING) AS {name}" for name in ("term", "hw", "producer")),
        "member",
    )
    return ended.unionByName(left_open)


_CLAIMS: Final = (
    "f = 'send' AND kind = 'info' AND value IS NOT NULL AND substring(value, 1, 1) = '[' "
    "AND to_json(variant_get(parse_json(value), '$[1]')) <=> asked"
)


def tables_of(operations: DataFrame) -> Tables:
    """The tables from which the chain is judged. Refuses operations that only imported histories
    have: transactions, and sends that may have happened but name their offset."""
    if operations.where("f = 'txn'").limit(1).count():
        raise BadHistory("transactions are not judged by Spark", do="use raftlog verify")
    if operations.where(_CLAIMS).limit(1).count():
        raise BadHistory(
            "an info send that names its offset is not judged by Spark", do="use raftlog verify"
        )
    made = (_sends(operations), _reads(operations), _lengths(operations), _starts(operations))
    columns = [
        [column.split()[0] for column in schema.split(", ")]
        for schema in (SENDS, READS, LENGTHS, LOG_STARTS)
    ]
    return Tables(*(table.select(*names) for table, names in zip(made, columns, strict=True)))


def _sends(operations: DataFrame) -> DataFrame:
    asked = "parse_json(asked)"
    is_list = "substring(asked, 1, 1) = '['"
    sends = operations.where("f = 'send'").selectExpr(
        "key",
        "op",
        "0 AS number",
        "kind",
        "start_ns",
        "end_ns",
        "IF(kind = 'ok', variant_get(parse_json(value), '$[0]', 'bigint'), NULL) AS base",
        f"IF({is_list}, transform(CAST({asked} AS ARRAY<VARIANT>), x -> to_json(x)), array(asked)) "
        "AS texts",
    )
    return sends.selectExpr(
        "key",
        "op",
        "number",
        "kind",
        "start_ns",
        "end_ns",
        "size(texts) AS size",
        "base",
        "posexplode(texts) AS (place, value)",
    )


def _reads(operations: DataFrame) -> DataFrame:
    polls = operations.where("f = 'poll' AND value IS NOT NULL").selectExpr(
        "op",
        "kind",
        "end_ns",
        "explode(CAST(parse_json(value) AS MAP<STRING, VARIANT>)) AS (key, pairs)",
    )
    listed = polls.selectExpr(
        "key",
        "op",
        "kind",
        "end_ns",
        "transform(CAST(pairs AS ARRAY<VARIANT>), x -> named_struct("
        "'offset', variant_get(x, '$[0]', 'bigint'), 'value', to_json(variant_get(x, '$[1]')))) "
        "AS pairs",
    )
    return listed.selectExpr(
        "key",
        "op",
        "kind",
        "end_ns",
        "array_max(transform(pairs, x -> x.offset)) + 1 AS gap",
        "inline(pairs)",
    )


def _lengths(operations: DataFrame) -> DataFrame:
    return operations.where("f IN ('end', 'empty', 'start') AND kind = 'ok'").selectExpr(
        "key", "op", "f", "CAST(value AS BIGINT) AS position", "start_ns", "end_ns"
    )


def _starts(operations: DataFrame) -> DataFrame:
    told = operations.where("f = 'start' AND kind = 'ok'").selectExpr(
        "key", "CAST(value AS BIGINT) AS log_start"
    )
    named = operations.where("log_start IS NOT NULL")
    own = named.where("substring(log_start, 1, 1) != '{' AND key IS NOT NULL").selectExpr(
        "key", "CAST(log_start AS BIGINT) AS log_start"
    )
    by_key = named.where("substring(log_start, 1, 1) = '{'").selectExpr(
        "explode(CAST(parse_json(log_start) AS MAP<STRING, BIGINT>)) AS (key, log_start)"
    )
    return told.unionByName(own).unionByName(by_key)


def first_ends_of(header: Header) -> dict[str, int]:
    """Key -> the end of its log when the history began, for keys whose log was not empty then."""
    ends = header.options.get("first_end", {})
    if not isinstance(ends, Mapping):
        raise LocalMisuse("first_end maps keys to offsets")
    return dict(ends)
