"""The log check as Spark SQL: the verdicts of `raftlog.verify.folds`, from any number of machines.

The theory is that of `raftlog.verify.linearizability` and of the folds; here each stage is a
group-by whose aggregates are minima and maxima of structs, all combined before they are shuffled:

    values     by (key, value)         who sent it, where it was read
    placed     by (key, operation)     where each batch lies, from its answer and from reads
    offsets    by (key, offset)        bounds and values; reads inside a batch go to its edges
    chain      by (key, offset // B)   cut into blocks: a summary of each, an exclusive scan of the
                                       summaries, then each block with what lies before it

The last stage is why one huge partition is no harder than many small ones: a block is a task.
A struct (instant, -offset, -slot, operation) has its greatest value where the instant is latest
and, of equal ones, the place on the chain is first: that is the operation that a scan would hold.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, final

import attrs
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from raftlog.base.limits import HOLE_STEPS_DEFAULT
from raftlog.verify import holes
from raftlog.verify.linearizability import BEFORE_ALL, LINEARIZABLE
from raftlog.verify.pairing import OPEN

BLOCK_OFFSETS: Final = 1 << 20
"""Offsets of one block of the chain: tens of MB in a task."""
HOLES_MAX: Final = 1_000_000
"""Stretches of holes that are matched on the driver; beyond it the answer is unknown."""
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
) -> dict[str, KeyResult]:
    """Judge every key. Keys without anything to say are absent."""
    job = _Job(spark, tables, mode == LINEARIZABLE, dict(first_ends or {}), block)
    try:
        return job.run(dense, hole_steps)
    finally:
        job.release()


_NEUTRAL: Final = f"named_struct('start', {BEFORE_ALL}L, 'stop', {OPEN}L, 'op', -1L)"
_BEGUN: Final = f"named_struct('start', {BEFORE_ALL}L, 'stop', {BEFORE_ALL}L, 'op', -1L)"
_NO_BOUND: Final = "CAST(NULL AS STRUCT<at: BIGINT, op: BIGINT>)"
_NO_APPEND: Final = "CAST(NULL AS STRUCT<start: BIGINT, stop: BIGINT, op: BIGINT>)"
_NO_INSIDE: Final = "CAST(NULL AS STRUCT<base: BIGINT, stop: BIGINT>)"
_OFFSET_PARTS: Final = ("exact_in", "exact_out", "at_least", "at_most")


def _offset_rows(frame: DataFrame, offset: str, **given: str) -> DataFrame:
    """Rows of the offsets stage; what is not given is null."""
    columns = [
        "key",
        f"{offset} AS offset",
        f"{given.get('text', 'CAST(NULL AS STRING)')} AS text",
        *(f"{given.get(name, _NO_BOUND)} AS {name}" for name in _OFFSET_PARTS),
        f"{given.get('append', _NO_APPEND)} AS append",
        f"{given.get('inside', _NO_INSIDE)} AS inside",
        f"{given.get('begun', 'false')} AS begun",
    ]
    return frame.selectExpr(*columns)


def _bound(instant: str, op: str = "op") -> str:
    return f"named_struct('at', {instant}, 'op', CAST({op} AS BIGINT))"


@final
class _Job:
    """The stages, and what is kept on disk between them."""

    def __init__(
        self,
        spark: SparkSession,
        tables: Tables,
        exact: bool,
        first_ends: dict[str, int],
        block: int,
    ) -> None:
        self._spark = spark
        self._tables = tables
        self._exact = exact
        self._first_ends = first_ends
        self._block = block
        self._kept: list[DataFrame] = []
        self._ends = spark.createDataFrame(
            sorted(first_ends.items()), "key STRING, first_end BIGINT"
        )

    def _keep(self, frame: DataFrame) -> DataFrame:
        kept = frame.persist(StorageLevel.DISK_ONLY)
        self._kept.append(kept)
        return kept

    def release(self) -> None:
        for frame in self._kept:
            frame.unpersist()

    def run(self, dense: bool, hole_steps: int) -> dict[str, KeyResult]:
        values = self._keep(self._values())
        folded = self._offsets(values)
        chain = self._keep(self._chain(folded))
        counts = self._value_counts(values)
        for key, (conflicts, halves) in self._chain_counts(chain).items():
            found = counts.setdefault(key, dict.fromkeys(CLASSES, 0))
            found["inconsistent-offsets"] += conflicts
            found["linearizability"] += halves
        firsts, violations, gaps = self._scan(chain)
        for key, count in violations.items():
            counts[key]["linearizability"] += count
        undecided: set[str] = set()
        if dense and gaps is not None:
            self._fill_holes(gaps, values, counts, undecided, hole_steps)
        return {
            key: KeyResult(found, firsts.get(key), key in undecided)
            for key, found in sorted(counts.items())
        }

    # --- values and batches -----------------------------------------------------------------------

    def _values(self) -> DataFrame:
        """One row a value: its batch, where it was read, where its batch lies."""
        read = self._tables.reads.groupBy("key", "value").agg(
            F.min("offset").alias("low"),
            F.max("offset").alias("high"),
            F.bool_or(F.expr("kind = 'ok'")).alias("seen"),
        )
        both = self._tables.sends.join(read, ["key", "value"], "full_outer")
        # Values that nobody sent would all be one batch of nobody: each is one of its own.
        batch = Window.partitionBy("key", "op", "number", F.expr("IF(op IS NULL, value, NULL)"))
        return (
            both.withColumn("seen", F.expr("coalesce(seen, false)"))
            .withColumn("read_low", F.min(F.expr("low - place")).over(batch))
            .withColumn("read_high", F.max(F.expr("high - place")).over(batch))
            .withColumn("batch_seen", F.bool_or("seen").over(batch))
            .withColumn("base_low", F.expr("least(base, read_low)"))
            .withColumn("base_high", F.expr("greatest(base, read_high)"))
            .drop("read_low", "read_high", "base")
        )

    def _value_counts(self, values: DataFrame) -> dict[str, dict[str, int]]:
        known = values.withColumn(
            "known",
            F.expr(
                "array_distinct(array_compact(array(low, high, "
                "IF(base_low >= 0, base_low + place, NULL), "
                "IF(base_high >= 0, base_high + place, NULL))))"
            ),
        ).selectExpr("*", "array_min(known) AS known_low", "array_max(known) AS known_high")
        per_key = known.groupBy("key").agg(
            F.bool_or("seen").alias("polled"),
            F.max(F.expr("IF(seen, known_low, NULL)")).alias("highest"),
        )
        starts = self._tables.log_starts.groupBy("key").agg(F.max("log_start").alias("log_start"))
        per_key = (
            per_key.join(starts, "key", "left")
            .join(self._ends, "key", "left")
            .selectExpr(
                "key",
                "polled",
                "coalesce(highest, -1) AS highest",
                "coalesce(log_start, 0) AS log_start",
                "coalesce(first_end, 0) AS first_end",
            )
        )
        judged = (
            known.join(F.broadcast(per_key), "key")
            .withColumn(
                "above", F.expr("IF(size(known) > 0, known_high >= log_start, log_start = 0)")
            )
            .withColumn("unread", F.expr("polled AND NOT seen AND op IS NOT NULL"))
        )
        wrong = {
            "duplicate": "size(known) > 1",
            "phantom": "op IS NULL AND coalesce(known_high, -1) >= first_end",
            "G1a": "kind = 'fail' AND seen",
            "unseen": "unread AND kind = 'ok' AND above",
            "lost-write": "unread AND size(known) > 0 AND above AND known_high <= highest "
            "AND (kind = 'ok' OR (kind = 'info' AND batch_seen))",
            "linearizability": "place = 0 AND base_low IS NOT NULL "
            "AND (base_low < first_end OR kind = 'fail')",
        }
        rows = judged.groupBy("key").agg(
            *(
                F.count_if(F.expr(f"coalesce({when}, false)")).alias(name)
                for name, when in wrong.items()
            )
        )
        return {
            row["key"]: {**dict.fromkeys(CLASSES, 0), **{name: row[name] for name in wrong}}
            for row in rows.collect()
        }

    # --- offsets ----------------------------------------------------------------------------------

    def _offsets(self, values: DataFrame) -> DataFrame:
        """One row an offset, with reads moved out of the middle of batches."""
        rows = (
            self._read_rows().unionByName(self._length_rows()).unionByName(self._sent_rows(values))
        )
        if self._first_ends:
            begun = self._ends.where("first_end > 0")
            rows = rows.unionByName(_offset_rows(begun, "first_end - 1", begun="true"))
        folded = _folded(rows)
        if values.where("size > 1").limit(1).count() == 0:
            return folded
        folded = self._keep(folded)
        inside = "inside IS NOT NULL"
        kept = folded.withColumns(
            {name: F.expr(f"IF({inside}, NULL, {name})") for name in ("at_least", "at_most")}
        )
        out = folded.where(inside)
        ends = _offset_rows(out.where("at_least IS NOT NULL"), "inside.stop", at_least="at_least")
        begins = _offset_rows(out.where("at_most IS NOT NULL"), "inside.base", at_most="at_most")
        moved = ends.unionByName(begins).selectExpr("*", "text AS low", "text AS high").drop("text")
        return _folded(kept.unionByName(moved), texts=False)

    def _read_rows(self) -> DataFrame:
        reads = self._tables.reads
        ends = reads.where("kind = 'ok' AND offset + 1 = gap")
        return _offset_rows(reads, "offset", text="value").unionByName(
            _offset_rows(ends, "gap", at_least=_bound("end_ns"))
        )

    def _length_rows(self) -> DataFrame:
        lengths = self._tables.lengths
        at_least = {"at_least": _bound("end_ns")}
        rows = _offset_rows(lengths.where("f = 'start'"), "position", **at_least)
        ends = lengths.where("f = 'end'")
        if not self._exact:
            return rows.unionByName(_offset_rows(ends, "position", **at_least))
        exact = {"exact_in": _bound("start_ns", "-op"), "exact_out": _bound("end_ns")}
        at_most = {"at_most": _bound("start_ns", "-op")}
        return rows.unionByName(_offset_rows(ends, "position", **exact)).unionByName(
            _offset_rows(lengths.where("f = 'empty'"), "position", **at_most)
        )

    def _sent_rows(self, values: DataFrame) -> DataFrame:
        placed = values.where("op IS NOT NULL AND base_low IS NOT NULL").selectExpr(
            "*", "explode(array_distinct(array(base_low, base_high))) AS at"
        )
        own = "named_struct('start', start_ns, 'stop', end_ns, 'op', op)"
        odd = "base_low != base_high OR base_low < 0 OR kind = 'fail'"
        return _offset_rows(
            placed,
            "at + place",
            text="value",
            append=f"IF({odd}, {_NEUTRAL}, {own})",
            inside=f"IF(place > 0, named_struct('base', at, 'stop', at + size), {_NO_INSIDE})",
        )

    # --- the chain --------------------------------------------------------------------------------

    def _chain(self, folded: DataFrame) -> DataFrame:
        """The rows of the chain, each with its block and the latest instants it adds."""
        ends = folded.groupBy("key").agg(
            F.max(
                F.expr(
                    "greatest(IF(low IS NOT NULL, offset + 1, 0), "
                    "IF(exact_out IS NOT NULL OR at_least IS NOT NULL, offset, 0))"
                )
            ).alias("known_end")
        )
        ends = ends.join(self._ends, "key", "left").selectExpr(
            "key",
            "greatest(known_end, coalesce(first_end, 0)) AS stop",
            "coalesce(first_end, 0) AS first_end",
        )
        rows = folded.join(F.broadcast(ends), "key").where("offset <= stop")
        append = f"CASE WHEN begun THEN {_BEGUN} WHEN append IS NULL AND low IS NOT NULL "
        append += f"THEN {_NEUTRAL} ELSE append END"
        rows = rows.withColumns(
            {
                "append": F.expr(append),
                "at_most": F.expr("IF(offset < stop, at_most, NULL)"),
                "block": F.expr(f"offset DIV {self._block}"),
            }
        )
        into = f"greatest({_candidate('exact_in.at', 0, '-exact_in.op')}, "
        into += f"{_candidate('at_most.at', 1, '-at_most.op')})"
        return rows.withColumn("into", F.expr(into)).withColumn(
            "latest", F.expr(f"greatest(into, {_candidate('append.start', 2, 'append.op')})")
        )

    def _chain_counts(self, chain: DataFrame) -> dict[str, tuple[int, int]]:
        """Offsets with two values, and exact reads that saw a batch in half."""
        rows = chain.groupBy("key").agg(
            F.count_if(F.expr("low != high")).alias("conflicts"),
            F.count_if(F.expr("inside IS NOT NULL AND exact_out IS NOT NULL")).alias("halves"),
        )
        return {row["key"]: (row["conflicts"], row["halves"]) for row in rows.collect()}

    def _scan(self, chain: DataFrame) -> Any:
        """(first violated pair by key, violations by key, the hole rows or None)."""
        summaries = chain.groupBy("key", "block").agg(
            F.max("latest").alias("block_latest"),
            F.min(F.expr("least(append.stop, exact_out.at, at_least.at)")).alias("block_earliest"),
            F.max(F.expr("offset + IF(append IS NULL, 0, 1)")).alias("block_after"),
        )
        by_block = Window.partitionBy("key").orderBy("block")
        before = by_block.rowsBetween(Window.unboundedPreceding, -1)
        behind = Window.partitionBy("key").orderBy(F.desc("block"))
        carries = summaries.select(
            "key",
            "block",
            F.max("block_latest").over(before).alias("carry"),
            F.max("block_after").over(before).alias("expected"),
            F.min("block_earliest")
            .over(behind.rowsBetween(Window.unboundedPreceding, -1))
            .alias("behind"),
        )
        inside = Window.partitionBy("key", "block").orderBy("offset")
        rows = (
            chain.join(F.broadcast(carries), ["key", "block"])
            .withColumn(
                "held",
                F.greatest(
                    F.col("carry"),
                    F.max("latest").over(inside.rowsBetween(Window.unboundedPreceding, -1)),
                ),
            )
            .withColumn(
                "after_before", F.lag(F.expr("offset + IF(append IS NULL, 0, 1)")).over(inside)
            )
            .withColumn("held_into", F.expr("greatest(held, into)"))
        )
        pair = "named_struct('offset', offset, 'slot', {0}, 'before', {1}.op, 'after', {2}.op)"
        checks = [
            ("held.at > exact_out.at", pair.format(0, "held", "exact_out")),
            ("held.at > at_least.at", pair.format(1, "held", "at_least")),
            ("held_into.at > append.stop", pair.format(2, "held_into", "append")),
        ]
        rows = rows.withColumn(
            "hole_from", F.expr("greatest(first_end, coalesce(after_before, expected, 0))")
        )
        found = rows.groupBy("key").agg(
            F.sum(
                F.expr(" + ".join(f"IF(coalesce({when}, false), 1, 0)" for when, _ in checks))
            ).alias("violations"),
            F.min(
                F.expr("least(" + ", ".join(f"IF({w}, {p}, NULL)" for w, p in checks) + ")")
            ).alias("first"),
            F.count_if(F.expr("hole_from < offset")).alias("holes"),
        )
        firsts: dict[str, tuple[int, int | None, int]] = {}
        violations: dict[str, int] = {}
        any_holes = False
        for row in found.collect():
            violations[row["key"]] = row["violations"]
            any_holes = any_holes or row["holes"] > 0
            if row["first"] is not None:
                first = row["first"]
                firsts[row["key"]] = (first["offset"], first["before"], first["after"])
        return firsts, violations, rows if any_holes else None

    def _fill_holes(
        self,
        rows: DataFrame,
        values: DataFrame,
        counts: dict[str, dict[str, int]],
        undecided: set[str],
        hole_steps: int,
    ) -> None:
        """Holes are few: their stretches and the unresolved batches are matched on the driver."""
        backwards = Window.partitionBy("key", "block").orderBy(F.desc("offset"))
        deadline = F.least(
            F.col("behind"),
            F.min(F.expr("least(append.stop, exact_out.at, at_least.at)")).over(
                backwards.rowsBetween(Window.unboundedPreceding, 0)
            ),
        )
        stretches = (
            rows.withColumn("deadline", F.coalesce(deadline, F.lit(OPEN)))
            .where("hole_from < offset")
            .selectExpr(
                "key",
                "hole_from",
                "offset",
                "deadline",
                "append IS NOT NULL OR exact_out IS NOT NULL AS cut",
            )
            .limit(HOLES_MAX + 1)
            .collect()
        )
        by_key: dict[str, list[holes.Segment]] = {}
        for row in sorted(stretches, key=lambda row: (row["key"], row["offset"])):
            by_key.setdefault(row["key"], []).append(
                holes.Segment(row["hole_from"], row["offset"], row["deadline"], None, row["cut"])
            )
        if len(stretches) > HOLES_MAX:
            undecided.update(by_key)
            return
        spare: dict[str, list[holes.Candidate]] = {}
        unplaced = values.where("place = 0 AND base_low IS NULL AND kind != 'fail'")
        for row in unplaced.select("key", "op", "size", "start_ns").orderBy("op").collect():
            if row["key"] in by_key:
                spare.setdefault(row["key"], []).append(
                    holes.Candidate(row["size"], row["start_ns"], row["op"])
                )
        for key, segments in by_key.items():
            outcome = holes.fill(segments, spare.get(key, []), hole_steps)
            counts[key]["linearizability"] += outcome.count
            if outcome.exhausted:
                undecided.add(key)


def _candidate(instant: str, slot: int, op: str) -> str:
    """What may hold the maximum; null where there is no instant."""
    made = f"named_struct('at', {instant}, 'place', -offset, 'slot', -{slot}, 'op', {op})"
    return f"IF({instant} IS NULL, NULL, {made})"


def _folded(rows: DataFrame, *, texts: bool = True) -> DataFrame:
    """One row an offset. Later instants and, of equal ones, lower operations hold a maximum."""
    low, high = ("text", "text") if texts else ("low", "high")
    return rows.groupBy("key", "offset").agg(
        F.min(low).alias("low"),
        F.max(high).alias("high"),
        F.max("exact_in").alias("exact_in"),
        F.min("exact_out").alias("exact_out"),
        F.min("at_least").alias("at_least"),
        F.max("at_most").alias("at_most"),
        F.min("append").alias("append"),
        F.min("inside").alias("inside"),
        F.max("begun").alias("begun"),
    )
