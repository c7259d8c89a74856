"""Whole clusters in a `with` block, and a replicated log, for users to import (floor 8).

Cluster(brokers=3) starts real brokers on free loopback ports and leaves nothing behind.
ReplicatedLog is Raft without Kafka: append, read, follow, linearizable end.

Laws: names are loaded on first use; pytest is imported by pytest_plugin.py alone.
May be imported by: cli. Imports: runtime, client and below. Stranger: spark.
"""
