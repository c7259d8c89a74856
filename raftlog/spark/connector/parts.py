"""The part of a query that Spark hands to a task: a range of one partition."""

from typing import final

from pyspark.sql.datasource import InputPartition

from raftlog.spark.connector.offsets import Range


@final
class RangePartition(InputPartition):  # type: ignore[misc]
    """A range for one task."""

    def __init__(self, part: Range) -> None:
        super().__init__(part)
        self.part = part
