"""A Kafka client: client.core decides without I/O, the drivers beside it act (floor 7).

This file imports nothing: the simulator imports raftlog.client.core, and that must not import trio.
Import the drivers by their own names: trio_driver (async), blocking (a thread).

May be imported by: embed, spark and cli. Imports: broker and below. Stranger: runtime.
"""
