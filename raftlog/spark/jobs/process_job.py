"""Checks of the order in which one process sees records, as Spark SQL: the counts of
`raftlog.verify.judging.process_order`.

Windows over the operations of one process, in their order. Two things make that enough:

* For a step from offset `one` to `other` only its direction and "more than one record" matter. The
  step goes back if other <= one. It skips if a record lies in between, that is if the record before
  `other` is not `one`. So the job looks up only the predecessors of steps that look like a skip,
  and not the rank of every offset. A healthy history has none.
* The log's end as a process knows it only grows, so the maximum before an operation is enough.

A crash restarts a process, and an assign or a subscribe forgets the keys that it leaves out.
Running numbers of such resets divide the windows.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple, final

import attrs
from pyspark import StorageLevel
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from raftlog.spark.jobs.chain_job import BLOCK_OFFSETS, Tables
from raftlog.verify.judging.linearizability import COMMITTED_PREFIX

POLLS: Final = ("poll-skip", "nonmonotonic-poll", "int-poll-skip", "int-nonmonotonic-poll")
SESSIONS: Final = ("monotonic-reads", "read-your-writes")
CLASSES: Final = (*POLLS, "nonmonotonic-send", *SESSIONS)

STEPS: Final = (
    "name STRING, key STRING, op BIGINT, pos INT, before_op BIGINT, one BIGINT, other BIGINT"
)
"""The columns of a step that breaks a rule: at operation `op`, after `before_op`, from offset `one`
to `other`. For sessions `other` is the reported position."""


class ProcessStep(NamedTuple):
    """The first step of a class, in the order of operations."""

    op: int
    pos: int
    before_op: int
    one: int
    other: int
    key: str


@final
@attrs.frozen
class ProcessResult:
    """Which classes the history has evidence for, counts by class and key, first steps by class."""

    checked: tuple[str, ...]
    counts: Mapping[str, Mapping[str, int]]
    first: Mapping[str, ProcessStep]


def judge_processes(
    operations: DataFrame,
    tables: Tables,
    *,
    mode: str,
    pipelined: bool,
    block: int = BLOCK_OFFSETS,
) -> ProcessResult:
    """Judge every process. `operations` are a history's, `tables` made of them."""
    job = _Job(operations, tables, mode == COMMITTED_PREFIX and not pipelined, pipelined, block)
    try:
        return job.run()
    finally:
        job.release()


@final
class _Job:
    """The stages of the job, and the tables that are kept between them."""

    def __init__(
        self, operations: DataFrame, tables: Tables, sessions: bool, pipelined: bool, block: int
    ) -> None:
        self._operations = operations
        self._tables = tables
        self._sessions = sessions
        self._pipelined = pipelined
        self._block = block
        self._kept: list[DataFrame] = []

    def release(self) -> None:
        """Release the cached tables."""
        for frame in self._kept:
            frame.unpersist()

    def _keep(self, frame: DataFrame) -> DataFrame:
        kept = frame.persist(StorageLevel.DISK_ONLY)
        self._kept.append(kept)
        return kept

    def run(self) -> ProcessResult:
        """See `judge_processes`."""
        pairs = self._keep(_pairs(self._operations))
        placed = self._keep(self._placed(pairs))
        polls = self._keep(_ends_of_polls(pairs))
        moved = self._keep(self._poll_steps(pairs, polls))
        steps = [
            _steps(moved.where("other <= one")),
            self._skips(moved.where("other > one"), pairs, placed),
        ]
        if not self._pipelined:
            steps.append(self._send_steps(placed))
        if self._sessions:
            steps.append(self._session_steps(polls, placed))
        found = steps[0]
        for more in steps[1:]:
            found = found.unionByName(more)
        return self._result(found, pairs, placed)

    def _result(self, found: DataFrame, pairs: DataFrame, placed: DataFrame) -> ProcessResult:
        step = F.struct("op", "pos", "before_op", "one", "other", "key")
        rows = (
            found.groupBy("name", "key")
            .agg(F.count("*").alias("count"), F.min(step).alias("first"))
            .collect()
        )
        counts: dict[str, dict[str, int]] = {}
        first: dict[str, ProcessStep] = {}
        for row in sorted(rows, key=lambda row: (row["name"], row["first"])):
            counts.setdefault(row["name"], {})[row["key"]] = row["count"]
            first.setdefault(row["name"], ProcessStep(*row["first"]))
        return ProcessResult(self._checked(pairs, placed), counts, first)

    def _checked(self, pairs: DataFrame, placed: DataFrame) -> tuple[str, ...]:
        names = list(POLLS) if _has_rows(pairs) else []
        if not self._pipelined and _has_rows(placed.where("kind != 'fail'")):
            names.append("nonmonotonic-send")
        told = self._operations.where("f IN ('end', 'empty') AND kind = 'ok'")
        if self._sessions and _has_rows(told):
            names += SESSIONS
        return tuple(names)

    # --- where batches lie ------------------------------------------------------------------------

    def _placed(self, pairs: DataFrame) -> DataFrame:
        """(key, op, kind, size, base) of each batch: its acknowledgement's place, else that of the
        first read of it."""
        sends = self._tables.sends
        batch = ["key", "op", "kind", "size"]
        known = sends.where("place = 0 AND base IS NOT NULL").select(*batch, "base")
        unknown = sends.where("base IS NULL").select(*batch, "place", "value")
        reads = pairs.selectExpr("key", "value", "offset", "op AS read_op", "pos")
        found = (
            unknown.join(reads, ["key", "value"])
            .where("offset >= place")
            .groupBy(*batch)
            .agg(F.expr("min_by(offset - place, struct(read_op, pos))").alias("base"))
        )
        return known.unionByName(found)

    # --- polls ------------------------------------------------------------------------------------

    def _poll_steps(self, pairs: DataFrame, polls: DataFrame) -> DataFrame:
        """The steps that go back, and the steps that skip a record."""
        inside = Window.partitionBy("op", "key").orderBy("pos")
        within = pairs.where("NOT rebalanced").selectExpr(
            "'int-' AS prefix", "key", "op", "pos", "op AS before_op", "offset AS other"
        )
        within = within.withColumn("one", F.lag("other").over(inside))
        # A poll that failed or may have failed is compared with the last ok poll, and does not move
        # the position.
        before = Window.partitionBy("process", "key", "epoch").orderBy("op")
        before = before.rowsBetween(Window.unboundedPreceding, -1)
        between = self._with_epochs(polls, assigned=True).where("NOT reset")
        between = between.selectExpr("'' AS prefix", "0 AS pos", "first AS other", "*").withColumns(
            {
                "one": F.last(F.expr("IF(kind = 'ok', last, NULL)"), ignorenulls=True).over(before),
                "before_op": F.last(F.expr("IF(kind = 'ok', op, NULL)"), ignorenulls=True).over(
                    before
                ),
            }
        )
        columns = ["prefix", "key", "op", "pos", "before_op", "one", "other"]
        steps = within.select(*columns).unionByName(between.select(*columns))
        name = "concat(prefix, IF(other > one, 'poll-skip', 'nonmonotonic-poll')) AS name"
        return _steps(steps.where("one IS NOT NULL AND other != one + 1").selectExpr(name, "*"))

    def _with_epochs(self, rows: DataFrame, *, assigned: bool, crashed: bool = True) -> DataFrame:
        """The rows of processes and keys, and a row for each reset; `epoch` counts the resets."""
        resets = self._operations.where(f"f = 'crash' AND {str(crashed).lower()}").selectExpr(
            "process", "op", "CAST(array() AS ARRAY<STRING>) AS kept"
        )
        if assigned:
            chosen = self._operations.where("f IN ('assign', 'subscribe') AND kind != 'fail'")
            resets = resets.unionByName(
                chosen.selectExpr(
                    "process",
                    "op",
                    "from_json(coalesce(value, asked), 'ARRAY<STRING>') AS kept",
                )
            )
        seen = rows.select("process", "key").distinct()
        resets = seen.join(resets, "process").where("NOT array_contains(kept, key)")
        resets = resets.selectExpr("process", "key", "op", "true AS reset")
        both = rows.withColumn("reset", F.lit(False)).unionByName(resets, allowMissingColumns=True)
        running = Window.partitionBy("process", "key").orderBy("op")
        return both.withColumn("epoch", F.count_if(F.col("reset")).over(running))

    def _skips(self, maybe: DataFrame, pairs: DataFrame, placed: DataFrame) -> DataFrame:
        """The forward steps that pass over a record which could be read."""
        if not _has_rows(maybe):
            return maybe.where("false")
        # A step cannot pass records above the offset that it reached. It may pass records below the
        # log start.
        starts = self._tables.log_starts.groupBy("key").agg(F.max("log_start").alias("log_start"))
        stepped = maybe.join(F.broadcast(starts), "key", "left").join(
            self._predecessors(pairs, placed), ["key", "other"]
        )
        return _steps(stepped.where("previous > one AND previous >= coalesce(log_start, 0)"))

    def _predecessors(self, pairs: DataFrame, placed: DataFrame) -> DataFrame:
        """(key, other, previous): each offset with a record, and the one before it. In blocks, so
        that a huge partition is no single task's."""
        offsets = (
            pairs.select("key", "offset")
            .unionByName(
                placed.selectExpr("key", "explode(sequence(base, base + size - 1)) AS offset")
            )
            .distinct()
            .withColumn("block", F.expr(f"offset DIV {self._block}"))
        )
        lasts = offsets.groupBy("key", "block").agg(F.max("offset").alias("last"))
        carried = lasts.select(
            "key",
            "block",
            F.lag("last").over(Window.partitionBy("key").orderBy("block")).alias("in"),
        )
        inside = Window.partitionBy("key", "block").orderBy("offset")
        return offsets.join(F.broadcast(carried), ["key", "block"]).select(
            "key",
            F.col("offset").alias("other"),
            F.coalesce(F.lag("offset").over(inside), F.col("in")).alias("previous"),
        )

    # --- sends and sessions -----------------------------------------------------------------------

    def _sent(self, placed: DataFrame) -> DataFrame:
        """(process, key, op, kind, base, last) of batches that have a place and did not fail."""
        processes = self._operations.where("f = 'send'").select("op", "process")
        return (
            placed.where("kind != 'fail'")
            .join(processes, "op")
            .selectExpr("process", "key", "op", "kind", "base", "base + size - 1 AS last")
        )

    def _send_steps(self, placed: DataFrame) -> DataFrame:
        before = Window.partitionBy("process", "key", "epoch").orderBy("op")
        rows = self._with_epochs(self._sent(placed), assigned=True, crashed=False)
        rows = rows.where("NOT reset").withColumns(
            {"one": F.lag("last").over(before), "before_op": F.lag("op").over(before)}
        )
        wrong = rows.where("base <= one")
        return _steps(
            wrong.selectExpr("'nonmonotonic-send' AS name", "0 AS pos", "base AS other", "*")
        )

    def _session_steps(self, polls: DataFrame, placed: DataFrame) -> DataFrame:
        """The steps in which a process sees an end of the log that is lower than one that it knew
        before."""
        # Among equal ends the last `end` is kept, else the first poll or acknowledgement.
        known = "named_struct('at', {0}, 'ended', {1}, 'first', {2}, 'op', op)"
        nothing = "CAST(NULL AS STRUCT<at: BIGINT, ended: INT, first: BIGINT, op: BIGINT>)"
        acked, polls = self._sent(placed).where("kind = 'ok'"), polls.where("kind = 'ok'")
        lengths = self._operations.where("f IN ('end', 'empty') AND kind = 'ok'")
        lengths = lengths.withColumn("last", F.expr("CAST(value AS BIGINT)"))
        who = ["process", "key", "op"]
        parts = [
            (acked, known.format("last", 0, "-op"), nothing, "CAST(NULL AS BIGINT)"),
            (polls, nothing, known.format("last + 1", 0, "-op"), "CAST(NULL AS BIGINT)"),
            (lengths, nothing, f"IF(f = 'end', {known.format('last', 1, 'op')}, NULL)", "last"),
        ]
        one, two, three = (
            frame.selectExpr(*who, f"{mine} AS acked", f"{seen} AS saw", f"{told} AS told")
            for frame, mine, seen, told in parts
        )
        rows = one.unionByName(two).unionByName(three)
        before = Window.partitionBy("process", "key", "epoch").orderBy("op")
        before = before.rowsBetween(Window.unboundedPreceding, -1)
        rows = self._with_epochs(rows, assigned=False).withColumns(
            {"acked": F.max("acked").over(before), "saw": F.max("saw").over(before)}
        )
        rows = rows.where("told IS NOT NULL")
        wrong = {"read-your-writes": ("acked", "<="), "monotonic-reads": ("saw", "<")}
        steps = [
            rows.where(f"told {sign} {known_by}.at").selectExpr(
                f"'{name}' AS name",
                "key",
                "op",
                "0 AS pos",
                f"{known_by}.op AS before_op",
                f"{known_by}.at AS one",
                "told AS other",
            )
            for name, (known_by, sign) in wrong.items()
        ]
        return _steps(steps[0].unionByName(steps[1]))


def _pairs(operations: DataFrame) -> DataFrame:
    """(process, key, op, kind, rebalanced, pos, offset, value): the pairs of polls."""
    polls = operations.where("f = 'poll' AND value IS NOT NULL").selectExpr(
        "process",
        "op",
        "kind",
        "coalesce(from_json(rebalance, 'ARRAY<STRING>'), array()) AS lost",
        "explode(CAST(parse_json(value) AS MAP<STRING, VARIANT>)) AS (key, pairs)",
    )
    listed = polls.selectExpr(
        "process",
        "key",
        "op",
        "kind",
        "array_contains(lost, key) AS rebalanced",
        "posexplode(CAST(pairs AS ARRAY<VARIANT>)) AS (pos, pair)",
    )
    return listed.selectExpr(
        "process",
        "key",
        "op",
        "kind",
        "rebalanced",
        "pos",
        "variant_get(pair, '$[0]', 'bigint') AS offset",
        "to_json(variant_get(pair, '$[1]')) AS value",
    )


def _ends_of_polls(pairs: DataFrame) -> DataFrame:
    """(process, key, op, kind, first, last): the outer offsets of each poll of a key."""
    polls = pairs.groupBy("process", "key", "op", "kind")
    return polls.agg(
        F.min_by("offset", "pos").alias("first"), F.max_by("offset", "pos").alias("last")
    )


def _steps(frame: DataFrame) -> DataFrame:
    return frame.select(*(column.split()[0] for column in STEPS.split(", ")))


def _has_rows(frame: DataFrame) -> bool:
    return bool(frame.limit(1).count())
