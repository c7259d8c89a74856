"""Lets Spark find format("raftlog") by itself: it loads top-level modules called pyspark_*."""

from raftlog.spark.source import RaftlogDataSource as DefaultSource

__all__ = ["DefaultSource"]
