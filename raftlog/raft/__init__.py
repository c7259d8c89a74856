"""Pure Raft: lists of messages in, one Output out (floor 3).

The node knows no disk, socket, topic or clock. Time is an argument, randomness an injected
stream, and what must wait for the disk is named in the Output instead of being waited for.

Laws: no I/O; no promise leaves before the bytes it speaks of are synced; same inputs, same bytes.
May be imported by: partition and above (metadata may use its types). Imports: records and base.
Strangers: kafka, storage, verify. The log is reached through the LogView protocol, by shape.
"""
