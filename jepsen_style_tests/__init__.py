"""Black-box tests: real broker processes, real faults, other people's Kafka clients.

A workload runs against processes that are killed, paused, cut off and filled up; the history it
leaves is judged by raftlog.verify.

Laws: talks to brokers through sockets and signals only. Imports: raftlog.verify and raftlog.base,
and of the runtime `broker_processes`, which starts and ends processes and knows nothing of a
broker.
"""
