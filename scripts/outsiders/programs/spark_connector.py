"""Spark's own Kafka connector, and ours beside it: both must read the same rows.

    spark_connector.py JARS BOOTSTRAP PREFIX FEATURE...

JARS is the folder that holds the connector.
"""

import functools
import json
import re
import sys
from pathlib import Path

import pyspark
import speaking

from raftlog.spark import local_session

JARS = sorted(Path(sys.argv.pop(1)).glob("*.jar"))
COLUMNS = (
    "partition",
    "offset",
    "CAST(key AS STRING)",
    "CAST(value AS STRING)",
    "CAST(timestamp AS STRING)",
    "timestampType",
    "to_json(headers) AS headers",
)


@functools.cache
def session():
    """Returns the one session for all features: it starts in seconds, a feature takes less."""
    spark = local_session(
        "local[2]",
        memory="700m",
        spark_ui_showConsoleProgress="false",
        spark_jars=",".join(str(jar) for jar in JARS),
        spark_local_dir=str(Path.cwd()),
        spark_sql_warehouse_dir=str(Path.cwd() / "warehouse"),
    )
    spark.sparkContext.setLogLevel("OFF")
    return spark


def in_short(function):
    """Returns a function whose error is the cause at the end of Java's stacks."""

    @functools.wraps(function)
    def shortened(place):
        try:
            function(place)
        except (speaking.AbsentError, ValueError):
            raise
        except Exception as error:
            causes = re.findall(r"(?:Caused by|\n)?: ([\w.]+(?:Exception|Error): .*)", str(error))
            raise RuntimeError(causes[-1] if causes else str(error)[:400]) from error

    return shortened


def produce(**settings):
    """Returns a function that writes the feature's records in one task, so in their order."""

    @in_short
    def function(place):
        rows = [(f"{place.feature}-{number}",) for number in range(speaking.WRITTEN_RECORDS)]
        names = {f"kafka.{name.replace('_', '.')}": value for name, value in settings.items()}
        writer = session().createDataFrame(rows, "value string").coalesce(1).write.format("kafka")
        writer.options(
            **{"kafka.bootstrap.servers": place.bootstrap, "topic": place.topic, **names}
        ).save()

    return function


def table(place, form, **options):
    named = {
        "kafka.bootstrap.servers": place.bootstrap,
        "subscribe": place.filled,
        "includeHeaders": "true",
        **options,
    }
    named = {name: value for name, value in named.items() if value is not None}
    return session().read.format(form).options(**named).load()


def rows_of(found):
    ordered = found.selectExpr(*COLUMNS).orderBy("partition", "offset")
    return [list(row) for row in ordered.collect()]


@in_short
def consume(place):
    theirs, ours = table(place, "kafka"), table(place, "raftlog")
    speaking.expect(theirs.schema, ours.schema, "the schema, beside our source's")
    rows = rows_of(theirs)
    speaking.expect(sorted(row[3] for row in rows), speaking.FILLED_VALUES, "records")
    speaking.expect(rows, rows_of(ours), "the rows, beside our source's")


@in_short
def consume_time(place):
    partitions = {str(number): speaking.TIME for number in range(speaking.FILLED_PARTITIONS)}
    begin = json.dumps({place.filled: partitions})
    rows = rows_of(table(place, "kafka", startingOffsetsByTimestamp=begin))
    wanted = range(5, speaking.FILLED_RECORDS)
    found = [row[1] for row in rows]
    speaking.expect(found, [*wanted] * speaking.FILLED_PARTITIONS, "offsets")


@in_short
def group(place):
    """Use the connector's old way to find offsets: a consumer on the driver that subscribes."""
    name = "spark.sql.streaming.kafka.useDeprecatedOffsetFetching"
    session().conf.set(name, "true")
    try:
        options = {"kafka.group.id": place.group}
        found = sorted(row[3] for row in rows_of(table(place, "kafka", **options)))
    finally:
        session().conf.set(name, "false")
    speaking.expect(found, speaking.FILLED_VALUES, "records")


def reads(wanted, **options):
    """Returns a function that reads records with these options; `{topic}` is the filled topic."""

    @in_short
    def function(place):
        named = {name: text.replace("{topic}", place.filled) for name, text in options.items()}
        # One of three ways to name topics.
        if {"assign", "subscribePattern"} & named.keys():
            named["subscribe"] = None
        speaking.expect(table(place, "kafka", **named).count(), wanted, "records")

    return function


def stream(**options):
    """Returns a function that copies the filled topic into another, and ends where it ended."""

    @in_short
    def function(place):
        sink = f"{place.prefix}-{'other-work' if options else 'work'}"
        folder = str(Path.cwd() / place.feature)
        source = (
            session()
            .readStream.format("kafka")
            .options(**{"kafka.bootstrap.servers": place.bootstrap, "subscribe": place.filled})
            .options(startingOffsets="earliest", **options)
            .load()
        )
        query = (
            source.selectExpr("key", "value")
            .writeStream.format("kafka")
            .options(**{"kafka.bootstrap.servers": place.bootstrap, "topic": sink})
            .option("checkpointLocation", folder)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        found = rows_of(table(place, "kafka", subscribe=sink))
        speaking.expect(sorted(row[3] for row in found), speaking.FILLED_VALUES, "records")

    return function


ENDS = json.dumps({"{topic}": {str(number): 10 for number in range(speaking.FILLED_PARTITIONS)}})
ALL = len(speaking.FILLED_VALUES)
ABSENT = speaking.absent("the connector reads and writes, and does nothing else")
FEATURES = {
    **{
        f"produce-{codec}": produce(compression_type=codec)
        for codec in ("none", "gzip", "snappy", "lz4", "zstd")
    },
    **{
        f"acks-{acks}": produce(acks=acks, enable_idempotence="false") for acks in ("0", "1", "all")
    },
    "idempotent": produce(enable_idempotence="true"),
    "consume": consume,
    "consume-time": consume_time,
    "group": group,
    "stream": stream(),
    "stream-limited": stream(maxOffsetsPerTrigger="25"),
    "pattern": reads(ALL, subscribePattern="{topic}$"),
    "assign": reads(2 * speaking.FILLED_RECORDS, assign='{"{topic}": [0, 2]}'),
    "min-partitions": reads(ALL, minPartitions="9"),
    "ending-offsets": reads(10 * speaking.FILLED_PARTITIONS, endingOffsets=ENDS),
    "read-committed": reads(ALL, **{"kafka.isolation.level": "read_committed"}),
    "transaction": speaking.absent("the connector writes without transactions"),
    "kip-848": speaking.absent("the connector reads by assignment, or by the classic protocol"),
}

if __name__ == "__main__":
    [connector] = [
        found[1] for jar in JARS if (found := re.search(r"spark-sql.*-(.*)\.jar", str(jar)))
    ]
    speaking.main(
        f"{connector} (Spark {pyspark.__version__})", lambda name: FEATURES.get(name, ABSENT)
    )
