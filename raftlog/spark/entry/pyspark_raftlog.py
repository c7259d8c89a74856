"""Lets Spark find format("raftlog") by itself: it loads top-level modules called pyspark_*."""

from raftlog.spark.requirements import missing_packages

if missing_packages() is None:
    from raftlog.spark.connector.source import RaftlogDataSource as DefaultSource
else:
    # An error here would cost a session all other sources that Spark finds so.
    from raftlog.spark.connector.refusing import RefusingDataSource as DefaultSource

__all__ = ["DefaultSource"]
