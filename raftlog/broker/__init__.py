"""Everything that one process decides:

Broker.handle(events, now_ns, wall_ms) -> Effects (floor 6).

One call is one turn. The trio shell performs the effects in production, the simulator performs the
same effects in virtual time. Both run the same broker.

Laws: no I/O and no files, only memory; every Request gets exactly one Reply; back-pressure is
decided here, from one ledger. May be imported by: runtime, embed, cli and raftlog_sim. Imports:
partition and below.
"""
