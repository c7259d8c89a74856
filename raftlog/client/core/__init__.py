"""The Kafka client without I/O: calls and answers in, dials and sends out.

Metadata cache, routing, partitioner, producer, fetcher, retries and backoff stand only here. The
trio driver, the blocking driver and the simulator's driver perform the same effects.

Laws: no I/O; time is an argument; every retry has a bound and a backoff.
May be imported by: raftlog.client, the floors above it and raftlog_sim. Imports: records, kafka
and base.
"""
