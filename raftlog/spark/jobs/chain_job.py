"""The log check as Spark SQL: the verdicts of the judge, from any number of machines.

The theory is that of `raftlog.verify.judging.linearizability`. Three stages, of which each sends a
row through one shuffle at most:

    values     by (key, value)         who sent it, where it was read, where its batch lies
    keys       by key                  what values are judged against; few, kept on the driver
    blocks     by (key, offset // B)   what is told of each offset, judged by
               `raftlog.spark.jobs.blocks`

The last stage is why one huge partition is no harder than many small ones: a block is a task. The
driver carries the running maximum from block to block; only blocks that it changes, and those with
holes, are judged a second time.

Values are compared as texts where they are matched, and by 64 bits of a hash where they merely
share an offset. The hash also comes first in what is sorted by value: numbers sort fast.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, final

import attrs
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from raftlog.base.limits import HOLE_STEPS_DEFAULT
from raftlog.spark.jobs import blocks
from raftlog.spark.jobs.blocks import BlockCarry
from raftlog.spark.jobs.carries import by_number, carried, segments_of
from raftlog.verify.judging import holes
from raftlog.verify.judging.linearizability import LINEARIZABLE

BLOCK_OFFSETS: Final = 1 << 20
"""The number of offsets in one block of the chain: some hundred MB in a task."""
HOLES_MAX: Final = 1_000_000
"""The most stretches of holes that the driver matches. With more, the verdict is unknown."""
CLASSES: Final = (
    "inconsistent-offsets",
    "duplicate",
    "phantom",
    "G1a",
    "lost-write",
    "unseen",
    "linearizability",
)

SENDS: Final = (
    "key STRING, op BIGINT, number INT, place INT, value STRING, kind STRING, "
    "start_ns BIGINT, end_ns BIGINT, size INT, base BIGINT"
)
"""A row for each value of each batch; `base` is the offset of the acknowledgement, or null."""
READS: Final = (
    "key STRING, op BIGINT, kind STRING, end_ns BIGINT, offset BIGINT, value STRING, gap BIGINT"
)
"""A row for each pair that was read; `gap` is one more than the highest offset of that read."""
LENGTHS: Final = "key STRING, op BIGINT, f STRING, position BIGINT, start_ns BIGINT, end_ns BIGINT"
"""Acknowledged `end`, `empty` and `start`."""
LOG_STARTS: Final = "key STRING, log_start BIGINT"
"""Every log start that an answer named."""


class Tables(NamedTuple):
    """A history as four tables, of the columns above."""

    sends: DataFrame
    reads: DataFrame
    lengths: DataFrame
    log_starts: DataFrame


@final
@attrs.frozen
class KeyResult:
    """Counts by class for one key; its first violated pair (offset, before, after), operations by
    their index; whether the holes were too many to be decided."""

    counts: Mapping[str, int]
    first: tuple[int, int | None, int] | None
    undecided: bool = False


def judge_tables(
    spark: SparkSession,
    tables: Tables,
    *,
    mode: str,
    dense: bool = True,
    first_ends: Mapping[str, int] | None = None,
    block: int = BLOCK_OFFSETS,
    hole_steps: int = HOLE_STEPS_DEFAULT,
    unpolled: bool = False,
) -> dict[str, KeyResult]:
    """Judge every key. Keys without any finding are absent. `unpolled`: the history says that it
    ends with a read of everything, so a key that no poll read may be unseen, too."""
    job = _Job(spark, tables, mode == LINEARIZABLE, dict(first_ends or {}), block, unpolled)
    try:
        return job.run(dense, hole_steps)
    finally:
        job.release()


class _Key(NamedTuple):
    """The facts about a key before its blocks are judged. `stop` is the end of the log as far as it
    is known; `several` values were read at more than one offset."""

    number: int
    polled: bool = False
    highest: int = -1
    log_start: int = 0
    first_end: int = 0
    stop: int = 0
    several: int = 0


_KEYS: Final = (
    "key STRING, number INT, polled BOOLEAN, highest BIGINT, log_start BIGINT, first_end BIGINT, "
    "stop BIGINT, several BIGINT"
)
_BATCH: Final = ["key", "op", "number"]
_PLACED: Final = "op IS NOT NULL AND base_low IS NOT NULL"
_NO_RANGE: Final = "CAST(NULL AS STRUCT<base: BIGINT, stop: BIGINT>)"


@final
class _Job:
    """The stages of the job, and the tables that are kept on disk between them."""

    def __init__(
        self,
        spark: SparkSession,
        tables: Tables,
        exact: bool,
        first_ends: dict[str, int],
        block: int,
        unpolled: bool,
    ) -> None:
        self._spark = spark
        self._unpolled = unpolled
        self._tables = tables
        self._exact = exact
        self._first_ends = first_ends
        self._block = block
        self._kept: list[DataFrame] = []
        self._batches = False
        """Whether any batch has several values."""
        self._keys: dict[str, _Key] = {}

    def _keep(self, frame: DataFrame) -> DataFrame:
        kept = frame.persist(StorageLevel.DISK_ONLY)
        self._kept.append(kept)
        return kept

    def release(self) -> None:
        for frame in self._kept:
            frame.unpersist()

    def run(self, dense: bool, hole_steps: int) -> dict[str, KeyResult]:
        values = self._values()
        self._keys = self._known_keys(values)
        names = {each.number: key for key, each in self._keys.items()}
        counts = {key: dict.fromkeys(CLASSES, 0) for key in names.values()}
        self._count_values(values, counts)
        bounds = self._bounds(values)
        rows = self._rows(values, bounds)
        for number, halves in self._halves(bounds).items():
            counts[names[number]]["linearizability"] += halves
        found = self._judged(rows, dense)
        firsts: dict[str, tuple[int, int | None, int]] = {}
        for block in found:
            key = names[block["number"]]
            counts[key]["inconsistent-offsets"] += block["conflicts"]
            counts[key]["linearizability"] += block["violations"]
            if block["first_offset"] is not None and key not in firsts:
                firsts[key] = (block["first_offset"], block["first_before"], block["first_after"])
        undecided: set[str] = set()
        if dense:
            self._fill_holes(found, names, values, counts, undecided, hole_steps)
        return {
            key: KeyResult(counts[key], firsts.get(key), key in undecided) for key in sorted(counts)
        }

    # --- values and batches -----------------------------------------------------------------------

    def _values(self) -> DataFrame:
        """One row a value: its batch, where it was read, where its batch lies. `hash` stands for
        the value, which is kept as `text` only where it was read at several offsets."""
        hashed = "xxhash64(value) AS hash"
        read = (
            self._tables.reads.selectExpr(hashed, "*")
            .groupBy("hash", "key", "value")
            .agg(
                F.min("offset").alias("low"),
                F.max("offset").alias("high"),
                F.bool_or(F.expr("kind = 'ok'")).alias("seen"),
            )
        )
        sends = self._tables.sends.selectExpr(hashed, "*")
        both = sends.join(read, ["hash", "key", "value"], "full_outer")
        both = both.withColumns(
            {
                "seen": F.expr("coalesce(seen, false)"),
                "text": F.expr("IF(low < high, value, NULL)"),
            }
        )
        both = self._keep(both.drop("value"))
        self._batches = bool(both.where("size > 1").limit(1).count())
        single = both.where("coalesce(size, 1) = 1").withColumns(
            {
                "read_low": F.expr("IF(op IS NULL, NULL, low)"),
                "read_high": F.expr("IF(op IS NULL, NULL, high)"),
                "batch_seen": F.col("seen"),
            }
        )
        if not self._batches:
            return _with_bases(single)
        batch = Window.partitionBy(*_BATCH)
        many = both.where("size > 1").withColumns(
            {
                "read_low": F.min(F.expr("low - place")).over(batch),
                "read_high": F.max(F.expr("high - place")).over(batch),
                "batch_seen": F.bool_or("seen").over(batch),
            }
        )
        return self._keep(_with_bases(single.unionByName(many)))

    def _known_keys(self, values: DataFrame) -> dict[str, _Key]:
        known: dict[str, dict[str, Any]] = {key: {} for key in self._first_ends}
        lengths = self._tables.lengths.where("f IN ('start', 'end')")
        for rows in (
            values.groupBy("key").agg(
                F.bool_or("seen").alias("polled"),
                F.max(F.expr("IF(seen, known_low, NULL)")).alias("highest"),
                F.max(F.expr("1 + greatest(high, sent_low, sent_high)")).alias("stop"),
                F.count_if(F.expr("low < high")).alias("several"),
            ),
            self._tables.lengths.groupBy("key").agg(F.lit(0).alias("highest")).drop("highest"),
            lengths.groupBy("key").agg(F.max("position").alias("position")),
            self._tables.log_starts.groupBy("key").agg(F.max("log_start").alias("log_start")),
        ):
            for row in rows.collect():
                told = {name: value for name, value in row.asDict().items() if value is not None}
                known.setdefault(told.pop("key"), {}).update(told)
        found = {}
        for number, (key, told) in enumerate(sorted(known.items())):
            first_end = self._first_ends.get(key, 0)
            told["stop"] = max(told.get("stop", 0), told.pop("position", 0), first_end)
            found[key] = _Key(number=number, first_end=first_end, **told)
        return found

    def _with_keys(self, rows: DataFrame, *columns: str) -> DataFrame:
        """The rows with columns of `_Key`."""
        keys = [(key, *told) for key, told in self._keys.items()]
        told = self._spark.createDataFrame(keys, _KEYS).select("key", *columns)
        return rows.join(F.broadcast(told), "key")

    def _count_values(self, values: DataFrame, counts: Mapping[str, dict[str, int]]) -> None:
        judged = self._with_keys(
            values.withColumnRenamed("number", "send_number"),
            "number",
            "polled",
            "highest",
            "log_start",
            "first_end",
        ).withColumns(
            {
                "above": F.expr("coalesce(known_high >= log_start, log_start = 0)"),
                "not_seen": F.expr("NOT seen AND op IS NOT NULL"),
            }
        )
        wrong = {
            "duplicate": "known_low < known_high",
            "phantom": "op IS NULL AND coalesce(known_high, -1) >= first_end",
            "G1a": "kind = 'fail' AND seen",
            "unseen": f"not_seen AND (polled OR {self._unpolled}) AND kind = 'ok' AND above",
            "lost-write": "not_seen AND polled AND known_high IS NOT NULL AND above "
            "AND known_high <= highest AND (kind = 'ok' OR (kind = 'info' AND batch_seen))",
            "linearizability": "place = 0 AND base_low IS NOT NULL "
            "AND (base_low < first_end OR kind = 'fail')",
        }
        counted = judged.groupBy("key").agg(
            *(
                F.count_if(F.expr(f"coalesce({when}, false)")).alias(name)
                for name, when in wrong.items()
            )
        )
        for row in counted.collect():
            for name in wrong:
                counts[row["key"]][name] += row[name]

    # --- the chain --------------------------------------------------------------------------------

    def _bounds(self, values: DataFrame) -> DataFrame:
        """(key, offset, what, begin, end, op, inside): the bounds that reads are; where there are
        batches, with that in whose middle the bound would lie, and then moved to its edge."""
        reads = self._tables.reads.where("kind = 'ok' AND offset + 1 = gap")
        lengths = self._tables.lengths
        bounds = reads.selectExpr(
            "key", "gap AS offset", f"{blocks.AT_LEAST} AS what", "0L AS begin", "end_ns", "op"
        )
        what = {
            "start": blocks.AT_LEAST,
            "end": blocks.EXACT if self._exact else blocks.AT_LEAST,
            "empty": blocks.AT_MOST,
        }
        whats = " ".join(f"WHEN '{f}' THEN {number}" for f, number in what.items())
        if not self._exact:
            lengths = lengths.where("f != 'empty'")
        told = lengths.selectExpr(
            "key",
            "position AS offset",
            f"CASE f {whats} END AS what",
            "start_ns AS begin",
            "end_ns",
            "op",
        )
        bounds = bounds.unionByName(told).withColumnRenamed("end_ns", "end")
        if not self._batches:
            return bounds.withColumn("inside", F.expr(_NO_RANGE))
        middles = (
            values.where(f"{_PLACED} AND place > 0")
            .selectExpr("*", "explode(array_distinct(array(base_low, base_high))) AS base_at")
            .groupBy("key", F.expr("base_at + place").alias("offset"))
            .agg(F.min(F.expr("struct(base_at AS base, base_at + size AS stop)")).alias("inside"))
        )
        moved = f"CASE what WHEN {blocks.AT_LEAST} THEN inside.stop "
        moved += f"WHEN {blocks.AT_MOST} THEN inside.base END"
        bounds = bounds.join(middles, ["key", "offset"], "left")
        return self._keep(bounds.withColumn("offset", F.expr(f"coalesce({moved}, offset)")))

    def _halves(self, bounds: DataFrame) -> dict[int, int]:
        """Key -> the number of exact reads that saw only a part of a batch."""
        if not self._batches:
            return {}
        halves = bounds.where(f"inside IS NOT NULL AND what = {blocks.EXACT}")
        halves = halves.select("key", "offset").distinct()
        return {
            self._keys[row["key"]].number: row["count"]
            for row in halves.groupBy("key").count().collect()
        }

    def _rows(self, values: DataFrame, bounds: DataFrame) -> DataFrame:
        """The rows of the chain (`blocks.ROWS`)."""
        columns = ("key", "offset", "what", "begin", "end", "op", "text")
        odd = "base_low != base_high OR base_low < 0 OR kind = 'fail'"
        lying = values.selectExpr(
            "*",
            "explode(array_distinct(array_compact(array(low, high, sent_low, sent_high)))) "
            "AS offset",
        ).selectExpr(
            "key",
            "offset",
            f"CASE WHEN coalesce(offset != sent_low AND offset != sent_high, true) "
            f"THEN {blocks.TEXT} WHEN {odd} THEN {blocks.NOBODYS} ELSE {blocks.OWN} END AS what",
            "coalesce(start_ns, 0L) AS begin",
            "coalesce(end_ns, 0L) AS end",
            "coalesce(op, -1L) AS op",
            "hash AS text",
        )
        rows = lying.unionByName(bounds.drop("inside").withColumn("text", F.lit(0)))
        if any(told.several for told in self._keys.values()):
            rows = rows.unionByName(self._read_between(values).select(*columns))
        ends = [(key, end) for key, end in sorted(self._first_ends.items()) if end > 0]
        if ends:
            begun = self._spark.createDataFrame(ends, "key STRING, first_end BIGINT").selectExpr(
                "key",
                "first_end - 1 AS offset",
                f"{blocks.BEGUN} AS what",
                "0L AS begin",
                "0L AS end",
                "-1L AS op",
                "0L AS text",
            )
            rows = rows.unionByName(begun)
        rows = self._with_keys(rows, "number", "stop")
        rows = rows.where(f"what != {blocks.AT_MOST} OR offset < stop")
        rows = rows.withColumn("block", F.expr(f"offset DIV {self._block}"))
        return rows.select(*(column.split()[0] for column in blocks.ROWS.split(", ")))

    def _read_between(self, values: DataFrame) -> DataFrame:
        """The reads of values at further offsets than the lowest and the highest."""
        several = values.where("text IS NOT NULL").selectExpr("key", "text AS value", "low", "high")
        reads = self._tables.reads.join(several.distinct(), ["key", "value"])
        return reads.where("offset > low AND offset < high").selectExpr(
            "key",
            "offset",
            f"{blocks.TEXT} AS what",
            "0L AS begin",
            "0L AS end",
            "-1L AS op",
            "xxhash64(value) AS text",
        )

    def _judged(self, rows: DataFrame, dense: bool) -> list[dict[str, Any]]:
        """The verdicts of all blocks in the order of the chains, and with each the carry that it
        was judged with, what is expected as its first offset, and the earliest return behind."""
        found = {
            (row["number"], row["block"]): row.asDict() for row in self._blocks(rows, {}).collect()
        }
        ordered = [found[place] for place in sorted(found)]
        carries = carried(ordered)
        wanted = {
            place: carry._replace(list_holes=dense and 0 < block["holes"] <= HOLES_MAX)
            for (place, block), carry in zip(sorted(found.items()), carries, strict=True)
        }
        again = {
            place: carry
            for place, carry in wanted.items()
            if carry.list_holes or carry.at > found[place]["earliest"]
        }
        if again:
            places = self._spark.createDataFrame(list(again), "number INT, block BIGINT")
            some = rows.join(F.broadcast(places), ["number", "block"])
            for row in self._blocks(some, again).collect():
                found[row["number"], row["block"]].update(row.asDict())
        return ordered

    def _blocks(self, rows: DataFrame, carries: Mapping[tuple[int, int], BlockCarry]) -> DataFrame:
        first_ends = {told.number: told.first_end for told in self._keys.values()}
        return rows.groupBy("number", "block").applyInArrow(
            blocks.judged_blocks(dict(carries), first_ends), blocks.VERDICTS
        )

    # --- holes ------------------------------------------------------------------------------------

    def _fill_holes(
        self,
        found: list[dict[str, Any]],
        names: Mapping[int, str],
        values: DataFrame,
        counts: dict[str, dict[str, int]],
        undecided: set[str],
        hole_steps: int,
    ) -> None:
        """Match the stretches of holes with the unresolved batches, on the driver, because they are
        few."""
        by_key: dict[str, list[holes.HoleSegment]] = {}
        total = 0
        for number, one in by_number(found):
            key = names[number]
            total += sum(block["holes"] for block in one)
            if total > HOLES_MAX:
                undecided.add(key)
                continue
            segments = segments_of(one, self._keys[key].first_end)
            if segments:
                by_key[key] = segments
        if not by_key:
            return
        spare: dict[str, list[holes.Filler]] = {}
        unplaced = values.where("place = 0 AND base_low IS NULL AND kind != 'fail'")
        for row in unplaced.select("key", "op", "size", "start_ns").orderBy("op").collect():
            if row["key"] in by_key:
                spare.setdefault(row["key"], []).append(
                    holes.Filler(row["size"], row["start_ns"], row["op"])
                )
        for key, segments in by_key.items():
            outcome = holes.fill(segments, spare.get(key, []), hole_steps)
            counts[key]["linearizability"] += outcome.count
            if outcome.exhausted:
                undecided.add(key)


def _with_bases(values: DataFrame) -> DataFrame:
    """The offset of each batch, from its acknowledgement and from reads, and so of its values. An
    acknowledged offset below zero says nothing about the values."""
    return (
        values.withColumns(
            {
                "base_low": F.expr("least(base, read_low)"),
                "base_high": F.expr("greatest(base, read_high)"),
            }
        )
        .withColumns(
            {"sent_low": F.expr("base_low + place"), "sent_high": F.expr("base_high + place")}
        )
        .withColumns(
            {
                name: F.expr(
                    f"{name}(low, high, IF(base_low >= 0, sent_low, NULL), "
                    "IF(base_high >= 0, sent_high, NULL))"
                )
                for name in ("least", "greatest")
            }
        )
        .withColumnsRenamed({"least": "known_low", "greatest": "known_high"})
        .drop("read_low", "read_high", "base")
    )
