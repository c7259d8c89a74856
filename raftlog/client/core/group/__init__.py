"""The consumer's side of a group, without I/O.

`GroupConsumer` is what drivers use. Below it `Membership` joins, syncs, heartbeats and leaves;
`Coordinators` finds the broker that keeps a group; `assignors` divide partitions among members.

May be imported by: raftlog.client, the floors above it and raftlog_sim.
"""
