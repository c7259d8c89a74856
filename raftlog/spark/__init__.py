"""Spark's view of the log: format("raftlog") to read and write, and the verification job (floor 8).

Laws: the only importer of pyspark; what travels to executors is picklable and carries no secrets.
May be imported by: cli. Imports: client and below. Stranger: embed.
"""
