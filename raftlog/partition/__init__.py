"""One replica of one partition: Raft node, log, producer state and waiters (floor 5).

A PartitionReplica turns appends, fetches, messages and completions into an output. The broker folds
that output into its effects.

Laws: no I/O; only committed records are readable; a produce reply is made in one place, which
asserts that its last offset lies below the high watermark.
May be imported by: broker and above. Imports: metadata and below.
"""
