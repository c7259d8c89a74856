"""Judges what brokers and group members report, on Spark (`raftlog.verify.evidence`).

All of these checks are local to a key. So one task gets all operations that touch a key, and judges
them as the single process does (`raftlog.verify.judging.evidence`). A key of more than
`KEY_BYTES_MAX` is left out. Its classes are then `unknown`, unless another key breaks them. They
are never valid, because the single process might find them broken.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from raftlog.verify.histories.history import BadHistory, Op
from raftlog.verify.histories.interval import OPEN, Interval
from raftlog.verify.histories.pairing import interval_of
from raftlog.verify.histories.pairs import KnownLog
from raftlog.verify.judging import anomalies, evidence
from raftlog.verify.judging.explain import describe
from raftlog.verify.judging.facts import Facts, per_key
from raftlog.verify.judging.verdict import Findings, Witness

KEY_BYTES_MAX: Final = 1 << 29
"""The most bytes of JSON of one key's operations, plus 200 B for each: some 2 GiB in a task."""
CARRIED: Final = {
    "hw-regression": "hw IS NOT NULL AND kind = 'ok' AND node IS NOT NULL",
    "read-above-hw": "hw IS NOT NULL AND kind = 'ok'",
    "truncated-below-hw": "hw IS NOT NULL AND kind = 'ok'",
    "two-leaders-one-term": "f = 'send' AND kind = 'ok' AND node IS NOT NULL AND term IS NOT NULL",
    "ack-regression": "f = 'send' AND producer IS NOT NULL",
    "duplicate-sequence": "f = 'send' AND producer IS NOT NULL",
    "log-start-overrun": "log_start IS NOT NULL OR (f = 'start' AND kind = 'ok')",
    "offset-commit-regression": "f = 'offset_fetch' AND kind = 'ok'",
    "fork": "f = 'poll' AND node IS NOT NULL AND value != '{}'",
}
"""Each class -> the condition for operations that carry its evidence."""
ELSEWHERE: Final = "not judged by Spark; raftlog verify judges it on one machine"

FOUND: Final = "name STRING, count BIGINT, first BIGINT, told STRING"
"""The columns for a class for which a key has evidence: how often it is broken, the last operation
of the first witness, and that witness as JSON. The name '' means a `BadHistory`, with its text."""
_ARROW_FOUND: Final = pa.schema(
    [
        pa.field("name", pa.string()),
        pa.field("count", pa.int64()),
        pa.field("first", pa.int64()),
        pa.field("told", pa.string()),
    ]
)
_TOUCHES: Final = """array_distinct(array_compact(flatten(array(
    array(key),
    IF(f IN ('poll', 'offset_fetch'), coalesce(json_object_keys(value), array()), array()),
    IF(f = 'offset_commit',
       coalesce(json_object_keys(get_json_object(asked, '$[1]')), array()), array()),
    coalesce(json_object_keys(hw), array()),
    coalesce(json_object_keys(log_start), array())
))))"""


def judge_evidence(
    operations: DataFrame,
    findings: Findings,
    *,
    options: Mapping[str, Any],
    mode: str,
    first_ends: Mapping[str, int],
    bytes_max: int = KEY_BYTES_MAX,
) -> None:
    """Judge every class whose evidence a history carries, and add the results to `findings`."""
    carried = carried_classes(operations)
    if not carried:
        return
    touching = operations.withColumn("of", F.explode(F.expr(_TOUCHES)))
    size = "200 + length(coalesce(asked, '')) + length(coalesce(value, ''))"
    sizes = touching.groupBy("of").agg(F.sum(F.expr(size)).alias("size"))
    small = sizes.where(f"size <= {bytes_max}")
    if sizes.where(f"size > {bytes_max}").limit(1).count():
        for name in carried:
            findings.give_up(name, ELSEWHERE)
    judged = touching.join(small.select("of"), "of").groupBy("of")
    rows = judged.applyInArrow(_judged_key(dict(options), mode, dict(first_ends)), FOUND).collect()
    for row in sorted(rows, key=lambda row: (row["name"], row["first"])):
        if not row["name"]:
            raise BadHistory(row["told"])
        findings.check(row["name"])
        if row["count"]:
            findings.add(row["name"], partial(_told, operations, row), row["count"])


def carried_classes(operations: DataFrame) -> list[str]:
    """The classes for which a history has evidence, or some part of it."""
    told = operations.agg(
        *(
            F.bool_or(F.expr(f"coalesce({when}, false)")).alias(f"`{name}`")
            for name, when in CARRIED.items()
        )
    ).collect()[0]
    return [name for name, has in zip(CARRIED, told, strict=True) if has]


def interval_of_row(row: Mapping[str, Any] | Row, logs: dict[str, KnownLog]) -> Interval:
    """The operation of a row of `history_table.History`."""

    def parsed(name: str) -> Any:
        return None if row[name] is None else json.loads(row[name])

    f, key, process = row["f"], row["key"], row["process"]
    call = Op(row["op"], row["start_ns"], process, "invoke", f, key, parsed("asked"))
    call.node = parsed("node")
    if row["done"] is None:
        call.member = parsed("member")
        return interval_of(call, None, logs)
    # An `info` has no end; only the time of its call is kept.
    time_ns = row["end_ns"] if row["end_ns"] < OPEN else row["start_ns"]
    end = Op(row["done"], time_ns, process, row["kind"], f, key, parsed("value"))
    for name in ("node", "term", "hw", "producer", "member", "log_start", "rebalance"):
        setattr(end, name, parsed(name))
    return interval_of(call, end, logs)


def _told(operations: DataFrame, row: Row) -> Witness:
    told = json.loads(row["told"])
    rows = operations.where(operations["op"].isin(told["operations"])).collect()
    ops = {row["op"]: interval_of_row(row, {}) for row in rows}
    told["operations"] = tuple(ops[index] for index in told["operations"])
    return Witness(**told)


# --- one key, in a task ---------------------------------------------------------------------------


def _judged_key(
    options: Mapping[str, Any], mode: str, first_ends: Mapping[str, int]
) -> Callable[[tuple[Any, ...], pa.Table], pa.Table]:
    def judged(group: tuple[Any, ...], table: pa.Table) -> pa.Table:
        key = group[0].as_py()
        try:
            found = list(_found(key, table.to_pylist(), options, mode, first_ends))
        except BadHistory as why:
            found = [{"name": "", "count": 0, "first": 0, "told": str(why)}]
        return pa.Table.from_pylist(found, schema=_ARROW_FOUND)

    return judged


def _found(
    key: str,
    rows: list[dict[str, Any]],
    options: Mapping[str, Any],
    mode: str,
    first_ends: Mapping[str, int],
) -> Iterable[dict[str, Any]]:
    # The single process sees operations in the order in which they end, and then those that never
    # end.
    rows.sort(key=lambda row: (row["done"] is None, row["done"], row["op"]))
    logs = {key: KnownLog(key)}
    whole: dict[int, Interval] = {}
    mine: list[Interval] = []
    for row in rows:
        op = interval_of_row(row, logs)
        own = of_key(op, key)
        mine.append(own)
        if own is not op:
            whole[op.index] = op
    findings = Findings()
    judge_key(key, mine, findings, options, mode, first_ends)
    for name in findings.checked:
        told: dict[str, Any] | None = None
        first = -1
        if name in findings.witnesses:
            told = _document(findings.witnesses[name], whole)
            first = max(told["operations"])
        count = findings.counts.get(name, 0)
        yield {"name": name, "count": count, "first": first, "told": json.dumps(told)}


def judge_key(
    key: str,
    operations: list[Interval],
    findings: Findings,
    options: Mapping[str, Any],
    mode: str,
    first_ends: Mapping[str, int],
) -> None:
    """Judge the classes of evidence for one key, from the operations that touch it, reduced to that
    key."""
    facts = Facts({key: first_ends[key]} if key in first_ends else {})
    facts.add_all(operations)
    if any(op.node is not None and op.reads() for op in facts.others):
        findings.check("fork")
    if key in facts.keys and facts.keys[key].also_at:
        anomalies.forks(facts.keys[key], operations, findings)
    evidence.check(operations, facts, findings, options=options, mode=mode)


def of_key(op: Interval, key: str) -> Interval:
    """The operation reduced to `key`; `op` itself when it concerns no other key."""
    told = dict(op.evidence or {})
    for name in ("hw", "log_start"):
        if type(told.get(name)) is dict or op.key != key:
            told[name] = {at: number for at, number in per_key(op, told.get(name)) if at == key}
            if not told[name]:
                del told[name]
    if op.key is not None and op.key != key:
        return msgspec.structs.replace(op, f="other", key=None, value=None, evidence=told or None)
    changed: dict[str, Any] = {}
    if told != (op.evidence or {}):
        changed["evidence"] = told or None
    if op.f in ("poll", "offset_fetch") and op.value and list(op.value) != [key]:
        changed["value"] = {at: said for at, said in op.value.items() if at == key}
    if op.f == "offset_commit" and list(op.asked[1]) != [key]:
        asked = {at: offset for at, offset in op.asked[1].items() if at == key}
        changed["asked"] = [op.asked[0], asked]
    return msgspec.structs.replace(op, **changed) if changed else op


def _document(witness: Witness, whole: Mapping[int, Interval]) -> dict[str, Any]:
    """A witness as JSON, with its operations in full."""
    text = witness.text
    for op in witness.operations:
        if op.index in whole:
            text = text.replace(describe(op), describe(whole[op.index]))
    return {
        "text": text,
        "key": witness.key,
        "offset": witness.offset,
        "operations": [op.index for op in witness.operations],
        "detail": dict(witness.detail),
    }
