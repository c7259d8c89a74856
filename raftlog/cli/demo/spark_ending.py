"""The demo's ending: Spark reads `flights` from the running cluster, as a table and as a stream.

It verifies the order under the faults that were just injected (`raftlog.spark.verify_job`: the log
joined with the history of its producers). It answers two questions about the flights, and writes
the table as Parquet into the run's folder. Where Spark cannot start, the demo says what to run and
proves the rest without it.
"""

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from raftlog.base.amounts import amount
from raftlog.base.errors import RaftlogError
from raftlog.cli.demo.proof import Claim
from raftlog.spark.requirements import missing
from raftlog.spark.session import local_session

if TYPE_CHECKING:
    from raftlog.spark.jobs.log_job import LogCheck

Frame = Any
Session = Any
"""Spark's own class; only raftlog.spark imports it."""

MASTER: Final = "local[2]"
TABLE: Final = "flights.parquet"
ROWS_SHOWN: Final = 5

# Where a column of the file stands in a record: behind the row's number and a comma.
_COLUMNS: Final = {"dep_delay": 6, "arr_delay": 9, "carrier": 10, "origin": 13, "time_hour": 19}
NAME_SQL: Final = (
    "concat(coalesce(CAST(key AS STRING), ''), '#', split(CAST(value AS STRING), ',')[0])"
)
"""The name of a record in the history: its key, #, the row's number."""


class SparkAnswers(NamedTuple):
    """The findings of Spark; `skipped` says why it did not run."""

    claims: tuple[Claim, ...] = ()
    carriers: tuple[tuple[str, float, int], ...] = ()
    """The worst carriers: name, mean arrival delay in minutes, flights."""
    hours: tuple[tuple[str, int, float], ...] = ()
    """The busiest hours of the stream's aggregate: hour, departures, mean departure delay."""
    skipped: str = ""

    def document(self) -> dict[str, Any]:
        """The answers as run.json has them."""
        if self.skipped:
            return {"skipped": self.skipped}
        return {
            "worst_carriers": [
                {"carrier": carrier, "mean_arrival_delay_minutes": delay, "flights": flights}
                for carrier, delay, flights in self.carriers
            ],
            "busiest_hours": [
                {"hour": hour, "departures": count, "mean_departure_delay_minutes": delay}
                for hour, count, delay in self.hours
            ],
            "parquet": TABLE,
        }


def run(bootstrap: str, topic: str, folder: Path, records: int) -> SparkAnswers:
    """Do everything that Spark adds, for a topic of this many records.

    It never raises for Spark's own absence. A job that fails is a claim that does not hold.
    """
    error = missing()
    if error is not None:
        return SparkAnswers(skipped=f"{error.what}: {error.do}")
    spark = local_session(
        MASTER,
        name="raftlog demo",
        spark_ui_showConsoleProgress="false",
        # Half a minute of small jobs: the quick compiler pays, the thorough one does not.
        spark_driver_extraJavaOptions="-XX:TieredStopAtLevel=1",
    )
    try:
        return _answers(spark, bootstrap, topic, folder, records)
    except Exception as cause:  # a job may raise anything, and the demo must report it
        text = str(cause) if isinstance(cause, RaftlogError) else str(cause).partition("\n")[0]
        return SparkAnswers((Claim("spark", "Spark reads the log", False, text[:500]),))
    finally:
        spark.stop()


def _answers(
    spark: Session, bootstrap: str, topic: str, folder: Path, records: int
) -> SparkAnswers:
    from raftlog.spark.history_table import read_history
    from raftlog.spark.verify_job import verify_topic

    checks = verify_topic(spark, read_history(spark, folder), bootstrap, topic, NAME_SQL)
    table = _flights(_source(spark.read, bootstrap, topic))
    shutil.rmtree(folder / TABLE, ignore_errors=True)
    table.write.parquet(str(folder / TABLE))
    stored = spark.read.parquet(str(folder / TABLE))
    count = stored.count()
    hours, streamed = _by_hour(spark, bootstrap, topic, folder)
    claims = (
        *(_claim(check) for check in checks),
        Claim(
            "spark-parquet",
            f"Spark wrote all {amount(records, 'record', grouped=True)} as Parquet",
            count == records,
            "" if count == records else f"{amount(count, 'row', grouped=True)}",
        ),
        Claim(
            "spark-stream",
            f"the stream's aggregate counts each of {amount(records, 'record', grouped=True)} once",
            streamed == records,
            "" if streamed == records else f"{amount(streamed, 'record', grouped=True)}",
        ),
    )
    return SparkAnswers(claims, _worst_carriers(stored), hours)


def _claim(check: "LogCheck") -> Claim:
    evidence = "" if check.holds else f"{amount(check.failures, 'time')}; {check.evidence}"
    return Claim(f"spark-{check.name}", f"Spark: {check.says}", check.holds, evidence)


def _source(reader: Any, bootstrap: str, topic: str) -> Frame:
    found: Frame = (
        reader.format("raftlog")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
    )
    return found


def _flights(log: Frame) -> Frame:
    """The columns that the questions need, beside the record's place."""
    fields = log.selectExpr("partition", "offset", "split(CAST(value AS STRING), ',') AS fields")
    texts = {name: f"element_at(fields, {at + 1})" for name, at in _COLUMNS.items()}
    return fields.selectExpr(
        "partition",
        "offset",
        "CAST(fields[0] AS INT) AS row",
        f"{texts['carrier']} AS carrier",
        f"{texts['origin']} AS origin",
        f"try_cast({texts['dep_delay']} AS DOUBLE) AS dep_delay",
        f"try_cast({texts['arr_delay']} AS DOUBLE) AS arr_delay",
        f"try_cast({texts['time_hour']} AS TIMESTAMP) AS time_hour",
    )


def _worst_carriers(flights: Frame) -> tuple[tuple[str, float, int], ...]:
    rows = (
        flights.groupBy("carrier")
        .agg({"arr_delay": "mean", "row": "count"})
        .selectExpr("carrier", "round(`avg(arr_delay)`, 1) AS delay", "`count(row)` AS flights")
        .orderBy("delay", "carrier", ascending=[False, True])
        .limit(ROWS_SHOWN)
        .collect()
    )
    return tuple((row["carrier"], row["delay"], row["flights"]) for row in rows)


def _by_hour(
    spark: Session, bootstrap: str, topic: str, folder: Path
) -> tuple[tuple[tuple[str, int, float], ...], int]:
    """Make an hourly aggregate through readStream, until all present records have been taken.

    Returns the busiest hours, and the number of records counted in all.
    """
    hourly = (
        _flights(_source(spark.readStream, bootstrap, topic))
        .groupBy("time_hour")
        .agg({"row": "count", "dep_delay": "mean"})
        .selectExpr("time_hour", "`count(row)` AS departures", "`avg(dep_delay)` AS delay")
    )
    checkpoint = folder / "checkpoint"
    shutil.rmtree(checkpoint, ignore_errors=True)
    query = (
        hourly.writeStream.format("memory")
        .queryName("flights_by_hour")
        .outputMode("complete")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    shutil.rmtree(checkpoint, ignore_errors=True)
    found = spark.table("flights_by_hour")
    total = found.agg({"departures": "sum"}).collect()[0][0] or 0
    rows = (
        found.selectExpr(
            "CAST(time_hour AS STRING) AS hour", "departures", "round(delay, 1) AS delay"
        )
        .orderBy("departures", "hour", ascending=[False, True])
        .limit(ROWS_SHOWN)
        .collect()
    )
    return tuple((row["hour"], row["departures"], row["delay"]) for row in rows), int(total)
