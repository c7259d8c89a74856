"""The log itself, checked by Spark: is it whole, does it stay, does it agree with a history?

    density        the offsets of each partition are consecutive, from its start to its end
    immutable      two reads of the same offsets give the same records
    acknowledged   every acknowledged record is there, at its acknowledged offset
    once           no value lies at two places, in any partition
sent           every record was sent in the history, and not by a send that certainly failed
    key-order      records of one key lie in one partition, in an order that agrees with real time:
                   none lies before another whose send had ended before its own began

A record is found in the history by its value there; `name_sql` says how the value follows from the
columns key and value of the log (by default the value's text).
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from raftlog.base.amounts import amount
from raftlog.base.errors import OperatingError
from raftlog.spark.connector.offsets import TopicPlace

NAME_SQL: Final = "CAST(value AS STRING)"
_BLOCK: Final = 1 << 16


class LogCheck(NamedTuple):
    """One check: its claim, how often it fails, the first evidence, and how many offsets it
    checked. A check of no offsets says nothing."""

    name: str
    says: str
    failures: int
    evidence: str = ""
    checked: int = 1

    @property
    def holds(self) -> bool:
        return self.failures == 0

    @property
    def status(self) -> str:
        """`valid`, `invalid`, or `not exercised`."""
        if not self.holds:
            return "invalid"
        return "valid" if self.checked else "not exercised"

    def document(self) -> dict[str, object]:
        """The check as JSON reports have it."""
        return {
            "says": self.says,
            "status": self.status,
            "count": self.failures,
            "checked": self.checked,
            "evidence": self.evidence,
        }


def density(
    log: DataFrame, first: Mapping[TopicPlace, int], end: Mapping[TopicPlace, int]
) -> LogCheck:
    """Check that offsets have no gaps between the first and end offsets that the cluster
    reported."""
    rows = log.groupBy("topic", "partition").agg(
        F.count("*").alias("records"),
        F.min("offset").alias("low"),
        F.max("offset").alias("high"),
        F.count_distinct("offset").alias("offsets"),
    )
    found = {TopicPlace(row["topic"], row["partition"]): row for row in rows.collect()}
    wrong: list[str] = []
    for place in sorted(end):
        row = found.get(place)
        expected = (first[place], end[place] - 1, end[place] - first[place])
        told = (
            (first[place], end[place] - 1, 0)
            if row is None
            else (row["low"], row["high"], row["offsets"])
        )
        if told != expected or (row is not None and row["records"] != row["offsets"]):
            wrong.append(
                f"{place} should have offsets {expected[0]} to {expected[1]} and has "
                f"{told[2]} of them, from {told[0]} to {told[1]}"
            )
    total = sum(end[place] - first[place] for place in end)
    offsets = amount(total, "offset", grouped=True)
    says = f"offsets are consecutive: {offsets} in {amount(len(end), 'partition')}"
    return LogCheck("density", says, len(wrong), wrong[0] if wrong else "")


def fingerprints(log: DataFrame) -> DataFrame:
    """A hash for each stretch of offsets, which changes with any change of the content."""
    content = F.xxhash64("offset", "key", "value", "timestamp", "timestampType")
    again = F.xxhash64(F.lit(1), "value", "offset", "key", "timestamp")
    return log.groupBy("topic", "partition", F.expr(f"offset DIV {_BLOCK}").alias("block")).agg(
        F.bit_xor(content).alias("mixed"),
        F.bit_xor(again).alias("again"),
        F.count("*").alias("records"),
    )


def immutable(before: DataFrame, after: DataFrame) -> LogCheck:
    """Compare the fingerprints of two reads of the same offsets."""
    names = ["topic", "partition", "block"]
    both = before.join(
        after.selectExpr(*names, "mixed AS mixed_2", "again AS again_2", "records AS records_2"),
        names,
        "full_outer",
    )
    changed = both.where(
        "NOT (mixed <=> mixed_2 AND again <=> again_2 AND records <=> records_2)"
    ).orderBy(*names)
    rows = changed.collect()
    evidence = ""
    if rows:
        row = rows[0]
        start = row["block"] * _BLOCK
        evidence = f"{row['topic']}-{row['partition']}, offsets {start} to {start + _BLOCK - 1}"
    return LogCheck("immutable", "two reads gave the same records", len(rows), evidence)


def named(log: DataFrame, name_sql: str = NAME_SQL) -> DataFrame:
    """The log as (key, offset, value), which are the history's names for partition and record."""
    text = f"to_json(named_struct('v', {name_sql}))"
    return log.selectExpr(
        "concat(topic, '/', partition) AS key",
        "offset",
        f"IF({text} = '{{}}', 'null', substring({text}, 6, length({text}) - 6)) AS value",
    )


def against_history(
    log: DataFrame, sends: DataFrame, log_starts: Mapping[str, int]
) -> list[LogCheck]:
    """Check a log (from `named`) against the sends of its history, with one join."""
    started = [(key, start) for key, start in sorted(log_starts.items()) if start > 0]
    both = log.join(sends, ["key", "value"], "full_outer").persist()
    try:
        checks = [
            _acknowledged(both, started),
            _once(log),
            _sent(both),
            _key_order(both),
        ]
    finally:
        both.unpersist()
    return checks


def _acknowledged(both: DataFrame, started: list[tuple[str, int]]) -> LogCheck:
    acked = both.where("kind = 'ok'")
    total = acked.select("key", "value").distinct().count()
    lost = acked.where("offset IS NULL OR (base IS NOT NULL AND offset != base + place)")
    for key, start in started:
        lost = lost.where(~((F.col("key") == key) & F.expr(f"base + place < {start}L")))
    says = (
        f"each of {amount(total, 'acknowledged record', grouped=True)} is there, where it "
        "was acknowledged"
    )
    return _check(
        "acknowledged",
        says,
        lost,
        "concat(value, ' of ', key, ', acknowledged at ', "
        "coalesce(base + place, '?'), ', is ', coalesce(concat('at ', offset), 'missing'))",
    )


def _once(log: DataFrame) -> LogCheck:
    twice = (
        log.groupBy("value")
        .agg(
            F.count("*").alias("copies"),
            F.sort_array(F.collect_list(F.concat_ws(" ", "key", "offset"))).alias("places"),
        )
        .where("copies > 1")
    )
    return _check(
        "once",
        "no record is there twice",
        twice,
        "concat(value, ' lies at ', array_join(slice(places, 1, 4), ' and '))",
    )


def _sent(both: DataFrame) -> LogCheck:
    strange = both.where("offset IS NOT NULL AND (op IS NULL OR kind = 'fail')")
    return _check(
        "sent",
        "every record was sent, by no send that failed",
        strange,
        "concat(value, ' at offset ', offset, ' of ', key, ' was ', "
        "IF(op IS NULL, 'never sent', 'refused'))",
    )


def _key_order(both: DataFrame) -> LogCheck:
    """Check `key-order`. The record key is the part of a value before the #."""
    keyed = both.where(
        "offset IS NOT NULL AND op IS NOT NULL AND instr(value, '#') > 2"
    ).selectExpr(
        "key",
        "offset",
        "value",
        "start_ns",
        "end_ns",
        "substring_index(value, '#', 1) AS record_key",
    )
    before = (
        Window.partitionBy("record_key")
        .orderBy("key", "offset")
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    rows = keyed.withColumn("latest", F.max(F.struct("start_ns", "value")).over(before)).withColumn(
        "first_key", F.min("key").over(before)
    )
    wrong = rows.where("latest.start_ns > end_ns OR first_key != key")
    keys = keyed.select("record_key").distinct().count()
    return _check(
        "key-order",
        f"the order of each of {amount(keys, 'key', grouped=True)} is kept",
        wrong,
        "concat(value, ' at offset ', offset, ' of ', key, "
        "IF(first_key != key, concat(', other records of its key in ', first_key), "
        "concat(' lies behind ', latest.value, ', which was sent after it')))",
    )


def _check(name: str, says: str, wrong: DataFrame, evidence: str) -> LogCheck:
    found = wrong.selectExpr(f"{evidence} AS evidence").agg(
        F.count("*").alias("count"), F.min("evidence").alias("first")
    )
    row = found.collect()[0]
    return LogCheck(name, says, row["count"], row["first"] or "")


def check_borders(first: Mapping[TopicPlace, int], end: Mapping[TopicPlace, int]) -> None:
    """Refuse a topic without partitions, which cannot be checked."""
    if not end:
        raise OperatingError("there are no partitions to check", on="topic")
    assert sorted(first) == sorted(end), (first, end)
