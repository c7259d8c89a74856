"""The trio shell: the only sockets, files, threads and real time of a broker (floor 7).

It collects what is ready into a turn, calls Broker.handle and performs the effects in order:
writes first, then sends, then answers.

Laws: decides nothing; every task lives in one visible nursery; everything binds to loopback unless
told otherwise; peers prove the cluster secret before anything else is parsed.
May be imported by: embed, spark, cli and one file of raftlog_sim, trio_world.py. Black-box tests
import one module, `local.broker_processes`, which knows nothing of a broker.
Imports: broker and below. Stranger: client.
"""
