"""Lets Spark find format("raftlog") by itself: Spark loads top-level modules called pyspark_*."""

from raftlog.spark.requirements import missing_packages

if missing_packages() is None:
    from raftlog.spark.connector.source import RaftlogDataSource as DefaultSource
else:
    # After an error here, the session would lose all other sources that Spark finds in this way.
    from raftlog.spark.connector.refusing import RefusingDataSource as DefaultSource

__all__ = ["DefaultSource"]
