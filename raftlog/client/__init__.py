"""A Kafka client: client.core decides without I/O, the drivers beside it act (floor 7).

This file stays free of imports, for the simulator imports raftlog.client.core and must not drag
trio in with it. Import the drivers by their own names: trio_driver (async), blocking (a thread).

May be imported by: embed, spark and cli. Imports: broker and below. Stranger: runtime.
"""
