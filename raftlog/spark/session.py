"""A Spark session in this machine's memory."""

import os
import re
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from raftlog.base.arguments import checked
from raftlog.spark.requirements import missing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ARROW_OPTIONS: Final = (
    "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
)
"""Java options for reading Arrow columns. Without Arrow's own check of every index a row costs two
thirds of the CPU. The checks are not needed: Spark reads as many rows as the batch has, and its
workers made the batch."""
JAVA_OPTIONS: Final = ("spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions")


@checked
def local_session(
    master: str = "local[2]", *, name: str = "raftlog", memory: str = "1g", **settings: str
) -> "SparkSession":
    """The running session, or a new one, with the source registered.

    A new session has no user interface, as many shuffle partitions as the master has cores, and
    workers of the same Python; Arrow does not check every index. `settings` are Spark's, with
    underscores for dots. `OperatingError` says what is missing."""
    error = missing()
    if error is not None:
        raise error
    from pyspark.sql import SparkSession

    from raftlog.spark.connector.source import register

    # Set before Spark starts, because workers inherit it. Otherwise they might run another Python.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.master(master).appName(name)
    for key, value in settings_of(master, memory, settings).items():
        builder = builder.config(key, value)
    spark: SparkSession = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    register(spark)
    return spark


def settings_of(master: str, memory: str, settings: Mapping[str, str]) -> dict[str, str]:
    """Spark's settings for `local_session`. The caller's settings replace raftlog's; Java options
    are joined."""
    cores = re.search(r"\[(\d+)", master)
    chosen = {
        "spark.ui.enabled": "false",
        "spark.driver.memory": memory,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": cores[1] if cores is not None else "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        **{key.replace("_", "."): value for key, value in settings.items()},
    }
    for key in JAVA_OPTIONS:
        chosen[key] = f"{ARROW_OPTIONS} {chosen.get(key, '')}".strip()
    return chosen
